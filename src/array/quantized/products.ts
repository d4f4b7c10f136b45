/**
 * Products with quantized matrices that indices choose from a stack, and of which both factors are quantized.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype follows from a mode

import { type Dtype, float32, uint32 } from "../../graph/dtype.ts";
import { ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { CODE_MODES, type CodeMode, type QuantizedFormat } from "../../graph/quantization.ts";
import { formatShape, sameShape, sizeOf } from "../../graph/shape.ts";
import { add, multiply } from "../ops/binary.ts";
import { castNode, type TensorLike, toNode } from "../tensor/convert.ts";
import { zeros } from "../ops/creation.ts";
import { take } from "../ops/gather.ts";
import { chosenMatrices, GATHER_OPTIONS, type GatherMmOptions } from "../linalg/matrix_products.ts";
import { astype, reshapeNode, swapaxes } from "../ops/movement.ts";
import { matmul } from "../linalg/products.ts";
import {
  checkFloat,
  formatOf,
  globalNode,
  operandsOf,
  type PackedMatrix,
  packedMatrix,
  quantizedProduct,
  quantizeNodes,
  type SmallFloatMode,
} from "./quantized.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { customFunction } from "../transforms/custom.ts";
import { recording } from "../tensor/tape.ts";
import type { RankOf } from "../tensor/types.ts";

/** The largest number under a global scale of 1: the largest e2m1 number times the largest scale. */
const GLOBAL_UNIT = 6 * 448;

/** x (…, m, k) of matrices `left` times those of w at `right`. */
function gatheredProduct(
  op: string,
  left: Node,
  w: PackedMatrix,
  given: readonly (TensorLike | null | undefined)[],
  transpose: boolean,
  sorted: boolean,
): { readonly product: Node; readonly lists: readonly Node[] } {
  if (left.shape.length < 2) {
    throw new ShapeError(`${op}() expected x of at least 2 axes: found shape ${formatShape(left.shape)}`);
  }
  const { x, dtype, n } = operandsOf(op, left, w, transpose);
  const stacks = [x, w.inputs[0]].map(({ shape }) => shape.slice(0, -2));
  const { lists, lead } = chosenMatrices(op, stacks, given);
  const shape = [...lead, x.shape[x.shape.length - 2], n];
  const attrs = { ...w.format, transpose, sorted: sorted && given[1] != null };
  return { product: makeNode("gatherQuantizedMatmul", [x, ...w.inputs, ...lists], shape, dtype, attrs), lists };
}

/** A product times factors that broadcast with it, in float32 inside. */
function scaled(product: Node, factors: AnyTensor, dtype: Dtype): AnyTensor {
  const whole = multiply(wrap(castNode(product, float32)), multiply(factors, 1 / GLOBAL_UNIT));
  return wrap(castNode(toNode("multiply", whole), dtype));
}

/**
 * Products with quantized matrices that flat indices choose from the leading axes of `x` (…, m, k) and of `w`. The shapes of the indices
 * broadcast, and the result is (indices…, m, n). Matrices are multiplied as {@link quantizedMatmul} does, which also serves calls without
 * indices. Without its own indices, the matrices of an array are taken in order. In mode nvfp4 `globalScale` has a number for each matrix
 * of `w`, with which it was quantized. Nothing is gathered in memory.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const experts = mx.quantize(mx.random.normal([8, 32, 64])); // codes, scales, biases
 * mx.gatherQmm(mx.ones([3, 1, 64]), ...experts, null, [7, 0, 7]).shape; // [3, 1, 32]
 * ```
 */
