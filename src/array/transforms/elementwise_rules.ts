/**
 * Derivatives of elementwise functions. Each row of shaders/include/elementwise.h has its partial derivatives here, which serve forward
 * and backward. Functions whose derivative is not a product with one, such as the parts of complex numbers, have rules of their own.
 *
 * Complex cotangents are those of MLX and JAX: of a holomorphic f the cotangent times conj(f').
 *
 * @module
 */

import { complex64 } from "../../graph/dtype.ts";
import { attrsOf, makeNode } from "../../graph/node.ts";
import {
  add,
  divide,
  equal,
  floorDivide,
  greater,
  greaterEqual,
  less,
  lessEqual,
  multiply,
  power,
  subtract,
  where,
} from "../ops/binary.ts";
import { conj, imag, real } from "../ops/complex.ts";
import { castNode } from "../tensor/convert.ts";
import { reshapeNode } from "../ops/movement.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import {
  abs,
  cos,
  cosh,
  exp,
  log,
  negative,
  reciprocal,
  rsqrt,
  sigmoid,
  sign,
  sin,
  sinh,
  square,
} from "../ops/unary.ts";
import { asLike, conjugated, type Jvp, type OpRules, type Step, sumTo, type Vjp, type Vmap } from "./rule.ts";

/** A partial derivative: a number, an array that broadcasts to the result, or none (0). */
type Partial = number | AnyTensor | undefined;
type Partials = (step: Step) => readonly (() => Partial)[];

/** A row: partial derivatives, or rules. "zero": constant between jumps. */
type DerivativeRow = "zero" | Partials | { readonly vjp: Vjp; readonly jvp: Jvp };

function unary(partial: (x: AnyTensor, y: AnyTensor) => Partial): Partials {
  return (step) => [() => partial(step.x(0), step.y)];
}

function binary(...partials: readonly ((a: AnyTensor, b: AnyTensor, y: AnyTensor) => Partial)[]): Partials {
  return (step) => partials.map((partial) => () => partial(step.x(0), step.x(1), step.y));
}

/** Linear functions between parts of complex numbers: backward and forward. */
function linear(back: (c: AnyTensor) => AnyTensor, forth: (t: AnyTensor) => AnyTensor): DerivativeRow {
  return {
    vjp: (
      { entry },
      c,
    ) => [sumTo(asLike(back(c), { shape: c.shape, dtype: entry.inputs[0].dtype }), entry.inputs[0].shape)],
    jvp: (_, [t]) => forth(t!),
  };
}

/** The derivative of x / |x| in the direction of a change of x: its part across x; of real numbers nothing. It is its own adjoint. */
function across(step: Step, change: AnyTensor): AnyTensor | undefined {
  if (step.entry.dtype.kind !== "complex") return undefined;
  const [x, y] = [step.x(0), step.y];
  const part = subtract(change, multiply(y, real(multiply(conj(y), change)))) as AnyTensor;
  return where(equal(x, 0), 0, divide(part, abs(x))) as AnyTensor;
}

/** 0 if x is 0, x / |x| elsewhere. */
function direction(x: AnyTensor, y: AnyTensor): AnyTensor {
  return where(equal(y, 0), 0, divide(x, y)) as AnyTensor;
}

