/**
 * One lowering rule per op: how a node becomes views and dispatches.
 *
 * Grids and workgroup sizes follow the header comments of the shaders. The record is exhaustive: a new op without a rule
 * does not compile.
 *
 * @module
 */

import * as k from "../backend/kernels.ts";
import { type Dtype, float32, float32Bits, uint32 } from "../graph/dtype.ts";
import { attrsOf, type Node, type OpName, type ReduceFn } from "../graph/node.ts";
import { collapse, contiguousStrides, reshapeStrides, sameShape, type Shape, sizeOf } from "../graph/shape.ts";
import { immediateBits } from "./chain.ts";
import type { Lowering, Value } from "./lowering.ts";
import { attention, matmul, quantizedMatmul } from "./products.ts";
import { isPackedWhole, packedRows } from "./packed.ts";
import { emitSample, pushOf, samples } from "./sampling.ts";

/** Values of a node's inputs. */
export type Inputs = readonly Value[];

/** Lowers one node whose inputs have values. Most ops have one result; `quantize` has three. */
export type Rule = (lowering: Lowering, node: Node, inputs: Inputs) => Value | readonly Value[];

/** Rules of all ops that the walk in lower.ts does not treat itself (leaves, elementwise chains, parts). */
export type RuleName = Exclude<OpName, "stored" | "data" | "file" | "parameter" | "elementwise" | "part">;

const REDUCE_OPS = {
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

const OFFSET_MODES = { none: k.OFFSET_PUSH, scalar: k.OFFSET_SCALAR, batch: k.OFFSET_BATCH } as const;

/** Columns of one reduction after which it is cut in two stages: more workgroups, and loops stay short. */
const REDUCE_SPLIT = 1 << 16;
/** Indices of one scatter dispatch: each thread walks all of them. */
const SCATTER_INDICES = 32768;

function view(value: Value, shape: Shape, strides: readonly number[], offset = value.offset): Value {
  return { ...value, shape, strides, offset };
}

/** Row-major rows over the last axis. */
function rowsOf(shape: Shape): { rows: number; cols: number } {
  const cols = shape[shape.length - 1] ?? 1;
  return { rows: sizeOf(shape.slice(0, -1)), cols };
}

/** Threads for one row: a short one, such as that of a head, takes a single subgroup where those have 32 lanes. */
function rowThreads(l: Lowering, cols: number): number {
  const { threads } = l.backend.limits;
  return cols <= 4 * 32 ? Math.min(32, threads) : threads;
}

/** Outer, axis and inner sizes around an axis of a contiguous array, as gather and scatter see it. */
function around(shape: Shape, axis: number): { outer: number; axis: number; inner: number } {
  return { outer: sizeOf(shape.slice(0, axis)), axis: shape[axis], inner: sizeOf(shape.slice(axis + 1)) };
}

/** base, ready to be written to: its own storage where it may be donated, otherwise a copy. */
export function writable(l: Lowering, node: Node, base: Value, donate: boolean): Value {
  const source = l.slots[base.slot];
  if (donate && l.mayDonate(node.inputs[0], base)) {
    if (source.kind === "storage" || source.kind === "parameter") l.donated.push({ base: node.inputs[0], node });
    return base;
  }
  const out = l.temporary(base.shape, base.dtype);
  l.copy(base, out);
  return out;
}

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
    const { dense, indices, push } = sortedIndices(l, x);
    l.emit("sort_finish", [wantIndices ? undefined : dense, indices, out], {
      spec: { DTYPE_OUT: node.dtype.code },
      push,
      workgroups: l.groups(rows * cols),
    });
    return out;
  };
}

function gatherRule(along: boolean): Rule {
  return (l, node, [x, indices]) => {
    const { axis } = attrsOf(node, along ? "gatherAlong" : "gather");
    if (!along && axis === 0 && isPackedWhole(x)) {
      return packedRows(l, x, x.packing!, l.contiguous(indices), node.shape);
    }
    const dense = l.contiguous(x);
    const index = l.contiguous(indices);
    const out = l.temporary(node.shape, node.dtype);
    const push = { ...around(x.shape, axis), n: along ? indices.shape[axis] : sizeOf(indices.shape) };
    // Rows of whole words move as words.
    let bytes = x.dtype.bytes;
    if (!along && (push.inner * bytes) % 4 === 0 && (dense.offset * bytes) % 4 === 0) {
      push.inner = push.inner * bytes / 4;
      bytes = 4;
    }
    l.emit("gather", [dense, index, out], {
      spec: { ELEMENT_BYTES: bytes, DTYPE_INDEX: indices.dtype.code, ALONG: along ? 1 : 0 },
      push,
      workgroups: l.groups(push.outer * push.n * push.inner),
    });
    return out;
  };
}

