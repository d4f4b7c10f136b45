/**
 * Families of functions that make arrays from numbers.
 */

import { build, type Dense, map, size } from "../../support/oracles/oracle.ts";
import { ALL_TYPES, type Draw, INTEGERS, isFloat, stored } from "./draw.ts";
import { FLOATS, type Library, type Tensor, type TypeName } from "./case.ts";
import { type Drawn, elementTolerance, type Families } from "./family.ts";

function made(
  what: string,
  dtype: TypeName,
  run: (mx: Library) => Tensor | Tensor[],
  oracle: () => Dense | Dense[],
  tolerance = 0,
): Drawn {
  return { what, inputs: [], run, oracle, tolerance, dtype };
}

/** Nested lists of a shape. */
// deno-lint-ignore no-explicit-any
function nested(shape: readonly number[], data: readonly number[]): any {
  if (shape.length === 0) return data[0];
  const each = size(shape.slice(1));
  return Array.from({ length: shape[0] }, (_, i) => nested(shape.slice(1), data.slice(i * each, (i + 1) * each)));
}

const WIDE = [...FLOATS, ...INTEGERS] as const;

/** Diagonal k of a matrix: 1 where `test` of column - row holds. */
function matrix(d: Draw, name: "eye" | "tri"): Drawn {
  const dtype = d.dtype(ALL_TYPES);
  const [n, m, k] = [d.int(0, 7), d.pick([null, d.int(0, 7)]), d.pick([0, d.int(-5, 5)])];
  return made(
    `${n} ${m} ${k} ${dtype}`,
    dtype,
    (mx) => {
      if (k === 0 && m === null) return mx[name](n, mx[dtype]);
      return k === 0 ? mx[name](n, m, mx[dtype]) : mx[name](n, m, k, mx[dtype]);
    },
    () => build([n, m ?? n], ([i, j]) => Number(name === "eye" ? j - i === k : j - i <= k)),
  );
}

/** Weights of windows at 0 … 1. */
const WINDOWS: Readonly<Record<string, (t: number) => number>> = {
  bartlett: (t) => 1 - Math.abs(2 * t - 1),
  hanning: (t) => 0.5 - 0.5 * Math.cos(2 * Math.PI * t),
  hamming: (t) => 0.54 - 0.46 * Math.cos(2 * Math.PI * t),
  blackman: (t) => 0.42 - 0.5 * Math.cos(2 * Math.PI * t) + 0.08 * Math.cos(4 * Math.PI * t),
};