const ROWS: Readonly<Record<string, DerivativeRow>> = {
  identity: unary(() => 1),
  cast: {
    vjp: ({ entry: { inputs: [x] } }, c) => [wrap(castNode(nodeOf(sumTo(c, x.shape)), x.dtype))],
    jvp: ({ entry }, [t]) => wrap(castNode(nodeOf(t!), entry.dtype)),
  },
  select: {
    vjp: ({ entry: { inputs: [condition, a, b] } }, c) => [
      undefined,
      sumTo(where(wrap(condition), c, 0) as AnyTensor, a.shape),
      sumTo(where(wrap(condition), 0, c) as AnyTensor, b.shape),
    ],
    jvp: ({ entry: { inputs: [condition], shape, dtype } }, [, a, b]) =>
      a || b ? asLike(where(wrap(condition), a ?? 0, b ?? 0) as AnyTensor, { shape, dtype }) : undefined,
  },
  abs: {
    vjp: ({ entry: { inputs: [x] }, y }, c) => [
      x.dtype.kind === "complex" ? multiply(c, direction(wrap(x), y)) : multiply(c, sign(wrap(x))),
    ],
    jvp: ({ entry: { inputs: [x] }, y }, [t]) =>
      x.dtype.kind === "complex"
        ? real(multiply(conj(direction(wrap(x), y)) as AnyTensor, t!)) as AnyTensor
        : multiply(t!, sign(wrap(x))),
  },
  real: linear((c) => c, (t) => real(t) as AnyTensor),
  imag: linear(
    (c) => multiply(wrap(castNode(nodeOf(c), complex64)), { re: 0, im: 1 }) as AnyTensor,
    (t) => imag(t) as AnyTensor,
  ),
  conjugate: linear((c) => conj(c) as AnyTensor, (t) => conj(t) as AnyTensor),
  negative: unary(() => -1),
  sign: { vjp: (step, c) => [across(step, c)], jvp: (step, [t]) => across(step, t!) },
  square: unary((x) => multiply(x, 2)),
  sqrt: unary((_, y) => divide(0.5, y)),
  rsqrt: unary((x, y) => multiply(divide(y, x), -0.5)),
  reciprocal: unary((_, y) => negative(square(y))),
  exp: unary((_, y) => y),
  expm1: unary((_, y) => add(y, 1)),
  log: unary((x) => reciprocal(x)),
  log2: unary((x) => reciprocal(multiply(x, Math.LN2))),
  log10: unary((x) => reciprocal(multiply(x, Math.LN10))),
  log1p: unary((x) => reciprocal(add(x, 1))),
  sin: unary((x) => cos(x)),
  cos: unary((x) => negative(sin(x))),
  tan: unary((_, y) => add(square(y), 1)),
  arcsin: unary((x) => rsqrt(subtract(1, square(x)))),
  arccos: unary((x) => negative(rsqrt(subtract(1, square(x))))),
  arctan: unary((x) => reciprocal(add(square(x), 1))),
  sinh: unary((x) => cosh(x)),
  cosh: unary((x) => sinh(x)),
  tanh: unary((_, y) => subtract(1, square(y))),
  arcsinh: unary((x) => rsqrt(add(square(x), 1))),
  arccosh: unary((x) => rsqrt(subtract(square(x), 1))),
  arctanh: unary((x) => reciprocal(subtract(1, square(x)))),
  erf: unary((x) => multiply(exp(negative(square(x))), 2 / Math.sqrt(Math.PI))),
  erfinv: unary((_, y) => multiply(exp(square(y)), Math.sqrt(Math.PI) / 2)),
  sigmoid: unary((_, y) => multiply(y, subtract(1, y))),
  ceil: "zero",
  floor: "zero",
  round: "zero",
  trunc: "zero",
  add: binary(() => 1, () => 1),
  subtract: binary(() => 1, () => -1),
  multiply: binary((_, b) => b, (a) => a),
  divide: binary((_, b) => reciprocal(b), (_, b, y) => negative(divide(y, b))),
  remainder: binary(() => 1, (a, b) => negative(floorDivide(a, b))),
  floor_divide: "zero",
  power: binary(
    (a, b) => multiply(b, power(a, subtract(b, 1))),
    // log(0) times 0 is 0 here: a power of 0 does not move with its exponent.
    (a, _, y) => multiply(log(where(equal(a, 0), 1, a) as AnyTensor), y),
  ),
  maximum: binary((a, b) => greater(a, b), (a, b) => lessEqual(a, b)),
  minimum: binary((a, b) => less(a, b), (a, b) => greaterEqual(a, b)),
  logaddexp: binary((a, b) => sigmoid(subtract(a, b)), (a, b) => sigmoid(subtract(b, a))),
  arctan2: binary(
    (a, b) => divide(b, add(square(a), square(b))),
    (a, b) => negative(divide(a, add(square(a), square(b)))),
  ),
};

/** A row; those of bits and of questions do not move with their operands. */
function derivativeOf(step: Step): DerivativeRow {
  return ROWS[attrsOf(step.entry, "elementwise").fn] ?? "zero";
}

function product(by: Partial, value: AnyTensor, conjugate: boolean): AnyTensor | undefined {
  if (by === undefined || by === 0) return undefined;
  if (by === 1) return value;
  if (typeof by === "number") return by === -1 ? negative(value) : multiply(value, by) as AnyTensor;
  // A partial derivative that is a bool keeps the dtype of the other factor.
  if (by.dtype.kind === "bool") return where(by, value, 0) as AnyTensor;
  return multiply(value, conjugate ? conjugated(by) : by) as AnyTensor;
}

const vjp: Vjp = (step, c) => {
  const row = derivativeOf(step);
  if (row === "zero") return [];
  if (typeof row === "object") return row.vjp(step, c);
  return row(step).map((partial, i) => {
    const input = step.entry.inputs[i];
    if (!step.wants(i)) return undefined;
    const value = product(partial(), c, true);
    return value && wrap(castNode(nodeOf(sumTo(value, input.shape)), input.dtype));
  });
};

const jvp: Jvp = (step, tangents) => {
  const row = derivativeOf(step);
  if (row === "zero") return undefined;
  if (typeof row === "object") return row.jvp(step, tangents);
  const parts = row(step).flatMap((partial, i) => {
    const t = tangents[i];
    const part = t && product(partial(), t, false);
    return part ? [part] : [];
  });
  if (parts.length === 0) return undefined;
  return asLike(parts.reduce((a, b) => add(a, b) as AnyTensor), step.entry);
};

const vmap: Vmap = (entry, inputs, batched, size) => {
  const rank = entry.shape.length;
  // Broadcasting aligns last axes: ones between the batch and the axes of an input make it as long as the result.
  const wide = inputs.map((node, i) => {
    const own = node.shape.length - 1;
    return batched[i]
      ? reshapeNode(node, [node.shape[0], ...new Array(rank - own).fill(1), ...node.shape.slice(1)])
      : node;
  });
  return makeNode("elementwise", wide, [size, ...entry.shape], entry.dtype, attrsOf(entry, "elementwise"));
};

/** The rules of `elementwise`. */
export const ELEMENTWISE: OpRules = { vjp, jvp, vmap };

/** Names of rows with derivatives, be they 0. */
export const DIFFERENTIABLE: readonly string[] = Object.keys(ROWS);

/** Names of rows of bits and of questions. */
export const CONSTANT: readonly string[] = [
  ...["logical_not", "logical_and", "logical_or", "isnan", "isinf", "isposinf", "isneginf", "isfinite"],
  ...["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"],
  ...["bitwise_invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"],
];
