/**
 * Families of functions of two and three arrays, elementwise: broadcast pairs, mixed dtypes, classes of values.
 */

import { type Dense, map } from "../../support/oracles/oracle.ts";
import { FLOATS, type TypeName } from "./case.ts";
import { ALL_TYPES, type Draw, floatOf, INTEGERS, isFloat, limitsOf, meet, stored, type Values } from "./draw.ts";
import { call, type Drawn, elementTolerance, type Families } from "./family.ts";

type Scalar = (a: number, b: number) => number;

const EVERY: readonly Values[] = ["special", "special", "tiny", "huge", "zeros", "bits"];

/** C's pow: 1 to any power and -1 to infinite ones is 1. */
const pow: Scalar = (a, b) => a === 1 || (a === -1 && Math.abs(b) === Infinity) ? 1 : a ** b;

const logaddexp: Scalar = (a, b) => {
  if (Number.isNaN(a) || Number.isNaN(b)) return NaN;
  const most = Math.max(a, b);
  return Math.abs(most) === Infinity ? most : most + Math.log1p(Math.exp(-Math.abs(a - b)));
};

/** Floored remainder: the sign of the divisor. */
const remainder: Scalar = (a, b) => {
  const r = a % b;
  return r !== 0 && (r < 0) !== (b < 0) ? r + b : r;
};

/** Powers of whole numbers, modulo 2^32. */
const wholePower: Scalar = (a, b) => {
  let y = 1;
  for (let i = 0; i < b; i++) y = Math.imul(y, a);
  return y;
};

interface ArithmeticRow {
  readonly float?: Scalar;
  readonly whole?: Scalar;
  /** The same of int64, where `whole` is not: uint32 and signed types meet in it. */
  readonly long?: (a: bigint, b: bigint) => bigint;
  readonly bool?: Scalar;
  /** float: integers give float32. */
  readonly gives?: "float" | "bool";
  readonly range?: readonly [number, number];
  /** Ranges of the second operand of whole types. */
  readonly second?: readonly [number, number];
  readonly classes?: readonly Values[];
  readonly zeros?: boolean;
  readonly absolute?: number;
  /** Exact in floats: one of the operands. */
  readonly exact?: boolean;
}

const compare = (f: Scalar): ArithmeticRow => ({ float: f, whole: f, bool: f, gives: "bool", range: [-3, 3] });
const bits = (f: Scalar, long: ArithmeticRow["long"]): ArithmeticRow => ({ whole: f, long, bool: f });

const ROWS: Readonly<Record<string, ArithmeticRow>> = {
  add: { float: (a, b) => a + b, whole: (a, b) => a + b, bool: (a, b) => a | b, zeros: true },
  subtract: { float: (a, b) => a - b, whole: (a, b) => a - b, bool: (a, b) => a ^ b, zeros: true },
  multiply: { float: (a, b) => a * b, whole: Math.imul, long: (a, b) => a * b, bool: (a, b) => a & b, zeros: true },
  divide: { float: (a, b) => a / b, gives: "float", zeros: true },
  remainder: {
    float: remainder,
    whole: (a, b) => b === 0 ? a : remainder(a, b),
    classes: ["special", "zeros", "tiny"],
  },
  floorDivide: {
    float: (a, b) => Math.floor(Math.fround(a / b)),
    whole: (a, b) => b === 0 ? 0 : Math.floor(a / b),
    classes: ["zeros"], // a GPU's quotient may be off by a bit, and then its floor by 1
  },
  power: { float: pow, whole: wholePower, long: (a, b) => a ** b, range: [-4, 4], second: [0, 9] },
  maximum: { float: Math.max, whole: Math.max, bool: Math.max, exact: true },
  minimum: { float: Math.min, whole: Math.min, bool: Math.min, exact: true },
  logaddexp: { float: logaddexp, gives: "float", absolute: 1e-6 },
  arctan2: { float: Math.atan2, gives: "float", zeros: true },
  equal: compare((a, b) => Number(a === b)),
  notEqual: compare((a, b) => Number(a !== b)),
  less: compare((a, b) => Number(a < b)),
  lessEqual: compare((a, b) => Number(a <= b)),
  greater: compare((a, b) => Number(a > b)),
  greaterEqual: compare((a, b) => Number(a >= b)),
  logicalAnd: compare((a, b) => Number(a !== 0 && b !== 0)),
  logicalOr: compare((a, b) => Number(a !== 0 || b !== 0)),
  logicalXor: compare((a, b) => Number((a !== 0) !== (b !== 0))),
  bitwiseAnd: bits((a, b) => a & b, (a, b) => a & b),
  bitwiseOr: bits((a, b) => a | b, (a, b) => a | b),
  bitwiseXor: bits((a, b) => a ^ b, (a, b) => a ^ b),
  leftShift: { whole: (a, b) => b > 31 ? 0 : a << b, long: (a, b) => b > 63n ? 0n : a << b, second: [0, 40] },
  rightShift: {
    whole: (a, b) => a < 0 ? Math.floor(a / 2 ** b) : Math.floor(a / 2 ** Math.min(b, 60)),
    second: [0, 40],
  },
};

