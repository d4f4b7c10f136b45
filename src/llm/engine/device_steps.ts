/**
 * The steps of an engine as array code, each from a state on the device to the next one. They read a prompt's part, advance rows, choose
 * tokens or copy pages. runner.ts traces them.
 *
 * @module
 */

import { writeRows } from "../../array/devices/kv_memory.ts";
import { unstacked } from "../../array/devices/stack.ts";
import { copyPages } from "../../array/fast/pages.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { nextPosition } from "../decode/state.ts";
import type { Buffers } from "../kv/cache.ts";
import { PagedCache } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { type ChoiceKind, chooseRows } from "./choice.ts";
import type { RowState } from "./rows.ts";

/** The state of a pass over a prompt's part. */
export interface PromptState extends Buffers {
  /** int32 (rows,): the tokens, then padding. */
  readonly ids: Tensor;
  /** uint32 (1,): index of the last token. */
  readonly last: Tensor;
  /** int32 (1,): position of the first one. */
  readonly position: Tensor;
  /** int32 (1, P): the pages of the sequence. */
  readonly table: Tensor;
  /** int32 (1,): its slot of recurrent states. */
  readonly slots: Tensor;
  /** (1, V), where those after the last token are wanted. */
  readonly logits: Tensor | undefined;
}

/** The state of a copy of pages. */
export interface CopyState extends Buffers {
  /** int32 (n,): page from[i] is copied to page to[i]. */
  readonly from: Tensor;
  readonly to: Tensor;
}

/** Copies slot from[i] of recurrent states to slot to[i], in all layers. */
export function copyStatesStep(now: CopyState): CopyState {
  return { ...now, states: now.states!.map((state) => writeRows(state, mx.take(state, now.from, 0), now.to)) };
}

/** Copies pages in all layers. */
export function copyStep(now: CopyState): CopyState {
  const copied = (arrays: Buffers["keys"]): Tensor[] =>
    unstacked(arrays).map((pool) => copyPages(pool, now.from, now.to));
  return { ...now, keys: copied(now.keys), values: copied(now.values) };
}

/** Reads tokens of a prompt into pages; where logits are wanted, those after the last one. */
export function promptStep(model: DecodingModel, now: PromptState): PromptState {
  const cache = new PagedCache(now, now.position, now.table, { slots: now.slots, last: now.last });
  const logits = model.forward(now.ids.reshape([1, -1]), cache, now.last).reshape([1, -1]);
  return { ...now, position: nextPosition(now), ...cache.buffers, ...(now.logits && { logits }) };
}

/** Feeds a token of each row: the logits after them, and the pages. */
function feed(model: DecodingModel, now: RowState & Buffers): Buffers & { readonly logits: Tensor } {
  const cache = new PagedCache(now, now.position, now.table, { slots: now.slots });
  const logits = model.forward(now.token, cache).reshape([now.token.shape[0], -1]);
  return { logits, ...cache.buffers };
}

/** Feeds a token of each row and chooses the next ones. */
export function decodeStep(
  model: DecodingModel,
  kind: ChoiceKind,
  now: RowState & Buffers,
  processors: readonly LogitsProcessor[],
): RowState & Buffers {
  const { logits, ...buffers } = feed(model, now);
  return { ...now, ...chooseRows(kind, now, logits, processors), ...buffers };
}

/** Feeds a token of each row and leaves the logits. */
export function forwardStep(model: DecodingModel, now: RowState & Buffers): RowState & Buffers {
  return { ...now, ...feed(model, now) };
}

/** Chooses tokens from logits, by masks where there are some. */
export function chooseStep(kind: ChoiceKind, now: RowState, processors: readonly LogitsProcessor[]): RowState {
  return { ...now, ...chooseRows(kind, now, now.logits!, processors, now.mask) };
}
