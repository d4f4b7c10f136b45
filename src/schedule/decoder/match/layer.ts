/**
 * The patterns that make up a layer of a decoder, for steps of one row and prompts of many. Before attention: norm, projections to q, k and
 * v, their heads, rope. After it: output projection, residual, norm, gated feed-forward part, residual.
 *
 * `decode_layer.ts` puts them together with the cache and attention, `prefill.ts` finds both halves by themselves.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import { sameShape } from "../../../graph/shape.ts";
import { columnSlice, expect, isFn, isProduct, type Norm, type Product, type Walk } from "../../plan/pattern.ts";
import type { SharedMatrices } from "../formats.ts";
import type { DecoderFeatures, FusedActivation } from "../spec.ts";
import type { ExpertPart } from "./experts.ts";
import { gatedBy, unbiased } from "./gated.ts";
import { isHeadSwap } from "./kv_update.ts";
import { biasOf, findProjection, type Projection } from "./projection.ts";
import { findExpertPart, isExpertPart } from "./shared_expert.ts";

/** Angles of a rope: where its rows stand, and by which frequencies. */
export interface RopeAngles {
  readonly form: DecoderFeatures["ropeForm"];
  readonly dims: number;
  readonly base: number;
  readonly scale: number;
  /** The factor of what is rotated, as YaRN and LongRoPE have one. */
  readonly factor: number;
  readonly offset: number;
  /** int32 (1,), or (B,) of each sequence, instead of `offset`. */
  readonly position: Node | undefined;
  readonly perSequence: boolean;
  readonly freqs: Node | undefined;
}

/** The angles of heads that are not rotated, wherever they are: those of position 0. */
const UNROTATED: Omit<RopeAngles, "dims"> = {
  form: "half",
  base: 1,
  scale: 0,
  factor: 1,
  offset: 0,
  position: undefined,
  perSequence: false,
  freqs: undefined,
};

/** Whether heads are not rotated. */
export function isUnrotated({ scale, position }: RopeAngles): boolean {
  return scale === 0 && position === undefined;
}

/** Heads of q or k. */
export interface Heads {
  readonly headDim: number;
  readonly projection: Projection;
  readonly norm: Norm | undefined;
  readonly angles: RopeAngles;
}

/** The part before attention. */
export interface Prologue {
  readonly norm: Norm;
  /** The norm of the rows that k and v read, which are more than q's if those have a walk of their own. */
  readonly cachedNorm: Norm;
  readonly q: Heads | undefined;
  readonly k: Heads;
  readonly v: Projection;
  /** 0 if heads are not normalised. */
  readonly headEps: number;
}

/** The output projection of attention and the residual that it is added to. */
export interface AttentionOutput {
  readonly attention: Node;
  /** The norm of what is added, if it has one. */
  readonly postNorm: Norm | undefined;
  /** Whether the sum is kept in float16's range. */
  readonly clips: boolean;
  /** The factor of what is added. */
  readonly scale: number;
  /** The residual before attention. */
  readonly x: Node;
  readonly o: Projection;
  /** What is attended to is multiplied by the sigmoid of it, if heads of q have gates. */
  readonly gate: Node | undefined;
}

/** The gated feed-forward part of a layer, with its norm. */
export interface FeedForward {
  /** The norm of what is added, if it has one. */
  readonly postNorm: Norm | undefined;
  /** Whether the sum is kept in float16's range. */
  readonly clips: boolean;
  /** The factor of what is added. */
  readonly scale: number;
  /** The residual before it. */
  readonly x: Node;
  readonly norm: Norm;
  readonly gate: Product;
  readonly up: Product;
  readonly activation: FusedActivation;
  readonly down: Product;
  /** How experts are chosen, whose stacks the matrices are; undefined where all rows take the same part. */
  readonly experts: ExpertPart | undefined;
  /** The expert that all rows take. */
  readonly shared: SharedMatrices | undefined;
}

/** The part after attention. */
export interface Epilogue {
  readonly output: AttentionOutput;
  readonly feedForward: FeedForward;
}

// ---- before attention -----------------------------------------------------------------------------------------------

/**
 * projection → heads → norm, or none → (B, H, T, D) → rope, or none if heads may be unrotated: of features `unrotatedDim` then. With `gate`
 * the projection gives each head as many features for that after its own.
 */