/** Two dtypes: alike as a rule. */
function types(d: Draw, row: ArithmeticRow): [TypeName, TypeName] {
  const list = ALL_TYPES.filter((t) => isFloat(t) ? row.float : t === "bool" ? row.bool : row.whole ?? row.gives);
  const first = d.dtype(list);
  return [first, d.chance(0.25) ? d.dtype(list) : first];
}

function binary(name: string, row: ArithmeticRow): (d: Draw) => Drawn {
  return (d) => {
    const [ta, tb] = types(d, row);
    const common = meet(ta, tb);
    const domain = row.gives === "float" ? floatOf(common) : common;
    const result = row.gives === "bool" ? "bool" : domain;
    const [sa, sb] = d.pair();
    const [p, q] = d.chance(0.1) ? [sb, sa] : [sa, sb];
    const classes = row.classes ?? EVERY;
    const values = (t: TypeName): Values =>
      isFloat(t) ? d.class(row.range ?? [-9, 9], classes) : d.pick(["special", [-9, 9]]);
    const f = isFloat(domain) ? row.float! : domain === "bool" ? row.bool! : row.whole!;
    const cast = (v: number): number => stored(domain, v);
    const long = domain === "int64" ? row.long : undefined;
    return {
      inputs: [d.input(p, ta, values(ta)), d.input(q, tb, row.second && !isFloat(common) ? row.second : values(tb))],
      run: (mx, x) => call(mx, name, x),
      oracle: ([x, y]) =>
        map(
          (a, b) => {
            if (long) return Number(BigInt.asIntN(64, long(BigInt(a), BigInt(b))));
            const v = f(cast(a), cast(b));
            return result === "bool" || isFloat(result) ? v : stored(result, v);
          },
          x,
          y,
        ),
      tolerance: row.exact ? 0 : elementTolerance(result),
      dtype: result,
      classes: row.zeros ? "zeros" : "values",
      absolute: row.absolute,
    };
  };
}

const near = (a: number, b: number, rtol: number, atol: number, equalNan: boolean): number => {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number(equalNan && Number.isNaN(a) && Number.isNaN(b));
  if (!Number.isFinite(a) || !Number.isFinite(b)) return Number(a === b);
  return Number(Math.abs(a - b) <= atol + rtol * Math.abs(b));
};

/** Two arrays of which some elements are alike and others far apart. */
function alike(d: Draw, shape: readonly number[]): Drawn["inputs"] {
  const a = d.input(shape, "float32", d.chance(0.5) ? "mild" : [-9, 9], true);
  const data = a.data!.map((v) => d.chance(0.6) ? v : stored("float32", v * (d.chance(0.5) ? 1 + 1e-3 : 3)));
  return [a, { shape, dtype: "float32", data }];
}

