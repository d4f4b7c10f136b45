/**
 * Products of matrices that indices choose from stacks, of segments of the depth, and of masked blocks.
 *
 * @module
 */

import { type Dtype, promote, uint32 } from "../../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { multiply, where } from "../ops/binary.ts";
import { castNode, type TensorLike, toIndexNode, toNode } from "../tensor/convert.ts";
import { repeat } from "../ops/join.ts";
import { broadcastNode, broadcastTo, reshapeNode, sliceNode } from "../ops/movement.ts";
import { matmul } from "./products.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Promoted } from "../tensor/types.ts";

/** Options of {@link gatherMm} and the like. */
export interface GatherMmOptions {
  /** A promise that the second indices ascend. Many rows are then multiplied faster, and wrong where it does not hold. Default false. */
  readonly sortedIndices?: boolean;
}

/** Their names. */
export const GATHER_OPTIONS = { sortedIndices: true } as const satisfies Record<keyof GatherMmOptions, true>;

/** The float dtype in which two matrices meet. */
function floatOf(op: string, a: Node, b: Node): Dtype {
  const dtype = promote(a.dtype, b.dtype);
  if (dtype.kind !== "float") {
    throw new DtypeError(`${op}() takes float arrays only: found ${a.dtype.name} and ${b.dtype.name}`);
  }
  return dtype;
}

/** Indices of the matrices of a stack, in order. */
function everyMatrix(lead: Shape): Node {
  const count = sizeOf(lead);
  const flat = makeNode("arange", [], [count], uint32, { start: 0, step: 1 });
  return reshapeNode(flat, lead);
}

/**
 * The indices of both factors in one shape, uint32: into the leading axes of `stacks`, or all of those in order if none are given.
 */
export function chosenMatrices(
  op: string,
  stacks: readonly Shape[],
  given: readonly (TensorLike | null | undefined)[],
): { readonly lists: readonly Node[]; readonly lead: Shape } {
  const indices = stacks.map((stack, i) => {
    const list = given[i] == null ? everyMatrix(stack) : castNode(toIndexNode(op, given[i]!), uint32);
    if (sizeOf(stack) === 0 && sizeOf(list.shape) > 0) throw new ShapeError(`${op}() cannot choose from no matrices`);
    return list;
  });
  const lead = broadcastShapes(indices[0].shape, indices[1].shape);
  if (!lead) {
    throw new ShapeError(
      `${op}() cannot broadcast indices of shapes ${indices.map((i) => formatShape(i.shape)).join(" and ")}`,
    );
  }
  return { lists: indices.map((list) => broadcastNode(list, lead)), lead };
}

/**
 * Products of matrices that flat indices choose from the leading axes of `a` (…, m, k) and of `b` (…, k, n). The shapes of the indices
 * broadcast, and the result is (indices…, m, n). Without indices the matrices of an array are taken in order. Nothing is gathered in
 * memory.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.ones([3, 1, 4]);
 * const experts = mx.ones([8, 4, 6]);
 * mx.gatherMm(x, experts, null, mx.array([7, 0, 7], mx.uint32)).shape; // [3, 1, 6]
 * ```
 */
export function gatherMm<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  lhsIndices?: TensorLike | null,
  rhsIndices?: TensorLike | null,
  options: GatherMmOptions = {},
): Tensor<Promoted<A, B>> {
  const op = "gatherMm";
  checkOptions(op, options, GATHER_OPTIONS);
  if (lhsIndices == null && rhsIndices == null) return scoped(op, (): AnyTensor => matmul(a, b));
  const [x, y] = [toNode(op, a), toNode(op, b)];
  if (x.shape.length === 0 || y.shape.length === 0) throw new ShapeError("gatherMm() takes no 0-dimensional arrays");
  const dtype = floatOf(op, x, y);
  const row = x.shape.length === 1;
  const column = y.shape.length === 1;
  const left = castNode(row ? reshapeNode(x, [1, ...x.shape]) : x, dtype);
  const right = castNode(column ? reshapeNode(y, [...y.shape, 1]) : y, dtype);
  const [m, k] = left.shape.slice(-2);
  const [depth, n] = right.shape.slice(-2);
  if (k !== depth) {
    throw new ShapeError(
      `gatherMm() cannot multiply ${formatShape(x.shape)} by ${formatShape(y.shape)}: inner sizes differ`,
    );
  }
  const stacks = [left, right].map((matrices) => matrices.shape.slice(0, -2));
  const { lists, lead } = chosenMatrices(op, stacks, [lhsIndices, rhsIndices]);
  const shape = [...lead, m, n];
  const attrs = { left: true, right: true, ranges: false };
  const product = makeNode("gatherMatmul", [left, right, ...lists], shape, dtype, attrs);
  return wrap(reshapeNode(product, [...lead, ...(row ? [] : [m]), ...(column ? [] : [n])]));
}

/**
 * Products of segments of the depth, for `a` (m, k), `b` (k, n) and whole numbers `segments` (…, 2). The result (…, m, n) holds
 * a[:, first:end] @ b[first:end] for every pair. Ends after the depth count as its end.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const segments = mx.array([[0, 16], [16, 64]], mx.uint32);
 * mx.segmentedMm(mx.ones([2, 64]), mx.ones([64, 3]), segments).shape; // [2, 2, 3]
 * ```
 */
