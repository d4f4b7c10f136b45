/**
 * Rules of products with quantized weights: by the kernels for few rows, on cooperative matrices, or by tiles.
 *
 * @module
 */

import { float32, isHalf } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import type { ExpertFormat } from "../../../graph/experts.ts";
import { CODE_MODES, type QuantizedFormat } from "../../../graph/quantization.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import { type Value, view } from "../../plan/value.ts";
import { denseOperand, emitDense, suitsMatrices } from "./coopmat_dense.ts";
import { matrixProduct } from "./coopmat_matmul.ts";
import { emitExpertRows } from "./expert_rows.ts";
import { dequantized, matrixOf, type MatrixParts, MODE_CODES } from "./dequantize.ts";
import { emitTiles } from "./matmul.ts";
import { isFewRows, tileSpec, tiling, type VectorReads, vectorShape } from "./matmul_tiles.ts";
import { packedMatrix, packedProduct } from "./packed_weights.ts";
import { tuningOf } from "../../tuning/choose.ts";

/** Small floats that kernels for few rows read at once, if they share a scale. Affine codes are always read so. */
const RUN = 32;

/** Fewest rows of a product with weights (n, k) that take cooperative matrices if there are any. */
function minMatrixRows(l: Lowering, x: Value, n: number, k: number): number {
  const { minRows, minHalfRows, largeMatrix } = tuningOf(l.backend).quantizedProducts;
  if (x.dtype.bytes !== 2) return minRows;
  return n * k >= largeMatrix.minWeights ? largeMatrix.minRows : minHalfRows;
}

/** Specialization constants that say how x and a matrix lie in memory. */
function layoutSpec({ bits, groupSize, mode }: QuantizedFormat, x: Value, scales: Value): Record<string, number> {
  return {
    BITS: bits,
    GROUP: groupSize,
    MODE: MODE_CODES[mode],
    DTYPE_X: x.dtype.code,
    DTYPE_SCALES: scales.dtype.code,
  };
}

/** How kernels for few rows read a matrix. */
export function readsOf({ mode, groupSize }: Pick<ExpertFormat, "mode" | "groupSize">): VectorReads {
  if (mode === "affine") return "codes";
  return mode !== "dense" && !CODE_MODES[mode].floatScales && groupSize === RUN ? "codes" : "alongK";
}

/**
 * A product of many rows of halves as a dense one on cooperative matrices, over the matrix in their dtype. It serves weights that no Plan
 * may keep in an order of its own, and transposes, which gradients multiply by. Undefined if no kernel serves.
 */
function dequantizedProduct(
  l: Lowering,
  node: Node,
  x: Value,
  parts: MatrixParts<Value>,
  { transpose, ...format }: QuantizedFormat & { readonly transpose: boolean },
): Value | undefined {
  const n = node.shape[node.shape.length - 1];
  const k = x.shape[x.shape.length - 1];
  const m = sizeOf(node.shape) / n;
  const serves = m >= tuningOf(l.backend).quantizedProducts.minDequantizedRows && isHalf(x.dtype) &&
    parts.scales.dtype !== float32;
  const dtypes = [x.dtype, x.dtype, node.dtype];
  if (!serves || !suitsMatrices(l.backend, "product", dtypes, { batch: 1, m, n, k })) return undefined;
  const matrix = l.temporary(transpose ? [n, k] : [k, n], x.dtype);
  dequantized(l, matrix, parts, { ...format, rounds: float32 });
  const a = denseOperand(l, view(l.contiguous(x, true), [m, k], [k, 1]));
  const b = transpose ? view(matrix, [k, n], [1, k]) : matrix;
  const out = l.temporary(node.shape, node.dtype);
  emitDense(l, [a, b], out, {
    batch: 1,
    m,
    n,
    k,
    batch_shape: [1],
    a_batch_strides: [0],
    b_batch_strides: [0],
    a_strides: a.strides,
    b_strides: b.strides,
  });
  return out;
}

