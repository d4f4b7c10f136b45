/** The benchmarks' common part: ratios, the table, and both sides as processes. */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { fileURLToPath } from "node:url";
import { type Case, describeRows, joinTimes, median, row, runPeer, runSide } from "../scripts/bench_sides.ts";
import { TINY_DIR } from "./models.ts";

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
