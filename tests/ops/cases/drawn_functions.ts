/**
 * Families of functions of one array, elementwise: over all dtypes, layouts and classes of values.
 */

import { erf, erfinv, map, roundEven } from "../../support/oracles/oracle.ts";
import type { TypeName } from "./case.ts";
import { ALL_TYPES, type Draw, floatOf, INTEGERS, isFloat, stored, type Values } from "./draw.ts";
import { FLOATS } from "./case.ts";
import { call, type Drawn, elementTolerance, type Families, named } from "./family.ts";

type Scalar = (v: number) => number;
type Range = readonly [number, number];

const EVERY: readonly Values[] = ["special", "special", "special", "tiny", "huge", "zeros", "bits"];
/** Without numbers beyond float32's range of angles. */
const ANGLES: readonly Values[] = ["mild", "mild", "tiny", "zeros", [-1e5, 1e5]];

/** Functions that give floats: of integers float32. */
const FLOAT: Readonly<
  Record<string, readonly [f: Scalar, range: Range, classes?: readonly Values[], absolute?: number]>
> = {
  sqrt: [Math.sqrt, [0, 9]],
  rsqrt: [(x) => 1 / Math.sqrt(x), [0.1, 9]],
  reciprocal: [(x) => 1 / x, [-9, 9]],
  exp: [Math.exp, [-9, 9]],
  expm1: [Math.expm1, [-3, 3]],
  log: [Math.log, [0, 20]],
  log2: [Math.log2, [0, 20]],
  log10: [Math.log10, [0, 20]],
  log1p: [Math.log1p, [-1, 5]],
  sin: [Math.sin, [-30, 30], ANGLES],
  cos: [Math.cos, [-30, 30], ANGLES],
  tan: [Math.tan, [-1.5, 1.5], ANGLES],
  arcsin: [Math.asin, [-1, 1]],
  arccos: [Math.acos, [-1, 1]],
  arctan: [Math.atan, [-9, 9]],
  sinh: [Math.sinh, [-9, 9]],
  cosh: [Math.cosh, [-9, 9]],
  tanh: [Math.tanh, [-9, 9]],
  arcsinh: [Math.asinh, [-9, 9]],
  arccosh: [Math.acosh, [1, 9]],
  arctanh: [Math.atanh, [-1, 1]],
  erf: [erf, [-4, 4]],
  erfinv: [erfinv, [-1, 1]],
  sigmoid: [(x) => 1 / (1 + Math.exp(-x)), [-9, 9], EVERY, 2 ** -126], // exp(89) overflows
  degrees: [(x) => x * (180 / Math.PI), [-9, 9]],
  radians: [(x) => x * (Math.PI / 180), [-900, 900]],
};

/** Functions that keep the dtype. */
const SAME: Readonly<Record<string, readonly [f: Scalar, types: readonly TypeName[]]>> = {
  abs: [Math.abs, ALL_TYPES],
  negative: [(x) => -x, [...FLOATS, ...INTEGERS]],
  sign: [(x) => x > 0 ? 1 : x < 0 ? -1 : 0, ALL_TYPES], // of NaN 0, and 0 of either sign, as in MLX
  ceil: [Math.ceil, ALL_TYPES],
  floor: [Math.floor, ALL_TYPES],
  trunc: [Math.trunc, ALL_TYPES],
  round: [(x) => Number.isFinite(x) ? roundEven(x) : x, ALL_TYPES],
  bitwiseInvert: [(x) => ~x, INTEGERS],
};

/** Questions: bool. */
const TESTS: Readonly<Record<string, Scalar>> = {
  logicalNot: (x) => Number(x === 0),
  isnan: (x) => Number(Number.isNaN(x)),
  isinf: (x) => Number(Math.abs(x) === Infinity),
  isposinf: (x) => Number(x === Infinity),
  isneginf: (x) => Number(x === -Infinity),
  isfinite: (x) => Number(Number.isFinite(x)),
};

const sigmoid: Scalar = (x) => 1 / (1 + Math.exp(-x));
const softplus: Scalar = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** Activations: each is several functions, with a rounding after each in 16 bits. */
const COMPOSED: Readonly<
  Record<string, readonly [f: (x: number, p: number) => number, parameters?: readonly number[]]>