export function findHeads(walk: Walk, node: Node, what: string, unrotatedDim?: number, gate?: Node): Heads {
  const given = walk.stripViews(node);
  const rope = unrotatedDim !== undefined && given.op !== "rope" ? undefined : walk.take(given, "rope", what);
  const [, heads, rows, headDim] = rope?.shape ?? [1, 1, 1, unrotatedDim!];
  const rotated = rope ? walk.stripViews(rope.inputs[0]) : given;
  const scaling = rope ? findFactor(walk, rotated, attrsOf(rope, "rope").dims) : undefined;
  let x = scaling?.heads ?? rotated;
  if (isHeadSwap(x) && (!rope || sameShape(x.shape, rope.shape))) {
    walk.inside.add(x);
    x = walk.stripViews(x.inputs[0]);
  } else expect(heads === 1 || rows === 1, `what is rotated to ${what} are no heads`);
  const norm = x.op === "rmsNorm" ? walk.norm(x, `the norm of ${what}`) : undefined;
  const own = norm?.x ?? x;
  const projected = gate ? findGated(walk, own, gate, headDim) : own;
  const projection = findProjection(walk, projected, `the projection to ${what}`);
  const angles = rope ? { ...anglesOf(walk, rope), factor: scaling?.factor ?? 1 } : { ...UNROTATED, dims: headDim };
  return { headDim, projection, norm, angles };
}

/** The projection (…, heads, 2 * headDim) whose first halves are heads of q, and whose second ones are their gates. */
function findGated(walk: Walk, heads: Node, gate: Node, headDim: number): Node {
  const [own, other] = [heads, gate].map((half) => columnSlice(walk.stripViews(half)));
  const isSplit = own !== undefined && other !== undefined && own.source === other.source &&
    own.source.shape.at(-1) === 2 * headDim &&
    [own, other].every(({ columns }, i) => columns.first === i * headDim && columns.count === headDim);
  expect(isSplit, "the gates of heads are not after them in the projection to q");
  for (const half of [heads, gate]) walk.inside.add(walk.stripViews(half));
  return own.source;
}

/** Heads that are multiplied by a number before their first `dims` features are rotated. */
interface ScaledHeads {
  readonly heads: Node;
  readonly factor: number;
}

/** The heads before a factor of all features, or of those that are rotated; undefined if there is none. */
function findFactor(walk: Walk, node: Node, dims: number): ScaledHeads | undefined {
  const whole = unscaled(walk, node);
  if (whole.scaled) {
    walk.inside.add(node);
    return { heads: walk.stripViews(whole.node), factor: whole.scale };
  }
  if (node.op !== "concatenate" || node.inputs.length !== 2) return undefined;
  const [first, rest] = node.inputs.map((part) => walk.peek(part));
  const { node: rotated, scale } = unscaled(walk, first);
  const parts = [walk.peek(rotated), rest].map(columnSlice);
  const [a, b] = parts;
  const isSplit = a && b && a.source === b.source && a.columns.first === 0 && a.columns.count === dims &&
    b.columns.first === dims && sameShape(a.source.shape, node.shape);
  if (!isSplit) return undefined;
  for (const part of [...node.inputs, rotated]) walk.inside.add(walk.stripViews(part));
  walk.inside.add(node);
  return { heads: walk.stripViews(a.source), factor: scale };
}

function anglesOf(walk: Walk, rope: Node): Omit<RopeAngles, "factor"> {
  const { traditional, dims, base, scale, offset, offsetInput, hasFreqs } = attrsOf(rope, "rope");
  const inputs = rope.inputs.map((input) => walk.peekIndex(input));
  return {
    form: traditional ? "traditional" : "half",
    dims,
    base,
    scale,
    offset,
    position: offsetInput === "none" ? undefined : inputs[1],
    perSequence: offsetInput === "batch",
    freqs: hasFreqs ? inputs[inputs.length - 1] : undefined,
  };
}

/**
 * norm → q, k and v. `keys` and `values` are rotated heads and a projection, maybe through views. So are `queries`, if any node reads
 * attention, and with `gate` their projection gives that too. With `unrotatedDim`, the features of a head, heads need not be rotated. Where the rows of k and v are others than q's, and not computed with them, those have a walk of their own.
 */
