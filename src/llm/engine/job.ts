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
  // Of names of one token, such as 7 and "07", the last one counts.
  const bias = [...new Map(Object.entries(request.logitBias ?? {}).map(([id, value]) => [Number(id), value]))];
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
export class Job implements RunnerSequence {
  readonly sequence: Sequence;
  readonly settings: ChoiceSettings;
  /** Resolves when it has ended. */
  readonly done: Promise<void>;
  readonly #request: GenerationRequest;
  readonly #responses = new Channel<EngineResponse>();
  readonly #onEnd: () => void;
  #constraint: Constraint | undefined;
  /** Whether the mask of a step is being made: the constraint stays until it is there. */
  #masking = false;
  #key: Key | undefined;
  #ended = false;

  /** Begins a request that was checked. `onEnd` is called once, when it ends. */
  constructor(id: number, request: GenerationRequest, asked: EngineRequest, onEnd: () => void) {
    const { ids, settings: { maxTokens, sampler, contextSize } } = request;
    this.sequence = new Sequence({ id, prompt: ids, maxTokens, priority: asked.priority });
    this.settings = settingsOf(asked, contextSize);
    this.#request = request;
    this.#key = sampler.key;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.done = promise;
    this.#onEnd = () => {
      resolve();
      onEnd();
    };
  }

  /** State of its random numbers before the next token. */
  get key(): Key | undefined {
    return this.#key;
  }

  /** Whether a grammar says what its tokens may be. */
  get constrained(): boolean {
    return this.#constraint !== undefined;
  }

  /** Takes over what its tokens may be. Returns false, with that disposed, where it has ended. */
  constrain(constraint: Constraint): boolean {
    if (this.#ended) constraint[Symbol.dispose]();
    else this.#constraint = constraint;
    return !this.#ended;
  }

  /** See {@link RunnerSequence.mask}. */
  async mask(): Promise<Int32Array | undefined> {
    const constraint = this.#constraint;
    if (!constraint) return undefined;
    this.#masking = true;
    try {
      return await constraint.mask();
    } catch (error) {
      this.end(error);
      return undefined;
    } finally {
      this.#masking = false;
      if (this.#ended) this.#releaseConstraint();
    }
  }

  /** Whether its next token ends it where its signal is aborted: it has tokens, and others follow soon. */
  get isExpected(): boolean {
    const { status, computed, readLength } = this.sequence;
    return this.generated > 0 && status !== "waiting" && computed >= readLength;
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
      this.#constraint?.accept(token);
      return false;
    }
    this.end();
    return true;
  }

  /** Ends the answer, with an error where there is one. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#responses.end(error);
    this.#onEnd();
    if (!this.#masking) this.#releaseConstraint();
  }

  #releaseConstraint(): void {
    this.#constraint?.[Symbol.dispose]();
    this.#constraint = undefined;
  }
}