function scatterRule(along: boolean): Rule {
  return (l, node, [base, indices, updates]) => {
    const { axis, fn, donate } = attrsOf(node, along ? "scatterAlong" : "scatter");
    const dense = l.contiguous(base);
    const out = dense === base ? writable(l, node, base, donate) : dense;
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
      l.emit("scatter", [piece(updates, axis), along ? piece(index, axis) : piece(view(index, [total], [1]), 0), out], {
        spec: { DTYPE: node.dtype.code, DTYPE_INDEX: indices.dtype.code, ALONG: along ? 1 : 0, OP: REDUCE_OPS[fn] },
        push: { outer, axis: size, inner, n },
        workgroups: l.groups(outer * inner),
      });
    }
    return out;
  };
}

/** x (…, n, size) seen as (…, n * size): its last dimension lies in blocks. Undefined where the shapes are others. */
function joinsBlocks(x: Value, shape: Shape): Value | undefined {
  const at = shape.length - 1;
  const [n, size] = x.shape.slice(at);
  const fits = x.shape.length === shape.length + 1 && n * size === shape[at] && size > 1 && x.strides[at + 1] === 1 &&
    sameShape(x.shape.slice(0, at), shape.slice(0, at));
  return fits
    ? { ...view(x, shape, [...x.strides.slice(0, at), 1]), blocks: { size, stride: x.strides[at] } }
    : undefined;
}

/** (B, H, T, D) strides of an array (B, …, T, D): the middle dimensions are walked as heads. */
function headsOf(l: Lowering, value: Value): Value {
  const r = value.shape.length;
  const middle = sizeOf(value.shape.slice(1, -2));
  const shape = [value.shape[0], middle, value.shape[r - 2], value.shape[r - 1]];
  const strides = reshapeStrides(value.shape, value.strides, shape);
  const v = strides ? view(value, shape, strides) : view(l.contiguous(value), shape, contiguousStrides(shape));
  return l.rows(v);
}

/** Threads of a workgroup on devices where wider ones pay. */
const WIDE_THREADS = 256;
/** Most threads of a workgroup of reduce. */
const REDUCE_THREADS = 1024;

