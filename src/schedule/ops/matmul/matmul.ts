/**
 * Rules of products: which kernel takes a matrix product or attention.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import * as k from "../../../backend/kernels.ts";
import { float32 } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import { attrsOf, type Node, type OpAttrs } from "../../../graph/node.ts";
import { broadcastStrides, collapse, isContiguous, type Shape, sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import { type Pages, type Value, view } from "../../plan/value.ts";
import { type AttentionExtras, matrixAttention } from "./coopmat_attention.ts";
import { pagedAttention } from "./paged_attention.ts";
import type { Dispatch } from "../../plan/builder.ts";
import { denseOperand, emitDense, emitTerms, suitsMatrices, suitsTerms } from "./coopmat_dense.ts";
import { addSplits, isFewRows, tileSpec, type Tiling, tiling, vectorShape } from "./matmul_tiles.ts";

/** Codes of masks. */
export const MASK_MODES = { none: k.MASK_NONE, causal: k.MASK_CAUSAL, bool: k.MASK_BOOL, add: k.MASK_ADD } as const;
/** Most batch dimensions that the dense kernels walk. */
const BATCH_RANK = 3;
/** Queries that one workgroup of attention serves. */
const ATTENTION_QUERIES = 8;

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

/** Positions of a page are a multiple of those that the kernels of attention take at once. */
const PAGE_UNIT = 32;

/** The pages that keys and values are in, where one table tells those of both and a kernel reads them there. */
function sharedPages(
  backend: Backend,
  mode: keyof typeof MASK_MODES,
  [, keys, values]: readonly Value[],
): Pages | undefined {
  const { pages } = keys;
  if (!pages || !values.pages || pages.size % PAGE_UNIT !== 0) return undefined;
  if (![keys, values].every((x) => !x.blocks || readsBlocks(backend, x))) return undefined;
  if (mode !== "none" && mode !== "causal") return undefined;
  const [one, other] = [pages.table, values.pages.table];
  return one.slot === other.slot && one.offset === other.offset ? pages : undefined;
}

/** Whether the kernel of attention reads features in blocks: on GPUs, four at once. */
function readsBlocks(backend: Backend, { dtype, offset, strides, blocks }: Value): boolean {
  const isGpu = !backend.has("packed_matvec");
  const aligned = [offset, ...strides.slice(0, 3), blocks!.stride].every((n) => n % 4 === 0);
  return isGpu && aligned && blocks!.size % 4 === 0 && (dtype.kind === "float" || isCoded(dtype));
}

/** Softmax of scaled scores over keys and values, by the first kernel that takes the operands. */
export function attention(l: Lowering, node: Node, inputs: readonly Value[]): Value {
  const attrs = attrsOf(node, "attention");
  const lengths = attrs.hasLengths ? l.contiguous(inputs[inputs.length - 1]) : undefined;
  const paged = sizeOf(node.shape) > 0 ? pagedAttention(l, node, inputs, lengths) : undefined;
  return paged ?? emitAttention(l, node, attrs, inputs, { lengths, sinks: undefined });
}

/** Scaled dot-product attention of heads that have one more score each, which has no value. The last input has them. */
export function sinkAttention(l: Lowering, node: Node, inputs: readonly Value[]): Value {
  const attrs = attrsOf(node, "sinkAttention");
  const sinks = l.contiguous(inputs[inputs.length - 1]);
  const lengths = attrs.hasLengths ? l.contiguous(inputs[inputs.length - 2]) : undefined;
  return emitAttention(l, node, attrs, inputs.slice(0, -1), { lengths, sinks });
}

/** Attention by the kernel that suits its sizes. */
function emitAttention(
  l: Lowering,
  node: Node,
  attrs: OpAttrs["attention"],
  inputs: readonly Value[],
  extras: AttentionExtras,
): Value {
  const { scale, mask: mode, window = 0 } = attrs;
  const { lengths, sinks } = extras;
  const onMatrices = sizeOf(node.shape) > 0 ? matrixAttention(l, node, attrs, inputs, extras) : undefined;
  if (onMatrices) return onMatrices;
  const pages = sharedPages(l.backend, mode, inputs);
  const blockOf = ({ blocks }: Value): number => pages ? blocks?.size ?? 0 : 0;
  const readable = (x: Value): Value => {
    if (x.pages && pages) return { ...x, pages: undefined, blocks: undefined };
    return l.rows(x.pages || x.blocks ? l.plain(x) : x);
  };
  const [q, kk, v] = inputs.slice(0, 3).map(readable);
  if (kk.dtype !== v.dtype) throw new Error(`attention over ${kk.dtype.name} keys and ${v.dtype.name} values`);
  const mask = mode === "bool" || mode === "add" ? inputs[3] : undefined;
  const out = l.temporary(node.shape, node.dtype);
  const [batch, heads, qLen, vDim] = node.shape;
  if (sizeOf(node.shape) === 0) return out;
  l.emit("attention", [q, kk, v, pages ? l.contiguous(pages.table) : mask, lengths, out, sinks], {
    spec: {
      HEAD_DIM: q.shape[3],
      V_DIM: vDim,
      DTYPE_Q: q.dtype.code,
      DTYPE_KV: kk.dtype.code,
      DTYPE_OUT: node.dtype.code,
      MASK_MODE: MASK_MODES[mode],
      DTYPE_MASK: (mask?.dtype ?? float32).code,
      HAS_LENGTHS: lengths === undefined ? 0 : sizeOf(lengths.shape) === 1 ? 1 : 2,
      PAGE: pages?.size ?? 0,
      K_BLOCK: blockOf(inputs[1]),
      V_BLOCK: blockOf(inputs[2]),
      WINDOW: window,
      GROUP: heads / kk.shape[1],
      HAS_SINKS: sinks ? 1 : 0,
      DTYPE_SINKS: (sinks?.dtype ?? float32).code,
    },
    push: {
      batch,
      heads,
      q_len: qLen,
      kv_len: kk.shape[2],
      scale,
      q_strides: q.strides.slice(0, 3),
      k_strides: kk.strides.slice(0, 3),
      v_strides: v.strides.slice(0, 3),
      mask_strides: mask ? broadcastStrides(mask.shape, mask.strides, [batch, heads, qLen, kk.shape[2]]) : [],
    },
    workgroups: batch * heads * Math.ceil(qLen / ATTENTION_QUERIES),
  });
  return out;
}
