/**
 * Reading and assigning by index, as NumPy and MLX index.
 *
 * Whole numbers, slices, null and "..." make a view. Integer arrays gather: they broadcast together, and their axes stand
 * where the first of them stood when all are adjacent, in front otherwise. Assignments turn into the same steps backwards.
 *
 * @module
 */

import { bool, type DtypeName, int32 } from "../../graph/dtype.ts";
import { IndexError, quoted, ShapeError } from "../../graph/error.ts";
import { makeNode, type Node, type ScatterFn } from "../../graph/node.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import * as binary from "./binary.ts";
import { castNode, type NestedList, type TensorLike, toIndexNode, toNode } from "../tensor/convert.ts";
import { broadcastNode, reshapeNode, sliceNode, transposeNode } from "./movement.ts";
import { take } from "./gather.ts";
import { cumsum } from "./reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type Slice, SliceIndex } from "../tensor/slice.ts";
import { type AnyTensor, handOn, type Index, nodeOf, rebind, Tensor, type Update, wrap } from "../tensor/tensor.ts";
import { negative, reciprocal } from "./unary.ts";
import type { Indexed, NameOf, RankOf } from "../tensor/types.ts";

/** The effect of an index on one axis of the array (new axes are in place already). */
interface AxisPlan {
  readonly start: number;
  readonly step: number;
  readonly count: number;
  /** A whole number: the axis goes. */
  readonly drop: boolean;
  /** An integer array: the axis is gathered. */
  readonly gather: Node | undefined;
}

interface IndexPlan {
  /** Shape of the array with new axes. */
  readonly shape: readonly number[];
  readonly axes: readonly AxisPlan[];
}

function planIndex(op: string, shape: Shape, index: readonly Index[]): IndexPlan {
  const given = index.filter((i) => i !== null && i !== "...").length;
  if (given > shape.length) {
    throw new IndexError(`${op}() got ${given} indices for an array of shape ${formatShape(shape)}`);
  }
  if (index.filter((i) => i === "...").length > 1) throw new IndexError(`${op}() takes "..." once`);
  const at = index.indexOf("...");
  const fill = new Array<Index>(shape.length - given).fill(new SliceIndex(null, null, null));
  const parts = at < 0 ? [...index, ...fill] : [...index.slice(0, at), ...fill, ...index.slice(at + 1)];
  const outShape: number[] = [];
  const axes: AxisPlan[] = [];
  let axis = 0;
  for (const part of parts) {
    const size = part === null ? 1 : shape[axis++];
    outShape.push(size);
    axes.push(planAxis(op, part, size, axis - 1));
  }
  return { shape: outShape, axes };
}

function planAxis(op: string, part: Index, size: number, axis: number): AxisPlan {
  const all = { start: 0, step: 1, count: size, drop: false, gather: undefined };
  if (part === null) return all;
  if (typeof part === "number") {
    if (!Number.isInteger(part) || part < -size || part >= size) {
      throw new IndexError(`${op}() index ${part} is out of range for axis ${axis} of size ${size}`);
    }
    return { ...all, start: part < 0 ? part + size : part, count: 1, drop: true };
  }
  if (part instanceof SliceIndex) return { ...all, ...sliceRange(part, size) };
  if (!(part instanceof Tensor || Array.isArray(part) || ArrayBuffer.isView(part))) {
    throw new IndexError(
      `${op}() takes whole numbers, mx.Slice(), null, "..." and integer arrays: found ${quoted(part)}`,
    );
  }
  const value = part as Tensor | NestedList;
  if (isMask(value)) throw new IndexError(maskAdvice(op));
  const gather = toIndexNode(op, value);
  if (size === 0 && sizeOf(gather.shape) > 0) {
    throw new IndexError(`${op}() cannot take from axis ${axis}: it is empty`);
  }
  return { ...all, gather };
}

/** First index, step and number of indices of a slice, as Python's slice.indices(). */
function sliceRange(slice: Slice, size: number): { start: number; step: number; count: number } {
  const step = slice.step ?? 1;
  const [low, high] = step > 0 ? [0, size] : [-1, size - 1];
  const place = (v: number | null, open: number): number =>
    v === null ? open : Math.min(high, Math.max(low, v < 0 ? v + size : v));
  const start = place(slice.start, step > 0 ? low : high);
  const stop = place(slice.stop, step > 0 ? high : low);
  const count = Math.max(0, Math.ceil((stop - start) / step));
  return { start: count === 0 ? 0 : start, step, count };
}

