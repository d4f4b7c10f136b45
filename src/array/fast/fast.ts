/**
 * Fused functions, each beside its definition in primitives.
 *
 * A node of a fused op carries its composite. The scheduler lowers the composite if a device lacks the kernel or fusion is off. Tests
 * hold the kernel against it. Cases that the kernel does not cover are built from it right away.
 *
 * @module
 */

import { bool, type Dtype, int32, promote } from "../../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node, OpAttrs } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { broadcastShapes, formatShape, sameShape, sizeOf } from "../../graph/shape.ts";
import { attentionScores, productIn } from "./attention_scores.ts";
import * as op from "../ops/binary.ts";
import { arange, array } from "../ops/creation.ts";
import { castNode, type TensorLike, toIndexNode, toInteger, toNode, toNumber } from "../tensor/convert.ts";
import { astype, broadcastNode, reshape } from "../ops/movement.ts";
import { concatenate, split, stack } from "../ops/join.ts";
import { accumulatorOf, defineFused, floatNode } from "./fused.ts";
import * as reduce from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, Tensor, wrap } from "../tensor/tensor.ts";
import { cos, exp, reciprocal, rsqrt, sin, square } from "../ops/unary.ts";
import type { Floating } from "../tensor/results.ts";
import type { NameWith } from "../tensor/results.ts";
import type { NameOf, RankOf } from "../tensor/types.ts";

export { crossEntropy } from "./cross_entropy.ts";
export {
  type HostKernel,
  type HostKernelCall,
  type KernelVariant,
  type TemplateValue,
  type VulkanKernel,
  vulkanKernel,
  type VulkanKernelCall,
  type VulkanKernelOptions,
} from "./custom_kernel.ts";
export { gatedDeltaUpdate } from "./gated_delta.ts";
export { logprobs, logprobsComposite } from "./logprobs.ts";
export { sample, sampleComposite, type SampleOptions } from "./sample.ts";

function lastAxisVector(name: string, what: string, vector: Node, x: Node): void {
  if (vector.shape.length === 1 && vector.shape[0] === x.shape[x.shape.length - 1]) return;
  throw new ShapeError(
    `${name}() expected ${what} to be a vector as long as the last axis of ${formatShape(x.shape)}: found ${
      formatShape(vector.shape)
    }`,
  );
}

/**
 * Root mean square normalisation over the last axis: x / sqrt(mean(x²) + eps) * weight, in float32 inside, in float64 of that. The dtype is
 * that in which x and weight meet.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.fast.rmsNorm(mx.ones([2, 4]), mx.ones([4]), 1e-6).shape; // [2, 4]
 * ```
 */
export function rmsNorm<X extends TensorLike, W extends TensorLike | null>(
  x: X,
  weight: W,
  eps: number,
): Tensor<NameWith<NameOf<X>, W>, RankOf<X>> {
  const input = floatNode("rmsNorm", x);
  toNumber("rmsNorm", "eps", eps);
  if (input.shape.length === 0) throw new ShapeError("rmsNorm() expected at least 1 axis");
  if (weight === null) {
    return rmsNormNode([input], input.shape, input.dtype, { eps });
  }
  const w = floatNode("rmsNorm", weight);
  lastAxisVector("rmsNorm", "weight", w, input);
  const dtype = promote(input.dtype, w.dtype);
  return rmsNormNode([input, w], input.shape, dtype, { eps });
}

const rmsNormNode = defineFused(
  "rmsNorm",
  ({ attrs, dtype }, x, weight) => rmsNormComposite(x, weight ?? null, attrs.eps, dtype),
);

/** Computes {@link rmsNorm} in primitives. */
export function rmsNormComposite(x: Tensor, weight: Tensor | null, eps: number, dtype: Dtype): Tensor {
  const wide = astype(x, accumulatorOf(dtype));
  const scale = rsqrt(op.add(reduce.mean(square(wide), -1, true), eps));
  const normal = astype(op.multiply(wide, scale), dtype);
  return weight === null ? normal : op.multiply(normal, astype(weight, dtype));
}

