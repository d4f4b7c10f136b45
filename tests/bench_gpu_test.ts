/** The benchmark of GPUs: floors by hand, rows beside their aims, which cases there are, and whole runs of a small shape. */

import { assert, assertAlmostEquals, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../mod.ts";
import type { Case } from "../scripts/bench/compare.ts";
import { inSteps, variantOf } from "../scripts/bench/step_variants.ts";
import { DEFAULT_GROUPS, type Effort, FULL, gpuCases, type Group, GROUPS } from "../scripts/bench/gpu/cases.ts";
import {
  attentionWork,
  bytesOfToken,
  bytesOfWeight,
  floorOf,
  positionBytes,
  productWork,
} from "../scripts/bench/gpu/floors.ts";
import { describeRow, type GpuRow, gpuRow, HEAD } from "../scripts/bench/gpu/table.ts";
import { TARGETS } from "../scripts/bench/gpu/targets.ts";
import { matrixRateModule } from "../scripts/bench/matrix_rate.ts";
import { ROOT } from "../scripts/tools.ts";
import { SHAPES } from "../scripts/synthetic/synthetic.ts";
import { getBackend } from "../src/backend/devices.ts";
import { testDevices } from "./support/devices/devices.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const STORED = { weightBytes: bytesOfWeight(4, 128), cacheBytes: 2 };
const RATES = { copy: 4090, matrix: 634 };

Deno.test("floors of tokens are the bytes of the weights that they read and of the cache", () => {
  assertEquals([bytesOfWeight(4, 128), bytesOfWeight(8, 64), bytesOfWeight(16, 1)], [0.53125, 1.0625, 2]);
  const eight = SHAPES["qwen3-8b"];
  // 36 layers of q, o: 2 x 4096 x 4096; k, v: 2 x 4096 x 1024; gate, up, down: 3 x 4096 x 12288. The head: 4096 x
  // 151936.
  const weights = 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288) + 4096 * 151936;
  assertEquals(positionBytes(eight, STORED), 36 * 2 * 8 * 128 * 2);
  const c: Case = { name: "", kind: "decode", prompt: 1000, tokens: 48, warmUps: 0, repeats: 1 };
  const bytes = weights * 0.53125 + 1024 * 147456;
  assertAlmostEquals(floorOf(eight, STORED, c, RATES)!, bytes / 4090e6, 1e-9);
  assertAlmostEquals(floorOf(eight, STORED, { ...c, rows: 4 }, RATES)!, (bytes + 3 * 1024 * 147456) / 4090e6, 1e-9);
  // Very many sequences multiply more than they read.
  const many = floorOf(eight, { ...STORED, cacheBytes: 0 }, { ...c, rows: 4096 }, RATES)!;
  assertAlmostEquals(many, 2 * 4096 * weights / 634e9, 1e-6);
  assertEquals(floorOf(eight, STORED, c, { ...RATES, matrix: null }), floorOf(eight, STORED, c, RATES));
});

Deno.test("a token reads of experts those that it takes, and neither the embedding nor other parts", () => {
  const of = (name: string, first: number, bytes: number) => ({ name, shape: [first, 2, 4], bytes });
  const tensors = [
    of("model.embed_tokens.weight", 100, 1000),
    of("model.layers.0.mlp.switch_mlp.up_proj.weight", 8, 800),
    of("model.layers.0.mlp.experts.router.weight", 2, 16), // no stack of experts
    of("model.layers.0.mlp.shared_expert.up_proj.weight", 8, 32),
    of("mtp.layers.0.mlp.up_proj.weight", 8, 64),
    of("lm_head.weight", 100, 500),
  ];
  const experts = { count: 8, chosen: 2 };
  assertEquals(bytesOfToken(tensors, false, experts), 200 + 16 + 32 + 500);
  assertEquals(bytesOfToken(tensors, true), 1000 + 800 + 16 + 32 + 500);
  const stored = { ...STORED, cacheBytes: 0, tokenBytes: 4090e6 };
  const c: Case = { name: "", kind: "decode", prompt: 1000, tokens: 48, warmUps: 0, repeats: 1 };
  assertEquals(floorOf(SHAPES["qwen3-8b"], stored, c, RATES), 1);
  // Several tokens take other experts each, and what a prompt computes the sizes do not say.
  assertEquals(floorOf(SHAPES["qwen3-8b"], stored, { ...c, rows: 2 }, RATES), undefined);
  assertEquals(floorOf(SHAPES["qwen3-8b"], stored, { ...c, kind: "prefill" }, RATES), undefined);
});

Deno.test("a step of several sequences is one dispatch or several for each layer, whatever shorter runs took", () => {
  const calls = (layers: number, steps: number) =>
    [["batch_begin", steps], ["batch_layers", layers], ["batch_head", steps]]
      .map(([kernel, calls]) => ({ region: "decoder step", kernel: kernel as string, calls: calls as number }));
  const [whole, barriers] = [[calls(128, 128), calls(1, 1)], [calls(2560, 128), calls(20, 1)]];
  for (const few of [whole[1], barriers[1]]) {
    assertEquals(variantOf(inSteps(whole[0], few), 8), "batched, persistent");
    assertEquals(variantOf(inSteps(barriers[0], few), 8), "batched, barriers");
  }
  const prompt = [{ region: "prompt layer", kernel: "coopmat_qkv_32", calls: 3 }];
  assertEquals(variantOf([...prompt, ...calls(1, 1)], 8), "products");
});

