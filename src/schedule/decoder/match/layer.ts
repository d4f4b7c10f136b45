/**
 * One layer of a decoder in a graph: norm, q, k and v, rotation, cache, attention, output projection, residual; norm, gate and
 * up, silu, down projection, residual.
 *
 * @module
 */

import { isFloat } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { DecoderLayer, DecoderSizes, DecoderStep } from "../spec.ts";
import { appendOf, headOf } from "./qkv_heads.ts";
import { expect, Mismatch, type Product, type QuantizedMatrix, Walk } from "../../plan/pattern.ts";

interface Rotated {
  readonly product: Product;
  readonly norm: Node;
  readonly eps: number;
  readonly dims: number;
  readonly base: number;
  readonly scale: number;
  readonly freqs: Node | undefined;
}

/** A layer as found, with what all layers must share. */
export interface Layer extends DecoderLayer, DecoderStep {
  /** The residual that it reads. */
  readonly x: Node;
  /** Whether the caches hold this row already: that of many which a prompt has written. */
  readonly cached: boolean;
}

/** The layer whose result is `node`; undefined when it is something else. */
export function findLayer(walk: Walk, node: Node): Layer | undefined {
  const mlp = residual(walk, node, (n) => n.op === "elementwise" && attrsOf(n, "elementwise").fn === "multiply");
  if (!mlp) return undefined;
  const down = walk.product(mlp.product, "the down projection");
  const gated = walk.elementwise(walk.bare(down.x), "multiply")!;
  const { gate, up } = gatedBy(walk, gated);
  const mlpNorm = walk.norm(gate.x, "the norm before the feed-forward part");
  expect(walk.bare(up.x) === walk.peek(gate.x), "gate and up read different rows");

  const block = residual(walk, mlp.x, (n) => n.op === "attention");
  expect(block !== undefined, "there is no attention below a feed-forward part");
  expect(walk.peek(mlpNorm.x) === walk.peek(mlp.x), "the norm and the residual of a feed-forward part differ");
  walk.bare(mlpNorm.x);
  const o = walk.product(block.product, "the output projection");
  const attention = walk.take(walk.bare(o.x), "attention", "what the output projection reads");
  const { scale, mask, hasLengths } = attrsOf(attention, "attention");
  expect(mask === "none" && hasLengths, "attention has a mask, or no lengths");
  const [query, cachedKeys, cachedValues, lengths] = attention.inputs;
  const keys = cached(walk, cachedKeys, 4, "keys");
  const values = cached(walk, cachedValues, 8, "values");
  const start = walk.peekIndex(keys.start);
  const among = keys.rows.shape[3] > 1;
  const position = among ? positionOf(walk, query) : start;
  expect(sizeOf(position.shape) === query.shape[0], "the cache is not written at a position of each sequence");
  expect(walk.peekIndex(values.start) === start, "keys and values are written at different rows");
  expect(walk.sum(lengths, position), "the lengths of attention are not the position plus one");

  const q = rotated(walk, query, position, "q");
  // What writes many rows is no part of this layer.
  const other = among ? new Walk(walk.graph, walk.wanted) : walk;
  const k = among ? rotatedRows(other, keys.update, start) : rotated(walk, keys.rows, position, "k");
  const v = other.product(among ? sourceOf(values.update) : values.rows, "the value projection");
  const norm = walk.norm(q.product.x, "the norm before attention");
  if (among) {
    const all = other.norm(k.product.x, "the norm before the keys");
    expect(other.peek(v.x) === other.peek(k.product.x), "k and v read different rows");
    expect(all.weight === norm.weight && all.eps === norm.eps, "q and k read differently normalised rows");
    expect(isRowOf(walk, norm.x, all.x, position, start), "q reads another row than that of its position");
  } else {
    for (const x of [k.product.x, v.x]) {
      expect(walk.bare(x) === walk.peek(q.product.x), "q, k and v read different rows");
    }
  }
  expect(walk.peek(norm.x) === walk.peek(block.x), "the norm and the residual of attention differ");
  walk.bare(norm.x);
  expect(
    q.base === k.base && q.scale === k.scale && q.freqs === k.freqs && q.eps === k.eps,
    "q and k are turned differently",
  );
  expect(norm.eps === mlpNorm.eps, "the norms have different eps");

  const headDim = query.shape[3];
  const kvHeads = keys.update.shape[1];
  const rows = (m: QuantizedMatrix): number => m.codes.shape[0];
  const sizes: DecoderSizes = {
    hidden: rows(down.matrix),
    intermediate: rows(gate.matrix),
    heads: query.shape[1],
    kvHeads,
    headDim,
    groupSize: q.product.groupSize,
    bits: q.product.bits,
  };
  for (const p of [q.product, k.product, v, o, gate, up, down]) {
    expect(p.bits === sizes.bits && p.groupSize === sizes.groupSize, "the matrices are quantized differently");
  }
  const { hidden, intermediate, heads } = sizes;
  expect(
    rows(q.product.matrix) === heads * headDim && rows(k.product.matrix) === kvHeads * headDim &&
      rows(v.matrix) === kvHeads * headDim &&
      rows(o.matrix) === hidden && rows(up.matrix) === intermediate && q.dims === headDim &&
      values.update.shape[1] === kvHeads,
    "the sizes of the matrices do not fit together",
  );
  return {
    norm: norm.weight,
    q: q.product.matrix,
    k: k.product.matrix,
    v: v.matrix,
    qBias: undefined,
    kBias: undefined,
    vBias: undefined,
    qNorm: q.norm,
    kNorm: k.norm,
    o: o.matrix,
    keys: keys.update,
    values: values.update,
    mlpNorm: mlpNorm.weight,
    gate: gate.matrix,
    up: up.matrix,
    down: down.matrix,
    x: block.x,
    cached: among,
    sizes,
    features: { headNorm: true, qkvBias: false, activation: "silu", ropeForm: "half", ropeDims: q.dims },
    position,
    capacity: keys.update.shape[3],
    freqs: q.freqs,
    eps: norm.eps,
    headEps: q.eps,
    scoreScale: scale,
    ropeScale: q.scale,
    ropeBase: q.base,
  };
}

