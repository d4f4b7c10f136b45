/**
 * The tensor types of GGUF, and how they become arrays.
 *
 * Array ops over the bytes of the file split blocks of quantized weights. So nothing is computed before it is needed, and then the device
 * does it. Types of one scale for 32 weights become the affine triples of `mx.quantize`. The others, whose scales are quantized too,
 * become float16, as MLX loads them. Layouts: ggml-common.h of https://github.com/ggml-org/ggml.
 *
 * @module
 */

import { add, bitwiseAnd, bitwiseOr, bitwiseXor, leftShift, multiply, rightShift, subtract } from "../ops/binary.ts";
import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import { concatenate } from "../ops/join.ts";
import { astype, contiguous, reshape } from "../ops/movement.ts";
import { view } from "../ops/view.ts";
import { Slice } from "../tensor/slice.ts";
import type { AnyTensor, Tensor } from "../tensor/tensor.ts";
import { array } from "../ops/creation.ts";

/** Weights as `mx.dequantize` takes them, in groups of 32. */
export interface AffineBlocks {
  /** uint32 (blocks, words). */
  readonly codes: Tensor;
  /** float16 (blocks, 1). */
  readonly scales: Tensor;
  /** float16 (blocks, 1). */
  readonly biases: Tensor;
}

/** A tensor type: blocks of so many elements and bytes. Exactly one of the last three says what it becomes. */
export interface GgufType {
  readonly name: string;
  /** Elements of a block. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** The bytes are elements of it. */
  readonly dtype?: Dtype;
  /** Triples of blocks, uint8 (blocks, bytes). */
  readonly affine?: (blocks: AnyTensor) => AffineBlocks;
  /** Values, float32 (blocks, elements). */
  readonly values?: (blocks: AnyTensor) => AnyTensor;
}

/** Weights of the larger blocks. */
const LARGE = 256;

/** Bytes `at` to `at + count` of each block. */
function field(blocks: AnyTensor, at: number, count: number): AnyTensor {
  return blocks.index("...", Slice(at, at + count));
}

/** The 16-bit float at a byte of each block. */
function half(blocks: AnyTensor, at: number): AnyTensor {
  return view(contiguous(field(blocks, at, 2)), dt.float16);
}

function wide(x: AnyTensor): AnyTensor {
  return astype(x, dt.float32);
}

function byte(value: number | number[]): AnyTensor {
  return array(value, dt.uint8);
}

function bits(x: AnyTensor, shift: AnyTensor, mask: number): AnyTensor {
  return bitwiseAnd(rightShift(x, shift), byte(mask));
}

/** Low, then high halves of bytes: (n, bytes) becomes (n, 2, bytes). */
function nibbles(x: AnyTensor): AnyTensor {
  return bits(reshape(x, [-1, 1, x.shape[1]]), reshape(byte([0, 4]), [2, 1]), 15);
}

/** 32 values below 16 as the words of `mx.quantize`. */
function packNibbles(x: AnyTensor): Tensor {
  const pairs = reshape(x, [-1, 16, 2]);
  const low = pairs.index("...", 0), high = pairs.index("...", 1);
  return view(contiguous(bitwiseOr(low, leftShift(high, byte(4)))), dt.uint32);
}

function affineHalves(blocks: AnyTensor, at: number, bias: (scale: AnyTensor) => AnyTensor): AffineBlocks {
  const scales = half(blocks, 0);
  const codes = packNibbles(reshape(nibbles(field(blocks, at, 16)), [-1, 32]));
  return { codes, scales, biases: astype(bias(scales), dt.float16) };
}

/** 5-bit values: halves of bytes below their fifth bits, one word for a block. */
function fives(blocks: AnyTensor, at: number): AnyTensor {
  const low = reshape(nibbles(field(blocks, at + 4, 16)), [-1, 32]);
  const shifts = byte(Array.from({ length: 8 }, (_, i) => i));
  const high = reshape(bits(reshape(field(blocks, at, 4), [-1, 4, 1]), shifts, 1), [-1, 32]);
  return wide(bitwiseOr(low, leftShift(high, byte(4))));
}