export function segmentedMm<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  segments: TensorLike,
): Tensor<Promoted<A, B>> {
  const op = "segmentedMm";
  const [x, y] = [toNode(op, a), toNode(op, b)];
  const dtype = floatOf(op, x, y);
  const ranges = toIndexNode(op, segments);
  if (x.shape.length !== 2 || y.shape.length !== 2 || x.shape[1] !== y.shape[0]) {
    throw new ShapeError(
      `segmentedMm() expected matrices (m, k) and (k, n): found ${formatShape(x.shape)} and ${formatShape(y.shape)}`,
    );
  }
  if (ranges.shape.length === 0 || ranges.shape[ranges.shape.length - 1] !== 2) {
    throw new ShapeError(`segmentedMm() expected segments of shape (…, 2): found ${formatShape(ranges.shape)}`);
  }
  const shape = [...ranges.shape.slice(0, -1), x.shape[0], y.shape[1]];
  const attrs = { left: false, right: false, ranges: true };
  const inputs = [castNode(x, dtype), castNode(y, dtype), castNode(ranges, uint32)];
  return wrap(makeNode("gatherMatmul", inputs, shape, dtype, attrs));
}

/** Sizes of blocks that masks may have. */
const BLOCK_SIZES: readonly number[] = [32, 64];

/** x (…, rows, columns) where a mask (…, ceil(rows / size), ceil(columns / size)) is true, 0 elsewhere; masks of numbers are factors. */
function masked(name: string, x: AnyTensor, mask: TensorLike | null | undefined, size: number): AnyTensor {
  if (mask == null) return x;
  const node = toNode("blockMaskedMm", mask);
  const shape = x.shape.slice(-2);
  const lead = x.shape.slice(0, -2);
  const expected = [...lead, ...shape.map((n) => Math.ceil(n / size))];
  const common = broadcastShapes(node.shape, expected);
  if (!common || !sameShape(common, expected)) {
    throw new ShapeError(
      `blockMaskedMm() expected ${name} of shape ${formatShape(expected)}: found ${formatShape(node.shape)}`,
    );
  }
  const blocks = repeat(repeat(broadcastTo(wrap(node), expected), size, -2), size, -1) as AnyTensor;
  const rank = expected.length;
  const whole = toNode("blockMaskedMm", blocks);
  const cut = wrap(sliceNode(whole, new Array(rank).fill(0), new Array(rank).fill(1), x.shape)) as AnyTensor;
  return (node.dtype.kind === "bool"
    ? where(cut, x, 0)
    : multiply(x, wrap(castNode(toNode("blockMaskedMm", cut), x.dtype)))) as AnyTensor;
}

/**
 * Matrix product with masks for blocks of 32 or 64 rows and columns: `maskOut` for the result, `maskLhs` and `maskRhs` for the factors.
 * A mask has an element for each block, true or false or a factor.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const mask = mx.array([[true], [false]]);
 * mx.blockMaskedMm(mx.ones([64, 8]), mx.ones([8, 32]), 32, mask).shape; // [64, 32], the rows from 32 on 0
 * ```
 */
export function blockMaskedMm<A extends TensorLike, B extends TensorLike>(
  a: A,
  b: B,
  blockSize: number = 64,
  maskOut?: TensorLike | null,
  maskLhs?: TensorLike | null,
  maskRhs?: TensorLike | null,
): Tensor<Promoted<A, B>> {
  const op = "blockMaskedMm";
  const [x, y] = [toNode(op, a), toNode(op, b)];
  const meet = promote(x.dtype, y.dtype);
  const dtype = meet.kind === "complex" ? meet : floatOf(op, x, y);
  if (!BLOCK_SIZES.includes(blockSize)) {
    throw new ValueError(
      `blockMaskedMm() expected blockSize to be one of ${BLOCK_SIZES.join(", ")}: found ${quoted(blockSize)}`,
    );
  }
  if (x.shape.length === 0 || y.shape.length === 0) {
    throw new ShapeError("blockMaskedMm() takes no 0-dimensional arrays");
  }
  const row = x.shape.length === 1;
  const column = y.shape.length === 1;
  const left = castNode(row ? reshapeNode(x, [1, ...x.shape]) : x, dtype);
  const right = castNode(column ? reshapeNode(y, [...y.shape, 1]) : y, dtype);
  return scoped("blockMaskedMm", (): AnyTensor => {
    const lead = broadcastShapes(left.shape.slice(0, -2), right.shape.slice(0, -2));
    const wide = (node: Node): AnyTensor => wrap(lead ? broadcastNode(node, [...lead, ...node.shape.slice(-2)]) : node);
    const factors = [
      maskLhs == null ? wrap(left) : masked("maskLhs", wide(left), maskLhs, blockSize),
      maskRhs == null ? wrap(right) : masked("maskRhs", wide(right), maskRhs, blockSize),
    ];
    const product = masked("maskOut", matmul(factors[0], factors[1]) as AnyTensor, maskOut, blockSize);
    const shape = product.shape.slice(0, -2);
    const [m, n] = product.shape.slice(-2);
    return wrap(reshapeNode(toNode(op, product), [...shape, ...(row ? [] : [m]), ...(column ? [] : [n])]));
  });
}
