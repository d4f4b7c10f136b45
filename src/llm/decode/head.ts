/**
 * What the steps of a session do for the head of the model that drafts, multi-token prediction.
 *
 * A step gives the head the hidden states of its tokens and the tokens that came of them. It keeps the last of what the head makes of those, with
 * which the next draft begins: see head_drafter.ts.
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
  /** (1, 1, H): what it made of the last hidden state and the token after that. */
  readonly hidden: Tensor;
}

/** What a step reads and writes for the head; nothing where no head drafts. */
export interface HeadParts extends Pick<Buffers, "draftKeys" | "draftValues"> {
  readonly head?: HeadState | undefined;
  /** int32 (B,), of the first token of the step. */
  readonly position: Tensor;
}

/** Hidden states of tokens, and the tokens that came of them. */
export interface HeadTokens {
  /** (1, T, H) */
  readonly hidden: Tensor;
  /** int32, T tokens in any shape. */
  readonly after: Tensor;
  /** Index of the last one that counts, integer (1,). */
  readonly last: Tensor;
}

/** The cache of the head for a pass whose first token has a position. */
export function headCache({ head, draftKeys = [], draftValues = [] }: HeadParts, position: Tensor): StepCache {
  return new StepCache(draftKeys, draftValues, mx.subtract(position, head!.start));
}

/** Has the head take the tokens of a step. */
export function feedHead(
  model: LanguageModel,
  now: HeadParts,
  { hidden, after, last }: HeadTokens,
): Pick<HeadParts, "head" | "draftKeys" | "draftValues"> {
  const cache = headCache(now, now.position);
  const made = model.draft(hidden, after.reshape([1, -1]), cache).hidden;
  const { keys: draftKeys, values: draftValues } = cache.buffers;
  return { head: { ...now.head!, hidden: mx.take(made, last, 1) }, draftKeys, draftValues };
}

/** The tokens after those of a prompt's chunk, int32 (T,): each one's successor, and `next` (1,) after the one at index `last`. */
export function tokensAfter(ids: Tensor, last: Tensor, next: Tensor): Tensor {
  const shifted = mx.concatenate([ids.index(mx.Slice(1, ids.size)), next], 0);
  return mx.where(mx.less(mx.arange(0, ids.size, 1, mx.int32), last.astype(mx.int32)), shifted, next);
}
