/**
 * A request on its way: its sequence, how its tokens are chosen, and the responses that its caller has not taken yet.
 *
 * @module
 */

import { keyAfter } from "../../array/random/keys.ts";
import type { Key } from "../../array/random/keys.ts";
import { LlmError } from "../error.ts";
import type { GenerationRequest } from "../generation/request.ts";
import type { Constraint } from "../structured/constraint.ts";
import type { ChoiceSettings } from "./choice.ts";
import type { EngineRequest, EngineResponse } from "./request.ts";
import type { RunnerSequence } from "./runner.ts";
import { Sequence } from "./sequence.ts";

/** Values that one side puts in and the other takes out, in their order. */
class Channel<T> {
  readonly #values: T[] = [];
  #wake: (() => void) | undefined;
  #ended = false;
  #error: unknown;

  /** Puts a value in. */
  push(value: T): void {
    this.#values.push(value);
    this.#wake?.();
  }

  /** No more values come; the taker gets an error after the last one, where there is one. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
  }

  /** Takes values out until the end. */
  async *take(): AsyncGenerator<T, void, void> {
    for (;;) {
      while (this.#values.length > 0) yield this.#values.shift()!;
      if (this.#ended) break;
      await new Promise<void>((resolve) => this.#wake = resolve);
      this.#wake = undefined;
    }
    if (this.#error !== undefined) throw this.#error;
  }
}

/** How a request chooses tokens. */
export function settingsOf(request: EngineRequest, contextSize: number): ChoiceSettings {
  const bias = Object.entries(request.logitBias ?? {}).map(([id, value]) => [Number(id), value] as const);
  return {
    temperature: request.temp ?? 0,
    topP: request.topP ?? 1,
    minP: request.minP ?? 0,
    topK: request.topK ?? 0,
    repetitionPenalty: request.repetitionPenalty ?? 1,
    presencePenalty: request.presencePenalty ?? 0,
    frequencyPenalty: request.frequencyPenalty ?? 0,
    contextSize,
    bias,
    logprobs: request.logprobs,
  };
}

/** A request on its way. */
export class Job implements RunnerSequence, Disposable {
  readonly sequence: Sequence;
  readonly settings: ChoiceSettings;
  /** What its tokens may be, once that is known. */
  constraint: Constraint | undefined;
  readonly #request: GenerationRequest;
  readonly #responses = new Channel<EngineResponse>();
  #key: Key | undefined;
  #ended = false;

  /** Begins a request that was checked. */
  constructor(id: number, request: GenerationRequest, asked: EngineRequest) {
    const { ids, settings: { maxTokens, sampler, contextSize } } = request;
    this.sequence = new Sequence({ id, prompt: ids, maxTokens, priority: asked.priority });
    this.settings = settingsOf(asked, contextSize);
    this.#request = request;
    this.#key = sampler.key;
  }

  /** State of its random numbers before the next token. */
  get key(): Key | undefined {
    return this.#key;
  }

  /** Tokens of its prompt. */
  get ids(): readonly number[] {
    return this.#request.ids;
  }

  /** Whether its answer may begin with thoughts. */
  get thinking(): boolean {
    return this.#request.thinking;
  }

  /** Tokens that were generated. */
  get generated(): number {
    return this.#request.stopChecker.count;
  }

  /** Whether no more tokens of it are wanted. */
  get ended(): boolean {
    return this.#ended;
  }

  /** What its caller takes. */
  responses(): AsyncGenerator<EngineResponse, void, void> {
    return this.#responses.take();
  }

  /** Takes the next token, and returns whether the answer ends with it. */
  push(token: number, logprobs: EngineResponse["logprobs"]): boolean {
    const { stopChecker, ids } = this.#request;
    if (token < 0) {
      const at = ids.length + stopChecker.count;
      this.end(
        new LlmError(
          "logits",
          `The logits after ${at} tokens contain NaN or infinity, or no finite value. ` +
            "Look for such values in the weights, or for an overflow in their dtype",
        ),
      );
      return true;
    }
    if (this.#key) this.#key = keyAfter(this.#key, 1);
    const parts = stopChecker.push(token);
    this.#responses.push({
      ...parts,
      token,
      ...(logprobs && { logprobs }),
      promptTokens: ids.length,
      cachedTokens: this.sequence.cached ?? 0,
      generationTokens: stopChecker.count,
    });
    if (parts.finishReason === null) {
      this.constraint?.accept(token);
      return false;
    }
    this.end();
    return true;
  }

  /** Ends the answer, with an error where there is one. */
  end(error?: unknown): void {
    this.#ended = true;
    this.#responses.end(error);
  }

  /** Gives the constraint back. */
  [Symbol.dispose](): void {
    this.constraint?.[Symbol.dispose]();
    this.constraint = undefined;
  }
}
