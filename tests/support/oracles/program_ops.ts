/**
 * The ops of random programs: ops over values that are there, each with the same thing in float64.
 *
 * A value knows its numbers, so that only ops are drawn that keep them moderate. `exact` says that every device must
 * have these very numbers. Ops that turn a small error into a large one (comparisons, sorting, casts to integers) take
 * exact values only.
 */

import type { Library, Tensor, TypeName } from "../../ops/cases/case.ts";
import { type Draw, isFloat, stored } from "../../ops/cases/draw.ts";
import { build, type Dense, map, matmul, ravel, read, reduce, rows, size, sum, transpose, unravel } from "./oracle.ts";

/** A value of a program. */
export interface Value extends Dense {
  readonly id: number;
  readonly dtype: TypeName;
  readonly exact: boolean;
  /** Errors are those of 16-bit floats. */
  readonly rough: boolean;
  /** The largest number that went into it. */
  readonly scale: number;
}

/** Numbers that make an op of a kind of op. */
export type Parameters = readonly (number | string | boolean | null | readonly number[])[];

/** Chosen arguments of an op. */
export interface Chosen {
  readonly args: readonly Value[];
  readonly p: Parameters;
  /** The dtype of the result; default the first argument's. */
  readonly dtype?: TypeName;
}

/** A kind of op. */
export interface ProgramOp {
  /** Chooses arguments; nothing where no value fits. */
  readonly draw: (d: Draw, values: readonly Value[]) => Chosen | undefined;
  // deno-lint-ignore no-explicit-any
  readonly run: (mx: Library, x: Tensor[], p: any) => Tensor;
  // deno-lint-ignore no-explicit-any
  readonly oracle: (x: readonly Dense[], p: any) => Dense;
  /** Exact where its arguments are. */
  readonly exact?: boolean;
  /** The first argument shows the result from then on. */
  readonly inPlace?: boolean;
}

/** One of the values that `test` holds for, later ones rather. */
function one(d: Draw, values: readonly Value[], test: (v: Value) => boolean = () => true): Value | undefined {
  const found = values.filter(test);
  return found.length === 0 ? undefined : found[Math.floor((1 - d.next() ** 2) * found.length * 0.9999)];
}

const float = (v: Value): boolean => isFloat(v.dtype);
/** The largest magnitude. */
export const most = (v: Dense): number => v.data.reduce((m, x) => Math.max(m, Math.abs(x)), 0);

function unary(f: (x: number) => number, name: string, test: (v: Value) => boolean = float, exact = false): ProgramOp {
  return {
    draw: (d, values) => {
      const v = one(d, values, test);
      return v && { args: [v], p: [] };
    },
    run: (mx, [x]) => (mx as unknown as Record<string, (x: Tensor) => Tensor>)[name](x),
    oracle: ([x]) => map(f, x),
    exact,
  };
}

/** A value that broadcasts with another one of its dtype. */
function partner(d: Draw, values: readonly Value[], a: Value): Value | undefined {
  return one(d, values, (b) => {
    if (b.dtype !== a.dtype) return false;
    const rank = Math.max(a.shape.length, b.shape.length);
    let count = 1;
    for (let i = 1; i <= rank; i++) {
      const [m, n] = [a.shape[a.shape.length - i] ?? 1, b.shape[b.shape.length - i] ?? 1];
      if (m !== n && m !== 1 && n !== 1) return false;
      count *= m === 1 ? n : m;
    }
    return count <= 4000 && rank <= 5;
  });
}

function binary(f: (a: number, b: number) => number, name: string, exact = false, result?: TypeName): ProgramOp {
  return {
    draw: (d, values) => {
      const a = one(d, values, (v) => v.dtype !== "bool" && (result !== "bool" || v.exact));
      const b = a && partner(d, result === "bool" ? values.filter((v) => v.exact) : values, a);
      return b && { args: d.chance(0.5) ? [a, b] : [b, a], p: [], dtype: result };
    },
    run: (mx, [a, b]) => (mx as unknown as Record<string, (a: Tensor, b: Tensor) => Tensor>)[name](a, b),
    oracle: ([a, b]) => map(f, a, b),
    exact: exact || result === "bool",
  };
}

