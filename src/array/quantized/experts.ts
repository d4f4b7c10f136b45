/**
 * The parts of a layer of experts as fused functions, beside their definitions in primitives. They are the choice of experts, the gated
 * linear units of the chosen ones, and their weighted sum.
 *
 * Shapes: R rows, one a token; E experts, k of them for a row; H features of a token, N features inside of an expert.
 *
 * @module
 */

import { type Dtype, float32, uint32 } from "../../graph/dtype.ts";
import type { ExpertChoice, ExpertFormat, ExpertUnit } from "../../graph/experts.ts";
import type { Node } from "../../graph/node.ts";
import type { QuantizedFormat } from "../../graph/quantization.ts";
import * as op from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { take, takeAlongAxis } from "../ops/gather.ts";
import { concatenate, split } from "../ops/join.ts";
import { astype, expandDims, reshape, swapaxes } from "../ops/movement.ts";
import { stopGradient } from "../transforms/custom.ts";
import * as reduce from "../ops/reduce.ts";
import { argpartition, topk } from "../ops/sort.ts";
import { negative, sigmoid } from "../ops/unary.ts";
import { gatherMm } from "../linalg/matrix_products.ts";
import { gatherQmm } from "./products.ts";
import { sortsChoices } from "../../schedule/crossovers.ts";
import { type AnyTensor, nodeOf, type Tensor } from "../tensor/tensor.ts";
import { defineFused } from "../fast/fused.ts";
import { geluApprox, silu } from "../fast/nn.ts";

/** The matrices of all experts, (E, outputs, inputs): dense ones, or codes with their factors. */
export interface ExpertMatrices {
  /** Numbers, or codes (E, outputs, inputs * bits / 32). */
  readonly weight: Tensor;
  /** Scales (E, outputs, inputs / groupSize), and biases of affine codes; absent of dense matrices. */
  readonly scales?: Tensor;
  readonly biases?: Tensor | null;
  /** The format of codes; absent of dense matrices. */
  readonly format?: QuantizedFormat;
  /** Added to the products: (E, outputs). */
  readonly bias?: Tensor;
}

/** Rows and the experts that multiply them. */
export interface RoutedRows {
  /** (…, 1, inputs) */
  readonly x: Tensor;
  /** uint32, of shapes that broadcast with those of x before its last two axes. */
  readonly indices: Tensor;
  /** Whether indices ascend. */
  readonly sorted: boolean;
}

/** The linear part of a clipped unit is cut at this on both sides, its gate above. */
const CLIP = 7;
/** The slope of its sigmoid. */
const SLOPE = 1.702;

/** Gated linear units: of the gate and of the linear part. */
const UNITS: Readonly<Record<ExpertUnit, (gate: Tensor, up: Tensor) => Tensor>> = {
  silu: (gate, up) => op.multiply(silu(gate), up),
  geluTanh: (gate, up) => op.multiply(geluApprox(gate), up),
  clipped(gate, up) {
    const cut = op.minimum(gate, CLIP);
    const open = op.multiply(cut, sigmoid(op.multiply(cut, SLOPE)));
    return op.multiply(open, op.add(op.minimum(op.maximum(up, -CLIP), CLIP), 1));
  },
};

/** Each row times the matrix of its expert, with its bias, in the dtype of x: (…, 1, outputs). */
export function expertProduct({ x, indices, sorted }: RoutedRows, matrices: ExpertMatrices): Tensor {
  const { weight, scales, biases = null, format, bias } = matrices;
  const options = { sortedIndices: sorted };
  const product = format
    ? gatherQmm(
      x,
      weight,
      scales!,
      biases,
      null,
      indices,
      true,
      format.groupSize,
      format.bits,
      format.mode,
      null,
      options,
    )
    : gatherMm(x, swapaxes(weight, -1, -2), null, indices, options);
  const y = astype(product, x.dtype);
  return bias ? astype(op.add(y, expandDims(take(bias, indices, 0), -2)), x.dtype) : y;
}

