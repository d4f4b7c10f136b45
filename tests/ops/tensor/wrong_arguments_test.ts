/**
 * Calls of every function with wrong arguments. Each gives a result, or an argument error that names the function that
 * was called. Nothing else gets out, and no memory stays in use.
 *
 * VKMX_CASES=1000 makes that many calls of a function instead of 40, VKMX_CASES_SEED=17 begins with that seed, VKMX_CASES_OP=cumsum
 * takes one function only.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { UNTESTED } from "../cases.ts";
import { Draw } from "../cases/draw.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { camel, functionOf, readMlxCases } from "../../support/oracles/mlx_cases.ts";
import { complaint, isMethod, rightArguments, show, wrongCall } from "../../support/planted/wrong_arguments.ts";

const { cases, elements } = readMlxCases();
const only = Deno.env.get("VKMX_CASES_OP");
const count = Number(Deno.env.get("VKMX_CASES") ?? 40);
const seed = Number(Deno.env.get("VKMX_CASES_SEED") ?? 1);

const ONE = (): mx.Tensor => mx.array(1, mx.float32);

/** Right calls of functions that MLX has no results for. */
const OTHERS: Readonly<Record<string, () => unknown[]>> = {
  ...Object.fromEntries(
    Object.entries(mx.nn).filter(([, value]) => typeof value === "function").map(([name]) => `nn.${name}`)
      .filter((name) => !UNTESTED.has(name)).map((name) => [name, () => [mx.arange(6, mx.float32)]]),
  ),
  "array": () => [[[1, 2], [3, 4]], mx.int32],
  "variance": () => [mx.arange(6, mx.float32), 0, true],
  "random.bits": () => [[2, 3], mx.random.key(1)],
  "fast.sample": () => [mx.ones([2, 7]), { temperature: 0.5, topP: 0.9, topK: 3, minP: 0.1, key: mx.random.key(1) }],
  "quantize": () => [mx.ones([8, 32]), 16, 4, "nvfp4", { globalScale: ONE() }],
  "gatherQmm": () => [
    mx.ones([3, 1, 64]),
    ...mx.quantize(mx.ones([4, 8, 64])),
    ...[null, [3, 0, 1], true, 64, 4, "affine", null, { sortedIndices: false }],
  ],
  "qqmm": () => [
    mx.ones([2, 32]),
    ...mx.quantize(mx.ones([8, 32]), 16, 4, "nvfp4"),
    ...[16, 4, "nvfp4", ONE(), ONE()],
  ],
  "gatherQqmm": () => [
    mx.ones([3, 1, 32]),
    ...mx.quantize(mx.ones([4, 8, 32]), 16, 4, "nvfp4"),
    ...[null, [3, 0, 1], 16, 4, "nvfp4", ONE(), ONE(), { sortedIndices: false }],
  ],
  "fast.logprobs": () => [mx.ones([2, 7]), mx.array([1, 2], mx.uint32), 3],
};

/** Draws right calls, by function. */
const RIGHT = [
  ...[...Map.groupBy(cases, (c) => c.f)].map(([name, list]) => {
    const draw = (d: Draw, wide: boolean): unknown[] =>
      rightArguments(d.pick(list.filter((c) => wide || !JSON.stringify(c).includes("float64"))), elements);
    return [name, draw] as const;
  }),
  ...Object.entries(OTHERS),
].filter(([name]) => functionOf(name) && (!only || name === only));

Deno.test("wrong arguments are given to every function of arrays", () => {
  const given = new Set(RIGHT.map(([name]) => camel(name)));
  const parts = { "": mx, "random.": mx.random, "fast.": mx.fast, "linalg.": mx.linalg, "fft.": mx.fft, "nn.": mx.nn };
  const left = Object.entries(parts).flatMap(([part, functions]) =>
    Object.entries(functions).filter(([, value]) => typeof value === "function").map(([name]) => part + name)
  );
  if (!only) assertEquals(left.filter((name) => !given.has(name) && !UNTESTED.has(name)), []);
});

/** Kernels that are not there yet; who lacks one is known when it runs. */
const MISSING = /cannot be evaluated: DtypeError: \w+ does not take (u?int64|float64|complex64)/;

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  Deno.test(`wrong arguments give errors that name the function on ${device}`, () => {
    mx.setDefaultDevice(device);
    const failures: string[] = [];
    RIGHT.forEach(([name, rightCall], number) => {
      const before = getBackend(device).liveObjects().buffers;
      // A software GPU compiles kernels for what is evaluated.
      const calls = device === "wasm" ? count : Math.ceil(count / 10);
      for (let i = 0; i < calls; i++) {
        const d = new Draw(seed * 1e6 + number * 1009 + i * 7919);
        mx.tidy(() => {
          const right = rightCall(d, device === "wasm");
          const call = wrongCall(d, name, right, d.chance(0.3) && isMethod(name, right));
          const found = complaint(call, device === "wasm" || (i === 0 && number % 4 === 0));
          if (found && !MISSING.test(found)) failures.push(`${name}(${show(call.args)}) ${found}`);
        });
      }
      const left = getBackend(device).liveObjects().buffers - before;
      // These hand on a part (an index of several arrays, a padded axis) that waits for the collector where the rest then fails.
      if (left > 0 && !/^(at_|fft\.)/.test(name)) failures.push(`${name}: ${left} buffers stay alive`);
    });
    assert(failures.length === 0, `\n${failures.join("\n")}`);
  });
}