/** An op over one value with parameters. */
export function over(
  choose: (d: Draw, v: Value) => Parameters | undefined,
  // deno-lint-ignore no-explicit-any
  run: (mx: Library, x: Tensor, p: any) => Tensor,
  // deno-lint-ignore no-explicit-any
  oracle: (x: Dense, p: any) => Dense,
  options: { test?: (v: Value) => boolean; exact?: boolean; dtype?: (v: Value, p: Parameters) => TypeName } = {},
): ProgramOp {
  return {
    draw: (d, values) => {
      const v = one(d, values, options.test);
      const p = v && choose(d, v);
      return p && { args: [v], p, dtype: options.dtype?.(v, p) };
    },
    run: (mx, [x], p) => run(mx, x, p),
    oracle: ([x], p) => oracle(x, p),
    exact: options.exact ?? true,
  };
}

const someAxis = (d: Draw, v: Value): number | undefined =>
  v.shape.length > 0 ? d.int(0, v.shape.length - 1) : undefined;
/** Some axis that is not empty. */
export const withAxis = (d: Draw, v: Value): Parameters | undefined => {
  const axis = someAxis(d, v);
  return axis === undefined || v.shape[axis] === 0 ? undefined : [axis];
};

function folded(name: string, f: (v: number[]) => number, exact: boolean): ProgramOp {
  return over(
    (d, v) =>
      v.shape.some((n) => n === 0)
        ? undefined
        : [d.axes(v.shape.length).map((a) => a < 0 ? a + v.shape.length : a), d.chance(0.5)],
    (mx, x, [axes, keep]) => (mx as unknown as Record<string, (...a: unknown[]) => Tensor>)[name](x, axes, keep),
    (x, [axes, keep]) => reduce(x, axes, keep, f),
    { test: (v) => float(v) || (exact && v.dtype === "int32"), exact },
  );
}

/** The places of numbers in ascending order, of equal ones as they come. */
export const order = (v: readonly number[]): number[] => v.map((_, i) => i).sort((a, b) => v[a] - v[b] || a - b);
const integral = (v: Value): boolean => v.dtype === "int32" && v.exact;

/** Ranges of all axes: [start, count, step] each. */
function ranges(d: Draw, shape: readonly number[]): number[] {
  return shape.flatMap((n) => {
    const step = d.pick([1, 1, 1, 2, -1, -2]);
    const count = n === 0 ? 0 : d.int(1, Math.ceil(n / Math.abs(step)));
    const reach = (count - 1) * Math.abs(step);
    const low = n === 0 ? 0 : d.int(0, n - 1 - reach);
    return [step > 0 ? low : low + reach, count, step];
  });
}

const slices = (mx: Library, p: readonly number[]) =>
  Array.from({ length: p.length / 3 }, (_, i) => {
    const [start, count, step] = p.slice(3 * i, 3 * i + 3);
    const stop = start + count * step;
    return mx.Slice(start, stop < 0 ? null : stop, step);
  });

const place = (at: readonly number[], p: readonly number[]): number[] => at.map((v, i) => p[3 * i] + v * p[3 * i + 2]);
const counts = (p: readonly number[]): number[] => p.filter((_, i) => i % 3 === 1);

const ELEMENTWISE: Record<string, ProgramOp> = {
  tanh: unary(Math.tanh, "tanh"),
  sin: unary(Math.sin, "sin"),
  sigmoid: unary((x) => 1 / (1 + Math.exp(-x)), "sigmoid"),
  square: unary((x) => x * x, "square", (v) => float(v) && most(v) < 7),
  exp: unary(Math.exp, "exp", (v) => float(v) && most(v) < 3),
  abs: unary(Math.abs, "abs", (v) => v.dtype !== "bool", true),
  negative: unary((x) => -x, "negative", (v) => v.dtype !== "bool", true),
  floor: unary(Math.floor, "floor", (v) => v.exact && v.dtype !== "bool", true),
  add: binary((a, b) => a + b, "add"),
  subtract: binary((a, b) => a - b, "subtract"),
  multiply: binary((a, b) => a * b, "multiply"),
  maximum: binary(Math.max, "maximum", true),
  minimum: binary(Math.min, "minimum", true),
  less: binary((a, b) => Number(a < b), "less", true, "bool"),
  equal: binary((a, b) => Number(a === b), "equal", true, "bool"),
  scale: over(
    (d) => [d.pick([0.5, -1, 0.25])],
    (mx, x, [by]) => mx.multiply(x, by),
    (x, [by]) => map((v) => v * by, x),
    { test: float },
  ),
  shift: over(
    (d) => [d.pick([1, -2])],
    (mx, x, [by]) => mx.add(by, x),
    (x, [by]) => map((v) => v + by, x),
    { test: (v) => v.dtype !== "bool", exact: false },
  ),
  clip: over(
    (d) => [d.pick([-1, 0]), d.pick([1, 2])],
    (mx, x, [low, high]) => mx.clip(x, low, high),
    (x, [low, high]) => map((v) => Math.min(high, Math.max(low, v)), x),
    { test: (v) => v.dtype !== "bool" },
  ),
  where: {
    draw: (d, values) => {
      const a = one(d, values, (v) => v.dtype !== "bool");
      const b = a && partner(d, values, a);
      const c = b &&
        one(d, values, (v) => v.dtype === "bool" && (v.shape.length === 0 || `${v.shape}` === `${a.shape}`));
      return c && { args: [c, a, b], p: [], dtype: a.dtype };
    },
    run: (mx, [c, a, b]) => mx.where(c, a, b),
    oracle: ([c, a, b]) => map((p, q, r) => p !== 0 ? q : r, c, a, b),
    exact: true,
  },
  astype: over(
    (d, v) => [d.pick(v.exact ? ["float32", "float16", "bfloat16", "int32"] : ["float32", "float16", "bfloat16"])],
    (mx, x, [to]) => x.astype(mx[to as "int32"]),
    (x, [to]) => map((v) => to === "int32" ? Math.trunc(v) : v, x),
    { dtype: (_v, [to]) => to as TypeName },
  ),
};

