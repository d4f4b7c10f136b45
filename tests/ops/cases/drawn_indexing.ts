/**
 * Families of reading and writing at indices: NumPy's rules as a map from every element of the result to one of the array.
 */

import { broadcast, build, type Dense, dense, ravel, read, size, unravel } from "../../support/oracles/oracle.ts";
import type { Library } from "./case.ts";
import { ALL_TYPES, type Draw, isFloat, stored } from "./draw.ts";
import { type Drawn, elementTolerance, type Families } from "./family.ts";

interface Range {
  readonly start: number | null;
  readonly stop: number | null;
  readonly step: number | null;
}
/** A part of an index: "..." and null are themselves, an array has a shape. */
type IndexPart = number | null | "..." | Range | Dense;

const isArray = (part: IndexPart): part is Dense => typeof part === "object" && part !== null && "data" in part;
const isRange = (part: IndexPart): part is Range => typeof part === "object" && part !== null && "step" in part;

/** The places that Python's slice takes of an axis. */
function placesOf({ start, stop, step }: Range, n: number): number[] {
  const by = step ?? 1;
  const bound = (v: number): number => v < 0 ? Math.max(v + n, by > 0 ? 0 : -1) : Math.min(v, by > 0 ? n : n - 1);
  const from = start === null ? (by > 0 ? 0 : n - 1) : bound(start);
  const to = stop === null ? (by > 0 ? n : -1) : bound(stop);
  const places: number[] = [];
  for (let i = from; by > 0 ? i < to : i > to; i += by) places.push(i);
  return places;
}

/** The shape of x[parts] and the element of x that each place of it shows. */
function indexed(
  shape: readonly number[],
  parts: readonly IndexPart[],
): { shape: number[]; from: (at: number[]) => number[] } {
  const given = parts.filter((p) => p !== null && p !== "...").length;
  const open = new Array<IndexPart>(shape.length - given).fill({ start: null, stop: null, step: null });
  const dots = parts.indexOf("...");
  const all = dots < 0 ? [...parts, ...open] : [...parts.slice(0, dots), ...open, ...parts.slice(dots + 1)];
  const arrays = all.filter(isArray);
  const common = arrays.length ? broadcast(...arrays.map((a) => a.shape)) : [];
  // Where the axes of the arrays go: whole numbers count as arrays beside arrays.
  const advanced = all.flatMap((p, i) => isArray(p) || (typeof p === "number" && arrays.length > 0) ? [i] : []);
  const adjacent = advanced.every((a, i) => i === 0 || a === advanced[i - 1] + 1);
  const plain: { axis: number; places: number[] }[] = [];
  let axis = 0;
  let front = 0;
  const fixed: { axis: number; value: number | Dense }[] = [];
  all.forEach((p, i) => {
    if (i === advanced[0] && adjacent) front = plain.length;
    if (p === null) plain.push({ axis: -1, places: [0] });
    else if (typeof p === "number") fixed.push({ axis, value: p < 0 ? p + shape[axis] : p });
    else if (isArray(p)) fixed.push({ axis, value: p });
    else plain.push({ axis, places: placesOf(p as Range, shape[axis]) });
    if (p !== null) axis++;
  });
  const sizes = plain.map((p) => p.places.length);
  return {
    shape: [...sizes.slice(0, front), ...common, ...sizes.slice(front)],
    from: (at) => {
      const index = at.slice(front, front + common.length);
      const rest = [...at.slice(0, front), ...at.slice(front + common.length)];
      const source = new Array<number>(shape.length).fill(0);
      plain.forEach((p, i) => p.axis >= 0 && (source[p.axis] = p.places[rest[i]]));
      for (const { axis, value } of fixed) {
        const v = typeof value === "number" ? value : read(value, index);
        source[axis] = v < 0 ? v + shape[axis] : v;
      }
      return source;
    },
  };
}

function range(d: Draw, n: number): Range {
  const bound = (): number | null => d.chance(0.4) ? null : d.int(-n - 1, n + 1);
  return { start: bound(), stop: bound(), step: d.pick([null, 1, 1, 2, 3, -1, -2]) };
}

