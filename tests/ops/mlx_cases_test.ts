/**
 * Functions of MLX over drawn arguments, beside what MLX gave: every dtype, edge shapes, views, on every device. The cases are those of
 * tests/reference/mlx_calls.py.
 *
 * A software GPU compiles kernels for each dtype: it gets two cases a function. VKMX_CASES=100 gives it up to that many, and
 * VKMX_CASES_OP=cumsum takes one function only.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";
import { drawSome } from "../support/draw_cases.ts";
import { ask, describe, type MlxCase, readMlxCases, wrong } from "../support/oracles/mlx_cases.ts";

const { cases, elements } = readMlxCases();
const only = Deno.env.get("VKMX_CASES_OP");
const most = Number(Deno.env.get("VKMX_CASES") ?? 2);

/** Differences on purpose (also in docs/mlx.md), by the text of a failure. */
const DIFFERENT: readonly (readonly [failure: RegExp, why: string])[] = [
  [/^(sum|prod)\(u?int(8|16) \(\).*: dtype u?int32, MLX has/, "sums of small integers are always of 32 bits"],
  [/^astype\(.*, uint32\): element \d+ is 0, MLX has 429496/, "casts of floats out of range are undefined in MLX"],
  [/^full\(.*, 2.5, \w+\): dtype/, "a dtype that is given is the dtype of the result"],
  [/^floor_divide\(complex64/, "complex numbers have no floor"],
  [/^at_\w+\(.*: is taken/, "updates broadcast to the part that an index names, whatever its form"],
  [/^logcumsumexp\(float64 .*: NMSE \d\.\de-1[5-9];/, "MLX's float64 is no better than float32"],
  [/^gather_mm\(.*: is taken/, "MLX has it for float32 alone on the CPU"],
];

/** Functions that are not there yet. */
const MISSING: readonly RegExp[] = [
  /^stop_gradient\(/,
  /^cummin\(complex64 .*inclusive=false\): element \d+ is 0, MLX has Infinity$/,
];

/** Failures that no list names. */
const unexpected = (failures: readonly string[]): string[] =>
  failures.filter((text) => ![...DIFFERENT.map(([pattern]) => pattern), ...MISSING].some((known) => known.test(text)));

/** The cases of a function for a device, of which only the CPU has float64; other ones from function to function. */
function chosen(list: readonly MlxCase[], device: string, turn: number): readonly MlxCase[] {
  if (device === "wasm") return list;
  const there = list.filter((c) => !JSON.stringify(c).includes('"float64"'));
  const step = Math.max(1, there.length / most);
  return Array.from(
    { length: Math.min(most, there.length) },
    (_, i) => there[(Math.floor(i * step) + turn) % there.length],
  );
}

/** The cases by function. */
const FUNCTIONS = [...Map.groupBy(cases, (c) => c.f).values()].filter(([{ f }]) => !only || f === only);

/** Faults of cases that are evaluated together. */
function failuresOf(list: readonly MlxCase[]): string[] {
  const failures: string[] = [];
  const fail = (c: MlxCase, text: string): number => failures.push(`${describe(c)}: ${text.split("\n")[0]}`);
  const asked: { c: MlxCase; results: unknown[] }[] = [];
  for (const [i, c] of list.entries()) {
    try {
      const results = ask(c, elements, i % 3 === 0);
      if (c.throws) fail(c, `is taken, MLX has a ${c.throws}`);
      else asked.push({ c, results });
    } catch (error) {
      if (!c.throws || !(error instanceof mx.ArrayError)) fail(c, `throws ${error}`);
    }
  }
  const evaluate = (results: unknown[]): void => mx.eval(results.filter((t) => t instanceof mx.Tensor));
  try {
    evaluate(asked.flatMap((a) => a.results));
  } catch {
    // One of them is at fault: found below.
  }
  for (const { c, results } of asked) {
    try {
      const found = results.length === c.o!.length
        ? results.map((result, i) => wrong(c, i, result, elements)).find((text) => text !== undefined)
        : `${results.length} results, MLX has ${c.o!.length}`;
      if (found) fail(c, found);
    } catch (error) {
      fail(c, `throws ${error}`);
    }
  }
  return failures;
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  Deno.test(`functions give what MLX gives on ${device}`, () => {
    mx.setDefaultDevice(device);
    const failures: string[] = [];
    const turns = FUNCTIONS.map((list, turn) => ({ list, turn }));
    drawSome(device, "MLX's cases", turns, Math.ceil(turns.length / 5)).forEach(({ list, turn }) => {
      mx.tidy(() => void failures.push(...failuresOf(chosen(list, device, turn))));
    });
    assertEquals(unexpected(failures).join("\n"), "");
    if (device !== "wasm" || only) return;
    const stale = DIFFERENT.filter(([pattern]) => !failures.some((text) => pattern.test(text)));
    assertEquals(stale.map(([, why]) => why), [], "what is listed as different is not");
  });
}
