/**
 * Lowering of prompts for a device with matrix units, on any machine: a backend that says it has every kernel and runs none. What
 * the kernels compute is tested where they run (`fused_prefill_test.ts`); here it is that every graph finds its way, also those of
 * passes that nobody evaluated before the next one, and how much of it is fused.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../scripts/synthetic.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import type { KvCache } from "../../src/llm/kv_cache.ts";
import { matrixMap, PAIRS } from "../../src/schedule/ops/coopmat.ts";
import { ATTENTIONS } from "../../src/schedule/ops/coopmat_attention.ts";
import { PRODUCTS } from "../../src/schedule/ops/coopmat_matmul.ts";
import { withOptions } from "../support/options.ts";

/** Kernels that only the CPU has: without them weights stay as they are. */
const OF_CPU = new Set(["pack_quantized", "packed_rows", "quantize_activations", "packed_matvec", "packed_matmul"]);

/** Makes the CPU's backend one that has all kernels of a GPU and runs nothing; ended with all devices. */
function withoutRunning(maxThreads: number): void {
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
  ["keys", ({ keys }) => keys, 0], // a prologue writes both
];

/** Runs a body with a model on such a device, whose workgroups have at most so many threads. */
async function lowering(
  format: ModelFormat,
  dtype: mx.Dtype,
  maxThreads: number,
  body: (model: mx.lm.LanguageModel) => Promise<void>,
  shape: ModelShape = SHAPE,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, shape, { groupSize: 64, ...format });
  using _options = withOptions({ regions: "on" });
  try {
    mx.setDefaultDevice("wasm");
    withoutRunning(maxThreads);
    const { model } = await mx.lm.load(`${folder}/model`, { device: "wasm", dtype });
    await body(model);
    model[Symbol.dispose]();
  } finally {
    closeDevices();
    await Deno.remove(folder, { recursive: true });
  }
}

/** The kernels of passes over prompts of some sizes, one behind the other. */
async function kernelsOf(
  model: mx.lm.LanguageModel,
  sizes: readonly number[],
  evaluate: (cache: KvCache, logits: mx.Tensor, isLast: boolean) => void,
): Promise<readonly mx.KernelTime[]> {
  using cache = model.makeCache();
  const { kernels } = await mx.profile(
    () =>
      mx.tidy(() =>
        sizes.forEach((size, i) =>
          evaluate(cache, model.forward(mx.zeros([1, size], mx.int32), cache), i === sizes.length - 1)
        )
      ),
    { timed: false },
  );
  return kernels;
}

for (const scales of ["BF16", "F16"] as const) {
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
    Deno.test(`prompts of ${dtype.name} over ${scales} weights lower for a device with matrices`, () =>
      lowering({ dtype: scales }, dtype, 1024, async (model) => {
        for (const sizes of [[40], [17, 64, 33], [16, 1, 5, 40]]) {
          const prompts = sizes.filter((size) => size >= 16).length;
          for (const [what, asked, fused] of ASKED) {
            for (const each of [true, false]) {
              const kernels = await kernelsOf(model, sizes, (cache, logits, isLast) => {
                if (each || isLast) mx.eval(...asked(cache, logits));
              });
              // Where a pass waits for the next one's, or computes what one before left, how often it runs is not the point.
              if (sizes.length > 1 && !(each && what.includes("values"))) continue;
              const calls = kernels.reduce((sum, k) => k.kernel.startsWith("coopmat_qkv") ? sum + k.calls : sum, 0);
              assertEquals(calls, fused * prompts, `${what} of ${sizes}`);
            }
          }
        }
      }));
  }
}

Deno.test("prompts on a device whose workgroups are small take no kernel with more threads", () =>
  lowering({}, mx.float16, 128, async (model) => {
    const rows = [...Object.values(PRODUCTS), ATTENTIONS].flatMap((table) => Object.values(table).flat());
    const wide = new Set(rows.filter(({ threads = 0 }) => threads > 128).map(({ kernel }) => kernel));
    assert(wide.size > 0);
    for (const size of [16, 40, 300, 700, 1200]) {
      const kernels = await kernelsOf(model, [size], (_, logits) => mx.eval(logits));
      assertEquals(kernels.filter(({ kernel }) => wide.has(kernel as KernelName)), [], `${size} rows`);
      const matrices = kernels.some(({ kernel }) => kernel.startsWith("coopmat"));
      assert(size < 300 || matrices, `${size} rows take no matrices at all`);
    }
  }));

