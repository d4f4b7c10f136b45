/**
 * A key/value cache in a graph: its updates and the values that they write. Updates are marked by the cache with its block, or go into
 * pages.
 *
 * @module
 */

import { bufferSizes, POSITIONS_AXIS, toBuffer, toPositions } from "../../../graph/kv_layout.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sameShape } from "../../../graph/shape.ts";
import { isProduct } from "../../plan/pattern.ts";
import type { KvPlace } from "../kv_place.ts";

/** Rows that are written into a buffer of a cache in place. */
export interface Append {
  readonly update: Node;
  /** int32 (1,), or (B, 1): the first row. */
  readonly start: Node;
  readonly place: KvPlace;
  /** Of which it has rows. */
  readonly sequences: number;
  readonly block: number;
}

/** The values that an update of a cache writes. */
export interface Update extends Append {
  /** Rows in the layout of the buffer. */
  readonly rows: Node;
  /** How many there are of each head. */
  readonly count: number;
  readonly heads: number;
  readonly headDim: number;
}

/** Rows (B, H, T, D) on their way into a cache. */
export interface CachedHeads extends Update {
  /** Rotated keys, or the projection to values or to keys that are not rotated, or their norm. A projection may be columns of another. */
  readonly source: Node;
  /** Nodes between the source and the update. */
  readonly path: readonly Node[];
}

/** The values that an update writes, if a cache marked the update or it is one of pages. */
export function updateOf(node: Node): Update | undefined {
  if (node.op === "appendPages") return pagedUpdate(node);
  if (node.op !== "dynamicSliceUpdate") return undefined;
  const { donate, kvBlock: block } = attrsOf(node, "dynamicSliceUpdate");
  if (!donate || block === undefined) return undefined;
  const [, rows, start] = node.inputs;
  const { batch: sequences, heads, positions: capacity, headDim } = bufferSizes(node.shape);
  const place = { kind: "contiguous", capacity } as const;
  return { update: node, start, place, sequences, block, rows, count: rows.shape[POSITIONS_AXIS], heads, headDim };
}

function pagedUpdate(node: Node): Update | undefined {
  if (!attrsOf(node, "appendPages").donate) return undefined;
  const [, rows, table, start] = node.inputs;
  const { batch: pages, heads, positions: page, headDim, block } = bufferSizes(node.shape);
  const place = { kind: "paged", table, page, pages } as const;
  return { update: node, start, place, sequences: table.shape[0], block, rows, count: rows.shape[2], heads, headDim };
}

/** The update of the buffer that a node shows as rows (B, H, capacity, D), and the views between. */
export function shownUpdate(node: Node): (Update & { readonly views: readonly Node[] }) | undefined {
  const views: Node[] = [];
  let view = node;
  for (; ["reshape", "contiguous"].includes(view.op); view = view.inputs[0]) views.push(view);
  if (view.op === "gatherPages") {
    const [pool, table] = view.inputs;
    const update = updateOf(pool);
    const shows = update?.place.kind === "paged" && update.place.table === table && sameShape(node.shape, view.shape);
    return shows ? { ...update, views: [...views, view] } : undefined;
  }
  if (view.op !== "transpose") return undefined;
  const [buffer] = view.inputs;
  const update = updateOf(buffer);
  if (!update) return undefined;
  const { axes, shape } = toPositions(buffer.shape);
  const shows = sameShape(attrsOf(view, "transpose").axes, axes) && sameShape(node.shape, shape);
  return shows ? { ...update, views: [...views, view] } : undefined;
}

/** The values that an update writes, if they come from a rotation, a norm or a projection through views and casts alone. */
export function cachedHeads(node: Node): CachedHeads | undefined {
  const update = updateOf(node);
  if (!update) return undefined;
  const { rows, count, heads, headDim, block, sequences, place } = update;
  const shape = [sequences, heads, count, headDim];
  const path: Node[] = [];
  let source = rows;
  if (place.kind === "contiguous") {
    if (rows.op !== "transpose" || !sameShape(attrsOf(rows, "transpose").axes, toBuffer(shape, block).axes)) {
      return undefined;
    }
    path.push(rows);
    [source] = rows.inputs;
  }
  const step = (): void => {
    path.push(source);
    source = source.inputs[0];
  };
  const keepsOrder = (n: Node): boolean =>
    n.op === "reshape" || (n.op === "elementwise" && attrsOf(n, "elementwise").fn === "cast");
  while (keepsOrder(source)) step();
  if (!sameShape(source.shape, shape)) return undefined;
  if (isHeadSwap(source)) {
    step();
    while (keepsOrder(source)) step();
    if (!isProduct(source) && !["elementwise", "rmsNorm", "slice"].includes(source.op)) return undefined;
  } else if (source.op !== "rope") return undefined;
  return { ...update, source, path };
}

/** (B, T, H, D) to (B, H, T, D) or back. */
export function isHeadSwap(node: Node): boolean {
  return node.op === "transpose" && sameShape(attrsOf(node, "transpose").axes, [0, 2, 1, 3]);
}