/** An index of an array; arrays only where `arrays` says so, each place of them once when `unique`. */
function draw(d: Draw, shape: readonly number[], arrays: boolean, unique: boolean): IndexPart[] {
  const parts: IndexPart[] = [];
  const count = d.int(0, shape.length);
  const used = shape.slice(0, count);
  const most = Math.min(3, ...used.filter((n) => n > 0));
  const common = unique ? [d.int(1, Math.max(1, most))] : d.pick([[2], [3], [2, 3], [1], [], [4]]);
  let taken = 0;
  for (const n of used) {
    if (d.chance(0.1)) parts.push(null);
    const kind = n === 0 ? 3 : d.int(0, arrays && taken < 3 ? 5 : 3);
    if (kind === 0) parts.push(d.int(-n, n - 1));
    else if (kind <= 3) parts.push(range(d, n));
    else {
      const own = unique || d.chance(0.7) ? common : common.map((c) => d.chance(0.5) ? 1 : c);
      const places = d.shuffled(Array.from({ length: n }, (_, i) => i));
      const first = unique && taken === 0;
      if (first && places.length < size(own)) {
        parts.push(range(d, n));
        continue;
      }
      const values = Array.from({ length: size(own) }, (_, i) => {
        const place = first ? places[i] : d.int(0, n - 1);
        return d.chance(0.3) ? place - n : place;
      });
      parts.push({ shape: own, data: Float64Array.from(values) });
      taken++;
    }
  }
  if (d.chance(0.2) && count === shape.length) parts.push("...");
  else if (d.chance(0.2)) parts.unshift(null);
  return parts;
}

/** The index as the library takes it. */
// deno-lint-ignore no-explicit-any
function given(mx: Library, parts: readonly IndexPart[]): any[] {
  return parts.map((p) => {
    if (isArray(p)) return mx.array(Int32Array.from(p.data)).reshape(...p.shape);
    return isRange(p) ? mx.Slice(p.start, p.stop, p.step) : p;
  });
}

function text(parts: readonly IndexPart[]): string {
  const one = (p: IndexPart): string =>
    isArray(p) ? `[${p.data}](${p.shape})` : isRange(p) ? `${p.start}:${p.stop}:${p.step}` : `${p}`;
  return parts.map(one).join(", ");
}

/** `base` with the values of `update`, which broadcasts, combined into the places of an index. */
function updated(
  base: Dense,
  parts: readonly IndexPart[],
  update: Dense,
  f: (old: number, v: number) => number,
): Dense {
  const { shape, from } = indexed(base.shape, parts);
  const out = { shape: base.shape, data: base.data.slice() };
  for (let i = 0; i < size(shape); i++) {
    const at = unravel(shape, i);
    const place = ravel(base.shape, from(at));
    out.data[place] = f(out.data[place], read(update, at));
  }
  return out;
}

const AT = {
  add: (a: number, b: number) => a + b,
  subtract: (a: number, b: number) => a - b,
  multiply: (a: number, b: number) => a * b,
  divide: (a: number, b: number) => a / b,
  maximum: Math.max,
  minimum: Math.min,
} as const;

function at(name: keyof typeof AT): (d: Draw) => Drawn {
  return (d) => {
    const dtype = d.dtype(
      name === "divide" ? ["float32"] as const : ["float32", "int32", "float16", "bfloat16", "uint8"] as const,
    );
    const shape = d.shape(1, 4, false);
    const parts = draw(d, shape, true, !(dtype === "float32" || dtype === "int32"));
    const value = d.narrowed(indexed(shape, parts).shape);
    return {
      what: text(parts),
      inputs: [d.input(shape, dtype, [0, 9]), d.input(value, dtype, [1, 2])],
      run: (mx, [x, v]) => x.at(...given(mx, parts))[name](v),
      oracle: ([x, v]) =>
        updated(x, parts, v, (p, q) => isFloat(dtype) ? AT[name](p, q) : stored(dtype, AT[name](p, q))),
      tolerance: elementTolerance(dtype),
      dtype,
    };
  };
}