/** All rules. */
export const RULES: { readonly [K in RuleName]: Rule } = {
  full: (l, node) => fill(l, node.shape, node.dtype, immediateBits(node.dtype, attrsOf(node, "full").value)),
  arange(l, node) {
    const { start, step } = attrsOf(node, "arange");
    const out = l.temporary(node.shape, node.dtype);
    const bits = (v: number): number => node.dtype.kind === "float" ? float32Bits(v) : v >>> 0;
    l.emit("arange", [out], {
      spec: { DTYPE_OUT: node.dtype.code },
      push: { count: sizeOf(node.shape), start: bits(start), step: bits(step) },
      workgroups: l.groups(sizeOf(node.shape)),
    });
    return out;
  },
  reshape(l, node, [x]) {
    const strides = reshapeStrides(x.shape, x.strides, node.shape);
    if (strides) return view(x, node.shape, strides);
    const joined = joinsBlocks(x, node.shape);
    if (joined) return joined;
    return view(l.contiguous(x), node.shape, contiguousStrides(node.shape));
  },
  transpose(_l, node, [x]) {
    const { axes } = attrsOf(node, "transpose");
    return view(x, node.shape, axes.map((a) => x.strides[a]));
  },
  slice(_l, node, [x]) {
    const { starts, steps } = attrsOf(node, "slice");
    const offset = sizeOf(node.shape) === 0 ? x.offset : starts.reduce((o, s, i) => o + s * x.strides[i], x.offset);
    return view(x, node.shape, x.strides.map((s, i) => s * steps[i]), offset);
  },
  broadcast: (l, node, [x]) => l.broadcast(x, node.shape),
  asStrided(l, node, [x]) {
    const { strides, offset } = attrsOf(node, "asStrided");
    const dense = l.contiguous(x);
    return view(dense, node.shape, strides, dense.offset + offset);
  },
  contiguous: (l, _node, [x]) => l.contiguous(x, true),
  concatenate(l, node, inputs) {
    const { axis } = attrsOf(node, "concatenate");
    const out = l.temporary(node.shape, node.dtype);
    let at = 0;
    let first = true;
    for (const x of inputs) {
      if (sizeOf(x.shape) > 0) {
        l.copy(x, view(out, x.shape, out.strides, out.offset + at * out.strides[axis]), { disjoint: !first });
        first = false;
      }
      at += x.shape[axis];
    }
    return out;
  },
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
    const write = (from: Value, to: Value, first: number, disjoint: boolean): void =>
      l.copy(from, to, {
        disjoint,
        dynamic: {
          side: "out",
          start: view(at, [axes.length], [1], at.offset + first),
          strides: axes.map((a) => out.strides[a]),
          limits: axes.map((a) => base.shape[a] - update.shape[a]),
        },
      });
    if (start.shape.length < 2) write(update, view(out, update.shape, out.strides), 0, false);
    else {
      const [rows, ...rest] = update.shape;
      const row = (v: Value, i: number): Value => view(v, rest, v.strides.slice(1), v.offset + i * v.strides[0]);
      for (let i = 0; i < rows; i++) write(row(update, i), row(out, i), i * axes.length, i > 0);
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
  matmul,
  quantize(l, node, [w]) {
    const { bits, groupSize } = attrsOf(node, "quantize");
    const dense = l.contiguous(w);
    const { rows, cols } = rowsOf(w.shape);
    const lead = w.shape.slice(0, -1);
    const codes = l.temporary([...lead, cols * bits / 32], uint32);
    const scales = l.temporary([...lead, cols / groupSize], w.dtype);
    const biases = l.temporary([...lead, cols / groupSize], w.dtype);
    l.emit("quantize", [dense, codes, scales, biases], {
      spec: { BITS: bits, GROUP: groupSize, DTYPE: w.dtype.code },
      push: { rows, cols },
      workgroups: l.groups(rows * cols / groupSize),
    });
    return [codes, scales, biases];
  },
  dequantize(l, node, [codes, scales, biases]) {
    const { bits, groupSize } = attrsOf(node, "dequantize");
    const out = l.temporary(node.shape, node.dtype);
    const push = rowsOf(node.shape);
    l.emit("dequantize", [l.contiguous(codes), l.contiguous(scales), l.contiguous(biases), out], {
      spec: { BITS: bits, GROUP: groupSize, DTYPE_SCALES: scales.dtype.code, DTYPE_OUT: node.dtype.code },
      push,
      workgroups: l.groups(push.rows * push.cols / 8),
    });
    return out;
  },
  quantizedMatmul,
  rmsNorm(l, node, [x, weight]) {
    const dense = l.contiguous(x, true);
    const out = l.temporary(node.shape, node.dtype);
    const push = { ...rowsOf(node.shape), eps: attrsOf(node, "rmsNorm").eps };
    l.emit("rms_norm", [dense, weight && l.contiguous(weight, true), out], {
      spec: {
        DTYPE_X: x.dtype.code,
        DTYPE_WEIGHT: (weight?.dtype ?? float32).code,
        DTYPE_OUT: node.dtype.code,
        HAS_WEIGHT: weight ? 1 : 0,
      },
      threads: rowThreads(l, push.cols),
      push,
      workgroups: push.cols ? push.rows : 0,
    });
    return out;
  },
  rope(l, node, inputs) {
    const attrs = attrsOf(node, "rope");
    const x = headsOf(l, inputs[0]);
    const [batch, heads, seq, dims] = x.shape;
    const offset = attrs.offsetInput === "none" ? undefined : l.contiguous(inputs[1]);
    const freqs = attrs.hasFreqs ? l.contiguous(inputs[inputs.length - 1]) : undefined;
    const out = l.temporary(node.shape, node.dtype);
    l.emit("rope", [x, offset, freqs, out], {
      spec: {
        DTYPE: x.dtype.code,
        TRADITIONAL: attrs.traditional ? 1 : 0,
        OFFSET_MODE: OFFSET_MODES[attrs.offsetInput],
        HAS_FREQS: attrs.hasFreqs ? 1 : 0,
      },
      push: {
        batch,
        heads,
        seq,
        dims,
        rope_dims: attrs.dims,
        x_strides: x.strides.slice(0, 3),
        offset: attrs.offset,
        scale: attrs.scale,
        log2_base: Math.log2(attrs.base),
      },
      workgroups: l.groups(batch * heads * seq * (dims - attrs.dims / 2)),
    });
    return out;
  },
  attention,
  sample(l, node, [logits, uniforms]) {
    const choice = attrsOf(node, "sample");
    const out = l.temporary(node.shape, node.dtype);
    const [rows, cols] = logits.shape;
    const inputs = [l.contiguous(logits), uniforms && l.contiguous(uniforms)] as const;
    if (samples(l.backend, cols)) {
      emitSample(l, choice, ...inputs, out);
      return out;
    }
    l.emit("sample", [...inputs, out], {
      spec: { DTYPE_IN: logits.dtype.code },
      push: { ...pushOf(choice, rows, cols), bests: 0, log_size: 0, recent_size: 0 },
      workgroups: rows,
    });
    return out;
  },
  randomBits(l, node, [key]) {
    const out = l.temporary(node.shape, node.dtype);
    const keys = sizeOf(key.shape) / 2;
    const words = sizeOf(node.shape) / keys;
    l.emit("random_bits", [l.contiguous(key), out], {
      spec: {},
      push: { keys, words_per_key: words },
      workgroups: l.groups(keys * Math.ceil(words / 2)),
    });
    return out;
  },
};

function fill(l: Lowering, shape: Shape, dtype: Dtype, bits: number): Value {
  const out = l.temporary(shape, dtype);
  l.emit("arange", [out], {
    spec: { DTYPE_OUT: dtype.code },
    push: { count: sizeOf(shape), start: bits, step: 0 },
    workgroups: l.groups(sizeOf(shape)),
  });
  return out;
}