/** Scales and minima of Q4_K and Q5_K, 6 bits each: two of (n, 8, 1). */
function sixes(q: AnyTensor): readonly [AnyTensor, AnyTensor] {
  const [low, mid, high] = [0, 4, 8].map((at) => field(q, at, 4));
  const top = (x: AnyTensor): AnyTensor => leftShift(bits(x, byte(6), 3), byte(4));
  const join = (first: AnyTensor, last: AnyTensor): AnyTensor =>
    reshape(wide(concatenate([bitwiseAnd(first, byte(63)), last], -1)), [-1, 8, 1]);
  return [
    join(low, bitwiseOr(bitwiseAnd(high, byte(15)), top(low))),
    join(mid, bitwiseOr(bits(high, byte(4), 15), top(mid))),
  ];
}

/** d * scale * q - least * minimum, by groups of 32. */
function scaledSixes(blocks: AnyTensor, q: AnyTensor): AnyTensor {
  const [scales, minima] = sixes(field(blocks, 4, 12));
  const [d, least] = [0, 2].map((at) => reshape(wide(half(blocks, at)), [-1, 1, 1]));
  return reshape(subtract(multiply(multiply(d, scales), wide(q)), multiply(least, minima)), [-1, LARGE]);
}

function q2k(blocks: AnyTensor): AnyTensor {
  const scales = reshape(field(blocks, 0, 16), [-1, 16, 1]);
  const shifts = reshape(byte([0, 2, 4, 6]), [4, 1]);
  const q = reshape(bits(reshape(field(blocks, 16, 64), [-1, 2, 1, 32]), shifts, 3), [-1, 16, 16]);
  const [d, least] = [80, 82].map((at) => reshape(wide(half(blocks, at)), [-1, 1, 1]));
  const scaled = multiply(multiply(d, wide(bitwiseAnd(scales, byte(15)))), wide(q));
  return reshape(subtract(scaled, multiply(least, wide(bits(scales, byte(4), 15)))), [-1, LARGE]);
}

function q3k(blocks: AnyTensor): AnyTensor {
  const shifts = reshape(byte([0, 2, 4, 6]), [4, 1]);
  const low = bits(reshape(field(blocks, 32, 64), [-1, 2, 1, 32]), shifts, 3);
  const planes = byte(Array.from({ length: 8 }, (_, i) => i));
  // A bit that is not set takes 4 away.
  const high = reshape(bits(reshape(field(blocks, 0, 32), [-1, 1, 32]), reshape(planes, [8, 1]), 1), [-1, 2, 4, 32]);
  const q = subtract(wide(bitwiseOr(low, leftShift(high, byte(2)))), 4);
  const packed = field(blocks, 96, 12);
  const four = reshape(nibbles(field(packed, 0, 8)), [-1, 16]);
  const two = reshape(bits(reshape(field(packed, 8, 4), [-1, 1, 4]), shifts, 3), [-1, 16]);
  const scales = subtract(wide(bitwiseOr(four, leftShift(two, byte(4)))), 32);
  const d = wide(half(blocks, 108));
  return reshape(multiply(reshape(multiply(d, scales), [-1, 16, 1]), reshape(q, [-1, 16, 16])), [-1, LARGE]);
}

function q4k(blocks: AnyTensor): AnyTensor {
  return scaledSixes(blocks, reshape(nibbles(reshape(field(blocks, 16, 128), [-1, 32])), [-1, 8, 32]));
}

function q5k(blocks: AnyTensor): AnyTensor {
  const low = reshape(nibbles(reshape(field(blocks, 48, 128), [-1, 32])), [-1, 8, 32]);
  const planes = reshape(byte(Array.from({ length: 8 }, (_, i) => i)), [8, 1]);
  const high = bits(reshape(field(blocks, 16, 32), [-1, 1, 32]), planes, 1);
  return scaledSixes(blocks, bitwiseOr(low, leftShift(high, byte(4))));
}

