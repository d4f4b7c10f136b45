/**
 * Steps of models whose layers are on several Vulkan devices, in the kernels of decoders. A first part ends with hidden states, a middle one
 * begins with them too, and a last one has the head. Logits, caches and recurrent states must agree with one device op by op. The devices are one
 * that is opened several times, each with a limit of its own which no kernel comes to.
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { DecoderModel } from "../../../src/llm/layers/decoder_model.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { drawSome, isDrawn } from "../../support/draw_cases.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { loadDamaged } from "../../support/models/damaged_model.ts";
import { steps } from "../../support/models/random_cache_steps.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name.startsWith("vulkan"));
/** The same device under other names. */
const partsOf = (device: string): readonly [string, string, string] => [
  device,
  `${device}-maxThreads=1000`,
  `${device}-maxThreads=1001`,
];
for (const device of DEVICES) {
  for (const name of partsOf(device)) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
}

const VOCAB = 4099;
const SMALL: ModelShape = {
  hidden: 128,
  intermediate: 192,
  layers: 3,
  heads: 2,
  kvHeads: 1,
  headDim: 64,
  tied: true,
  vocab: VOCAB,
};
const WIDE: ModelShape = { ...SMALL, hidden: 256, intermediate: 256, headDim: 128 };

/** A model, and its layers with attention. */
interface Written {
  readonly write: (path: string) => Promise<unknown>;
  readonly shape: ModelShape;
  /** All layers, if some have no attention. */
  readonly layers?: number;
}

const own = (shape: ModelShape, format: ModelFormat = { groupSize: 64 }): Written => ({
  write: (path) => writeModel(path, shape, format),
  shape,
});

const COMMON = { max_position_embeddings: 4096, rms_norm_eps: 1e-6, vocab_size: VOCAB };

/** A small model with norms after parts, windows in two of three layers, and a factor of embeddings. */
const GEMMA: Written = {
  shape: { ...SMALL, headDim: 64 },
  write: (path) =>
    writePublished(path, {
      ...COMMON,
      model_type: "gemma3_text",
      hidden_size: 128,
      intermediate_size: 192,
      num_hidden_layers: 3,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      head_dim: 64,
      query_pre_attn_scalar: 64,
      sliding_window: 16,
      sliding_window_pattern: 3,
      rope_theta: 1e6,
      rope_local_base_freq: 1e4,
      hidden_activation: "gelu_pytorch_tanh",
      tie_word_embeddings: true,
    }, { groupSize: 64 }),
};

const EXPERTS: Written = {
  shape: { ...SMALL, hidden: 256, headDim: 128 },
  write: (path) =>
    writePublished(path, {
      ...COMMON,
      model_type: "qwen3_moe",
      hidden_size: 256,
      intermediate_size: 512,
      moe_intermediate_size: 128,
      num_hidden_layers: 3,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      head_dim: 128,
      num_experts: 8,
      num_experts_per_tok: 2,
      decoder_sparse_step: 1,
      mlp_only_layers: [],
      norm_topk_prob: true,
      rope_theta: 1e6,
      tie_word_embeddings: false,
    }, { groupSize: 64 }),
};

/** A small Qwen3.5: every other layer has attention. */
const RECURRENT: Written = {
  layers: 6,
  shape: { ...SMALL, hidden: 256, headDim: 256 },
  write: (path) =>
    writePublished(path, {
      ...COMMON,
      model_type: "qwen3_5_text",
      hidden_size: 256,
      intermediate_size: 512,
      num_hidden_layers: 6,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      head_dim: 256,
      full_attention_interval: 2,
      linear_num_key_heads: 2,
      linear_num_value_heads: 4,
      linear_key_head_dim: 128,
      linear_value_head_dim: 128,
      linear_conv_kernel_dim: 4,
      rope_parameters: { rope_type: "default", rope_theta: 10000, partial_rotary_factor: 0.25 },
      tie_word_embeddings: true,
    }, { groupSize: 64 }),
};

