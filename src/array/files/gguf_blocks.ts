/**
 * Blocks of quantized weights in GGUF, as float32 values.
 *
 * Array ops over the bytes of the file split the blocks. So nothing is computed before it is needed, and then the device does it. The
 * order of the operations is that of the package gguf, whose values these are, bit for bit. Layouts: ggml-common.h of
 * https://github.com/ggml-org/ggml.
 *
 * @module
 */

import { add, bitwiseAnd, bitwiseOr, leftShift, multiply, rightShift, subtract } from "../ops/binary.ts";
import { array } from "../ops/creation.ts";
import { take } from "../ops/gather.ts";
import { concatenate } from "../ops/join.ts";
import { astype, contiguous, reshape } from "../ops/movement.ts";
import { view } from "../ops/view.ts";
import * as dt from "../../graph/dtype.ts";
import { Slice } from "../tensor/slice.ts";
import type { AnyTensor } from "../tensor/tensor.ts";

/** Weights of the larger blocks. */
export const LARGE = 256;

/** Bytes `at` to `at + count` of each block. */
export function field(blocks: AnyTensor, at: number, count: number): AnyTensor {
  return blocks.index("...", Slice(at, at + count));
}

/** The 16-bit float at a byte of each block. */
export function half(blocks: AnyTensor, at: number): AnyTensor {
  return view(contiguous(field(blocks, at, 2)), dt.float16);
}

/** Numbers as float32. */
export function wide(x: AnyTensor): AnyTensor {
  return astype(x, dt.float32);
}

/** Numbers as uint8. */
export function byte(value: number | number[]): AnyTensor {
  return array(value, dt.uint8);
}

function bits(x: AnyTensor, shift: AnyTensor, mask: number): AnyTensor {
  return bitwiseAnd(rightShift(x, shift), byte(mask));
}

/** Low, then high halves of bytes: (n, bytes) becomes (n, 2, bytes). */
export function nibbles(x: AnyTensor): AnyTensor {
  return bits(reshape(x, [-1, 1, x.shape[1]]), reshape(byte([0, 4]), [2, 1]), 15);
}

/** 5-bit codes: halves of bytes below their fifth bits, one word for a block. */
export function fives(blocks: AnyTensor, at: number): AnyTensor {
  const low = reshape(nibbles(field(blocks, at + 4, 16)), [-1, 32]);
  const shifts = byte(Array.from({ length: 8 }, (_, i) => i));
  const high = reshape(bits(reshape(field(blocks, at, 4), [-1, 4, 1]), shifts, 1), [-1, 32]);
  return bitwiseOr(low, leftShift(high, byte(4)));
}

/** 16-bit scale and minimum of a block of Q4_K or Q5_K, times those of its groups of 32: two of float32 (n, 8, 1). */
export function groupScales(blocks: AnyTensor): readonly [scales: AnyTensor, minima: AnyTensor] {
  const q = field(blocks, 4, 12);
  const [low, mid, high] = [0, 4, 8].map((at) => field(q, at, 4));
  const top = (x: AnyTensor): AnyTensor => leftShift(bits(x, byte(6), 3), byte(4));
  const join = (first: AnyTensor, last: AnyTensor): AnyTensor =>
    reshape(wide(concatenate([bitwiseAnd(first, byte(63)), last], -1)), [-1, 8, 1]);
  const [d, least] = [0, 2].map((at) => reshape(wide(half(blocks, at)), [-1, 1, 1]));
  return [
    multiply(d, join(low, bitwiseOr(bitwiseAnd(high, byte(15)), top(low)))),
    multiply(least, join(mid, bitwiseOr(bits(high, byte(4), 15), top(mid)))),
  ];
}

/** Codes of Q4_K: uint8 (n, 8, 32). */
export function q4kCodes(blocks: AnyTensor): AnyTensor {
  return reshape(nibbles(reshape(field(blocks, 16, 128), [-1, 32])), [-1, 8, 32]);
}

/** Codes of Q5_K: uint8 (n, 8, 32). */
export function q5kCodes(blocks: AnyTensor): AnyTensor {
  const low = reshape(nibbles(reshape(field(blocks, 48, 128), [-1, 32])), [-1, 8, 32]);
  const planes = reshape(byte(Array.from({ length: 8 }, (_, i) => i)), [8, 1]);
  const high = bits(reshape(field(blocks, 16, 32), [-1, 1, 32]), planes, 1);
  return bitwiseOr(low, leftShift(high, byte(4)));
}

/** scale * code - minimum, by groups of 32. */
function scaled(blocks: AnyTensor, codes: AnyTensor): AnyTensor {
  const [scales, minima] = groupScales(blocks);
  return reshape(subtract(multiply(scales, wide(codes)), minima), [-1, LARGE]);
}

/** The values of 4-bit codes in a table, times the scale of their block. */
function tableValues(scale: AnyTensor, bytes: AnyTensor, table: readonly number[]): AnyTensor {
  return multiply(scale, take(array([...table], dt.float32), reshape(nibbles(bytes), [-1, 32]), 0));
}

/** Steps of IQ4_NL, closer to each other around 0. */
const IQ4_NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/** Twice the values of E2M1, so that they are whole. */
const E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/**
 * Two factors whose product is half the power of two that a byte stands for, 2 ** (byte - 128). The least such products are not normal
 * numbers, for which devices may take 0; both factors are.
 */
