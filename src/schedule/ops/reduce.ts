/**
 * Rules of ops along axes: reductions, scans, softmax and sorting.
 *
 * @module
 */

import * as k from "../../backend/kernels.ts";
import { complex64, float32, uint32 } from "../../graph/dtype.ts";
import { attrsOf, type ReduceFn } from "../../graph/node.ts";
import { collapse, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { rowsOf, type Value, view } from "../plan/value.ts";
import type { Rule, RuleName } from "./rule.ts";

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

function reduce(l: Lowering, fn: ReduceFn, x: Value, axes: readonly number[], out: Value): void {
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
  if (cols > REDUCE_SPLIT && !index && innerWalk.shape.length === 1) {
    const parts = Math.ceil(Math.sqrt(cols));
    const each = Math.floor(cols / parts);
    const rest = cols - each * parts;
    const stride = innerWalk.strides[0][0];
    // (rows, parts + 1): every part's result, the remainder last.
    const partial = l.temporary([parts + (rest ? 1 : 0), rows], out.dtype.kind === "float" ? float32 : out.dtype);
    const shape = [parts, ...outerWalk.shape, each];
    const strides = [each * stride, ...outerWalk.strides[0], stride];
    if (shape.length <= 4) {
      reduce(l, fn, view(x, shape, strides), [shape.length - 1], view(partial, [parts, rows], [rows, 1]));
      if (rest) {
        const tail = view(
          x,
          [...outerWalk.shape, rest],
          [...outerWalk.strides[0], stride],
          x.offset + parts * each * stride,
        );
        reduce(l, fn, tail, [outerWalk.shape.length], view(partial, [rows], [1], parts * rows));
      }
      reduce(l, fn, partial, [0], out);
      return;
    }
  }
  l.emit("reduce", [x, out], {
    spec: { DTYPE_IN: x.dtype.code, DTYPE_OUT: out.dtype.code, OP: REDUCE_OPS[fn] },
    push: {
      rows,
      cols,
      outer_shape: outerWalk.shape,
      outer_strides: outerWalk.strides[0],
      inner_shape: innerWalk.shape,
      inner_strides: innerWalk.strides[0],
    },
    // A long row that is not split wants as many loads under way as a workgroup can have.
    threads: cols > REDUCE_SPLIT && l.backend.limits.threads >= WIDE_THREADS
      ? Math.min(REDUCE_THREADS, l.backend.limits.maxThreads)
      : undefined,
    workgroups: rows,
  });
}

function sortedIndices(l: Lowering, x: Value): { dense: Value; indices: Value; push: Record<string, number> } {
  const dense = l.contiguous(x);
  const { rows, cols } = rowsOf(x.shape);
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

function sortRule(wantIndices: boolean): Rule {
  return (l, node, [x]) => {
    const out = l.temporary(node.shape, node.dtype);
    const { rows, cols } = rowsOf(x.shape);
    if (rows * cols === 0) return out;
    if (l.backend.has("radix_sort") && x.dtype !== complex64) {
      // Pairs between its passes, in units of 8 bytes: none behind the one pass of bytes, two lists of 16 for wide elements.
      const pairs = Math.floor(x.dtype.bytes / 2);
      l.emit("radix_sort", [l.contiguous(x), pairs ? l.temporary([rows, cols, 2 * pairs], uint32) : undefined, out], {
        spec: { DTYPE_IN: x.dtype.code, INDICES: wantIndices ? 1 : 0 },
        push: { rows, cols },
        workgroups: rows,
      });
      return out;
    }
    const { dense, indices, push } = sortedIndices(l, x);
    l.emit("sort_finish", [wantIndices ? undefined : dense, indices, out], {
      spec: { DTYPE_OUT: node.dtype.code },
      push,
      workgroups: l.groups(rows * cols),
    });
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
    const push = rowsOf(node.shape);
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
    const push = rowsOf(node.shape);
    l.emit("scan", [dense, out], {
      spec: {
        DTYPE_IN: x.dtype.code,
        DTYPE_OUT: node.dtype.code,
        OP: REDUCE_OPS[fn],
        REVERSE: reverse ? 1 : 0,
        EXCLUSIVE: exclusive ? 1 : 0,
      },
      push,
      workgroups: push.cols ? push.rows : 0,
    });
    return out;
  },
  sort: sortRule(false),
  argsort: sortRule(true),
} as const satisfies { readonly [K in RuleName]?: Rule };
