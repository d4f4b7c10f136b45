/**
 * Embeddings beside the requests of an engine: one call after the other, whose work takes turns with the engine's steps.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import { embed, type EmbedOptions } from "../generation/embed.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** Calls of `embed` that wait for each other. */
export class Embeddings {
  readonly #model: LanguageModel;
  readonly #tokenizer: Tokenizer;
  readonly #calls = new Set<Promise<unknown>>();
  readonly #closed = new AbortController();
  /** The end of the last call. */
  #last: Promise<unknown> = Promise.resolve();

  /** For a loaded model. */
  constructor(model: LanguageModel, tokenizer: Tokenizer) {
    this.#model = model;
    this.#tokenizer = tokenizer;
  }

  /** Calls that run or wait. */
  get size(): number {
    return this.#calls.size;
  }

  /** What `embed` gives, after the calls before. An abort ends the call at once while it waits. */
  async add(texts: readonly string[], options: EmbedOptions): Promise<Tensor<"float32", 2>> {
    const { signal: own } = options;
    own?.throwIfAborted();
    const signal = own ? AbortSignal.any([own, this.#closed.signal]) : this.#closed.signal;
    const before = this.#last;
    const call = this.#after(before, texts, { ...options, signal });
    this.#calls.add(call);
    this.#last = Promise.allSettled([before, call]);
    try {
      return await call;
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Resolves when the calls so far have ended. */
  async drain(): Promise<void> {
    await Promise.allSettled(this.#calls);
  }

  /** Ends all calls with an error. */
  async close(error: unknown): Promise<void> {
    this.#closed.abort(error);
    await this.drain();
  }

  async #after(
    before: Promise<unknown>,
    texts: readonly string[],
    options: EmbedOptions & { readonly signal: AbortSignal },
  ): Promise<Tensor<"float32", 2>> {
    const { signal } = options;
    const aborted = Promise.withResolvers<never>();
    const abort = (): void => aborted.reject(signal.reason);
    signal.addEventListener("abort", abort);
    try {
      await Promise.race([before, aborted.promise]);
    } finally {
      signal.removeEventListener("abort", abort);
    }
    return await embed(this.#model, this.#tokenizer, texts, options);
  }
}
