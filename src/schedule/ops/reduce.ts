/**
 * Rules of ops along axes: reductions, scans, softmax and sorting.
 *
 * @module
 */

import * as k from "../../backend/kernels.ts";
import { float32, isWide, uint32 } from "../../graph/dtype.ts";
import { attrsOf, type ReduceFn } from "../../graph/node.ts";
import { collapse, contiguousStrides, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { matrixShape, type Value, view } from "../plan/value.ts";
import { tuningOf } from "../tuning/choose.ts";
import { zeros } from "./fill.ts";
import type { Rule, RuleName } from "./rule.ts";
import { along, argsortWide } from "./sort_wide.ts";

/** Codes of what reductions, scans and scatters do with elements. */
export const REDUCE_OPS = {
  sum: k.OP_SUM,
  prod: k.OP_PROD,
  min: k.OP_MIN,
  max: k.OP_MAX,
  all: k.OP_ALL,
  any: k.OP_ANY,
  argmin: k.OP_ARGMIN,
  argmax: k.OP_ARGMAX,
  logsumexp: k.OP_LOGSUMEXP,
  assign: k.OP_ASSIGN,
} as const;

/** Columns of one reduction after which it is cut in two stages: more workgroups, and loops stay short. */
const REDUCE_SPLIT = 1 << 16;
/** Threads of a workgroup on devices where wider ones pay. */
const WIDE_THREADS = 256;
/** Most threads of a workgroup of reduce. */
const REDUCE_THREADS = 1024;

/** Reductions of one element to itself. */
const KEEPS_ONE: ReadonlySet<ReduceFn> = new Set<ReduceFn>(["sum", "prod", "min", "max"]);

/** Dispatches a reduction of `x` over sorted axes to `out`. */
export function reduce(l: Lowering, fn: ReduceFn, x: Value, axes: readonly number[], out: Value): void {
  const outer = x.shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const pick = (list: readonly number[], which: readonly number[]): number[] => which.map((i) => list[i]);
  const outerWalk = collapse(pick(x.shape, outer), [pick(x.strides, outer)]);
  const innerWalk = collapse(pick(x.shape, axes), [pick(x.strides, axes)]);
  if (outerWalk.shape.length > 3 || innerWalk.shape.length > 2) {
    const order = [...outer, ...axes];
    const dense = l.contiguous(view(x, pick(x.shape, order), pick(x.strides, order)));
    reduce(l, fn, dense, axes.map((_, i) => outer.length + i), out);
    return;
  }
  const rows = sizeOf(pick(x.shape, outer));
  const cols = sizeOf(pick(x.shape, axes));
  const index = fn === "argmin" || fn === "argmax";
  if (cols === 1 && KEEPS_ONE.has(fn) && x.dtype === out.dtype) {
    const shape = pick(x.shape, outer);
    return l.copy(view(x, shape, pick(x.strides, outer)), view(out, shape, contiguousStrides(shape)));
  }
  const stride = innerWalk.strides[0][0];
  const single = innerWalk.shape.length === 1;
  const [columns = 1, batches = 1] = outerWalk.shape.toReversed();
  const [columnStride, batchStride = 0] = outerWalk.strides[0].toReversed();
  const beside = outerWalk.shape.length <= 2 && columns > 1 && columnStride === 1 && stride !== 1;
  if (single && beside && !index && fn !== "logsumexp" && cols > 1 && l.backend.has("reduce_columns")) {
    reduceColumns(l, fn, x, { batches, rows: cols, columns, batchStride, rowStride: stride }, out);
    return;
  }
  const splits = single && cols > REDUCE_SPLIT &&
    (!index || (l.backend.limits.sharedBytes > 0 && rows < tuningOf(l.backend).reductions.manyRows));
  if (splits) {
    const each = 4 * Math.ceil(Math.sqrt(cols) / 4); // whole quads
    const parts = Math.floor(cols / each);
    const rest = cols - each * parts;
    // (parts + 1, rows): every part's result, or a pair of words, the remainder last.
    const words = index ? 2 : 1;
    const dtype = index ? uint32 : out.dtype.kind === "float" ? float32 : out.dtype;
    const partial = l.temporary([parts + (rest ? 1 : 0), rows * words], dtype);
    const pairs = index ? k.PAIRS_WRITTEN : k.PAIRS_NONE;
    const walk = outerWalk.shape.length + 1;
    if (walk <= 3) {
      const emit = (shape: number[], strides: number[], offset: number, count: number, at: number): void =>
        emitReduce(l, fn, view(x, shape, strides, offset), view(partial, [count * words], [1], at), {
          outer: { shape: shape.slice(0, -1), strides: strides.slice(0, -1) },
          inner: { shape: shape.slice(-1), strides: strides.slice(-1) },
          pairs,
          disjoint: at > 0,
        });
      const [outerShape, outerStrides] = [outerWalk.shape, outerWalk.strides[0]];
      emit([parts, ...outerShape, each], [each * stride, ...outerStrides, stride], x.offset, parts * rows, 0);
      if (rest) {
        const from = x.offset + parts * each * stride;
        emit([...outerShape, rest], [...outerStrides, stride], from, rows, parts * rows * words);
      }
      if (!index) return reduce(l, fn, partial, [0], out);
      emitReduce(l, fn, partial, out, {
        outer: { shape: [rows], strides: [1] },
        inner: { shape: [partial.shape[0]], strides: [rows] },
        pairs: k.PAIRS_READ,
        part: each,
      });
      return;
    }
  }
  emitReduce(l, fn, x, out, {
    outer: { shape: outerWalk.shape, strides: outerWalk.strides[0] },
    inner: { shape: innerWalk.shape, strides: innerWalk.strides[0] },
  });
}

/** How a reduction walks: rows, and the elements of each. */
interface ReduceWalk {
  readonly outer: { readonly shape: readonly number[]; readonly strides: readonly number[] };
  readonly inner: { readonly shape: readonly number[]; readonly strides: readonly number[] };
  readonly pairs?: number;
  readonly part?: number;
  readonly disjoint?: boolean;
}

/** A list of `count` numbers that ends with those given. */
function leading(list: readonly number[], count: number, fill: number): number[] {
  return [...new Array<number>(count - list.length).fill(fill), ...list];
}

/** One dispatch of reduce. */
function emitReduce(l: Lowering, fn: ReduceFn, x: Value, out: Value, walk: ReduceWalk): void {
  const { outer, inner, pairs = k.PAIRS_NONE, part = 0, disjoint } = walk;
  const [rows, cols] = [sizeOf(outer.shape), sizeOf(inner.shape)];
  const { threads, maxThreads } = l.backend.limits;
  // A long row that is not split wants as many loads under way as a workgroup can have, a short one leaves threads without work.
  const most = cols > REDUCE_SPLIT && threads >= WIDE_THREADS ? Math.min(REDUCE_THREADS, maxThreads) : threads;
  l.emit("reduce", [x, out], {
    spec: { DTYPE_IN: x.dtype.code, DTYPE_OUT: out.dtype.code, OP: REDUCE_OPS[fn], PAIRS: pairs },
    push: {
      rows,
      cols,
      outer_shape: leading(outer.shape, 3, 1),
      outer_strides: leading(outer.strides, 3, 0),
      inner_shape: leading(inner.shape, 2, 1),
      inner_strides: leading(inner.strides, 2, 0),
      part,
    },
    threads: threadsFor(Math.ceil(cols / 4), most),
    workgroups: rows,
    disjoint,
  });
}

/** Threads of a workgroup, a power of two unless `most` is none: as many as there is work for, at least a subgroup of 32. */
function threadsFor(work: number, most: number): number {
  let threads = 32;
  while (threads < work && threads < most) threads *= 2;
  return Math.min(threads, most);
}

/** Threads beside each other in a reduction of columns, of four columns each. */
const COLUMN_LANES = 32;
/** Rows that each thread of one has at least if there are several parts. */
const COLUMN_ROWS = 8;

interface Columns {
  readonly batches: number;
  readonly rows: number;
  readonly columns: number;
  readonly batchStride: number;
  readonly rowStride: number;
}

/** A reduction along an axis before `columns` neighbours, in two dispatches if those are too few for a large device. */
function reduceColumns(l: Lowering, fn: ReduceFn, x: Value, c: Columns, out: Value): void {
  const lanes = Math.min(COLUMN_LANES, 2 ** Math.ceil(Math.log2(Math.ceil(c.columns / 4))));
  const threads = threadsFor(lanes * Math.ceil(c.rows / 4), l.backend.limits.threads);
  const workgroups = c.batches * Math.ceil(c.columns / (4 * lanes));
  const { targetWorkgroups } = tuningOf(l.backend).reductions;
  const most = Math.floor(c.rows / (COLUMN_ROWS * Math.max(1, threads / lanes)));
  const parts = Math.max(1, Math.min(Math.ceil(targetWorkgroups / workgroups), most));
  const dtype = out.dtype.kind === "float" ? float32 : out.dtype;
  const target = parts > 1 ? l.temporary([parts, c.batches * c.columns], dtype) : out;
  l.emit("reduce_columns", [x, target], {
    spec: { DTYPE_IN: x.dtype.code, DTYPE_OUT: target.dtype.code, OP: REDUCE_OPS[fn], LANES: lanes },
    push: {
      batches: c.batches,
      rows: c.rows,
      columns: c.columns,
      parts,
      batch_stride: c.batchStride,
      row_stride: c.rowStride,
    },
    threads,
    workgroups: workgroups * parts,
  });
  if (parts === 1) return;
  const columns = c.batches * c.columns;
  reduceColumns(l, fn, target, { batches: 1, rows: parts, columns, batchStride: 0, rowStride: columns }, out);
}

/** Polls of the tiles before one's own, after which a workgroup of a scan sums those that are missing. */
const SCAN_SPINS = 1000;
/** Elements of a tile for each thread. */
const SCAN_ITEMS = 4 * k.SCAN_QUADS;

interface ScanForm {
  readonly op: number;
  readonly reverse?: boolean;
  readonly exclusive?: boolean;
}

/** Scans contiguous rows. */
function scan(l: Lowering, form: ScanForm, x: Value, out: Value, rows: number, cols: number): void {
  const threads = threadsFor(Math.ceil(cols / SCAN_ITEMS), l.backend.limits.threads);
  const tiles = rows < tuningOf(l.backend).reductions.manyRows && l.backend.limits.sharedBytes > 0
    ? Math.ceil(cols / (SCAN_ITEMS * threads))
    : 1;
  const published = tiles > 1 ? zeros(l, [rows * tiles, 4], uint32) : undefined;
  l.emit("scan", [x, out, published], {
    spec: {
      DTYPE_IN: x.dtype.code,
      DTYPE_OUT: out.dtype.code,
      OP: form.op,
      REVERSE: form.reverse ? 1 : 0,
      EXCLUSIVE: form.exclusive ? 1 : 0,
      TILED: tiles > 1 ? 1 : 0,
      SPINS: SCAN_SPINS,
    },
    push: { rows, cols, tiles },
    threads,
    workgroups: rows * tiles,
  });
}

function sortedIndices(
  l: Lowering,
  x: Value,
): {
  dense: Value;
  indices: Value;
  push: { rows: number; cols: number; padded: number; pass_k: number; pass_j: number };
} {
  const dense = l.contiguous(x);
  const { rows, cols } = matrixShape(x.shape);
  const { threads } = l.backend.limits;
  let padded = 1;
  while (padded < cols) padded *= 2;
  const keys = l.temporary([rows, padded], uint32);
  const indices = l.temporary([rows, padded], uint32);
  const push = { rows, cols, padded, pass_k: 0, pass_j: 0 };
  l.emit("sort_init", [dense, keys, indices], {
    spec: { DTYPE_IN: x.dtype.code },
    push,
    workgroups: l.groups(rows * padded),
  });
  const span = Math.min(2 * threads, padded);
  for (const [passK, passJ] of sortPasses(padded, span)) {
    l.emit("sort_pass", [keys, indices], {
      spec: {},
      push: { ...push, pass_k: passK, pass_j: passJ },
      workgroups: rows * padded / span,
    });
  }
  return { dense, indices, push };
}

/** The dispatches of a bitonic sort: one per pass that reaches past a workgroup's span, one for all passes within it. */
function sortPasses(padded: number, span: number): [number, number][] {
  if (padded === 1) return [];
  const passes: [number, number][] = [[span, span / 2]];
  for (let kk = 2 * span; kk <= padded; kk *= 2) {
    for (let j = kk / 2; j >= span; j /= 2) passes.push([kk, j]);
    passes.push([kk, span / 2]);
  }
  return passes;
}

/** Values of a digit of a radix sort. */
const DIGITS = 256;
/** Bytes that its threads share, and those beside. */
const RADIX_SHARED = { thread: 4 * (k.RADIX_ITEMS + 12), all: 4 * DIGITS } as const;

/** Sorts contiguous rows by a digit of 8 bits after the other, or gives what belongs where. */
function radixSort(l: Lowering, x: Value, rows: number, cols: number, wantIndices: boolean, out: Value): void {
  const tiles = Math.ceil(cols / (k.RADIX_ITEMS * l.backend.limits.threads));
  let keys = x;
  let indices: Value | undefined;
  for (let pass = 1; pass <= x.dtype.bytes; pass++) {
    const last = pass === x.dtype.bytes;
    const push = { rows, cols, tiles, shift: 8 * (pass - 1) };
    const counts = l.temporary([rows, DIGITS, tiles], uint32);
    const starts = l.temporary([rows, DIGITS, tiles], uint32);
    l.emit("radix_count", [keys, counts], { spec: { DTYPE: x.dtype.code }, push, workgroups: rows * tiles });
    scan(l, { op: k.OP_SUM, exclusive: true }, counts, starts, rows, DIGITS * tiles);
    const sorted = !last ? l.temporary(x.shape, x.dtype) : wantIndices ? undefined : out;
    const sortedIndices = !wantIndices ? undefined : last ? out : l.temporary(x.shape, uint32);
    l.emit("radix_scatter", [keys, indices, starts, sorted, sortedIndices], {
      spec: { DTYPE: x.dtype.code, INDICES: wantIndices ? 1 : 0 },
      push,
      workgroups: rows * tiles,
    });
    if (sorted) keys = sorted;
    indices = sortedIndices;
  }
}

/** Sorts contiguous rows of 32-bit elements or shorter ones, or gives what belongs where. */
function sortRows(l: Lowering, x: Value, wantIndices: boolean, out: Value): void {
  const { rows, cols } = matrixShape(x.shape);
  const { threads, sharedBytes } = l.backend.limits;
  const fits = l.backend.has("radix_scatter") && sharedBytes >= RADIX_SHARED.thread * threads + RADIX_SHARED.all;
  if (fits && cols > 2 * threads && x.dtype.bytes <= 4) {
    return radixSort(l, l.contiguous(x), rows, cols, wantIndices, out);
  }
  const { dense, indices, push } = sortedIndices(l, x);
  l.emit("sort_finish", [wantIndices ? undefined : dense, indices, out], {
    spec: { DTYPE_OUT: out.dtype.code },
    push,
    workgroups: l.groups(rows * cols),
  });
}

/** Indices that sort contiguous rows of 32-bit elements or shorter ones, equal ones in their order. */
export function argsort(l: Lowering, x: Value): Value {
  const out = l.temporary(x.shape, uint32);
  sortRows(l, x, true, out);
  return out;
}

function sortRule(wantIndices: boolean): Rule {
  return (l, node, [x]) => {
    const { rows, cols } = matrixShape(x.shape);
    if (rows * cols === 0) return l.temporary(node.shape, node.dtype);
    if (isWide(x.dtype) && l.backend.has("sort_words")) {
      const dense = l.contiguous(x);
      const order = { ...argsortWide(l, dense, (keys) => argsort(l, keys)), shape: node.shape, strides: dense.strides };
      return wantIndices ? order : along(l, dense, order);
    }
    const out = l.temporary(node.shape, node.dtype);
    if (l.backend.has("radix_sort")) {
      // Pairs between its passes, in units of 8 bytes: none after the one pass of bytes, two lists of 16 for wide elements.
      const pairs = Math.floor(x.dtype.bytes / 2);
      l.emit("radix_sort", [l.contiguous(x), pairs ? l.temporary([rows, cols, 2 * pairs], uint32) : undefined, out], {
        spec: { DTYPE_IN: x.dtype.code, INDICES: wantIndices ? 1 : 0 },
        push: { rows, cols },
        workgroups: rows,
      });
      return out;
    }
    sortRows(l, x, wantIndices, out);
    return out;
  };
}

/** Rules of this file. */
export const ALONG_AXES = {
  reduce(l, node, [x]) {
    const { fn, axes } = attrsOf(node, "reduce");
    const out = l.temporary(node.shape, node.dtype);
    if (sizeOf(node.shape) > 0) reduce(l, fn, x, axes, out);
    return out;
  },
  softmax(l, node, [x]) {
    const dense = l.contiguous(x);
    const out = l.temporary(node.shape, node.dtype);
    const push = matrixShape(node.shape);
    l.emit("softmax", [dense, out], {
      spec: { DTYPE_IN: x.dtype.code, DTYPE_OUT: node.dtype.code },
      push,
      workgroups: push.cols ? push.rows : 0,
    });
    return out;
  },
  scan(l, node, [x]) {
    const { fn, reverse, exclusive } = attrsOf(node, "scan");
    const dense = l.contiguous(x);
    const out = l.temporary(node.shape, node.dtype);
    const { rows, cols } = matrixShape(node.shape);
    if (rows * cols > 0) scan(l, { op: REDUCE_OPS[fn], reverse, exclusive }, dense, out, rows, cols);
    return out;
  },
  sort: sortRule(false),
  argsort: sortRule(true),
} as const satisfies { readonly [K in RuleName]?: Rule };
