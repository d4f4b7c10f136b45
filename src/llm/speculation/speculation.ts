/**
 * Speculation of one sequence: what drafts its tokens, how many of them, and what came of it. The options of it, also in an engine.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { checkOptions } from "../../graph/options.ts";
import { LlmError, optionError } from "../error.ts";
import { Acceptance, MAX_DRAFT } from "./draft_length.ts";
import type { Drafter } from "./drafter.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** A model that drafts, as `mx.lm.load` gives it. */
export interface DraftModel {
  readonly model: LanguageModel;
  /** Its tokens must be those of the model that verifies. */
  readonly tokenizer: Tokenizer;
}

/** Options of speculation. */
export interface SpeculationOptions {
  /**
   * "ngrams" drafts what followed the last tokens where they occurred before. "mtp" has the head of the model draft that `draftHead: true` of `load`
   * gave it. A smaller model drafts what it would generate, and an object of the program whatever it likes. Default "ngrams".
   */
  readonly drafter?: "ngrams" | "mtp" | DraftModel | Drafter;
  /** Most tokens that a step verifies beside the next one, from 1 to 7. Default 7, of "mtp" 3. */
  readonly numDraftTokens?: number;
  /**
   * Whether drafts are shorter, or left out, while they save no time. Otherwise each has `numDraftTokens` tokens, which measurements want.
   * Default true.
   */
  readonly adaptive?: boolean;
}

const SPECULATION_OPTIONS = { drafter: true, numDraftTokens: true, adaptive: true } as const satisfies Record<
  keyof SpeculationOptions,
  true
>;

/** Throws an {@link LlmError} that names an option of speculation that is none or is out of range. */
export function checkSpeculation(options: SpeculationOptions): void {
  if (typeof options !== "object" || options === null) throw optionError("speculation", options, "an object");
  checkOptions("speculation", options, SPECULATION_OPTIONS, (message) => new LlmError("option", message));
  const { drafter = "ngrams", numDraftTokens = MAX_DRAFT, adaptive = true } = options;
  if (drafter !== "ngrams" && drafter !== "mtp" && !isDraftModel(drafter) && !isDrafter(drafter)) {
    const expected = '"ngrams", "mtp", what load() returns or an object with extend() and draft()';
    throw optionError("speculation.drafter", drafter, expected);
  }
  if (!Number.isSafeInteger(numDraftTokens) || numDraftTokens < 1 || numDraftTokens > MAX_DRAFT) {
    throw optionError("speculation.numDraftTokens", numDraftTokens, `an integer from 1 to ${MAX_DRAFT}`);
  }
  if (typeof adaptive !== "boolean") throw optionError("speculation.adaptive", adaptive, "true or false");
}

/** Whether a model drafts. */
export function isDraftModel(drafter: SpeculationOptions["drafter"]): drafter is DraftModel {
  const { model, tokenizer } = (drafter ?? {}) as Partial<DraftModel>;
  return typeof model?.forward === "function" && typeof tokenizer?.decoder === "function";
}

function isDrafter(drafter: unknown): drafter is Drafter {
  const { extend, draft } = (drafter ?? {}) as Partial<Drafter>;
  return typeof extend === "function" && typeof draft === "function";
}

/** Speculation of all requests of an engine. */
export interface EngineSpeculation extends Pick<SpeculationOptions, "numDraftTokens" | "adaptive"> {
  /**
   * "ngrams" drafts what followed the last tokens where they occurred before: in the request, or in answers of others. "mtp" has the head of the
   * model draft that `draftHead: true` of `load` gave it, for all requests together. A smaller model drafts what it would generate. Default "ngrams".
   */
  readonly drafter?: "ngrams" | "mtp" | DraftModel;
}

/** Speculation of one request. */
export interface RequestSpeculation extends Pick<SpeculationOptions, "numDraftTokens" | "adaptive"> {
  /**
   * As {@link EngineSpeculation.drafter}, or an object of the program for this request alone. "mtp" must be that of the engine too. Default that of
   * the engine, else "ngrams".
   */
  readonly drafter?: "ngrams" | "mtp" | Drafter;
}

