/**
 * Arrays of layers that are given, such as those of a file: nothing is drawn then.
 *
 * @module
 */

import type { Tensor } from "../array/mod.ts";
import type { CodeMode } from "../graph/quantization.ts";

/** The arrays of a linear map. */
export interface LinearArrays {
  /** (outputDims, inputDims) */
  readonly weight: Tensor;
  /** (outputDims,), if there is a bias. */
  readonly bias?: Tensor;
}

/** A quantized matrix, and how it is quantized. */
export interface QuantizedArrays {
  /** Codes, several to a word: (rows, columns * bits / 32), uint32. */
  readonly weight: Tensor;
  /** (rows, columns / groupSize) */
  readonly scales: Tensor;
  /** (rows, columns / groupSize), of affine codes. */
  readonly biases?: Tensor;
  /** Columns that share a scale. */
  readonly groupSize: number;
  /** Bits of a code. */
  readonly bits: number;
  /** How codes are read; default "affine". */
  readonly mode?: CodeMode;
}
