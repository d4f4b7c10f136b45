/**
 * How elementwise functions are built: the dtype rule of each row of shaders/include/elementwise.h, and one function that applies it.
 *
 * A new function is a row in shaders/include/elementwise.h, a rule here and a documented function in unary.ts or binary.ts.
 *
 * @module
 */

import { bool, type Dtype, uint8 } from "../graph/dtype.ts";
import { DtypeError, ShapeError } from "../graph/error.ts";
import type { Node } from "../graph/node.ts";
import { broadcastShapes, formatShape } from "../graph/shape.ts";
import { atLeastFloat, castNode, type TensorLike, toOperands } from "./convert.ts";
import { make, type Tensor, wrap } from "./tensor.ts";

/**
 * What a row makes of the dtype its operands meet in:
 *
 * - same: computes and gives it        - float: float32 instead of integers and bool
 * - round: same, integers are done     - bool: computes in it, gives bool
 * - bits: same, floats are refused     - shift: bits, bool counts as uint8     - signed: same, bool is refused
 */
type Rule = "same" | "float" | "round" | "bool" | "bits" | "shift" | "signed";

const RULES = {
  abs: "same",
  negative: "signed",
  sign: "same",
  square: "same",
  sqrt: "float",
  rsqrt: "float",
  reciprocal: "float",
  exp: "float",
  expm1: "float",
  log: "float",
  log2: "float",
  log10: "float",
  log1p: "float",
  sin: "float",
  cos: "float",
  tan: "float",
  arcsin: "float",
  arccos: "float",
  arctan: "float",
  sinh: "float",
  cosh: "float",
  tanh: "float",
  arcsinh: "float",
  arccosh: "float",
  arctanh: "float",
  erf: "float",
  erfinv: "float",
  sigmoid: "float",
  ceil: "round",
  floor: "round",
  round: "round",
  trunc: "round",
  bitwise_invert: "bits",
  logical_not: "bool",
  isnan: "bool",
  isinf: "bool",
  isposinf: "bool",
  isneginf: "bool",
  isfinite: "bool",
  add: "same",
  subtract: "same",
  multiply: "same",
  divide: "float",
  remainder: "same",
  floor_divide: "same",
  power: "same",
  maximum: "same",
  minimum: "same",
  logaddexp: "float",
  arctan2: "float",
  equal: "bool",
  not_equal: "bool",
  less: "bool",
  less_equal: "bool",
  greater: "bool",
  greater_equal: "bool",
  logical_and: "bool",
  logical_or: "bool",
  bitwise_and: "bits",
  bitwise_or: "bits",
  bitwise_xor: "bits",
  left_shift: "shift",
  right_shift: "shift",
} as const satisfies Record<string, Rule>;

/** Rows of shaders/include/elementwise.h that this layer applies. */
export type RowName = keyof typeof RULES;

/** Rows that bool takes in place of arithmetic that would leave 0 and 1. */
const BOOL_ROWS: Partial<Record<RowName, RowName>> = {
  add: "logical_or",
  subtract: "not_equal",
  bitwise_invert: "logical_not",
};

/** What tells floats apart; of integers the answer is known. */
const FLOAT_TESTS: Partial<Record<RowName, boolean>> = {
  isnan: false,
  isinf: false,
  isposinf: false,
  isneginf: false,
  isfinite: true,
};

/** The shape that nodes broadcast to; throws in the name of `op`. */
export function broadcastOf(op: string, nodes: readonly Node[]): number[] {
  const shape = broadcastShapes(...nodes.map((n) => n.shape));
  if (shape) return shape;
  throw new ShapeError(`${op}() cannot broadcast shapes ${nodes.map((n) => formatShape(n.shape)).join(" and ")}`);
}

function operandDtype(op: string, rule: Rule, dtype: Dtype): Dtype {
  if (rule === "float") return atLeastFloat(dtype);
  if ((rule === "bits" || rule === "shift") && dtype.kind === "float") {
    throw new DtypeError(`${op}() takes integers and bool only: found ${dtype.name}`);
  }
  if (rule === "shift" && dtype === bool) return uint8;
  if (rule === "signed" && dtype === bool) throw new DtypeError(`${op}() does not take bool: use logicalNot()`);
  return dtype;
}

/** Applies a row to operands that broadcast; `op` is the public name, for errors. */
export function apply(op: string, row: RowName, ...operands: readonly TensorLike[]): Tensor {
  const rule: Rule = RULES[row];
  const inputs = toOperands(op, operands, (dtype) => operandDtype(op, rule, dtype));
  const shape = broadcastOf(op, inputs);
  const dtype = inputs[0].dtype;
  if (rule === "round" && dtype.kind !== "float") return wrap(inputs[0]);
  const known = FLOAT_TESTS[row];
  if (known !== undefined && dtype.kind !== "float") return make("full", [], shape, bool, { value: Number(known) });
  const fn = dtype === bool ? BOOL_ROWS[row] ?? row : row;
  return make("elementwise", inputs, shape, rule === "bool" ? bool : dtype, { fn });
}

/** The values as floats: integers and bool become float32. */
export function toFloat(op: string, value: TensorLike): Tensor {
  const [node] = toOperands(op, [value]);
  return wrap(castNode(node, atLeastFloat(node.dtype)));
}
