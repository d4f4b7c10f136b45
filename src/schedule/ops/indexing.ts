/**
 * Rules of ops that read or write at indices: gather, scatter, and parts of an array at places that only the device may know.
 *
 * @module
 */

import { isWide, uint16, uint32 } from "../../graph/dtype.ts";
import { attrsOf, type Node, type OpAttrs } from "../../graph/node.ts";
import { isContiguous, type Shape, sizeOf } from "../../graph/shape.ts";
import { COPY_RANK, type Lowering } from "../plan/context.ts";
import { type Value, view } from "../plan/value.ts";
import { isPackedWhole } from "./matmul/packed_weights.ts";
import { argsort, REDUCE_OPS } from "./reduce.ts";
import type { Rule, RuleName } from "./rule.ts";

/** Indices of one scatter dispatch: each thread walks all of them. */
const SCATTER_INDICES = 32768;
/** Indices from which on those of a scatter are sorted, where a device sorts: threads that walk all of them would take longer. */
const MIN_SORTED = 128;
/** Indices from which on a thread of gather takes four. */
const MIN_FOURS = 1 << 16;

/** Outer, axis and inner sizes around an axis of a contiguous array, as gather and scatter see it. */
function around(shape: Shape, axis: number): { outer: number; axis: number; inner: number } {
  return { outer: sizeOf(shape.slice(0, axis)), axis: shape[axis], inner: sizeOf(shape.slice(axis + 1)) };
}

/**
 * base, ready to be written to: its own storage if it may be donated, otherwise a copy. An update by the base itself, or at
 * indices that are the base, reads while it writes: that needs the copy too.
 */
export function writable(l: Lowering, node: Node, base: Value, donate: boolean): Value {
  const source = l.slots[base.slot];
  if (donate && node.inputs.lastIndexOf(node.inputs[0]) === 0 && l.mayDonate(node.inputs[0], base, node)) {
    if (source.kind === "storage" || source.kind === "parameter") l.donated.push({ base: node.inputs[0], node });
    return base;
  }
  const out = l.temporary(base.shape, base.dtype);
  l.copy(base, out);
  return out;
}

function gatherRule(along: boolean): Rule {
  return (l, node, [x, indices]) => {
    const { axis } = attrsOf(node, along ? "gatherAlong" : "gather");
    if (!along && axis === 0 && isPackedWhole(x)) {
      return l.unpack(x, x.packing!, l.contiguous(indices), node.shape);
    }
    const dense = l.contiguous(x);
    const index = l.contiguous(indices);
    const out = l.temporary(node.shape, node.dtype);
    const push = { ...around(x.shape, axis), n: along ? indices.shape[axis] : sizeOf(indices.shape) };
    // Rows of whole words move as words, or as four of them.
    let bytes = x.dtype.bytes;
    for (const wide of l.backend.limits.subgroup > 1 ? [4, 16] : [4]) {
      if (along || (push.inner * bytes) % wide !== 0 || (dense.offset * x.dtype.bytes) % wide !== 0) continue;
      push.inner = push.inner * bytes / wide;
      bytes = wide;
    }
    const single = push.outer === 1 && push.inner === 1 && bytes === 4 && indices.dtype.bytes === 4;
    const fours = single && push.n >= MIN_FOURS && index.offset % 4 === 0 && l.backend.limits.subgroup > 1;
    l.emit("gather", [dense, index, out], {
      spec: { ELEMENT_BYTES: bytes, DTYPE_INDEX: indices.dtype.code, ALONG: along ? 1 : 0, FOURS: fours ? 1 : 0 },
      push,
      workgroups: l.groups(Math.ceil(push.outer * push.n * push.inner / (fours ? 4 : 1))),
    });
    return out;
  };
}

/** Many updates of rows: those of equal indices are brought together, so that every row has a thread for each of its elements. */
function scatterSorted(
  l: Lowering,
  fn: OpAttrs["scatter"]["fn"],
  updates: Value,
  indices: Value,
  out: Value,
  push: { readonly outer: number; readonly axis: number; readonly inner: number; readonly n: number },
): void {
  const keys = l.temporary([push.n], push.axis <= 2 ** 16 ? uint16 : uint32);
  const dtypes = { DTYPE_INDEX: indices.dtype.code, DTYPE_KEY: keys.dtype.code };
  l.emit("scatter_keys", [indices, keys], { spec: dtypes, push, workgroups: l.groups(push.n) });
  l.emit("scatter_sorted", [updates, keys, argsort(l, keys), out], {
    spec: { DTYPE: out.dtype.code, DTYPE_KEY: keys.dtype.code, OP: REDUCE_OPS[fn] },
    push,
    workgroups: l.groups(push.outer * push.n * push.inner),
  });
}