const VIEWS: Record<string, ProgramOp> = {
  reshape: over(
    (d, v) => {
      const count = v.data.length;
      const first = d.pick([1, 2, 3, 4, 5, 6].filter((n) => count % n === 0));
      return [
        d.chance(0.3) || count === 0 ? [count] : d.chance(0.5) ? [first, count / first] : [count / first, 1, first],
      ];
    },
    (mx, x, [to]) => mx.reshape(x, to),
    (x, [to]) => ({ shape: to, data: x.data }),
  ),
  transpose: over(
    (d, v) => [d.shuffled(v.shape.map((_, i) => i))],
    (mx, x, [axes]) => mx.transpose(x, axes),
    (x, [axes]) => transpose(x, axes),
  ),
  slice: over(
    (d, v) => v.shape.length === 0 ? undefined : [ranges(d, v.shape)],
    (mx, x, [p]) => x.index(...slices(mx, p)),
    (x, [p]) => build(counts(p), (at) => x.data[ravel(x.shape, place(at, p))]),
  ),
  broadcastTo: over(
    (d, v) => {
      const to = v.shape.map((n) => n === 1 ? d.int(1, 4) : n);
      return v.data.length > 500 || v.shape.length > 3 ? undefined : [d.chance(0.5) ? [d.int(1, 3), ...to] : to];
    },
    (mx, x, [to]) => mx.broadcastTo(x, to),
    (x, [to]) => build(to, (at) => read(x, at)),
  ),
  expandDims: over(
    (d, v) => v.shape.length > 3 ? undefined : [d.int(0, v.shape.length)],
    (mx, x, [axis]) => mx.expandDims(x, axis),
    (x, [axis]) => ({ shape: x.shape.toSpliced(axis, 0, 1), data: x.data }),
  ),
  flip: over(
    withAxis,
    (mx, x, [axis]) => mx.flip(x, axis),
    (x, [axis]) => rows(x, axis, (v) => v.toReversed()),
  ),
};

