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
import type { Buffers } from "../kv/cache.ts";
import type { LayerPlace } from "../kv/page_groups.ts";
import { PagedCache } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { countAccepted } from "../speculation/acceptance.ts";
import { type ChoiceKind, chooseRows } from "./choice.ts";
import type { RowState, VerifyState } from "./rows.ts";

/** The state of a pass over parts of prompts, which are in n tiles of consecutive tokens each. */
export interface PromptState extends Buffers {
  /** int32 (tokens,): the tiles one after another, with padding at the ends of parts. */
  readonly ids: Tensor;
  /** uint32 (m,): indices of the tokens whose logits are wanted, or of the last one. */
  readonly last: Tensor;
  /** int32 (n,): position of the first token of each tile. */
  readonly position: Tensor;
  /** int32 (n, P): the pages of its sequence, for each group of layers. */
  readonly tables: readonly Tensor[];
  /** int32 (n,): its slot of recurrent states. */
  readonly slots: Tensor;
  /** (m, V), where logits are wanted. */
  readonly logits: Tensor | undefined;
}

/** The state of a copy of pages. */
export interface CopyState extends Buffers {
  /** int32 (1,), for each group of layers: page `from` is copied to page `to`. */
  readonly from: readonly Tensor[];
  readonly to: readonly Tensor[];
}

/** Copies a slot of recurrent states to another, in all layers. */
export function copyStatesStep(now: CopyState): CopyState {
  const { from: [from], to: [to] } = now;
  return { ...now, states: now.states!.map((state) => writeRows(state, mx.take(state, from, 0), to)) };
}

/** Copies a page in all layers. */
export function copyStep(now: CopyState): CopyState {
  const { from, to } = now;
  const copied = (arrays: Buffers["keys"]): Tensor[] => {
    const pools = unstacked(arrays);
    const groupOf = (i: number): number => Math.floor(i * from.length / pools.length);
    return pools.map((pool, i) => copyPages(pool, from[groupOf(i)], to[groupOf(i)]));
  };
  return { ...now, keys: copied(now.keys), values: copied(now.values) };
}

/** The group and the slot of each layer; undefined where layers have one group. */
function placesOf(model: DecodingModel): readonly LayerPlace[] | undefined {
  return model.poolSizes().groups?.places;
}

/** Reads tokens of prompts into pages; where logits are wanted, those after the last ones. */
export function promptStep(model: DecodingModel, now: PromptState): PromptState {
  const { ids, position, tables, slots, last } = now;
  const tile = ids.size / position.size;
  const cache = new PagedCache(now, position, tables, { slots, last, tile, layers: placesOf(model) });
  const logits = model.forward(ids.reshape([1, -1]), cache, last).reshape([last.size, -1]);
  return { ...now, ...cache.buffers, ...(now.logits && { logits }) };
}

/** Feeds a token of each row: the logits after them, and the pages. */
function feed(model: DecodingModel, now: RowState & Buffers): Buffers & { readonly logits: Tensor } {
  const cache = new PagedCache(now, now.position, now.tables, { slots: now.slots, layers: placesOf(model) });
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

/** Feeds the columns of each sequence and chooses a token after each, by masks where there are some. States are those after the tokens that count. */
export function verifyStep(
  model: DecodingModel,
  kind: ChoiceKind,
  now: VerifyState & Buffers,
  processors: readonly LogitsProcessor[],
): VerifyState & Buffers {
  const { token, starts, tables, slots, drafted, mask } = now;
  const cache = new PagedCache(now, starts, tables, { slots, layers: placesOf(model), drafts: true });
  const fed = token.reshape([starts.size, -1]);
  const logits = model.forward(fed, cache).reshape([token.size, -1]);
  const chosen = chooseRows(kind, now, logits, processors, mask);
  const guessed = fed.index(mx.Slice(null), mx.Slice(1, fed.shape[1]));
  cache.settle(mx.add(countAccepted(chosen.token.reshape(fed.shape), guessed, drafted), 1));
  return { ...now, ...chosen, ...cache.buffers };
}

/** Chooses tokens from logits, by masks where there are some. */
export function chooseStep(kind: ChoiceKind, now: RowState, processors: readonly LogitsProcessor[]): RowState {
  return { ...now, ...chooseRows(kind, now, now.logits!, processors, now.mask) };
}