export function gatherQmm<X extends TensorLike>(
  x: X,
  w: TensorLike,
  scales: TensorLike,
  biases: TensorLike | null = null,
  lhsIndices: TensorLike | null = null,
  rhsIndices: TensorLike | null = null,
  transpose: boolean = true,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: CodeMode | null = "affine",
  globalScale: TensorLike | null = null,
  options: GatherMmOptions = {},
): Tensor {
  const op = "gatherQmm";
  checkOptions(op, options, GATHER_OPTIONS);
  const format = formatOf(op, groupSize, bits, mode);
  const matrix = packedMatrix(op, w, scales, biases, format);
  const left = toNode(op, x);
  const given = [lhsIndices, rhsIndices];
  const indexed = given.some((list) => list != null);
  const { sortedIndices: sorted = false } = options;
  if (globalScale == null) {
    return wrap(
      indexed
        ? gatheredProduct(op, left, matrix, given, transpose, sorted).product
        : quantizedProduct(op, left, matrix, transpose),
    );
  }
  if (format.mode !== "nvfp4") {
    throw new ValueError(`${op}() takes globalScale in mode nvfp4 only: found mode ${format.mode}`);
  }
  if (!indexed) throw new ValueError(`${op}() takes globalScale with indices only`);
  const stack = matrix.inputs[0].shape.slice(0, -2);
  const global = toNode(op, globalScale);
  if (!sameShape(global.shape, stack)) {
    throw new ShapeError(
      `${op}() expected globalScale to have a number for each matrix, shape ${formatShape(stack)}: found ${
        formatShape(global.shape)
      }`,
    );
  }
  return scoped((): AnyTensor => {
    const wide = wrap(castNode(left, float32));
    const { product, lists: [, right] } = gatheredProduct(op, toNode(op, wide), matrix, given, transpose, sorted);
    const factors = take(wrap(reshapeNode(castNode(global, float32), [sizeOf(stack)])), wrap(right));
    const each = wrap(reshapeNode(toNode(op, factors), [...right.shape, 1, 1]));
    return scaled(product, each, left.dtype);
  });
}

/** Both factors of a product of quantized matrices. */
interface QuantizedFactors {
  /** x, rounded to what its codes stand for, in float32. */
  readonly x: Node;
  readonly w: PackedMatrix;
  /** The product of both global scales' part that codes of w do not hold. */
  readonly global: Node | undefined;
  readonly dtype: Dtype;
}

function quantizedFactors(
  op: string,
  x: Node,
  w: Node,
  scales: TensorLike | null,
  format: QuantizedFormat,
  globals: readonly (TensorLike | null)[],
): QuantizedFactors {
  if (CODE_MODES[format.mode].floatScales) {
    throw new ValueError(`${op}() multiplies small floats: mode ${format.mode} has none`);
  }
  checkFloat(op, "x", x.dtype);
  const [globalX, globalW] = globals.map((g, i) => globalNode(op, `globalScale${"XW"[i]}`, g, format.mode));
  if ((globalX === undefined) !== (globalW === undefined)) {
    throw new ValueError(`${op}() takes both of globalScaleX and globalScaleW, or neither`);
  }
  if (w.dtype === uint32 && scales === null) throw new ValueError(`${op}() expected scales, since w holds codes`);
  const [codes, factors] = w.dtype === uint32 ? [w, toNode(op, scales!)] : quantizeNodes(op, w, format, globalW);
  const parts = quantizeNodes(op, x, format, globalX);
  const inputs = globalX ? [...parts, globalX] : parts;
  return {
    x: makeNode("dequantize", inputs, x.shape, float32, format),
    w: packedMatrix(op, wrap(codes), wrap(factors), null, format),
    global: globalW,
    dtype: x.dtype,
  };
}

/**
 * Product x @ w.T with both factors quantized in a mode of small floats. `x` is quantized on the way; `w` is quantized before, with
 * `scales`, or on the way if it has floats. Matrices have two axes, more leading axes of x are rows. The dtype is that of x. In mode nvfp4
 * both factors may have a global scale, as {@link quantize} takes it.
 *
 * Derivatives treat rounding as the identity. Those of x are products with the rounded w, those of a w of floats products with the
 * rounded x. Codes and scales have none.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [w, scales] = mx.quantize(mx.random.normal([128, 256]), null, null, "nvfp4");
 * mx.qqmm(mx.ones([1, 256]), w, scales).shape; // [1, 128]
 * ```
 */
