/**
 * Wrong calls: calls that MLX has results for, with one or two arguments replaced by something that does not belong there.
 *
 * A call must give a result whose elements can be read, or an error that names its function. All else is a failure.
 */

import * as mx from "../../../mod.ts";
import type { Draw } from "../../ops/cases/draw.ts";
import { argumentsOf, camel, functionOf, type MlxCase } from "../oracles/mlx_cases.ts";

/** Numbers that few arguments take. */
const NUMBERS = [
  -1,
  0,
  -0,
  1,
  2,
  3,
  7,
  100,
  -100,
  0.5,
  -1.5,
  NaN,
  Infinity,
  -Infinity,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  -(2 ** 40),
  1e300,
];

const DTYPES = [
  "bool",
  "int8",
  "uint16",
  "int32",
  "uint32",
  "int64",
  "uint64",
  "float16",
  "bfloat16",
  "float32",
  "complex64",
] as const;

/** Arrays of every rank and dtype, some without elements and one that is gone. */
function anyArray(d: Draw): mx.Tensor {
  const shape = d.pick([[], [1], [3], [2, 3], [0], [2, 0], [1, 2, 3], [2, 1, 2, 1, 2], [1, 1, 1, 1, 1, 1, 1, 1, 1]]);
  const x = mx.astype(mx.reshape(mx.arange(shape.reduce((n, s) => n * s, 1)), shape), mx[d.pick(DTYPES)]);
  if (d.chance(0.05)) x.dispose();
  return x;
}

/** Anything at all. */
function anything(d: Draw): unknown {
  const makers: (() => unknown)[] = [
    () => anyArray(d),
    () => anyArray(d),
    () => anyArray(d),
    () => d.pick(NUMBERS),
    () => d.pick(NUMBERS),
    () => d.pick(["", "a", "float32", "constant", "same", "ij,jk", "ij->k", "\u0000", "é", "__proto__"]),
    () => d.pick([null, undefined, true, false]),
    () => d.pick([5n, -1n, 2n ** 70n]),
    () =>
      d.pick([[], [[]], [1, [2]], [NaN], [1.5], [-1], [0, 0], [1, 2, 3, 4, 5, 6, 7], [null], ["a"], [undefined], [[
        1,
        2,
      ], [3]], [2 ** 40]]),
    () => [anyArray(d), d.pick(NUMBERS)],
    () => Array.from({ length: d.int(0, 4) }, () => d.pick(NUMBERS)),
    () =>
      d.pick([
        {},
        { axis: 0 },
        { nosuch: 1 },
        { length: 3 },
        { shape: [2] },
        { re: 1 },
        Object.create(null),
        new Map(),
        new Date(0),
      ]),
    () => mx[d.pick(DTYPES)],
    () => d.pick([Math.max, class {}, Symbol.iterator, /a/, new Error("a"), Promise.resolve()]),
    () =>
      d.pick([
        new Float32Array(3),
        new BigInt64Array(2),
        new Uint8ClampedArray(1),
        new DataView(new ArrayBuffer(4)),
        new ArrayBuffer(8),
      ]),
    () => d.pick([mx.Slice(0, 2), mx.complex(1, 2), new Array(3), new Proxy([1, 2], {}), Object.freeze([1])]),
  ];
  return d.pick(makers)();
}

/** A call with wrong arguments. */
export interface WrongCall {
  /** Names by which an error may call the function. */
  readonly names: readonly string[];
  readonly args: readonly unknown[];
  readonly run: () => unknown;
}

/** Calls of what Python has operators for; the array is the right one. */
const OPERATORS: Readonly<Record<string, (args: readonly unknown[]) => WrongCall>> = {
  index: (args) => ({
    names: ["index"],
    args,
    run: () => (args[0] as mx.Tensor).index(...args.slice(1) as mx.Index[]),
  }),
  index_put: (args) => ({
    names: ["indexPut_"],
    args,
    run: () => mx.flatten(args[0] as mx.Tensor).indexPut_(args[1] as mx.Index[], args[2] as mx.Tensor),
  }),
  ...Object.fromEntries((["add", "subtract", "multiply", "divide", "maximum", "minimum"] as const).map((by) => [
    `at_${by}`,
    (args: readonly unknown[]): WrongCall => ({
      names: [`at().${by}`],
      args,
      run: () => (args[0] as mx.Tensor).at(...[args[1]].flat() as mx.Index[])[by](args[2] as mx.Tensor),
    }),
  ])),
};

