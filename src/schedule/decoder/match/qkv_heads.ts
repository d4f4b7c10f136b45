/**
 * Heads of many rows on their way in a graph: a projection, normalised and turned, and the rows that go into a cache.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import { expect, type Product, type Walk } from "../../plan/pattern.ts";

/** Rows that go into a cache in place. */
export interface Append {
  readonly update: Node;
  /** int32 (1,): the first row. */
  readonly start: Node;
  readonly capacity: number;
  readonly block: number;
}

/** An update of a cache, and where its rows come from. */
export interface Written extends Append {
  /** Turned keys, or the product of values. */
  readonly source: Node;
  /** Nodes between the source and the update. */
  readonly path: readonly Node[];
  readonly heads: number;
  readonly headDim: number;
}

/** Rows (B, H, T, D) that go into a cache (B, H, D / block, capacity, block) at a row that the device knows. */
export function appendOf(update: Node): Written | undefined {
  const { axes, donate } = attrsOf(update, "dynamicSliceUpdate");
  const [, rows, start] = update.inputs;
  if (!donate || String(axes) !== "3" || update.shape.length !== 5) return undefined;
  const [batch, heads, blocks, capacity, block] = update.shape;
  if (rows.op !== "transpose" || String(attrsOf(rows, "transpose").axes) !== "0,1,3,2,4" || block % 4 !== 0) {
    return undefined;
  }
  const path: Node[] = [rows];
  let source = rows.inputs[0];
  const step = (): void => {
    path.push(source);
    source = source.inputs[0];
  };
  const keepsOrder = (n: Node): boolean =>
    n.op === "reshape" || (n.op === "elementwise" && attrsOf(n, "elementwise").fn === "cast");
  while (keepsOrder(source)) step();
  if (String(source.shape) !== String([batch, heads, rows.shape[3], blocks * block])) return undefined;
  if (isHeadSwap(source)) {
    step();
    while (keepsOrder(source)) step();
    if (source.op !== "quantizedMatmul") return undefined;
  } else if (source.op !== "rope") return undefined;
  return { update, start, capacity, block, source, path, heads, headDim: blocks * block };
}

/** (B, T, H, D) to (B, H, T, D) or back. */
export function isHeadSwap(node: Node): boolean {
  return node.op === "transpose" && String(attrsOf(node, "transpose").axes) === "0,2,1,3";
}

/** A projection to heads and their norm. */
export interface Head {
  readonly product: Product;
  readonly norm: Node;
  readonly eps: number;
}

/** product → heads → norm → (B, H, T, D) → rotation. */
export function headOf(walk: Walk, rope: Node): Head {
  walk.take(rope, "rope", "a rotation");
  const swap = walk.take(rope.inputs[0], "transpose", "what is turned");
  expect(isHeadSwap(swap), "what is turned are no heads");
  const norm = walk.norm(swap.inputs[0], "the norm of heads");
  return { product: walk.product(norm.x, "a projection to heads"), norm: norm.weight, eps: norm.eps };
}
