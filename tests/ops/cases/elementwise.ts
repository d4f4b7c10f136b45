/**
 * Rows of the case table: elementwise functions over dtypes, shapes and layouts; chains; casts.
 */

import { type Dense, map } from "../../support/oracles/oracle.ts";
import { type Case, EXACT, FLOATS, type Input, type Library, type Tensor, tolerance } from "./case.ts";
import { FUNCTIONS } from "./drawn_functions.ts";

const SHAPES: readonly (readonly number[])[] = [[], [0], [1], [7], [257], [3, 1, 5], [2, 3, 4, 5]];

/** A function of numbers. */
export type Scalar = (...v: number[]) => number;
type Range = readonly [number, number];

const sigmoid: Scalar = (x) => 1 / (1 + Math.exp(-x));
const remainder: Scalar = (a, b) => a - Math.floor(a / b) * b;
const logaddexp: Scalar = (a, b) => Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));

const UNARY: Readonly<Record<string, Range>> = {
  abs: [-3, 3],
  negative: [-3, 3],
  sign: [-3, 3],
  square: [-3, 3],
  sqrt: [0, 9],
  rsqrt: [0.1, 9],
  reciprocal: [0.2, 9],
  exp: [-5, 5],
  expm1: [-1, 2],
  log: [0.01, 20],
  log2: [0.01, 20],
  log10: [0.01, 20],
  log1p: [-0.5, 5],
  sin: [-30, 30],
  cos: [-30, 30],
  tan: [-1.4, 1.4],
  arcsin: [-1, 1],
  arccos: [-1, 1],
  arctan: [-9, 9],
  sinh: [-4, 4],
  cosh: [-4, 4],
  tanh: [-4, 4],
  arcsinh: [-9, 9],
  arccosh: [1, 9],
  arctanh: [-0.9, 0.9],
  erf: [-3, 3],
  erfinv: [-0.95, 0.95],
  sigmoid: [-8, 8],
  ceil: [-9, 9],
  floor: [-9, 9],
  round: [-9, 9],
  silu: [-8, 8],
};

const BINARY: readonly (readonly [string, Scalar, Range, boolean])[] = [
  // name, oracle, range, also on integers
  ["add", (a, b) => a + b, [-9, 9], true],
  ["subtract", (a, b) => a - b, [-9, 9], true],
  ["multiply", (a, b) => a * b, [-9, 9], true],
  ["divide", (a, b) => a / b, [1, 9], false],
  ["remainder", remainder, [1, 90], true],
  ["floorDivide", (a, b) => Math.floor(a / b), [1, 90], true],
  ["power", Math.pow, [0.2, 3], false],
  ["maximum", (a, b) => Math.max(a, b), [-9, 9], true],
  ["minimum", (a, b) => Math.min(a, b), [-9, 9], true],
  ["logaddexp", logaddexp, [-9, 9], false],
  ["arctan2", Math.atan2, [-9, 9], false],
  ["equal", (a, b) => Number(a === b), [0, 4], true],
  ["notEqual", (a, b) => Number(a !== b), [0, 4], true],
  ["less", (a, b) => Number(a < b), [0, 4], true],
  ["lessEqual", (a, b) => Number(a <= b), [0, 4], true],
  ["greater", (a, b) => Number(a > b), [0, 4], true],
  ["greaterEqual", (a, b) => Number(a >= b), [0, 4], true],
  ["logicalAnd", (a, b) => Number(a !== 0 && b !== 0), [0, 2], true],
  ["logicalOr", (a, b) => Number(a !== 0 || b !== 0), [0, 2], true],
];

const BITS: readonly (readonly [string, Scalar])[] = [
  ["bitwiseAnd", (a, b) => a & b],
  ["bitwiseOr", (a, b) => a | b],
  ["bitwiseXor", (a, b) => a ^ b],
  ["leftShift", (a, b) => a << b],
  ["rightShift", (a, b) => a >> b],
];

/** Oracles by name: of the functions of one array and of those above. */
export const ORACLES: Readonly<Record<string, Scalar>> = {
  ...FUNCTIONS,
  ...Object.fromEntries([...BINARY, ...BITS].map(([name, f]) => [name, f])),
};

const PAIRS: readonly (readonly [readonly number[], readonly number[]])[] = [
  [[257], [257]],
  [[3, 1, 5], [4, 1]],
  [[], [2, 3]],
  [[0, 3], [1, 3]],
  [[2, 1, 3, 1, 2, 1], [1, 2, 1, 3, 1, 2]], // alternates: no two dimensions merge
];

function call(mx: Library, name: string, x: Tensor[]): Tensor {
  return ({ ...mx, ...mx.nn } as unknown as Record<string, (...x: Tensor[]) => Tensor>)[name](...x);
}