Deno.test("floors of prompts are their products and causal attention, of the last layer keys and values only", () => {
  const shape = { hidden: 2, intermediate: 3, layers: 2, heads: 4, kvHeads: 1, headDim: 5, tied: true, vocab: 7 };
  // Two layers of k and v, one of q, o and gate, up, down.
  assertEquals(productWork(shape, 10), 2 * 10 * (2 * (2 * 5 * 2) + 2 * (4 * 5) * 2 + 3 * 3 * 2));
  assertEquals(attentionWork(shape, 3), 4 * 4 * 5 * 6);
  assertEquals(attentionWork(shape, 3, 10), 4 * 4 * 5 * (6 + 30));
  const prompt: Case = { name: "", kind: "prefill", prompt: 2048, warmUps: 0, repeats: 1 };
  const four = SHAPES["qwen3-4b"];
  const operations = productWork(four, 2048) + attentionWork(four, 2048) + 2 * 2560 * 151936;
  assertAlmostEquals(floorOf(four, STORED, prompt, RATES)!, operations / 634e9, 1e-9);
});

Deno.test("rows say how a figure stands to its floor, its aim and the peer", () => {
  const row = gpuRow(
    { shape: "qwen3-8b", case: "decode @128", value: 528, unit: "tok/s", floor: 1056, peer: 52.8 },
    "p",
  );
  assertEquals([row.share, row.aim, row.of_aim, row.peer, row.ratio], [0.5, 660, 0.8, "p", 10]);
  const time = gpuRow({ shape: "qwen3-0.6b", case: "prompt of 64", value: 1.6, unit: "ms", floor: 0.4 }, "p");
  assertEquals([time.share, time.aim, time.of_aim, time.peer, time.ratio], [0.25, 2, 1.25, null, null]);
  const code = gpuRow({ shape: "x", case: "code of a layer", value: 160, unit: "KB", aim: 128 }, "p");
  assertEquals([code.of_aim, code.floor], [0.8, null]);
  const forced = {
    case: "decode @128",
    variant: "split_k, barriers",
    target: "decode @128, split_k, barriers",
  } as const;
  assertEquals(gpuRow({ ...forced, shape: "qwen3-0.6b", value: 1, unit: "tok/s" }, "p").aim, 2250);
  const none = gpuRow(
    { shape: "tiny", case: "64 sequences @128", value: null, unit: "tok/s", note: "not supported" },
    "",
  );
  assertEquals([none.of_aim, none.ratio, none.share], [null, null, null]);
  assertMatch(HEAD, /^shape +case +variant +vkmx +floor +share +aim +of aim +peer +ratio\n$/);
  assertMatch(
    describeRow(row),
    /^qwen3-8b +decode @128 +- +528\.0 tok\/s +1056 tok\/s +50 % +660\.0 tok\/s +0\.80 +52\.8 tok\/s +10\.00\n$/,
  );
  assertMatch(describeRow(none), /64 sequences @128 +- +- +- +- +- +- +- +- +not supported\n$/);
});

Deno.test("cases have names of their own, those that are taken come before those that are forced, and every aim is of one", () => {
  const groups = Object.keys(GROUPS) as Group[];
  const cases = gpuCases(groups, { ...FULL, variants: true });
  assertEquals(new Set(cases.map(({ name }) => name)).size, cases.length);
  const forced = cases.map(({ variant }) => variant !== undefined && variant !== "any");
  assertEquals(forced, forced.toSorted((a, b) => Number(a) - Number(b)));
  for (const group of ["decode", "batch", "prompt", "columns", "speculation"] as const) {
    assert(cases.some((c) => c.group === group));
    assert(gpuCases([group], FULL).every((c) => c.group === group));
  }
  assert(gpuCases(["decode"], FULL).some((c) => c.sameKind));
  assert(!cases.some((c) => c.sameKind));
  assertEquals(DEFAULT_GROUPS.includes("where"), false);
  const others = ["load to first token", "host time a token"];
  for (const [shape, aims] of Object.entries(TARGETS)) {
    assert(Object.hasOwn(SHAPES, shape), shape);
    for (const name of Object.keys(aims)) assert(others.includes(name) || cases.some((c) => c.name === name), name);
  }
  const few: Effort = { ...FULL, positions: [16], sequences: [2], prompts: [8], columns: [2], tokens: 4 };
  assertEquals(gpuCases(["batch", "columns"], few).map(({ name }) => name), ["2 sequences @16", "2 columns @16"]);
});

