/** The benchmarks' common part: ratios, the tables, the forms of sequences together, and both sides as processes. */

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { fileURLToPath } from "node:url";
import { median, readCounts } from "../src/cli/bench/figures.ts";
import { UsageError } from "../src/cli/flags.ts";
import * as mx from "../mod.ts";
import { describeSequences, formOf, FORMS, sequenceCells, sequenceRows } from "../scripts/bench/sequences.ts";
import { type Case, describeRows, joinTimes, row, runPeer, runSide } from "../scripts/bench/compare.ts";
import { getBackend } from "../src/backend/devices.ts";
import { matrixMap } from "../src/schedule/ops/coopmat.ts";
import { testDevices } from "./support/devices.ts";
import { TINY_DIR } from "./support/models.ts";

for (const name of testDevices()) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

Deno.test("row() says above 1 where vkmx is better, of rates and of times", () => {
  assertEquals(row("a", 30, "p", 10, "tok/s").ratio, 3);
  assertEquals(row("a", 2, "p", 10, "ms").ratio, 5);
  assertEquals(row("a", 2, "p", null, "ms"), {
    case: "a",
    vkmx: 2,
    peer: null,
    peer_value: null,
    unit: "ms",
    ratio: null,
  });
});

Deno.test("joinTimes() and median() take the repeats of all rounds together", () => {
  const times = joinTimes([{ times: { a: [3, 1], b: [7] } }, { times: { a: [2] } }]);
  assertEquals(times, { a: [3, 1, 2], b: [7] });
  assertEquals([median(times.a), median(times.none)], [2, null]);
});

Deno.test("describeRows() prints a line a case", () => {
  const lines = describeRows([row("decode", 1234.5, "p", 617.25, "tok/s"), row("load", 0.5, null, null, "s")]);
  assertMatch(lines, /^decode +1235 tok\/s +617\.3 tok\/s +2\.00 +p$/m);
  assertMatch(lines, /^load +0\.50 s +- +-$/m);
});

Deno.test("runSide() times every case, and a peer that is not there is no failure", async () => {
  const cases: Case[] = [
    { name: "prompt", kind: "prefill", prompt: 16, warmUps: 1, repeats: 2 },
    { name: "tokens", kind: "decode", prompt: 4, tokens: 8, window: 4, warmUps: 0, repeats: 1 },
    { name: "drawn", kind: "decode", prompt: 4, tokens: 4, sampled: true, warmUps: 0, repeats: 1 },
    { name: "two", kind: "decode", prompt: 4, tokens: 4, rows: 2, warmUps: 0, repeats: 1 },
  ];
  const { device, times, memory } = await runSide(fileURLToPath(TINY_DIR), { device: "wasm", cases });
  assertMatch(device, /^wasm: /);
  assertEquals(Object.keys(times).sort(), ["drawn", "load", "loaded", "prompt", "tokens", "two"]);
  assertEquals(times.prompt.length, 2);
  assert(memory > 10e6);
  assert(Object.values(times).flat().every((ms) => ms > 0 && ms < 60_000));
  const folder = await Deno.makeTempDir();
  assertEquals(await runPeer(folder, "none.gguf", { gpu: true, batch: 512, cases }), undefined);
  await Deno.remove(folder);
});

Deno.test("readCounts() reads whole numbers and refuses all else with the flag's name", () => {
  assertEquals(readCounts("threads", "2,16,3", 2), [2, 16, 3]);
  for (const text of ["", "2,,3", "1,2", "2.5", "two", "2;3"]) {
    assertThrows(
      () => readCounts("sequences", text, 2),
      UsageError,
      `--sequences is "${text}", expected whole numbers`,
    );
  }
});

Deno.test("formOf() tells by the kernels of a step how several sequences were computed", () => {
  const kernels = (region: string | undefined, calls: Readonly<Record<string, number>>) =>
    Object.entries(calls).map(([kernel, calls]) => ({ region, kernel, calls }));
  const prompt = kernels("prompt end", { decode_mlp_u64: 1, batch_head: 1 });
  const of = (calls: Readonly<Record<string, number>>) => formOf([...prompt, ...kernels("decoder step", calls)]);
  assertEquals(of({ batch_begin: 1, batch_layers: 12, batch_head: 12 }), "one dispatch");
  assertEquals(of({ batch_begin: 1, batch_layers: 12 * 5 * 28, batch_head: 12 }), "barriers");
  assertEquals(of({ batch_begin: 2, batch_layers: 6 + 6 * 140, batch_head: 12 }), "barriers"); // changed over between
  assertEquals(of({ decode_qkv_u64: 28, decode_mlp_u64: 28 }), "grid");
  assertEquals(formOf([...prompt, ...kernels(undefined, { matmul: 9 })]), undefined);
});

Deno.test("the table of sequences has a row a number, a column a form, and no figure where there is none", () => {
  const like: Case = { name: "decode", kind: "decode", prompt: 8, tokens: 4, warmUps: 1, repeats: 2 };
  const cells = sequenceCells([2, 8], like);
  assertEquals(cells.map((c) => c.case.form), ["any", "any", ...FORMS.flatMap((form) => [form, form])]);
  assertEquals(new Set(cells.map((c) => c.case.name)).size, 8);
  assert(cells.every(({ case: c, sequences }) => c.rows === sequences && c.prompt === 8 && c.repeats === 2));
  const name = (column: string, sequences: number): string =>
    cells.find((c) => c.column === column && c.sequences === sequences)!.case.name;
  const times = {
    [name("grid", 2)]: [0.5, 0.25, 0.125],
    [name("of itself", 2)]: [0.25],
    [name("of itself", 8)]: [2],
    [name("barriers", 8)]: [],
  };
  const rows = sequenceRows(cells, times, { [name("grid", 2)]: "grid", [name("of itself", 2)]: "grid" });
  assertEquals(rows.map((r) => r.sequences), [2, 2, 2, 2, 8, 8, 8, 8]);
  const { vkmx, step_us, form, unit, ratio } = rows.find((r) => r.case === name("grid", 2))!;
  assertEquals([vkmx, step_us, form, unit, ratio], [4000, 500, "grid", "tok/s", null]);
  assertEquals(rows.filter((r) => r.vkmx === null && r.step_us === null).length, 5);
  const lines = describeSequences(rows).trimEnd().split("\n").map((line) => line.split(/ {2,}/));
  assertEquals(lines, [
    ["sequences", "grid", "barriers", "one dispatch", "of itself"],
    ["2", "4000 (500 us)", "-", "-", "4000 (500 us), grid"],
    ["8", "-", "-", "-", "500 (16000 us), op by op"],
  ]);
});

for (const device of testDevices()) {
  Deno.test(`runSide() times sequences in the forms that there are on ${device}`, async () => {
    const { pairs } = matrixMap(mx.withDevice(device, getBackend));
    const there = FORMS.filter((form) => device !== "wasm" && (pairs || form === "grid"));
    const like: Case = { name: "decode", kind: "decode", prompt: 4, tokens: 3, warmUps: 1, repeats: 1 };
    const cells = sequenceCells([2], like);
    const settings = { device, dtype: "float16", cases: cells.map((c) => c.case) } as const;
    const { times, forms } = await runSide(fileURLToPath(TINY_DIR), settings);
    const rows = sequenceRows(cells, times, forms!);
    const found = rows.filter(({ vkmx }) => vkmx !== null);
    assertEquals(found.map(({ column }) => column), ["of itself", ...there]);
    assertEquals(found.slice(1).map(({ form }) => form), there);
  });
}