/** A model in parts: kernels that end the first parts and run layers, and the largest NMSE beside op by op. */
interface Case {
  readonly model: Written;
  readonly dtype: "float32" | "float16" | "bfloat16";
  readonly options: Partial<typeof options>;
  readonly hidden: RegExp;
  readonly layers: RegExp;
  readonly limit: number;
  /** Whether workgroups wait for each other, which software devices are not made for. */
  readonly waits?: true;
  /** Steps, if not {@link STEPS}. */
  readonly steps?: number;
}

const barriers = { launchMode: "barriers" } as const;
const CASES: Readonly<Record<string, Case>> = {
  "split_k kernels": {
    model: own(SMALL),
    dtype: "float32",
    options: { ...barriers, gemv: "off" },
    hidden: /^decode_hidden_u64$/,
    layers: /^decode_mlp_u64$/,
    limit: 1e-6,
  },
  "words of 32 bits, float16 and biases": {
    model: own({ ...SMALL, family: "qwen2", tied: false }, { groupSize: 32, bits: 8, dtype: "F16" }),
    dtype: "float16",
    options: { ...barriers, gemv: "off", accumulators: "i32" },
    hidden: /^decode_hidden_i32$/,
    layers: /^decode_mlp_i32$/,
    limit: 1e-5,
  },
  "the kernels that wait by themselves": {
    model: own({ ...SMALL, tied: false }),
    dtype: "float32",
    options: { launchMode: "per_phase", gemv: "off" },
    hidden: /^decode_hidden_poll$/,
    layers: /^decode_layers/,
    limit: 1e-6,
  },
  "all layers of a part in one dispatch": {
    model: own(SMALL),
    dtype: "float32",
    options: { launchMode: "persistent", gemv: "off" },
    hidden: /^decode_hidden_poll$/,
    layers: /^decode_layers/,
    limit: 1e-6,
    waits: true,
  },
  "all layers of a part in one dispatch of gemv kernels": {
    model: own({ ...WIDE, layers: 6 }),
    dtype: "float32",
    options: { launchMode: "persistent", gemv: "on" },
    hidden: /^decode_hidden_gemv$/,
    layers: /^decode_gemv_layers$/,
    limit: 1e-6,
    waits: true,
  },
  "norms after parts": {
    model: GEMMA,
    dtype: "float32",
    options: { ...barriers, gemv: "off" },
    hidden: /^decode_hidden_u64$/,
    layers: /^decode_mlp_u64$/,
    limit: 1e-6,
  },
  "gemv kernels, bfloat16": {
    model: own(WIDE),
    dtype: "bfloat16",
    options: { ...barriers, gemv: "on" },
    hidden: /^decode_hidden_gemv$/,
    layers: /^decode_gemv_phase$/,
    limit: 3e-4,
    steps: 1, // tokens of later ones may differ
  },
  "dense weights": {
    model: own(WIDE, { bits: 16, groupSize: 64 }),
    dtype: "float32",
    options: barriers,
    hidden: /^decode_hidden_gemv$/,
    layers: /^decode_gemv_phase$/,
    limit: 1e-6,
  },
  "experts": {
    model: EXPERTS,
    dtype: "float32",
    options: barriers,
    hidden: /^decode_hidden_gemv$/,
    layers: /^decode_gemv_phase$/,
    limit: 1e-6,
  },
  "recurrent layers": {
    model: RECURRENT,
    dtype: "float32",
    options: barriers,
    hidden: /^decode_hidden_gemv$/,
    layers: /^decode_gemv_recurrent$/,
    limit: 1e-6,
  },
};

