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
   * Token ids (B, T) → activations (B, T, hidden): the embeddings, then what each layer gives, of the last one behind the norm. With a
   * cache, the tokens follow those that it holds. Only `hiddenStates`, `embed` and `perplexity` need it.
   */
  hiddenStates?(tokens: Tensor, cache?: Cache): Tensor[];
  /** The last hidden states (…, hidden) → logits (…, V). */
  logits?(hidden: Tensor): Tensor;
  /** An empty cache for `batch` sequences; 1 unless given. */
  makeCache(batch?: number): KvCache;
}
