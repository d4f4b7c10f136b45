/**
 * Blocks of quantized weights in GGUF as codes, scales and biases of `mx.dequantize`: in groups of 32, or of 16 in mode symmetric.
 *
 * Codes keep their values; only the order of their bits changes. Scales and biases are exact in float32. In float16 those of K-quants,
 * products of two numbers of the file, are rounded: by 2^-11 of their size at most.
 *
 * @module
 */

import { bitwiseOr, bitwiseXor, leftShift, multiply, rightShift } from "../ops/binary.ts";
import { stack } from "../ops/join.ts";
import { astype, contiguous, reshape } from "../ops/movement.ts";
import { negative } from "../ops/unary.ts";
import { view } from "../ops/view.ts";
import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import type { QuantizedFormat } from "../../graph/quantization.ts";
import type { AnyTensor, Tensor } from "../tensor/tensor.ts";
import {
  byte,
  field,
  fives,
  groupScales,
  half,
  nibbles,
  q3kCodes,
  q3kScales,
  q4kCodes,
  q5kCodes,
  q6kCodes,
  q6kScales,
} from "./gguf_blocks.ts";

/** Weights whose codes fill whole words; of a group too but in mode symmetric. */
export const GROUP = 32;

/** Weights as `mx.dequantize` takes them. */
export interface CodeArrays {
  /** uint32 (weights / 32, bits). */
  readonly codes: Tensor;
  /** (groups, 1), uint8 in mode mxfp4. */
  readonly scales: Tensor;
  /** (groups, 1), in mode affine. */
  readonly biases?: Tensor;
}

/** A format of codes that holds a type's weights. */
export interface GgufCodes extends QuantizedFormat {
  /** Whether scales and biases are rounded in float16. */
  readonly rounded: boolean;
  /** The arrays of blocks, uint8 (blocks, bytes), with scales and biases of a dtype. */
  readonly arrays: (blocks: AnyTensor, dtype: Dtype) => CodeArrays;
}

/** Codes as the words of `mx.quantize`, lowest bits first: those of 8 weights fill `bits` bytes. */
function packed(codes: AnyTensor, bits: number): Tensor {
  const eights = reshape(codes, [-1, GROUP / 8, 8]);
  const bytes = Array.from({ length: bits }, (_, at) => {
    const parts: AnyTensor[] = [];
    for (let i = 0; i < 8; i++) {
      const shift = i * bits - 8 * at; // of the code within the byte
      if (shift >= 8 || shift <= -bits) continue;
      const code = eights.index("...", i);
      parts.push(shift >= 0 ? leftShift(code, byte(shift)) : rightShift(code, byte(-shift)));
    }
    return parts.reduce((sum, part) => bitwiseOr(sum, part));
  });
  return view(reshape(contiguous(stack(bytes, -1)), [-1, bits * GROUP / 8]), dt.uint32);
}

/** A number for each group. */
function factors(x: AnyTensor, dtype: Dtype): Tensor {
  return reshape(astype(x, dtype), [-1, 1]);
}

/** Codes of 4 bits: 16 bytes from `at` on. */
function fourBits(blocks: AnyTensor, at: number): Tensor {
  return packed(nibbles(field(blocks, at, 16)), 4);
}

/** Codes of K-quants with the scale and the minimum of each group. */
function grouped(blocks: AnyTensor, dtype: Dtype, codes: AnyTensor, bits: number): CodeArrays {
  const [scales, minima] = groupScales(blocks);
  return { codes: packed(codes, bits), scales: factors(scales, dtype), biases: factors(negative(minima), dtype) };
}

const SYMMETRIC = { groupSize: 16, mode: "symmetric", rounded: true } as const;
const AFFINE = { groupSize: GROUP, mode: "affine", rounded: false } as const;

/** The formats by the name of their type. */
export const BLOCK_CODES = {
  Q4_0: {
    ...AFFINE,
    bits: 4,
    arrays: (blocks, dtype) => {
      const scales = factors(half(blocks, 0), dtype);
      return { codes: fourBits(blocks, 2), scales, biases: multiply(scales, -8) };
    },
  },
  Q4_1: {
    ...AFFINE,
    bits: 4,
    arrays: (blocks, dtype) => ({
      codes: fourBits(blocks, 4),
      scales: factors(half(blocks, 0), dtype),
      biases: factors(half(blocks, 2), dtype),
    }),
  },
  Q5_0: {
    ...AFFINE,
    bits: 5,
    arrays: (blocks, dtype) => {
      const scales = factors(half(blocks, 0), dtype);
      return { codes: packed(fives(blocks, 2), 5), scales, biases: multiply(scales, -16) };
    },
  },
  Q5_1: {
    ...AFFINE,
    bits: 5,
    arrays: (blocks, dtype) => ({
      codes: packed(fives(blocks, 4), 5),
      scales: factors(half(blocks, 0), dtype),
      biases: factors(half(blocks, 2), dtype),
    }),
  },
  Q8_0: {
    ...AFFINE,
    bits: 8,
    arrays: (blocks, dtype) => {
      const scales = factors(half(blocks, 0), dtype);
      // Codes of -128 to 127 become 0 to 255.
      const codes = view(contiguous(bitwiseXor(field(blocks, 2, GROUP), byte(128))), dt.uint32);
      return { codes, scales, biases: multiply(scales, -128) };
    },
  },
  Q3_K: {
    ...SYMMETRIC,
    bits: 3,
    arrays: (blocks, dtype) => ({
      codes: packed(q3kCodes(blocks), 3),
      scales: factors(q3kScales(blocks), dtype),
    }),
  },
  Q4_K: { ...AFFINE, bits: 4, rounded: true, arrays: (blocks, dtype) => grouped(blocks, dtype, q4kCodes(blocks), 4) },
  Q5_K: { ...AFFINE, bits: 5, rounded: true, arrays: (blocks, dtype) => grouped(blocks, dtype, q5kCodes(blocks), 5) },
  Q6_K: {
    ...SYMMETRIC,
    bits: 6,
    arrays: (blocks, dtype) => ({
      codes: packed(q6kCodes(blocks), 6),
      scales: factors(q6kScales(blocks), dtype),
    }),
  },
  MXFP4: {
    groupSize: GROUP,
    mode: "mxfp4",
    rounded: false,
    bits: 4,
    arrays: (blocks) => ({ codes: fourBits(blocks, 1), scales: contiguous(field(blocks, 0, 1)) }),
  },
} as const satisfies Readonly<Record<string, GgufCodes>>;