async function written<T>({ write }: Written, body: (path: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir();
  try {
    await write(`${folder}/model`);
    return await body(`${folder}/model`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Steps that a test makes. */
const STEPS = 3;
/** Kernels of layers that are not fused. */
const OP_BY_OP = /^(attention|quantized_matmul|matvec|rms_norm)/;
/** Prompts of which some rows go through the layers together. */
const ROWS: Readonly<Record<string, readonly (readonly number[])[]>> = {
  "tokens of several sequences": [[11, 250, 7], [3], [90, 1, 2, 1000, 4]],
  "tokens of a chunk": [[5, 17, 40, 2, 2000, 31]],
};

/** How often kernels with names of a form ran on all devices. */
async function callsOf(body: () => Promise<void>): Promise<(name: RegExp) => number> {
  const { kernels } = await mx.profile(body, { timed: false });
  return (name) => kernels.filter(({ kernel }) => name.test(kernel)).reduce((sum, { calls }) => sum + calls, 0);
}

for (const device of DEVICES) {
  const devices = partsOf(device);
  const { concurrent } = mx.withDevice(device, getBackend).limits;
  const cases = Object.entries(CASES).filter(([, { waits }]) => concurrent || !waits);
  for (const [name, one] of drawSome(device, "parts of decoders", cases, 1)) {
    Deno.test(`fused parts equal one device op by op: ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const count = one.steps ?? STEPS;
      const layers = (one.model.layers ?? one.model.shape.layers) / 3;
      await written(one.model, async (path) => {
        const run = async (where: mx.lm.LoadOptions, change: Partial<typeof options>): ReturnType<typeof steps> => {
          using _options = withOptions(change);
          const { model } = await mx.lm.load(path, { ...where, dtype: mx[one.dtype] });
          using _model = model;
          return await steps(model, one.model.shape, 20, count);
        };
        const expected = await run({ device }, { regions: "off" });
        let found = expected;
        const calls = await callsOf(async () => {
          found = await run({ devices, split: [1, 1, 1].map((n) => n * layers) }, { regions: "on", ...one.options });
        });
        assertEquals([/^decode_begin/, one.hidden, /^decode_head/, OP_BY_OP].map(calls), [
          3 * count,
          2 * count,
          count,
          0,
        ]);
        assert(calls(one.layers) >= 3 * count, `${calls(one.layers)} phases`);
        for (const what of ["logits", "cache", "states"] as const) {
          if (expected[what].length === 0) continue;
          const error = nmse(found[what], expected[what]);
          assert(error <= one.limit, `${what}: NMSE ${error}`);
        }
      });
    });
  }

  for (const [name, prompts] of drawSome(device, "rows of parts", Object.entries(ROWS), 1)) {
    if (!isDrawn(device, name, 3)) continue;
    Deno.test(`${name} in fused parts give the tokens of one device, on ${device}`, async () => {
      using _options = withOptions({ regions: "on", batched: "on", launchMode: "barriers" });
      mx.setDefaultDevice(device);
      await written(own({ ...SMALL, layers: 2 }), async (path) => {
        const run = async (where: mx.lm.LoadOptions): Promise<number[][]> => {
          const { model, tokenizer } = await mx.lm.load(path, { ...where, dtype: mx.float32 });
          using _model = model;
          const found: number[][] = prompts.map(() => []);
          const all = { maxTokens: prompts.length > 1 ? 3 : 1, temp: 0 };
          if (prompts.length === 1) {
            for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompts[0], all)) found[0].push(token);
            return found;
          }
          for await (const { sequence, token } of mx.lm.streamBatchGenerate(model, tokenizer, prompts, all)) {
            found[sequence].push(token);
          }
          return found;
        };
        const expected = await run({ device });
        let found = expected;
        const calls = await callsOf(async () => {
          found = await run({ devices: devices.slice(0, 2), split: [1, 1] });
        });
        assertEquals(found, expected);
        const [begins, ends, heads] = [/^batch_begin$/, /^batch_hidden$/, /^batch_head/].map(calls);
        assertEquals([begins, ends], [2 * heads, heads]);
        assert(heads > 0, "no step was fused");
      });
    });
  }

  if (isDrawn(device, "prompts of parts", 3)) {
    Deno.test(`parts of a prompt in fused parts give the tokens of one device, on ${device}`, async () => {
      using _options = withOptions({ regions: "on", batched: "off", matrices: "emulated", launchMode: "barriers" });
      mx.setDefaultDevice(device);
      await written(own({ ...SMALL, layers: 4 }), async (path) => {
        const run = async (where: mx.lm.LoadOptions): Promise<number[]> => {
          const { model, tokenizer } = await mx.lm.load(path, { ...where, dtype: mx.float32 });
          using _model = model;
          const prompt = Array.from({ length: 49 }, (_, i) => (i * 37) % 4000);
          const found: number[] = [];
          const all = { maxTokens: 3, temp: 0, prefillStepSize: 16 };
          for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, all)) found.push(token);
          return found;
        };
        const expected = await run({ device });
        let found = expected;
        const calls = await callsOf(async () => {
          found = await run({ devices: devices.slice(0, 2), split: [2, 2] });
        });
        assertEquals(found, expected);
        assertEquals(calls(/^coopmat_qkv/), 3 * 4); // the last token is fed to a step
        assert(calls(/^decode_hidden/) >= 2, "steps of parts are not fused");
      });
    });
  }

  if (isDrawn(device, "hidden states", 3)) {
    Deno.test(`a part whose inner hidden states are asked for runs op by op, on ${device}`, async () => {
      using _options = withOptions({ regions: "on", launchMode: "barriers" });
      mx.setDefaultDevice(device);
      await written(own(SMALL), async (path) => {
        const run = async (where: mx.lm.LoadOptions): Promise<number[][]> => {
          const { model } = await mx.lm.load(path, { ...where, dtype: mx.float32 });
          using _model = model;
          const decoder = (model as DecoderModel).model;
          using cache = model.makeCache();
          cache.reserve(1);
          const { keys, values } = cache;
          const zeros = Array.from({ length: 4 }, () => mx.zeros([1, 1, SMALL.hidden]));
          const token = mx.array([[11]], mx.int32);
          const state = { token, position: mx.array([0], mx.int32), hidden: zeros, keys, values };
          {
            using loop = new DeviceLoop(state, (now) => {
              const step = new StepCache(now.keys, now.values, now.position);
              const hidden = decoder.hiddenStates(now.token, step);
              return {
                token: now.token,
                position: mx.add(now.position, 1),
                hidden,
                keys: step.keys,
                values: step.values,
              };
            });
            await loop.done(loop.run());
          }
          const found = zeros.map((x) => x.tolist().flat(2) as number[]);
          mx.dispose([token, state.position, zeros]);
          return found;
        };
        const expected = await run({ device });
        let found = expected;
        const calls = await callsOf(async () => {
          found = await run({ devices: devices.slice(0, 2), split: [2, 1] });
        });
        // The second part has one layer, whose result the last norm reads on the same device.
        assertEquals(calls(/^(decode|batch)_/), 0);
        found.forEach((numbers, i) => assert(nmse(numbers, expected[i]) <= 1e-10, `hidden state ${i}`));
      });
    });
  }

  if (isDrawn(device, "NaN of a part", 3)) {
    Deno.test(`NaN of a first part ends a generation, on ${device}`, async () => {
      using _options = withOptions({ regions: "on", launchMode: "barriers" });
      const { model, tokenizer } = await loadDamaged(devices.slice(0, 2), [
        "model.layers.0.mlp.down_proj.scales",
        3,
        NaN,
      ]);
      using _model = model;
      const error = await assertRejects(
        () => mx.lm.generate(model, tokenizer, "Once", { maxTokens: 4 }),
        mx.lm.LlmError,
      );
      assertMatch(error.message, /^The logits of step 1/);
    });
  }
}