const clamp = (v: number, most: number): number => Math.min(most, Math.max(0, v));

/** Reading and writing at indices. */
export function drawnIndexing(): Families {
  const families: Families = {};
  for (const name of Object.keys(AT) as (keyof typeof AT)[]) families[`At.${name}`] = at(name);
  families["Tensor.at"] = at("add");
  families["Tensor.index"] = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(0, 4, false);
    const parts = draw(d, shape, true, false);
    return {
      what: text(parts),
      inputs: [d.input(shape, dtype, "special")],
      run: (mx, [x]) => x.index(...given(mx, parts)),
      oracle: ([x]) => {
        const { shape: to, from } = indexed(shape, parts);
        return build(to, (p) => x.data[ravel(shape, from(p))]);
      },
      tolerance: 0,
      dtype,
    };
  };
  families["Tensor.indexPut_"] = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1, 4, false);
    if (d.chance(0.25)) {
      const rank = d.int(1, shape.length);
      const value = d.narrowed(shape.slice(rank));
      return {
        what: "mask",
        inputs: [
          d.input(shape, dtype, "special"),
          d.input(shape.slice(0, rank), "bool", [0, 1]),
          d.input(value, dtype),
        ],
        run: (_mx, [x, m, v]) => x.indexPut_(m, v),
        oracle: ([x, m, v]) =>
          build(
            shape,
            (p) => m.data[ravel(m.shape, p.slice(0, rank))] ? read(v, p.slice(rank)) : x.data[ravel(shape, p)],
          ),
        tolerance: 0,
        dtype,
      };
    }
    const parts = draw(d, shape, true, true);
    const value = d.narrowed(indexed(shape, parts).shape);
    return {
      what: text(parts),
      inputs: [d.input(shape, dtype, "special"), d.input(value, dtype, "special")],
      run: (mx, [x, v]) => x.indexPut_(given(mx, parts), v),
      oracle: ([x, v]) => updated(x, parts, v, (_, q) => q),
      tolerance: 0,
      dtype,
    };
  };
  families.take = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const index = d.pick(["int32", "uint8", "int16", "uint32"] as const);
    const shape = d.shape(1, 4, false);
    const axis = d.chance(0.25) ? d.pick([null, undefined]) : d.axis(shape.length);
    const flat = axis === null || axis === undefined;
    const place = flat ? 0 : (axis + shape.length) % shape.length;
    const n = flat ? size(shape) : shape[place];
    const low = index.startsWith("u") ? 0 : Math.max(-n, -100);
    return {
      what: `along ${axis}`,
      inputs: [d.input(shape, dtype, "special"), d.input(d.shape(0, 2), index, [low, Math.min(n - 1, 100)])],
      run: (mx, [x, i]) => mx.take(x, i, axis),
      oracle: ([x, i]) => {
        const of = flat ? { shape: [n], data: x.data } : x;
        const to = [...of.shape.slice(0, place), ...i.shape, ...of.shape.slice(place + 1)];
        return build(to, (p) => {
          const v = i.data[ravel(i.shape, p.slice(place, place + i.shape.length))];
          const from = [...p.slice(0, place), v < 0 ? v + n : v, ...p.slice(place + i.shape.length)];
          return of.data[ravel(of.shape, from)];
        });
      },
      tolerance: 0,
      dtype,
    };
  };
  families.takeAlongAxis = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1, 4, false);
    const axis = d.axis(shape.length);
    const place = (axis + shape.length) % shape.length;
    const n = shape[place];
    const many = d.int(0, 5);
    const own = shape.map((s, i) => i === place ? many : d.chance(0.2) ? 1 : s);
    return {
      what: `along ${axis}`,
      inputs: [d.input(shape, dtype, "special"), d.input(own, "int32", [-n, n - 1])],
      run: (mx, [x, i]) => mx.takeAlongAxis(x, i, axis),
      oracle: ([x, i]) =>
        build(shape.map((s, a) => a === place ? many : s), (p) => {
          const v = read(i, p);
          return x.data[ravel(shape, p.map((q, a) => a === place ? (v < 0 ? v + n : v) : q))];
        }),
      tolerance: 0,
      dtype,
    };
  };
  families.putAlongAxis = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1, 4, false);
    const axis = d.axis(shape.length);
    const place = (axis + shape.length) % shape.length;
    const n = shape[place];
    const own = shape.map((s, i) => i === place ? d.int(1, n) : s);
    const line = shape.map((_, i) => i === place ? own[place] : 1);
    // The places of a line, each once, for every line.
    const wide = d.chance(0.5);
    const places = dense(wide ? own : line, () => 0);
    const rest = (wide ? own : line).map((s, i) => i === place ? 1 : s);
    for (let i = 0; i < size(rest); i++) {
      const order = d.shuffled(Array.from({ length: n }, (_, v) => v));
      for (let v = 0; v < own[place]; v++) {
        places.data[ravel(places.shape, unravel(rest, i).map((q, a) => a === place ? v : q))] = order[v] -
          (d.chance(0.3) ? n : 0);
      }
    }
    return {
      what: `along ${axis}`,
      inputs: [
        d.input(shape, dtype, "special"),
        { shape: places.shape, dtype: "int32", data: [...places.data] },
        d.input(d.chance(0.3) ? [] : own, dtype, "special"),
      ],
      run: (mx, [x, i, v]) => mx.putAlongAxis(x, i, v, axis),
      oracle: ([x, i, v]) => {
        const out = { shape, data: x.data.slice() };
        for (let p = 0; p < size(own); p++) {
          const to = unravel(own, p);
          const value = read(v, to);
          const at = read(i, to);
          out.data[ravel(shape, to.map((q, a) => a === place ? (at < 0 ? at + n : at) : q))] = value;
        }
        return out;
      },
      tolerance: 0,
      dtype,
    };
  };
  families.slice = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1, 4);
    const axes = d.axes(shape.length).slice(0, 3);
    const on = axes.map((a) => (a + shape.length) % shape.length);
    const of = shape.map((n) => d.int(0, n));
    return {
      what: `(${of}) along ${axes}`,
      inputs: [d.input(shape, dtype, "special"), d.input([axes.length], "int32", [-3, 9])],
      run: (mx, [x, start]) => mx.slice(x, start, axes, of),
      oracle: ([x, start]) =>
        build(of, (p) =>
          x.data[
            ravel(shape, p.map((v, a) => v + (on.includes(a) ? clamp(start.data[on.indexOf(a)], shape[a] - of[a]) : 0)))
          ]),
      tolerance: 0,
      dtype,
    };
  };
  families.sliceUpdate = (d) => {
    const dtype = d.dtype(ALL_TYPES);
    const shape = d.shape(1, 4);
    const axes = d.axes(shape.length).slice(0, 3);
    const on = axes.map((a) => (a + shape.length) % shape.length);
    const of = shape.map((n) => d.int(0, n));
    const donate = d.chance(0.4);
    const base = d.input(shape, dtype, "special", donate);
    return {
      what: `along ${axes}${donate ? " donated" : ""}`,
      inputs: [base, d.input(of, dtype, "special"), d.input([axes.length], "int32", [-3, 9])],
      run: (mx, [x, u, start]) => mx.sliceUpdate(x, u, start, axes, { donate }),
      oracle: ([x, u, start]) => {
        const out = { shape, data: x.data.slice() };
        for (let i = 0; i < size(of); i++) {
          const to = unravel(of, i).map((v, a) =>
            v + (on.includes(a) ? clamp(start.data[on.indexOf(a)], shape[a] - of[a]) : 0)
          );
          out.data[ravel(shape, to)] = u.data[i];
        }
        return out;
      },
      tolerance: 0,
      dtype,
    };
  };
  return families;
}
