/**
 * What the steps of an engine do for the head of the model that drafts, multi-token prediction.
 *
 * The head takes pairs: the hidden state of a token and the token after that. A pair has the position of its first token in the pages of the
 * sequence, where the head's keys and values are one more layer. A step gives the head the pairs whose tokens it feeds, so that no pair
 * depends on a choice of the step. The first pair begins with the hidden state that the step before left in the slot of the sequence. Only
 * keys and values come of it: the rest of the head is computed where it drafts.
 *
 * A draft begins with the hidden state in the slot and the last token. Then the head takes what it made itself, and the token that it chose.
 * What it writes for those is written again by the step that verifies them.
 *
 * Where the steps of one request are fused without the head, it gets no pairs of them: see runner.ts.
 *
 * A page that sequences share has the pairs of the one that was first. The last pair of a page may so end with another token: that costs
 * a later draft little, and no token depends on it.
 *
 * @module
 */

import * as mx from "../../../array/mod.ts";
import type { Tensor } from "../../../array/mod.ts";
import type { Buffers } from "../../kv/cache.ts";
import type { LayerPlace } from "../../kv/page_groups.ts";
import { type HeadPlace, PagedCache } from "../../kv/paged.ts";
import type { DecodingModel } from "../../models/mod.ts";
import { type ChoiceKind, chooseRows } from "./choice.ts";
import type { VerifyState } from "./rows.ts";

/** A model and its places in a pool. */
export interface PooledModel {
  readonly model: DecodingModel;
  /** The group and the slot of each layer; undefined where layers have one group. */
  readonly layers: readonly LayerPlace[] | undefined;
  /** Those of the head, if one drafts. */
  readonly head: HeadPlace | undefined;
}

/** Pairs for the head: hidden states (B, T, H), and the tokens after them (B, T). */
export interface HeadPairs {
  readonly hidden: Tensor;
  readonly after: Tensor;
}

/** Where the pairs of a pass are: positions int32 (B,) of the first ones, and pages as {@link PagedCache} takes them. */
export interface PairPlaces {
  readonly position: Tensor;
  readonly tables: readonly Tensor[];
  readonly tile?: number;
}

/** The cache of the head for a pass over pairs. */
function headCache({ layers, head }: PooledModel, { keys, values }: Buffers, places: PairPlaces): PagedCache {
  const { position, tables, tile } = places;
  const place = layers?.[head!.layer] ?? { table: 0, slot: head!.layer };
  return new PagedCache({ keys, values }, position, tables, { layers: [place], ...(tile !== undefined && { tile }) });
}

/** The position of the pair that ends with a token at a position. A row that no sequence has is at position 0. */
function pairPosition(position: Tensor): Tensor {
  return mx.maximum(mx.subtract(position, 1), 0);
}

/** Has the head take pairs: the pages with its keys and values. */
export function writePairs(pooled: PooledModel, buffers: Buffers, pairs: HeadPairs, places: PairPlaces): Buffers {
  const cache = headCache(pooled, buffers, places);
  pooled.model.draft(pairs.hidden, pairs.after, cache);
  return { ...buffers, ...cache.buffers };
}

/**
 * The pairs that end with the tokens (B, T) of a pass, which made the hidden states (B, T, H). Leaves the last of those, or the last one that counts,
 * for the next step. Call it before the pass settles.
 */
export function pairsOf({ state }: HeadPlace, cache: PagedCache, hidden: Tensor, tokens: Tensor): HeadPairs {
  const [rows, count, size] = hidden.shape;
  const known = cache.readState(state);
  const first = hidden.index(mx.Slice(null), mx.Slice(0, count - 1));
  const last = hidden.index(mx.Slice(null), mx.Slice(count - 1, count));
  cache.writeState(state, last, (counted) => {
    const at = mx.broadcastTo(mx.subtract(counted, 1).reshape([rows, 1, 1]), [rows, 1, size]);
    return mx.takeAlongAxis(hidden, at, 1);
  });
  return { hidden: count > 1 ? mx.concatenate([known.astype(hidden.dtype), first], 1) : known, after: tokens };
}

/** Has the head take the pairs of a pass whose first tokens are at positions int32 (B,). */
export function writePairsOf(
  pooled: PooledModel,
  buffers: Buffers,
  pairs: HeadPairs,
  { position, tables }: Pick<PairPlaces, "position" | "tables">,
): Buffers {
  return writePairs(pooled, buffers, pairs, { position: pairPosition(position), tables });
}

/**
 * Drafts the next token of each row, into the log. The first one follows from the hidden state in the slot of the sequence, each other one from what the
 * head made before. It is chosen with the settings of its row and the random key of its place. So a head that gives the probabilities of the
 * model drafts the tokens that the model will choose.
 */
export function draftStep<S extends VerifyState & Buffers>(pooled: PooledModel, kind: ChoiceKind, now: S): S {
  const { model, head } = pooled;
  const { tables, slots, token, starts } = now;
  const first = new PagedCache(now, now.position, tables, { slots }).readState(head!.state);
  const begins = mx.equal(now.position, starts).reshape([-1, 1, 1]);
  const hidden = mx.where(begins, first, now.hidden!);
  const cache = headCache(pooled, now, { position: pairPosition(now.position), tables });
  const made = model.draft(hidden, token, cache);
  const logits = made.logits.reshape([token.shape[0], -1]);
  const left = made.hidden.astype(hidden.dtype);
  return { ...now, ...cache.buffers, ...chooseRows(kind, now, logits), hidden: left };
}