function isMask(value: unknown): boolean {
  if (value instanceof Tensor) return value.dtype === bool;
  let first: unknown = value;
  while (Array.isArray(first)) first = first[0];
  return typeof first === "boolean";
}

function maskAdvice(op: string): string {
  return `${op}() cannot read with a boolean mask, as the shape would depend on values: use mx.where(mask, x, other), ` +
    "or assign with x.indexPut_(mask, value)";
}

/** The view that the whole numbers and slices of a plan select; dropped axes stay with size 1. */
function viewOf(node: Node, plan: IndexPlan): Node {
  const { axes } = plan;
  return sliceNode(
    reshapeNode(node, plan.shape),
    axes.map((a) => a.start),
    axes.map((a) => a.step),
    axes.map((a) => a.count),
  );
}

/** How the gathered axes of a view are flattened and put before the others, and where they go in the result. */
interface Gather {
  /** Gathered axes first, then the rest. */
  readonly order: readonly number[];
  /** Flattened index (n...) into the gathered axes. */
  readonly index: Node;
  readonly rest: readonly number[];
  /** Size of the gathered axes together. */
  readonly total: number;
  /** Axis of the result at which the index axes stand. */
  readonly at: number;
}

function planGather(op: string, plan: IndexPlan): Gather | undefined {
  const arrays = plan.axes.flatMap((a, i) => a.gather ? [i] : []);
  if (arrays.length === 0) return undefined;
  // Beside arrays, whole numbers count as arrays when it comes to where the result axes stand.
  const advanced = plan.axes.flatMap((a, i) => a.gather || a.drop ? [i] : []);
  const adjacent = advanced.every((a, i) => i === 0 || a === advanced[i - 1] + 1);
  const kept = plan.axes.flatMap((a, i) => a.gather || a.drop ? [] : [i]);
  const at = adjacent ? kept.filter((i) => i < advanced[0]).length : 0;
  const nodes = arrays.map((i) => plan.axes[i].gather!);
  const shape = broadcastShapes(...nodes.map((n) => n.shape));
  if (!shape) {
    throw new IndexError(
      `${op}() index arrays do not broadcast: ${nodes.map((n) => formatShape(n.shape)).join(" and ")}`,
    );
  }
  const drops = plan.axes.flatMap((a, i) => a.drop ? [i] : []);
  const index = scoped(() => {
    let flat: Tensor | undefined;
    arrays.forEach((axis, i) => {
      const size = plan.axes[axis].count;
      // With one array the kernel counts negative indices from the end; a flattened index needs it done before, and types
      // that hold it.
      const one = wrap(arrays.length === 1 ? nodes[i] : castNode(nodes[i], int32));
      const positive = arrays.length === 1 ? one : binary.where(binary.less(one, 0), binary.add(one, size), one);
      flat = flat ? binary.add(binary.multiply(flat, size), positive) : positive;
    });
    return flat!;
  });
  const node = broadcastNode(handOn(index), shape);
  return {
    order: [...arrays, ...drops, ...kept],
    index: node,
    rest: kept.map((i) => plan.axes[i].count),
    total: sizeOf(arrays.map((i) => plan.axes[i].count)),
    at,
  };
}

/**
 * Elements at an index: whole numbers, `mx.Slice()`, null, "..." and integer arrays, as in MLX.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.arange(12).reshape(3, 4);
 * x.index(0).tolist(); // [0, 1, 2, 3]
 * x.index("...", mx.Slice(null, null, 2)).shape; // [3, 2]
 * x.index([2, 0], 1).tolist(); // [9, 1]
 * ```
 */
