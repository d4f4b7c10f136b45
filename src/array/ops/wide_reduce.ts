/**
 * Reductions and scans of 8-byte dtypes, from elementwise ops on halves and shifted slices: a logarithmic number of steps, the same sums
 * on every device.
 *
 * @module
 */

import { bool, type Dtype, int32, uint32 } from "../../graph/dtype.ts";
import { makeNode, type Node, type OpAttrs, type ReduceFn } from "../../graph/node.ts";
import { castNode, fullNode, scalarNode } from "../tensor/convert.ts";
import { broadcastNode, reshapeNode } from "./movement.ts";
import { iinfo } from "./type_info.ts";

/** The elementwise row that combines two numbers, and its neutral element; undefined if that depends on the dtype. */
const FOLDS = {
  sum: { row: "add", identity: 0 },
  prod: { row: "multiply", identity: 1 },
  min: { row: "minimum", identity: undefined },
  max: { row: "maximum", identity: undefined },
  logsumexp: { row: "logaddexp", identity: -Infinity },
} as const;

type Fold = keyof typeof FOLDS;

function apply(fn: string, inputs: readonly Node[], dtype: Dtype = inputs[inputs.length - 1].dtype): Node {
  return makeNode("elementwise", inputs, inputs[0].shape, dtype, { fn });
}

/** Elements `from` to `to` along an axis. */
function part(x: Node, axis: number, from: number, to: number): Node {
  const shape = x.shape.map((d, i) => i === axis ? to - from : d);
  const starts = x.shape.map((_, i) => i === axis ? from : 0);
  return makeNode("slice", [x], shape, x.dtype, { starts, steps: x.shape.map(() => 1) });
}

function concatNodes(axis: number, parts: readonly Node[]): Node {
  const size = parts.reduce((sum, { shape }) => sum + shape[axis], 0);
  return makeNode("concatenate", parts, parts[0].shape.map((d, i) => i === axis ? size : d), parts[0].dtype, { axis });
}

/** One value along an axis, in the shape of `x` elsewhere. */
function filled(x: Node, axis: number, size: number, value: number | bigint): Node {
  return fullNode(value, x.shape.map((d, i) => i === axis ? size : d), x.dtype);
}

function foldAxis(fn: Fold, x: Node, axis: number): Node {
  const { row, identity } = FOLDS[fn];
  if (x.shape[axis] === 0) return filled(x, axis, 1, identity ?? 0);
  while (x.shape[axis] > 1) {
    const half = x.shape[axis] >> 1;
    const pairs = apply(row, [part(x, axis, 0, half), part(x, axis, half, 2 * half)]);
    x = 2 * half < x.shape[axis] ? concatNodes(axis, [pairs, part(x, axis, 2 * half, x.shape[axis])]) : pairs;
  }
  return x;
}

function foldAxes(fn: Fold, node: Node, axes: readonly number[]): Node {
  return axes.reduce((x, axis) => foldAxis(fn, x, axis), node);
}

/** The first place along an axis that holds the least or largest value, or a NaN. */
function argNode(fn: "min" | "max", node: Node, axis: number): Node {
  const size = node.shape[axis];
  const most = broadcastNode(foldAxis(fn, node, axis), node.shape);
  const equal = apply("equal", [node, most], bool);
  const float = node.dtype.kind === "float" || node.dtype.kind === "complex";
  const found = float ? apply("logical_or", [equal, apply("isnan", [node], bool)]) : equal;
  const places = makeNode("arange", [], [size], int32, { start: 0, step: 1 });
  const along = broadcastNode(reshapeNode(places, node.shape.map((_, i) => i === axis ? size : 1)), node.shape);
  const none = broadcastNode(scalarNode("argmin", size, int32), node.shape);
  return makeNode("elementwise", [found, along, none], node.shape, int32, { fn: "select" });
}

/** A reduction from or to an 8-byte dtype, in the shape that is asked for. */
export function reduceWide(fn: ReduceFn, node: Node, axes: readonly number[], shape: number[], dtype: Dtype): Node {
  if (fn === "all" || fn === "any") return makeNode("reduce", [castNode(node, bool)], shape, bool, { fn, axes });
  if (fn === "argmin" || fn === "argmax") {
    const places = argNode(fn === "argmin" ? "min" : "max", node, axes[0]);
    return castNode(makeNode("reduce", [places], shape, int32, { fn: "min", axes }), uint32);
  }
  const x = castNode(node, dtype);
  if (fn !== "logsumexp") return reshapeNode(foldAxes(fn, x, axes), shape);
  const shift = shiftOf(x, axes);
  const terms = apply("exp", [apply("subtract", [x, broadcastNode(shift, x.shape)])]);
  return reshapeNode(apply("add", [apply("log", [foldAxes("sum", terms, axes)]), shift]), shape);
}

/** The offset of exponents before exp(): the largest along axes, or 0 if that is not finite. */
function shiftOf(x: Node, axes: readonly number[]): Node {
  const most = foldAxes("max", x, axes);
  const zero = broadcastNode(scalarNode("max", 0, x.dtype), most.shape);
  return makeNode("elementwise", [apply("isfinite", [most], bool), most, zero], most.shape, x.dtype, { fn: "select" });
}

/** softmax along the last axis of a node of complex64 or float64. */
export function softmaxWide(x: Node): Node {
  const axes = [x.shape.length - 1];
  const terms = apply("exp", [apply("subtract", [x, broadcastNode(shiftOf(x, axes), x.shape)])]);
  return apply("divide", [terms, broadcastNode(foldAxes("sum", terms, axes), x.shape)]);
}

/** The largest or least value of a dtype, with which a running minimum or maximum begins. */
function extremeOf(dtype: Dtype, largest: boolean): number | bigint {
  if (dtype.kind !== "int" && dtype.kind !== "uint") return largest ? Infinity : -Infinity;
  const { min, max } = iinfo(dtype);
  return largest ? max : min;
}

/** A scan along the last axis of a node of an 8-byte dtype: sums over 1, 2, 4 … neighbours. */
export function scanWide(node: Node, { fn, reverse, exclusive }: OpAttrs["scan"]): Node {
  const axis = node.shape.length - 1;
  const size = node.shape[axis];
  const { row, identity } = FOLDS[fn];
  const turned = (x: Node): Node =>
    makeNode("slice", [x], x.shape, x.dtype, {
      starts: x.shape.map((d, i) => i === axis ? d - 1 : 0),
      steps: x.shape.map((_, i) => i === axis ? -1 : 1),
    });
  if (size === 0) return node;
  let x = reverse ? turned(node) : node;
  if (exclusive) {
    const first = filled(x, axis, 1, identity ?? extremeOf(x.dtype, fn === "min"));
    x = concatNodes(axis, [first, part(x, axis, 0, size - 1)]);
  }
  for (let step = 1; step < size; step *= 2) {
    // The later element second: of equal ones it has the cotangent, as with the scans of other dtypes.
    const sums = apply(row, [part(x, axis, 0, size - step), part(x, axis, step, size)]);
    x = concatNodes(axis, [part(x, axis, 0, step), sums]);
  }
  return reverse ? turned(x) : x;
}
