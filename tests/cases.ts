/**
 * THE case table: every op with its inputs, its oracle and its tolerance. Tests run it on every device, the bench times it.
 *
 * A row names the op, the inputs (shape, dtype, range), how to call it and the same thing in float64 (oracle.ts). Tolerances
 * are normalised mean squared errors: 1e-7 for float32, 1e-5 for 16-bit elementwise, 5e-4 for products in 16 bits; integers
 * and indices are exact.
 */

import type * as Mx from "../mod.ts";
import {
  broadcast,
  build,
  type Dense,
  dense,
  map,
  matmul,
  ravel,
  read,
  reduce,
  rows,
  size,
  transpose,
} from "./oracle.ts";

/** The library, passed in so that this file stays free of side effects. */
export type Library = typeof Mx;
type Tensor = Mx.Tensor;

/** Names of dtypes in the table. */
export type TypeName = "bool" | "uint8" | "uint32" | "int32" | "float16" | "bfloat16" | "float32";

/** One input: random numbers of a dtype in [low, high), seen through a view when asked for. */
export interface Input {
  readonly shape: readonly number[];
  readonly dtype: TypeName;
  readonly low?: number;
  readonly high?: number;
  /** Stored with the last two axes swapped, or every other element of a larger array, or reversed. */
  readonly layout?: "transposed" | "strided" | "reversed";
}

/** A row of the table. */
export interface Case {
  readonly op: string;
  readonly what: string;
  readonly inputs: readonly Input[];
  readonly run: (mx: Library, x: Tensor[]) => Tensor;
  readonly oracle: (x: Dense[]) => Dense;
  /** NMSE bound; 0 demands equality. */
  readonly tolerance: number;
}

const FLOATS = ["float32", "float16", "bfloat16"] as const;
const EXACT = 0;

function tolerance(dtype: TypeName): number {
  return dtype === "float32" ? 1e-7 : dtype === "float16" || dtype === "bfloat16" ? 1e-5 : EXACT;
}

/** Rounding of a bfloat16 result alone is worth 2^-18; products of 16-bit numbers get the bound of the field. */
function productTolerance(dtype: TypeName): number {
  return dtype === "float32" ? 1e-7 : 5e-4;
}

const SHAPES: readonly (readonly number[])[] = [[], [0], [1], [7], [257], [3, 1, 5], [2, 3, 4, 5]];

type Scalar = (...v: number[]) => number;
type Range = readonly [number, number];

function erf(x: number): number {
  // Series for small arguments, continued fraction for large ones; both to double precision.
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; n < 80; n++) {
      term *= -x * x / n;
      sum += term / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let f = 0;
  for (let n = 60; n > 0; n--) f = n / 2 / (a + f);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + f));
}

function erfinv(y: number): number {
  let x = 0;
  for (let i = 0; i < 60; i++) x -= (erf(x) - y) / (2 / Math.sqrt(Math.PI) * Math.exp(-x * x));
  return x;
}

function roundEven(x: number): number {
  const r = Math.round(x);
  return Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : r;
}

const sigmoid: Scalar = (x) => 1 / (1 + Math.exp(-x));
const remainder: Scalar = (a, b) => a - Math.floor(a / b) * b;
const logaddexp: Scalar = (a, b) => Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));

const UNARY: readonly (readonly [string, Scalar, Range])[] = [
  ["abs", Math.abs, [-3, 3]],
  ["negative", (x) => -x, [-3, 3]],
  ["sign", Math.sign, [-3, 3]],
  ["square", (x) => x * x, [-3, 3]],
  ["sqrt", Math.sqrt, [0, 9]],
  ["rsqrt", (x) => 1 / Math.sqrt(x), [0.1, 9]],
  ["reciprocal", (x) => 1 / x, [0.2, 9]],
  ["exp", Math.exp, [-5, 5]],
  ["expm1", Math.expm1, [-1, 2]],
  ["log", Math.log, [0.01, 20]],
  ["log2", Math.log2, [0.01, 20]],
  ["log10", Math.log10, [0.01, 20]],
  ["log1p", Math.log1p, [-0.5, 5]],
  ["sin", Math.sin, [-30, 30]],
  ["cos", Math.cos, [-30, 30]],
  ["tan", Math.tan, [-1.4, 1.4]],
  ["arcsin", Math.asin, [-1, 1]],
  ["arccos", Math.acos, [-1, 1]],
  ["arctan", Math.atan, [-9, 9]],
  ["sinh", Math.sinh, [-4, 4]],
  ["cosh", Math.cosh, [-4, 4]],
  ["tanh", Math.tanh, [-4, 4]],
  ["arcsinh", Math.asinh, [-9, 9]],
  ["arccosh", Math.acosh, [1, 9]],
  ["arctanh", Math.atanh, [-0.9, 0.9]],
  ["erf", erf, [-3, 3]],
  ["erfinv", erfinv, [-0.95, 0.95]],
  ["sigmoid", sigmoid, [-8, 8]],
  ["ceil", Math.ceil, [-9, 9]],
  ["floor", Math.floor, [-9, 9]],
  ["round", roundEven, [-9, 9]],
  ["silu", (x) => x * sigmoid(x), [-8, 8]],
];

