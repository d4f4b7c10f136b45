/**
 * Rules of products: which kernel takes a matrix product.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import { broadcastStrides, collapse, isContiguous, type Shape, sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import { type Value, view } from "../../plan/value.ts";
import type { Dispatch } from "../../plan/builder.ts";
import { denseOperand, emitDense, emitTerms, suitsMatrices, suitsTerms } from "./coopmat_dense.ts";
import { addSplits, isFewRows, tileSpec, type Tiling, tiling, vectorShape } from "./matmul_tiles.ts";

/** Most batch dimensions that the dense kernels walk. */
const BATCH_RANK = 3;

/** Flattens the batch dimensions of a product; a batch that only a has becomes rows of one product. */
function matmulWalk(
  a: Value,
  b: Value,
  out: Shape,
): { m: number; rowStride: number; batch: ReturnType<typeof collapse> } {
  const rank = out.length;
  const lead = out.slice(0, -2);
  const strides = (v: Value): number[] =>
    broadcastStrides(v.shape, v.strides, [...lead, ...v.shape.slice(-2)]).slice(0, -2);
  const batch = collapse(lead, [strides(a), strides(b)]);
  const m = out[rank - 2];
  const rowStride = a.strides[a.strides.length - 2];
  const one = batch.shape.length === 1 && batch.strides[1][0] === 0;
  if (one && (m === 1 || batch.strides[0][0] === m * rowStride)) {
    return {
      m: m * batch.shape[0],
      rowStride: m === 1 ? batch.strides[0][0] : rowStride,
      batch: { shape: [1], strides: [[0], [0]] },
    };
  }
  return { m, rowStride, batch };
}

/** Emits a tiled product; `parts`, when its depth is split, goes to float32 results that are added up. */
export function emitTiles(
  l: Lowering,
  kernel: "matmul" | "quantized_matmul",
  cutting: Tiling,
  operands: readonly (Value | undefined)[],
  out: Value,
  spec: Readonly<Record<string, number>>,
  push: Dispatch["push"],
): void {
  const { shape: { threads }, splits, workgroups } = cutting;
  addSplits(l, splits, out, (target) =>
    l.emit(kernel, [...operands, target], {
      threads,
      spec: { ...spec, DTYPE_OUT: target.dtype.code, ...tileSpec(cutting) },
      push,
      workgroups,
    }));
}

/** The value with its last two dimensions swapped. */
function swapped(v: Value): Value {
  const swap = (
    list: readonly number[],
  ): number[] => [...list.slice(0, -2), list[list.length - 1], list[list.length - 2]];
  return view(v, swap(v.shape), swap(v.strides));
}

/** Operands of a product whose batch the dense kernels can walk, and that walk. */
function walked(
  l: Lowering,
  operands: readonly Value[],
  shape: Shape,
): ReturnType<typeof matmulWalk> & { operands: readonly Value[] } {
  const forms = [
    (v: Value): Value => v,
    (v: Value): Value => l.contiguous(v),
    (v: Value): Value => l.contiguous(l.broadcast(v, [...shape.slice(0, -2), ...v.shape.slice(-2)])),
  ];
  for (const form of forms.slice(0, -1)) {
    const [a, b] = operands.map(form);
    const walk = matmulWalk(a, b, shape);
    if (walk.batch.shape.length <= BATCH_RANK) return { ...walk, operands: [a, b] };
  }
  const [a, b] = operands.map(forms[forms.length - 1]);
  return { ...matmulWalk(a, b, shape), operands: [a, b] };
}