/** Functions of two and three arrays. */
export function drawnArithmetic(): Families {
  const families: Families = {};
  for (const [name, row] of Object.entries(ROWS)) families[name] = binary(name, row);
  families.divmod = (d) => {
    const dtype = d.dtype([...FLOATS, ...INTEGERS]);
    const [a, b] = d.pair();
    const row = [ROWS.floorDivide, ROWS.remainder];
    const of = (f: Scalar): Scalar => (p, q) => isFloat(dtype) ? f(p, q) : stored(dtype, f(p, q));
    return {
      inputs: [d.input(a, dtype, [-90, 90]), d.input(b, dtype, [1, 9])],
      run: (mx, [x, y]) => mx.divmod(x, y),
      oracle: ([x, y]) => row.map((r) => map(of(isFloat(dtype) ? r.float! : r.whole!), x, y)),
      tolerance: elementTolerance(dtype),
      dtype,
      classes: "values",
    };
  };
  families.where = (d) => {
    const [condition, dtype] = [d.dtype(["bool", "float32", "int32"] as const), d.dtype(ALL_TYPES)];
    const other = d.chance(0.3) ? d.dtype(ALL_TYPES) : dtype;
    const shape = d.shape();
    const result = meet(dtype, other);
    return {
      inputs: [
        d.input(d.narrowed(shape), condition, isFloat(condition) ? d.pick(["zeros", "special"]) : [0, 1]),
        d.input(d.narrowed(shape), dtype, "special"),
        d.input(d.narrowed(shape), other, "special"),
      ],
      run: (mx, [c, a, b]) => mx.where(c, a, b),
      oracle: ([c, a, b]) => map((p, q, r) => p !== 0 ? stored(result, q) : stored(result, r), c, a, b),
      tolerance: 0,
      dtype: result,
      classes: "values",
    };
  };
  families.clip = (d) => {
    const dtype = d.dtype([...FLOATS, ...INTEGERS]);
    const low = d.pick([null, d.int(0, 3)]);
    const high = low === null ? d.int(4, 9) : d.pick([null, d.int(4, 9)]); // one of them is there
    const from = Math.max(low ?? -Infinity, limitsOf(dtype)[0] ?? -Infinity);
    const arrays = d.chance(0.3);
    const shape = d.shape();
    return {
      what: arrays ? "by arrays" : `${low} ${high}`,
      inputs: [
        d.input(shape, dtype, isFloat(dtype) ? d.class([-12, 12], EVERY) : "special"),
        d.input(d.narrowed(shape), dtype, [0, 3]),
        d.input(d.narrowed(shape), dtype, [4, 9]),
      ],
      run: (mx, [x, a, b]) => arrays ? mx.clip(x, a, b) : mx.clip(x, low, high),
      oracle: ([x, a, b]) => {
        if (arrays) return map((v, p, q) => Math.min(q, Math.max(p, v)), x, a, b);
        return map((v) => Math.min(high ?? Infinity, Math.max(isFloat(dtype) ? low ?? -Infinity : from, v)), x);
      },
      tolerance: 0,
      dtype,
      classes: "values",
    };
  };
  const closeness = (d: Draw): { rtol: number; atol: number; equalNan: boolean } => ({
    rtol: d.pick([1e-5, 1e-2]),
    atol: d.pick([1e-8, 1e-1]),
    equalNan: d.chance(0.5),
  });
  families.isclose = (d) => {
    const { rtol, atol, equalNan } = closeness(d);
    return {
      what: `${rtol} ${atol} ${equalNan}`,
      inputs: alike(d, d.shape()),
      run: (mx, [x, y]) => mx.isclose(x, y, rtol, atol, { equalNan }),
      oracle: ([x, y]) => map((a, b) => near(a, b, rtol, atol, equalNan), x, y),
      tolerance: 0,
      dtype: "bool",
    };
  };
  const whole = (x: Dense, y: Dense, f: Scalar): Dense => {
    const all = map(f, x, y);
    return { shape: [], data: Float64Array.of(Number(all.data.every((v) => v !== 0))) };
  };
  families.allclose = (d) => {
    const { rtol, atol, equalNan } = closeness(d);
    const [a, b] = alike(d, d.shape(0, 3));
    return {
      what: `${rtol} ${atol} ${equalNan}`,
      inputs: [a, d.chance(0.5) ? a : b],
      run: (mx, [x, y]) => mx.allclose(x, y, rtol, atol, { equalNan }),
      oracle: ([x, y]) => whole(x, y, (p, q) => near(p, q, rtol, atol, equalNan)),
      tolerance: 0,
      dtype: "bool",
    };
  };
  families.arrayEqual = (d) => {
    const equalNan = d.chance(0.5);
    const [a, b] = alike(d, d.shape(0, 3));
    const other = d.chance(0.2) ? { ...b, shape: [...b.shape, 1] } : b;
    return {
      what: `${equalNan}`,
      inputs: [a, d.chance(0.5) ? a : other],
      run: (mx, [x, y]) => mx.arrayEqual(x, y, equalNan),
      oracle: ([x, y]) => {
        if (`${x.shape}` !== `${y.shape}`) return { shape: [], data: Float64Array.of(0) };
        return whole(x, y, (p, q) => Number(p === q || (equalNan && Number.isNaN(p) && Number.isNaN(q))));
      },
      tolerance: 0,
      dtype: "bool",
    };
  };
  return families;
}