/** Rows of elementwise functions, chains of them and casts. */
export function* elementwise(): Generator<Case> {
  for (const [op, [low, high]] of Object.entries(UNARY)) {
    const f = FUNCTIONS[op];
    for (const dtype of FLOATS) {
      for (const shape of dtype === "float32" ? SHAPES : [[257]]) {
        const inputs: Input[] = [{ shape, dtype, low, high }];
        yield {
          op,
          what: `${dtype} (${shape})`,
          inputs,
          run: (mx, x) => call(mx, op, x),
          oracle: ([x]) => map(f, x),
          tolerance: tolerance(dtype),
        };
      }
    }
    for (const layout of ["transposed", "strided", "reversed"] as const) {
      const inputs: Input[] = [{ shape: [5, 6], dtype: "float32", low, high, layout }];
      yield { op, what: layout, inputs, run: (mx, x) => call(mx, op, x), oracle: ([x]) => map(f, x), tolerance: 1e-7 };
    }
  }
  for (const [op, f, [low, high], integers] of BINARY) {
    for (const dtype of integers ? [...FLOATS, "int32", "uint32", "uint8"] as const : FLOATS) {
      const from = dtype.startsWith("u") ? Math.max(1, low) : low;
      for (const [a, b] of dtype === "float32" ? PAIRS : PAIRS.slice(1, 2)) {
        const inputs: Input[] = [{ shape: a, dtype, low: from, high }, { shape: b, dtype, low: from, high }];
        const oracle = ([x, y]: Dense[]): Dense => {
          // 8-bit results wrap.
          const out = map(f, x, y);
          return dtype === "uint8" || dtype === "uint32" ? map((v) => dtype === "uint8" ? v & 255 : v >>> 0, out) : out;
        };
        const wide = dtype === "float32" && op === "power" ? 1e-7 : tolerance(dtype);
        yield { op, what: `${dtype} (${a}) (${b})`, inputs, run: (mx, x) => call(mx, op, x), oracle, tolerance: wide };
      }
    }
  }
  for (const [op, f] of BITS) {
    for (const dtype of ["int32", "uint32", "uint8"] as const) {
      const inputs: Input[] = [{ shape: [4, 5], dtype, low: 0, high: 100 }, { shape: [5], dtype, low: 0, high: 5 }];
      const wrap: Scalar = dtype === "uint8" ? (v) => v & 255 : dtype === "uint32" ? (v) => v >>> 0 : (v) => v;
      yield {
        op,
        what: dtype,
        inputs,
        run: (mx, x) => call(mx, op, x),
        oracle: ([a, b]) => map((p, q) => wrap(f(p, q)), a, b),
        tolerance: EXACT,
      };
    }
  }
  const three: Input[] = [
    { shape: [3, 1], dtype: "bool", low: 0, high: 2 },
    { shape: [4], dtype: "float32", low: -3, high: 3 },
    { shape: [3, 4], dtype: "float32", low: -3, high: 3 },
  ];
  yield {
    op: "where",
    what: "broadcast",
    inputs: three,
    run: (mx, [c, a, b]) => mx.where(c, a, b),
    oracle: ([c, a, b]) => map((p, q, r) => p ? q : r, c, a, b),
    tolerance: EXACT,
  };
  // Chains longer than one kernel, with shared parts, immediates and a broadcast in the middle.
  const chain: Input[] = [{ shape: [4, 6], dtype: "float32", low: -2, high: 2 }, {
    shape: [6],
    dtype: "float32",
    low: 1,
    high: 2,
  }];
  yield {
    op: "chain",
    what: "nine steps",
    inputs: chain,
    run: (mx, [a, b]) =>
      mx.tanh(
        mx.add(
          mx.multiply(mx.sigmoid(mx.divide(mx.subtract(a, b), 3)), a),
          mx.exp(mx.negative(mx.abs(mx.add(b, 0.5)))),
        ),
      ),
    oracle: ([a, b]) => map((x, y) => Math.tanh(sigmoid((x - y) / 3) * x + Math.exp(-Math.abs(y + 0.5))), a, b),
    tolerance: 1e-7,
  };
  for (const to of ["bool", "uint8", "uint32", "int32", "float16", "bfloat16", "float32"] as const) {
    for (const from of ["bool", "uint8", "int32", "float16", "float32"] as const) {
      const inputs: Input[] = [{ shape: [33], dtype: from, low: 0, high: from === "bool" ? 2 : 90 }];
      const cast: Scalar = to === "bool"
        ? (v) => Number(v !== 0)
        : to.startsWith("f") || to.startsWith("b")
        ? (v) => v
        : Math.trunc;
      yield {
        op: "astype",
        what: `${from} to ${to}`,
        inputs,
        run: (mx, [x]) => x.astype(mx[to]),
        oracle: ([x]) => map(cast, x),
        tolerance: tolerance(to),
      };
    }
  }
}