/** Layer normalisation over the last axis: (x - mean) / sqrt(variance + eps) * weight + bias, in float32 inside. */
export function layerNorm<X extends TensorLike, W extends TensorLike | null, B extends TensorLike | null>(
  x: X,
  weight: W,
  bias: B,
  eps: number,
): Tensor<NameWith<NameWith<NameOf<X>, W>, B>, RankOf<X>> {
  const input = floatNode("layerNorm", x);
  toNumber("layerNorm", "eps", eps);
  if (input.shape.length === 0) throw new ShapeError("layerNorm() expected at least 1 axis");
  const [w, b] = [weight, bias].map((v) => v === null ? undefined : floatNode("layerNorm", v));
  if (w) lastAxisVector("layerNorm", "weight", w, input);
  if (b) lastAxisVector("layerNorm", "bias", b, input);
  const dtype = [w, b].reduce((d, n) => n ? promote(d, n.dtype) : d, input.dtype);
  const attrs = { eps, hasWeight: w !== undefined, hasBias: b !== undefined };
  const inputs = [input, ...[w, b].filter((node) => node !== undefined)];
  return layerNormNode(inputs, input.shape, dtype, attrs);
}

const layerNormNode = defineFused("layerNorm", ({ attrs: { eps, hasWeight, hasBias }, dtype }, x, ...rest) => {
  const wide = astype(x, accumulatorOf(dtype));
  const centered = op.subtract(wide, reduce.mean(wide, -1, true));
  const scale = rsqrt(op.add(reduce.mean(square(centered), -1, true), eps));
  let y = astype(op.multiply(centered, scale), dtype);
  if (hasWeight) y = op.multiply(y, astype(rest[0], dtype));
  if (hasBias) y = op.add(y, astype(rest[hasWeight ? 1 : 0], dtype));
  return y;
});

/** Options of {@link rope}. */
export interface RopeOptions {
  /** Pairs (2i, 2i + 1) instead of (i, i + dims / 2). */
  readonly traditional?: boolean;
  /** Base of the wavelengths; null when `freqs` gives them. */
  readonly base?: number | null;
  /** Multiplies positions. */
  readonly scale?: number;
  /** Position of the first row: a number, or an int32 array with one for all or one for each batch row. */
  readonly offset?: number | TensorLike;
  /** Wavelengths / 2π of the dims / 2 pairs, in place of `base`. */
  readonly freqs?: TensorLike | null;
}

const ROPE_OPTIONS = {
  traditional: true,
  base: true,
  scale: true,
  offset: true,
  freqs: true,
} as const satisfies Record<keyof RopeOptions, true>;

/**
 * Rotary position embedding of the first `dims` features of x (B, …, T, D). Row t is rotated as position (t + offset) * scale.
 */
