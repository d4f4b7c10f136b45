/**
 * Derivatives of fused ops that have kernels of their own. Each is a fused op again. Its composite, the derivative written in primitives,
 * serves devices without the kernel and second derivatives.
 *
 * @module
 */

import { type Dtype, float32, promote } from "../../graph/dtype.ts";
import { attrsOf, makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { type AttentionScores, attentionScores, productIn, windowMask } from "../fast/attention_scores.ts";
import { add, equal, multiply, subtract, where } from "../ops/binary.ts";
import { full } from "../ops/creation.ts";
import { accumulatorOf, defineFused } from "../fast/fused.ts";
import { concatenate, split } from "../ops/join.ts";
import { astype, broadcastTo, reshape, reshapeNode, sliceNode, swapaxes } from "../ops/movement.ts";
import { max, mean, softmax, sum } from "../ops/reduce.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { exp, log, rsqrt, square } from "../ops/unary.ts";
import { attentionInPrimitives, attentionOnMatrices } from "../../schedule/crossovers.ts";
import { asDtype, type Step, type Vjp } from "./rule.ts";
import type { FusedName } from "../../schedule/ops/fused_ops.ts";

// ---- normalisation --------------------------------------------------------------------------------------------------

/** Normed rows without weight, and 1 / sqrt(mean of squares + eps) of each, in the wide dtype. */
function normal(x: Tensor, { eps, centered }: { eps: number; centered: boolean }): { rows: Tensor; scale: Tensor } {
  const distance = centered ? subtract(x, mean(x, -1, true)) : x;
  const scale = rsqrt(add(mean(square(distance), -1, true), eps));
  return { rows: multiply(distance, scale), scale };
}

/** s (g - n * mean of g n), for centred rows also less the mean of g; see shaders/ops/norm/norm_vjp.comp. */
const normVjpNode = defineFused("normVjp", ({ attrs, dtype }, x, ...rest) => {
  const cotangent = rest[rest.length - 1];
  const accumulator = accumulatorOf(promote(x.dtype, cotangent.dtype));
  const { rows, scale } = normal(astype(x, accumulator), attrs);
  const wide = astype(cotangent, accumulator);
  const g = attrs.hasWeight ? multiply(wide, astype(rest[0], accumulator)) : wide;
  const along = subtract(g, multiply(rows, mean(multiply(g, rows), -1, true)));
  return astype(multiply(scale, attrs.centered ? subtract(along, mean(g, -1, true)) : along), dtype);
});

const normWeightVjpNode = defineFused("normWeightVjp", ({ attrs, dtype }, x, cotangent) => {
  const accumulator = accumulatorOf(promote(x.dtype, cotangent.dtype));
  const { rows } = normal(astype(x, accumulator), attrs);
  const products = multiply(astype(cotangent, accumulator), rows);
  return astype(sum(products, x.shape.map((_, i) => i).slice(0, -1)), dtype);
});

function normBack(
  step: Step,
  cotangent: AnyTensor,
  eps: number,
  centered: boolean,
  weight: number | undefined,
  bias: number | undefined,
): (AnyTensor | undefined)[] {
  const { inputs } = step.entry;
  const [x, c] = [inputs[0], nodeOf(cotangent)];
  const back: (AnyTensor | undefined)[] = inputs.map(() => undefined);
  if (step.wants(0)) {
    const all = weight === undefined ? [x, c] : [x, inputs[weight], c];
    back[0] = normVjpNode(all, x.shape, x.dtype, { eps, centered, hasWeight: weight !== undefined });
  }
  if (weight !== undefined && step.wants(weight)) {
    const { shape, dtype } = inputs[weight];
    back[weight] = normWeightVjpNode([x, c], shape, dtype, { eps, centered });
  }
  if (bias !== undefined && step.wants(bias)) {
    const total = sum(cotangent, x.shape.map((_, i) => i).slice(0, -1)) as AnyTensor;
    back[bias] = asDtype(total, inputs[bias]);
  }
  return back;
}

// ---- rotation -------------------------------------------------------------------------------------------------------

/** Rotates back: by the same angles with the other sign. Undefined if wavelengths have a derivative too. */
function ropeBack(step: Step, cotangent: AnyTensor): (AnyTensor | undefined)[] | undefined {
  const { inputs, shape, dtype, composite } = step.entry;
  if (inputs.some((_, i) => i > 0 && step.wants(i))) return undefined;
  const attrs = attrsOf(step.entry, "rope");
  const turned = [nodeOf(cotangent), ...inputs.slice(1)];
  return [wrap(makeNode("rope", turned, shape, dtype, { ...attrs, scale: -attrs.scale }, composite))];
}

// ---- attention ------------------------------------------------------------------------------------------------------

const attentionStatsNode = defineFused("attentionStats", ({ attrs, shape, dtype }, q, k, y, cotangent, ...rest) => {
  const { scores } = attentionScores(q, k, rest, attrs, dtype);
  const most = k.shape[2] === 0 ? full([], -Infinity, dtype) : max(scores, -1, true);
  const shift = where(equal(most, -Infinity), 0, most);
  const total = sum(exp(subtract(scores, shift)), -1, true);
  const logarithm = where(equal(total, 0), Infinity, add(log(total), shift));
  const delta = sum(multiply(astype(y, dtype), astype(cotangent, dtype)), -1, true);
  return concatenate([reshape(logarithm, [...shape.slice(0, -1), 1]), delta], -1);
});

/** Probabilities and the gradients of scaled products, both (B, Hkv, group, Tq, Tk), with what puts other arrays beside them. */
function attentionProducts(
  attrs: OpAttrs["attention"],
  accumulator: Dtype,
  [q, k, v, cotangent, stats, ...rest]: readonly Tensor[],
): Omit<AttentionScores, "scores"> & { probabilities: Tensor; gradients: Tensor } {
  const { scores, grouped, shared } = attentionScores(q, k, rest, attrs, accumulator);
  const [logarithm, delta] = split(grouped(stats), 2, -1);
  const probabilities = exp(subtract(scores, logarithm));
  const ofValues = productIn(accumulator, grouped(cotangent), swapaxes(shared(v), -1, -2));
  const gradients = multiply(multiply(probabilities, subtract(ofValues, delta)), attrs.scale);
  return { probabilities, gradients, grouped, shared };
}

const attentionQueryVjpNode = defineFused("attentionQueryVjp", ({ attrs, shape, dtype }, ...inputs) => {
  const { gradients, shared } = attentionProducts(attrs, inputs[4].dtype, inputs);
  return astype(reshape(productIn(inputs[4].dtype, gradients, shared(inputs[1])), shape), dtype);
});

const attentionKeyVjpNode = defineFused("attentionKeyVjp", ({ attrs, dtype }, ...inputs) => {
  const [q, , , cotangent, { dtype: accumulator }] = inputs;
  const { probabilities, gradients, grouped } = attentionProducts(attrs, accumulator, inputs);
  const back = (weights: Tensor, x: Tensor): Tensor => reshape(acrossQueries(accumulator, weights, grouped(x)), [-1]);
  return astype(concatenate([back(gradients, q), back(probabilities, cotangent)], 0), dtype);
});

/** weightsᵀ @ x for the keys, (B, Hkv, Tk, D): the queries of all heads of a group are one depth. */
function acrossQueries(dtype: Dtype, weights: Tensor, x: Tensor): Tensor {
  const rows = (of: Tensor): Tensor => {
    const [batch, heads, group, queries, columns] = of.shape;
    return reshape(of, [batch, heads, group * queries, columns]);
  };
  return productIn(dtype, swapaxes(rows(weights), -1, -2), rows(x));
}

/** Attributes of an attention, and its mask and lengths as nodes. */
interface Masked {
  readonly attrs: OpAttrs["attention"];
  readonly rest: readonly Node[];
}

/** An attention whose window, which the kernels of gradients do not know, is a mask. */
function withoutWindow({ attrs: { window, ...attrs }, rest }: Masked, q: Node, k: Node): Masked {
  if (window === undefined) return { attrs, rest };
  const [batch, heads, queries] = q.shape;
  const keys = k.shape[2];
  const lengths = attrs.hasLengths ? wrap(rest[rest.length - 1]) as Tensor : undefined;
  const mask = broadcastTo(windowMask({ ...attrs, window }, queries, keys, lengths), [batch, heads, queries, keys]);
  return { attrs: { ...attrs, mask: "bool" }, rest: [nodeOf(mask), ...rest] };
}

/** The gradients in primitives over halves; only factors of products are not in float32. */
function attentionOfHalves(step: Step, cotangent: AnyTensor, masked: Masked): (AnyTensor | undefined)[] {
  const { attrs } = masked;
  const [q, k, v] = step.entry.inputs.map((node) => wrap(node) as Tensor);
  const rest = masked.rest.map((node) => wrap(node) as Tensor);
  const { scores, grouped, shared } = attentionScores(q, k, rest, attrs, float32);
  const shares = softmax(scores, -1);
  const allSee = attrs.mask === "none" || (attrs.mask === "causal" && q.shape[2] <= k.shape[2]);
  // A row without keys has no probabilities.
  const probabilities = allSee && !attrs.hasLengths
    ? shares
    : where(equal(max(scores, -1, true), -Infinity), 0, shares);
  const c = grouped(cotangent as Tensor);
  const ofValues = productIn(float32, c, swapaxes(shared(v), -1, -2));
  const delta = sum(multiply(astype(grouped(step.y as Tensor), float32), astype(c, float32)), -1, true);
  const gradients = astype(multiply(multiply(probabilities, subtract(ofValues, delta)), attrs.scale), q.dtype);
  const back = (weights: Tensor, x: Tensor, of: Tensor): AnyTensor =>
    astype(acrossQueries(float32, weights, x), of.dtype);
  return [
    step.wants(0) ? astype(reshape(productIn(float32, gradients, shared(k)), q.shape), q.dtype) : undefined,
    step.wants(1) ? back(gradients, grouped(q), k) : undefined,
    step.wants(2) ? back(astype(probabilities, q.dtype), c, v) : undefined,
  ];
}

/** Undefined if primitives are faster, or an added mask has a derivative too: that has an element for each score. */
function attentionBack(step: Step, cotangent: AnyTensor): (AnyTensor | undefined)[] | undefined {
  const { inputs } = step.entry;
  const [q, k, v, ...given] = inputs;
  if (given.some((_, i) => step.wants(i + 3))) return undefined;
  const masked = withoutWindow({ attrs: step.entry.attrs as OpAttrs["attention"], rest: given }, q, k);
  const { attrs: own, rest } = masked;
  if (attentionInPrimitives(q, k, own)) return undefined;
  const c = nodeOf(cotangent);
  if ([k, v, c].every(({ dtype }) => dtype === q.dtype) && attentionOnMatrices(q, k)) {
    return attentionOfHalves(step, cotangent, masked);
  }
  const accumulator = accumulatorOf(promote(step.entry.dtype, float32));
  const statsShape = [...q.shape.slice(0, 3), 2];
  const stats = nodeOf(attentionStatsNode([q, k, nodeOf(step.y), c, ...rest], statsShape, accumulator, own));
  const all = [q, k, v, c, stats, ...rest];
  const dq = step.wants(0) ? attentionQueryVjpNode(all, q.shape, q.dtype, own) : undefined;
  if (!step.wants(1) && !step.wants(2)) return [dq];
  const [ofKeys, ofValues] = [k, v].map(({ shape }) => sizeOf(shape));
  const both = nodeOf(attentionKeyVjpNode(all, [ofKeys + ofValues], k.dtype, own));
  const part = (start: number, { shape }: Node): AnyTensor =>
    wrap(reshapeNode(sliceNode(both, [start], [1], [sizeOf(shape)]), shape));
  return [dq, part(0, k), part(ofKeys, v)];
}

/** Reverse-mode rules of fused ops; undefined, or none, if the composite is differentiated instead. */
export const FUSED_VJP: { readonly [K in FusedName]?: (...args: Parameters<Vjp>) => ReturnType<Vjp> | undefined } = {
  rmsNorm(step, cotangent) {
    const weight = step.entry.inputs.length > 1 ? 1 : undefined;
    return normBack(step, cotangent, attrsOf(step.entry, "rmsNorm").eps, false, weight, undefined);
  },
  layerNorm(step, cotangent) {
    const { eps, hasWeight, hasBias } = attrsOf(step.entry, "layerNorm");
    const bias = hasBias ? step.entry.inputs.length - 1 : undefined;
    return normBack(step, cotangent, eps, true, hasWeight ? 1 : undefined, bias);
  },
  rope: ropeBack,
  attention: attentionBack,
};