/** Speculation of all prompts of a batch. */
export interface BatchSpeculation extends Pick<SpeculationOptions, "numDraftTokens" | "adaptive"> {
  /**
   * "ngrams" drafts what followed the last tokens where they occurred before: in the prompt, or in answers of the batch that ended. "mtp" has the
   * head of the model draft, as in an engine. Default "ngrams".
   */
  readonly drafter?: "ngrams" | "mtp";
}

/** Throws an {@link LlmError} unless a batch can draft so. */
export function checkBatchSpeculation(options: BatchSpeculation): void {
  checkSpeculation(options);
  const { drafter = "ngrams" } = options;
  if (drafter === "ngrams" || drafter === "mtp") return;
  throw optionError("speculation.drafter", drafter, '"ngrams" or "mtp": an engine takes draft models');
}

/** Throws an {@link LlmError} unless an engine can draft so. */
export function checkEngineSpeculation(options: EngineSpeculation): void {
  checkSpeculation(options);
  const { drafter = "ngrams" } = options;
  if (drafter === "ngrams" || drafter === "mtp" || isDraftModel(drafter)) return;
  const expected = '"ngrams", "mtp" or what load() returns: an object that drafts is an option of a request';
  throw optionError("speculation.drafter", drafter, expected);
}

/** Most tokens that a head drafts by default: each further one is right less often. */
const MTP_DRAFT = 3;
/** Milliseconds that a drafter of the program may take for a draft. */
const LATE_MS = 1000;

/** What {@link Speculation} depends on beside its options. */
export interface SpeculationFacts {
  /** Drafted tokens are below it. */
  readonly vocabulary: number;
  /** Tokens that end an answer: nothing is drafted from one on. Default none. */
  readonly ends?: ReadonlySet<number>;
  /** Whether the program drafts, so that drafts may never come. Default false. */
  readonly bounded?: boolean;
}

/** Drafts of a sequence, and what came of them. */
export class Speculation {
  /** How often they are right. */
  readonly acceptance: Acceptance = new Acceptance();
  /** Most tokens of a draft. */
  readonly most: number;
  /** Whether there are fewer, or none, while they save no time. */
  readonly adaptive: boolean;
  /** Undefined while the head drafts, and the session or the engine that has it did not take this yet. */
  #drafter: Drafter | undefined;
  /** Whether the head of the model drafts. */
  readonly byHead: boolean;
  readonly #facts: SpeculationFacts;
  /** Tokens that the drafter has, or gets when it is not late any more. */
  #known = 0;
  /** Tokens that came while a draft was late; undefined if none is. */
  #missed: number[] | undefined;
  #drafted = 0;
  #accepted = 0;
  /** Drafted tokens that were right and that the answer does not have yet. */
  #coming = 0;
  /** A draft that no step verifies, as far as the next tokens are those; undefined if there is none. */
  #guess: { readonly tokens: readonly number[]; right: number } | undefined;
  /** Coming tokens that a verified draft had, so that no other one is compared with them. */
  #verified = 0;

  /** Options are those that {@link checkSpeculation} passed. */
  constructor(
    drafter: Drafter | "mtp",
    { numDraftTokens = drafter === "mtp" ? MTP_DRAFT : MAX_DRAFT, adaptive = true }: SpeculationOptions,
    facts: SpeculationFacts,
  ) {
    this.byHead = drafter === "mtp";
    this.#drafter = drafter === "mtp" ? undefined : drafter;
    this.most = numDraftTokens;
    this.adaptive = adaptive;
    this.#facts = facts;
  }

  /** Has the head of the model draft, which is a part of what decodes. */
  draftBy(head: Drafter): void {
    this.#drafter = head;
  }

  /** Tokens that were drafted and verified. */
  get drafted(): number {
    return this.#drafted;
  }

