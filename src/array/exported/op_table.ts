/**
 * The ops that files of functions may hold: an entry each, with checks of its attributes and of the arrays around it.
 *
 * A file is not to be trusted. Kernels take sizes and offsets from nodes as they are, so a step whose numbers do not belong together
 * must never become one. The rows say what the functions of this library guarantee when they make a node.
 *
 * @module
 */

import { bool, complex64, type Dtype, float32, float64, int32, isWide, uint32, uint8 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import type { ExpertFormat } from "../../graph/experts.ts";
import type { Node, OpAttrs, OpName } from "../../graph/node.ts";
import {
  arraysOfMatrix,
  CODE_MODES,
  fitsRows,
  QUANTIZATION_MODES,
  type QuantizedFormat,
} from "../../graph/quantization.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { maskWords } from "../../graph/token_mask.ts";
import { ARITIES } from "../../schedule/ops/elementwise_chain.ts";
import { convShape } from "../signal/conv_shape.ts";

/** The shape and dtype of an array before there is one. */
export interface Value {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

/** How an attribute is written: a list names the texts that it may be; "?" marks one that may be missing. */
export type AttributeKind =
  | "scalar"
  | "number"
  | "integer"
  | "integer?"
  | "integers"
  | "integers?"
  | "boolean"
  | "boolean?"
  | readonly string[];

/** An array that a step reads; of the result of a step, that step; `source` is the dtype before quantization. */
export type Operand = Value & { readonly op?: OpName; readonly attrs?: OpAttrs[OpName]; readonly source?: Dtype };

/** A row. */
interface OpRow<K extends OpName> {
  /** How many inputs. */
  readonly inputs: readonly [least: number, most: number];
  readonly attrs: { readonly [A in keyof OpAttrs[K]]?: AttributeKind };
  /** Whether result, inputs and attributes belong together. */
  fits(result: Value, attrs: OpAttrs[K], inputs: readonly Operand[]): boolean;
}

const MANY = 2 ** 20;
/** Largest number of elements that a window of a convolution may go at once. */
const MAX_STEP = 2 ** 24;
/** Most inputs of a step in a message. */
const MAX_SHOWN = 4;
/** Most axes of an array. */
export const MAX_RANK = 32;

const isIndex = ({ dtype }: Value): boolean => (dtype.kind === "int" || dtype.kind === "uint") && !isWide(dtype);
const isFloat = ({ dtype }: Value): boolean => dtype.kind === "float";
const within = (axis: number, rank: number): boolean => axis >= 0 && axis < rank;
const distinct = (list: readonly number[]): boolean => new Set(list).size === list.length;
const alike = (result: Value, [x]: readonly Operand[]): boolean =>
  result.dtype === x.dtype && sameShape(result.shape, x.shape);
const rows = (result: Value, inputs: readonly Operand[]): boolean => alike(result, inputs) && result.shape.length > 0;
const apart = (a: Shape, b: Shape, axis: number): boolean =>
  a.length === b.length && a.every((d, i) => i === axis || d === b[i]);
const lead = ({ shape }: Value): Shape => shape.slice(0, -2);

/** Whether a part of some shape that lies at starts and steps is inside of an array. */
function inside(whole: Shape, part: Shape, starts: readonly number[], steps: readonly number[]): boolean {
  const rank = whole.length;
  if (part.length !== rank || starts.length !== rank || steps.length !== rank) return false;
  if (sizeOf(part) === 0) return true;
  return whole.every((d, i) => within(starts[i], d) && within(starts[i] + (part[i] - 1) * steps[i], d));
}

/** Whether an array holds a start for each axis, or for each of some rows. */
function isStart(start: Value, axes: readonly number[], result: Value, update?: Value): boolean {
  const rank = result.shape.length;
  if (start.dtype !== int32 || axes.length > 3 || !distinct(axes) || !axes.every((a) => within(a, rank))) return false;
  if (sameShape(start.shape, [axes.length])) return true;
  return update !== undefined && !axes.includes(0) && sameShape(start.shape, [result.shape[0], axes.length]) &&
    update.shape[0] === result.shape[0];
}

/** The shape that the batches of products meet in, for matrices of one depth. */
function productShape(a: Shape, b: Shape): Shape | undefined {
  const batch = broadcastShapes(a.slice(0, -2), b.slice(0, -2));
  return batch && a.at(-1) === b.at(-2) ? [...batch, a.at(-2)!, b.at(-1)!] : undefined;
}

const MODES = Object.keys(CODE_MODES);
/** Attributes of a format of quantized matrices. */
const FORMAT = { bits: "integer", groupSize: "integer", mode: MODES } as const;

const isFormat = ({ bits, groupSize, mode }: QuantizedFormat): boolean =>
  CODE_MODES[mode].bits.includes(bits) && CODE_MODES[mode].groupSizes.includes(groupSize);

/** Columns of a quantized matrix; undefined if codes, scales and, in modes with biases, those do not belong together. */
function unpacked([codes, scales, biases]: readonly Operand[], q: QuantizedFormat): number | undefined {
  if (!isFormat(q) || codes.shape.length < 2 || codes.dtype !== uint32) return undefined;
  const cols = codes.shape.at(-1)! * 32 / q.bits;
  if (!sameShape(scales.shape, [...codes.shape.slice(0, -1), cols / q.groupSize])) return undefined;
  const mode = CODE_MODES[q.mode];
  const fits = fitsRows(q, cols) && (mode.floatScales ? isFloat(scales) : scales.dtype === uint8) &&
    (mode.biases ? biases !== undefined && alike(scales, [biases]) : biases === undefined);
  return fits ? cols : undefined;
}

const EXPERT_FORMAT = { ...FORMAT, mode: [...MODES, "dense"] } as const;

/** Whether an array has the numbers and the weights of k experts for each of R rows. */
const isChoice = ({ shape, dtype }: Operand, R: number, k: number): boolean =>
  dtype === float32 && sameShape(shape, [R, 2 * k]);

/** Whether arrays are a stack of matrices (experts, rows, columns), and `biases` those of all. */
function isStack(
  stack: readonly Operand[],
  { mode, ...format }: ExpertFormat,
  biases: readonly Operand[],
  [rows, columns]: readonly [rows: number, columns: number],
): boolean {
  const [weight] = stack;
  if (weight === undefined || weight.shape.length !== 3 || weight.shape[0] === 0 || weight.shape[1] !== rows) {
    return false;
  }
  const found = mode === "dense"
    ? stack.length === 1 && isKernelFloat(weight.dtype) ? weight.shape[2] : undefined
    : unpacked(stack, { mode, ...format });
  const fits = (bias: Operand): boolean =>
    isKernelFloat(bias.dtype) && bias.dtype === biases[0].dtype && sameShape(bias.shape, weight.shape.slice(0, 2));
  return found === columns && biases.every(fits);
}

/** Whether the operands after a matrix are none or its global scale. */
const isGlobal = (rest: readonly Operand[], { mode }: QuantizedFormat): boolean =>
  rest.length === 0 ||
  (mode === "nvfp4" && rest.length === 1 && rest[0].dtype === float32 && sizeOf(rest[0].shape) === 1);

/** Numbers that a factorization gives for a matrix (m, n), with a right side of some columns. */
const RESULTS: Readonly<
  Record<OpAttrs["factorization"]["fn"], (m: number, n: number, flag: boolean, columns?: number) => number>
> = {
  lu: (m, n) => m * n + Math.min(m, n) + m,
  solve: (m, n, _, columns = n) => m === n ? m * columns : -1,
  solve_triangular: (m, n, _, columns = n) => m === n ? m * columns : -1,
  cholesky: (m, n) => m === n ? m * n : -1,
  qr: (m, n) => Math.min(m, n) * (m + n),
  eig: (m, n, flag) => m === n ? n + (flag ? 0 : n * n) : -1,
  eigh: (m, n, flag) => m === n ? n + (flag ? 0 : n * n) : -1,
  svd: (m, n, flag) => Math.min(m, n) + (flag || Math.min(m, n) === 0 ? 0 : m * m + n * n),
};

/** Whether a step of an elementwise function computes in one dtype that it knows. */
function elementwiseFits(result: Value, fn: string, inputs: readonly Operand[]): boolean {
  const shape = broadcastShapes(...inputs.map((x) => x.shape));
  if (!shape || !sameShape(shape, result.shape)) return false;
  if (ARITIES.get(fn) !== inputs.length) return false;
  if (fn === "cast") return true;
  const operands = fn === "select" ? inputs.slice(1) : inputs;
  const [{ dtype }] = operands;
  if (operands.some((x) => x.dtype !== dtype) || (fn === "select" && inputs[0].dtype !== bool)) return false;
  return result.dtype === dtype || (fn !== "select" && (result.dtype === bool || result.dtype === float32));
}

const ATTENTION = {
  scale: "number",
  mask: ["none", "causal", "bool", "add"],
  hasLengths: "boolean",
  window: "integer?",
} as const;

/** The shape that attention to `dtype` gives; undefined if its inputs, `rest` being mask and lengths, do not belong together. */
function attentionShape(
  { mask, hasLengths, window }: OpAttrs["attention"],
  dtype: Dtype,
  [q, k, v]: readonly Operand[],
  inputs: readonly Operand[],
): Shape | undefined {
  const all = [q, k, v];
  if (all.some((x) => x.shape.length !== 4 || !isKernelFloat(x.dtype)) || !isKernelFloat(dtype)) return undefined;
  const [batch, heads, queries, dim] = q.shape;
  const [, groups, keys] = k.shape;
  if (k.dtype !== v.dtype || k.shape[0] !== batch || k.shape[3] !== dim || groups === 0 || heads % groups !== 0) {
    return undefined;
  }
  if (!apart(k.shape, v.shape, 3) || Math.max(dim, v.shape[3]) > 256) return undefined;
  const masked = mask === "bool" || mask === "add";
  if (window !== undefined && (masked || window < 1)) return undefined;
  if (inputs.length !== (masked ? 1 : 0) + (hasLengths ? 1 : 0)) return undefined;
  const rest = [...inputs];
  const lengths = hasLengths ? rest.pop() : undefined;
  if (lengths && (lengths.dtype !== int32 || (sizeOf(lengths.shape) !== 1 && !sameShape(lengths.shape, [batch])))) {
    return undefined;
  }
  const [given] = rest;
  const fits = given === undefined ||
    (given.dtype === (mask === "bool" ? bool : dtype) && sameShape(given.shape, [batch, heads, queries, keys]));
  return fits ? [batch, heads, queries, v.shape[3]] : undefined;
}

/** Whether the inputs of a gradient of attention belong together. */
function isAttentionVjp(attrs: OpAttrs["attention"], [q, k, v, c, stats, ...rest]: readonly Operand[]): boolean {
  const found = attentionShape(attrs, c.dtype, [q, k, v], rest);
  return found !== undefined && sameShape(c.shape, found) && stats.dtype === float32 &&
    sameShape(stats.shape, [...q.shape.slice(0, 3), 2]);
}

const SCATTER = ["assign", "sum", "prod", "min", "max"] as const;
const NO_ATTRS = {};

/** The rows. Ops on pages have none: a file could name pages that are not there, and only an engine makes such ops. */
const ROWS: { readonly [K in OpName]?: OpRow<K> } = {
  full: {
    inputs: [0, 0],
    attrs: { value: "scalar", derived: "boolean?" },
    fits({ dtype }, { value }) {
      if (typeof value === "bigint") return dtype.bytes === 8 && (dtype.kind === "int" || dtype.kind === "uint");
      return typeof value === "number" || dtype.kind === "complex";
    },
  },
  arange: {
    inputs: [0, 0],
    attrs: { start: "scalar", step: "scalar" },
    fits({ shape, dtype }, { start, step }) {
      const whole = dtype.bytes === 8 && dtype.kind !== "float";
      const fits = (x: unknown): boolean => typeof x === "number" || (typeof x === "bigint" && whole);
      return shape.length === 1 && dtype.kind !== "complex" && fits(start) && fits(step);
    },
  },
  elementwise: {
    inputs: [1, 3],
    attrs: { fn: [...ARITIES.keys()] },
    fits: (result, { fn }, inputs) => elementwiseFits(result, fn, inputs),
  },
  stopGradient: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, inputs) => alike(result, inputs) },
  contiguous: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, inputs) => alike(result, inputs) },
  depends: { inputs: [1, MANY], attrs: NO_ATTRS, fits: (result, _, inputs) => alike(result, inputs) },
  reshape: {
    inputs: [1, 1],
    attrs: { asked: "integers?", inserted: "integers?" },
    fits: (result, { asked = [] }, [x]) =>
      result.dtype === x.dtype && sizeOf(result.shape) === sizeOf(x.shape) && asked.every((d) => d >= -1) &&
      asked.filter((d) => d === -1).length <= 1,
  },
  transpose: {
    inputs: [1, 1],
    attrs: { axes: "integers" },
    fits: (result, { axes }, [x]) =>
      result.dtype === x.dtype && axes.length === x.shape.length && distinct(axes) &&
      axes.every((axis) => within(axis, x.shape.length)) && sameShape(result.shape, axes.map((axis) => x.shape[axis])),
  },
  slice: {
    inputs: [1, 1],
    attrs: { starts: "integers", steps: "integers" },
    fits: (result, { starts, steps }, [x]) => result.dtype === x.dtype && inside(x.shape, result.shape, starts, steps),
  },
  broadcast: {
    inputs: [1, 1],
    attrs: NO_ATTRS,
    fits: (result, _, [x]) =>
      result.dtype === x.dtype && sameShape(broadcastShapes(x.shape, result.shape) ?? [-1], result.shape),
  },
  bitcast: {
    inputs: [1, 1],
    attrs: NO_ATTRS,
    fits: (result, _, [x]) =>
      apart(result.shape, x.shape, x.shape.length - 1) &&
      (result.shape.at(-1) ?? 1) * result.dtype.bytes === (x.shape.at(-1) ?? 1) * x.dtype.bytes,
  },
  asStrided: {
    inputs: [1, 1],
    attrs: { strides: "integers", offset: "integer" },
    fits({ shape, dtype }, { strides, offset }, [x]) {
      if (dtype !== x.dtype || strides.length !== shape.length) return false;
      if (sizeOf(shape) === 0) return true;
      const ends = shape.map((d, i) => (d - 1) * strides[i]);
      const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, offset);
      return sum(ends.map((end) => Math.min(0, end))) >= 0 &&
        sum(ends.map((end) => Math.max(0, end))) < sizeOf(x.shape);
    },
  },
  concatenate: {
    inputs: [1, MANY],
    attrs: { axis: "integer" },
    fits: ({ shape, dtype }, { axis }, inputs) =>
      within(axis, shape.length) && inputs.every((x) => x.dtype === dtype && apart(x.shape, shape, axis)) &&
      inputs.reduce((sum, x) => sum + x.shape[axis], 0) === shape[axis],
  },
  sliceUpdate: {
    inputs: [2, 2],
    attrs: { starts: "integers", steps: "integers" },
    fits: (result, { starts, steps }, [base, update]) =>
      alike(result, [base]) && update.dtype === base.dtype && inside(base.shape, update.shape, starts, steps) &&
      steps.every((step, i) => step !== 0 || update.shape[i] === 1),
  },
  dynamicSliceUpdate: {
    inputs: [3, 3],
    attrs: { axes: "integers" },
    fits: (result, { axes }, [base, update, start]) =>
      alike(result, [base]) && update.dtype === base.dtype && update.shape.length === base.shape.length &&
      update.shape.every((d, i) => d <= base.shape[i]) && isStart(start, axes, result, update),
  },
  dynamicSlice: {
    inputs: [2, 2],
    attrs: { axes: "integers" },
    fits: (result, { axes }, [x, start]) =>
      result.dtype === x.dtype && result.shape.length === x.shape.length &&
      result.shape.every((d, i) => d <= x.shape[i]) && isStart(start, axes, result),
  },
  gather: {
    inputs: [2, 2],
    attrs: { axis: "integer" },
    fits: ({ shape, dtype }, { axis }, [x, index]) =>
      dtype === x.dtype && isIndex(index) && within(axis, x.shape.length) &&
      (x.shape[axis] > 0 || sizeOf(shape) === 0) &&
      sameShape(shape, [...x.shape.slice(0, axis), ...index.shape, ...x.shape.slice(axis + 1)]),
  },
  gatherAlong: {
    inputs: [2, 2],
    attrs: { axis: "integer" },
    fits: ({ shape, dtype }, { axis }, [x, index]) =>
      dtype === x.dtype && isIndex(index) && within(axis, shape.length) && sameShape(shape, index.shape) &&
      apart(x.shape, shape, axis) && (x.shape[axis] > 0 || sizeOf(shape) === 0),
  },
  scatter: {
    inputs: [3, 3],
    attrs: { axis: "integer", fn: SCATTER },
    fits: (result, { axis }, [base, index, update]) =>
      alike(result, [base]) && isIndex(index) && index.shape.length === 1 && within(axis, base.shape.length) &&
      update.dtype === base.dtype && sameShape(update.shape, base.shape.with(axis, index.shape[0])),
  },
  scatterAlong: {
    inputs: [3, 3],
    attrs: { axis: "integer", fn: SCATTER },
    fits: (result, { axis }, [base, index, update]) =>
      alike(result, [base]) && isIndex(index) && within(axis, base.shape.length) && update.dtype === base.dtype &&
      sameShape(update.shape, index.shape) && apart(base.shape, update.shape, axis),
  },
  reduce: {
    inputs: [1, 1],
    attrs: {
      fn: ["sum", "prod", "min", "max", "all", "any", "argmin", "argmax", "logsumexp"],
      axes: "integers",
    },
    fits({ shape, dtype }, { fn, axes }, [x]) {
      if (!axes.every((axis, i) => within(axis, x.shape.length) && (i === 0 || axis > axes[i - 1]))) return false;
      const dropped = x.shape.filter((_, i) => !axes.includes(i));
      const kept = x.shape.map((d, i) => axes.includes(i) ? 1 : d);
      if (!sameShape(shape, dropped) && !sameShape(shape, kept)) return false;
      if (fn === "all" || fn === "any") return dtype === bool;
      if (fn === "argmin" || fn === "argmax") return dtype === uint32;
      return fn === "sum" || fn === "prod" || dtype === x.dtype;
    },
  },
  softmax: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, inputs) => rows(result, inputs) && isFloat(result) },
  scan: {
    inputs: [1, 1],
    attrs: { fn: ["sum", "prod", "min", "max", "logsumexp"], reverse: "boolean", exclusive: "boolean" },
    fits: (result, _, inputs) => rows(result, inputs),
  },
  sort: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, inputs) => rows(result, inputs) },
  argsort: {
    inputs: [1, 1],
    attrs: NO_ATTRS,
    fits: ({ shape, dtype }, _, [x]) => dtype === uint32 && shape.length > 0 && sameShape(shape, x.shape),
  },
  matmul: {
    inputs: [2, 2],
    attrs: NO_ATTRS,
    fits: (result, _, [a, b]) =>
      [result, a, b].every(isFloat) && a.shape.length >= 2 && a.shape.length === b.shape.length &&
      sameShape(productShape(a.shape, b.shape) ?? [], result.shape),
  },
  conv: {
    inputs: [2, 2],
    attrs: {
      stride: "integers",
      paddingLow: "integers",
      paddingHigh: "integers",
      kernelDilation: "integers",
      inputDilation: "integers",
      groups: "integer",
      flip: "boolean",
    },
    fits({ shape, dtype }, attrs, [x, w]) {
      const { stride, paddingLow, paddingHigh, kernelDilation, inputDilation, groups } = attrs;
      const lists = [stride, paddingLow, paddingHigh, kernelDilation, inputDilation];
      if (!isFloat(x) || x.dtype !== dtype || w.dtype !== dtype || stride.length < 1 || stride.length > 3) return false;
      if (lists.some((list) => list.length !== stride.length || list.some((v) => Math.abs(v) > MAX_STEP))) {
        return false;
      }
      if ([groups, ...stride, ...kernelDilation, ...inputDilation].some((v) => v < 1)) return false;
      return sameShape(convShape(x.shape, w.shape, attrs) ?? [], shape);
    },
  },
  gatherMatmul: {
    inputs: [2, 5],
    attrs: { left: "boolean", right: "boolean", ranges: "boolean" },
    fits({ shape, dtype }, { left, right, ranges }, [a, b, ...lists]) {
      if ([a, b].some((x) => x.dtype !== dtype || x.shape.length < 2) || !isFloat(a)) return false;
      const there = [left, right, ranges].filter(Boolean).length;
      if (there !== lists.length || lists.some((x) => x.dtype !== uint32)) return false;
      const batch = shape.slice(0, -2);
      const chosen = lists.every((x, i) => sameShape(x.shape, ranges && i === there - 1 ? [...batch, 2] : batch));
      // An operand that is not chosen is one matrix; one that is chosen from must not be empty.
      const one = (x: Value, by: boolean): boolean => {
        const count = sizeOf(lead(x));
        return by ? count > 0 || sizeOf(shape) === 0 : count === 1;
      };
      return shape.length >= 2 && chosen && one(a, left) && one(b, right) && a.shape.at(-1) === b.shape.at(-2) &&
        sameShape(shape.slice(-2), [a.shape.at(-2)!, b.shape.at(-1)!]);
    },
  },
  quantize: {
    inputs: [1, 2],
    attrs: FORMAT,
    fits: ({ shape, dtype }, q, [x, ...rest]) =>
      isFormat(q) && q.mode in QUANTIZATION_MODES && dtype === uint32 && isFloat(x) && x.shape.length >= 2 &&
      isGlobal(rest, q) &&
      x.shape.at(-1)! % q.groupSize === 0 &&
      sameShape(shape, x.shape.with(-1, x.shape.at(-1)! * q.bits / 32)),
  },
  dequantize: {
    inputs: [2, 3],
    attrs: FORMAT,
    fits(result, q, inputs) {
      const cols = unpacked(inputs.slice(0, arraysOfMatrix(q)), q);
      return cols !== undefined && isGlobal(inputs.slice(arraysOfMatrix(q)), q) && isFloat(result) &&
        sameShape(result.shape, inputs[0].shape.with(-1, cols));
    },
  },
  quantizedMatmul: {
    inputs: [3, 4],
    attrs: { ...FORMAT, transpose: "boolean" },
    fits(result, q, [x, ...matrix]) {
      const cols = unpacked(matrix, q);
      if (cols === undefined || !isFloat(result) || !isFloat(x) || x.shape.length < 2) return false;
      const [w, n] = [lead(matrix[0]), matrix[0].shape.at(-2)!];
      return sameShape(productShape(x.shape, [...w, ...(q.transpose ? [cols, n] : [n, cols])]) ?? [], result.shape);
    },
  },
  gatherQuantizedMatmul: {
    inputs: [5, 6],
    attrs: { ...FORMAT, transpose: "boolean", sorted: "boolean" },
    fits({ shape, dtype }, q, [x, ...rest]) {
      const matrix = rest.slice(0, -2);
      const cols = unpacked(matrix, q);
      if (cols === undefined || dtype.kind !== "float" || !isFloat(x) || x.shape.length < 2) return false;
      const batch = shape.slice(0, -2);
      if (rest.slice(-2).some((list) => list.dtype !== uint32 || !sameShape(list.shape, batch))) return false;
      const some = [x, matrix[0]].every((stack) => sizeOf(lead(stack)) > 0) || sizeOf(shape) === 0;
      const rows = matrix[0].shape.at(-2)!;
      const [k, n] = q.transpose ? [cols, rows] : [rows, cols];
      return some && x.shape.at(-1) === k && sameShape(shape.slice(-2), [x.shape.at(-2)!, n]);
    },
  },
  layerNorm: {
    inputs: [1, 3],
    attrs: { eps: "number", hasWeight: "boolean", hasBias: "boolean" },
    fits: ({ shape, dtype }, { hasWeight, hasBias }, [x, ...rest]) =>
      shape.length > 0 && sameShape(shape, x.shape) && [x.dtype, dtype].every(isKernelFloat) &&
      rest.length === Number(hasWeight) + Number(hasBias) &&
      rest.every((row) => isKernelFloat(row.dtype) && sameShape(row.shape, shape.slice(-1))),
  },
  rmsNorm: {
    inputs: [1, 2],
    attrs: { eps: "number" },
    fits: ({ shape, dtype }, _, [x, weight]) =>
      shape.length > 0 && sameShape(shape, x.shape) && [x.dtype, dtype, weight?.dtype ?? dtype].every(isKernelFloat) &&
      (weight === undefined || sameShape(weight.shape, shape.slice(-1))),
  },
  normVjp: {
    inputs: [2, 3],
    attrs: { eps: "number", centered: "boolean", hasWeight: "boolean" },
    fits: (result, { hasWeight }, [x, ...rest]) => {
      const cotangent = rest.pop()!;
      return result.shape.length > 0 && alike(result, [x]) && [x.dtype, cotangent.dtype].every(isKernelFloat) &&
        sameShape(cotangent.shape, x.shape) && rest.length === Number(hasWeight) &&
        rest.every((row) => isKernelFloat(row.dtype) && sameShape(row.shape, x.shape.slice(-1)));
    },
  },
  normWeightVjp: {
    inputs: [2, 2],
    attrs: { eps: "number", centered: "boolean" },
    fits: ({ shape, dtype }, _, [x, cotangent]) =>
      x.shape.length > 0 && [dtype, x.dtype, cotangent.dtype].every(isKernelFloat) &&
      sameShape(cotangent.shape, x.shape) && sameShape(shape, x.shape.slice(-1)),
  },
  rope: {
    inputs: [1, 3],
    attrs: {
      dims: "integer",
      traditional: "boolean",
      base: "number",
      scale: "number",
      offset: "integer",
      offsetInput: ["none", "scalar", "batch"],
      hasFreqs: "boolean",
    },
    fits(result, { dims, offsetInput, hasFreqs }, inputs) {
      const [x, ...rest] = inputs;
      if (!alike(result, inputs) || !isKernelFloat(x.dtype) || x.shape.length < 3) return false;
      if (dims < 2 || dims % 2 !== 0 || dims > x.shape.at(-1)!) return false;
      if (rest.length !== (offsetInput === "none" ? 0 : 1) + (hasFreqs ? 1 : 0)) return false;
      const freqs = hasFreqs ? rest.pop() : undefined;
      if (freqs && (freqs.dtype !== float32 || !sameShape(freqs.shape, [dims / 2]))) return false;
      const [offset] = rest;
      return offset === undefined || (offset.dtype === int32 && offset.shape.length <= 1 &&
        sizeOf(offset.shape) === (offsetInput === "scalar" ? 1 : x.shape[0]));
    },
  },
  attention: {
    inputs: [3, 5],
    attrs: ATTENTION,
    fits({ shape, dtype }, attrs, [q, k, v, ...rest]) {
      const found = attentionShape(attrs, dtype, [q, k, v], rest);
      return found !== undefined && sameShape(shape, found);
    },
  },
  sinkAttention: {
    inputs: [4, 6],
    attrs: ATTENTION,
    fits({ shape, dtype }, attrs, [q, k, v, ...rest]) {
      const sinks = rest.pop()!;
      const found = attentionShape(attrs, dtype, [q, k, v], rest);
      return found !== undefined && sameShape(shape, found) && isKernelFloat(sinks.dtype) &&
        sameShape(sinks.shape, [q.shape[1]]);
    },
  },
  attentionStats: {
    inputs: [4, 6],
    attrs: ATTENTION,
    fits({ shape, dtype }, attrs, [q, k, y, c, ...rest]) {
      if (q.shape.length !== 4 || k.shape.length !== 4 || !alike(y, [c])) return false;
      const v: Operand = { ...k, shape: [...k.shape.slice(0, 3), c.shape.at(-1)!] };
      const found = attentionShape(attrs, c.dtype, [q, k, v], rest);
      return found !== undefined && sameShape(c.shape, found) && sameShape(shape, [...q.shape.slice(0, 3), 2]) &&
        dtype === float32;
    },
  },
  attentionQueryVjp: {
    inputs: [5, 7],
    attrs: ATTENTION,
    fits: (result, attrs, inputs) => isAttentionVjp(attrs, inputs) && alike(result, [inputs[0]]),
  },
  attentionKeyVjp: {
    inputs: [5, 7],
    attrs: ATTENTION,
    fits: ({ shape, dtype }, attrs, inputs) =>
      isAttentionVjp(attrs, inputs) && dtype === inputs[1].dtype &&
      sameShape(shape, [sizeOf(inputs[1].shape) + sizeOf(inputs[2].shape)]),
  },
  sample: {
    inputs: [1, 4],
    attrs: { draws: "boolean", topK: "integer", topP: "boolean", masked: "boolean?" },
    fits({ shape, dtype }, { draws, topK, masked }, [x, ...rest]) {
      if (x.shape.length !== 2 || x.shape[1] === 0 || !isKernelFloat(x.dtype) || dtype !== uint32) return false;
      if (topK < -1) return false;
      if (masked && !isTokenMask(rest.pop(), x)) return false;
      const [rows] = x.shape;
      if (!sameShape(shape, [rows]) || rest.length !== (draws ? 2 : 0)) return false;
      const shapes = [[rows, 4], [rows]];
      return rest.every((input, i) => input.dtype === float32 && sameShape(input.shape, shapes[i]));
    },
  },
  logprobs: {
    inputs: [2, 3],
    attrs: { top: "integer" },
    fits: ({ shape, dtype }, { top }, [x, tokens, mask]) =>
      (mask === undefined || isTokenMask(mask, x)) && x.shape.length === 2 && x.shape[1] > 0 &&
      isKernelFloat(x.dtype) && dtype === float32 && top >= 0 &&
      tokens.dtype === int32 && sameShape(tokens.shape, [x.shape[0]]) && sameShape(shape, [x.shape[0], 1 + 2 * top]),
  },
  expertChoice: {
    inputs: [1, 3],
    attrs: {
      chosen: "integer",
      among: ["all", "chosen", "sigmoid"],
      normalized: "boolean",
      sumEps: "number",
      factor: "number",
      groups: "integer",
      closedGroups: "integer",
      hasBias: "boolean",
      hasScale: "boolean",
    },
    fits({ shape, dtype }, { chosen, groups, closedGroups, hasBias, hasScale }, [x, ...rest]) {
      const [rows, experts = 0] = x.shape;
      const fits = x.shape.length === 2 && isKernelFloat(x.dtype) && dtype === float32 && chosen >= 1;
      if (!fits || chosen > experts || !sameShape(shape, [rows, 2 * chosen])) return false;
      if (groups < 1 || closedGroups < 0 || closedGroups >= groups || experts % groups !== 0) return false;
      return (closedGroups === 0 || experts / groups >= 2) && rest.length === Number(hasBias) + Number(hasScale) &&
        rest.every((row) => isKernelFloat(row.dtype) && sameShape(row.shape, [experts]));
    },
  },
  expertUnits: {
    inputs: [4, 10],
    attrs: { unit: ["silu", "geluTanh", "clipped"], ...EXPERT_FORMAT, hasBias: "boolean" },
    fits({ shape, dtype }, { hasBias, ...format }, [x, choice, ...rest]) {
      const biases = hasBias ? rest.splice(-2) : [];
      const [R, k, N] = shape;
      const half = rest.length / 2;
      return shape.length === 3 && x.dtype === dtype && x.shape.length === 2 && x.shape[0] === R &&
        isChoice(choice, R, k) &&
        [rest.slice(0, half), rest.slice(half)].every((stack) =>
          isStack(stack, format, biases, [N, x.shape[1]]) && alike(stack[0], [rest[0]]) &&
          alike(stack.at(-1)!, [rest[half - 1]])
        );
    },
  },
  expertSum: {
    inputs: [3, 6],
    attrs: { ...EXPERT_FORMAT, hasBias: "boolean" },
    fits({ shape, dtype }, { hasBias, ...format }, [x, choice, ...rest]) {
      const biases = hasBias ? rest.splice(-1) : [];
      const [R, k, N] = x.shape;
      return shape.length === 2 && x.dtype === dtype && x.shape.length === 3 && shape[0] === R &&
        isChoice(choice, R, k) && isStack(rest, format, biases, [shape[1], N]);
    },
  },
  expertMixture: {
    inputs: [5, 14],
    attrs: { unit: ["silu", "geluTanh", "clipped"], ...EXPERT_FORMAT, hasBias: "boolean" },
    fits({ shape, dtype }, { hasBias, ...format }, [x, choice, ...rest]) {
      const biases = hasBias ? rest.splice(-3) : [];
      const each = rest.length / 3;
      const stacks = [0, 1, 2].map((i) => rest.slice(i * each, (i + 1) * each));
      if (x.shape.length !== 2 || stacks[0].length === 0 || stacks[0][0].shape.length !== 3) return false;
      const [R, H] = x.shape;
      const N = stacks[0][0].shape[1];
      return x.dtype === dtype && sameShape(shape, x.shape) && isChoice(choice, R, choice.shape[1] / 2) &&
        stacks.every((stack, i) =>
          isStack(stack, format, biases.slice(i, i + 1), i < 2 ? [N, H] : [H, N]) &&
          stack[0].shape[0] === rest[0].shape[0] && stack[0].dtype === rest[0].dtype &&
          stack.at(-1)!.dtype === stacks[0].at(-1)!.dtype
        ) && biases.every((bias) => bias.dtype === biases[0].dtype);
    },
  },
  gatedDelta: {
    inputs: [6, 9],
    attrs: { decays: "boolean", normEps: "number", hasMask: "boolean", gated: "boolean" },
    fits({ shape, dtype }, { normEps, hasMask, gated }, [q, k, v, gamma, beta, state, ...rest]) {
      if (q.shape.length !== 4 || v.shape.length !== 4 || normEps < 0) return false;
      if (rest.length !== Number(hasMask) + 2 * Number(gated)) return false;
      const gates = rest.splice(Number(hasMask));
      const [B, T, keyHeads, K] = q.shape;
      const [H, V] = v.shape.slice(2);
      const fits = [[k, q.shape], [v, [B, T, H, V]], [gamma, [B, T, H]], [beta, [B, T, H]], [state, [
        B,
        H,
        V,
        K,
      ]]] as const;
      return T > 0 && keyHeads > 0 && H % keyHeads === 0 && sameShape(shape, [B * H * V * (T + K)]) &&
        [dtype, ...[q, k, v, gamma, beta, state].map((x) => x.dtype)].every(isKernelFloat) &&
        fits.every(([x, expected]) => sameShape(x.shape, expected)) &&
        gates.every((gate) => isKernelFloat(gate.dtype) && sameShape(gate.shape, [H])) &&
        rest.every((mask) => mask.dtype === bool && sameShape(mask.shape, [B, T]));
    },
  },
  causalConv: {
    inputs: [3, 5],
    attrs: { silu: "boolean", hasBias: "boolean", hasCounted: "boolean" },
    fits({ shape, dtype }, { hasBias, hasCounted }, [before, x, weight, ...rest]) {
      if (x.shape.length !== 3 || rest.length !== Number(hasBias) + Number(hasCounted)) return false;
      const [B, T, F] = x.shape;
      const W = weight.shape[1] ?? 0;
      const [bias, counted] = hasBias ? rest : [undefined, rest[0]];
      return W >= 1 && dtype === x.dtype &&
        [before, x, weight, ...(bias ? [bias] : [])].every((a) => isKernelFloat(a.dtype)) &&
        sameShape(before.shape, [B, W - 1, F]) && sameShape(weight.shape, [F, W, 1]) &&
        (!bias || sameShape(bias.shape, [F])) &&
        (!counted || (counted.dtype === int32 && [1, B].includes(sizeOf(counted.shape)))) &&
        sameShape(shape, [B * F * (T + W - 1)]);
    },
  },
  fft: {
    inputs: [1, 1],
    attrs: { inverse: "boolean", real: "boolean", scale: "number" },
    fits({ shape, dtype }, { inverse, real }, [x]) {
      const [size, given] = [shape.at(-1) ?? 0, x.shape.at(-1) ?? 0];
      if (size < 1 || given < 1 || !apart(shape, x.shape, shape.length - 1)) return false;
      if (dtype !== (real && inverse ? float32 : complex64) || x.dtype !== (real && !inverse ? float32 : complex64)) {
        return false;
      }
      if (!real) return size === given;
      return inverse ? given === Math.floor(size / 2) + 1 : size === Math.floor(given / 2) + 1;
    },
  },
  factorization: {
    inputs: [1, 2],
    attrs: {
      fn: Object.keys(RESULTS),
      flag: "boolean?",
      upper: "boolean?",
    },
    fits({ shape, dtype }, { fn, flag = false }, [a, b]) {
      if (a.shape.length < 2 || ![float32, float64, complex64].includes(a.dtype as never)) return false;
      if (dtype !== (fn === "eig" ? complex64 : a.dtype)) return false;
      const [m, n] = a.shape.slice(-2);
      if (
        b &&
        (!fn.startsWith("solve") || b.dtype !== a.dtype || !sameShape([...lead(b), b.shape.at(-2)!], [...lead(a), n]))
      ) {
        return false;
      }
      return sameShape(shape, [...lead(a), RESULTS[fn](m, n, flag, b?.shape.at(-1))]);
    },
  },
  randomBits: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, [key]) => isDraw(result, key, uint32) },
  randomNormal: { inputs: [1, 1], attrs: NO_ATTRS, fits: (result, _, [key]) => isDraw(result, key, float32) },
  part: {
    inputs: [1, 1],
    attrs: { index: "integer" },
    fits({ shape, dtype }, { index }, [all]) {
      if (all.op !== "quantize" || !within(index, 3)) return false;
      if (index === 0) return dtype === uint32 && sameShape(shape, all.shape);
      const { bits, groupSize, mode } = all.attrs as OpAttrs["quantize"];
      return index < arraysOfMatrix({ bits, groupSize, mode }) &&
        dtype === (mode === "affine" ? all.source ?? dtype : uint8) &&
        sameShape(shape, all.shape.with(-1, all.shape.at(-1)! * 32 / bits / groupSize));
    },
  },
};