/** One row, or few, by matvec, more on cooperative matrices or by matmul. */
export function matmul(l: Lowering, node: Node, operands: readonly Value[]): Value {
  const out = l.temporary(node.shape, node.dtype);
  const [rows, columns] = node.shape.slice(-2);
  // A single column is the row of the swapped product, which streams the matrix.
  const column = columns === 1 && rows > 1;
  const inputs = column ? [swapped(operands[1]), swapped(operands[0])] : operands;
  const shape = column ? [...node.shape.slice(0, -2), 1, rows] : node.shape;
  if (sizeOf(shape) === 0) return out;
  let walk = walked(l, inputs, shape);
  const n = shape[shape.length - 1];
  const kk = inputs[0].shape[inputs[0].shape.length - 1];
  const few = isFewRows(l.backend, walk.m, walk.operands[1].strides.at(-2) === 1);
  const dtypes = [...inputs, out].map(({ dtype }) => dtype);
  const sizes = { batch: sizeOf(walk.batch.shape), m: walk.m, n, k: kk };
  const dense = !few && suitsMatrices(l.backend, "product", dtypes, sizes);
  const inTerms = !few && sizeOf(inputs[0].shape) === walk.m * kk && suitsTerms(l.backend, dtypes, sizes);
  if (dense || inTerms) {
    walk = walked(l, walk.operands.map((v, i) => inTerms && i === 0 ? v : denseOperand(l, v)), shape);
  }
  const { m, rowStride, batch, operands: [a, b] } = walk;
  const batches = sizeOf(batch.shape);
  const spec = { DTYPE_A: a.dtype.code, DTYPE_B: b.dtype.code };
  const push = {
    batch: batches,
    m,
    n,
    k: kk,
    batch_shape: batch.shape,
    a_batch_strides: batch.strides[0],
    b_batch_strides: batch.strides[1],
    a_strides: [rowStride, a.strides[a.strides.length - 1]],
    b_strides: [b.strides[b.strides.length - 2], b.strides[b.strides.length - 1]],
  };
  if (dense) {
    emitDense(l, [a, b], out, push);
  } else if (inTerms) {
    emitTerms(l, [inputs[0], b], out, push); // the array itself, so that its products share its terms
  } else if (few) {
    const alongK = push.b_strides[0] === 1;
    const { rows, threads, columns } = vectorShape(l.backend, m, batches * n, kk, alongK ? "alongK" : "columns");
    l.emit("matvec", [a, b, out], {
      threads,
      spec: { ...spec, DTYPE_OUT: out.dtype.code, ROWS: rows, COLUMNS: columns, ALONG_K: alongK ? 1 : 0 },
      push,
      workgroups: batches * Math.ceil(n / columns),
    });
  } else {
    const cutting = tiling(l.backend, batches, m, n, kk, out.dtype.kind === "float");
    emitTiles(l, "matmul", cutting, [a, b], out, spec, push);
  }
  return out;
}

/** Matrices of two stacks by index, or ranges of the depth of two matrices. */
export function gatherMatmul(l: Lowering, node: Node, inputs: readonly Value[]): Value {
  const { left, right, ranges } = attrsOf(node, "gatherMatmul");
  const out = l.temporary(node.shape, node.dtype);
  if (sizeOf(node.shape) === 0) return out;
  const rest = inputs.slice(2).map((v) => l.contiguous(v));
  const next = (there: boolean): Value | undefined => there ? rest.shift() : undefined;
  const lists = [next(left), next(right), next(ranges)];
  // Matrices of a stack lie one after the other, each as it is or transposed.
  const isTransposed = (v: Value): boolean => isContiguous(swapped(v).shape, swapped(v).strides);
  const stacks = inputs.slice(0, 2).map((v) =>
    v.shape.length === 2 ? l.rows(v) : isTransposed(v) ? v : l.contiguous(v)
  );
  const [m, n] = node.shape.slice(-2);
  const batch = sizeOf(node.shape) / m / n;
  const [a, b] = stacks.map((v) => ({
    count: sizeOf(v.shape.slice(0, -2)),
    size: v.shape.length === 2 ? 0 : sizeOf(v.shape.slice(-2)),
    strides: v.strides.slice(-2),
  }));
  const k = stacks[0].shape[stacks[0].shape.length - 1];
  const cutting = tiling(l.backend, batch, m, n, k, false);
  l.emit("gathered_matmul", [...stacks, out, ...lists], {
    threads: cutting.shape.threads,
    spec: {
      DTYPE_A: stacks[0].dtype.code,
      DTYPE_B: stacks[1].dtype.code,
      DTYPE_OUT: out.dtype.code,
      ...tileSpec(cutting),
      HAS_LEFT: left ? 1 : 0,
      HAS_RIGHT: right ? 1 : 0,
      HAS_RANGES: ranges ? 1 : 0,
    },
    push: {
      batch,
      m,
      n,
      k,
      batch_shape: [batch, a.count, b.count],
      a_batch_strides: [a.size],
      b_batch_strides: [b.size],
      a_strides: a.strides,
      b_strides: b.strides,
    },
    workgroups: cutting.workgroups,
  });
  return out;
}