/** x + y where one side is a product: which one is told by what the product reads. */
export function residual(
  walk: Walk,
  node: Node,
  is: (op: Node) => boolean,
): { readonly x: Node; readonly product: Node } | undefined {
  const sum = walk.peek(node);
  if (sum.op !== "elementwise" || attrsOf(sum, "elementwise").fn !== "add") return undefined;
  for (const [i, side] of sum.inputs.entries()) {
    const product = walk.peek(side);
    if (product.op !== "quantizedMatmul" || !is(walk.peek(product.inputs[0]))) continue;
    walk.bare(node);
    walk.inside.add(sum);
    return { x: sum.inputs[1 - i], product: side };
  }
  return undefined;
}

/** silu(gate) * up in either order, silu(x) being x * sigmoid(x). */
export function gatedBy(walk: Walk, sides: readonly [Node, Node]): { readonly gate: Product; readonly up: Product } {
  for (const [i, side] of sides.entries()) {
    const silu = walk.peek(side);
    if (silu.op !== "elementwise" || attrsOf(silu, "elementwise").fn !== "multiply") continue;
    walk.bare(side);
    const parts = walk.elementwise(silu, "multiply")!;
    const sigmoid = parts.find((p) => p.op === "elementwise" && attrsOf(p, "elementwise").fn === "sigmoid");
    const linear = parts.find((p) => p !== sigmoid);
    expect(
      sigmoid !== undefined && linear !== undefined && walk.peek(sigmoid.inputs[0]) === walk.peek(linear),
      "the gate is no silu",
    );
    walk.inside.add(sigmoid);
    walk.bare(sigmoid.inputs[0]);
    return {
      gate: walk.product(linear, "the gate projection"),
      up: walk.product(sides[1 - i], "the up projection"),
    };
  }
  throw new Mismatch("the feed-forward part has no silu");
}

