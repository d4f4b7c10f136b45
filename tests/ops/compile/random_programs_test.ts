/**
 * Random programs on every device against a float64 interpreter, with guards around every buffer. They have views,
 * arithmetic, reductions, scans, sorts, products, convolutions, transforms, gathers, updates in place, casts and
 * streams. They are evaluated at random places, fused or not, compiled or not.
 *
 * VKMX_CASES=5000 runs that many; VKMX_CASES_SEED=17 begins with that seed. A failure prints its seed and the smallest program
 * that still fails.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { Guards } from "../../support/devices/guards.ts";
import { PROGRAM_OPS } from "../../support/oracles/program_ops_more.ts";
import { describe, drawProgram, failureOf, interpret, minimised } from "../../support/oracles/random_programs.ts";

const count = Number(Deno.env.get("VKMX_CASES") ?? 0);
const first = Number(Deno.env.get("VKMX_CASES_SEED") ?? 1);

/** A software GPU compiles kernels for each new program: it gets fewer. */
function programs(device: string): number {
  return count || (device === "wasm" ? 440 : 60);
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1]))); // opened outside the test, which counts resources
  Deno.test(`random programs agree with the interpreter on ${device}`, () => {
    mx.setDefaultDevice(device);
    const failures: string[] = [];
    {
      using guards = new Guards(getBackend(device));
      for (let seed = first; seed < first + programs(device) && failures.length < 5; seed++) {
        const program = drawProgram(seed);
        const failure = failureOf(program, guards) ?? guards.found.pop();
        if (!failure) continue;
        const kind = failure.split(" ")[0];
        const smallest = minimised(program, (p) => failureOf(p, guards)?.split(" ")[0] === kind);
        failures.push(`seed ${seed}: ${failure}\n${failureOf(smallest, guards)}\n${describe(smallest)}`);
      }
      if (guards.alive > 0) failures.push(`${guards.alive} buffers stay alive`);
    }
    assert(failures.length === 0, `\n${failures.join("\n\n")}`);
  });
}

Deno.test("random programs hold every kind of op, evaluations in between, both ways to fuse and to compile", () => {
  const all = Array.from({ length: 300 }, (_, i) => drawProgram(i + 1));
  const used = new Set(all.flatMap((p) => p.steps.map((s) => s.op)));
  assertEquals(Object.keys(PROGRAM_OPS).filter((name) => !used.has(name)), []);
  const share = (test: (p: (typeof all)[number]) => boolean): number => all.filter(test).length / all.length;
  assert(
    share((p) => p.compile) > 0.2 && share((p) => !p.fuse) > 0.2 && share((p) => p.steps.some((s) => s.evaluate)) > 0.5,
  );
  assert(share((p) => p.steps.length >= 8) > 0.5);
});

Deno.test("a wrong op is found and its program made small", () => {
  mx.setDefaultDevice("wasm");
  const right = PROGRAM_OPS.flip.run;
  let found: string | undefined;
  try {
    Object.assign(PROGRAM_OPS.flip, { run: (library: typeof mx, [x]: mx.Tensor[]) => library.roll(x, 1, 0) });
    for (let seed = 1; seed < 4000 && !found; seed++) {
      const program = drawProgram(seed);
      if (program.steps.length < 12 || !program.steps.some((s) => s.op === "flip") || !failureOf(program)) continue;
      const smallest = minimised(program, (p) => failureOf(p) !== undefined);
      assert(smallest.steps.some((s) => s.op === "flip"), describe(smallest));
      assert(smallest.steps.length <= drawProgram(seed).steps.length / 2, describe(smallest));
      assert(interpret(smallest).size >= 1);
      found = describe(smallest);
    }
  } finally {
    Object.assign(PROGRAM_OPS.flip, { run: right });
  }
  assert(found);
});