/** A product with quantized weights. */
export function quantizedMatmul(l: Lowering, node: Node, [x, ...inputs]: readonly Value[]): Value {
  const { transpose, ...format } = attrsOf(node, "quantizedMatmul");
  if (sizeOf(node.shape) === 0) return l.temporary(node.shape, node.dtype);
  const matrix = matrixOf(format, inputs);
  const { codes, scales, biases } = matrix;
  const n = node.shape[node.shape.length - 1];
  const wBatch = sizeOf(codes.shape.slice(0, -2));
  const lead = node.shape.slice(0, -2);
  if (biases && transpose) {
    const packed = packedMatrix([codes, scales, biases]);
    if (packed) return packedProduct(l, node, x, packed);
    const rows = sizeOf(lead) * node.shape[node.shape.length - 2];
    if (wBatch === 1 && rows >= minMatrixRows(l, x, n, x.shape[x.shape.length - 1])) {
      const product = matrixProduct(l, node, x, [codes, scales, biases]);
      if (product) return product;
    }
  }
  const dense = wBatch === 1 ? dequantizedProduct(l, node, x, matrix, { ...format, transpose }) : undefined;
  if (dense) return dense;
  const out = l.temporary(node.shape, node.dtype);
  // With one matrix all leading dimensions are rows; otherwise x is broadcast over the batch of w.
  const full = (v: Value): Value =>
    l.contiguous(wBatch === 1 ? v : l.broadcast(v, [...lead, ...v.shape.slice(-2)]), true);
  const kk = x.shape[x.shape.length - 1];
  const batch = wBatch === 1 ? 1 : sizeOf(lead);
  const m = sizeOf(node.shape) / n / batch;
  const spec = layoutSpec(format, x, scales);
  const push = { batch, m, n, k: kk, w_batch: wBatch === 1 ? 1 : batch, x_batch: batch };
  const operands = [full(x), full(codes), full(scales), biases && full(biases)];
  if (transpose && isFewRows(l.backend, m, true) && l.backend.has("quantized_matvec")) {
    const { rows, threads, columns } = vectorShape(l.backend, m, batch * n, kk, readsOf(format));
    l.emit("quantized_matvec", [...operands, out], {
      threads,
      spec: { ...spec, DTYPE_OUT: out.dtype.code, ROWS: rows, COLUMNS: columns },
      push,
      workgroups: batch * Math.ceil(n / columns),
    });
  } else {
    const cutting = tiling(l.backend, batch, m, n, kk, true);
    emitTiles(l, "quantized_matmul", cutting, operands, out, { ...spec, TRANSPOSE: transpose ? 1 : 0 }, push);
  }
  return out;
}

/** Products with quantized weights of which indices choose the matrices. */
export function gatherQuantizedMatmul(l: Lowering, node: Node, [x, ...inputs]: readonly Value[]): Value {
  const { transpose, sorted, ...format } = attrsOf(node, "gatherQuantizedMatmul");
  const out = l.temporary(node.shape, node.dtype);
  if (sizeOf(node.shape) === 0) return out;
  const { codes, scales, biases, rest } = matrixOf(format, inputs);
  const [m, n] = node.shape.slice(-2);
  const kk = x.shape[x.shape.length - 1];
  const batch = sizeOf(node.shape) / m / n;
  const [wBatch, xBatch] = [codes, x].map((v) => sizeOf(v.shape.slice(0, -2)));
  const layout = layoutSpec(format, x, scales);
  if (sorted && transpose && m === 1 && node.shape.length === 3) {
    const [left, right] = rest;
    const rows = { x, codes, scales, biases, format, left, right, experts: wBatch, n, k: kk };
    if (emitExpertRows(l, rows, out)) return out;
  }
  const dense = (v: Value): Value => l.contiguous(v, true);
  const operands = [dense(x), dense(codes), dense(scales), biases && dense(biases), out, ...rest.map(dense)];
  const spec = { ...layout, DTYPE_OUT: out.dtype.code };
  const push = { batch, m, n, k: kk, w_batch: wBatch, x_batch: xBatch };
  if (transpose && isFewRows(l.backend, m, true) && l.backend.has("gathered_quantized_matvec")) {
    const { rows, threads, columns } = vectorShape(l.backend, m, batch * n, kk, readsOf(format));
    l.emit("gathered_quantized_matvec", operands, {
      threads,
      spec: { ...spec, ROWS: rows, COLUMNS: columns },
      push,
      workgroups: batch * Math.ceil(n / columns),
    });
  } else {
    const cutting = tiling(l.backend, batch, m, n, kk, false);
    l.emit("gathered_quantized_matmul", operands, {
      threads: cutting.shape.threads,
      spec: { ...spec, ...tileSpec(cutting), TRANSPOSE: transpose ? 1 : 0 },
      push,
      workgroups: cutting.workgroups,
    });
  }
  return out;
}
