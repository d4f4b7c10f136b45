/**
 * Reads the cases of tests/golden/arrays/mlx_cases.gz (calls with what MLX gives for them, written by tests/reference/mlx_cases.py), makes the
 * calls in this library's spelling and compares.
 */

import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";
import { stored } from "../../ops/cases/draw.ts";
import { nmse } from "./oracle.ts";

/** An array as the file has it: its dtype, shape, and where its elements begin. */
type Stored = readonly [dtype: mx.DtypeName, shape: readonly number[], at: number];

/** A call and what MLX gives for it. */
export interface MlxCase {
  /** MLX's function, or an operator: index, index_put, at_add. */
  readonly f: string;
  /** Arguments. */
  readonly a: readonly unknown[];
  /** Keyword arguments. */
  readonly k?: Readonly<Record<string, unknown>>;
  /** Results. */
  readonly o?: readonly unknown[];
  /** Dtypes of results that are given as another one. */
  readonly as?: readonly mx.DtypeName[];
  /** The error that MLX throws instead. */
  readonly throws?: string;
  /** Results are equal bit for bit. */
  readonly exact?: boolean;
  /** Results are sums of products. */
  readonly product?: boolean;
  /** MLX's float64 is no better than float32. */
  readonly loose?: boolean;
  /** Results that are 0 but for rounding: one step of the last bit of numbers around 1 is as good. */
  readonly nearZero?: boolean;
  /** Conversions that make results comparable. */
  readonly then?: "sort" | "abs";
}

/** Cases and the elements of their arrays. */
export interface MlxCases<C extends MlxCase = MlxCase> {
  readonly cases: readonly C[];
  readonly elements: Uint8Array<ArrayBuffer>;
}

/** All cases of a file of tests/golden. */
export function readMlxCases<C extends MlxCase = MlxCase>(file: string = "mlx_cases.gz"): MlxCases<C> {
  const bytes = new Uint8Array(gunzipSync(Deno.readFileSync(new URL(`../../golden/arrays/${file}`, import.meta.url))));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const cases = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return { cases, elements: bytes.slice(4 + length) };
}

/** Functions of MLX that give arrays and have cases, which mlx_cases_test.ts runs on every device. */
export function functionsWithCases(): Set<string> {
  const isArray = (v: unknown): boolean => typeof v === "object" && v !== null && "x" in v;
  return new Set(readMlxCases().cases.filter((c) => c.o?.some(isArray)).map((c) => c.f));
}

const BYTES: Readonly<Record<string, number>> = { bool: 1, complex64: 8 };
const bytesOf = (dtype: string): number => BYTES[dtype] ?? Number(/\d+$/.exec(dtype)![0]) / 8;
const sizeOf = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 1);

