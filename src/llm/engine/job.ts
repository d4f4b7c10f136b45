/**
 * A request on its way: its sequence, how its tokens are chosen, and who takes its responses.
 *
 * @module
 */

import { keyAfter } from "../../array/random/keys.ts";
import type { Key } from "../../array/random/keys.ts";
import { logitsError } from "../error.ts";
import type { GenerationRequest } from "../generation/request.ts";
import type { SamplerOptions } from "../sampling/options.ts";
import { logitsSettings, samplerSettings } from "../sampling/settings.ts";
import type { Speculation } from "../speculation/speculation.ts";
import type { Constraint } from "../structured/constraint.ts";
import type { ChoiceSettings } from "./steps/choice.ts";
import type { EngineResponse } from "./request.ts";
import type { RunnerSequence } from "./runner_context.ts";
import { Sequence } from "./sequence.ts";

/** Who takes the responses of a request. */
export interface JobOutput {
  /** Takes the response to the next token. */
  push(response: EngineResponse): void;
  /** No more come; with an error where that is why. */
  end(error?: unknown): void;
}

/** Options that say how a request chooses tokens. */
type ChoiceOptions = Omit<SamplerOptions, "seed"> & Partial<Pick<ChoiceSettings, "logprobs">>;

/** What a {@link Job} is made from. */
export interface JobOptions {
  /** Tells it apart from all others of a core. */
  readonly id: number;
  /** The request, which was checked. */
  readonly request: GenerationRequest;
  readonly choice: ChoiceOptions;
  readonly output: JobOutput;
  /** Drafts its tokens. Default nothing does. */
  readonly speculation?: Speculation | undefined;
  /** Higher ones first. Default 0. */
  readonly priority?: number;
  /** Named in errors, where the caller has several: " of sequence 3". */
  readonly name?: string;
  /** Called once, when it ends. */
  readonly onEnd?: () => void;
}

/** A request on its way. */
export class Job implements RunnerSequence {
  readonly sequence: Sequence;
  readonly settings: ChoiceSettings;
  readonly #speculation: Speculation | undefined;
  /** Resolves when it has ended. */
  readonly done: Promise<void>;
  readonly #request: GenerationRequest;
  readonly #output: JobOutput;
  readonly #name: string;
  readonly #onEnd: () => void;
  #constraint: Constraint | undefined;
  /** Whether masks of a step are being made: the constraint stays until it is there. */
  #masking = false;
  #key: Key | undefined;
  /** Tokens of the answer, where later ones may be drafted by them. */
  readonly #answer: number[] = [];
  #ended = false;

  /** Begins a request that was checked. */
  constructor({ id, request, choice, output, speculation, priority, name = "", onEnd = () => {} }: JobOptions) {
    const { ids, settings: { maxTokens, sampler, contextSize } } = request;
    this.sequence = new Sequence({ id, prompt: ids, maxTokens, priority });
    this.settings = { ...samplerSettings(choice), ...logitsSettings(choice), contextSize, logprobs: choice.logprobs };
    this.#speculation = speculation;
    this.#request = request;
    this.#output = output;
    this.#name = name;
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

  /** What drafts its tokens; undefined where nothing does. */
  get speculation(): Speculation | undefined {
    return this.#speculation;
  }

  /** Takes over what its tokens may be. Returns false, with that disposed, where it has ended. */
  constrain(constraint: Constraint): boolean {
    if (this.#ended) constraint[Symbol.dispose]();
    else this.#constraint = constraint;
    return !this.#ended;
  }

  /** See {@link RunnerSequence.mask}. */
  mask(): Promise<Int32Array | undefined> {
    return this.#constrained((constraint) => constraint.mask());
  }

  /** See {@link RunnerSequence.masks}. */
  async masks(): Promise<readonly Int32Array[]> {
    return await this.#constrained((constraint) => constraint.masks()) ?? [];
  }

  /** Drafted tokens as far as its grammar allows them, and after them those that it demands, `most` in all; all where there is no grammar. */
  async allowed(drafted: readonly number[], most: number): Promise<readonly number[]> {
    if (!this.#constraint) return drafted;
    return await this.#constrained((constraint) => constraint.draft(drafted, most)) ?? [];
  }

  /** What the constraint gives, which stays meanwhile; undefined without one, and where it fails and ends the request. */
  async #constrained<T>(ask: (constraint: Constraint) => Promise<T>): Promise<T | undefined> {
    const constraint = this.#constraint;
    if (!constraint) return undefined;
    this.#masking = true;
    try {
      return await ask(constraint);
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

  /** Tokens of its answer if it has drafts; its sequence gets those of a step later. */
  get answer(): readonly number[] {
    return this.#answer;
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

  /** Takes the next token, and returns whether the answer ends with it. */
  push(token: number, logprobs: EngineResponse["logprobs"]): boolean {
    const { stopChecker, ids } = this.#request;
    if (token < 0) {
      this.end(logitsError(stopChecker.count + 1, ids.length + stopChecker.count, this.#name));
      return true;
    }
    if (this.#key) this.#key = keyAfter(this.#key, 1);
    if (this.#speculation) this.#answer.push(token);
    const parts = stopChecker.push(token);
    this.#output.push({
      ...parts,
      token,
      ...(logprobs && { logprobs }),
      promptTokens: ids.length,
      cachedTokens: this.sequence.cached ?? 0,
      generationTokens: stopChecker.count,
      ...(this.#speculation && {
        draftedTokens: this.#speculation.drafted,
        acceptedTokens: this.#speculation.accepted,
      }),
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
    this.#output.end(error);
    this.#onEnd();
    if (!this.#masking) this.#releaseConstraint();
  }

  #releaseConstraint(): void {
    this.#constraint?.[Symbol.dispose]();
    this.#constraint = undefined;
  }
}
