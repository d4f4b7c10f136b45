/** `deno task tune`: fits and crossovers by hand, costs that were planted in a device that runs nothing, and records that can be pasted. */

import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { ROOT, run } from "../scripts/tools.ts";
import { readSteps } from "../scripts/tune/decode.ts";
import { batchEntries, crossoverOf, fitCost } from "../scripts/tune/fit.ts";
import { LAYER_SIZES, measureCosts, measureCuts, SMALL_SIZES } from "../scripts/tune/products.ts";
import { type Measured, recordSource } from "../scripts/tune/record.ts";
import type { KernelName } from "../src/backend/kernels.ts";
import { countWaves, estimateUs } from "../src/schedule/tuning/cost.ts";
import { H200 } from "../src/schedule/tuning/h200.ts";
import type { Cost, Tuning } from "../src/schedule/tuning/tuning.ts";
import { tuneDiscrete } from "../src/schedule/tuning/discrete.ts";
import { testDevices } from "./support/devices/devices.ts";
import { type Dispatched, unrunBackend } from "./support/devices/unrun_device.ts";

Deno.test("waves of workgroups count a last one by the most that a compute unit has of it", () => {
  // 10 units that run 2 at once: 20 are a wave, 10 leave each with one of two, which takes 2/3 of it.
  assertEquals([20, 40].map((groups) => countWaves(2, 10, groups)), [1, 2]);
  assertAlmostEquals(countWaves(2, 10, 10), 2 / 3);
  assertAlmostEquals(countWaves(2, 10, 21), 1 + 2 / 3);
  assertEquals(estimateUs({ residentWorkgroups: 2, usPerKStep: 0.5, usFixed: 3 }, 10, 20, 16, 2), 2 * (8 * 0.5 + 3));
});

Deno.test("a fit finds the cost that measurements follow", () => {
  for (const [residentWorkgroups, usPerKStep, usFixed] of [[1, 0.35, 3], [4, 0.88, 2], [3, 1.28, 0]]) {
    const samples = [6, 24, 96, 300, 1000].flatMap((tiles) =>
      [[16, 1], [48, 1], [48, 4]].map(([steps, splits]) => {
        // By hand, as workgroups that come in waves: persistent ones, then one of which a unit has fewer.
        const groups = tiles * splits;
        const persistent = Math.floor(groups / (24 * residentWorkgroups));
        const left = Math.ceil((groups - persistent * 24 * residentWorkgroups) / 24);
        const waves = persistent + (left > 0 ? (left + 1) / (residentWorkgroups + 1) : 0);
        return { tiles, steps, splits, us: waves * (steps / splits * usPerKStep + usFixed) };
      })
    );
    const { cost, error } = fitCost(samples, 24)!;
    assertEquals(cost.residentWorkgroups, residentWorkgroups);
    assertAlmostEquals(cost.usPerKStep, usPerKStep, 1e-6);
    assertAlmostEquals(cost.usFixed, usFixed, 1e-6);
    assert(error < 1e-6);
  }
  assertEquals(fitCost([{ tiles: 1, steps: 1, splits: 1, us: 1 }], 24), undefined);
});

Deno.test("a crossover is the size from which on the challenger always wins", () => {
  const race = (size: number, challenger?: number, champion?: number) => ({ size, challenger, champion });
  assertEquals(crossoverOf([race(1, 5, 4), race(2, 4, 4.1), race(3, 3, 9)]), 2);
  assertEquals(crossoverOf([race(3, 3, 9), race(1, 3, 4), race(2, 5, 4)]), 3);
  assertEquals(crossoverOf([race(1, 1, 2), race(2, 3, 2)]), Infinity);
  assertEquals(crossoverOf([race(1, 1), race(2, undefined, 2)]), undefined);
  assertEquals(
    batchEntries([
      { hidden: 2560, persistent: 2, barriers: 2 },
      { hidden: 1024, persistent: 3, barriers: 6 },
      { hidden: 2048, persistent: 2, barriers: 2 },
    ]),
    [{ minHidden: 2048, persistent: 2, barriers: 2 }, { minHidden: 0, persistent: 3, barriers: 6 }],
  );
});

Deno.test("times of steps give the bounds of a decoder; what was not measured stays", () => {
  const one = (rows: number, columns: number) => ({
    1: { "gemv, barriers": rows, "split_k, barriers": columns },
    2: { "grid": 3, "batched, barriers": 4 },
    4: { "grid": 6, "batched, barriers": 4 },
  });
  assertEquals(readSteps({ 1024: one(3, 2), 2048: one(2, 3) }, H200.decode), {
    gemvMinHidden: { persistent: 2048, barriers: 2048 }, // no times of one dispatch
    batchMinSequences: [{ minHidden: 2048, persistent: 2, barriers: 4 }, { minHidden: 0, persistent: 3, barriers: 4 }],
  });
  assertEquals(readSteps({}, H200.decode), {
    gemvMinHidden: H200.decode.gemvMinHidden,
    batchMinSequences: H200.decode.batchMinSequences,
  });
});

/** Microseconds of a dispatch of a device with these costs. */
function plantedTime(costs: Readonly<Partial<Record<KernelName, Cost>>>, units: number): (d: Dispatched) => number {
  return ({ kernel, spec, workgroups: [down, wide, splits] }) => {
    const cost = costs[kernel];
    return cost ? estimateUs(cost, units, down * wide, spec.K / 64, splits) : 1;
  };
}