export function rope<X extends TensorLike>(x: X, dims: number, options: RopeOptions = {}): Floating<X> {
  checkOptions("rope", options, ROPE_OPTIONS);
  const { traditional = false, scale = 1, offset = 0, freqs = null } = options;
  const base = options.base === undefined && freqs === null ? 10000 : options.base ?? null;
  const input = floatNode("rope", x);
  const { shape } = input;
  if (shape.length < 3) {
    throw new ShapeError(`rope() expected (batch, …, positions, features): found shape ${formatShape(shape)}`);
  }
  if (!Number.isInteger(dims) || dims % 2 !== 0 || dims < 2 || dims > shape[shape.length - 1]) {
    throw new ValueError(
      `rope() expected dims to be even and at most ${shape[shape.length - 1]}: found ${quoted(dims)}`,
    );
  }
  if ((base === null) === (freqs === null)) throw new ValueError("rope() expected either base or freqs");
  toNumber("rope", "scale", scale);
  if (base !== null) toNumber("rope", "base", base);
  const inputs: Node[] = [input];
  let offsetInput: OpAttrs["rope"]["offsetInput"] = "none";
  if (typeof offset === "number") toInteger("rope", "offset", offset);
  else {
    const node = castNode(toIndexNode("rope", offset), int32);
    const count = sizeOf(node.shape);
    if (node.shape.length > 1 || (count !== 1 && count !== shape[0])) {
      throw new ShapeError(
        `rope() expected one offset, or one for each of ${shape[0]} batch rows: found shape ${formatShape(node.shape)}`,
      );
    }
    offsetInput = count === 1 ? "scalar" : "batch";
    inputs.push(node);
  }
  if (freqs !== null) {
    const node = castNode(toNode("rope", freqs), accumulatorOf(input.dtype));
    if (node.shape.length !== 1 || node.shape[0] !== dims / 2) {
      throw new ShapeError(`rope() expected freqs of shape (${dims / 2},): found ${formatShape(node.shape)}`);
    }
    inputs.push(node);
  }
  const attrs: OpAttrs["rope"] = {
    dims,
    traditional,
    base: base ?? 1,
    scale,
    offset: typeof offset === "number" ? offset : 0,
    offsetInput,
    hasFreqs: freqs !== null,
  };
  return ropeNode(inputs, shape, input.dtype, attrs);
}

const ropeNode = defineFused("rope", ({ attrs }, x, ...rest) => ropeComposite(x, attrs, rest));

/** Computes {@link rope} in primitives. `inputs` are the offset and freqs arrays that the attributes ask for. */
export function ropeComposite(x: Tensor, attrs: OpAttrs["rope"], inputs: readonly Tensor[]): Tensor {
  const { dims, traditional, base, scale, offsetInput, hasFreqs } = attrs;
  const half = dims / 2;
  const { shape } = x;
  const steps = shape[shape.length - 2];
  const accumulator = accumulatorOf(x.dtype);
  const inverse = hasFreqs
    ? reciprocal(inputs[inputs.length - 1])
    : array(Float64Array.from({ length: half }, (_, i) => base ** (-2 * i / dims)), accumulator);
  // Positions (1 or B, 1…, T, 1) times inverse wavelengths (half,).
  const start = offsetInput === "none" ? attrs.offset : reshape(inputs[0], [-1, ...shape.slice(1).map(() => 1)]);
  const row = reshape(arange(0, steps, 1, int32), [...shape.slice(0, -2).map(() => 1), steps, 1]);
  const position = op.multiply(astype(op.add(row, start), accumulator), scale);
  const angle = op.multiply(position, inverse);
  const [c, s] = [cos(angle), sin(angle)];
  const wide = astype(x, accumulator);
  const [rotated, passed] = dims < shape[shape.length - 1] ? split(wide, [dims], -1) : [wide, undefined];
  const pairs = reshape(rotated, [...shape.slice(0, -1), ...(traditional ? [half, 2] : [2, half])]);
  const [a, b] = split(pairs, 2, traditional ? -1 : -2).map((part) => reshape(part, [...shape.slice(0, -1), half]));
  const turned = stack(
    [op.subtract(op.multiply(a, c), op.multiply(b, s)), op.add(op.multiply(a, s), op.multiply(b, c))],
    traditional ? -1 : -2,
  );
  const joined = reshape(turned, [...shape.slice(0, -1), dims]);
  return astype(passed ? concatenate([joined, passed], -1) : joined, x.dtype);
}

