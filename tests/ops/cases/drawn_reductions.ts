/**
 * Families of reductions, scans, softmax and sorting: axes in every form, empty axes, NaN and infinities among ordinary numbers.
 */

import { type Dense, largest, logsumexp, reduce, rows, sum } from "../../support/oracles/oracle.ts";
import { FLOATS, type TypeName } from "./case.ts";
import { ALL_TYPES, type Draw, floatOf, INTEGERS, isFloat, limitsOf, stored, type Values } from "./draw.ts";
import { type Drawn, type Families, named } from "./family.ts";

type Fold = (v: number[]) => number;

const NONE = [Infinity, -Infinity, NaN, 0] as const;

/** Sums and the like of 16-bit floats are rounded once, when they are stored. */
function tolerance(dtype: TypeName): number {
  return dtype === "float32" ? 1e-7 : isFloat(dtype) ? 2e-5 : 0;
}

const most: Fold = (v) => v.some(Number.isNaN) ? NaN : largest(v);
const least: Fold = (v) => v.some(Number.isNaN) ? NaN : -largest(v.map((x) => -x));
const logSum: Fold = (v) => v.some(Number.isNaN) ? NaN : most(v) === Infinity ? Infinity : logsumexp(v);
const mean: Fold = (v) => sum(v) / v.length;
const variance = (v: number[], ddof: number): number => {
  const m = mean(v);
  return sum(v.map((x) => (x - m) ** 2)) / Math.max(v.length - ddof, 0);
};

/** 32-bit dtype of sums of integers. */
function wideOf(dtype: TypeName): TypeName {
  return isFloat(dtype) ? dtype : dtype.startsWith("u") ? "uint32" : "int32";
}

interface ReductionRow {
  readonly f: (v: number[], dtype: TypeName, ddof: number) => number;
  readonly types: readonly TypeName[];
  readonly result: (dtype: TypeName) => TypeName;
  readonly range: readonly [number, number];
  /** An empty axis is an error. */
  readonly full?: boolean;
  readonly specials?: readonly number[];
  readonly absolute?: number;
  readonly ddof?: boolean;
}

const bool = (): TypeName => "bool";
const keep = (dtype: TypeName): TypeName => dtype;

const ROWS: Readonly<Record<string, ReductionRow>> = {
  sum: {
    f: (v, t) => isFloat(t) ? sum(v) : v.reduce((a, b) => (a + b) | 0, 0),
    types: ALL_TYPES,
    result: wideOf,
    range: [-4, 4],
    absolute: 1e-4,
  },
  prod: {
    f: (v, t) => v.reduce((a, b) => isFloat(t) ? a * b : Math.imul(a, b), 1),
    types: ALL_TYPES,
    result: wideOf,
    range: [0.9, 1.1],
  },
  max: { f: most, types: ALL_TYPES, result: keep, range: [-9, 9], full: true },
  min: { f: least, types: ALL_TYPES, result: keep, range: [-9, 9], full: true },
  all: { f: (v) => Number(v.every((x) => x !== 0)), types: ALL_TYPES, result: bool, range: [-0.4, 20] },
  any: { f: (v) => Number(v.some((x) => x !== 0)), types: ALL_TYPES, result: bool, range: [0, 0] },
  countNonzero: {
    f: (v) => v.filter((x) => x !== 0).length,
    types: ALL_TYPES,
    result: () => "int32",
    range: [-2, 2],
  },
  mean: { f: mean, types: ALL_TYPES, result: floatOf, range: [-4, 4], absolute: 1e-5 },
  variance: {
    f: (v, _t, n) => variance(v, n),
    types: ALL_TYPES,
    result: floatOf,
    range: [-4, 4],
    ddof: true,
    absolute: 1e-6,
  },
  std: {
    f: (v, _t, n) => Math.sqrt(variance(v, n)),
    types: ALL_TYPES,
    result: floatOf,
    range: [-4, 4],
    ddof: true,
    absolute: 1e-5,
  },
  logsumexp: { f: logSum, types: ALL_TYPES, result: floatOf, range: [-30, 30], full: true, absolute: 1e-5 },
  median: {
    f: (v) => {
      const s = [...v].sort((a, b) => a - b);
      if (s.some(Number.isNaN)) return NaN;
      return s.length % 2 ? s[s.length >> 1] : (s[s.length / 2 - 1] + s[s.length / 2]) / 2;
    },
    types: ALL_TYPES,
    result: floatOf,
    range: [-9, 9],
    full: true,
    absolute: 1e-5,
  },
};

