/**
 * A layer of experts over many rows, whose choices are sorted by expert: as a fused function, beside its definition in primitives.
 *
 * Shapes: R rows, one a token; E experts, k of them for a row; H features of a token, N features inside of an expert.
 *
 * @module
 */

import { type Dtype, uint16, uint32, uint8 } from "../../graph/dtype.ts";
import type { ExpertUnit } from "../../graph/experts.ts";
import * as op from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { putAlongAxis, take } from "../ops/gather.ts";
import { astype, expandDims, reshape } from "../ops/movement.ts";
import * as reduce from "../ops/reduce.ts";
import { argsort } from "../ops/sort.ts";
import { defineFused } from "../fast/fused.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";
import {
  arraysOf,
  attrsOf,
  type ExpertMatrices,
  expertProduct,
  expertUnit,
  formatOf,
  matricesOf,
  type RoutedRows,
  splitChoice,
} from "./experts.ts";

/** Products of routed rows with the matrices of a layer of experts. */
export interface ExpertProducts {
  /** Rows (…, 1, H) → (…, 1, N). */
  readonly gate: (rows: RoutedRows) => Tensor;
  /** As gate. */
  readonly up: (rows: RoutedRows) => Tensor;
  /** Rows (…, 1, N) → (…, 1, H). */
  readonly down: (rows: RoutedRows) => Tensor;
}

/** The matrices of a layer of experts, all of one format. All have biases or none has. */
export interface ExpertLayer {
  /** (E, N, H) */
  readonly gate: ExpertMatrices;
  /** (E, N, H) */
  readonly up: ExpertMatrices;
  /** (E, H, N) */
  readonly down: ExpertMatrices;
}

/** {@link expertMixture} op by op, of `count` experts: x (R, H) and a choice (R, 2 * k) → (R, H) of the dtype of x. */
export function sortedMixture(
  x: Tensor,
  choice: Tensor,
  count: number,
  { gate, up, down }: ExpertProducts,
  unit: ExpertUnit,
): Tensor {
  const [R, hidden] = x.shape;
  const { chosen, weights } = splitChoice(choice);
  const k = chosen.shape[1];
  const indices = reshape(chosen, [-1]);
  // Numbers of few digits are sorted in fewer passes.
  const order = argsort(astype(indices, count <= 256 ? uint8 : uint16));
  const rows = { indices: take(indices, order) as Tensor, sorted: true };
  const given = take(reshape(x, [R, 1, hidden]), op.floorDivide(order, k), 0) as Tensor;
  const units = expertUnit(unit, gate({ ...rows, x: given }), up({ ...rows, x: given }));
  const y = down({ ...rows, x: units });
  const places = putAlongAxis(order, order, arange(0, R * k, 1, uint32), 0); // of each row among the sorted ones
  const each = reshape(take(y, places, 0), [R, k, hidden]);
  return astype(reduce.sum(op.multiply(each, expandDims(weights, -1)), -2), x.dtype) as Tensor;
}

/**
 * The weighted sum of what the chosen experts make of rows x (R, H), from {@link chooseExperts}' choice: (R, H) of the dtype of x. It is
 * for many rows, whose choices are worth sorting.
 */
export function expertMixture(x: Tensor, choice: Tensor, { gate, up, down }: ExpertLayer, unit: ExpertUnit): Tensor {
  const layer = [gate, up, down];
  const hasBias = gate.bias !== undefined;
  const biases = hasBias ? layer.map(({ bias }) => nodeOf(bias!)) : [];
  const inputs = [nodeOf(x), nodeOf(choice), ...layer.flatMap(arraysOf), ...biases];
  return mixtureNode(inputs, x.shape, x.dtype as Dtype, { unit, ...attrsOf(gate), hasBias }) as Tensor;
}

const mixtureNode = defineFused("expertMixture", ({ attrs: { unit, hasBias, ...stored } }, x, choice, ...rest) => {
  const biases = hasBias ? rest.slice(-3) : [];
  const arrays = hasBias ? rest.slice(0, -3) : rest;
  const each = arrays.length / 3;
  const [gate, up, down] = [0, 1, 2].map((i) => {
    const matrices = matricesOf(formatOf(stored), arrays.slice(i * each, (i + 1) * each), biases[i]);
    return (rows: RoutedRows): Tensor => expertProduct(rows, matrices);
  });
  return sortedMixture(x, choice, arrays[0].shape[0], { gate, up, down }, unit);
});
