/**
 * What a model family gives to generation.
 *
 * @module
 */

import type { TracedSteps } from "../../array/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import type { ModelConfig } from "../config/model.ts";
import type { Cache, KvCache } from "../kv_cache.ts";

/** What generation needs of a model. */
export interface LanguageModel extends Disposable {
  /** What config.json says. */
  readonly config: ModelConfig;
  /** Steps of this model that were traced; generation keeps its own here. They go with the model. */
  readonly traces: TracedSteps;
  /**
   * Token ids (B, T) → logits (B, T, V); with `rows` (int32 (n,), counted from 0) only those of some of the T: (B, n, V). With a
   * cache, the tokens follow those that it holds.
   */
  forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor;
  /**
   * Token ids (B, T) → hidden states (B, T, H) as transformers gives them: those of the embedding, those behind each layer but the
   * last, and last those behind the last norm. Arrays are lazy: what is not read is not computed.
   */
  hiddenStates(tokens: Tensor): Tensor[];
  /** The last of the hidden states (…, H) → logits (…, V). */
  logits(hidden: Tensor): Tensor;
  /** An empty cache for `batch` sequences; 1 unless given. */
  makeCache(batch?: number): KvCache;
}