  /** Those of them that the answer has: the model chose them too, and they came before its end. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Takes the tokens of the prompt, and later those that were generated. */
  extend(tokens: readonly number[]): void {
    const isPrompt = this.#known === 0;
    this.#known += tokens.length;
    if (this.#missed) this.#missed.push(...tokens);
    else if (tokens.length > 0 && this.#drafter) {
      if (isPrompt || !this.adaptive || !this.#drafter.instant) this.#drafter.extend(tokens);
      else for (const token of tokens) this.#compare(this.#drafter, token);
    }
  }

  /** Compares the next token with what was drafted before it, and drafts what may follow: both for {@link Speculation.acceptance} alone. */
  #compare(drafter: Drafter, token: number): void {
    const guess = this.#guess;
    const isRight = guess?.tokens[guess.right] === token;
    if (guess && isRight) guess.right++;
    if (guess && (!isRight || guess.right === guess.tokens.length)) this.#noteGuess();
    drafter.extend([token]);
    if (this.#verified > 0) this.#verified--;
    if (this.#guess || this.#verified > 0 || !this.matches) return;
    const tokens = drafter.draft(this.most);
    if (Array.isArray(tokens) && tokens.length > 0) this.#guess = { tokens, right: 0 };
  }

  /** Notes a draft that no step verified. It is over, or another one is verified in its place. */
  #noteGuess(isOver = true): void {
    const { tokens = [], right = 0 } = this.#guess ?? {};
    this.#guess = undefined;
    if (isOver) this.acceptance.note(tokens.length, right);
    else if (right > 0) this.acceptance.note(right, right);
  }

  /** Takes what is new of all tokens of the sequence, of which the prompt comes first and by itself. */
  follow(tokens: readonly number[], promptLength: number): void {
    if (this.#known === 0) this.extend(tokens.slice(0, promptLength));
    if (tokens.length > this.#known) this.extend(tokens.slice(this.#known));
  }

  /** Whether a draft would have tokens now. */
  get matches(): boolean {
    return this.#missed === undefined && (this.#drafter?.matches?.() ?? true);
  }

  /** Tokens that may follow, at most `count`; none where there is no guess. Throws an {@link LlmError} if a drafter gives no token ids. */
  async draft(count: number): Promise<readonly number[]> {
    if (count < 1 || this.#missed || !this.#drafter) return [];
    const { vocabulary, ends, bounded } = this.#facts;
    const drafting = this.#drafter.draft(count);
    const given: unknown = bounded && !Array.isArray(drafting) ? await this.#inTime(drafting) : await drafting;
    if (!Array.isArray(given)) throw draftError(given, "a list of token ids");
    const drafted = given.slice(0, count);
    const wrong = drafted.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (wrong !== undefined) throw draftError(wrong, `token ids below ${vocabulary}`);
    const end = ends ? drafted.findIndex((id) => ends.has(id)) : -1;
    return end < 0 ? drafted : drafted.slice(0, end);
  }

  /** A draft; none if it is late. The drafter then gets the next tokens, and is asked again, once it has come. */
  async #inTime(drafting: unknown): Promise<unknown> {
    const { promise, resolve } = Promise.withResolvers<readonly number[]>();
    const timer = setTimeout(() => {
      this.#missed = [];
      resolve([]);
    }, LATE_MS);
    const settled = (): void => {
      clearTimeout(timer);
      const missed = this.#missed ?? [];
      this.#missed = undefined;
      if (missed.length > 0) this.#drafter?.extend(missed);
    };
    // A late draft that fails is none.
    const coming = Promise.resolve(drafting).finally(settled);
    coming.catch(() => {});
    return await Promise.race([coming, promise]);
  }

  /** Notes drafted tokens that were verified, the first `accepted` of which the model chose too. */
  note(drafted: number, accepted: number): void {
    this.#drafted += drafted;
    this.#coming += accepted;
    if (this.#guess) this.#noteGuess(false);
    this.#verified = accepted + 1;
    this.acceptance.note(drafted, accepted);
  }

  /** Counts a token of the answer, and returns whether it was drafted. */
  take(): boolean {
    if (this.#coming === 0) return false;
    this.#coming--;
    this.#accepted++;
    return true;
  }
}

function draftError(given: unknown, expected: string): LlmError {
  return new LlmError("option", `The drafter of speculation gave ${quoted(given)}, expected ${expected}`);
}