export function qqmm<X extends TensorLike>(
  x: X,
  w: TensorLike,
  scales: TensorLike | null = null,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: SmallFloatMode | null = "nvfp4",
  globalScaleX: TensorLike | null = null,
  globalScaleW: TensorLike | null = null,
): Tensor<any, RankOf<X>> {
  const op = "qqmm";
  const format = formatOf(op, groupSize, bits, mode ?? "nvfp4");
  const [left, right] = [toNode(op, x), toNode(op, w)];
  if (right.shape.length !== 2 || left.shape.length === 0) {
    throw new ShapeError(
      `${op}() expected matrices x and w: found shapes ${formatShape(left.shape)} and ${formatShape(right.shape)}`,
    );
  }
  const asMatrix = (x: AnyTensor): Node => {
    const node = nodeOf(x);
    return reshapeNode(node, [sizeOf(node.shape.slice(0, -1)), node.shape[node.shape.length - 1]]);
  };
  const factorsOf = (x: AnyTensor, w: AnyTensor): QuantizedFactors =>
    quantizedFactors(op, asMatrix(x), nodeOf(w), scales, format, [globalScaleX, globalScaleW]);
  const shaped = (found: AnyTensor, x: AnyTensor, last: number): AnyTensor =>
    wrap(reshapeNode(nodeOf(found), [...x.shape.slice(0, -1), last]));
  const byW = (x: AnyTensor, factors: QuantizedFactors, like: AnyTensor, transpose: boolean): AnyTensor => {
    const product = quantizedProduct(op, asMatrix(x), factors.w, transpose);
    return shaped(finished(product, factors), like, product.shape[product.shape.length - 1]);
  };
  const run = (x: AnyTensor, w: AnyTensor): AnyTensor => {
    const factors = factorsOf(x, w);
    return byW(wrap(factors.x), factors, x, true);
  };
  if (!recording()) return scoped(() => run(wrap(left), wrap(right)));
  return customFunction(run)
    .vjp(([x, w]: AnyTensor[], c: AnyTensor) => {
      const factors = factorsOf(x, w);
      const dx = byW(c, factors, x, false);
      if (w.dtype === uint32) return [dx, zeros(w.shape, uint32)];
      return [dx, astype(matmul(swapaxes(wrap(asMatrix(c)), 0, 1), wrap(factors.x)), w.dtype)];
    })
    .jvp(([x, w]: AnyTensor[], [tx, tw]: AnyTensor[]) => {
      const factors = factorsOf(x, w);
      const byX = byW(tx, factors, x, true);
      if (w.dtype === uint32) return byX;
      const byTangent = matmul(wrap(factors.x), swapaxes(tw, 0, 1));
      return add(byX, astype(shaped(byTangent as AnyTensor, x, tw.shape[0]), byX.dtype));
    })(wrap(left), wrap(right));
}

/** {@link qqmm} of matrices that indices choose from stacks, as {@link gatherQmm} does. */
export function gatherQqmm<X extends TensorLike>(
  x: X,
  w: TensorLike,
  scales: TensorLike | null = null,
  lhsIndices: TensorLike | null = null,
  rhsIndices: TensorLike | null = null,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: SmallFloatMode | null = "nvfp4",
  globalScaleX: TensorLike | null = null,
  globalScaleW: TensorLike | null = null,
  options: GatherMmOptions = {},
): Tensor {
  const op = "gatherQqmm";
  checkOptions(op, options, GATHER_OPTIONS);
  const format = formatOf(op, groupSize, bits, mode ?? "nvfp4");
  const factors = quantizedFactors(op, toNode(op, x), toNode(op, w), scales, format, [globalScaleX, globalScaleW]);
  return scoped((): AnyTensor =>
    finished(
      gatheredProduct(op, factors.x, factors.w, [lhsIndices, rhsIndices], true, options.sortedIndices ?? false).product,
      factors,
    )
  );
}

/** The result of a product: what the codes of w lack, and the dtype of x. */
function finished(product: Node, { global, dtype }: QuantizedFactors): AnyTensor {
  return global ? scaled(product, wrap(global), dtype) : wrap(castNode(product, dtype));
}