/** Options of {@link scaledDotProductAttention}. */
export interface AttentionOptions {
  /** Multiplies the scores, as a rule 1 / sqrt(D). */
  readonly scale: number;
  /**
   * "causal": the queries are those of the last Tq keys, so query i sees the first i + 1 + (number of keys) - Tq. The number of keys is
   * `lengths` if that is given, otherwise Tk. A bool array keeps scores if it is true, a float array is added to the scores. Both
   * broadcast to (B, Hq, Tq, Tk), and the result's type holds theirs. Null or nothing: all keys.
   */
  readonly mask?: null | "causal" | TensorLike;
  /** How many keys a query sees, at least 1: the last of those that it sees otherwise. For no mask or "causal"; null or nothing: all. */
  readonly window?: number | null;
  /** One more logit for each query head in the softmax, which gives no value: shape (Hq,), of a type that the result's holds. */
  readonly sinks?: TensorLike | null;
  /** Bounds scores before the mask, smoothly: to softcap * tanh(score / softcap). Above 0; null or nothing: no bound. */
  readonly softcap?: number | null;
  /**
   * How many rows of k and v hold keys (int32), limited to 0 … Tk: one for all, or one for each batch row. The rest is not looked
   * at, whatever it holds.
   */
  readonly lengths?: TensorLike | null;
}

const ATTENTION_OPTIONS = {
  scale: true,
  mask: true,
  window: true,
  sinks: true,
  softcap: true,
  lengths: true,
} as const satisfies Record<
  keyof AttentionOptions,
  true
>;

/** More keys than there are: positions have 31 bits. */
const MAX_WINDOW = 2 ** 30;

/** Largest head dimension that the attention kernel takes. */
const MAX_HEAD_DIM = 256;

/**
 * Attention softmax(scale * q @ kᵀ + mask) @ v with float32 scores. q (B, Hq, Tq, D), k (B, Hkv, Tk, D), v (B, Hkv, Tk, Dv);
 * query head h uses kv head h / (Hq / Hkv). A row in which everything is masked gives 0.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const q = mx.random.normal([1, 8, 4, 64]);
 * const k = mx.random.normal([1, 2, 4, 64]);
 * mx.fast.scaledDotProductAttention(q, k, k, { scale: 1 / 8, mask: "causal" }).shape; // [1, 8, 4, 64]
 * ```
 */
export function scaledDotProductAttention<Q extends TensorLike, K extends TensorLike, V extends TensorLike>(
  q: Q,
  k: K,
  v: V,
  options: AttentionOptions,
): Tensor<NameWith<NameWith<NameOf<Q>, K>, V>, 4> {
  const name = "scaledDotProductAttention";
  checkOptions(name, options, ATTENTION_OPTIONS);
  toNumber(name, "scale", options.scale);
  const [nq, nk, nv] = [q, k, v].map((x) => floatNode(name, x));
  const shapes = `q ${formatShape(nq.shape)}, k ${formatShape(nk.shape)}, v ${formatShape(nv.shape)}`;
  if (nq.shape.length !== 4 || nk.shape.length !== 4 || nv.shape.length !== 4) {
    throw new ShapeError(`${name}() expected (batch, heads, positions, features): found ${shapes}`);
  }
  const [batch, heads, qLen, dim] = nq.shape;
  const [kBatch, kvHeads, kvLen, kDim] = nk.shape;
  const vDim = nv.shape[3];
  if (
    kBatch !== batch || kDim !== dim || !sameShape(nk.shape.slice(0, 3), nv.shape.slice(0, 3)) || heads % kvHeads !== 0
  ) {
    throw new ShapeError(`${name}() sizes do not fit: found ${shapes}`);
  }
  const dtype = promote(promote(nq.dtype, nk.dtype), nv.dtype);
  const cache = promote(nk.dtype, nv.dtype);
  const inputs: Node[] = [nq, castNode(nk, cache), castNode(nv, cache)];
  const full = [batch, heads, qLen, kvLen];
  const mode = addMask(options.mask ?? null, inputs, full, dtype);
  let lengths: Node | undefined;
  if (options.lengths !== undefined && options.lengths !== null) {
    lengths = castNode(toIndexNode(name, options.lengths), int32);
    const count = sizeOf(lengths.shape);
    if (count !== 1 && !sameShape(lengths.shape, [batch])) {
      throw new ShapeError(
        `${name}() expected one length, or one for each of ${batch} batch rows: found shape ${
          formatShape(lengths.shape)
        }`,
      );
    }
    inputs.push(lengths);
  }
  const window = checkedWindow(name, options.window ?? undefined, mode);
  const attrs: OpAttrs["attention"] = {
    scale: options.scale,
    mask: mode,
    hasLengths: lengths !== undefined,
    ...window,
  };
  const sinks = options.sinks ?? null;
  const softcap = options.softcap ?? undefined;
  if (softcap !== undefined && !(toNumber(name, "softcap", softcap) > 0)) {
    throw new ValueError(`${name}() expected softcap above 0: found ${softcap}`);
  }
  const fits = dim <= MAX_HEAD_DIM && vDim <= MAX_HEAD_DIM;
  if (sinks === null && softcap === undefined && fits) {
    return attentionNode(inputs, [batch, heads, qLen, vDim], dtype, attrs);
  }
  const sink = sinks === null ? undefined : toNode(name, sinks, dtype);
  if (sink) needMeet("sinks", sink.dtype, dtype);
  if (sink && !sameShape(sink.shape, [heads])) {
    throw new ShapeError(`${name}() expected sinks of shape (${heads},): found ${formatShape(sink.shape)}`);
  }
  if (sink && softcap === undefined && fits) {
    return sinkAttentionNode([...inputs, sink], [batch, heads, qLen, vDim], dtype, attrs);
  }
  return scoped(
    "scaledDotProductAttention",
    (): AnyTensor => attentionInBlocks(inputs.map(wrap), attrs, dtype, sink && wrap(sink), softcap),
  );
}