const ROWS: Record<string, ProgramOp> = {
  sum: folded("sum", sum, false),
  mean: {
    ...folded("mean", (v) => sum(v) / v.length, false),
    draw: (d, all) => folded("mean", sum, false).draw(d, all.filter(float)),
  },
  max: folded("max", (v) => Math.max(...v), true),
  min: folded("min", (v) => Math.min(...v), true),
  argmax: over(
    withAxis,
    (mx, x, [axis]) => mx.argmax(x, axis).astype(mx.int32),
    (x, [axis]) => reduce(x, [axis], false, (v) => v.indexOf(Math.max(...v))),
    { test: (v) => v.exact && v.dtype !== "bool", dtype: () => "int32" },
  ),
  cumsum: over(
    (d, v) => v.shape.length === 0 ? undefined : [d.int(0, v.shape.length - 1), d.chance(0.3)],
    (mx, x, [axis, reverse]) => mx.cumsum(x, axis, { reverse }),
    (x, [axis, reverse]) => rows(x, axis, (v) => v.map((_, i) => sum(reverse ? v.slice(i) : v.slice(0, i + 1)))),
    { test: (v) => v.dtype !== "bool" && most(v) < 5, exact: false },
  ),
  softmax: over(
    withAxis,
    (mx, x, [axis]) => mx.softmax(x, axis),
    (x, [axis]) =>
      rows(x, axis, (v) => {
        const powers = v.map((q) => Math.exp(q - Math.max(...v)));
        return powers.map((q) => q / sum(powers));
      }),
    { test: float, exact: false },
  ),
  rmsNorm: over(
    (_d, v) => v.shape.length === 0 || v.shape[v.shape.length - 1] === 0 ? undefined : [],
    (mx, x) => mx.fast.rmsNorm(x, null, 0.1),
    (x) => rows(x, x.shape.length - 1, (v) => v.map((q) => q / Math.sqrt(sum(v.map((w) => w * w)) / v.length + 0.1))),
    { test: float, exact: false },
  ),
  sort: over(
    withAxis,
    (mx, x, [axis]) => mx.sort(x, axis),
    (x, [axis]) => rows(x, axis, (v) => v.toSorted((a, b) => a - b)),
    { test: (v) => v.dtype !== "bool" },
  ),
  argsort: over(
    withAxis,
    (mx, x, [axis]) => mx.argsort(x, axis).astype(mx.int32),
    (x, [axis]) => rows(x, axis, order),
    { test: (v) => v.exact && v.dtype !== "bool", dtype: () => "int32" },
  ),
  matmul: {
    draw: (d, values) => {
      const small = (v: Value): boolean => float(v) && v.shape.length >= 2 && most(v) < 5 && v.data.length < 2000;
      const a = one(d, values, small);
      const b = a &&
        one(
          d,
          values,
          (v) =>
            small(v) && v.dtype === a.dtype && v.shape[v.shape.length - 2] === a.shape[a.shape.length - 1] &&
            (v.shape.length === 2 || a.shape.length === 2),
        );
      return b && { args: [a, b], p: [] };
    },
    run: (mx, [a, b]) => mx.matmul(a, b),
    oracle: ([a, b]) => matmul(a, b),
  },
  gram: over(
    (_d, v) => v.shape.length < 2 || v.data.length > 1500 ? undefined : [],
    (mx, x) => mx.matmul(x, mx.swapaxes(x, -1, -2)),
    (x) =>
      matmul(x, transpose(x, [...x.shape.keys()].map((_, i, all) => i < all.length - 2 ? i : 2 * all.length - 3 - i))),
    { test: (v) => float(v) && most(v) < 4, exact: false },
  ),
};