/** Functions that make arrays. */
export function drawnCreation(): Families {
  const families: Families = {
    array: (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const shape = d.shape(0, 3, false);
      const data = d.values(size(shape), dtype, "special");
      return made(`(${shape}) ${dtype}`, dtype, (mx) => mx.array(nested(shape, data), mx[dtype]), () => ({
        shape,
        data: Float64Array.from(data),
      }));
    },
    asarray: (d) => {
      const [dtype, to] = [d.dtype(FLOATS), d.dtype(FLOATS)];
      const copy = d.pick([null, true]);
      return {
        what: `to ${to} copy ${copy}`,
        inputs: [d.input(d.shape(), dtype, [-9, 9])],
        run: (mx, [x]) => mx.asarray(x, mx[to], { copy }),
        oracle: ([x]) => map((v) => stored(to, v), x),
        tolerance: 0,
        dtype: to,
      };
    },
    full: (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const shape = d.shape(0, 4);
      const [value] = d.values(1, dtype, "special");
      if (d.chance(0.4)) {
        const own = d.narrowed(shape);
        return {
          what: `(${shape})`,
          inputs: [d.input(own, dtype, "special")],
          run: (mx, [x]) => mx.full(shape, x, mx[dtype]),
          oracle: ([x]) =>
            build(
              shape,
              (at) =>
                x.data[at.slice(at.length - own.length).reduce((n, v, i) => n * own[i] + (own[i] === 1 ? 0 : v), 0)],
            ),
          tolerance: 0,
          dtype,
        };
      }
      return made(
        `(${shape}) ${value} ${dtype}`,
        dtype,
        (mx) => mx.full(shape, value, mx[dtype]),
        () => build(shape, () => value),
      );
    },
    fullLike: (d) => {
      const [dtype, to] = [d.dtype(ALL_TYPES), d.dtype(ALL_TYPES)];
      const shape = d.shape(0, 4);
      const other = d.chance(0.5);
      const result = other ? to : dtype;
      const [value] = d.values(1, result, [0, 9]);
      return {
        what: `${value} ${result}`,
        inputs: [d.input(shape, dtype, "special")],
        run: (mx, [x]) => mx.fullLike(x, value, other ? mx[to] : undefined),
        oracle: () => build(shape, () => value),
        tolerance: 0,
        dtype: result,
      };
    },
    arange: (d) => {
      const float = d.chance(0.4);
      const [start, stop] = [d.int(-20, 20), d.int(-20, 40)];
      const step = d.pick([null, 1, 2, 3, -1, -4, ...(float ? [0.5, 0.25, -1.5] : [])]);
      const dtype: TypeName = d.chance(0.5)
        ? Number.isInteger(step ?? 1) ? "int32" : "float32"
        : d.dtype(float ? FLOATS : ["int32", "int16", "float32", "float16"] as const);
      const alone = d.chance(0.2);
      const [from, to, by] = alone ? [0, stop, 1] : [start, stop, step ?? 1];
      const count = Math.max(0, Math.ceil((to - from) / by));
      const trunc = (v: number): number => isFloat(dtype) ? v : Math.trunc(v);
      return made(
        `${alone ? "" : start} ${stop} ${alone ? "" : step} ${dtype}`,
        dtype,
        (mx) => {
          if (by === 1 && d.chance(0.5)) return alone ? mx.arange(stop, mx[dtype]) : mx.arange(start, stop, mx[dtype]);
          return alone ? mx.arange(stop, null, null, mx[dtype]) : mx.arange(start, stop, step, mx[dtype]);
        },
        () => build([count], ([i]) => stored(dtype, trunc(from) + i * trunc(by))),
        elementTolerance(dtype),
      );
    },
    linspace: (d) => {
      const dtype = d.dtype(FLOATS);
      const [start, stop] = [d.int(-9, 9) / 2, d.int(-9, 9) / 3];
      const [count, closed] = [d.pick([0, 1, 2, 3, 5, 50, 257]), d.chance(0.6)];
      return made(
        `${start} ${stop} ${count} ${closed} ${dtype}`,
        dtype,
        (mx) => mx.linspace(start, stop, count, closed, mx[dtype]),
        () => build([count], ([i]) => start + (stop - start) * i / Math.max(1, closed ? count - 1 : count)),
        elementTolerance(dtype) || 1e-7,
      );
    },
    eye: (d) => matrix(d, "eye"),
    tri: (d) => matrix(d, "tri"),
    identity: (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const n = d.int(0, 40);
      return made(
        `${n} ${dtype}`,
        dtype,
        (mx) => mx.identity(n, mx[dtype]),
        () => build([n, n], ([i, j]) => Number(i === j)),
      );
    },
    meshgrid: (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const sizes = Array.from({ length: d.int(1, 3) }, () => d.int(0, 5));
      const [sparse, indexing] = [d.chance(0.5), d.pick(["xy", "ij"] as const)];
      const place = (i: number): number => indexing === "xy" && i < 2 && sizes.length > 1 ? 1 - i : i;
      const all = sizes.map((_, i) => sizes[place(i)]);
      return {
        what: `${sparse ? "sparse " : ""}${indexing}`,
        inputs: sizes.map((n) => d.input([n], dtype, "special")),
        run: (mx, list) => mx.meshgrid(list, { sparse, indexing }),
        oracle: (list) =>
          list.map((x, i) =>
            build(sparse ? all.map((n, a) => a === place(i) ? n : 1) : all, (at) => x.data[at[place(i)]])
          ),
        tolerance: 0,
        dtype,
      };
    },
  };
  for (const [name, weight] of Object.entries(WINDOWS)) {
    families[name] = (d) => {
      const m = d.pick([-1, 0, 1, 2, 3, d.int(4, 400)]);
      return {
        ...made(
          `${m}`,
          "float32",
          (mx) => mx[name as "bartlett"](m),
          () => build([Math.max(0, m)], ([i]) => m === 1 ? 1 : weight(i / (m - 1))),
          1e-7,
        ),
        absolute: 1e-6,
      };
    };
  }
  for (const name of ["zeros", "ones", "empty"] as const) {
    families[name] = (d) => {
      const dtype = d.dtype(ALL_TYPES);
      const shape = d.shape();
      return made(
        `(${shape}) ${dtype}`,
        dtype,
        (mx) => mx[name](shape, mx[dtype]),
        () => build(shape, () => Number(name === "ones")),
      );
    };
    families[`${name}Like`] = (d) => {
      const dtype = d.dtype(WIDE);
      const to = d.pick([undefined, d.dtype(WIDE)]);
      const shape = d.shape();
      return {
        what: to ? `as ${to}` : "",
        inputs: [d.input(shape, dtype, "special")],
        run: (mx, [x]) => mx[`${name}Like`](x, to && mx[to]),
        oracle: () => build(shape, () => Number(name === "ones")),
        tolerance: 0,
        dtype: to ?? dtype,
      };
    };
  }
  return families;
}