export function findPrologue(
  walk: Walk,
  queries: Node | undefined,
  keys: Node,
  values: Node,
  cached: Walk = walk,
  unrotatedDim?: number,
  gate?: Node,
): Prologue {
  const q = queries && findHeads(walk, queries, "q", unrotatedDim, gate);
  const k = findHeads(cached, keys, "k", unrotatedDim);
  const v = findProjection(cached, values, "v");
  for (const heads of q ? [q, k] : [k]) {
    const whole = heads.norm && heads.norm.weight.shape[0] !== heads.headDim;
    expect(!whole, `${heads === q ? "q" : "k"} is normalised as a whole, not by heads`);
  }
  const cachedNorm = cached.norm(k.projection.x, "the norm before attention");
  expect(cached.stripViews(v.x) === cached.peek(k.projection.x), "k and v read different rows");
  let norm = cachedNorm;
  if (q && cached === walk) {
    expect(walk.stripViews(q.projection.x) === walk.peek(k.projection.x), "q, k and v read different rows");
  } else if (q) {
    norm = walk.norm(q.projection.x, "the norm before attention");
    const { weight, eps } = cachedNorm;
    expect(weight === norm.weight && eps === norm.eps, "q and k read differently normalised rows");
  }
  if (q) {
    expect(isSameRope(q.angles, k.angles, cached === walk), "q and k are rotated differently");
    expect(q.norm?.eps === k.norm?.eps, "q and k are normalised differently");
  }
  const biases = [...(q ? [q.projection] : []), k.projection, v].filter(({ bias }) => bias !== undefined).length;
  expect(biases === 0 || biases === (q ? 3 : 2), "only some of q, k and v have a bias");
  return { norm, cachedNorm, q, k, v, headEps: k.norm?.eps ?? 0 };
}

/** Whether two ropes rotate alike, and from the same position on. */
function isSameRope(a: RopeAngles, b: RopeAngles, samePosition: boolean): boolean {
  const names = ["form", "dims", "base", "scale", "factor", "freqs"] as const;
  const place = samePosition ? ["offset", "position", "perSequence"] as const : [];
  return [...names, ...place].every((name) => a[name] === b[name]);
}

// ---- after attention ------------------------------------------------------------------------------------------------

/**
 * attention → output projection → residual → norm → feed-forward part → residual, whose result is `node`; undefined when that is
 * something else. Attention, of one row of each sequence or of `many`, is not taken.
 */
export function findEpilogue(walk: Walk, node: Node, many: boolean): Epilogue | undefined {
  const feedForward = findFeedForward(walk, node);
  return feedForward && { output: findAttentionOutput(walk, feedForward.x, many), feedForward };
}

/** norm → gated feed-forward part or experts → residual, whose result is `node`; undefined when that is something else. */
export function findFeedForward(walk: Walk, node: Node): FeedForward | undefined {
  return findExperts(walk, node) ?? findGatedPart(walk, node);
}

/** norm → activation(gate) * up → down projection → residual, whose result is `node`; undefined when that is something else. */
function findGatedPart(walk: Walk, node: Node): FeedForward | undefined {
  const sum = residual(walk, node, (x) => isFn(x, "multiply"), "the feed-forward part");
  if (!sum) return undefined;
  const { scale, postNorm, clips } = sum;
  const down = unbiased(walk, sum.product, "the down projection");
  const { gate, up, activation } = gatedBy(walk, walk.stripViews(down.x));
  const isNormed = walk.peek(gate.x).op === "rmsNorm";
  expect(isNormed || !postNorm, "there is a norm after the feed-forward part, but none before it");
  const norm = walk.norm(gate.x, "the norm before the feed-forward part");
  expect(walk.stripViews(up.x) === walk.peek(gate.x), "gate and up read different rows");
  expect(walk.peek(norm.x) === walk.peek(sum.x), "the norm and the residual of a feed-forward part differ");
  walk.stripViews(norm.x);
  return { x: sum.x, scale, postNorm, clips, norm, gate, up, activation, down, experts: undefined, shared: undefined };
}

/** norm → experts → residual, whose result is `node`; undefined when that is something else. */
function findExperts(walk: Walk, node: Node): FeedForward | undefined {
  const sum = walk.peek(node);
  const side = isFn(sum, "add") ? sum.inputs.findIndex((input) => isExpertPart(walk, input)) : -1;
  if (side < 0) return undefined;
  const x = sum.inputs[1 - side];
  const { normed, ...found } = findExpertPart(walk, sum.inputs[side]);
  walk.inside.add(walk.stripViews(node));
  const norm = walk.norm(normed, "the norm before the experts");
  expect(walk.peek(norm.x) === walk.peek(x), "the norm and the residual of experts differ");
  walk.stripViews(norm.x);
  return { ...found, x, norm, scale: 1, postNorm: undefined, clips: false };
}

/** Whether a node is attention, of heads with sinks or without. */
export function isAttention({ op }: Node): boolean {
  return op === "attention" || op === "sinkAttention";
}