const MOVES: Record<string, ProgramOp> = {
  concatenate: {
    draw: (d, values) => {
      const a = one(d, values, (v) => v.shape.length > 0 && v.data.length < 1500);
      const axis = a && d.int(0, a.shape.length - 1);
      const b = a &&
        one(d, values, (v) =>
          v.dtype === a.dtype && v.shape.length === a.shape.length && v.data.length < 1500 &&
          v.shape.every((n, i) => i === axis || n === a.shape[i]));
      return b && { args: d.chance(0.5) ? [a, b] : [a, b, a], p: [axis!] };
    },
    run: (mx, list, [axis]) => mx.concatenate(list, axis),
    oracle: (list, [axis]) => {
      const shape = list[0].shape.map((n, i) => i === axis ? list.reduce((s, x) => s + x.shape[i], 0) : n);
      return build(shape, (at) => {
        let [i, left] = [0, at[axis]];
        while (left >= list[i].shape[axis]) left -= list[i++].shape[axis];
        return list[i].data[ravel(list[i].shape, at.with(axis, left))];
      });
    },
    exact: true,
  },
  repeat: over(
    (d, v) => v.shape.length === 0 || v.data.length > 700 ? undefined : [d.int(1, 3), d.int(0, v.shape.length - 1)],
    (mx, x, [times, axis]) => mx.repeat(x, times, axis),
    (x, [times, axis]) => rows(x, axis, (v) => v.flatMap((q) => new Array<number>(times).fill(q))),
  ),
  roll: over(
    (d, v) => v.shape.length === 0 ? undefined : [d.int(-3, 3), d.int(0, v.shape.length - 1)],
    (mx, x, [by, axis]) => mx.roll(x, by, axis),
    (x, [by, axis]) => rows(x, axis, (v) => v.map((_, i) => v[(((i - by) % v.length) + v.length) % v.length])),
  ),
  pad: over(
    (d, v) => v.shape.length === 0 || v.data.length > 1000 ? undefined : [d.int(0, 2), d.int(0, 2)],
    (mx, x, [a, b]) => mx.pad(x, [a, b]),
    (x, [a, b]) =>
      build(x.shape.map((n) => n + a + b), (at) => {
        const from = at.map((v) => v - a);
        return from.every((v, i) => v >= 0 && v < x.shape[i]) ? x.data[ravel(x.shape, from)] : 0;
      }),
  ),
  take: {
    draw: (d, values) => {
      const x = one(d, values, (v) => v.shape.length > 0 && v.data.length > 0 && v.data.length < 1000);
      const axis = x && d.int(0, x.shape.length - 1);
      const i = x &&
        one(
          d,
          values,
          (v) =>
            integral(v) && v.shape.length <= 2 && v.data.length <= 24 &&
            v.data.every((n) => n >= -x.shape[axis!] && n < x.shape[axis!]),
        );
      return i && x.shape.length + i.shape.length <= 5 ? { args: [x, i], p: [axis!] } : undefined;
    },
    run: (mx, [x, i], [axis]) => mx.take(x, i, axis),
    oracle: ([x, i], [axis]) => {
      const n = x.shape[axis];
      return build([...x.shape.slice(0, axis), ...i.shape, ...x.shape.slice(axis + 1)], (at) => {
        const v = i.data[ravel(i.shape, at.slice(axis, axis + i.shape.length))];
        return x.data[ravel(x.shape, [...at.slice(0, axis), v < 0 ? v + n : v, ...at.slice(axis + i.shape.length)])];
      });
    },
    exact: true,
  },
  addAt: {
    draw: (d, values) => {
      const x = one(d, values, (v) => float(v) && v.shape.length > 0 && v.data.length > 0);
      const i = x &&
        one(
          d,
          values,
          (v) =>
            integral(v) && v.shape.length === 1 && v.data.length > 0 &&
            v.data.every((n) => n >= -x.shape[0] && n < x.shape[0]),
        );
      const u = i &&
        one(
          d,
          values,
          (v) =>
            v.dtype === x.dtype && (v.data.length === 1 || `${v.shape}` === `${x.shape.slice(1)}`) &&
            v.shape.length <= x.shape.length,
        );
      return u && { args: [x, i, u], p: [] };
    },
    run: (_mx, [x, i, u]) => x.at(i).add(u),
    oracle: ([x, i, u]) => {
      const out = { shape: x.shape, data: x.data.slice() };
      const each = size(x.shape.slice(1));
      i.data.forEach((v) => {
        const row = (v < 0 ? v + x.shape[0] : v) * each;
        for (let j = 0; j < each; j++) out.data[row + j] += u.data.length === 1 ? u.data[0] : u.data[j];
      });
      return out;
    },
  },
  put: {
    draw: (d, values) => {
      const x = one(d, values, (v) => v.shape.length > 0 && v.data.length > 0);
      const p = x && ranges(d, x.shape);
      const u = p &&
        one(
          d,
          values,
          (v) =>
            v.dtype === x.dtype && (v.data.length === 1 && v.shape.length === 0 || `${v.shape}` === `${counts(p)}`),
        );
      if (u) return { args: [x, u], p: [p, null] };
      return p && { args: [x], p: [p, d.int(-2, 2)] };
    },
    run: (mx, [x, u], [p, number]) => x.indexPut_(slices(mx, p), number ?? u),
    oracle: ([x, u], [p, number]) => {
      const out = { shape: x.shape, data: x.data.slice() };
      const shape = counts(p);
      for (let i = 0; i < size(shape); i++) {
        const at = unravel(shape, i);
        out.data[ravel(x.shape, place(at, p))] = number ?? (u.data.length === 1 ? u.data[0] : u.data[i]);
      }
      return out;
    },
    exact: true,
    inPlace: true,
  },
};

/** Kinds of ops; `program_ops_more.ts` has further ones. */
export const BASIC_OPS: Readonly<Record<string, ProgramOp>> = { ...ELEMENTWISE, ...VIEWS, ...ROWS, ...MOVES };

/** The result of an op for the values of its arguments. */
export function valueOf(op: ProgramOp, id: number, args: readonly Value[], p: Parameters, dtype: TypeName): Value {
  const plain = op.oracle(args, p);
  const result = {
    shape: plain.shape,
    data: plain.data.map((v) => isFloat(dtype) ? v : stored(dtype, v)),
  };
  const narrow = isFloat(dtype) && dtype !== "float32";
  const data = narrow ? result.data.map((v) => stored(dtype, v)) : result.data;
  const exact = (op.exact ?? false) && args.every((a) => a.exact);
  const whole = !isFloat(dtype) && args.every((a) => a.exact);
  const rough = narrow || args.some((a) => a.rough);
  return {
    id,
    shape: result.shape,
    data,
    dtype,
    exact: exact || whole,
    rough,
    scale: Math.max(most(result), 1e-3, ...args.filter(float).map((a) => a.scale)),
  };
}