function halfPower(bytes: AnyTensor): readonly [AnyTensor, AnyTensor] {
  const exponent = astype(bytes, dt.uint32);
  const word = (value: number): AnyTensor => array(value, dt.uint32);
  const power = (halved: AnyTensor): AnyTensor => view(leftShift(add(halved, word(63)), word(23)), dt.float32); // 2 ** (halved - 64)
  const first = rightShift(exponent, word(1));
  return [power(first), power(subtract(exponent, first))];
}

/** The values of codes of E2M1, by the power of two of their block. */
function powerValues(blocks: AnyTensor): AnyTensor {
  const [first, second] = halfPower(field(blocks, 0, 1));
  return multiply(second, tableValues(first, field(blocks, 1, 16), E2M1));
}

/** Codes of Q3_K, 4 more than their numbers: uint8 (n, 2, 4, 32). */
export function q3kCodes(blocks: AnyTensor): AnyTensor {
  const low = bits(reshape(field(blocks, 32, 64), [-1, 2, 1, 32]), reshape(byte([0, 2, 4, 6]), [4, 1]), 3);
  const planes = byte(Array.from({ length: 8 }, (_, i) => i));
  // A bit that is not set takes 4 away.
  const high = bits(reshape(field(blocks, 0, 32), [-1, 1, 32]), reshape(planes, [8, 1]), 1);
  return bitwiseOr(low, leftShift(reshape(high, [-1, 2, 4, 32]), byte(2)));
}

/** Scales of the groups of 16 of Q3_K: float32 (n, 16). */
export function q3kScales(blocks: AnyTensor): AnyTensor {
  const packed = field(blocks, 96, 12);
  const four = reshape(nibbles(field(packed, 0, 8)), [-1, 16]);
  const two = reshape(bits(reshape(field(packed, 8, 4), [-1, 1, 4]), reshape(byte([0, 2, 4, 6]), [4, 1]), 3), [-1, 16]);
  const scales = subtract(wide(bitwiseOr(four, leftShift(two, byte(4)))), 32);
  return multiply(wide(half(blocks, 108)), scales);
}

/** Codes of Q6_K, 32 more than their numbers: uint8 (n, 2, 4, 32). */
export function q6kCodes(blocks: AnyTensor): AnyTensor {
  // Of 128 weights: 64 bytes of low halves, 32 of pairs of high bits.
  const low = reshape(nibbles(reshape(field(blocks, 0, 128), [-1, 64])), [-1, 2, 4, 32]);
  const high = bits(reshape(field(blocks, 128, 64), [-1, 2, 1, 32]), reshape(byte([0, 2, 4, 6]), [4, 1]), 3);
  return bitwiseOr(low, leftShift(high, byte(4)));
}

/** Scales of the groups of 16 of Q6_K: float32 (n, 16). */
export function q6kScales(blocks: AnyTensor): AnyTensor {
  return multiply(wide(half(blocks, 208)), wide(view(contiguous(field(blocks, 192, 16)), dt.int8)));
}

/** scale * (code - middle), by groups of 16. */
function symmetric(scales: AnyTensor, codes: AnyTensor, middle: number): AnyTensor {
  const numbers = reshape(subtract(wide(codes), middle), [-1, 16, 16]);
  return reshape(multiply(reshape(scales, [-1, 16, 1]), numbers), [-1, LARGE]);
}

/** float32 (blocks, elements) of the bytes of blocks, by the name of their type. */
export const BLOCK_VALUES = {
  Q5_0: (blocks) => multiply(wide(half(blocks, 0)), subtract(wide(fives(blocks, 2)), 16)),
  Q5_1: (blocks) => add(multiply(wide(half(blocks, 0)), wide(fives(blocks, 4))), wide(half(blocks, 2))),
  Q2_K: (blocks) => {
    const scales = reshape(field(blocks, 0, 16), [-1, 16, 1]);
    const shifts = reshape(byte([0, 2, 4, 6]), [4, 1]);
    const q = reshape(bits(reshape(field(blocks, 16, 64), [-1, 2, 1, 32]), shifts, 3), [-1, 16, 16]);
    const [d, least] = [80, 82].map((at) => reshape(wide(half(blocks, at)), [-1, 1, 1]));
    const positive = multiply(multiply(d, wide(bitwiseAnd(scales, byte(15)))), wide(q));
    return reshape(subtract(positive, multiply(least, wide(bits(scales, byte(4), 15)))), [-1, LARGE]);
  },
  Q3_K: (blocks) => symmetric(q3kScales(blocks), q3kCodes(blocks), 4),
  Q4_K: (blocks) => scaled(blocks, q4kCodes(blocks)),
  Q5_K: (blocks) => scaled(blocks, q5kCodes(blocks)),
  Q6_K: (blocks) => symmetric(q6kScales(blocks), q6kCodes(blocks), 32),
  Q8_K: (blocks) => {
    const d = view(contiguous(field(blocks, 0, 4)), dt.float32);
    return multiply(d, wide(view(contiguous(field(blocks, 4, LARGE)), dt.int8)));
  },
  IQ4_NL: (blocks) => tableValues(wide(half(blocks, 0)), field(blocks, 2, 16), IQ4_NL),
  MXFP4: powerValues,
} as const satisfies Readonly<Record<string, (blocks: AnyTensor) => AnyTensor>>;
