/**
 * The sequences of a batch: an {@link EngineCore} of their own, whose steps read the weights once for all of them.
 *
 * @module
 */

import { chunkLength } from "../generation/generate.ts";
import type { GenerationRequest } from "../generation/request.ts";
import { type DecodingModel, decodingModel, type LanguageModel } from "../models/mod.ts";
import type { BatchGenerateOptions } from "../sampling/options.ts";
import type { GenerationResponse } from "../sampling/response.ts";
import { NgramPool, PoolDrafter } from "../speculation/ngram_pool.ts";
import { Speculation, type SpeculationFacts } from "../speculation/speculation.ts";
import { Constraint } from "../structured/constraint.ts";
import type { GrammarSource } from "../structured/protocol.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { Channel } from "./channel.ts";
import { EngineCore } from "./core.ts";
import { Job } from "./job.ts";
import { batchSizesOf, draftsByHead } from "./options.ts";
import type { EngineResponse } from "./request.ts";

/** One generated token of one sequence. */
export interface BatchToken extends
  Pick<
    GenerationResponse,
    | "text"
    | "reasoning"
    | "toolCalls"
    | "raw"
    | "token"
    | "logprobs"
    | "generationTokens"
    | "finishReason"
    | "draftedTokens"
    | "acceptedTokens"
  > {
  /** Number of the prompt. */
  readonly sequence: number;
}

/** What a prompt of a batch comes to. */
export interface BatchRequest extends GenerationRequest {
  readonly grammar: GrammarSource | undefined;
}

/** The responses to some requests. */
export async function* streamRequests(
  model: LanguageModel,
  tokenizer: Tokenizer,
  requests: readonly BatchRequest[],
  options: BatchGenerateOptions,
): AsyncGenerator<BatchToken, void, void> {
  if (requests.length === 0) return;
  const { signal } = options;
  signal?.throwIfAborted();
  using opened = new DisposableStack();
  const constraints: (Constraint | undefined)[] = [];
  for (const { grammar, ids, thinking } of requests) {
    const constraint = opened.use(await Constraint.open(tokenizer, model.config.vocabSize, grammar, signal));
    constraint?.begin(ids, thinking);
    constraints.push(constraint);
  }
  const batch = new Batch(decodingModel(model), requests, constraints, { ...options, ends: tokenizer.eosTokenIds });
  opened.move(); // they are the batch's now
  let count = 0;
  try {
    for (let list = await batch.responses.next(); list; list = await batch.responses.next()) {
      count += list.length;
      for (const response of list) yield response;
    }
  } finally {
    const closed = batch[Symbol.asyncDispose]();
    // Memory that the device still uses for aborted prompts lives until the device is done, but no caller waits for that.
    if (count > 0 || !signal?.aborted) await closed;
  }
}

/** Sequences that advance together. */
class Batch implements AsyncDisposable {
  /** What the sequences give, for the caller to take. */
  readonly responses = new Channel<BatchToken>();
  readonly #core: EngineCore;
  readonly #jobs: readonly Job[];
  readonly #options: BatchGenerateOptions;
  /** Answers that ended, by which others are drafted. */
  readonly #pool = new NgramPool();
  /** Prompts that were read, and sequences that have not ended. */
  #read = 0;
  #left: number;

  /** Begins to read the prompts. Each sequence owns its constraint. */
  constructor(
    model: DecodingModel,
    requests: readonly BatchRequest[],
    constraints: readonly (Constraint | undefined)[],
    options: BatchGenerateOptions & Pick<SpeculationFacts, "ends">,
  ) {
    this.#options = options;
    this.#left = requests.length;
    const prefillStepSize = chunkLength(model, requests[0].settings);
    const positions = requests.map(({ ids, settings: { maxTokens } }) => ids.length + maxTokens - 1);
    const draftHead = draftsByHead(options);
    this.#core = new EngineCore(model, {
      ...batchSizesOf(model, positions, { prefillStepSize, draftHead }),
      draftHead,
      tokenBudget: Infinity,
      prefillStepSize,
      processors: requests[0].settings.processors, // with bias and penalties, which all have in common
      pace: () => this.responses.drained(),
    });
    const { temp, topP, topK, minP, logprobs, speculation, ends } = options;
    const facts = { vocabulary: model.config.vocabSize, ...(ends && { ends }) };
    const choice = { temp, topP, topK, minP, logprobs };
    this.#jobs = requests.map((request, sequence) => {
      const output = {
        push: (response: EngineResponse): void => this.#push(sequence, response),
        end: (error?: unknown): void => this.#end(error),
      };
      const name = requests.length > 1 ? ` of sequence ${sequence}` : "";
      const drafter = draftHead ? "mtp" : new PoolDrafter(this.#pool);
      const drafts = speculation && new Speculation(drafter, speculation, facts);
      const onEnd = (): void => drafts && this.#pool.addAnswer(job.ids, job.answer);
      const job: Job = new Job({ id: sequence, request, choice, output, name, speculation: drafts, onEnd });
      const constraint = constraints[sequence];
      if (constraint) job.constrain(constraint);
      return job;
    });
    for (const job of this.#jobs) this.#core.add(job);
    options.signal?.addEventListener("abort", this.#abort);
    if (options.signal?.aborted) this.#abort(); // while the grammars opened
  }

  /** Ends all sequences and frees what they used. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.responses.end();
    for (const job of this.#jobs) this.#core.end(job);
    await this.#core[Symbol.asyncDispose]();
  }

  #push(sequence: number, { promptTokens: _, cachedTokens: _cached, ...response }: EngineResponse): void {
    if (response.generationTokens === 1) {
      this.#read++;
      this.#options.onPrompt?.(this.#read, this.#jobs.length);
    }
    this.responses.push({ sequence, ...response });
  }

  #end(error: unknown): void {
    if (--this.#left === 0 || error !== undefined) this.responses.end(error);
  }

  /** Ends the sequences without a token; the others end with their next one. Without any token, the reason is thrown. */
  readonly #abort = (): void => {
    if (this.#read === 0) this.responses.end(this.#options.signal!.reason);
    for (const job of this.#jobs) if (!job.isExpected) this.#core.end(job);
  };
}
