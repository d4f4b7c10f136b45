/**
 * What the steps of a session do for the head of the model that drafts, multi-token prediction.
 *
 * The head takes pairs: the hidden state of a token and the token after that. A pair has the position of its first token. A prompt gives it the
 * pairs that begin with its tokens, and a later step those that end with the tokens that it feeds. So no pair waits for a choice: the last pair of a
 * prompt is written again by the step that feeds what was chosen. Only keys and values come of it. The rest of the head is computed where it
 * drafts, see head_drafter.ts. src/llm/engine/steps/head_steps.ts has the same for many sequences.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Buffers } from "../kv/cache.ts";
import { StepCache } from "../kv/step_cache.ts";
import type { LanguageModel } from "../models/mod.ts";

/** The state of a head but for its keys and values, of one sequence. */
export interface HeadState {
  /** int32 (1,): the position of the first token that it has, at which its own positions begin. */
  readonly start: Tensor;
  /** (1, 1, H): the hidden state of the token before the one to feed. */
  readonly hidden: Tensor;
}

/** What a step reads and writes for the head; nothing where no head drafts. */
export interface HeadParts extends Pick<Buffers, "draftKeys" | "draftValues"> {
  readonly head?: HeadState | undefined;
  /** int32 (B,), of the first token of the step. */
  readonly position: Tensor;
}

/** The hidden states of a pass and the tokens of its pairs. */
export interface HeadTokens {
  /** (1, T, H) */
  readonly hidden: Tensor;
  /** int32, T tokens in any shape. */
  readonly tokens: Tensor;
  /** Index of the last hidden state that counts, integer (1,). */
  readonly last: Tensor;
}

/** The part of a state that changes for the head. */
type HeadResult = Pick<HeadParts, "head" | "draftKeys" | "draftValues">;

/** The cache of the head for a pass whose first token has a position. */
export function headCache({ head, draftKeys = [], draftValues = [] }: HeadParts, position: Tensor): StepCache {
  return new StepCache(draftKeys, draftValues, mx.subtract(position, head!.start));
}

/** Has the head take the pairs that begin with the tokens of a prompt: `tokens` are those after them. */
export function readPairs(model: LanguageModel, now: HeadParts, { hidden, tokens, last }: HeadTokens): HeadResult {
  return writePairs(model, now, { hidden, tokens, position: now.position, next: mx.take(hidden, last, 1) });
}

/** Has the head take the pairs that end with the `tokens` of a step. */
export function feedPairs(model: LanguageModel, now: HeadParts, { hidden, tokens, last }: HeadTokens): HeadResult {
  const count = hidden.shape[1];
  const known = now.head!.hidden;
  const before = mx.concatenate([known, hidden.index(mx.Slice(null), mx.Slice(0, count - 1))], 1);
  return writePairs(model, now, {
    hidden: count > 1 ? before : known,
    tokens,
    position: mx.subtract(now.position, 1),
    next: mx.take(hidden, last, 1),
  });
}

function writePairs(
  model: LanguageModel,
  now: HeadParts,
  { hidden, tokens, position, next }: Pick<HeadTokens, "hidden" | "tokens"> & {
    readonly position: Tensor;
    readonly next: Tensor;
  },
): HeadResult {
  const cache = headCache(now, position);
  model.draft(hidden, tokens.reshape([1, -1]), cache);
  const { keys: draftKeys, values: draftValues } = cache.buffers;
  return { head: { ...now.head!, hidden: next }, draftKeys, draftValues };
}

/** The tokens after those of a prompt's chunk, int32 (T,): each one's successor, and `next` (1,) after the one at index `last`. */
export function tokensAfter(ids: Tensor, last: Tensor, next: Tensor): Tensor {
  const shifted = mx.concatenate([ids.index(mx.Slice(1, ids.size)), next], 0);
  return mx.where(mx.less(mx.arange(0, ids.size, 1, mx.int32), last.astype(mx.int32)), shifted, next);
}
