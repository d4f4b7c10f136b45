/**
 * Quantized matrices in the layout that a device reads fastest.
 *
 * @module
 */

import { packLeaves } from "../../schedule/pack_weights.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";

/**
 * Reads or computes the codes, scales and biases of a quantized matrix (rows, columns) on the default device. They get the order in which
 * the device's products read them, if there is one. They may be used like any array afterwards, but only products and lookups of
 * rows are fast. Resolves when they are there.
 */
export function packQuantized(
  codes: Tensor,
  scales: Tensor,
  biases: Tensor,
  groupSize: number,
  bits: number,
): Promise<void> {
  return packLeaves([codes, scales, biases].map(nodeOf), { groupSize, bits });
}