/** norm → rotation of a product's heads. */
function rotated(walk: Walk, node: Node, position: Node, what: string): Rotated {
  const rope = walk.take(walk.bare(node), "rope", what);
  const { dims, traditional, base, scale, offsetInput, hasFreqs } = attrsOf(rope, "rope");
  const single = sizeOf(position.shape) === 1;
  expect(
    !traditional && offsetInput === (single ? "scalar" : "batch"),
    `${what} is not turned half by half at the position of its sequence`,
  );
  expect(walk.peekIndex(rope.inputs[1]) === position, `${what} is turned by another position than the cache's`);
  const norm = walk.norm(rope.inputs[0], `the norm of ${what}`);
  const product = walk.product(norm.x, `the projection to ${what}`);
  return {
    product,
    norm: norm.weight,
    eps: norm.eps,
    dims,
    base,
    scale,
    freqs: hasFreqs ? rope.inputs[2] : undefined,
  };
}

/** Where turned heads stand. */
function positionOf(walk: Walk, node: Node): Node {
  const rope = walk.peek(node);
  expect(rope.op === "rope" && attrsOf(rope, "rope").offsetInput === "scalar", "q is not turned at a position");
  return walk.peekIndex(rope.inputs[1]);
}

/** Where the rows of a cache's update come from: turned keys, or the product of values. */
function sourceOf(update: Node): Node {
  const found = appendOf(update);
  expect(found !== undefined, "the rows of a cache are not known");
  return found.source;
}

/** {@link rotated} for rows that a prompt writes into a cache from row `start` on. */
function rotatedRows(walk: Walk, update: Node, start: Node): Rotated {
  const rope = sourceOf(update);
  const { product, norm, eps } = headOf(walk, rope);
  const { dims, traditional, base, scale, offsetInput, hasFreqs } = attrsOf(rope, "rope");
  const turned = !traditional && offsetInput === "scalar" && walk.peekIndex(rope.inputs[1]) === start;
  expect(turned, "k is not turned half by half from the row on where it is cached");
  return { product, norm, eps, dims, base, scale, freqs: hasFreqs ? rope.inputs[2] : undefined };
}

/** Whether `row` is the row of x that is cached at `position`, where the cache gets all of them from `start` on. */
function isRowOf(walk: Walk, row: Node, x: Node, position: Node, start: Node): boolean {
  const gather = walk.peek(row);
  if (gather.op !== "gather" || attrsOf(gather, "gather").axis !== 1 || walk.peek(gather.inputs[0]) !== walk.peek(x)) {
    return false;
  }
  const parts = [start, walk.peekIndex(gather.inputs[1])];
  return position.op === "elementwise" && attrsOf(position, "elementwise").fn === "add" &&
    parts.every((part) => position.inputs.some((n) => walk.peekIndex(n) === part));
}

/** A cache in blocks, seen as (B, H, capacity, D): its update in place by one row of each sequence, or by more of one. */
function cached(
  walk: Walk,
  node: Node,
  block: number,
  what: string,
): { readonly update: Node; readonly rows: Node; readonly start: Node } {
  let view = node;
  const views: Node[] = [];
  while (["reshape", "contiguous"].includes(view.op)) {
    views.push(view);
    view = view.inputs[0];
  }
  expect(
    view.op === "transpose" && String(attrsOf(view, "transpose").axes) === "0,1,3,2,4",
    `the ${what} are not cached in blocks`,
  );
  views.push(view);
  const update = view.inputs[0];
  expect(update.op === "dynamicSliceUpdate", `the cached ${what} are not updated in place`);
  const { axes, donate } = attrsOf(update, "dynamicSliceUpdate");
  const [base, rows, start] = update.inputs;
  const [batch, heads, blocks, capacity, size] = update.shape;
  const fits = donate && String(axes) === "3" && size === block && (rows.shape[3] === 1 || batch === 1) &&
    String(node.shape) === String([batch, heads, capacity, blocks * size]);
  expect(fits, `the ${what} are not cached in blocks of ${block}`);
  expect(isFloat(update.dtype) && base.op !== "data", `the cached ${what} are ${update.dtype.name}`);
  for (const v of rows.shape[3] === 1 ? [...views, update] : views) walk.inside.add(v);
  return { update, rows, start };
}
