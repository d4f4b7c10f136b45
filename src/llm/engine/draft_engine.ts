/**
 * Drafts by a smaller model for the requests of an engine.
 *
 * Each draft is a request of a few tokens to an {@link EngineCore} of the draft model. So the drafts of all sequences are computed together,
 * in pages of one pool of bounded size. What a sequence had at its last draft is a prefix that is kept: only its new tokens are read.
 *
 * @module
 */

import { type AnswerFormat, answerMarks } from "../answer/parts.ts";
import { LlmError } from "../error.ts";
import { samplerAfter } from "../generation/model_drafter.ts";
import type { GenerationRequest } from "../generation/request.ts";
import { decodingModel } from "../models/mod.ts";
import { StopChecker } from "../sampling/stop_checker.ts";
import type { Drafter } from "../speculation/drafter.ts";
import type { DraftModel } from "../speculation/speculation.ts";
import { EngineCore } from "./core.ts";
import { Job, type JobOptions } from "./job.ts";
import { draftSizesOf, type EngineSizes } from "./options.ts";

/** How the tokens of a request are chosen, which holds for its drafts too. */
export type DraftedRequest = Pick<JobOptions, "request" | "choice">;

/** Drafts for many sequences. */
export class DraftEngine implements AsyncDisposable {
  /** Bytes of keys and values. */
  readonly kvBytes: number;
  readonly #draft: DraftModel;
  readonly #core: EngineCore;
  readonly #bytesOfPage: number;
  readonly #bytesOfSlots: number;
  /** A draft is tokens alone. */
  readonly #format: AnswerFormat;
  #ids = 0;

  /** Of a model, for as many sequences and positions as an engine of these sizes has. */
  constructor(draft: DraftModel, sizes: EngineSizes) {
    const model = decodingModel(draft.model);
    const own = draftSizesOf(model, sizes);
    this.kvBytes = (own.pages - 1) * own.bytesOfPage + own.bytesOfSlots;
    this.#bytesOfPage = own.bytesOfPage;
    this.#bytesOfSlots = own.bytesOfSlots;
    this.#draft = draft;
    this.#format = { ...answerMarks(draft.tokenizer), reasoning: false, thinking: false, tools: [] };
    this.#core = new EngineCore(model, {
      pages: own.pages,
      slots: own.slots,
      maxSequences: own.maxSequences,
      maxQueue: sizes.maxSequences,
      tokenBudget: Infinity,
      prefillStepSize: sizes.prefillStepSize,
    });
  }

  /** Those in use. */
  get kvBytesUsed(): number {
    return this.#core.usedPages * this.#bytesOfPage + this.#bytesOfSlots;
  }

  /** What drafts the answer of a request. */
  drafterFor(request: DraftedRequest): Drafter {
    const tokens: number[] = [];
    return {
      extend: (more) => void tokens.push(...more),
      draft: (count) => this.#generate(request, tokens, count),
    };
  }

  /** The next tokens as the draft model chooses them; none where it has no room for them, or no embedding of a token. */
  async #generate({ request, choice }: DraftedRequest, tokens: readonly number[], count: number): Promise<number[]> {
    const { model: { config }, tokenizer } = this.#draft;
    if (tokens.length + count > config.maxPositionEmbeddings || tokens.some((id) => id >= config.vocabSize)) return [];
    const { settings, ids } = request;
    const sampler = samplerAfter(settings.sampler, tokens.length - ids.length);
    const drafting: GenerationRequest = {
      ...request,
      ids: [...tokens],
      stopChecker: new StopChecker(tokenizer, { stop: [], limit: count, format: this.#format }),
      settings: { ...settings, maxTokens: count, sampler },
    };
    const drafted: number[] = [];
    let failure: unknown;
    const output = {
      push: ({ token }: { readonly token: number }): void => void drafted.push(token),
      end: (error?: unknown): void => void (failure = error),
    };
    const { logprobs: _, ...own } = choice;
    const job = new Job({ id: this.#ids++, request: drafting, choice: own, output });
    try {
      this.#core.add(job);
    } catch (error) {
      if (error instanceof LlmError && error.code === "memory") return [];
      throw error;
    }
    await job.done;
    if (failure !== undefined) throw failure;
    return drafted;
  }

  /** Frees the pages; the model stays. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#core[Symbol.asyncDispose]();
  }
}