function q6k(blocks: AnyTensor): AnyTensor {
  // Of 128 weights: 64 bytes of low halves, 32 of pairs of high bits.
  const low = reshape(nibbles(reshape(field(blocks, 0, 128), [-1, 64])), [-1, 2, 4, 32]);
  const shifts = reshape(byte([0, 2, 4, 6]), [4, 1]);
  const high = bits(reshape(field(blocks, 128, 64), [-1, 2, 1, 32]), shifts, 3);
  const q = subtract(wide(bitwiseOr(low, leftShift(high, byte(4)))), 32);
  const scales = wide(view(contiguous(field(blocks, 192, 16)), dt.int8));
  const d = wide(half(blocks, 208));
  return reshape(multiply(reshape(multiply(d, scales), [-1, 16, 1]), reshape(q, [-1, 16, 16])), [-1, LARGE]);
}

function q8k(blocks: AnyTensor): AnyTensor {
  const d = view(contiguous(field(blocks, 0, 4)), dt.float32);
  return multiply(d, wide(view(contiguous(field(blocks, 4, LARGE)), dt.int8)));
}

/** All types that are read, by code. */
export const GGUF_TYPES: ReadonlyMap<number, GgufType> = new Map<number, GgufType>([
  [0, { name: "F32", block: 1, bytes: 4, dtype: dt.float32 }],
  [1, { name: "F16", block: 1, bytes: 2, dtype: dt.float16 }],
  [2, { name: "Q4_0", block: 32, bytes: 18, affine: (x) => affineHalves(x, 2, (scale) => multiply(scale, -8)) }],
  [3, { name: "Q4_1", block: 32, bytes: 20, affine: (x) => affineHalves(x, 4, () => half(x, 2)) }],
  [6, {
    name: "Q5_0",
    block: 32,
    bytes: 22,
    values: (x) => multiply(wide(half(x, 0)), subtract(fives(x, 2), 16)),
  }],
  [7, {
    name: "Q5_1",
    block: 32,
    bytes: 24,
    values: (x) => add(multiply(wide(half(x, 0)), fives(x, 4)), wide(half(x, 2))),
  }],
  [8, {
    name: "Q8_0",
    block: 32,
    bytes: 34,
    affine: (x) => {
      const scales = half(x, 0);
      // Codes of -128 to 127 become 0 to 255.
      const codes = view(contiguous(bitwiseXor(field(x, 2, 32), byte(128))), dt.uint32);
      return { codes, scales, biases: multiply(scales, -128) };
    },
  }],
  [10, { name: "Q2_K", block: LARGE, bytes: 84, values: q2k }],
  [11, { name: "Q3_K", block: LARGE, bytes: 110, values: q3k }],
  [12, { name: "Q4_K", block: LARGE, bytes: 144, values: q4k }],
  [13, { name: "Q5_K", block: LARGE, bytes: 176, values: q5k }],
  [14, { name: "Q6_K", block: LARGE, bytes: 210, values: q6k }],
  [15, { name: "Q8_K", block: LARGE, bytes: 292, values: q8k }],
  [24, { name: "I8", block: 1, bytes: 1, dtype: dt.int8 }],
  [25, { name: "I16", block: 1, bytes: 2, dtype: dt.int16 }],
  [26, { name: "I32", block: 1, bytes: 4, dtype: dt.int32 }],
  [27, { name: "I64", block: 1, bytes: 8, dtype: dt.int64 }],
  [28, { name: "F64", block: 1, bytes: 8, dtype: dt.float64 }],
  [30, { name: "BF16", block: 1, bytes: 2, dtype: dt.bfloat16 }],
]);

/** Codes of the types that arrays are written as. */
export const GGUF_CODES: ReadonlyMap<Dtype, number> = new Map(
  [...GGUF_TYPES].flatMap(([code, { dtype }]) => dtype ? [[dtype, code] as const] : []),
);
