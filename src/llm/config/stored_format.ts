/**
 * How a matrix is quantized, by the tensors that are stored of it.
 *
 * @module
 */

import { type Dtype, uint8 } from "../../graph/dtype.ts";
import { QUANTIZATION_MODES, type QuantizationMode } from "../../graph/quantization.ts";
import type { Quantization, QuantizationConfig } from "./model.ts";

/** What is known of a tensor. */
interface Stored {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
}

/**
 * The format that the codes and scales of a matrix of so many columns have, as mlx-lm finds it: bits and group size follow from the shapes,
 * the mode from the dtype of the scales. Undefined where no mode has such a format.
 */
export function formatOfStored(columns: number, codes: Stored, scales: Stored): Quantization | undefined {
  const [words, groups] = [codes, scales].map(({ shape }) => shape.at(-1) ?? 0);
  const [bits, groupSize] = [words * 32 / columns, columns / groups];
  const modes = Object.keys(QUANTIZATION_MODES) as QuantizationMode[];
  const mode = modes.find((name) => {
    const row = QUANTIZATION_MODES[name];
    return (name === "affine") === (scales.dtype !== uint8) && row.bits.includes(bits) &&
      row.groupSizes.includes(groupSize);
  });
  return mode && { groupSize, bits, ...(mode !== "affine" && { mode }) };
}

/**
 * How a matrix is quantized: as config.json says of it by name, and else as it is stored, or as the whole model where that cannot be told.
 * Undefined where it is dense.
 */
export function quantizationOf(
  path: string,
  columns: number,
  quantization: QuantizationConfig,
  stored: (name: string) => Stored | undefined,
): Quantization | undefined {
  if (quantization.overrides.has(path)) return quantization.overrides.get(path);
  const [codes, scales] = [stored(`${path}.weight`), stored(`${path}.scales`)];
  if (scales === undefined) return undefined;
  return (codes && formatOfStored(columns, codes, scales)) ?? quantization.base;
}
