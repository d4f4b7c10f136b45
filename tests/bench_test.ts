/** The benchmarks' common part: ratios, the table, the variants of steps, and both sides as processes. */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { fileURLToPath } from "node:url";
import { median, readCounts } from "../src/cli/bench/figures.ts";
import { UsageError } from "../src/cli/flags.ts";
import * as mx from "../mod.ts";
import { inSteps, LAYER_KERNELS, type StepVariant, variantOf, VARIANTS } from "../scripts/bench/step_variants.ts";
import {
  type Case,
  describeRows,
  joinTimes,
  PEERS,
  row,
  runPeer,
  runSide,
  sideLines,
} from "../scripts/bench/compare.ts";
import { draws, percentile, poissonArrivals } from "../scripts/bench/arrivals.ts";
import { importArguments } from "../scripts/imports.ts";
import { ROOT, run } from "../scripts/tools.ts";
import { getBackend } from "../src/backend/devices.ts";
import { KERNELS } from "../src/backend/kernels.ts";
import { matrixMap } from "../src/schedule/ops/matmul/coopmat.ts";
import { testDevices } from "./support/devices/devices.ts";
import { TINY_DIR } from "./support/models/models.ts";

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

Deno.test("the programs of all peers are there", async () => {
  for (const { script } of Object.values(PEERS)) assert((await Deno.stat(`${ROOT}scripts/bench/${script}`)).isFile);
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

Deno.test("requests arrive as a Poisson process of their rate, and again so with their seed", () => {
  const [count, rate] = [20_000, 50];
  const times = poissonArrivals(count, rate, draws(3));
  assertEquals(times, poissonArrivals(count, rate, draws(3)));
  assert(times[1] !== poissonArrivals(2, rate, draws(4))[1]);
  assertEquals([times.length, times[0]], [count, 0]);
  const gaps = times.slice(1).map((at, i) => at - times[i]).sort((a, b) => a - b);
  // Kolmogorov and Smirnov: the distance to the exponential distribution stays below 1.63 / sqrt(n) in 99 of 100 samples.
  const distances = gaps.map((gap, i) => Math.abs((i + 0.5) / gaps.length - (1 - Math.exp(-gap * rate / 1000))));
  assert(Math.max(...distances) < 1.63 / Math.sqrt(gaps.length), `${Math.max(...distances)}`);
  // Gaps in a row do not depend on each other.
  const own = times.slice(1).map((at, i) => (at - times[i]) * rate / 1000 - 1);
  const together = own.slice(1).reduce((sum, gap, i) => sum + gap * own[i], 0) / own.length;
  assert(Math.abs(together) < 0.03, `${together}`);
});

Deno.test("percentile() is the least value that so many are no greater than", () => {
  const values = [5, 1, 4, 2, 3, 10, 9, 8, 7, 6];
  assertEquals([0, 10, 11, 50, 95, 100].map((percent) => percentile(values, percent)), [1, 1, 2, 5, 10, 10]);
  assertEquals(percentile([], 95), NaN);
});

Deno.test("bench:serve measures a load, times to the first token and long prompts in small sizes", async () => {
  const sizes = [
    "--requests",
    "6",
    "--lengths",
    "4,12",
    "--long",
    "2,100,4",
    "--repeats",
    "1",
    "--kv-bytes",
    "20000000",
  ];
  const serve = async (...args: string[]) =>
    await run([
      ...[Deno.execPath(), "run", "-A", "--no-check", ...await importArguments(), `${ROOT}scripts/bench/serve.ts`],
      ...["--device", "wasm", "--dtype", "float32", "--shape", "tiny", ...args],
    ]);
  const { ok, stdout, stderr } = await serve("--rows", "load,ttft,long", ...sizes);
  assert(ok, stderr);
  const [, load, ttft, long] = stdout.trimEnd().split("\n");
  const [, perSecond] = /^load of 6: \d+ tok\/s out, ([\d.]+) requests\/s, 0 preemptions$/.exec(load)!;
  const [, rate, middle, high] = /^ttft of 6 at ([\d.]+) requests\/s: median ([\d.]+) ms, 95th percentile ([\d.]+) ms$/
    .exec(ttft)!;
  assert(Math.abs(Number(rate) - Number(perSecond) / 2) < 0.011, `${ttft} of ${load}`);
  assert(0 < Number(middle) && Number(middle) <= Number(high));
  assertMatch(long, /^long of 2, 100 in and 4 out: \d+ tok\/s out, \d+ in, 0 preemptions$/);
  const wrong = await serve("--rows", "long", "--long", "2,3");
  assertMatch(wrong.stderr, /--long is "2,3", expected 3 numbers/);
});

Deno.test("bench:serve measures one server beside replicas in small sizes", async () => {
  const { ok, stdout, stderr } = await run([
    ...[Deno.execPath(), "run", "-A", "--no-check", ...await importArguments(), `${ROOT}scripts/bench/serve.ts`],
    ...["--device", "wasm", "--shape", "tiny", "--rows", "replicas", "--requests", "4", "--lengths", "4,8"],
  ]);
  assert(ok, stderr);
  const lines = stdout.trimEnd().split("\n");
  for (const [i, name] of ["one server", "1 replica", "2 replicas"].entries()) {
    assertMatch(
      lines[i],
      new RegExp(
        `^replicas, ${name}, 4 requests: \\d+ tok/s out, first token \\d+ ms median, \\d+ ms 95th percentile$`,
      ),
    );
  }
  assertMatch(lines[3], /^replicas, 2 beside 1: [\d.]+ x tok\/s, first token [\d.]+ x at the median, [\d.]+ x at the/);
});

Deno.test("variantOf() tells by the kernels of a step how it was computed", () => {
  const kernels = (region: string | undefined, calls: Readonly<Record<string, number>>) =>
    Object.entries(calls).map(([kernel, calls]) => ({ region, kernel, calls }));
  const prompt = kernels("prompt end", { decode_mlp_u64: 1, batch_head: 1 });
  const of = (sequences: number, calls: Readonly<Record<string, number>>) =>
    variantOf([...prompt, ...kernels("decoder step", calls)], sequences);
  const read = kernels("prompt layer", { coopmat_qkv: 56, coopmat_matmul: 112 });
  const steps = kernels("prompt layer", { coopmat_qkv: 28 });
  const more = inSteps([...read, ...steps, ...prompt], [...prompt, ...read]);
  assertEquals(more, steps);
  assertEquals([variantOf(more, 32), variantOf(inSteps(read, read), 32)], ["products", undefined]);
  assertEquals(of(8, { batch_begin: 1, batch_layers: 12, batch_head: 12 }), "batched, persistent");
  assertEquals(of(8, { batch_begin: 1, batch_layers: 12 * 5 * 28, batch_head: 12 }), "batched, barriers");
  assertEquals(of(8, { batch_begin: 2, batch_layers: 6 + 6 * 140, batch_head: 12 }), "batched, barriers"); // changed over between
  assertEquals(of(2, { decode_qkv_u64: 28, decode_mlp_u64: 28 }), "grid");
  assertEquals(of(1, { decode_qkv_u64: 28, decode_mlp_u64: 28 }), "split_k, barriers");
  assertEquals(of(1, { decode_layers: 1, decode_greedy_u64: 1 }), "split_k, persistent");
  assertEquals(of(1, { decode_gemv_phase: 140, decode_gemv_layers: 1 }), "gemv, barriers");
  assertEquals(of(1, { decode_gemv_layers: 1, decode_greedy_u64: 1 }), "gemv, persistent");
  assertEquals(variantOf([...prompt, ...kernels(undefined, { matmul: 9 })], 1), undefined);
});

Deno.test("every kernel of a layer that there is counts as one", () => {
  const layers = Object.keys(KERNELS).filter((name) => LAYER_KERNELS.test(name));
  const others = Object.keys(KERNELS).filter((name) => /^(decode|batch)_/.test(name) && !LAYER_KERNELS.test(name));
  for (const name of ["decode_qkv", "decode_attention", "decode_mlp", "decode_layers", "decode_gemv", "batch_layers"]) {
    assert(layers.some((kernel) => kernel.startsWith(name)), name);
  }
  assert(
    others.every((name) => /begin|hidden|greedy|draw|head|logits|logprobs|finish|tail/.test(name)),
    String(others),
  );
});

for (const device of testDevices()) {
  Deno.test(`sideLines() times sequences in the variants that there are on ${device}, and says what there is not`, async () => {
    const { pairs } = matrixMap(mx.withDevice(device, getBackend));
    const { concurrent } = mx.withDevice(device, getBackend).limits;
    const serves = (variant: StepVariant): boolean =>
      device !== "wasm" && (pairs || !variant.startsWith("batched")) &&
      (concurrent || !variant.endsWith("persistent")) &&
      variant !== "products"; // of a small model
    const like: Case = { name: "", kind: "decode", prompt: 4, tokens: 3, rows: 2, warmUps: 1, repeats: 1 };
    const cases = (["any", ...VARIANTS.several] as const).map((variant) => ({ ...like, name: variant, variant }));
    const lines = await Array.fromAsync(
      sideLines(fileURLToPath(TINY_DIR), { device, dtype: "float16", cases, rates: true }),
    );
    const results = lines.flatMap((line) => "result" in line ? [line.result] : []);
    assertEquals(results.map((result) => result.case), cases.map(({ name }) => name)); // in their order
    assertEquals(results.map(({ times }) => times.length > 0), [true, ...VARIANTS.several.map(serves)]);
    for (const { case: variant, times, why, variant: found } of results.slice(1)) {
      if (times.length > 0) assertEquals([why, found], [undefined, variant]);
      else assertEquals(why, "not supported");
    }
    const rates = lines.flatMap((line) => "rates" in line ? [line.rates] : []);
    assertEquals(rates.length, 1);
    assert(rates[0].copy > 0.01 && rates[0].copy < 1e5);
    const matrices = device !== "wasm" && matrixMap(mx.withDevice(device, getBackend)).weights;
    assertEquals(rates[0].matrix !== null, Boolean(matrices));
  });
}

Deno.test("sideLines() ends a process that says nothing for too long, and at the end of its time", async () => {
  const c: Case = { name: "long", kind: "decode", prompt: 4, tokens: 2000, warmUps: 0, repeats: 100 };
  const settings = { device: "wasm", cases: [c] };
  for (
    const [limits, message] of [
      [{ limit: 3000 }, /said nothing for 3 s$/],
      [{ until: performance.now() + 6000 }, /the time was over$/],
    ] as const
  ) {
    const started = performance.now();
    const error = await assertRejects(() => Array.fromAsync(sideLines(fileURLToPath(TINY_DIR), settings, {}, limits)));
    assertMatch((error as Error).message, message);
    assert(performance.now() - started < 20_000);
  }
});

Deno.test("a case that fails says why, and the next one is measured", async () => {
  const like: Case = { name: "", kind: "prefill", prompt: 8, warmUps: 0, repeats: 1 };
  const cases = [{ ...like, name: "too long", prompt: 5000 }, { ...like, name: "short" }];
  const lines = sideLines(fileURLToPath(TINY_DIR), { device: "wasm", cases });
  const results = (await Array.fromAsync(lines)).flatMap((line) => "result" in line ? [line.result] : []);
  assertEquals(results.map((r) => [r.case, r.times.length]), [["too long", 0], ["short", 1]]);
  assertMatch(results[0].why!, /5,?0\d\d/);
  await assertRejects(() => runSide(fileURLToPath(TINY_DIR), { device: "wasm", cases }), Error, "too long");
});
