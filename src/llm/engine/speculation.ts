/**
 * Speculation in an engine: what drafts each request.
 *
 * @module
 */

import { LlmError } from "../error.ts";
import { checkSameTokens } from "../generation/model_drafter.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { Drafter } from "../speculation/drafter.ts";
import { NgramPool, PoolDrafter } from "../speculation/ngram_pool.ts";
import {
  checkEngineSpeculation,
  checkSpeculation,
  type EngineSpeculation,
  isDraftModel,
  type RequestSpeculation,
  Speculation,
} from "../speculation/speculation.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { type DraftedRequest, DraftEngine } from "./draft_engine.ts";
import type { EngineSizes } from "./options.ts";

/** What drafts the requests of an engine. */
export class Speculations implements AsyncDisposable {
  readonly #model: DecodingModel;
  readonly #tokenizer: Tokenizer;
  readonly #options: EngineSpeculation | undefined;
  readonly #pool = new NgramPool();
  readonly #draft: DraftEngine | undefined;

  /** Throws an {@link LlmError} if drafts come from a model of another vocabulary. */
  constructor(model: DecodingModel, tokenizer: Tokenizer, sizes: EngineSizes, options: EngineSpeculation | undefined) {
    this.#model = model;
    this.#tokenizer = tokenizer;
    this.#options = options;
    if (!options) return;
    checkEngineSpeculation(options);
    const { drafter } = options;
    if (!isDraftModel(drafter)) return;
    checkSameTokens(tokenizer, drafter.tokenizer);
    this.#draft = new DraftEngine(drafter, sizes);
  }

  /** Bytes of keys and values of a draft model, and those of them in use. */
  get kvBytes(): { readonly all: number; readonly used: number } {
    return { all: this.#draft?.kvBytes ?? 0, used: this.#draft?.kvBytesUsed ?? 0 };
  }

  /** What drafts a request; undefined if nothing does. Throws an {@link LlmError} for options out of range. */
  of(wanted: false | RequestSpeculation | undefined, request: DraftedRequest): Speculation | undefined {
    if (wanted === false || (wanted === undefined && !this.#options)) return undefined;
    const own = wanted ?? {};
    checkSpeculation(own);
    if (own.drafter === "mtp" && this.#options?.drafter !== "mtp") {
      throw new LlmError("option", 'speculation.drafter of a request is "mtp": give it to the engine for all requests');
    }
    if (isDraftModel(own.drafter)) {
      throw new LlmError(
        "option",
        "speculation.drafter of a request is a model: give it to the engine for all requests",
      );
    }
    const { drafter: _, ...shared } = this.#options ?? {};
    const facts = {
      vocabulary: this.#model.config.vocabSize,
      ends: this.#tokenizer.eosTokenIds,
      bounded: typeof own.drafter === "object",
    };
    return new Speculation(this.#drafterFor(own.drafter, request), { ...shared, ...own }, facts);
  }

  #drafterFor(drafter: RequestSpeculation["drafter"], request: DraftedRequest): Drafter | "mtp" {
    if (drafter !== undefined && drafter !== "ngrams") return drafter;
    if (drafter === undefined && this.#draft) return this.#draft.drafterFor(request);
    if (drafter === undefined && this.#options?.drafter === "mtp") return "mtp";
    return new PoolDrafter(this.#pool);
  }

  /** Lets later requests draft by what a request with drafts gave. */
  keep(prompt: readonly number[], answer: readonly number[]): void {
    if (!this.#draft) this.#pool.addAnswer(prompt, answer);
  }

  /** Frees what drafts. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#draft?.[Symbol.asyncDispose]();
  }
}