const bytesAt = ([dtype, shape, at]: Stored, elements: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> =>
  elements.slice(at, at + sizeOf(shape) * bytesOf(dtype));

const VIEWS = {
  bool: Uint8Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  float16: Float16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  complex64: Float32Array,
} as const;

/** The elements of a stored array; complex ones as pairs. */
function numbers(array: Stored, elements: Uint8Array<ArrayBuffer>): ArrayLike<number | bigint> {
  const [dtype] = array;
  const values = new VIEWS[dtype](bytesAt(array, elements).buffer);
  if (dtype !== "bfloat16") return values;
  return new Float32Array(Uint32Array.from(values as Uint16Array, (bits) => bits << 16).buffer);
}

/** A stored array on the default device. */
function arrayOf(array: Stored, elements: Uint8Array<ArrayBuffer>): mx.Tensor {
  const [dtype, shape] = array;
  const bytes = bytesAt(array, elements).buffer;
  if (sizeOf(shape) === 0) return mx.zeros(shape, mx[dtype]);
  let flat: mx.Tensor;
  if (dtype === "bfloat16") flat = mx.view(mx.array(new Uint16Array(bytes)), mx.bfloat16);
  else if (dtype === "complex64") {
    const parts = new Float32Array(bytes);
    flat = mx.array(Array.from({ length: parts.length / 2 }, (_, i) => mx.complex(parts[2 * i], parts[2 * i + 1])));
  } else if (dtype === "bool") flat = mx.array(Array.from(new Uint8Array(bytes), (v) => v !== 0));
  else if (dtype === "float64") flat = mx.array(new Float64Array(bytes), mx.float64);
  else flat = mx.array(new VIEWS[dtype](bytes));
  return mx.reshape(flat, shape);
}

type View = ["transpose", number[]] | ["slice", (number | null)[][]] | ["broadcast", number[]];

function viewed(x: mx.Tensor, views: readonly View[]): mx.Tensor {
  mx.eval(x); // a view of what lies on the device
  for (const [kind, p] of views) {
    if (kind === "transpose") x = mx.transpose(x, p);
    else if (kind === "broadcast") x = mx.broadcastTo(x, p);
    else x = x.index(...p.map(([start, stop, step]) => mx.Slice(start, stop, step)));
  }
  return x;
}

/** An argument or a result that is no array, as the library takes or gives it. */
export function valueOf(v: unknown, elements: Uint8Array<ArrayBuffer>): unknown {
  if (Array.isArray(v)) return v.map((u) => valueOf(u, elements));
  if (typeof v !== "object" || v === null) return v;
  if ("x" in v) {
    const x = arrayOf(v.x as Stored, elements);
    return "v" in v ? viewed(x, v.v as View[]) : x;
  }
  if ("d" in v) return mx[v.d as mx.DtypeName];
  if ("n" in v) return Number(v.n);
  if ("c" in v) return mx.complex(...(v.c as [number, number]));
  if ("s" in v) return mx.Slice(...(v.s as [number, number, number]));
  return v;
}

/** MLX's name in this library's spelling. */
export const camel = (name: string): string => name.replaceAll(/_(\w)/g, (_, letter) => letter.toUpperCase());

/** Functions with another call form than arguments in order: keywords are in an object after them. */
const SPELLING: Readonly<Record<string, (a: unknown[], k: Record<string, unknown>) => unknown[]>> = {
  meshgrid: (a, k) => [a, k],
  conv_general: (a, { flip = false }) => [...a, ...new Array(7 - a.length).fill(undefined), flip],
  array_equal: (a, k) => [...a, k.equalNan],
  count_nonzero: (a, k) => [...a, k.axis, k.keepdims],
};

// deno-lint-ignore no-explicit-any
type Callable = (...args: any[]) => unknown;

/** The function of a name such as "fft.fft". */
export function functionOf(name: string): Callable | undefined {
  if (name === "index") return (x: mx.Tensor, ...i: mx.Index[]) => x.index(...i);
  if (name === "index_put") {
    return (x: mx.Tensor, i: mx.Index[], v) => mx.add(x, x.dtype === mx.bool ? false : 0).indexPut_(i, v);
  }
  if (name.startsWith("at_")) {
    return (x: mx.Tensor, i: mx.Index[], v) => x.at(...i)[name.slice(3) as "add"](v);
  }
  let at: unknown = mx;
  for (const part of name.split(".")) at = (at as Record<string, unknown> | undefined)?.[camel(part)];
  return at as Callable | undefined;
}

/** The arguments of a case in this library's spelling. */
export function argumentsOf({ f, a, k }: MlxCase, elements: Uint8Array<ArrayBuffer>): unknown[] {
  const args = a.map((v) => valueOf(v, elements));
  const keywords = Object.fromEntries(Object.entries(k ?? {}).map(([key, v]) => [camel(key), valueOf(v, elements)]));
  const spelled = SPELLING[f];
  if (spelled) return spelled(args, keywords);
  return k ? [...args, keywords] : args;
}

/** The results of a case, asked for and not yet there. */
export function ask(c: MlxCase, elements: Uint8Array<ArrayBuffer>, asMethod: boolean): unknown[] {
  const fn = functionOf(c.f);
  if (!fn) throw new Error(`${c.f} is not there`);
  const args = argumentsOf(c, elements);
  const [first, ...rest] = args;
  const method = asMethod && first instanceof mx.Tensor && (first as unknown as Record<string, Callable>)[camel(c.f)];
  return resultsOf(c, typeof method === "function" ? method.apply(first, rest) : fn(...args));
}

/** The results of a function, as the list of a case. */
export function resultsOf(c: MlxCase, result: unknown): unknown[] {
  if (c.then === "sort") return [mx.sort(mx.flatten(result as mx.Tensor))];
  if (c.then === "abs") return (result as mx.Tensor[]).map((t) => mx.abs(t));
  return Array.isArray(result) && several(result) ? result : [result];
}

/** Whether a list is one of results, and not one result. */
function several(result: unknown[]): boolean {
  return result.some((v) => v instanceof mx.Tensor);
}

const FLOATS: ReadonlySet<string> = new Set(["float16", "bfloat16", "float32", "float64", "complex64"]);

/** One step of the last bit, as a part of the number. */
const STEPS: Readonly<Record<string, number>> = { float16: 2 ** -10, bfloat16: 2 ** -7 };

/** Bounds of the normalised mean squared error by dtype: of sums of products, and of all else. */
function toleranceOf(c: MlxCase, dtype: string): number {
  if (dtype === "float64" && !c.loose) return 1e-20;
  if (dtype === "float16" || dtype === "bfloat16") return c.product ? 5e-4 : 1e-5;
  return 1e-7;
}

/** Why a result is not MLX's, or nothing. */
export function wrong(c: MlxCase, i: number, actual: unknown, elements: Uint8Array<ArrayBuffer>): string | undefined {
  const expected = c.o![i];
  const isArray = typeof expected === "object" && expected !== null && "x" in expected;
  if (!isArray || !(actual instanceof mx.Tensor)) {
    return same(actual, valueOf(expected, elements))
      ? undefined
      : `is ${Deno.inspect(actual)}, MLX has ${Deno.inspect(expected)}`;
  }
  const array = expected.x as Stored;
  const dtype = c.as?.[i] ?? array[0];
  if (actual.dtype.name !== dtype) return `dtype ${actual.dtype.name}, MLX has ${dtype}`;
  if (`${actual.shape}` !== `${array[1]}`) return `shape (${actual.shape}), MLX has (${array[1]})`;
  const want = numbers(array, elements);
  const got = actual.toTypedArray() as ArrayLike<number | bigint>;
  const show = (at: number): string => `element ${at} is ${got[at]}, MLX has ${want[at]}`;
  if (c.exact || !FLOATS.has(dtype)) {
    for (let at = 0; at < want.length; at++) {
      if (got[at] !== want[at] && !(got[at] !== got[at] && want[at] !== want[at])) return show(at);
    }
    return undefined;
  }
  const rounded = Float64Array.from(
    want as ArrayLike<number>,
    (v) => dtype === "float16" || dtype === "bfloat16" ? stored(dtype, v) : v,
  );
  const finite: number[] = [], there: number[] = [];
  for (let at = 0; at < rounded.length; at++) {
    const [x, y] = [Number(got[at]), rounded[at]];
    if (Number.isFinite(x) && Number.isFinite(y)) finite.push(y), there.push(x);
    else if (!Object.is(x, y)) return show(at);
  }
  const error = nmse(there, finite);
  const step = STEPS[dtype] ?? 0;
  const least = c.nearZero ? step || 1e-6 : 0;
  if (
    error <= toleranceOf(c, dtype) ||
    there.every((x, at) => Math.abs(x - finite[at]) <= Math.max(step * Math.abs(finite[at]), least))
  ) return undefined;
  const off = (at: number): number => Object.is(got[at], rounded[at]) ? 0 : Math.abs(Number(got[at]) - rounded[at]);
  let most = 0;
  for (let at = 0; at < rounded.length; at++) {
    if (off(at) > off(most)) most = at;
  }
  return `NMSE ${error.toExponential(1)}; ${show(most)}`;
}

/** Whether two values that are no arrays are the same; numbers as float32 has them. */
function same(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, i) => same(v, b[i]));
  if (typeof b === "object" && b !== null && typeof a === "object" && a !== null && !("name" in b)) {
    return Object.entries(b).every(([key, v]) => same((a as Record<string, unknown>)[key], v));
  }
  if (typeof a === "bigint" || typeof b === "bigint") return Number(a) === Number(b);
  return typeof a === "number" && typeof b === "number" ? Math.abs(a - b) <= 1e-6 * Math.abs(b) : a === b;
}

/** A case on one line. */
export function describe({ f, a, k }: MlxCase): string {
  const text = (v: unknown): string => {
    if (Array.isArray(v)) return `[${v.map(text).join(", ")}]`;
    if (typeof v !== "object" || v === null) return JSON.stringify(v);
    if ("x" in v) {
      const [dtype, shape] = v.x as Stored;
      return `${dtype} (${shape})${
        "v" in v ? ` ${(v.v as View[]).map((view) => `${view[0]} ${JSON.stringify(view[1])}`).join(" ")}` : ""
      }`;
    }
    if ("s" in v) return (v.s as unknown[]).map((end) => end ?? "").join(":");
    return String(Object.values(v)[0]);
  };
  return `${f}(${[...a.map(text), ...Object.entries(k ?? {}).map(([key, v]) => `${key}=${text(v)}`)].join(", ")})`;
}
