/**
 * Random choices for generated rows: shapes, dtypes, layouts, and values of classes. The same seed gives the same choices.
 */

import { bfloat16, generator, size } from "../../support/oracles/oracle.ts";
import { FLOATS, type Input, type Layout, type TypeName } from "./case.ts";

/** Dtypes of whole numbers. */
export const INTEGERS = ["int32", "uint32", "uint8", "int8", "int16", "uint16"] as const;
/** All dtypes. */
export const ALL_TYPES = [...FLOATS, ...INTEGERS, "bool"] as const;

/** Bits and sign of the whole dtypes. */
const BITS = { uint8: 8, uint16: 16, uint32: 32, uint64: 64, int8: 8, int16: 16, int32: 32, int64: 64 } as const;
/** Largest finite value, least normal one and least one above 0 of the float types. */
const RANGE = {
  float64: { most: Number.MAX_VALUE, normal: 2 ** -1022, least: 2 ** -1074 },
  float32: { most: 3.4028234663852886e38, normal: 2 ** -126, least: 2 ** -149 },
  bfloat16: { most: 3.3895313892515355e38, normal: 2 ** -126, least: 2 ** -133 },
  float16: { most: 65504, normal: 2 ** -14, least: 2 ** -24 },
} as const;

/** Whether a dtype is one of floats. */
export function isFloat(dtype: TypeName): dtype is keyof typeof RANGE {
  return dtype in RANGE;
}

/** Largest finite value, least normal and least positive value of a float type. */
export function rangeOf(dtype: keyof typeof RANGE): (typeof RANGE)[keyof typeof RANGE] {
  return RANGE[dtype];
}

