/**
 * Quantized matrices with one input, which are multiplied as one.
 *
 * @module
 */

import { expect, isQuantized, type Product, type QuantizedMatrix, rowCount } from "../../plan/pattern.ts";
import { productUnsupportedReason } from "../formats.ts";

/** Quantized matrices that are multiplied as one. */
export interface Joint {
  readonly matrices: readonly QuantizedMatrix[];
  readonly columns: readonly number[];
  readonly k: number;
}

/** Several products with the same x as one. */
export function joint(products: readonly Product[]): Joint {
  const matrices = products.map(({ matrix }) => matrix).filter(isQuantized);
  expect(matrices.length === products.length, "the matrices are dense");
  const [{ mode }] = matrices;
  expect(mode === undefined, `the matrices have ${mode} weights`);
  const reason = productUnsupportedReason(matrices);
  expect(reason === undefined, reason!);
  const [k, ...others] = matrices.map(({ scales, groupSize }) => scales.shape[1] * groupSize);
  expect(others.every((depth) => depth === k), "matrices with the same input have different depths");
  return {
    matrices,
    columns: matrices.map(rowCount),
    k,
  };
}
