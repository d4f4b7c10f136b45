/**
 * Quantized matrices as rules see them: their parts, the modes by the codes that kernels know, and the matrix that they stand for.
 *
 * @module
 */

import * as k from "../../../backend/kernels.ts";
import { type Dtype, uint32 } from "../../../graph/dtype.ts";
import { CODE_MODES, type CodeMode, type QuantizedFormat } from "../../../graph/quantization.ts";
import type { Lowering } from "../../plan/context.ts";
import { matrixShape, type Value } from "../../plan/value.ts";

/** MODE of kernels. */
export const MODE_CODES: Readonly<Record<CodeMode, number>> = {
  affine: k.MODE_AFFINE,
  mxfp4: k.MODE_MXFP4,
  mxfp8: k.MODE_MXFP8,
  nvfp4: k.MODE_NVFP4,
  symmetric: k.MODE_SYMMETRIC,
};

/** The parts of a matrix, which begin a list of inputs, and what follows them. */
export interface MatrixParts<T> {
  readonly codes: T;
  readonly scales: T;
  readonly biases: T | undefined;
  readonly rest: readonly T[];
}

/** Codes, scales and, if the mode has them, biases of a list. */
export function matrixOf<T>({ mode }: QuantizedFormat, [codes, scales, ...rest]: readonly T[]): MatrixParts<T> {
  const biases = CODE_MODES[mode].biases ? rest[0] : undefined;
  return { codes, scales, biases, rest: biases === undefined ? rest : rest.slice(1) };
}

/** How {@link dequantized} makes numbers. */
export interface Dequantizing extends QuantizedFormat {
  /** The dtypes to which codes times scales, and that plus biases, are rounded. */
  readonly rounds: Dtype;
  /** Rows of the table; default all. */
  readonly indices?: Value;
  /** A scale of the whole matrix of small floats. */
  readonly global?: Value;
}

/** Writes codes times scales plus biases, or small floats times scales and the global one, to contiguous `out`. */
export function dequantized(
  l: Lowering,
  out: Value,
  { codes, scales, biases }: Omit<MatrixParts<Value>, "rest">,
  { bits, groupSize, mode, rounds, indices, global }: Dequantizing,
): Value {
  const push = matrixShape(out.shape);
  const index = indices && l.contiguous(indices);
  const [words, factors, shifts, whole] = [codes, scales, biases, global].map((v) => v && l.contiguous(v));
  l.emit("dequantize", [words, factors, shifts, out, index, whole], {
    spec: {
      BITS: bits,
      GROUP: groupSize,
      DTYPE_SCALES: rounds.code,
      DTYPE_OUT: out.dtype.code,
      DTYPE_STORED: factors!.dtype.code,
      DTYPE_INDEX: (index?.dtype ?? uint32).code,
      MODE: MODE_CODES[mode],
    },
    push: { ...push, table: matrixShape(words!.shape).rows },
    workgroups: l.groups(push.rows * push.cols / 8),
  });
  return out;
}