function scatterRule(along: boolean): Rule {
  return (l, node, [base, indices, updates]) => {
    const { axis, fn, donate } = attrsOf(node, along ? "scatterAlong" : "scatter");
    // The kernel counts in row-major order: a base that lies otherwise is copied, which makes it so.
    const out = writable(l, node, base, donate && isContiguous(base.shape, base.strides));
    const index = l.contiguous(indices);
    const { outer, inner, axis: size } = around(node.shape, axis);
    const total = along ? indices.shape[axis] : sizeOf(indices.shape);
    for (let first = 0; first < total; first += SCATTER_INDICES) {
      const n = Math.min(SCATTER_INDICES, total - first);
      // The kernel takes the indices and updates of one piece as contiguous arrays of n along the axis.
      const piece = (v: Value, at: number): Value => {
        if (n === total) return l.contiguous(v);
        const shape = v.shape.map((d, i) => i === at ? n : d);
        return l.contiguous(view(v, shape, v.strides, v.offset + first * v.strides[at]));
      };
      const push = { outer, axis: size, inner, n };
      const places = along ? piece(index, axis) : piece(view(index, [total], [1]), 0);
      const isOneList = !along || outer * inner === 1; // else each line has indices of its own
      if (isOneList && n >= MIN_SORTED && !isWide(node.dtype) && l.backend.has("scatter_sorted")) {
        scatterSorted(l, fn, piece(updates, axis), places, out, push);
        continue;
      }
      l.emit("scatter", [piece(updates, axis), places, out], {
        spec: { DTYPE: node.dtype.code, DTYPE_INDEX: indices.dtype.code, ALONG: along ? 1 : 0, OP: REDUCE_OPS[fn] },
        push,
        workgroups: l.groups(outer * inner),
      });
    }
    return out;
  };
}

/** Rules of this file. */
export const AT_INDICES = {
  sliceUpdate(l, node, [base, update]) {
    const { starts, steps, donate } = attrsOf(node, "sliceUpdate");
    const out = writable(l, node, base, donate);
    if (sizeOf(update.shape) === 0) return out;
    const offset = starts.reduce((o, s, i) => o + s * out.strides[i], out.offset);
    l.copy(update, view(out, update.shape, out.strides.map((s, i) => s * steps[i]), offset));
    return out;
  },
  dynamicSliceUpdate(l, node, [base, update, start]) {
    const { axes, donate } = attrsOf(node, "dynamicSliceUpdate");
    const out = writable(l, node, base, donate);
    const at = l.contiguous(start);
    const write = (from: Value, to: Value, first: number, rows = 1, disjoint = false): void =>
      l.copy(from, to, {
        disjoint,
        dynamic: {
          side: "out",
          start: view(at, [rows * axes.length], [1], at.offset + first),
          strides: axes.map((a) => out.strides[a]),
          limits: axes.map((a) => base.shape[a] - update.shape[a]),
          rows,
        },
      });
    const [rows, ...rest] = start.shape.length < 2 ? [1] : update.shape;
    const target = view(out, update.shape, out.strides);
    if (rows === 1 || update.shape.length <= COPY_RANK) write(update, target, 0, rows);
    else {
      const row = (v: Value, i: number): Value => view(v, rest, v.strides.slice(1), v.offset + i * v.strides[0]);
      for (let i = 0; i < rows; i++) write(row(update, i), row(target, i), i * axes.length, 1, i > 0);
    }
    return out;
  },
  dynamicSlice(l, node, [x, start]) {
    const { axes } = attrsOf(node, "dynamicSlice");
    const out = l.temporary(node.shape, node.dtype);
    l.copy(view(x, node.shape, x.strides), out, {
      dynamic: {
        side: "in",
        start: l.contiguous(start),
        strides: axes.map((a) => x.strides[a]),
        limits: axes.map((a) => x.shape[a] - node.shape[a]),
      },
    });
    return out;
  },
  gather: gatherRule(false),
  gatherAlong: gatherRule(true),
  scatter: scatterRule(false),
  scatterAlong: scatterRule(true),
} as const satisfies { readonly [K in RuleName]?: Rule };
