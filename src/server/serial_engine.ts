/**
 * An engine that answers one request after the other.
 *
 * @module
 */

import { lm } from "../../mod.ts";
import type { ServedEngine } from "./served.ts";

/** Requests that may wait. */
const MAX_WAITING = 8;

/** Answers in the order of arrival. */
export class SerialEngine implements ServedEngine {
  readonly #model: lm.LanguageModel;
  readonly #tokenizer: lm.Tokenizer;
  readonly #maxWaiting: number;
  #turn: Promise<void> = Promise.resolve();
  #running = 0;
  #waiting = 0;
  #requests = 0;
  #promptTokens = 0;
  #generationTokens = 0;

  constructor({ model, tokenizer }: Pick<lm.Loaded, "model" | "tokenizer">, maxWaiting: number = MAX_WAITING) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#maxWaiting = maxWaiting;
  }

  get metrics(): lm.EngineMetrics {
    return {
      running: this.#running,
      waiting: this.#waiting,
      kvBytes: 1 << 20,
      kvBytesUsed: 0,
      requests: this.#requests,
      promptTokens: this.#promptTokens,
      cachedTokens: 0,
      generationTokens: this.#generationTokens,
      preemptions: 0,
    };
  }

  add(request: lm.EngineRequest): AsyncGenerator<lm.EngineResponse, void, void> {
    if (this.#waiting + this.#running > this.#maxWaiting) {
      throw new lm.LlmError("busy", `${this.#waiting} requests wait, and no more may: try again later`);
    }
    this.#waiting++;
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = before.then(() => promise);
    return this.#answer(request, before, resolve);
  }

  async drain(): Promise<void> {
    await this.#turn;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.drain();
  }

  async *#answer(
    request: lm.EngineRequest,
    before: Promise<void>,
    next: () => void,
  ): AsyncGenerator<lm.EngineResponse, void, void> {
    const { prompt, priority: _, ...options } = request;
    try {
      await before;
      request.signal?.throwIfAborted();
      this.#running++;
      this.#waiting--;
      try {
        for await (const response of lm.streamGenerate(this.#model, this.#tokenizer, prompt, options)) {
          this.#generationTokens++;
          if (response.finishReason !== null) this.#promptTokens += response.promptTokens;
          yield response;
        }
      } finally {
        this.#running--;
        this.#waiting++;
      }
    } finally {
      this.#waiting--;
      this.#requests++;
      next();
    }
  }
}