> = {
  "nn.relu": [(x) => Math.max(x, 0)],
  "nn.leakyRelu": [(x, p) => Math.max(x * p, x), [0.01, 0.2]],
  "nn.elu": [(x, p) => x > 0 ? x : Math.expm1(x) * p, [1, 0.5]],
  "nn.silu": [(x) => x * sigmoid(x)],
  "nn.gelu": [(x) => Math.fround(x * (erf(x / Math.SQRT2) + 1)) / 2],
  "nn.geluApprox": [(x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * x * (1 + 0.044715 * x * x)))],
  "nn.softplus": [(x) => Number.isNaN(x) ? x : softplus(x)],
  "nn.relu2": [(x) => Math.max(x, 0) ** 2],
  "nn.relu6": [(x) => Math.min(Math.max(x, 0), 6)],
  "nn.celu": [(x, p) => Math.max(x, 0) + p * Math.expm1(Math.min(x, 0) / p), [1, 2]],
  "nn.selu": [(x) => 1.0507 * (x > 0 ? x : 1.67326 * Math.expm1(x))],
  "nn.softsign": [(x) => x / (1 + Math.abs(x))],
  "nn.softshrink": [(x, p) => Math.abs(x) > p ? x - Math.sign(x) * p : 0, [0.5, 2]],
  "nn.hardShrink": [(x, p) => Math.abs(x) > p ? x : 0, [0.5, 2]],
  "nn.hardTanh": [(x, p) => Math.min(Math.max(x, p), 1), [-1, -0.25]],
  "nn.hardswish": [(x) => x * Math.min(Math.max(x + 3, 0), 6) / 6],
  "nn.mish": [(x) => x * Math.tanh(softplus(x))],
  "nn.geluFastApprox": [(x) => x * sigmoid(1.702 * x)],
  "nn.logSigmoid": [(x) => Number.isNaN(x) ? x : -softplus(-x)],
};

/** Oracles of the functions that are one row of shaders/include/elementwise.h, and of silu, by name. */
export const FUNCTIONS: Readonly<Record<string, Scalar>> = {
  ...Object.fromEntries(Object.entries({ ...FLOAT, ...SAME }).map(([name, [f]]) => [name, f])),
  ...TESTS,
  square: (x) => x * x,
  silu: COMPOSED["nn.silu"][0] as Scalar,
};

function float(
  name: string,
  f: Scalar,
  range: Range,
  classes: readonly Values[],
  absolute?: number,
): (d: Draw) => Drawn {
  return (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const input = d.input(d.shape(), dtype, isFloat(dtype) ? d.class(range, classes) : [-100, 100]);
    return {
      inputs: [input],
      run: (mx, x) => call(mx, name, x),
      oracle: ([x]) => map(f, x),
      tolerance: elementTolerance(floatOf(dtype)),
      dtype: floatOf(dtype),
      classes: "zeros",
      absolute,
    };
  };
}

