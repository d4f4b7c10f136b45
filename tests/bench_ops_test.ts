/** The benchmark of array functions: every row runs at a small size, and its table says ratios, rates and what is missing. */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import * as mx from "../mod.ts";
import { getBackend } from "../src/backend/devices.ts";
import { UsageError } from "../src/cli/flags.ts";
import { OP_CASES, type OpCase, sizeOf } from "../scripts/bench/ops/cases.ts";
import { figureOf, measureCase, type OpRow } from "../scripts/bench/ops/measure.ts";
import { describeOps, geometricMean } from "../scripts/bench/ops/table.ts";
import { Reference } from "../scripts/bench/reference.ts";

mx.setDefaultDevice("wasm");
mx.withDevice("wasm", getBackend); // opened outside the tests, which count resources

const EFFORT = { samples: 1, ms: 0 };
const SCALE = 1e-4;

Deno.test("every row runs at a small size, those of GPUs too", async () => {
  assertEquals(new Set(OP_CASES.map((c) => c.name)).size, OP_CASES.length);
  for (const c of OP_CASES) {
    assert((c.cpu === undefined) === (c.mlx === undefined), `${c.name}: rows of the CPU, and only they, are compared`);
    const small: OpCase = { ...c, cpu: c.cpu ?? c.gpu };
    const row = await measureCase(small, SCALE, EFFORT);
    assert(row, c.name);
    assertEquals(row.size, sizeOf(small, "cpu", SCALE));
    if (row.missing === undefined) assert(row.vkmx! > 0 && row.vkmx! < 60_000, c.name);
    else assertMatch(row.missing, /^there is no mx\./, c.name);
  }
});

Deno.test("the median of the samples counts, or the least where that is asked for", () => {
  assertEquals([figureOf([5, 1, 9]), figureOf([5, 1, 9], true), figureOf([]), figureOf([], true)], [5, 1, null, null]);
});

Deno.test("rows that are for a GPU only are not measured on the CPU", async () => {
  const c = OP_CASES.find((c) => c.cpu === undefined)!;
  assertEquals(await measureCase(c, SCALE, EFFORT), undefined);
});

Deno.test("sizes follow the scale by the power that work grows with", () => {
  const c = { ...OP_CASES[0], cpu: 1024, power: undefined };
  assertEquals(sizeOf(c, "cpu", 1 / 8), 128);
  assertEquals(sizeOf({ ...c, power: 3 }, "cpu", 1 / 8), 512);
  assertEquals(sizeOf({ ...c, power: 2 }, "cpu", 1 / 4), 512);
  assertEquals(sizeOf({ ...c, power: 2 }, "cpu", 1e-7), 8);
});

Deno.test("describeOps() prints rates, ratios, means and what is missing", () => {
  const bytes = { unit: "bytes", amount: 8e6 } as const;
  const rows: OpRow[] = [
    { case: "add", size: 1000, work: bytes, vkmx: 2, mlx: 8, numpy: 1 },
    { case: "exp", size: 1000, work: bytes, vkmx: 4, mlx: 4, numpy: null },
    { case: "matmul", size: 64, work: { unit: "flops", amount: 6e9 }, vkmx: 2, mlx: null, numpy: null },
    { case: "sort", size: 64, work: { unit: "keys", amount: 6e6 }, vkmx: 2, mlx: null, numpy: null },
    { case: "fft", size: 64, work: bytes, vkmx: null, mlx: 3, numpy: null, missing: "there is no mx.fft.fft" },
  ];
  const text = describeOps(rows, undefined, { mlx: "0.32", numpy: "2" });
  assertMatch(text, /^add +1000 +2\.0000 +4\.00 GB\/s +8\.0000 +4\.00 +1\.0000 +0\.50$/m);
  assertMatch(text, /^geometric mean of 2 rows: 2\.00 x mlx 0\.32$/m);
  assertMatch(text, /^geometric mean of 1 rows: 0\.50 x numpy 2$/m);
  assertMatch(text, /^fft +64 +missing .*3\.0000 +- +- +-$/m);
  assertMatch(text, /^fft: there is no mx\.fft\.fft$/m);
  const gpu = describeOps(rows, 8);
  assertMatch(gpu, /^a copy moves 8\.0 GB\/s$/m);
  assertMatch(gpu, /^add .* 4\.00 GB\/s +0\.50$/m);
  assertMatch(gpu, /^matmul .* 3\.00 TFLOP\/s +-$/m);
  assertMatch(gpu, /^sort .* 3\.00 G keys\/s +-$/m);
  assertEquals(geometricMean([]), null);
});

Deno.test("an interpreter that is none is refused in one line that says what to give", async () => {
  for (const python of ["no-such-python", Deno.execPath()]) {
    const error = await assertRejects(
      () => Reference.start(python, "ops/reference.py", "mlx[cpu] and numpy"),
      UsageError,
    );
    assertMatch(error.message, /--python or VKMX_PYTHON, or --no-reference$/);
  }
});
