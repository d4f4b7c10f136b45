/**
 * How elementwise functions are built: one function applies a row of shaders/include/elementwise.h under a dtype rule.
 *
 * A new function is a row in shaders/include/elementwise.h and a documented function in unary.ts or binary.ts.
 *
 * @module
 */

import { bool, type Dtype, float32, uint8 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { broadcastShapes, formatShape } from "../../graph/shape.ts";
import { atLeastFloat, castNode, type TensorLike, toOperands } from "../tensor/convert.ts";
import { type AnyTensor, make, wrap } from "../tensor/tensor.ts";
import type { Floating } from "../tensor/results.ts";

/**
 * How a function changes the dtype that its operands promote to:
 *
 * - same: computes and gives it        - float: float32 instead of integers and bool
 * - round: same, integers are done     - bool: computes in it, gives bool
 * - bits: same, floats are refused     - shift: bits, bool counts as uint8     - signed: same, bool is refused
 */
export type Rule = "same" | "float" | "round" | "bool" | "bits" | "shift" | "signed";

/** Rows that bool takes in place of arithmetic that would leave 0 and 1. */
const BOOL_ROWS: Readonly<Record<string, string>> = {
  add: "logical_or",
  subtract: "not_equal",
  bitwise_invert: "logical_not",
};

/** Tests of floats, with their answer for integers. */
const FLOAT_TESTS: Readonly<Record<string, boolean>> = {
  isnan: false,
  isinf: false,
  isposinf: false,
  isneginf: false,
  isfinite: true,
};

/** Rows without a meaning for complex numbers. */
const NOT_COMPLEX: ReadonlySet<string> = new Set([
  "arctan2",
  "ceil",
  "erf",
  "erfinv",
  "expm1",
  "floor",
  "floor_divide",
  "remainder",
  "sigmoid",
  "trunc",
]);

/** Rows that make floats of complex numbers. */
const PARTS: ReadonlySet<string> = new Set(["abs", "real", "imag"]);

/** The shape that nodes broadcast to; throws in the name of `op`. */
export function broadcastOf(op: string, nodes: readonly Node[]): number[] {
  const shape = broadcastShapes(...nodes.map((n) => n.shape));
  if (shape) return shape;
  throw new ShapeError(`${op}() cannot broadcast shapes ${nodes.map((n) => formatShape(n.shape)).join(" and ")}`);
}

const rows = new Map<string, string>();

/** The row of a public function: its name in snake case. */
function entryOf(op: string): string {
  let row = rows.get(op);
  if (row === undefined) rows.set(op, row = op.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
  return row;
}

function operandDtype(op: string, rule: Rule, dtype: Dtype): Dtype {
  if (rule === "float") return atLeastFloat(dtype);
  if ((rule === "bits" || rule === "shift") && (dtype.kind === "float" || dtype.kind === "complex")) {
    throw new DtypeError(`${op}() takes integers and bool only: found ${dtype.name}`);
  }
  if (rule === "shift" && dtype === bool) return uint8;
  if (rule === "signed" && dtype === bool) throw new DtypeError(`${op}() does not take bool: use logicalNot()`);
  return dtype;
}

/**
 * Applies the row of a public function to operands that broadcast: that of its name in snake case, so `floorDivide` has the row
 * `floor_divide`.
 */
export function apply(op: string, rule: Rule, ...operands: readonly TensorLike[]): AnyTensor {
  const row = entryOf(op);
  const inputs = toOperands(op, operands, (dtype) => operandDtype(op, rule, dtype));
  const shape = broadcastOf(op, inputs);
  const dtype = inputs[0].dtype;
  const exact = dtype.kind !== "float" && dtype.kind !== "complex";
  if (dtype.kind === "complex" && NOT_COMPLEX.has(row)) throw new DtypeError(`${op}() does not take ${dtype.name}`);
  if (rule === "round" && exact) return wrap(inputs[0]);
  const known = FLOAT_TESTS[row];
  if (known !== undefined && exact) return make("full", [], shape, bool, { value: Number(known) });
  const fn = dtype === bool ? BOOL_ROWS[row] ?? row : row;
  const result = dtype.kind === "complex" && PARTS.has(row) ? float32 : dtype;
  return make("elementwise", inputs, shape, rule === "bool" ? bool : result, { fn });
}

/** The values as floats: integers and bool become float32. */
export function toFloat<A extends TensorLike>(op: string, value: A): Floating<A> {
  const [node] = toOperands(op, [value]);
  return wrap(castNode(node, atLeastFloat(node.dtype)));
}