const sinkAttentionNode = defineFused(
  "sinkAttention",
  ({ attrs, dtype }, ...inputs) =>
    attentionInBlocks(inputs.slice(0, -1), attrs, dtype, inputs[inputs.length - 1], undefined),
);

const attentionNode = defineFused(
  "attention",
  ({ attrs, dtype }, ...inputs) => attentionComposite(inputs, attrs, dtype),
);

/** Most scores that are in memory at a time: 128 MiB in float32. */
const MAX_SCORES = 2 ** 25;

/** {@link attentionComposite} of some queries after the other, so that the memory of scores does not grow with their number. */
function attentionInBlocks(
  inputs: readonly Tensor[],
  attrs: OpAttrs["attention"],
  dtype: Dtype,
  sinks: Tensor | undefined,
  softcap: number | undefined,
): Tensor {
  const [q, k, v, ...rest] = inputs;
  const [batch, heads, rows] = q.shape;
  const keys = k.shape[2];
  const most = Math.max(1, Math.floor(MAX_SCORES / Math.max(1, batch * heads * keys)));
  if (rows <= most) return attentionComposite(inputs, attrs, dtype, sinks, softcap);
  const ends = Array.from({ length: Math.ceil(rows / most) }, (_, i) => Math.min(rows, (i + 1) * most));
  const parts = (x: Tensor): Tensor[] => split(x, ends.slice(0, -1), 2);
  const queries = parts(q);
  const masks = attrs.mask === "bool" || attrs.mask === "add" ? parts(rest[0]) : [];
  const lengths = attrs.hasLengths ? op.clip(rest[rest.length - 1], 0, keys) : array([keys], int32);
  const blocks = queries.map((block, i) => {
    const mask = masks.length > 0 ? [masks[i]] : [];
    if (attrs.mask !== "causal") {
      const own = attrs.hasLengths ? [lengths] : [];
      return attentionComposite([block, k, v, ...mask, ...own], attrs, dtype, sinks, softcap);
    }
    // The last query of a block sees as many keys less as queries follow.
    const seen = op.subtract(lengths, rows - ends[i]);
    return attentionComposite([block, k, v, seen], { ...attrs, hasLengths: true }, dtype, sinks, softcap);
  });
  return concatenate(blocks, 2);
}