/** attention → output projection → residual, whose result is `node`. */
function findAttentionOutput(walk: Walk, node: Node, many: boolean): AttentionOutput {
  const isOfHeads = (x: Node): boolean => {
    const attention = isHeadSwap(x) ? x.inputs[0] : x;
    return isAttention(attention) && attention.shape[2] > 1 === many;
  };
  const isAttended = (x: Node): boolean =>
    isOfHeads(x) || (isFn(x, "multiply") && x.inputs.some((side) => isOfHeads(walk.peek(side))));
  const sum = residual(walk, node, isAttended, "attention");
  expect(sum !== undefined, "there is no attention below a feed-forward part");
  const o = findProjection(walk, sum.product, "the output projection");
  const gated = gatedAttention(walk, walk.stripViews(o.x), isOfHeads);
  let attention = walk.stripViews(gated?.attended ?? o.x);
  if (isHeadSwap(attention)) {
    walk.inside.add(attention);
    attention = attention.inputs[0];
  }
  const { x, scale, postNorm, clips } = sum;
  return { attention, x, scale, postNorm, clips, o, gate: gated?.gate };
}

/** attended * sigmoid(gate) in either order; undefined if a node is something else. */
function gatedAttention(
  walk: Walk,
  node: Node,
  isOfHeads: (x: Node) => boolean,
): { readonly attended: Node; readonly gate: Node } | undefined {
  if (!isFn(node, "multiply")) return undefined;
  const side = node.inputs.findIndex((x) => isOfHeads(walk.peek(x)));
  const sigmoid = walk.stripViews(node.inputs[1 - side]);
  expect(isFn(sigmoid, "sigmoid"), "attention is multiplied by something else than the sigmoid of a gate");
  walk.inside.add(node).add(sigmoid);
  return { attended: node.inputs[side], gate: sigmoid.inputs[0] };
}

/** The sum of a residual x and a product. */
export interface ResidualSum {
  readonly x: Node;
  readonly product: Node;
  readonly scale: number;
  readonly postNorm: Norm | undefined;
  readonly clips: boolean;
}

/** x + y, x + y times a number or x + norm(y), where y is a projection: what each side reads decides which one it is. */
export function residual(
  walk: Walk,
  node: Node,
  reads: (x: Node) => boolean,
  what: string,
): ResidualSum | undefined {
  const clipped = findClipped(walk, walk.peek(node));
  const sum = walk.peek(clipped?.sum ?? node);
  if (!isFn(sum, "add")) return undefined;
  const reading = (side: Node): boolean => {
    const at = walk.peek(side);
    const product = walk.peek(biasOf(walk, at)?.product ?? at);
    return isProduct(product) && reads(walk.peek(product.inputs[0]));
  };
  const isOwn = (side: Node): boolean => walk.shownOnce(side) !== undefined;
  const [a, b] = sum.inputs;
  // A residual may be a product too. It has other readers, as the norm before the mixer.
  for (const [side, x] of isOwn(b) && !isOwn(a) ? [[b, a], [a, b]] : [[a, b], [b, a]]) {
    const { node: product, scale, scaled } = unscaled(walk, side);
    if (!sameShape(x.shape, sum.shape)) continue; // a bias
    const norm = walk.peek(product);
    const isPostNorm = norm.op === "rmsNorm" && reading(norm.inputs[0]);
    if (!isPostNorm && !reading(product)) continue;
    expect(!isPostNorm || !scaled, `the result of ${what} is normalised and multiplied before it is added`);
    walk.stripViews(node);
    for (const passed of clipped?.nodes ?? []) walk.inside.add(passed);
    walk.inside.add(walk.stripViews(clipped?.sum ?? sum));
    if (scaled) walk.inside.add(walk.stripViews(side));
    const postNorm = isPostNorm ? walk.norm(product, `the norm after ${what}`) : undefined;
    return { x, product: postNorm?.x ?? product, scale, postNorm, clips: clipped !== undefined };
  }
  return undefined;
}

/** The largest float16. */
const MAX_FLOAT16 = 65504;

/** The sum that a node keeps in float16's range, and the nodes that do; undefined if it does not. */
function findClipped(walk: Walk, node: Node): { readonly sum: Node; readonly nodes: readonly Node[] } | undefined {
  const bounded = (at: Node, fn: string, bound: number): Node | undefined =>
    isFn(at, fn) && walk.peekFull(at.inputs[1]) === bound ? at.inputs[0] : undefined;
  const low = bounded(node, "minimum", MAX_FLOAT16);
  const sum = low && bounded(walk.peek(low), "maximum", -MAX_FLOAT16);
  return sum && { sum, nodes: [node, walk.peek(low)] };
}

/** What a node multiplies by a number, and that number; else the node and 1. */
export function unscaled(
  walk: Walk,
  node: Node,
): { readonly node: Node; readonly scale: number; readonly scaled: boolean } {
  const product = walk.peek(node);
  for (const i of isFn(product, "multiply") ? [0, 1] : []) {
    const scale = walk.peekFull(product.inputs[i]);
    if (scale !== undefined) return { node: product.inputs[1 - i], scale, scaled: true };
  }
  return { node, scale: 1, scaled: false };
}