Deno.test("the module of matrix_rate.comp is SPIR-V of a kernel with cooperative matrices", async () => {
  const words = await matrixRateModule();
  assertEquals(words[0], 0x07230203);
  const [OP_CAPABILITY, COOPERATIVE_MATRIX] = [17, 6022];
  assertEquals([words[5] & 0xffff, words.includes(COOPERATIVE_MATRIX)], [OP_CAPABILITY, true]);
});

/** Runs the benchmark on the tiny shape, and gives its rows. */
async function run(device: string, ...args: string[]): Promise<readonly GpuRow[]> {
  const common = ["--device", device, "--shapes", "tiny", "--no-peer", "--json", "--repeats", "1", "--tokens", "3"];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", "--no-check", `${ROOT}scripts/bench/gpu.ts`, ...common, ...args],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  return JSON.parse(new TextDecoder().decode(stdout));
}

for (const device of DEVICES) {
  Deno.test(`bench:gpu measures every group of a small shape on ${device}`, async () => {
    const sizes = ["--positions", "8", "--sequences", "2", "--prompts", "8", "--columns", "2"];
    const rows = await run(device, ...sizes, "--rows", "load,decode,batch,prompt,columns,code");
    assert(rows.every(({ shape }) => shape === "tiny"));
    const [first, warm, copy, matrix, ...others] = rows;
    assertEquals([first, warm, copy, matrix].map((r) => r.case), [
      "load to first token, first start",
      "load to first token",
      "a copy",
      "matrix units, from registers",
    ]);
    assert(first.vkmx! > 0 && warm.vkmx! > 0 && copy.vkmx! > 0);
    const taken = others.slice(0, 5);
    assertEquals(taken.map((r) => r.case), [
      "decode @8",
      "decode @8, sampled",
      "2 sequences @8",
      "prompt of 8",
      "2 columns @8",
    ]);
    for (const row of taken) assert(row.vkmx! > 0 && row.share! > 0 && row.note === null, JSON.stringify(row));
    assert(taken[0].variant !== null && taken[2].variant !== null && taken[3].variant === null);
    assert(others.some((r) => r.case === "code of a layer"));
  });

  Deno.test(`bench:gpu measures answers that are drafted on ${device}`, async () => {
    const rows = await run(device, "--rows", "speculation", "--positions", "8");
    const [plain, ...drafted] = rows.slice(-5);
    assertEquals([plain.case, plain.note], ["no drafts @8", null]);
    assertEquals(drafted.map((r) => r.case), [0, 60, 70, 100].map((share) => `drafts @8, ${share} % right`));
    for (const row of drafted) {
      assert(row.vkmx! > 0, JSON.stringify(row));
      assertMatch(row.note!, /^\d+\.\d\d × without drafts$/);
    }
  });

  Deno.test(`bench:gpu measures a model that ${device} and the CPU share`, async () => {
    const rows = await run(device, "--positions", "8", "--prompts", "16", "--rows", "split", "--second", "wasm");
    assertEquals(rows.map((row) => row.case), [
      "decode @8, one device",
      "decode @8, two by layers",
      "prompt of 16, one device",
      "prompt of 16, two by layers",
      "8 KB there and a token back",
    ]);
    for (const row of rows) assert(row.vkmx! > 0, JSON.stringify(row));
    assertMatch(
      rows[1].note!,
      new RegExp(`^[0-9.]+ of ${device} alone; ${device} and wasm, [0-9]+ and [0-9]+ layers$`),
    );
  });

  Deno.test(`bench:gpu measures a shape in other bits on ${device}`, async () => {
    const rows = await run(device, "--shapes", "tiny:16", "--rows", "decode", "--positions", "8");
    assert(rows.every(({ shape }) => shape === "tiny in 16 bits"));
    const row = rows.find((r) => r.case === "decode @8")!;
    assert(row.vkmx! > 0 && row.share! > 0, JSON.stringify(row));
  });

  const ignore = mx.withDevice(device, getBackend).limits.concurrent; // a GPU is done before these ends come
  Deno.test({ name: `a case that takes too long on ${device} takes no other with it`, ignore }, async () => {
    const rows = await run(device, "--rows", "prompt", "--prompts", "4000,8", "--repeats", "5", "--patience", "10");
    const [long, short] = rows.slice(-2);
    assertEquals([long.case, long.vkmx, long.note], ["prompt of 4000", null, "it said nothing for 10 s"]);
    assertEquals([short.case, short.note], ["prompt of 8", null]);
    assert(short.vkmx! > 0);
  });

  Deno.test({ name: `bench:gpu ends in time on ${device}, with a row for what is missing`, ignore }, async () => {
    const started = performance.now();
    const rows = await run(device, "--rows", "prompt", "--prompts", "8,4000", "--repeats", "100", "--budget", "6");
    assert(performance.now() - started < 30_000);
    assertEquals(rows.slice(-2).map((r) => r.case), ["prompt of 8", "prompt of 4000"]);
    assertEquals([rows.at(-1)!.vkmx, rows.at(-1)!.note], [null, "the time was over"]);
  });
}
