/**
 * Functions of shaders/include/math.h where subnormal floats count as 0 in all that computes with floats, but have their bits, as on some GPUs: what they
 * give is right for the number or for that 0. The header is compiled for this processor, which is told to do so.
 */

import { assert, assertEquals } from "@std/assert";
import { findZig, ROOT } from "../../scripts/tools.ts";

/** In the order of tests/support/flushed_math.c. */
const FUNCTIONS: Readonly<Record<string, (a: number, b: number) => number>> = {
  multiply: (a, b) => a * b,
  log: Math.log,
  log2: Math.log2,
  log10: Math.log10,
  pow: (a, b) => a ** b,
  arctan2: Math.atan2,
  remainder(a, b) {
    const rest = a % b;
    return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
  },
};
const LEAST = 2 ** -126;
const UNITS = [1, 2, 3, 77, 0x3fffff, 0x400000, 0x7fffff].map((n) => n * 2 ** -149);
const NUMBERS = [0, ...UNITS, LEAST, 1.5 * LEAST, 1e-20, 0.37, 1, 2.5, 63, 1e20, 3e38].flatMap((x) => [x, -x]);

Deno.test("functions of subnormal numbers hold where floats count as 0", {
  ignore: Deno.build.os === "windows" || !["x86_64", "aarch64"].includes(Deno.build.arch),
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
      "-fno-sanitize=all",
      "-ffp-contract=off",
      `-I${ROOT}/shaders/include`,
      "-o",
      library,
      `${ROOT}/tests/support/flushed_math.c`,
    ],
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const native = Deno.dlopen(library, {
    flushed: { parameters: ["u32", "buffer", "buffer", "buffer", "u32"], result: "void" },
  });
  try {
    const a = Float32Array.from(NUMBERS.flatMap((x) => NUMBERS.map(() => x)));
    const b = Float32Array.from(NUMBERS.flatMap(() => NUMBERS));
    const out = new Float32Array(a.length);
    const flush = (x: number): number => Math.abs(x) < LEAST ? x * 0 : x;
    const wrong: string[] = [];
    Object.entries(FUNCTIONS).forEach(([name, f], i) => {
      native.symbols.flushed(i, a, b, out, a.length);
      out.forEach((found, at) => {
        const [x, y] = [a[at], b[at]];
        const allowed = [[x, y], [flush(x), y], [x, flush(y)], [flush(x), flush(y)]].map(([x, y]) => f(x, y));
        const agrees = (expected: number): boolean => {
          // What a sum leaves out may be as large as a number that counts as 0.
          return Object.is(found, Math.fround(expected)) ||
            Math.abs(found - expected) <= 2e-6 * Math.abs(expected) + LEAST;
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