/** Whole numbers for a reduction: extremes where results are exact. */
function values(d: Draw, name: string, dtype: TypeName, range: readonly [number, number]) {
  if (isFloat(dtype)) return range;
  if (name === "all") return d.pick([[0, 20], [1, 5]] as const);
  if (name === "any") return d.pick([[0, 0], [0, 1]] as const);
  return ["mean", "variance", "std", "logsumexp", "median"].includes(name) ? [-100, 100] as const : "special";
}

function reduction(name: string, row: ReductionRow): (d: Draw) => Drawn {
  return (d) => {
    const dtype = d.dtype(row.types);
    const shape = d.shape(0, 5, !row.full);
    const rank = shape.length;
    const form = d.int(0, 3);
    const axis = form === 0 || rank === 0 ? d.pick([undefined, null]) : form === 1 ? d.axis(rank) : d.axes(rank);
    const list = axis === undefined || axis === null ? shape.map((_, i) => i) : [axis].flat();
    const axes = list.map((a) => a < 0 ? a + rank : a);
    const keepdims = d.chance(0.5);
    const ddof = row.ddof ? d.int(0, 2) : 0;
    const result = row.result(dtype);
    const input = d.input(shape, dtype, values(d, name, dtype, row.range));
    return {
      what: `over ${axis === null ? "null" : axis}${keepdims ? " keepdims" : ""}${ddof ? ` ddof ${ddof}` : ""}`,
      inputs: [d.sprinkled(input, row.specials ?? NONE)],
      run: (mx, [x]) => named(mx, name)(x, axis, keepdims, ...(row.ddof ? [ddof] : [])),
      oracle: ([x]) => {
        const folded = reduce(x, axes, keepdims, (v) => row.f(v, dtype, ddof));
        return { shape: folded.shape, data: folded.data.map((v) => isFloat(result) ? v : stored(result, v)) };
      },
      tolerance: tolerance(result),
      dtype: result,
      classes: "values",
      absolute: row.absolute,
    };
  };
}

function arg(name: "argmax" | "argmin"): (d: Draw) => Drawn {
  const f: Fold = (v) => v.indexOf(name === "argmax" ? largest(v) : -largest(v.map((x) => -x)));
  return (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(0, 5, false);
    const rank = shape.length;
    const axis = rank === 0 || d.chance(0.3) ? d.pick([undefined, null]) : d.axis(rank);
    const keepdims = d.chance(0.5);
    const all = axis === undefined || axis === null;
    const axes = all ? shape.map((_, i) => i) : [(axis + rank) % rank];
    // Few different values, so that equal ones meet.
    const input = d.input(
      shape,
      dtype,
      isFloat(dtype) ? d.pick([[-4, 4], "zeros"] as const) : d.pick(["special", [0, 3]] as const),
    );
    return {
      what: `over ${axis}${keepdims ? " keepdims" : ""}`,
      inputs: [d.sprinkled(input, [Infinity, -Infinity])],
      run: (mx, [x]) => named(mx, name)(x, axis, keepdims),
      oracle: ([x]) => reduce(x, axes, keepdims, f),
      tolerance: 0,
      dtype: "uint32",
    };
  };
}

/** The axis of a function along one: null flattens. */
function along(d: Draw, shape: readonly number[]): { axis: number | null; at: number; seen: (x: Dense) => Dense } {
  const rank = shape.length;
  if (rank === 0 || d.chance(0.2)) {
    return { axis: null, at: 0, seen: (x) => ({ shape: [x.data.length], data: x.data }) };
  }
  const axis = d.axis(rank);
  return { axis, at: (axis + rank) % rank, seen: (x) => x };
}

