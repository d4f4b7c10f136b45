/**
 * Lowering of prompts for a device with matrix units, on any machine: a backend that says it has every kernel and runs none. What
 * the kernels compute is tested where they run (`prompt_layers_test.ts`); here it is that every graph finds its way, also those of
 * passes that nobody evaluated before the next one, and how much of it is fused.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { type ModelShape, writeModel } from "../scripts/synthetic.ts";
import { closeDevices, getBackend } from "../src/backend/devices.ts";
import type { KvCache } from "../src/llm/kv_cache.ts";
import { matrixMap, PAIRS } from "../src/schedule/matrices.ts";
import { options } from "../src/schedule/options.ts";

/** Kernels that only the CPU has: without them weights stay as they are. */
const OF_CPU = new Set(["pack_quantized", "packed_rows", "quantize_activations", "packed_matvec", "packed_matmul"]);

/** Makes the CPU's backend one that has all kernels of a GPU and runs nothing; ended with all devices. */
function withoutRunning(maxThreads: number = 1024): void {
  const backend = getBackend("wasm");
  let plans = 0;
  // What coopmat_map writes: 32 lanes with 8 elements of each matrix, and where those lie.
  const places = Array.from(PAIRS, (word) => (word & 15) * 16 + (word >> 4));
  const map = Uint32Array.from([32, 8, 8, 8, ...places, ...PAIRS, ...places]);
  Object.assign(backend, {
    has: (kernel: string) => !OF_CPU.has(kernel),
    limits: { ...backend.limits, maxThreads, subgroup: 32 },
    compile: () => ++plans,
    run: () => 0,
    release: () => {},
    barriers: () => 0,
    read: (_: number, __: number, out: Uint8Array) => out.set(new Uint8Array(map.buffer).subarray(0, out.length)),
  });
  assertEquals(matrixMap(backend), { weights: PAIRS, attention: true, pairs: true });
}

const SHAPE: ModelShape = {
  hidden: 128,
  intermediate: 128,
  layers: 3,
  heads: 2,
  kvHeads: 1,
  headDim: 64,
  tied: true,
  vocab: 4096,
};

/** What is evaluated, and the layers of a prompt that are fused in front of attention. */
const ASKED: readonly (readonly [string, (cache: KvCache, logits: mx.Tensor) => readonly mx.Tensor[], number])[] = [
  ["logits", (_, logits) => [logits], 3],
  ["logits, keys and values", ({ state }, logits) => [logits, ...state], 3],
  ["keys and values", ({ state }) => state, 3],
  ["keys", ({ keys }) => keys, 0], // an opening writes both
];

for (const scales of ["BF16", "F16"] as const) {
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
    Deno.test(`prompts of ${dtype.name} over ${scales} weights lower for a device with matrices`, async () => {
      const folder = await Deno.makeTempDir();
      await writeModel(`${folder}/model`, SHAPE, { groupSize: 64, dtype: scales });
      const before = { ...options };
      try {
        mx.setDefaultDevice("wasm");
        withoutRunning();
        options.regions = "on";
        const { model } = await mx.lm.load(`${folder}/model`, { device: "wasm", dtype });
        for (const sizes of [[40], [17, 64, 33], [16, 1, 5, 40]]) {
          for (const [what, asked, fused] of ASKED) {
            for (const each of [true, false]) {
              const cache = model.makeCache();
              const { kernels } = await mx.profile(() =>
                mx.tidy(() => {
                  for (const [i, size] of sizes.entries()) {
                    const logits = model.forward(mx.zeros([1, size], mx.int32), cache);
                    if (each || i === sizes.length - 1) mx.eval(...asked(cache, logits));
                  }
                }), { timed: false });
              const calls = kernels.reduce((sum, k) => k.kernel.startsWith("coopmat_heads") ? sum + k.calls : sum, 0);
              const prompts = sizes.filter((size) => size >= 16).length;
              if (sizes.length === 1 || (each && what.includes("values"))) {
                assertEquals(calls, fused * prompts, `${what} of ${sizes}`);
              }
              cache.dispose();
            }
          }
        }
        model[Symbol.dispose]();
      } finally {
        Object.assign(options, before);
        closeDevices();
        await Deno.remove(folder, { recursive: true });
      }
    });
  }
}

Deno.test("prompts on a device whose workgroups are small take no kernel with more threads", async () => {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, SHAPE, { groupSize: 64 });
  const before = { ...options };
  try {
    mx.setDefaultDevice("wasm");
    withoutRunning(128);
    options.regions = "on";
    const { model } = await mx.lm.load(`${folder}/model`, { device: "wasm", dtype: mx.float16 });
    for (const rows of [16, 40, 300, 700, 1200]) {
      const { kernels } = await mx.profile(
        () => mx.tidy(() => mx.eval(model.forward(mx.zeros([1, rows], mx.int32), model.makeCache()))),
        { timed: false },
      );
      const matrices = kernels.map(({ kernel }) => kernel).filter((kernel) => kernel.startsWith("coopmat"));
      const wide = matrices.filter((kernel) => /heads_(16|32)|gated_32|attention_64x(64|128)/.test(kernel));
      assertEquals(wide, [], `${rows} rows`);
      assert(rows < 300 || matrices.length > 0, `${rows} rows take no matrices at all`);
    }
    model[Symbol.dispose]();
  } finally {
    Object.assign(options, before);
    closeDevices();
    await Deno.remove(folder, { recursive: true });
  }
});