export function index<A extends TensorLike, const I extends readonly Index[]>(
  a: A,
  ...indices: I
): Tensor<NameOf<A>, Indexed<RankOf<A>, I>> {
  const node = toNode("index", a);
  const plan = planIndex("index", node.shape, indices);
  const view = viewOf(node, plan);
  const gather = planGather("index", plan);
  if (!gather) return wrap(reshapeNode(view, view.shape.filter((_, i) => !plan.axes[i].drop)));
  const front = reshapeNode(transposeNode(view, gather.order), [gather.total, ...gather.rest]);
  const found = makeNode("gather", [front, gather.index], [...gather.index.shape, ...gather.rest], node.dtype, {
    axis: 0,
  });
  return wrap(moveAxes(found, gather.index.shape.length, gather.at));
}

/** The first `count` axes moved so that they begin at `at`. */
function moveAxes(node: Node, count: number, at: number): Node {
  const axes = node.shape.map((_, i) => i);
  return transposeNode(node, [...axes.slice(count, count + at), ...axes.slice(0, count), ...axes.slice(count + at)]);
}

/** The opposite of {@link moveAxes}. */
function frontAxes(node: Node, count: number, at: number): Node {
  const axes = node.shape.map((_, i) => i);
  return transposeNode(node, [...axes.slice(at, at + count), ...axes.slice(0, at), ...axes.slice(at + count)]);
}

/** `base` with `value` combined into an index. */
function update(op: string, base: Node, indices: readonly Index[], value: Node, fn: ScatterFn, donate: boolean): Node {
  const plan = planIndex(op, base.shape, indices);
  const gather = planGather(op, plan);
  if (!gather) {
    const sizes = plan.axes.map((a) => a.count);
    const region = reshapeNode(fitValue(op, value, sizes.filter((_, i) => !plan.axes[i].drop)), sizes);
    // A view without readers would hold the base for ever.
    return write(base, plan, fn === "assign" ? region : combine(viewOf(base, plan), region, fn), donate);
  }
  const { index: at, rest, total, order } = gather;
  const shape = moveAxesShape([...at.shape, ...rest], at.shape.length, gather.at);
  const rows = frontAxes(fitValue(op, value, shape), at.shape.length, gather.at);
  const n = sizeOf(at.shape);
  const moved = transposeNode(viewOf(base, plan), order);
  const flat = reshapeNode(moved, [total, ...rest]);
  const scattered = makeNode(
    "scatter",
    [flat, reshapeNode(at, [n]), reshapeNode(rows, [n, ...rest])],
    flat.shape,
    base.dtype,
    {
      axis: 0,
      fn,
      donate: donate && flat === base,
    },
  );
  const back = order.map((_, i) => order.indexOf(i));
  return write(base, plan, transposeNode(reshapeNode(scattered, moved.shape), back), donate);
}

function moveAxesShape(shape: readonly number[], count: number, at: number): number[] {
  return [...shape.slice(count, count + at), ...shape.slice(0, count), ...shape.slice(count + at)];
}

/** A value broadcast to the shape of its target. */
export function fitValue(op: string, value: Node, shape: Shape): Node {
  // Leading axes of size 1 beyond the shape are dropped, as in MLX.
  let node = value;
  while (node.shape.length > shape.length && node.shape[0] === 1) node = reshapeNode(node, node.shape.slice(1));
  const common = broadcastShapes(node.shape, shape);
  if (!common || !sameShape(common, shape)) {
    throw new ShapeError(
      `${op}() cannot broadcast a value of shape ${formatShape(value.shape)} to ${formatShape(shape)}`,
    );
  }
  return broadcastNode(node, shape);
}

/** Writes a region that lies as the view of the plan into base. */
function write(base: Node, plan: IndexPlan, region: Node, donate: boolean): Node {
  if (sameShape(region.shape, plan.shape) && plan.axes.every((a) => a.start === 0 && a.step === 1)) {
    return reshapeNode(region, base.shape);
  }
  const shaped = reshapeNode(base, plan.shape);
  const node = makeNode("sliceUpdate", [shaped, region], plan.shape, base.dtype, {
    starts: plan.axes.map((a) => a.start),
    steps: plan.axes.map((a) => a.step),
    donate: donate && shaped === base,
  });
  return reshapeNode(node, base.shape);
}

const COMBINE = { sum: "add", prod: "multiply", min: "minimum", max: "maximum" } as const;