const BINARY: readonly (readonly [string, Scalar, Range, boolean])[] = [
  // name, oracle, range, also on integers
  ["add", (a, b) => a + b, [-9, 9], true],
  ["subtract", (a, b) => a - b, [-9, 9], true],
  ["multiply", (a, b) => a * b, [-9, 9], true],
  ["divide", (a, b) => a / b, [1, 9], false],
  ["remainder", remainder, [1, 90], true],
  ["floorDivide", (a, b) => Math.floor(a / b), [1, 90], true],
  ["power", Math.pow, [0.2, 3], false],
  ["maximum", Math.max, [-9, 9], true],
  ["minimum", Math.min, [-9, 9], true],
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

function* elementwise(): Generator<Case> {
  for (const [op, f, [low, high]] of UNARY) {
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

const sum = (v: number[]): number => v.reduce((a, b) => a + b, 0);
const maxOf = (v: number[]): number => v.reduce((a, b) => Math.max(a, b), -Infinity);
const logsumexp = (v: number[]): number => {
  const m = maxOf(v);
  return m === -Infinity ? m : m + Math.log(sum(v.map((x) => Math.exp(x - m))));
};

const REDUCE: readonly (readonly [string, (v: number[]) => number])[] = [
  ["sum", sum],
  ["prod", (v) => v.reduce((a, b) => a * b, 1)],
  ["max", maxOf],
  ["min", (v) => -maxOf(v.map((x) => -x))],
  ["mean", (v) => sum(v) / v.length],
  ["variance", (v) => sum(v.map((x) => (x - sum(v) / v.length) ** 2)) / v.length],
  ["logsumexp", logsumexp],
  ["argmax", (v) => v.indexOf(maxOf(v))],
  ["argmin", (v) => v.indexOf(-maxOf(v.map((x) => -x)))],
  ["all", (v) => Number(v.every((x) => x !== 0))],
  ["any", (v) => Number(v.some((x) => x !== 0))],
];

type AxisOp = (x: Tensor, axis?: number | number[], keepdims?: boolean) => Tensor;

function* reductions(): Generator<Case> {
  const shapes: readonly (readonly [readonly number[], number | number[]])[] = [
    [[7], 0],
    [[3, 257], 1],
    [[3, 257], 0],
    [[2, 3, 4, 5], [1, 3]],
    [[2, 3, 4, 5], [0, 2]],
    [[5, 1], -1],
  ];
  for (const [op, f] of REDUCE) {
    for (const [shape, axis] of shapes) {
      if (op.startsWith("arg") && Array.isArray(axis)) continue;
      for (const dtype of ["float32", "bfloat16", "int32"] as const) {
        const index = op.startsWith("arg") || op === "all" || op === "any";
        if (dtype === "int32" && ["mean", "variance", "logsumexp", "prod"].includes(op)) continue;
        if (dtype === "bfloat16" && shape.length > 2) continue;
        // Products of many numbers leave float32's range unless they are near 1.
        const [low, high] = op === "prod" ? [0.9, 1.1] : [-1, op === "all" ? 9 : 1.5];
        const inputs: Input[] = [{ shape, dtype, low, high }];
        const axes = [axis].flat().map((a) => a < 0 ? a + shape.length : a);
        yield {
          op,
          what: `${dtype} (${shape}) over ${axis}`,
          inputs,
          run: (mx, [x]) => (mx as unknown as Record<string, AxisOp>)[op](x, axis),
          oracle: ([x]) => reduce(x, axes, false, f),
          // 16-bit sums are rounded once, when they are stored.
          tolerance: index || dtype === "int32" ? EXACT : dtype === "float32" ? 1e-7 : 2e-5,
        };
      }
    }
  }
  const big: Input[] = [{ shape: [2, 200003], dtype: "float32", low: -1, high: 1.5 }];
  yield {
    op: "sum",
    what: "two stages",
    inputs: big,
    run: (mx, [x]) => mx.sum(x, 1),
    oracle: ([x]) => reduce(x, [1], false, sum),
    tolerance: 1e-9,
  };
  yield {
    op: "max",
    what: "two stages",
    inputs: big,
    run: (mx, [x]) => mx.max(x, 1),
    oracle: ([x]) => reduce(x, [1], false, maxOf),
    tolerance: EXACT,
  };
  yield {
    op: "argmax",
    what: "200003 columns",
    inputs: big,
    run: (mx, [x]) => mx.argmax(x, 1),
    oracle: ([x]) => reduce(x, [1], false, (v) => v.indexOf(maxOf(v))),
    tolerance: EXACT,
  };
  const softmax = (v: number[]): number[] => v.map((x) => Math.exp(x - logsumexp(v)));
  for (const dtype of FLOATS) {
    for (const [shape, axis] of [[[3, 257], -1], [[4, 5, 6], 1], [[1, 1], -1], [[2, 3000], 1]] as const) {
      const inputs: Input[] = [{ shape, dtype, low: -9, high: 9 }];
      const at = axis < 0 ? axis + shape.length : axis;
      yield {
        op: "softmax",
        what: `${dtype} (${shape})`,
        inputs,
        run: (mx, [x]) => mx.softmax(x, axis),
        oracle: ([x]) => rows(x, at, softmax),
        tolerance: dtype === "float32" ? 1e-7 : 2e-5,
      };
    }
  }
  for (const [axis, shape] of [[0, [5]], [1, [3, 300]], [0, [300, 3]]] as const) {
    const inputs: Input[] = [{ shape, dtype: "float32", low: -1, high: 1 }];
    const scan = (v: number[]): number[] => v.map((_, i) => sum(v.slice(0, i + 1)));
    yield {
      op: "cumsum",
      what: `(${shape})`,
      inputs,
      run: (mx, [x]) => mx.cumsum(x, axis),
      oracle: ([x]) => rows(x, axis, scan),
      tolerance: 1e-7,
    };
    yield {
      op: "cumsum",
      what: `(${shape}) reverse exclusive`,
      inputs,
      run: (mx, [x]) => mx.cumsum(x, axis, { reverse: true, inclusive: false }),
      oracle: ([x]) => rows(x, axis, (v) => v.map((_, i) => sum(v.slice(i + 1)))),
      tolerance: 1e-7,
    };
  }
  for (const shape of [[1], [2, 7], [3, 1025], [2, 3, 64]]) {
    const inputs: Input[] = [{ shape, dtype: "float32", low: -4, high: 4 }];
    const last = shape.length - 1;
    const order = (v: number[]): number[] => v.map((_, i) => i).sort((a, b) => v[a] - v[b] || a - b);
    yield {
      op: "sort",
      what: `(${shape})`,
      inputs,
      run: (mx, [x]) => mx.sort(x),
      oracle: ([x]) => rows(x, last, (v) => [...v].sort((a, b) => a - b)),
      tolerance: EXACT,
    };
    yield {
      op: "argsort",
      what: `(${shape})`,
      inputs,
      run: (mx, [x]) => mx.argsort(x),
      oracle: ([x]) => rows(x, last, order),
      tolerance: EXACT,
    };
  }
}

function* movement(): Generator<Case> {
  const x: Input[] = [{ shape: [4, 5, 6], dtype: "float32" }];
  const at = (f: (at: number[], x: Dense) => number, shape: readonly number[]) => ([x]: Dense[]): Dense =>
    build(shape, (i) => f(i, x));
  yield {
    op: "transpose",
    what: "then reshape copies",
    inputs: x,
    run: (mx, [x]) => mx.reshape(mx.transpose(x, [2, 0, 1]), [6, 20]),
    oracle: ([x]) => ({ ...transpose(x, [2, 0, 1]), shape: [6, 20] }),
    tolerance: EXACT,
  };
  yield {
    op: "index",
    what: "negative step",
    inputs: x,
    run: (mx, [x]) => x.index(mx.Slice(null, null, -1), 2, mx.Slice(1, null, 2)),
    oracle: at(([i, j], x) => read(x, [3 - i, 2, 1 + 2 * j]), [4, 3]),
    tolerance: EXACT,
  };
  yield {
    op: "index",
    what: "ellipsis and new axis",
    inputs: x,
    run: (_mx, [x]) => x.index(null, "...", -1),
    oracle: at(([, i, j], x) => read(x, [i, j, 5]), [1, 4, 5]),
    tolerance: EXACT,
  };
  yield {
    op: "concatenate",
    what: "three along 1",
    inputs: [x[0], { shape: [4, 0, 6], dtype: "float32" }, {
      shape: [4, 2, 6],
      dtype: "float32",
      layout: "transposed",
    }],
    run: (mx, list) => mx.concatenate(list, 1),
    oracle: ([a, , c]) => build([4, 7, 6], ([i, j, k]) => j < 5 ? read(a, [i, j, k]) : read(c, [i, j - 5, k])),
    tolerance: EXACT,
  };
  yield {
    op: "stack",
    what: "along 0",
    inputs: [x[0], x[0]],
    run: (mx, list) => mx.stack(list, 0),
    oracle: ([a, b]) => build([2, 4, 5, 6], ([s, ...i]) => read(s ? b : a, i)),
    tolerance: EXACT,
  };
  yield {
    op: "broadcastTo",
    what: "materialised",
    inputs: [{ shape: [4, 1], dtype: "float32" }],
    run: (mx, [x]) => mx.contiguous(mx.broadcastTo(x, [3, 4, 5])),
    oracle: at(([, i], x) => x.data[i], [3, 4, 5]),
    tolerance: EXACT,
  };
  yield {
    op: "repeat",
    what: "along 1",
    inputs: x,
    run: (mx, [x]) => mx.repeat(x, 3, 1),
    oracle: at(([i, j, k], x) => read(x, [i, Math.floor(j / 3), k]), [4, 15, 6]),
    tolerance: EXACT,
  };
  yield {
    op: "tile",
    what: "(2, 1)",
    inputs: [{ shape: [3, 2], dtype: "float32" }],
    run: (mx, [x]) => mx.tile(x, [2, 1]),
    oracle: at(([i, j], x) => read(x, [i % 3, j]), [6, 2]),
    tolerance: EXACT,
  };
  yield {
    op: "pad",
    what: "one side",
    inputs: [{ shape: [3, 2], dtype: "float32" }],
    run: (mx, [x]) => mx.pad(x, [[1, 0], [0, 2]]),
    oracle: at(([i, j], x) => i >= 1 && j < 2 ? read(x, [i - 1, j]) : 0, [4, 4]),
    tolerance: EXACT,
  };
  for (const dtype of ["uint8", "float16", "float32", "int32"] as const) {
    for (const inner of [1, 3, 8]) {
      const inputs: Input[] = [{ shape: [9, inner], dtype, low: 0, high: 50 }, {
        shape: [2, 5],
        dtype: "int32",
        low: -9,
        high: 9,
      }];
      yield {
        op: "take",
        what: `${dtype} rows of ${inner}`,
        inputs,
        run: (mx, [x, i]) => mx.take(x, i, 0),
        oracle: ([x, i]) => build([2, 5, inner], ([a, b, c]) => read(x, [(read(i, [a, b]) + 9) % 9, c])),
        tolerance: EXACT,
      };
    }
  }
  const along: Input[] = [{ shape: [3, 7, 2], dtype: "float32" }, {
    shape: [3, 4, 2],
    dtype: "int32",
    low: 0,
    high: 7,
  }];
  yield {
    op: "takeAlongAxis",
    what: "axis 1",
    inputs: along,
    run: (mx, [x, i]) => mx.takeAlongAxis(x, i, 1),
    oracle: ([x, i]) => build([3, 4, 2], ([a, b, c]) => read(x, [a, read(i, [a, b, c]), c])),
    tolerance: EXACT,
  };
  const unique = [4, 0, 6];
  yield {
    op: "putAlongAxis",
    what: "axis 1",
    inputs: [{ shape: [2, 7], dtype: "float32" }, { shape: [2, 3], dtype: "float32" }],
    run: (mx, [x, v]) => mx.putAlongAxis(x, mx.array([unique, unique], mx.int32), v, 1),
    oracle: ([x, v]) =>
      build([2, 7], ([i, j]) => unique.includes(j) ? read(v, [i, unique.indexOf(j)]) : read(x, [i, j])),
    tolerance: EXACT,
  };
  yield {
    op: "at.add",
    what: "repeated indices add up",
    inputs: [{ shape: [5, 3], dtype: "float32" }, { shape: [4, 3], dtype: "float32" }],
    run: (mx, [x, v]) => x.at(mx.array([1, 3, 1, 1], mx.int32)).add(v),
    oracle: ([x, v]) =>
      build(
        [5, 3],
        ([i, j]) => read(x, [i, j]) + [1, 3, 1, 1].reduce((s, at, r) => s + (at === i ? read(v, [r, j]) : 0), 0),
      ),
    tolerance: 1e-12,
  };
  yield {
    op: "sliceUpdate",
    what: "start from an array, clamped",
    inputs: [{ shape: [4, 6], dtype: "float32" }, { shape: [2, 3], dtype: "float32" }],
    run: (mx, [x, u]) => mx.sliceUpdate(x, u, mx.array([9, 1], mx.int32), [0, 1]),
    oracle: ([x, u]) =>
      build([4, 6], ([i, j]) => i >= 2 && j >= 1 && j < 4 ? read(u, [i - 2, j - 1]) : read(x, [i, j])),
    tolerance: EXACT,
  };
  yield {
    op: "slice",
    what: "start from an array",
    inputs: x,
    run: (mx, [x]) => mx.slice(x, mx.array([1, 3], mx.int32), [0, 2], [2, 5, 3]),
    oracle: at(([i, j, k], x) => read(x, [i + 1, j, k + 3]), [2, 5, 3]),
    tolerance: EXACT,
  };
}

function* products(): Generator<Case> {
  const shapes: readonly (readonly [readonly number[], readonly number[]])[] = [
    [[1, 1], [1, 1]],
    [[3, 5], [5, 7]],
    [[1, 300], [300, 33]],
    [[65, 70], [70, 67]],
    [[2, 3, 4, 5], [5, 6]],
    [[2, 1, 4, 5], [3, 5, 6]],
    [[3, 0], [0, 2]],
    [[0, 3], [3, 2]],
    [[129, 64], [64, 130]],
  ];
  for (const dtype of FLOATS) {
    for (const [a, b] of shapes) {
      for (const layout of [undefined, "transposed"] as const) {
        const inputs: Input[] = [{ shape: a, dtype, low: -1, high: 1 }, { shape: b, dtype, low: -1, high: 1, layout }];
        yield {
          op: "matmul",
          what: `${dtype} (${a}) @ (${b}) ${layout ?? ""}`,
          inputs,
          run: (mx, [x, y]) => mx.matmul(x, y),
          oracle: ([x, y]) => matmul(x, y),
          tolerance: productTolerance(dtype),
        };
      }
    }
  }
  for (const bits of [2, 3, 4, 5, 6, 8]) {
    for (const groupSize of [32, 64, 128]) {
      for (const [m, n, k] of [[1, 5, 256], [3, 64, 128], [9, 33, 256], [40, 70, 128]]) {
        if (bits !== 4 && bits !== 8 && m > 9) continue;
        const dtype = bits === 8 ? "bfloat16" : "float32";
        const inputs: Input[] = [{ shape: [m, k], dtype: "float32", low: -1, high: 1 }, {
          shape: [n, k],
          dtype,
          low: -1,
          high: 1,
        }];
        yield {
          op: "quantizedMatmul",
          what: `${bits} bits, groups of ${groupSize}, (${m}, ${k}) @ (${n}, ${k}).T`,
          inputs,
          run: (mx, [x, w]) => mx.quantizedMatmul(x, ...mx.quantize(w, groupSize, bits), true, groupSize, bits),
          oracle: ([x, w]) => matmul(x, transpose(quantizedValues(w, bits, groupSize, dtype), [1, 0])),
          tolerance: 1e-7,
        };
      }
    }
  }
  for (const m of [1, 12]) {
    const inputs: Input[] = [{ shape: [m, 24], dtype: "float32", low: -1, high: 1 }, {
      shape: [24, 128],
      dtype: "float32",
      low: -1,
      high: 1,
    }];
    yield {
      op: "quantizedMatmul",
      what: `not transposed, ${m} rows`,
      inputs,
      run: (mx, [x, w]) => mx.quantizedMatmul(x, ...mx.quantize(w, 32, 4), false, 32, 4),
      oracle: ([x, w]) => matmul(x, quantizedValues(w, 4, 32, "float32")),
      tolerance: 1e-7,
    };
  }
}

/** What MLX's affine quantization keeps of w (mlx's rule, in float32 steps where it rounds in float32). */
export function quantizedValues(w: Dense, bits: number, group: number, dtype: TypeName): Dense {
  const f = Math.fround;
  const levels = 2 ** bits - 1;
  const out = dense(w.shape, () => 0);
  for (let at = 0; at < w.data.length; at += group) {
    const v = w.data.subarray(at, at + group);
    const low = Math.min(...v);
    const high = Math.max(...v);
    const negative = Math.abs(low) > Math.abs(high);
    let scale = Math.max(f(f(high - low) / levels), f(1e-7));
    if (!negative) scale = -scale;
    const edge = negative ? low : high;
    const q0 = roundEven(f(edge / scale));
    let bias = 0;
    if (q0 !== 0) {
      scale = f(edge / q0);
      bias = edge;
    }
    const store = (x: number): number => dtype === "bfloat16" ? bf16(x) : x;
    for (let i = 0; i < group; i++) {
      const code = Math.min(levels, Math.max(0, roundEven(f(f(v[i] - bias) / scale))));
      out.data[at + i] = store(scale) * code + store(bias);
    }
  }
  return out;
}

function bf16(x: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  const u = view.getUint32(0);
  view.setUint32(0, ((u + 0x7fff + ((u >>> 16) & 1)) >>> 16) * 65536);
  return view.getFloat32(0);
}

function* fused(): Generator<Case> {
  const norm = (v: number[], eps: number): number[] =>
    v.map((x) => x / Math.sqrt(sum(v.map((y) => y * y)) / v.length + eps));
  for (const shape of [[1, 1], [3, 256], [2, 3, 100], [5, 1025]]) {
    for (const dtype of ["float32", "bfloat16"] as const) {
      const inputs: Input[] = [{ shape, dtype, low: -2, high: 2 }, {
        shape: shape.slice(-1),
        dtype,
        low: 0.5,
        high: 1.5,
      }];
      yield {
        op: "fast.rmsNorm",
        what: `${dtype} (${shape})`,
        inputs,
        run: (mx, [x, w]) => mx.fast.rmsNorm(x, w, 1e-5),
        oracle: ([x, w]) => map((a, b) => a * b, rows(x, shape.length - 1, (v) => norm(v, 1e-5)), w),
        tolerance: dtype === "float32" ? 1e-7 : 2e-5,
      };
    }
  }
  for (const traditional of [false, true]) {
    for (
      const [shape, dims, offset] of [[[1, 2, 3, 8], 8, 3], [[2, 3, 5, 64], 64, 40000], [[2, 3, 1, 32], 16, 7]] as const
    ) {
      const inputs: Input[] = [{ shape, dtype: "float32", low: -1, high: 1 }];
      yield {
        op: "fast.rope",
        what: `(${shape}) ${dims} at ${offset}${traditional ? " traditional" : ""}`,
        inputs,
        run: (mx, [x]) => mx.fast.rope(x, dims, { traditional, base: 1e6, scale: 1, offset }),
        oracle: ([x]) => ropeOracle(x, dims, traditional, 1e6, offset),
        tolerance: 1e-7,
      };
    }
  }
  const attention: readonly (readonly [number, number, number, number, number, number])[] = [
    // batch, heads, kv heads, queries, keys, head dimension
    [1, 1, 1, 1, 1, 8],
    [1, 4, 2, 1, 130, 128],
    [2, 4, 2, 7, 7, 64],
    [1, 8, 2, 33, 70, 128],
    [1, 2, 1, 3, 300, 96],
    [1, 16, 8, 1, 700, 128],
  ];
  for (const [b, h, hk, tq, tk, d] of attention) {
    const inputs: Input[] = [
      { shape: [b, h, tq, d], dtype: "float32", low: -1, high: 1 },
      { shape: [b, hk, tk, d], dtype: "float32", low: -1, high: 1 },
      { shape: [b, hk, tk, d], dtype: "float32", low: -1, high: 1 },
    ];
    const scale = 1 / Math.sqrt(d);
    for (const mask of [undefined, "causal"] as const) {
      yield {
        op: "fast.scaledDotProductAttention",
        what: `(${[b, h, tq, d]}) over ${hk} x ${tk} ${mask ?? ""}`,
        inputs,
        run: (mx, [q, k, v]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
        oracle: ([q, k, v]) =>
          attentionOracle(q, k, v, scale, (i, j) => mask === "causal" && j > i + tk - tq ? -Infinity : 0),
        tolerance: 1e-7,
      };
    }
    const bool: Input = { shape: [1, 1, tq, tk], dtype: "bool", low: 0, high: 2 };
    yield {
      op: "fast.scaledDotProductAttention",
      what: `(${[b, h, tq, d]}) over ${hk} x ${tk} boolean mask`,
      inputs: [...inputs, bool],
      run: (mx, [q, k, v, mask]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
      oracle: ([q, k, v, m]) => attentionOracle(q, k, v, scale, (i, j) => read(m, [0, 0, i, j]) ? 0 : -Infinity),
      tolerance: 1e-7,
    };
    yield {
      op: "fast.scaledDotProductAttention",
      what: `(${[b, h, tq, d]}) over ${hk} x ${tk} additive mask`,
      inputs: [...inputs, { shape: [tq, tk], dtype: "float32", low: -2, high: 2 }],
      run: (mx, [q, k, v, mask]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
      oracle: ([q, k, v, m]) => attentionOracle(q, k, v, scale, (i, j) => read(m, [i, j])),
      tolerance: 1e-7,
    };
  }
}

function ropeOracle(x: Dense, dims: number, traditional: boolean, base: number, offset: number): Dense {
  const half = dims / 2;
  return build(x.shape, (at) => {
    const [b, h, t, i] = at;
    if (i >= dims) return read(x, at);
    const pair = traditional ? i >> 1 : i % half;
    const second = traditional ? i % 2 === 1 : i >= half;
    const angle = (t + offset) * base ** (-2 * pair / dims);
    const first = traditional ? 2 * pair : pair;
    const other = traditional ? first + 1 : first + half;
    const x1 = read(x, [b, h, t, first]);
    const x2 = read(x, [b, h, t, other]);
    return second ? x1 * Math.sin(angle) + x2 * Math.cos(angle) : x1 * Math.cos(angle) - x2 * Math.sin(angle);
  });
}

function attentionOracle(q: Dense, k: Dense, v: Dense, scale: number, mask: (i: number, j: number) => number): Dense {
  const [b, h, tq, d] = q.shape;
  const [, hk, tk, dv] = v.shape;
  const out = dense([b, h, tq, dv], () => 0);
  for (let n = 0; n < b * h * tq; n++) {
    const [bi, hi, i] = [Math.floor(n / (h * tq)), Math.floor(n / tq) % h, n % tq];
    const g = Math.floor(hi / (h / hk));
    const scores = Array.from({ length: tk }, (_, j) => {
      let s = 0;
      for (let c = 0; c < d; c++) s += q.data[n * d + c] * k.data[ravel(k.shape, [bi, g, j, c])];
      return s * scale + mask(i, j);
    });
    const all = logsumexp(scores);
    if (all === -Infinity) continue; // nothing to attend to: zeros
    scores.forEach((s, j) => {
      const p = Math.exp(s - all);
      for (let c = 0; c < dv; c++) out.data[n * dv + c] += p * v.data[ravel(v.shape, [bi, g, j, c])];
    });
  }
  return out;
}

/** All rows. */
export function* cases(): Generator<Case> {
  yield* elementwise();
  yield* reductions();
  yield* movement();
  yield* products();
  yield* fused();
}

/** Elements of the largest input, to keep slow software devices out of big rows. */
export function largest(c: Case): number {
  return Math.max(...c.inputs.map((i) => size(broadcast(i.shape))));
}