/** The attribute of a window of so many keys, if there is one. */
function checkedWindow(
  name: string,
  window: number | undefined,
  mask: OpAttrs["attention"]["mask"],
): Pick<OpAttrs["attention"], "window"> {
  if (window === undefined) return {};
  if (!Number.isSafeInteger(toNumber(name, "window", window)) || window < 1) {
    throw new ValueError(`${name}() expected a whole window of at least 1: found ${window}`);
  }
  if (mask === "bool" || mask === "add") {
    throw new ValueError(
      `${name}() takes a window with no mask or "causal": found an array, which can hide keys itself`,
    );
  }
  return { window: Math.min(window, MAX_WINDOW) };
}

/** A mask of a wider dtype than the result would be rounded silently, so it is an error. */
function needMeet(what: string, found: Dtype, result: Dtype): void {
  if (promote(found, result) === result) return;
  throw new DtypeError(
    `scaledDotProductAttention() expected ${what} of a dtype that meets ${result.name} in ${result.name}: found ${found.name}`,
  );
}

/** Appends the node of a mask to `inputs`; says what kind it is. */
function addMask(
  mask: null | "causal" | TensorLike,
  inputs: Node[],
  full: readonly number[],
  dtype: Dtype,
): OpAttrs["attention"]["mask"] {
  if (mask === null) return "none";
  if (mask === "causal") return "causal";
  if (typeof mask === "string") {
    throw new ValueError(`scaledDotProductAttention() has one mask with a name, "causal": found ${quoted(mask)}`);
  }
  const given = toNode("scaledDotProductAttention", mask);
  // Lists are of no type of their own: one that is not of bools takes the result's.
  const node = given.dtype === bool || mask instanceof Tensor ? given : castNode(given, dtype);
  const common = broadcastShapes(node.shape, full);
  if (!common || !sameShape(common, full)) {
    throw new ShapeError(
      `scaledDotProductAttention() cannot broadcast a mask of shape ${formatShape(node.shape)} to ${formatShape(full)}`,
    );
  }
  needMeet("a mask", node.dtype, dtype);
  inputs.push(broadcastNode(node.dtype === bool ? node : castNode(node, dtype), full));
  return node.dtype === bool ? "bool" : "add";
}

/** Computes {@link scaledDotProductAttention} in primitives. `inputs` are q, k, v and the mask and lengths of `attrs`. */
export function attentionComposite(
  inputs: readonly Tensor[],
  attrs: OpAttrs["attention"],
  dtype: Dtype,
  sinks?: Tensor,
  softcap?: number,
): Tensor {
  const accumulator = accumulatorOf(dtype);
  const [q, k, v, ...rest] = inputs;
  const [batch, heads, qLen] = q.shape;
  const [, kvHeads, kvLen] = k.shape;
  const { scores, shared } = attentionScores(q, k, rest, attrs, accumulator, softcap);

  // Softmax by hand: a row of -infinity alone gives 0 instead of NaN.
  let most: Tensor = kvLen === 0 ? array(-Infinity, accumulator) : reduce.max(scores, -1, true);
  const sink = sinks && reshape(astype(sinks, accumulator), [kvHeads, heads / kvHeads, 1, 1]);
  if (sink) most = op.maximum(most, sink);
  const shift = op.where(op.equal(most, -Infinity), 0, most);
  const weights = exp(op.subtract(scores, shift));
  let total = reduce.sum(weights, -1, true);
  if (sink) total = op.add(total, exp(op.subtract(sink, shift)));
  const mixed = productIn(accumulator, weights, shared(v));
  const result = op.divide(mixed, op.where(op.equal(total, 0), 1, total));
  return astype(reshape(result, [batch, heads, qLen, v.shape[3]]), dtype);
}