/** The unit of a gate and a linear part of one shape. */
export function expertUnit(unit: ExpertUnit, gate: Tensor, up: Tensor): Tensor {
  return UNITS[unit](gate, up);
}

/**
 * Chooses k experts for each row of scores (R, E): float32 (R, 2 * k), the experts' numbers, exact in float32, and then their weights. A
 * `bias` (E,) counts for the choice alone. `scale` (E,) multiplies weights by expert.
 */
export function chooseExperts(
  scores: Tensor,
  attrs: Omit<ExpertChoice, "hasBias" | "hasScale">,
  { bias, scale }: { readonly bias?: Tensor; readonly scale?: Tensor } = {},
): Tensor {
  const inputs = [scores, bias, scale].filter((input) => input !== undefined).map(nodeOf);
  const all = { ...attrs, hasBias: bias !== undefined, hasScale: scale !== undefined };
  return choiceNode(inputs, [scores.shape[0], 2 * attrs.chosen], float32, all) as Tensor;
}

/** Whether rows of a {@link chooseExperts}' choice of `count` experts are to be sorted by expert. Otherwise the fused functions are faster. */
export function sortsExperts({ shape: [rows, both] }: Tensor, count: number): boolean {
  return sortsChoices(rows, both / 2, count);
}

/** The numbers of the chosen experts, uint32 (R, k), and their weights, float32 (R, k). */
export function splitChoice(choice: Tensor): { readonly chosen: Tensor; readonly weights: Tensor } {
  const [chosen, weights] = split(choice, 2, -1) as [Tensor, Tensor];
  return { chosen: astype(stopGradient(chosen), uint32), weights };
}

const choiceNode = defineFused("expertChoice", ({ attrs }, x, ...rest) => {
  const { chosen: k, among, factor, normalized, sumEps, hasBias, hasScale } = attrs;
  const bias = hasBias ? rest[0] : undefined;
  const scale = hasScale ? rest[hasBias ? 1 : 0] : undefined;
  const given: Tensor = astype(x, float32);
  const scores: Tensor = among === "sigmoid" ? sigmoid(given) : given;
  const biased: Tensor = bias ? op.add(scores, astype(bias, float32)) : scores;
  const chosen = best(attrs.closedGroups > 0 ? inOpenGroups(biased, attrs) : biased, k);
  const own = takeAlongAxis(among === "all" ? reduce.softmax(scores, -1) : scores, chosen, -1);
  const shared: Tensor = among === "chosen" ? reduce.softmax(own, -1) : own;
  const even: Tensor = normalized ? op.divide(shared, op.add(reduce.sum(shared, -1, true), sumEps)) : shared;
  const weights: Tensor = factor === 1 ? even : op.multiply(even, factor);
  const scaled: Tensor = scale ? op.multiply(weights, take(astype(scale, float32), chosen)) : weights;
  return concatenate([astype(chosen, float32), scaled], -1) as Tensor;
});

/** The indices of the k highest along the last axis. */
function best(of: Tensor, k: number): Tensor {
  return stopGradient(split(argpartition(negative(of), k - 1, -1), [k], -1)[0]) as Tensor;
}

/** Scores (R, E) with 0 for experts of groups that a row may not choose from: those whose two best experts have the lowest sums. */
function inOpenGroups(scores: Tensor, { groups, closedGroups }: ExpertChoice): Tensor {
  const [R, E] = scores.shape;
  const grouped = reshape(scores, [R, groups, E / groups]);
  const sums = reduce.sum(topk(grouped, 2, -1), -1);
  const worst = astype(best(negative(sums), closedGroups), float32);
  const group = reshape(arange(0, groups, 1, float32), [groups, 1]);
  const isClosed = expandDims(reduce.any(op.equal(group, expandDims(worst, -2)), -1), -1);
  return reshape(op.where(stopGradient(isClosed), 0, grouped), [R, E]) as Tensor;
}