type Step = (a: number, b: number, dtype: TypeName) => number;

const SCANS: Readonly<Record<string, { f: Step; first: (t: TypeName) => number; range: readonly [number, number] }>> = {
  cumsum: { f: (a, b) => a + b, first: () => 0, range: [-2, 2] },
  cumprod: { f: (a, b, t) => isFloat(t) ? a * b : Math.imul(a, b), first: () => 1, range: [0.9, 1.1] },
  cummax: {
    f: (a, b) => Math.max(a, b),
    first: (t) => isFloat(t) ? -Infinity : limitsOf(t)[0],
    range: [-9, 9],
  },
  cummin: { f: (a, b) => Math.min(a, b), first: (t) => isFloat(t) ? Infinity : limitsOf(t)[1], range: [-9, 9] },
  logcumsumexp: { f: (a, b) => logSum([a, b]), first: () => -Infinity, range: [-9, 9] },
};

function scan(name: string): (d: Draw) => Drawn {
  const { f, first, range } = SCANS[name];
  const types = name === "logcumsumexp" ? ALL_TYPES : [...FLOATS, ...INTEGERS];
  return (d) => {
    const dtype = d.dtype(types);
    const result = name === "logcumsumexp" ? floatOf(dtype) : dtype;
    const shape = d.shape();
    const { axis, at, seen } = along(d, shape);
    const [reverse, inclusive] = [d.chance(0.4), d.chance(0.6)];
    const input = d.input(shape, dtype, isFloat(dtype) ? range : name === "logcumsumexp" ? [-50, 50] : "special");
    return {
      what: `along ${axis}${reverse ? " reverse" : ""}${inclusive ? "" : " exclusive"}`,
      inputs: [d.sprinkled(input, name.startsWith("cumprod") ? [Infinity, NaN] : [Infinity, -Infinity, NaN])],
      run: (mx, [x]) => named(mx, name)(x, axis, { reverse, inclusive }),
      oracle: ([x]) =>
        rows(seen(x), at, (row) => {
          const list = reverse ? row.toReversed() : row;
          let value = first(result);
          const out = list.map((v) => {
            const before = value;
            value = isFloat(result) ? f(value, v, result) : stored(result, f(value, v, result));
            return inclusive ? value : before;
          });
          return reverse ? out.reverse() : out;
        }),
      tolerance: tolerance(result),
      dtype: result,
      classes: "values",
      absolute: isFloat(result) ? 1e-4 : undefined,
    };
  };
}

/** Applies f to the elements along several axes together. */
function together(x: Dense, axes: readonly number[], f: (v: number[]) => number[]): Dense {
  const rank = x.shape.length;
  const rest = x.shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const out = new Float64Array(x.data.length);
  const groups = new Map<string, number[]>();
  x.data.forEach((_, i) => {
    let left = i;
    const at = new Array<number>(rank);
    for (let a = rank - 1; a >= 0; a--) [at[a], left] = [left % x.shape[a], Math.floor(left / x.shape[a])];
    const key = rest.map((a) => at[a]).join();
    groups.set(key, [...groups.get(key) ?? [], i]);
  });
  for (const places of groups.values()) f(places.map((i) => x.data[i])).forEach((v, n) => out[places[n]] = v);
  return { shape: x.shape, data: out };
}

const soft = (v: number[]): number[] => {
  const top = most(v);
  const powers = v.map((x) => Math.exp(x - top));
  return powers.map((p) => p / sum(powers));
};

/** NaN last, equal ones in their order. */
function order(v: readonly number[]): number[] {
  return v.map((_, i) => i).sort((a, b) => {
    const [x, y] = [v[a], v[b]];
    return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || (x < y ? -1 : x > y ? 1 : 0) || a - b;
  });
}

