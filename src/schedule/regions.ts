/**
 * Regions: sequences of nodes in plain model code that a few fused kernels compute together.
 *
 * One region is known, the decoder of one token: embedding, layers of attention and feed-forward part over a cache, head and
 * argmax. The matcher walks from the logits up. Every shape, dtype and attribute that the kernels assume is checked, and every
 * node inside must be read inside only; a graph that does not match is lowered op by op, with the same answers.
 * `VKMX_EXPLAIN=1` says on stderr what was taken and why not.
 *
 * @module
 */

import { float32, uint32 } from "../graph/dtype.ts";
import { attrsOf, Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { type Decoder, type DecoderSizes, isFloat, isHalf } from "./decoder.ts";
import type { StateUpdate, StepEnd } from "./decoder_end.ts";
import { findLayer, type Layer } from "./region_layer.ts";
import { expect, type GraphView, Mismatch, Walk } from "./region_walk.ts";

/** A decoder, and the nodes that it computes. */
export interface DecoderRegion {
  readonly decoder: Decoder;
  /** Where it stands in the order: its logits or their argmax. */
  readonly last: Node;
  /** Nodes that need no lowering of their own. */
  readonly inside: ReadonlySet<Node>;
}

/** The decoder of one token in a graph; the reason when there is something like one that does not match; else undefined. */
export function findDecoder(
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  state: readonly StateUpdate[],
): DecoderRegion | string | undefined {
  const isStep = (n: Node): boolean =>
    n.op === "attention" && n.shape[0] === 1 && n.shape[2] === 1 && attrsOf(n, "attention").hasLengths;
  if (!graph.order.some(isStep)) return undefined;
  // The head is the last product of a token's row.
  const logits = graph.order.findLast((n) =>
    n.op === "quantizedMatmul" && sizeOf(n.shape) === n.shape[n.shape.length - 1]
  );
  if (!logits) return "there is no quantized head";
  try {
    return findWhole(new Walk(graph, wanted), logits, state);
  } catch (error) {
    if (error instanceof Mismatch) return error.message;
    throw error;
  }
}

function findWhole(walk: Walk, product: Node, state: readonly StateUpdate[]): DecoderRegion {
  const { matrix: head, x: normed } = walk.product(product, "the head");
  const last = walk.norm(normed, "the final norm");
  const layers: Layer[] = [];
  let x = last.x;
  for (let layer = findLayer(walk, x); layer; layer = findLayer(walk, x)) {
    layers.unshift(layer);
    x = layer.x;
  }
  expect(layers.length > 0, "no layer was found below the head");
  const [first] = layers;
  const vocabulary = product.shape[product.shape.length - 1];
  const sizes: DecoderSizes = {
    ...first.sizes,
    groupSize: attrsOf(product, "quantizedMatmul").groupSize,
    bits: attrsOf(product, "quantizedMatmul").bits,
  };
  for (const layer of layers) same(layer, first, sizes);
  expect(last.eps === first.eps, "the norms have different eps");

  const logits = walk.upward(product);
  const token = argmax(walk, logits);
  const readers = walk.readers(logits);
  const keepsLogits = walk.wanted.has(logits) || !token || readers.some((r) => !walk.inside.has(r));
  walk.inside.delete(logits);
  if (token) walk.inside.delete(token);
  const end = token && !keepsLogits ? stepEnd(walk, token, first.position, state) : undefined;

  const decoder: Decoder = {
    sizes,
    x: embedding(walk, x, sizes),
    layers,
    norm: last.weight,
    head,
    vocabulary,
    position: first.position,
    capacity: first.capacity,
    freqs: first.freqs,
    eps: last.eps,
    headEps: first.headEps,
    scoreScale: first.scoreScale,
    ropeScale: first.ropeScale,
    ropeBase: first.ropeBase,
    logits,
    token,
    keepsLogits,
    end,
  };
  checkDtypes(decoder);
  const results = new Set<Node>([logits, ...layers.flatMap((l) => [l.keys, l.values])]);
  if (token) results.add(token);
  for (const update of [end?.next, end?.position, end?.log]) if (update) results.add(update.value);
  for (const node of walk.inside) {
    if (results.has(node)) continue;
    expect(!walk.wanted.has(node), `the result of ${node.op} is asked for`);
    const outside = walk.readers(node).find((r) => !walk.inside.has(r) && !results.has(r));
    expect(outside === undefined, `${outside?.op} also reads the result of ${node.op}`);
  }
  for (const { keys, values } of layers) {
    for (const update of [keys, values]) {
      const outside = walk.readers(update).find((r) => !walk.inside.has(r));
      expect(outside === undefined, `${outside?.op} also reads the cache`);
    }
  }
  for (const node of results) walk.inside.add(node);
  takeDead(walk, decoder);
  return { decoder, last: token && !keepsLogits ? token : logits, inside: walk.inside };
}

/** Takes what only the region read and the kernels do not need, such as the lengths of attention. */
function takeDead(walk: Walk, decoder: Decoder): void {
  const needed = new Set<unknown>([decoder.position, decoder.freqs, decoder.norm, ...Object.values(decoder.head)]);
  if ("table" in decoder.x) {
    for (const node of [decoder.x.ids, ...Object.values(decoder.x.table)]) {
      needed.add(node);
    }
  } else needed.add(decoder.x);
  for (const layer of decoder.layers) {
    for (const part of Object.values(layer)) {
      if (part instanceof Node) needed.add(part);
      else if (typeof part === "object") { for (const node of Object.values(part)) needed.add(node); }
    }
    needed.add(layer.keys.inputs[0]).add(layer.values.inputs[0]);
  }
  for (const node of walk.graph.order.toReversed()) {
    if (needed.has(node) || walk.wanted.has(node) || walk.inside.has(node)) continue;
    if (walk.readers(node).every((r) => walk.inside.has(r))) walk.inside.add(node);
  }
}

/** The embedding of a token in a quantized table, or the row as it is. */
function embedding(walk: Walk, node: Node, sizes: DecoderSizes): Decoder["x"] {
  const row = walk.peek(node);
  if (
    row.op !== "dequantize" || attrsOf(row, "dequantize").bits !== sizes.bits ||
    attrsOf(row, "dequantize").groupSize !== sizes.groupSize
  ) return node;
  const gathers = row.inputs.map((n) => walk.peek(n));
  const [ids] = gathers.map((g) => g.op === "gather" ? walk.peekIndex(g.inputs[1]) : undefined);
  const same = gathers.every((g) =>
    g.op === "gather" && attrsOf(g, "gather").axis === 0 && walk.peekIndex(g.inputs[1]) === ids
  );
  const [codes, scales, biases] = gathers.map((g) => g.inputs[0]);
  if (
    !same || !ids || ids.dtype.bytes !== 4 || ids.dtype.kind === "float" || codes.shape.length !== 2 ||
    !isHalf(scales.dtype)
  ) return node;
  // Readers from outside keep the parts as they are.
  const parts: Node[] = [];
  const collect = (n: Node): void => {
    parts.push(n);
    if (n.op !== "gather") n.inputs.forEach(collect);
  };
  collect(node);
  const own = new Set([...parts, ...walk.inside]);
  if (parts.some((n) => walk.wanted.has(n) || walk.readers(n).some((r) => !own.has(r)))) {
    return node;
  }
  for (const part of parts) walk.inside.add(part);
  return { ids, table: { codes, scales, biases }, dtype: row.dtype };
}

/** The argmax of a row that reads it, and nothing else between. */
function argmax(walk: Walk, logits: Node): Node | undefined {
  const reader = walk.readers(logits).find((r) => r.op === "reduce" && attrsOf(r, "reduce").fn === "argmax");
  if (!reader || sizeOf(reader.shape) !== 1 || reader.dtype !== uint32) return undefined;
  walk.inside.add(reader);
  return reader;
}

/** The updates of a loop's state that need the token and the position alone, when nothing else reads either. */
function stepEnd(walk: Walk, token: Node, position: Node, state: readonly StateUpdate[]): StepEnd | undefined {
  const isIndex = (n: Node): boolean => n.dtype.kind !== "float" && n.dtype.bytes === 4;
  const isToken = (n: Node): boolean => isIndex(n) && walk.through(n) === token;
  const isNext = (n: Node): boolean => walk.sum(n, position);
  const next = state.find((u) => sizeOf(u.parameter.shape) === 1 && isIndex(u.parameter) && isToken(u.value));
  const after = state.find((u) => u.parameter === position && isNext(u.value));
  const log = state.find(({ parameter, value }) => {
    if (value.op !== "dynamicSliceUpdate" || value.inputs[0] !== parameter || parameter.shape.length !== 1) {
      return false;
    }
    const [, update, start] = value.inputs;
    const at = walk.peekIndex(start);
    if (
      !attrsOf(value, "dynamicSliceUpdate").donate || !isIndex(parameter) || !isToken(update) ||
      at.op !== "elementwise"
    ) return false;
    return attrsOf(at, "elementwise").fn === "remainder" && isNext(at.inputs[0]) &&
      walk.peekFull(at.inputs[1]) === parameter.shape[0];
  });
  if (!next || !after) return undefined;
  // What else depends on the token or the position needs them as they are.
  const taken = new Set([next.value, after.value, ...(log ? [log.value] : [])]);
  const only = (node: Node): boolean =>
    walk.readers(node).every((r) => walk.inside.has(r) || taken.has(r) || (!walk.wanted.has(r) && only(r)));
  if (
    !only(token) || !only(position) ||
    [...taken].some((n) => n !== after.value && walk.readers(n).length > 0)
  ) return undefined;
  return { next, position: after, log };
}

function same(layer: Layer, first: Layer, sizes: DecoderSizes): void {
  const key = (l: Layer): string =>
    JSON.stringify([l.sizes, l.capacity, l.eps, l.headEps, l.scoreScale, l.ropeScale, l.ropeBase, l.keys.dtype.name]);
  expect(key(layer) === key(first), "the layers differ");
  expect(layer.position === first.position && layer.freqs === first.freqs, "the layers are at different positions");
  expect(
    layer.sizes.bits === sizes.bits && layer.sizes.groupSize === sizes.groupSize,
    "the head is quantized differently",
  );
  expect(layer.keys.dtype === layer.values.dtype, "keys and values have different dtypes");
}

function checkDtypes(d: Decoder): void {
  const weights = [d.norm, d.head.scales, d.head.biases];
  for (const l of d.layers) {
    weights.push(l.norm, l.qNorm, l.kNorm, l.mlpNorm);
    for (const m of [l.q, l.k, l.v, l.o, l.gate, l.up, l.down]) weights.push(m.scales, m.biases);
  }
  if ("table" in d.x) weights.push(d.x.table.scales, d.x.table.biases);
  const { dtype } = d.head.scales;
  expect(
    isHalf(dtype) && weights.every((w) => w.dtype === dtype),
    "scales and norm weights are not all float16 or all bfloat16",
  );
  expect("table" in d.x || isFloat(d.x.dtype), "the activations are no floats");
  expect(isFloat(d.logits.dtype) && (d.freqs === undefined || d.freqs.dtype === float32), "the logits are no floats");
  expect(d.position.dtype.bytes === 4 && sizeOf(d.position.shape) === 1, "the position is not one int32");
}