/** Functions of one array. */
export function drawnFunctions(): Families {
  const families: Families = {};
  for (const [name, [f, range, classes = EVERY, absolute]] of Object.entries(FLOAT)) {
    families[name] = float(name, f, range, classes, absolute);
  }
  for (const [name, [f, types]] of Object.entries(SAME)) {
    families[name] = (d) => {
      const dtype = d.dtype(types);
      return {
        inputs: [d.input(d.shape(), dtype, isFloat(dtype) ? d.class([-9, 9], EVERY) : "special")],
        run: (mx, x) => call(mx, name, x),
        oracle: ([x]) => map((v) => isFloat(dtype) ? f(v) : stored(dtype, f(v)), x),
        tolerance: 0,
        dtype,
        classes: name === "sign" ? "values" : "zeros",
      };
    };
  }
  families.positive = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    return {
      inputs: [d.input(d.shape(), dtype, isFloat(dtype) ? d.class([-9, 9], EVERY) : "special")],
      run: (mx, [x]) => mx.positive(x),
      oracle: ([x]) => x,
      tolerance: 0,
      dtype,
      classes: "zeros",
    };
  };
  families.square = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    return {
      inputs: [d.input(d.shape(), dtype, isFloat(dtype) ? d.class([-9, 9], EVERY) : "special")],
      run: (mx, [x]) => mx.square(x),
      oracle: ([x]) => map((v) => isFloat(dtype) ? v * v : stored(dtype, Math.imul(v, v)), x),
      tolerance: elementTolerance(dtype),
      dtype,
      classes: "zeros",
    };
  };
  families.round = (d) => {
    const decimals = d.pick([0, 0, 1, 2, -1]);
    const dtype = d.dtype(decimals === 0 ? ALL_TYPES : FLOATS);
    const scale = 10 ** Math.abs(decimals);
    // Halves of the scaled number decide: the oracle scales in float32 as well, 16-bit types round that product once more.
    const step = (v: number): number => isFloat(dtype) ? stored(dtype, Math.fround(v)) : v;
    const round = (v: number): number => !Number.isFinite(v) ? v : roundEven(v);
    return {
      what: `${decimals} decimals`,
      inputs: [d.input(d.shape(), dtype, isFloat(dtype) ? d.class([-90, 90], decimals === 0 ? EVERY : []) : "special")],
      run: (mx, [x]) => mx.round(x, decimals),
      oracle: ([x]) =>
        map((v) => {
          if (decimals === 0) return round(v);
          return decimals > 0 ? step(round(step(v * scale))) / scale : step(round(step(v / scale))) * scale;
        }, x),
      tolerance: decimals === 0 ? 0 : elementTolerance(dtype),
      dtype,
      classes: "values",
    };
  };
  for (const [name, f] of Object.entries(TESTS)) {
    families[name] = (d) => {
      const dtype = d.dtype(ALL_TYPES);
      return {
        inputs: [d.input(d.shape(), dtype, d.class([-2, 2], ["special", "special", "tiny", "huge", "zeros"]))],
        run: (mx, x) => call(mx, name, x),
        oracle: ([x]) => map(f, x),
        tolerance: 0,
        dtype: "bool",
        classes: "values",
      };
    };
  }
  for (const [name, [f, parameters = []]] of Object.entries(COMPOSED)) {
    families[name] = (d) => {
      const dtype = d.dtype(FLOATS);
      const p = d.pick([...parameters, 0]);
      const wide = dtype === "float32";
      return {
        what: p === 0 ? "" : `${p}`,
        inputs: [d.input(d.shape(), dtype, d.class([-8, 8], wide ? ["special", "tiny", "zeros", "huge"] : []))],
        run: (mx, [x]) => p === 0 ? named(mx, name)(x) : named(mx, name)(x, p),
        oracle: ([x]) => map((v) => f(v, p || (parameters[0] ?? 0)), x),
        tolerance: wide ? 1e-7 : 1e-4,
        dtype,
        classes: wide ? "values" : undefined,
        absolute: { float32: 3e-7, float16: 5e-3, bfloat16: 5e-2 }[dtype], // sums of nearly opposite numbers
      };
    };
  }
  families.nanToNum = (d) => {
    const dtype = d.dtype([...FLOATS, "int32"] as const);
    const [nan, high, low] = d.chance(0.5) ? [0, undefined, undefined] : [d.int(-3, 3), 77, -55];
    const most = { float32: 3.4028234663852886e38, bfloat16: 3.3895313892515355e38, float16: 65504, int32: 0 }[dtype];
    return {
      what: `${nan} ${high} ${low}`,
      inputs: [d.input(d.shape(), dtype, "special")],
      run: (mx, [x]) => mx.nanToNum(x, nan, high, low),
      oracle: ([x]) =>
        map((v) => Number.isNaN(v) ? nan : v === Infinity ? high ?? most : v === -Infinity ? low ?? -most : v, x),
      tolerance: 0,
      dtype,
      classes: "zeros",
    };
  };
  families.astype = (d) => {
    const [from, to] = [d.dtype(ALL_TYPES), d.dtype(ALL_TYPES)];
    // A float out of range is saturated to 32 bits, of which small types keep the low ones.
    const whole: Scalar = (v) => {
      const [low, high] = to.startsWith("u") ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1];
      return Number.isNaN(v) ? 0 : Math.min(high, Math.max(low, Math.trunc(v)));
    };
    return {
      what: `to ${to}`,
      inputs: [d.input(d.shape(), from, isFloat(from) ? d.class([-300, 300], EVERY) : "special")],
      run: (mx, [x]) => d.chance(0.5) ? mx.astype(x, mx[to]) : x.astype(mx[to]),
      oracle: ([x]) =>
        map((v) => isFloat(to) || to === "bool" ? stored(to, v) : stored(to, isFloat(from) ? whole(v) : v), x),
      tolerance: 0,
      dtype: to,
      classes: "zeros",
    };
  };
  return families;
}