Deno.test("a step in one dispatch for all layers lowers with and without prefetch warps", () =>
  lowering({}, mx.float16, 1024, async (model) => {
    using _options = withOptions({ fast: "whole" });
    const backend = getBackend("wasm");
    for (const [concurrent, kernel] of [[false, "decode_layers"], [true, "decode_layers_prefetch"]] as const) {
      Object.assign(backend, { limits: { ...backend.limits, concurrent } });
      const { kernels } = await mx.profile(async () => {
        using cache = model.makeCache();
        const settings = { maxTokens: 3, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
        await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
      }, { timed: false });
      assert(kernels.some((row) => row.kernel === kernel), `no ${kernel}: ${kernels.map((row) => row.kernel)}`);
      await model.traces.idle();
      model.traces[Symbol.dispose]();
    }
  }));

/** How Llama 3.1 stretches positions. */
const LLAMA3 = {
  rope_scaling: {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  },
};
const NO_NORMS = "the heads of q and k are not normalised";
const NO_SILU = "the gate's activation is no silu";

/** Families, and why a step and the halves of a prompt's layers run op by op, where they do. */
const FAMILIES: readonly (readonly [Partial<ModelShape>, { step?: string; before?: string; behind?: string }])[] = [
  [{ family: "qwen3" }, {}],
  [{ family: "llama" }, { step: NO_NORMS, before: NO_NORMS }],
  [{ family: "llama", config: LLAMA3 }, { step: NO_NORMS, before: NO_NORMS }],
  [{ family: "qwen2" }, { step: NO_NORMS, before: NO_NORMS }],
  [{ family: "qwen3", config: { hidden_act: "gelu" } }, { step: NO_SILU, behind: NO_SILU }],
  [{ family: "qwen3", config: { hidden_act: "gelu_pytorch_tanh" } }, { step: NO_SILU, behind: NO_SILU }],
];

for (const [change, { step, before, behind }] of FAMILIES) {
  const { family, config = {} } = change;
  const name = [family, ...Object.values(config).map((v) => typeof v === "string" ? v : "llama3")].join(" with ");
  Deno.test(`prompts and steps of ${name} are fused, or say once why not`, () =>
    lowering({}, mx.float16, 1024, async (model) => {
      using _options = withOptions({ fast: "barriers" });
      const kernels = await kernelsOf(model, [40], (cache, logits) => mx.eval(logits, ...cache.state));
      const calls = (prefix: string): number =>
        kernels.reduce((sum, k) => k.kernel.startsWith(prefix) ? sum + k.calls : sum, 0);
      assertEquals(calls("coopmat_qkv"), before ? 0 : SHAPE.layers, "in front of attention");
      assertEquals(calls("coopmat_gated"), behind ? 0 : SHAPE.layers, "behind attention");

      using cache = model.makeCache();
      assertEquals(cache.fused, step === undefined);
      const { kernels: ofStep, fallbacks } = await mx.profile(async () => {
        const settings = { maxTokens: 3, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
        await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
      }, { timed: false });
      assertEquals(ofStep.some(({ kernel }) => kernel.startsWith("decode_qkv")), step === undefined);
      const why = fallbacks.filter((line) => line.startsWith("decoder step"));
      assertEquals(why, step ? [`decoder step: op by op, because ${step}`] : []);
      await model.traces.idle();
      model.traces[Symbol.dispose]();
    }, { ...SHAPE, ...change }));
}

Deno.test("a step over a cache that lies otherwise than its kernels read says so", () =>
  lowering({}, mx.float16, 1024, async (model) => {
    const { layers, kvHeads: heads, headDim } = SHAPE;
    using cache = new mx.lm.KvCache({ layers, batch: 1, heads, headDim, dtype: mx.float16, limit: 1024 });
    assertEquals(cache.fused, false);
    const { fallbacks } = await mx.profile(async () => {
      const settings = { maxTokens: 2, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
      await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
    }, { timed: false });
    const why = fallbacks.filter((line) => line.startsWith("decoder step"));
    assertEquals(why, ["decoder step: op by op, because the cache is not in blocks of 4 and 8"]);
    await model.traces.idle();
    model.traces[Symbol.dispose]();
  }));