function isKernelFloat(dtype: Dtype): boolean {
  return dtype.kind === "float" && dtype !== float64;
}

/** Whether an array has a bit for each of the logits (rows, cols). */
function isTokenMask(mask: Value | undefined, logits: Value): boolean {
  const [rows, cols] = logits.shape;
  return mask !== undefined && mask.dtype === uint32 && sameShape(mask.shape, [rows, maskWords(cols)]);
}

/** Whether words of a dtype come from a key, or from one for each row. */
function isDraw(result: Value, key: Value, dtype: Dtype): boolean {
  const [keys, words] = key.shape.length === 1 ? [1, key.shape[0]] : key.shape;
  if (result.dtype !== dtype || key.dtype !== uint32 || words !== 2 || key.shape.length > 2) return false;
  return key.shape.length === 1 || (keys > 0 && result.shape[0] === keys) || sizeOf(result.shape) === 0;
}

/** The attributes of an op by name; undefined for one that files do not hold. */
export function attrKinds(op: string): Readonly<Record<string, AttributeKind>> | undefined {
  return Object.hasOwn(ROWS, op) ? ROWS[op as OpName]!.attrs as Readonly<Record<string, AttributeKind>> : undefined;
}

/** Updates in place are for the program that made them: here the array that they would take may be the caller's. */
export function withDonate(op: OpName, attrs: object): OpAttrs[OpName] {
  const updates = op === "sliceUpdate" || op === "dynamicSliceUpdate" || op === "scatter" || op === "scatterAlong";
  return (updates ? { ...attrs, donate: false } : attrs) as OpAttrs[OpName];
}

