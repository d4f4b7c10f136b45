/**
 * The steps of an engine as array code, each from a state on the device to the next one. They read a prompt's part, advance rows, choose
 * tokens or copy pages. runner.ts traces them.
 *
 * @module
 */

import { writeRows } from "../../../array/devices/kv_memory.ts";
import { unstacked } from "../../../array/devices/stack.ts";
import { copyPages } from "../../../array/fast/pages.ts";
import * as mx from "../../../array/mod.ts";
import type { Tensor } from "../../../array/mod.ts";
import type { Buffers } from "../../kv/cache.ts";
import { PagedCache } from "../../kv/paged.ts";
import type { LogitsProcessor } from "../../sampling/options.ts";
import { countAccepted } from "../../speculation/acceptance.ts";
import { type ChoiceKind, chooseRows } from "./choice.ts";
import { pairsOf, type PooledModel, writePairs, writePairsOf } from "./head_steps.ts";
import type { RowState, VerifyState } from "./rows.ts";

/** The state of a pass over parts of prompts, which are in n tiles of consecutive tokens each. */
export interface PromptState extends Buffers {
  /** int32 (tokens,): the tiles one after another, with padding at the ends of parts. */
  readonly ids: Tensor;
  /** int32 (tokens,): the token after each, where a head drafts. After the last one of a prompt it is any. */
  readonly after?: Tensor | undefined;
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

/** Reads tokens of prompts into pages; where logits are wanted, those after the last ones. */
export function promptStep(pooled: PooledModel, now: PromptState): PromptState {
  const { ids, position, tables, slots, last } = now;
  const { model, layers, head } = pooled;
  const tile = ids.size / position.size;
  const cache = new PagedCache(now, position, tables, { slots, last, tile, layers });
  const hidden = model.hidden(ids.reshape([1, -1]), cache, head ? undefined : last);
  const ends = head ? mx.take(hidden, last, 1) : hidden;
  const logits = now.logits && model.logits(ends).reshape([last.size, -1]);
  // The state of the head is one of its slot, and with states a step reads one part of a prompt.
  if (head) cache.writeState(head.state, ends, () => ends);
  const pairs = head && { hidden, after: now.after!.reshape([1, -1]) };
  const buffers = pairs ? writePairs(pooled, cache.buffers, pairs, { position, tables, tile }) : cache.buffers;
  return { ...now, ...buffers, ...(logits && { logits }) };
}

/** Feeds a token of each row: the logits after them, and the pages. */
function feed(pooled: PooledModel, now: RowState & Buffers): Buffers & { readonly logits: Tensor } {
  const { model, layers, head } = pooled;
  const cache = new PagedCache(now, now.position, now.tables, { slots: now.slots, layers });
  const hidden = model.hidden(now.token, cache);
  const logits = model.logits(hidden).reshape([now.token.shape[0], -1]);
  const pairs = head && pairsOf(head, cache, hidden, now.token);
  return { logits, ...(pairs ? writePairsOf(pooled, cache.buffers, pairs, now) : cache.buffers) };
}

/** Feeds a token of each row and chooses the next ones. */
export function decodeStep(
  pooled: PooledModel,
  kind: ChoiceKind,
  now: RowState & Buffers,
  processors: readonly LogitsProcessor[],
): RowState & Buffers {
  const { logits, ...buffers } = feed(pooled, now);
  return { ...now, ...chooseRows(kind, now, logits, processors), ...buffers };
}

/** Feeds a token of each row and leaves the logits. */
export function forwardStep(pooled: PooledModel, now: RowState & Buffers): RowState & Buffers {
  return { ...now, ...feed(pooled, now) };
}

/** Feeds the columns of each sequence and chooses a token after each, by masks where there are some. States are those after the tokens that count. */
export function verifyStep(
  pooled: PooledModel,
  kind: ChoiceKind,
  now: VerifyState & Buffers,
  processors: readonly LogitsProcessor[],
): VerifyState & Buffers {
  const { token, starts, tables, slots, drafted, mask } = now;
  const { model, layers, head } = pooled;
  const cache = new PagedCache(now, starts, tables, { slots, layers, drafts: true });
  const fed = token.reshape([starts.size, -1]);
  const hidden = model.hidden(fed, cache);
  const logits = model.logits(hidden).reshape([token.size, -1]);
  const chosen = chooseRows(kind, now, logits, processors, mask);
  const guessed = fed.index(mx.Slice(null), mx.Slice(1, fed.shape[1]));
  const pairs = head && pairsOf(head, cache, hidden, fed);
  cache.settle(mx.add(countAccepted(chosen.token.reshape(fed.shape), guessed, drafted), 1));
  const { buffers } = cache;
  return {
    ...now,
    ...chosen,
    ...(pairs ? writePairsOf(pooled, buffers, pairs, { position: starts, tables }) : buffers),
  };
}

/** Chooses tokens from logits, by masks where there are some. */
export function chooseStep(kind: ChoiceKind, now: RowState, processors: readonly LogitsProcessor[]): RowState {
  return { ...now, ...chooseRows(kind, now, now.logits!, processors, now.mask) };
}