/** Least and largest value of a whole type. */
export function limitsOf(dtype: TypeName): readonly [number, number] {
  if (dtype === "bool") return [0, 1];
  const bits = BITS[dtype as keyof typeof BITS];
  return dtype.startsWith("u") ? [0, 2 ** bits - 1] : [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
}

/** A number as a dtype stores it: floats to nearest even, integers modulo their range, bool by "not 0". */
export function stored(dtype: TypeName, v: number): number {
  switch (dtype) {
    case "float32":
      return Math.fround(v);
    case "float64":
      return v;
    case "complex64":
      return Math.fround(v);
    case "int64":
      return Number(BigInt.asIntN(64, BigInt(Math.trunc(v))));
    case "uint64":
      return Number(BigInt.asUintN(64, BigInt(Math.trunc(v))));
    case "float16":
      return Math.f16round(v);
    case "bfloat16":
      return Number.isNaN(v) ? v : bfloat16(v);
    case "bool":
      return Number(v !== 0);
    case "uint32":
      return v >>> 0;
    case "int32":
      return v | 0;
    default: {
      const bits = BITS[dtype];
      return dtype.startsWith("u") ? v & (2 ** bits - 1) : v << (32 - bits) >> (32 - bits);
    }
  }
}

/** The dtype that two meet in: MLX's promotion. */
export function meet(a: TypeName, b: TypeName): TypeName {
  if (a === b) return a;
  if (a === "bool" || b === "bool") return a === "bool" ? b : a;
  if (a === "complex64" || b === "complex64") return "complex64";
  if (a === "float64" || b === "float64") return "float64";
  if (isFloat(a) || isFloat(b)) return isFloat(a) && isFloat(b) ? "float32" : isFloat(a) ? a : b;
  const [x, y] = [a, b].sort((p, q) => BITS[q as keyof typeof BITS] - BITS[p as keyof typeof BITS]);
  const [wide, narrow] = [BITS[x as keyof typeof BITS], BITS[y as keyof typeof BITS]];
  if (x.startsWith("u") === y.startsWith("u")) return x;
  if (x.startsWith("i") && wide > narrow) return x;
  return wide === 64 ? "float32" : `int${2 * wide}` as TypeName;
}

/** The float type that a function of a dtype gives. */
export function floatOf(dtype: TypeName): TypeName {
  return isFloat(dtype) ? dtype : "float32";
}

/**
 * Classes of values: a range; numbers of every kind with NaN and infinities ("special", or "mild" without huge ones);
 * subnormal and small. Also near the largest, mostly zeros of both signs, or of any magnitude ("bits").
 */
export type Values = readonly [low: number, high: number] | "special" | "mild" | "tiny" | "huge" | "zeros" | "bits";

const SIZES = [1, 2, 3, 4, 5, 7, 8] as const;
const LONG = [17, 31, 64, 127, 257, 300] as const;

/** A seeded source of choices. */
export class Draw {
  readonly #next: () => number;
  readonly #narrow: number | undefined;

  /** With `narrow`, the dtypes of an op are few, chosen by that number: each one is a kernel that a driver has to compile. */
  constructor(seed: number, narrow?: number) {
    this.#next = generator(seed);
    this.#narrow = narrow;
  }

  /** Uniform in [0, 1). */
  next(): number {
    return this.#next();
  }

  /** A whole number from `low` to `high`, both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.#next() * (high - low + 1));
  }

  chance(p: number): boolean {
    return this.#next() < p;
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#next() * list.length)];
  }

  /** One of some dtypes: where few are wanted the first, or one of the others. */
  dtype<T extends TypeName>(list: readonly T[]): T {
    if (this.#narrow === undefined || list.length < 3) return this.chance(0.3) ? list[0] : this.pick(list);
    return this.chance(0.5) ? list[0] : list[1 + this.#narrow % (list.length - 1)];
  }

  /** One of a list, of `most` of them where few are wanted: for what a kernel is compiled for. */
  few<T>(list: readonly T[], most = 2): T {
    if (this.#narrow === undefined) return this.pick(list);
    return list[(this.#narrow + this.int(0, most - 1)) % list.length];
  }

  /** A shape: ranks 0 to 5, sizes 0, 1, odd and even, now and then a long axis. */
  shape(least = 0, most = 5, empty = true): number[] {
    const rank = this.int(least, Math.max(least, this.chance(0.7) ? Math.min(3, most) : most));
    const shape = Array.from({ length: rank }, () => rank > 3 ? this.pick([1, 2, 3]) : this.pick(SIZES));
    if (rank > 0 && this.chance(0.2)) shape[this.int(0, rank - 1)] = this.pick(LONG);
    if (empty && rank > 0 && this.chance(0.06)) shape[this.int(0, rank - 1)] = 0;
    return shape;
  }

  /** Shapes that broadcast to `shape`. */
  narrowed(shape: readonly number[]): number[] {
    const own = shape.map((d) => this.chance(0.2) ? 1 : d);
    return this.chance(0.25) ? own.slice(this.int(0, own.length)) : own;
  }

  /** Two shapes that broadcast together. */
  pair(): [number[], number[]] {
    const shape = this.shape();
    return this.chance(0.5) ? [shape, shape] : [this.narrowed(shape), this.narrowed(shape)];
  }

  /** An axis of a rank, negative half of the time. */
  axis(rank: number): number {
    const axis = this.int(0, rank - 1);
    return this.chance(0.5) ? axis - rank : axis;
  }

  /** Some axes of a rank, in any order and sign; at least one where there are any. */
  axes(rank: number): number[] {
    const all = this.shuffled(Array.from({ length: rank }, (_, i) => i));
    return all.slice(0, this.int(Math.min(1, rank), rank)).map((a) => this.chance(0.3) ? a - rank : a);
  }

  shuffled<T>(list: readonly T[]): T[] {
    return list.map((value) => ({ value, at: this.#next() })).sort((a, b) => a.at - b.at).map(({ value }) => value);
  }

  /** A number of a float type: uniform in a range, or of a class. */
  #float(dtype: keyof typeof RANGE, values: Values): number {
    const { most, normal, least } = RANGE[dtype];
    const sign = this.chance(0.5) ? 1 : -1;
    if (Array.isArray(values)) return values[0] + (values[1] - values[0]) * this.#next();
    switch (values) {
      case "tiny":
        return this.pick([sign * least * this.int(1, 1000), sign * normal * (1 + this.#next()), 0, -0]);
      case "huge":
        return this.pick([sign * most, sign * most * this.#next(), sign * most / 2, sign]);
      case "zeros":
        return this.pick([0, -0, 0, -0, sign, sign * this.#next()]);
      case "bits":
        return sign * 2 ** (Math.log2(least) + this.#next() * Math.log2(most / least));
      default: {
        if (this.chance(0.4)) return 8 * this.#next() - 4;
        const ordinary = [1, -1, sign * 0.5, 2, sign * 1e-6, sign * 1000, sign * this.int(0, 300)];
        const special = [0, -0, Infinity, -Infinity, NaN, sign * least, sign * normal, sign * normal * 0.75];
        return this.pick([...ordinary, ...special, ...(values === "mild" ? [] : [sign * most, sign * most / 2])]);
      }
    }
  }

  #whole(dtype: TypeName, values: Values): number {
    const [low, high] = limitsOf(dtype);
    if (Array.isArray(values)) {
      const [from, to] = [Math.max(low, Math.ceil(values[0])), Math.min(high, Math.floor(values[1]))];
      return this.int(from, Math.max(from, to));
    }
    if (this.chance(0.3)) return this.int(low, high);
    const near = [low, low + 1, high, high - 1, 0, 1, 2, 7, -1, -2, 31, 32, 100, 65535, 65536, -32769];
    return this.pick(near.filter((v) => v >= low && v <= high));
  }

  /** Values of a class, as the dtype holds them. Whole dtypes know ranges; every other class holds their extremes. */
  values(count: number, dtype: TypeName, values: Values): number[] {
    return Array.from(
      { length: count },
      () => isFloat(dtype) ? stored(dtype, this.#float(dtype, values)) : this.#whole(dtype, values),
    );
  }

  /** An input of a shape in some layout. */
  input(shape: readonly number[], dtype: TypeName, values: Values = [-4, 4], contiguous = false): Input {
    const rank = shape.length;
    const layouts: (Layout | undefined)[] = [undefined, undefined, undefined, "offset"];
    if (rank >= 1) layouts.push("strided", "reversed");
    if (rank >= 1 && size(shape) > 0) layouts.push("repeated");
    if (rank >= 2) layouts.push("transposed", "permuted");
    const layout = contiguous ? undefined : this.pick(layouts);
    let data = this.values(size(shape), dtype, values);
    if (layout === "repeated") {
      const row = data.slice(0, data.length / shape[0]);
      data = Array.from({ length: shape[0] }, () => row).flat();
    }
    return { shape, dtype, data, layout };
  }

  /** The same input with a few values replaced, now and then. */
  sprinkled(input: Input, by: readonly number[]): Input {
    if (this.chance(0.6) || !isFloat(input.dtype) || input.layout === "repeated") return input;
    return { ...input, data: input.data!.map((v) => this.chance(0.05) ? this.pick(by) : v) };
  }

  /** Ranges of ordinary numbers or, now and then, a class. */
  class(range: readonly [number, number], classes: readonly Values[] = ["special", "tiny", "huge", "zeros"]): Values {
    return this.chance(0.3) || classes.length === 0 ? range : this.pick(classes);
  }
}
