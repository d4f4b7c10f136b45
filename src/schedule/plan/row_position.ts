/**
 * The position of a row that `take(x, index, 1)` picks out of many: the numbers that its rotation and its attention need when it is
 * computed alone. Row pruning writes them so, and the matchers of fused kernels find them again.
 *
 * Indices count as in `take`: negative ones from the end, and all are limited to the rows. An unsigned index takes one op less of
 * every number, so that each of them is one dispatch.
 *
 * @module
 */

import { type Dtype, int32, uint32 } from "../../graph/dtype.ts";
import { attrsOf, makeNode, type Node } from "../../graph/node.ts";
import { broadcastShapes } from "../../graph/shape.ts";

function scalar(value: number, dtype: Dtype = int32): Node {
  return makeNode("full", [], [], dtype, { value });
}

/** An op of numbers of one dtype. */
function apply(fn: string, ...inputs: readonly Node[]): Node {
  const shape = broadcastShapes(...inputs.map((n) => n.shape))!;
  return makeNode("elementwise", inputs, shape, inputs[0].dtype, { fn });
}

function cast(node: Node, dtype: Dtype): Node {
  return node.dtype === dtype ? node : makeNode("elementwise", [node], node.shape, dtype, { fn: "cast" });
}

/** Row `index` (1,) of `count`, from 0 on: int32. */
export function rowNumber(index: Node, count: number): Node {
  if (index.dtype.kind === "uint") return cast(apply("minimum", cast(index, uint32), scalar(count - 1, uint32)), int32);
  const last = makeNode("full", [], index.shape, int32, { value: count - 1 });
  const first = apply("bitwise_invert", last); // -count: then two numbers are enough, which is what one dispatch takes
  const within = apply("minimum", apply("maximum", cast(index, int32), first), last);
  return apply("remainder", within, scalar(count)); // of the sign of the count
}

/** The position of a row, the first of which stands at `offset`: int32, like the offset (B,) or (1,). */
export function positionOfRow(offset: Node | number, row: Node): Node {
  return offset === 0 ? row : apply("add", row, typeof offset === "number" ? scalar(offset) : offset);
}

/**
 * How many keys a row of `count` queries sees under a causal mask. All keys, or `lengths` of at most `capacity`, less one for each row
 * after it.
 */
export function keysOfRow(lengths: Node | undefined, capacity: number, row: Node, count: number): Node {
  if (!lengths) return positionOfRow(capacity - count + 1, row);
  return apply("add", apply("subtract", apply("minimum", lengths, scalar(capacity)), scalar(count - 1)), row);
}

/** Whether two nodes are the same arithmetic of the same nodes. */
export function isSameNumber(a: Node, b: Node): boolean {
  if (a === b) return true;
  if (a.op !== b.op || a.dtype !== b.dtype) return false;
  if (a.op === "full") return attrsOf(a, "full").value === attrsOf(b, "full").value;
  return a.op === "elementwise" && attrsOf(a, "elementwise").fn === attrsOf(b, "elementwise").fn &&
    a.inputs.length === b.inputs.length && a.inputs.every((input, i) => isSameNumber(input, b.inputs[i]));
}

/** Whether a node is what this file made. */
function isMade(node: Node, made: Node): boolean {
  made.retain();
  const is = isSameNumber(node, made);
  made.release();
  return is;
}

/** The offset in a {@link positionOfRow}; undefined if a node is something else. */
export function offsetOfPosition(node: Node, index: Node, count: number): Node | undefined {
  const [, offset] = node.inputs;
  return offset && isMade(node, positionOfRow(offset, rowNumber(index, count))) ? offset : undefined;
}

/** The lengths in a {@link keysOfRow}; undefined if a node is something else. */
export function lengthsOfKeys(node: Node, capacity: number, index: Node, count: number): Node | undefined {
  const lengths = node.inputs[0]?.inputs[0]?.inputs[0];
  return lengths && isMade(node, keysOfRow(lengths, capacity, rowNumber(index, count), count)) ? lengths : undefined;
}