/** The format of matrices as attributes of a node. */
export const attrsOf = ({ format }: ExpertMatrices): ExpertFormat => format ?? { mode: "dense", bits: 0, groupSize: 0 };
/** The format that attributes of a node name; undefined for dense matrices. */
export const formatOf = ({ mode, bits, groupSize }: ExpertFormat): QuantizedFormat | undefined =>
  mode === "dense" ? undefined : { mode, bits, groupSize };

/** The arrays of matrices as inputs of a node. */
export function arraysOf({ weight, scales, biases, format }: ExpertMatrices): Node[] {
  const factors = format ? [scales!, ...(format.mode === "affine" ? [biases!] : [])] : [];
  return [weight, ...factors].map((array) => nodeOf(array));
}

/** Matrices of the inputs of a node, of which `bias` was taken out. */
export function matricesOf(
  format: QuantizedFormat | undefined,
  arrays: readonly Tensor[],
  bias: Tensor | undefined,
): ExpertMatrices {
  const [weight, scales, biases = null] = arrays;
  return { weight, ...(format && { scales, biases, format }), bias };
}

/**
 * The gated linear units of the chosen experts: rows x (R, H) and {@link chooseExperts}' choice → (R, k, N) of the dtype of x. Both stacks
 * have one format, and both have biases or none has.
 */
export function expertUnits(
  x: Tensor,
  choice: Tensor,
  gate: ExpertMatrices,
  up: ExpertMatrices,
  unit: ExpertUnit,
): Tensor {
  const hasBias = gate.bias !== undefined;
  const biases = hasBias ? [nodeOf(gate.bias!), nodeOf(up.bias!)] : [];
  const inputs = [nodeOf(x), nodeOf(choice), ...arraysOf(gate), ...arraysOf(up), ...biases];
  const shape = [x.shape[0], choice.shape[1] / 2, gate.weight.shape[1]];
  return unitsNode(inputs, shape, x.dtype as Dtype, { unit, ...attrsOf(gate), hasBias }) as Tensor;
}

const unitsNode = defineFused("expertUnits", ({ attrs: { unit, hasBias, ...stored }, shape }, x, choice, ...rest) => {
  const biases = hasBias ? rest.slice(-2) : [];
  const arrays = hasBias ? rest.slice(0, -2) : rest;
  const half = arrays.length / 2;
  const { chosen: indices } = splitChoice(choice);
  const rows = { x: reshape(x, [shape[0], 1, 1, x.shape[1]]), indices, sorted: false } as RoutedRows;
  const [gate, up] = [0, 1].map((i) =>
    expertProduct(rows, matricesOf(formatOf(stored), arrays.slice(i * half, (i + 1) * half), biases[i]))
  );
  return reshape(expertUnit(unit, gate, up), [...shape]) as Tensor;
});

/** The weighted sum of the chosen experts' products with their own rows x (R, k, N): (R, H) of the dtype of x. */
export function expertSum(x: Tensor, choice: Tensor, down: ExpertMatrices): Tensor {
  const hasBias = down.bias !== undefined;
  const inputs = [nodeOf(x), nodeOf(choice), ...arraysOf(down), ...(hasBias ? [nodeOf(down.bias!)] : [])];
  const shape = [x.shape[0], down.weight.shape[1]];
  return sumNode(inputs, shape, x.dtype as Dtype, { ...attrsOf(down), hasBias }) as Tensor;
}

const sumNode = defineFused("expertSum", ({ attrs: { hasBias, ...stored }, shape, dtype }, x, choice, ...rest) => {
  const [R, k, N] = x.shape;
  const { chosen: indices, weights } = splitChoice(choice);
  const matrices = matricesOf(
    formatOf(stored),
    hasBias ? rest.slice(0, -1) : rest,
    hasBias ? rest.at(-1) : undefined,
  );
  const rows = { x: reshape(x, [R, k, 1, N]), indices, sorted: false } as RoutedRows;
  const each = reshape(expertProduct(rows, matrices), [R, k, shape[1]]);
  return astype(reduce.sum(op.multiply(each, expandDims(weights, -1)), -2), dtype) as AnyTensor as Tensor;
});