function combine(old: Node, value: Node, fn: Exclude<ScatterFn, "assign">): Node {
  if (old.dtype === bool) {
    return makeNode("elementwise", [old, value], old.shape, bool, {
      fn: fn === "sum" || fn === "max" ? "logical_or" : "logical_and",
    });
  }
  return makeNode("elementwise", [old, value], old.shape, old.dtype, { fn: COMBINE[fn] });
}

/**
 * Assigns `value`, broadcast, to the elements at an index, or where a boolean mask is true. The Tensor itself shows the new
 * values from then on (and is returned); arrays made from it before keep the old ones. The value is cast to its dtype.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.zeros([2, 3]);
 * x.indexPut_([0, mx.Slice(1)], 5);
 * x.tolist(); // [[0, 5, 5], [0, 0, 0]]
 * ```
 */
export function indexPut_<N extends DtypeName, R extends number>(
  a: Tensor<N, R>,
  index: Index | readonly Index[],
  value: TensorLike,
): Tensor<N, R> {
  const base = nodeOf(a);
  const list: readonly Index[] = Array.isArray(index) ? listIndex(index) : [index as Index];
  const update_ = castNode(toNode("indexPut_", value, base.dtype), base.dtype);
  // No other array or node has the old values: they may be overwritten. Those of a compiled function's argument are its caller's.
  const donate = base.refs === 1 && base.op !== "parameter";
  const next = list.length === 1 && isMask(list[0])
    ? maskedAssign(base, toNode("indexPut_", list[0] as Tensor), update_)
    : update("indexPut_", base, list, update_, "assign", donate);
  rebind(a, next);
  return a;
}

/** A list given as index holds one index an axis; a boolean list is a mask. */
function listIndex(index: readonly Index[]): readonly Index[] {
  return isMask(index) ? [index as unknown as NestedList] : index;
}

/** Where the mask (a prefix of the base's shape) is true: one value, or values in the order of the true elements. */
function maskedAssign(base: Node, mask: Node, value: Node): Node {
  const rank = mask.shape.length;
  if (!sameShape(mask.shape, base.shape.slice(0, rank))) {
    throw new IndexError(
      `indexPut_() mask of shape ${formatShape(mask.shape)} does not fit an array of shape ${formatShape(base.shape)}`,
    );
  }
  const rest = base.shape.slice(rank);
  const wide = broadcastNode(reshapeNode(mask, [...mask.shape, ...rest.map(() => 1)]), base.shape);
  const select = (from: Node): Node =>
    makeNode("elementwise", [wide, from, base], base.shape, base.dtype, { fn: "select" });
  const perMask = value.shape.length > rest.length;
  if (!perMask) return select(fitValue("indexPut_", value, rest));
  if (!sameShape(value.shape.slice(1), rest)) {
    throw new ShapeError(
      `indexPut_() expected values of shape (n${rest.map((d) => `, ${d}`).join("")}) for the true elements: found ${
        formatShape(value.shape)
      }`,
    );
  }
  const picked = scoped(() => {
    const flat = wrap(reshapeNode(castNode(mask, int32), [sizeOf(mask.shape)]));
    return take(wrap(value), binary.subtract(cumsum(flat, 0), 1), 0);
  });
  return select(reshapeNode(handOn(picked), base.shape));
}

/** How the updates of `x.at(...)` combine old and new values, and a function that is applied to the new ones first. */
const UPDATES: Readonly<Record<Update, readonly [fn: ScatterFn, change?: (value: Tensor) => Tensor]>> = {
  add: ["sum"],
  // For bools, every number but 0 counts as true.
  subtract: ["sum", (value) => value.dtype === bool ? value : negative(value)],
  multiply: ["prod"],
  divide: ["prod", reciprocal],
  maximum: ["max"],
  minimum: ["min"],
};

/** The array with `value` combined into an index, at which repeated indices count each time: see {@link At}. */
export function updateAt(a: Tensor, index: readonly Index[], by: Update, value: TensorLike): Tensor {
  const op = `at().${by}`;
  const base = nodeOf(a);
  const [fn, change] = UPDATES[by];
  const given = castNode(toNode(op, value, base.dtype), base.dtype);
  if (!change) return wrap(update(op, base, index, given, fn, false));
  return scoped((): AnyTensor =>
    wrap(update(op, base, index, castNode(nodeOf(change(wrap(given))), base.dtype), fn, false))
  );
}