/** A wrong call of a function by its path, such as "fft.fft"; of the method in place of the function for `asMethod`. */
export function wrongCall(d: Draw, path: string, right: readonly unknown[], asMethod: boolean): WrongCall {
  const args = [...right];
  for (let n = d.pick([1, 1, 1, 2]); n > 0; n--) {
    const at = d.int(asMethod || OPERATORS[path] ? 1 : 0, Math.max(args.length, 1));
    const old = args[at];
    if (at < args.length && d.chance(0.08)) args.length = at;
    else if (typeof old === "object" && old !== null && old.constructor === Object && d.chance(0.7)) {
      const key = d.pick([...Object.keys(old), "nosuch"]);
      args[at] = { ...old, [key]: anything(d) };
    } else if (Array.isArray(old) && old.length > 0 && d.chance(0.5)) {
      args[at] = old.with(d.int(0, old.length - 1), anything(d));
    } else args[at] = anything(d);
  }
  const name = camel(path).split(".").pop()!;
  const operator = OPERATORS[path];
  if (operator) return operator(args);
  const fn = functionOf(path)!;
  if (asMethod) {
    const [self, ...rest] = args;
    const method = (self as Record<string, unknown>)[name] as (...args: unknown[]) => unknown;
    return { names: [name, fn.name], args, run: () => method.apply(self, rest) };
  }
  return { names: [name, fn.name], args, run: () => fn(...args) };
}

/** Whether an array or method of that name is there. */
export function isMethod(path: string, right: readonly unknown[]): boolean {
  const method = right[0] instanceof mx.Tensor && (right[0] as unknown as Record<string, unknown>)[camel(path)];
  return typeof method === "function";
}

/** The arguments of a call that is right. */
export const rightArguments = (c: MlxCase, elements: Uint8Array<ArrayBuffer>): unknown[] => argumentsOf(c, elements);

const CLASSES: ReadonlySet<string> = new Set(["ShapeError", "DtypeError", "IndexError", "ValueError"]);

/** The fault of a call's error. */
function wrongError(error: unknown, names: readonly string[]): string | undefined {
  if (!(error instanceof mx.ArrayError)) {
    return `throws ${error instanceof Error ? `${error.name}: ${error.message}\n${error.stack}` : error}`;
  }
  const { message } = error;
  if (error.code === "disposed") return undefined; // of the array, for any reader
  if (!CLASSES.has(error.name)) return `throws ${error.name}: ${message}`;
  if (message.includes("\n")) return `has lines in its message: ${message}`;
  if (message.startsWith("cannot make an array of shape")) return undefined; // too large: where, the shape tells
  if (!names.some((name) => message.startsWith(`${name}() `))) return `names another function: ${message}`;
  return undefined;
}

/** Largest number of elements that are computed: larger results are not looked at. */
const MOST = 20_000;

/** All numbers of arguments, and of shapes of arrays. */
function largest(v: unknown): number {
  if (typeof v === "number") return Number.isFinite(v) ? Math.abs(v) : 0;
  if (typeof v === "bigint") return Math.abs(Number(v));
  if (v instanceof mx.Tensor) return v.isDisposed ? Infinity : v.size;
  if (Array.isArray(v)) return Math.max(0, ...v.map(largest));
  return typeof v === "object" && v !== null && v.constructor === Object
    ? Math.max(0, ...Object.values(v).map(largest))
    : 0;
}

/** Why what comes of a call is no way to treat a caller, or nothing. */
export function complaint({ names, args, run }: WrongCall, evaluate: boolean): string | undefined {
  let result: unknown;
  try {
    result = run();
  } catch (error) {
    return wrongError(error, names);
  }
  const arrays = [result].flat().filter((t) => t instanceof mx.Tensor);
  for (const { shape } of arrays) {
    if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0)) return `gives an array of shape (${shape})`;
  }
  if (!evaluate || largest(args) > MOST || arrays.some((t) => t.size > MOST)) return undefined;
  try {
    mx.eval(arrays);
    for (const array of arrays) array.tolist();
  } catch (error) {
    return `cannot be evaluated: ${error}`;
  }
  return undefined;
}

/** Arguments on one line. */
export function show(args: readonly unknown[]): string {
  return args.map((v) =>
    v instanceof mx.Tensor
      ? v.isDisposed ? "a disposed array" : `${v.dtype.name} (${v.shape})`
      : Array.isArray(v)
      ? `[${show(v)}]`
      : v instanceof Error
      ? v.name
      : Deno.inspect(v, { compact: true, breakLength: Infinity, depth: 1 })
  ).join(", ");
}
