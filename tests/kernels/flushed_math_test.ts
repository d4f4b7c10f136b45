/**
 * Functions of shaders/include/math/math.h and small_float.h on a device that flushes subnormal floats, as some GPUs
 * do. Floating-point operations read them as 0, but their bits stay. The results are right for the number or, if that
 * is allowed, for 0. The headers are compiled for this processor with flushing switched on.
 */

import { assert, assertEquals } from "@std/assert";
import { findZig, ROOT } from "../../scripts/tools.ts";
import { needing } from "../support/needs.ts";
import { smallNumber, smallScale } from "../support/oracles/small_floats.ts";

const LEAST = 2 ** -126;
const UNITS = [1, 2, 3, 77, 0x3fffff, 0x400000, 0x7fffff].map((n) => n * 2 ** -149);
const NUMBERS = [0, ...UNITS, LEAST, 1.5 * LEAST, 1e-20, 0.37, 1, 2.5, 63, 1e20, 3e38].flatMap((x) => [x, -x]);
const COMPARED = pairsOf([...NUMBERS, NaN, Infinity, -Infinity]);
const CODES = Array.from({ length: 255 }, (_, code) => code);

/** A function of two numbers and what it is tried on. */
interface FlushRow {
  readonly name: string;
  readonly f: (a: number, b: number) => number;
  /** May take subnormal numbers for 0, and be off by rounding. */
  readonly flushes?: true;
  /** {@link NUMBERS} when left out. */
  readonly pairs?: readonly (readonly [number, number])[];
}

/** In the order of tests/support/oracles/flushed_math.c. */
const FUNCTIONS: readonly FlushRow[] = [
  { name: "multiply", f: (a, b) => a * b, flushes: true },
  { name: "log", f: Math.log, flushes: true },
  { name: "log2", f: Math.log2, flushes: true },
  { name: "log10", f: Math.log10, flushes: true },
  { name: "pow", f: (a, b) => a ** b, flushes: true },
  { name: "arctan2", f: Math.atan2, flushes: true },
  {
    name: "remainder",
    f(a, b) {
      const rest = a % b;
      return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
    },
    flushes: true,
  },
  { name: "equal", f: (a, b) => Number(a === b), pairs: COMPARED },
  { name: "less", f: (a, b) => Number(a < b), pairs: COMPARED },
  { name: "less_equal", f: (a, b) => Number(a <= b), pairs: COMPARED },
  { name: "sign", f: (a) => Math.sign(a) + 0 },
  { name: "maximum", f: (a, b) => a === b ? b : Math.max(a, b) },
  { name: "minimum", f: (a, b) => a === b ? b : Math.min(a, b) },
  { name: "negative", f: (a) => -a },
  {
    name: "scaled_by_power",
    f: (a, b) => a * b,
    pairs: CODES.flatMap((code) =>
      CODES.map((scale) => [smallNumber("mxfp8", code), smallScale("mxfp8", scale)] as const)
    ),
  },
  { name: "ceil_log2", f: (a) => a === 0 ? 0 : Math.ceil(Math.fround(Math.log2(Math.abs(a)))) },
  { name: "ceil", f: Math.ceil },
  { name: "floor", f: Math.floor },
];

function pairsOf(numbers: readonly number[]): [number, number][] {
  return numbers.flatMap((a) => numbers.map((b): [number, number] => [a, b]));
}

const test = await needing("functions of subnormal numbers hold where floats count as 0", "zig");

Deno.test({
  ...test,
  ignore: test.ignore || Deno.build.os === "windows" || !["x86_64", "aarch64"].includes(Deno.build.arch),
}, async () => {
  const folder = await Deno.makeTempDir();
  const library = `${folder}/libflushed_math.so`;
  const [zig, ...args] = (await findZig())!;
  const { code, stderr } = await new Deno.Command(zig, {
    args: [
      ...args,
      "cc",
      "-shared",
      "-fPIC",
      "-O0",
      ...Deno.build.os === "linux" ? ["-nostdlib"] : [], // Deno has libm; Zig would first compile a runtime for half a minute
      "-fno-sanitize=all",
      "-ffp-contract=off",
      `-I${ROOT}/shaders/include`,
      "-o",
      library,
      `${ROOT}/tests/support/oracles/flushed_math.c`,
    ],
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const native = Deno.dlopen(library, {
    flushed: { parameters: ["u32", "buffer", "buffer", "buffer", "u32"], result: "void" },
  });
  try {
    const flush = (x: number): number => Math.abs(x) < LEAST ? x * 0 : x;
    const wrong: string[] = [];
    FUNCTIONS.forEach(({ name, f, flushes, pairs = pairsOf(NUMBERS) }, i) => {
      const a = Float32Array.from(pairs, ([x]) => x);
      const b = Float32Array.from(pairs, ([, y]) => y);
      const out = new Float32Array(a.length);
      native.symbols.flushed(i, a, b, out, a.length);
      out.forEach((found, at) => {
        const [x, y] = [a[at], b[at]];
        const operands = flushes ? [[x, y], [flush(x), y], [x, flush(y)], [flush(x), flush(y)]] : [[x, y]];
        const allowed = operands.map(([x, y]) => f(x, y));
        const agrees = (expected: number): boolean => {
          // The part that a sum leaves out may be as large as a number that counts as 0.
          return Object.is(found, Math.fround(expected)) ||
            (flushes !== undefined && Math.abs(found - expected) <= 2e-6 * Math.abs(expected) + LEAST);
        };
        if (!allowed.some(agrees)) wrong.push(`${name}(${x}, ${y}) is ${found}, not ${allowed.join(" or ")}`);
      });
      if (name === "multiply") {
        assert(out.every((found, at) => a[at] * b[at] === 0 || found === 0 || Math.abs(found) >= LEAST));
      }
    });
    assertEquals(wrong.slice(0, 8), []);
  } finally {
    native.close();
    await Deno.remove(folder, { recursive: true });
  }
});