/** Reductions, scans, softmax and sorting. */
export function drawnReductions(): Families {
  const families: Families = { argmax: arg("argmax"), argmin: arg("argmin") };
  for (const [name, row] of Object.entries(ROWS)) families[name] = reduction(name, row);
  for (const name of Object.keys(SCANS)) families[name] = scan(name);
  for (const name of ["softmax", "nn.logSoftmax"]) {
    families[name] = (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const shape = d.shape(1, 5);
      const rank = shape.length;
      const axis = name === "softmax" ? d.pick([undefined, d.axis(rank), d.axes(rank)]) : d.axis(rank);
      if (name !== "softmax" && shape.includes(0)) shape[shape.indexOf(0)] = 1;
      const axes = axis === undefined ? shape.map((_, i) => i) : [axis].flat().map((a) => (a + rank) % rank);
      const result = floatOf(dtype);
      const input = d.input(shape, dtype, isFloat(dtype) ? d.pick([[-9, 9], [-90, 90]] as const) : [-50, 50]);
      const log = (v: number[]): number[] => v.map((x) => x - most(v)).map((x, _, all) => x - logSum(all));
      return {
        what: `over ${axis}`,
        inputs: [d.sprinkled(input, [-Infinity, -Infinity, NaN])],
        run: (mx, [x]) => named(mx, name)(x, axis),
        oracle: ([x]) => together(x, axes, name === "softmax" ? soft : log),
        tolerance: tolerance(result),
        dtype: result,
        classes: "values",
        absolute: name === "softmax" ? 1e-7 : { float32: 1e-4, float16: 0.05, bfloat16: 0.5 }[result as "float32"],
      };
    };
  }
  const sorted = (d: Draw): { input: Drawn["inputs"][number]; dtype: TypeName } & ReturnType<typeof along> => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(0, 4, false);
    const kinds: readonly Values[] = isFloat(dtype) ? [[-4, 4], "special", "zeros", "bits"] : ["special", [0, 3]];
    return { input: d.input(shape, dtype, d.pick(kinds)), dtype, ...along(d, shape) };
  };
  families.sort = (d) => {
    const { input, dtype, axis, at, seen } = sorted(d);
    const scalar = input.shape.length === 0;
    return {
      what: `along ${scalar ? null : axis}`,
      inputs: [input],
      run: (mx, [x]) => mx.sort(x, axis),
      oracle: ([x]) => rows(seen(x), at, (v) => order(v).map((i) => v[i])),
      tolerance: 0,
      dtype,
    };
  };
  families.argsort = (d) => {
    const { input, axis, at, seen } = sorted(d);
    return {
      what: `along ${axis}`,
      inputs: [input],
      run: (mx, [x]) => mx.argsort(x, axis),
      oracle: ([x]) => rows(seen(x), at, order),
      tolerance: 0,
      dtype: "uint32",
    };
  };
  families.searchsorted = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const side = d.pick(["left", "right"] as const);
    const kinds: readonly Values[] = isFloat(dtype) ? [[-4, 4], "special", "zeros"] : ["special", [0, 9]];
    const kind = d.pick(kinds);
    const before = (a: number, b: number): boolean => Number.isNaN(b) ? !Number.isNaN(a) : a < b;
    return {
      what: side,
      inputs: [d.input([d.pick([0, 1, 2, 7, 8, 33, 1000])], dtype, kind), d.input(d.shape(), dtype, kind)],
      run: (mx, [x, v]) => mx.searchsorted(mx.sort(x), v, side),
      oracle: ([x, v]) => ({
        shape: v.shape,
        data: v.data.map((b) => x.data.filter((a) => side === "left" ? before(a, b) : !before(b, a)).length),
      }),
      tolerance: 0,
      dtype: "uint32",
    };
  };
  families.diff = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1);
    const axis = d.axis(shape.length);
    const at = (axis + shape.length) % shape.length;
    const n = d.int(0, 3);
    const [front, back] = [d.chance(0.3), d.chance(0.3)];
    const around = shape.map((size, i) => i === at ? d.int(1, 2) : size);
    const range: Values = isFloat(dtype) ? [-4, 4] : "special";
    const step = (v: number[]): number[] =>
      v.slice(1).map((b, i) => dtype === "bool" ? Number(b !== v[i]) : stored(dtype, b - v[i]));
    return {
      what: `${n} along ${axis}${front ? " prepend" : ""}${back ? " append" : ""}`,
      inputs: [d.input(shape, dtype, range), d.input(around, dtype, range)],
      run: (mx, [x, more]) =>
        mx.diff(x, n, axis, { prepend: front ? more : undefined, append: back ? mx.astype(1, x.dtype) : undefined }),
      oracle: ([x, more]) => {
        const sizes = x.shape.map((size, i) => i === at ? 0 : size);
        const axisOf = (dense: Dense, outer: number, inner: number): number[] => {
          const width = dense.shape.slice(at + 1).reduce((a, b) => a * b, 1);
          return Array.from(
            { length: dense.shape[at] },
            (_, i) => dense.data[(outer * dense.shape[at] + i) * width + inner],
          );
        };
        const [outers, inners] = [sizes.slice(0, at), sizes.slice(at + 1)].map((s) => s.reduce((a, b) => a * b, 1));
        let length = 0;
        const lines: number[][] = [];
        for (let o = 0; o < outers; o++) {
          for (let i = 0; i < inners; i++) {
            let line = axisOf(x, o, i);
            if (n > 0) line = [...front ? axisOf(more, o, i) : [], ...line, ...back ? [1] : []];
            for (let k = 0; k < n; k++) line = step(line);
            lines.push(line);
            length = line.length;
          }
        }
        if (lines.length === 0) {
          length = Math.max(0, x.shape[at] + (n && front ? more.shape[at] : 0) + (n && back ? 1 : 0) - n);
        }
        const out = {
          shape: sizes.map((size, i) => i === at ? length : size),
          data: new Float64Array(outers * length * inners),
        };
        lines.forEach((line, l) =>
          line.forEach((v, k) => out.data[(Math.floor(l / inners) * length + k) * inners + l % inners] = v)
        );
        return out;
      },
      tolerance: tolerance(dtype),
      dtype,
      classes: "values",
    };
  };
  for (const name of ["partition", "argpartition"] as const) {
    families[name] = (d) => {
      const { input, axis, at, seen } = sorted(d);
      const length = seen({ shape: input.shape, data: Float64Array.from(input.data!) }).shape[at];
      const kth = d.int(-length, length - 1);
      const place = kth < 0 ? kth + length : kth;
      return {
        what: `${kth} along ${axis}`,
        inputs: [input],
        run: (mx, [x]) => {
          const flat = axis === null ? x.reshape(-1) : x;
          const parted = name === "partition"
            ? mx.partition(x, kth, axis)
            : mx.takeAlongAxis(flat, mx.argpartition(x, kth, axis), at);
          // Elements before and after the place may be in any order.
          return mx.split(parted, [place, place + 1], at).map((part) => mx.sort(part, at));
        },
        oracle: ([x]) => {
          const cut = (from: number, to: number): Dense =>
            rows(seen(x), at, (v) => order(v).slice(from, to).map((i) => v[i]));
          return [cut(0, place), cut(place, place + 1), cut(place + 1, length)];
        },
        tolerance: 0,
      };
    };
  }
  families.topk = (d) => {
    const { input, dtype, axis, at, seen } = sorted(d);
    const length = seen({ shape: input.shape, data: Float64Array.from(input.data!) }).shape[at];
    const k = d.int(1, length);
    return {
      what: `${k} along ${axis}`,
      inputs: [input],
      run: (mx, [x]) => mx.sort(mx.topk(x, k, axis), at),
      oracle: ([x]) => rows(seen(x), at, (v) => order(v).slice(v.length - k).map((i) => v[i])),
      tolerance: 0,
      dtype,
    };
  };
  return families;
}
