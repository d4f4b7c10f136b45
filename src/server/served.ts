/**
 * A model that is served: what the endpoints need of it.
 *
 * @module
 */

import type { lm, Tensor } from "../../mod.ts";

/** What computes answers: many at once, or one after the other. */
export interface ServedEngine extends AsyncDisposable {
  /** Why it takes no requests any more; undefined if it does. */
  readonly failure?: unknown;
  /** Whether answers may have drafts. Default not. */
  readonly canSpeculate?: boolean;
  /** What it has done and does. */
  readonly metrics: lm.EngineMetrics;
  /**
   * Begins an answer. Throws an LlmError before any work if the request cannot be served; its code is "busy" if too many wait. The
   * signal of the request ends the answer within a step, as does the end of the iteration.
   */
  add(request: lm.EngineRequest): AsyncGenerator<lm.EngineResponse, void, void>;
  /** Vectors of texts, float32 (texts, hidden size), in turn with the answers. Rejects as `add` throws. */
  embed(texts: readonly string[], options: { readonly signal: AbortSignal }): Promise<Tensor<"float32", 2>>;
  /** Resolves when no request is left. */
  drain(): Promise<void>;
}

/** A loaded model with its engine, which the model outlives. */
export interface Served extends Pick<lm.Loaded, "config" | "model" | "tokenizer" | "generationConfig"> {
  /** The name that clients ask for. */
  readonly id: string;
  /** Bytes of the device that its weights and pages take. */
  readonly bytes: number;
  /** Bytes of its weights beside them, which are in host memory. */
  readonly hostBytes: number;
  /** The model that drafts for it, which goes with it. */
  readonly draft?: lm.LanguageModel;
  /** Computes its answers. */
  readonly engine: ServedEngine;
}