Deno.test("measuring finds the costs of a device", () => {
  const planted = H200.quantizedProducts.costs;
  const backend = unrunBackend({ computeUnits: 24 }, undefined, plantedTime(planted, 24));
  const lines: string[] = [];
  const sizes = { ...LAYER_SIZES, warmMs: 0 };
  const found = measureCosts(backend, 24, sizes, () => false, (line) => lines.push(line));
  assertEquals(found.map(({ kernel }) => kernel).toSorted(), (Object.keys(planted) as KernelName[]).toSorted());
  assertEquals(lines.length, found.length);
  for (const { kernel, cost } of found) {
    assertEquals(cost.residentWorkgroups, planted[kernel]!.residentWorkgroups, kernel);
    assertAlmostEquals(cost.usPerKStep, planted[kernel]!.usPerKStep, 1e-6, kernel);
    assertAlmostEquals(cost.usFixed, planted[kernel]!.usFixed, 1e-5, kernel);
  }
  assertEquals(measureCosts(backend, 24, sizes, () => true, () => {}), [], "the time was over");
  assertEquals(measureCosts(unrunBackend({}, (k) => k.startsWith("coopmat")), 24, sizes, () => false, () => {}), []);
});

Deno.test("measuring finds the fastest split and the most rows of the kernels for few", () => {
  // 48 workgroups are the fastest; few rows take 10 us a row, tiles 200.
  const timeOf = ({ kernel, spec, workgroups }: Dispatched): number => {
    if (kernel === "quantized_matvec") return 10 * spec.ROWS * (workgroups[0] > 0 ? 1 : 0);
    return kernel === "quantized_matmul" ? 200 + Math.abs(workgroups[0] - 64) : 0;
  };
  const cuts = measureCuts(unrunBackend({}, undefined, timeOf), { ...LAYER_SIZES, warmMs: 0 }, () => {});
  assertEquals(cuts.targetWorkgroups, 64);
  assertEquals(cuts.maxRows, 64);
});

/** The record that a source gives, as a file beside the others would. */
async function imported(source: string): Promise<Tuning> {
  const folder = await Deno.makeTempDir();
  try {
    const tuning = new URL("../src/schedule/tuning/", import.meta.url).href;
    const file = `${folder}/record.ts`;
    await Deno.writeTextFile(file, source.replaceAll('from "./', `from "${tuning}`));
    const { ok, stderr } = await run([Deno.execPath(), "check", "--no-lock", file]);
    assert(ok, stderr);
    const values = Object.values(await import(`file://${file}`));
    assertEquals(values.length, 1);
    return values[0] as Tuning;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("a record that is printed is TypeScript with what was measured, over that of its class", async () => {
  const cost = { residentWorkgroups: 2, usPerKStep: 0.123456, usFixed: 4 };
  const measured: Measured = {
    description: "NVIDIA GeForce RTX 4060 (NVIDIA 580.1, Vulkan 1.4.312)",
    limits: { type: "discrete", vendorId: 0x10de, computeUnits: 24 },
    date: "2026-01-31",
    costs: [{ kernel: "coopmat_qkv_32", cost, error: 0.01 }],
    cuts: { targetWorkgroups: 96, maxRows: 16 },
    decode: {
      gemvMinHidden: { persistent: Infinity, barriers: 1024 },
      batchMinSequences: [{ minHidden: 0, persistent: 2, barriers: 3 }],
    },
    copy: 250,
  };
  const source = recordSource(measured);
  assertStringIncludes(source, "export const NVIDIA_GEFORCE_RTX_4060: Tuning");
  assertStringIncludes(source, "limits.vendorId === 4318 && limits.computeUnits === 24");
  const record = await imported(source);
  const base = tuneDiscrete(24);
  assertEquals(record, {
    ...base,
    name: "NVIDIA GeForce RTX 4060",
    quantizedProducts: {
      ...base.quantizedProducts,
      partsBytesPerUs: 250_000,
      costs: { ...base.quantizedProducts.costs, coopmat_qkv_32: { ...cost, usPerKStep: 0.123 } },
    },
    tiles: { targetWorkgroups: 96 },
    fewRows: { ...base.fewRows, maxRows: 16 },
    decode: { ...base.decode, ...measured.decode },
  });
  const other = {
    ...measured,
    limits: { ...measured.limits, type: "integrated" },
    cuts: { targetWorkgroups: 8, maxRows: undefined },
  } as const;
  assertStringIncludes(recordSource(other), "const BASE = tuneIntegrated(24);");
  assert(!recordSource(other).includes("fewRows"));
  assert(!recordSource({ ...measured, costs: [] }).includes("costs"));
});

for (const device of testDevices().filter((name) => name !== "wasm")) {
  Deno.test(`small sizes of all that tune measures end in a record on ${device}`, async () => {
    const program = [Deno.execPath(), "run", "-A", "--no-lock", `${ROOT}scripts/tune.ts`];
    const { ok, stdout, stderr } = await run([...program, "--small", "--device", device, "--budget", "300"]);
    assert(ok, stderr);
    const { name, tiles, decode } = await imported(stdout);
    assert(name.length > 0 && tiles.targetWorkgroups >= 1);
    assert(decode.gemvMinHidden.barriers > 0);
    for (const rows of SMALL_SIZES.fewRows) assertStringIncludes(stderr, `${rows} rows: `);
    assertStringIncludes(stderr, "256 hidden features, one sequence, gemv, barriers: ");
  });
}

Deno.test("tune refuses a device that is not Vulkan's", async () => {
  const { ok, stderr } = await run([
    Deno.execPath(),
    "run",
    "-A",
    "--no-lock",
    `${ROOT}scripts/tune.ts`,
    "--device",
    "wasm",
  ]);
  assert(!ok);
  assertStringIncludes(stderr, "wasm is no Vulkan device");
});
