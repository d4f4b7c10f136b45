/**
 * The Walsh-Hadamard transform: products with small matrices of 1 and -1.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { multiply } from "../ops/binary.ts";
import { dataNode, type TensorLike, toNode, toNumber } from "../tensor/convert.ts";
import { astype, reshape } from "../ops/movement.ts";
import { matmul } from "./products.ts";
import type { Floating } from "../tensor/results.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";

/** Hadamard matrices whose sizes are no powers of two, N. J. A. Sloane's: a number a row, the first column highest, 1 for +1. */
const ROWS: Readonly<Record<number, readonly number[]>> = {
  12: [0xbff, 0x2aa, 0xec3, 0x896, 0xfb0, 0xa25, 0xcec, 0x989, 0xc3b, 0x962, 0xf0e, 0xa58],
  20: [
    0x84336,
    0x4238b,
    0x211d5,
    0x108fa,
    0x866d,
    0x7c139,
    0xba29c,
    0xd914e,
    0xe88a7,
    0xf0653,
    0x35a0f,
    0x1ad17,
    0x8d49b,
    0xc685d,
    0x6343e,
    0x49a10,
    0xa0d08,
    0x54484,
    0x2e042,
    0x93021,
  ],
  28: [
    0x818694c,
    0x41c14a6,
    0x20e2a13,
    0x1071549,
    0x838ae4,
    0x41e532,
    0x30d299,
    0x3d019d2,
    0x1e82ca9,
    0x8e43654,
    0xc621b2a,
    0xe210d95,
    0xf00a6ca,
    0x7807325,
    0x5b3201e,
    0xac9900f,
    0x564c847,
    0xab24463,
    0xd590271,
    0x6ac8178,
    0xb4640bc,
    0x66b70c0,
    0xb35b820,
    0xd8adc10,
    0x6d54e08,
    0x37a8704,
    0x9ad4382,
    0xcd6a181,
  ],
};

/** Most bits of the index that one product takes. */
const BITS = 6;

/** The matrix of a size of {@link ROWS} or of a power of two. */
function hadamard(size: number): Tensor {
  const sign = (i: number, j: number): boolean => {
    if (size in ROWS) return (ROWS[size][i] >>> (size - 1 - j) & 1) === 1;
    let parity = 0;
    for (let both = i & j; both; both &= both - 1) parity ^= 1;
    return parity === 0;
  };
  const values = Float32Array.from({ length: size * size }, (_, at) => sign(Math.floor(at / size), at % size) ? 1 : -1);
  return wrap(dataNode(new Uint8Array(values.buffer), [size, size], float32));
}

/** The sizes of the matrices whose Kronecker product transforms n elements; throws if there are none. */
function factorsOf(n: number): number[] {
  for (const m of [1, 12, 20, 28]) {
    let bits = Math.log2(n / m);
    if (!Number.isInteger(bits) || bits < 0) continue;
    const factors = m === 1 ? [] : [m];
    for (; bits > 0; bits -= BITS) factors.push(2 ** Math.min(BITS, bits));
    return factors;
  }
  throw new ValueError(
    `hadamardTransform() expected m 2^k elements along the last axis, m in 1, 12, 20, 28: found ${n}`,
  );
}

/**
 * The product of the last axis with a Hadamard matrix, times `scale`; default 1 / sqrt(n), which makes it orthonormal. The axis has
 * m 2^k elements, m in 1, 12, 20, 28. Computed in float32; integers give float32.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.hadamardTransform([1, 2, 3, 4], 1).tolist(); // [10, -2, -4, 0]
 * ```
 */
export function hadamardTransform<A extends TensorLike>(a: A, scale: number | null = null): Floating<A> {
  const node = toNode("hadamardTransform", a);
  if (node.dtype.bytes === 8 && node.dtype.kind !== "int" && node.dtype.kind !== "uint") {
    throw new DtypeError(`hadamardTransform() does not take ${node.dtype.name}: use astype(mx.float32)`);
  }
  const by = scale === null ? null : toNumber("hadamardTransform", "scale", scale);
  if (sizeOf(node.shape) === 0) {
    throw new ShapeError(`hadamardTransform() takes no empty arrays: found ${formatShape(node.shape)}`);
  }
  const n = node.shape.at(-1);
  // A single number is itself, of whatever dtype.
  if (n === undefined) {
    return scoped(
      "hadamardTransform",
      (): AnyTensor => by === null ? wrap(node) : multiply(wrap(node), by),
    ) as Floating<A>;
  }
  const factors = factorsOf(n);
  return scoped("hadamardTransform", (): AnyTensor => {
    let x = astype(wrap(node), float32) as Tensor;
    let right = n;
    for (const size of factors) {
      right /= size;
      const blocks = sizeOf(node.shape) / (size * right);
      // (H x) of each block (size, right); where blocks are columns the rows of one product.
      x = right === 1
        ? matmul(reshape(x, [blocks, size]), hadamard(size).T)
        : matmul(hadamard(size), reshape(x, [blocks, size, right]));
    }
    const scaled = multiply(reshape(x, node.shape), by ?? 1 / Math.sqrt(n));
    return node.dtype.kind === "float" ? astype(scaled, node.dtype) : scaled;
  }) as Floating<A>;
}
