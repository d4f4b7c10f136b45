/**
 * Drafts by a smaller model of the same vocabulary.
 *
 * A draft is chosen as the answer is: with the sampler, the penalties and the random keys that its places have. So a draft model that gives the
 * probabilities of the model drafts the very tokens that the model will choose, at any temperature.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import { keyAfter } from "../../array/random/keys.ts";
import { GenerationSession } from "../decode/session.ts";
import type { DecodeOptions } from "../decode/state.ts";
import { LlmError } from "../error.ts";
import type { KvCache } from "../kv/cache.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Sampler } from "../sampling/options.ts";
import type { Drafter } from "../speculation/drafter.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { commonTokens } from "./prompt.ts";

/** Most tokens of one forward pass over the prompt. */
const CHUNK = 2048;

/** How tokens are chosen. */
type Choice = Pick<DecodeOptions, "sampler" | "processors" | "contextSize">;

/** Drafts what a model would generate. Its cache holds what it has read and drafted; drafts that were wrong are trimmed. */
export class ModelDrafter implements Drafter, Disposable {
  readonly #model: LanguageModel;
  readonly #choice: Choice;
  readonly #cache: KvCache;
  readonly #tokens: number[] = [];
  /** Whether there is a token that the model has no embedding for. */
  #foreign = false;
  /** Tokens of the prompt; undefined before it comes. */
  #prompt: number | undefined;

  /** For answers whose tokens are chosen so. */
  constructor(model: LanguageModel, { sampler, processors, contextSize }: Choice) {
    this.#model = model;
    this.#choice = { sampler, processors, contextSize };
    this.#cache = model.makeCache();
  }

  /** See {@link Drafter.extend}. */
  extend(tokens: readonly number[]): void {
    for (const token of tokens) this.#tokens.push(token);
    this.#prompt ??= tokens.length;
    this.#foreign ||= tokens.some((id) => id >= this.#model.config.vocabSize);
  }

  /** See {@link Drafter.draft}. */
  async draft(count: number): Promise<readonly number[]> {
    const cache = this.#cache;
    const tokens = this.#tokens;
    if (this.#foreign || tokens.length + count > cache.limit) return [];
    const known = cache.reachable(commonTokens(cache.tokens, tokens));
    cache.trim(cache.offset - known);
    const unread = tokens.slice(known);
    cache.reserve(unread.length, unread.length + count);
    const drafted: number[] = [];
    try {
      using session = new GenerationSession(this.#model, cache, unread, count, {
        ...this.#choice,
        sampler: this.#sampler,
      });
      while (session.unread > CHUNK) await session.read(CHUNK);
      for await (const list of session.tokens()) {
        for (const { token } of list) drafted.push(token);
      }
    } finally {
      cache.remember([...tokens, ...drafted]);
    }
    return drafted;
  }

  /** The sampler for the next token. */
  get #sampler(): Sampler {
    return samplerAfter(this.#choice.sampler, this.#tokens.length - this.#prompt!);
  }

  /** Frees the cache; the model stays. */
  [Symbol.dispose](): void {
    this.#cache.dispose();
  }
}

/** A sampler, with the state that its random numbers have after some tokens. */
export function samplerAfter(sampler: Sampler, tokens: number): Sampler {
  if (!sampler.key) return sampler;
  const same = (logits: Tensor, key: Tensor, mask?: Tensor): Tensor => sampler(logits, key, mask);
  return Object.assign(same, { ...sampler, key: keyAfter(sampler.key, tokens) });
}

/** Pairs of tokenizers with the same tokens. */
const alike = new WeakMap<Tokenizer, WeakSet<Tokenizer>>();

/** Throws an {@link LlmError} unless a draft model has the tokens of the model: ids mean the same to both. */
export function checkSameTokens(tokenizer: Tokenizer, draft: Tokenizer): void {
  if (tokenizer === draft || alike.get(tokenizer)?.has(draft)) return;
  const sizes = [tokenizer.vocabSize, draft.vocabSize];
  const text = (of: Tokenizer, id: number): string => `${of.isSpecial(id)} ${of.tokenBytes(id)}`;
  for (let id = 0; id < Math.max(...sizes); id++) {
    if (id < Math.min(...sizes) && text(tokenizer, id) === text(draft, id)) continue;
    const found = id < Math.min(...sizes) ? `token ${id} is another one` : `${sizes[1]} tokens instead of ${sizes[0]}`;
    throw new LlmError("option", `The draft model has another vocabulary than the model: ${found}`);
  }
  alike.set(tokenizer, (alike.get(tokenizer) ?? new WeakSet()).add(draft));
}