/** The attributes of a node that a file keeps. Throws a ValueError for a node that files cannot hold. */
export function portableAttrs({ op, attrs }: Node): OpAttrs[OpName] {
  const kinds = attrKinds(op);
  if (!kinds || "kvBlock" in attrs) throw new ValueError(`exportFunction() cannot write the op ${op} to a file`);
  return withDonate(op, Object.fromEntries(Object.entries(attrs).filter(([name]) => name in kinds)));
}

/** Throws a ValueError in the name of `what` where a step does not fit the arrays that it reads. */
export function checkStep(
  what: string,
  step: Value & { readonly op: OpName; readonly attrs: OpAttrs[OpName] },
  inputs: readonly Operand[],
): void {
  const row = ROWS[step.op] as OpRow<OpName> | undefined;
  const fits = row !== undefined && inputs.length >= row.inputs[0] && inputs.length <= row.inputs[1] &&
    (step.op === "part" || inputs.every((x) => x.op !== "quantize")) && row.fits(step, step.attrs, inputs);
  if (fits) return;
  const shown = inputs.slice(0, MAX_SHOWN).map((x) => `${x.dtype.name} ${formatShape(x.shape)}`);
  const found = [...shown, ...(inputs.length > MAX_SHOWN ? ["…"] : [])].join(", ");
  throw new ValueError(
    `${what} has a ${step.op} to ${step.dtype.name} ${
      formatShape(step.shape)
    } that does not fit what it reads: ${found}`,
  );
}
