/**
 * Layers with gated attention and with gated delta nets in gemv kernels (shaders/decode_gemv) against the same graph op by op. Logits, the
 * cache and the recurrent states must agree for other heads, formats and dtypes, with all layers in either order.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { MegakernelFailure } from "../../../src/graph/error.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import { gemvUnsupportedReason } from "../../../src/schedule/decoder/emit_gemv.ts";
import { hybridCanPersist } from "../../../src/schedule/decoder/emit_hybrid.ts";
import { productFormat } from "../../../src/schedule/decoder/formats.ts";
import type { RecurrentPart } from "../../../src/schedule/decoder/recurrent_layer.ts";
import type { DecoderSpec, ExpertFeatures } from "../../../src/schedule/decoder/spec.ts";
import { PLAIN_NORMS, uniformFormats } from "../../support/devices/kernel_choices.ts";
import { unrunBackend } from "../../support/devices/unrun_device.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { steps } from "../../support/models/random_cache_steps.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Sizes of a small Qwen3.5. */
const SMALL = {
  hidden: 256,
  intermediate: 512,
  layers: 3,
  /** Layers from one with attention to the next one. */
  interval: 2,
  heads: 2,
  kvHeads: 1,
  headDim: 256,
  keyHeads: 2,
  valueHeads: 4,
  keyDim: 128,
  valueDim: 128,
  window: 4,
  /** Experts, and those of them that a token chooses, beside one that all take; 0 for a dense feed-forward part. */
  experts: 0,
  chosen: 3,
};
type Sizes = typeof SMALL;
type Found = Awaited<ReturnType<typeof steps>>;

/** Sizes, a format, positions before the first token, and the dtype of activations, default float32. */
const CASES: readonly (readonly [string, Partial<Sizes>, ModelFormat, number, "bfloat16"?])[] = [
  ["gated attention alone, two parts", { interval: 1, layers: 2 }, { groupSize: 64 }, 5],
  ["gated attention alone, many parts, bfloat16", { interval: 1, layers: 1 }, { groupSize: 64 }, 300, "bfloat16"],
  ["delta nets, the last layer of them", {}, { groupSize: 64 }, 5],
  [
    "delta nets, many parts of attention of four heads to a key head, 8 bits",
    { layers: 4, interval: 4, heads: 4, valueHeads: 8 },
    { bits: 8, groupSize: 32 },
    300,
  ],
  [
    "more heads, of 64 features, and a window of 3",
    { keyHeads: 4, valueHeads: 8, keyDim: 64, valueDim: 64, window: 3 },
    { groupSize: 128 },
    5,
  ],
  ["experts and one of all tokens", { layers: 2, experts: 16 }, { groupSize: 64 }, 5],
  ["as many experts as two to a workgroup, 8 bits", { layers: 2, experts: 256 }, { bits: 8, groupSize: 64 }, 5],
  ["dense experts", { interval: 1, layers: 1, experts: 8 }, { bits: 16 }, 5],
  ["dense weights", { layers: 2 }, { bits: 16 }, 5],
  ["bfloat16 activations", { layers: 2 }, { groupSize: 64 }, 5, "bfloat16"],
];

const PROMPT = [3, 14, 159, 26, 5, 35, 89, 79, 32, 38];

/**
 * Models for one dispatch for all layers, with the same numbers. A layer of either kind is first or last, or several of a kind follow
 * each other.
 */
const ORDERS: readonly (readonly [string, Partial<Sizes>, ModelFormat, number, "bfloat16"?])[] = [
  ["a recurrent layer first and last", { layers: 5, interval: 2 }, { groupSize: 64 }, 5],
  [
    "three recurrent layers together, many parts of attention of four heads to a key head",
    { layers: 9, interval: 4, heads: 4, valueHeads: 8 },
    { groupSize: 64 },
    300,
  ],
  ["8 bits, a window of 3", { layers: 6, interval: 3, window: 3 }, { bits: 8, groupSize: 32 }, 5],
  ["dense weights, bfloat16", { layers: 4 }, { bits: 16 }, 300, "bfloat16"],
  ["attention alone, whose heads have gates", { layers: 3, interval: 1 }, { groupSize: 128 }, 300],
  ["experts and one of all tokens", { layers: 5, experts: 16 }, { groupSize: 64 }, 5],
  ["two experts to a workgroup", { layers: 4, experts: 256 }, { bits: 8, groupSize: 64 }, 300],
  [
    "more rows of states than workgroups take at once",
    { layers: 4, heads: 20, kvHeads: 4, keyHeads: 20, valueHeads: 40, hidden: 512 },
    { groupSize: 64 },
    5,
  ],
];

/** Most NMSE of float32 activations. */
const BOUND = 1e-6;

/** Published models: hidden features, gated values, heads, key heads, and heads of keys and values of delta nets; then experts. */
const MODELS: Readonly<Record<string, readonly [readonly number[], ExpertFeatures?]>> = {
  "Qwen3.5-0.8B": [[1024, 3584, 8, 2, 16, 16]],
  "Qwen3.5-2B": [[2048, 6144, 8, 2, 16, 16]],
  "Qwen3.5-4B": [[2560, 9216, 16, 4, 16, 32]],
  "Qwen3.5-9B": [[4096, 12288, 16, 4, 16, 32]],
  "Qwen3.5-27B": [[5120, 17408, 24, 4, 16, 48]],
  "Qwen3.5-35B-A3B": [[2048, 9 * 512, 16, 2, 16, 32], { count: 256, chosen: 8, among: "chosen", shared: true }],
};

for (const [name, [[hidden, intermediate, heads, kvHeads, keyHeads, valueHeads], experts]] of Object.entries(MODELS)) {
  Deno.test(`${name} takes gemv kernels in both launch modes on a GPU`, () => {
    const { formats, head } = uniformFormats(4, 64);
    const net = { keyHeads, valueHeads, keyDim: 128, valueDim: 128, window: 4 };
    const decoder = {
      sizes: { hidden, intermediate, heads, kvHeads, headDim: 256 },
      features: { ...PLAIN_NORMS, gated: true, ...(experts && { experts }) },
      layers: [{ formats }],
      recurrent: {
        net,
        layers: [{ formats: { ...formats, rates: productFormat([head]) } }],
      } as unknown as RecurrentPart,
    };
    const reasons = (["barriers", "persistent"] as const).map((mode) =>
      gemvUnsupportedReason(unrunBackend(), decoder, mode)
    );
    assertEquals(reasons, [undefined, undefined]);
  });
}

Deno.test("one dispatch takes no layer or several of each kind, with their states in one slot", () => {
  const [index, position] = [{}, {}];
  const decoder = (layers: number, nets: readonly (object | undefined)[], features: object = {}): DecoderSpec => ({
    layers: Array.from({ length: layers }, () => ({})),
    features: { gated: true, ...features },
    ...(nets.length > 0 && { recurrent: { layers: nets.map((slot) => ({ before: 0, slot })) } }),
  } as unknown as DecoderSpec);
  const slot = { index, position };
  const none = undefined;
  // A word of the only layer of a kind looks the same for each token.
  const found = [
    decoder(2, [none, none]),
    decoder(2, []),
    decoder(2, [slot, { ...slot }]),
    decoder(1, [none, none]),
    decoder(2, [none]),
    decoder(1, []),
    decoder(2, [slot, { index: {}, position }]),
    decoder(2, [slot, none]),
    decoder(2, [], { sinks: true }),
    decoder(2, [], { outputBias: true }),
  ].map(hybridCanPersist);
  assertEquals(found, [true, true, true, false, false, false, false, false, false, false]);
});

/** Writes a small Qwen3.5. */
async function write(path: string, s: Sizes, format: ModelFormat): Promise<void> {
  await writePublished(path, {
    model_type: s.experts > 0 ? "qwen3_5_moe_text" : "qwen3_5_text",
    ...(s.experts > 0 && {
      num_experts: s.experts,
      num_experts_per_tok: s.chosen,
      moe_intermediate_size: s.intermediate / (s.chosen + 1),
      shared_expert_intermediate_size: s.intermediate / (s.chosen + 1),
    }),
    hidden_size: s.hidden,
    intermediate_size: s.intermediate,
    num_hidden_layers: s.layers,
    num_attention_heads: s.heads,
    num_key_value_heads: s.kvHeads,
    head_dim: s.headDim,
    full_attention_interval: s.interval,
    linear_num_key_heads: s.keyHeads,
    linear_num_value_heads: s.valueHeads,
    linear_key_head_dim: s.keyDim,
    linear_value_head_dim: s.valueDim,
    linear_conv_kernel_dim: s.window,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-6,
    rope_parameters: { rope_type: "default", rope_theta: 10000, partial_rotary_factor: 0.25 },
    tie_word_embeddings: true,
    vocab_size: 4099,
  }, format);
}

/** Lets the next wait for a device fail after `plan(true)`, as where a step in one dispatch did not end well; until disposal. */
function plantedFailure(device: string): { plan(now: boolean): void; readonly count: number } & Disposable {
  const backend = mx.withDevice(device, getBackend);
  let [planned, count] = [false, 0];
  const waitAsync = async (ticket: number, soon?: boolean): Promise<void> => {
    await Object.getPrototypeOf(backend).waitAsync.call(backend, ticket, soon);
    if (!planned) return;
    planned = false;
    count++;
    throw new MegakernelFailure("planted");
  };
  Object.assign(backend, { waitAsync });
  return {
    plan: (now) => void (planned ||= now),
    get count() {
      return count;
    },
    [Symbol.dispose]: () => void delete (backend as Partial<typeof backend>).waitAsync,
  };
}

for (const device of DEVICES) {
  for (const [name, sizes, format, context, dtype = "float32"] of CASES) {
    Deno.test(`a fused step equals op by op with ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const s = { ...SMALL, ...sizes };
      await write(`${folder}/model`, s, format);
      mx.setDefaultDevice(device);
      const shape = { ...s, layers: Math.floor(s.layers / s.interval) } as unknown as ModelShape;
      const run = async (regions: "on" | "off", dtype: "float32" | "bfloat16"): Promise<Found> => {
        using _options = withOptions({ regions, launchMode: "barriers" });
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
        using _model = model;
        return await steps(model, shape, context, 3);
      };
      const expected = await run("off", "float32");
      let found = expected;
      const kernels = await kernelsOf(device, async () => {
        found = await run("on", dtype);
      });
      assert(kernels.has("decode_gemv_phase") && !kernels.has("attention"), [...kernels].join());
      assertEquals(kernels.has("decode_gemv_recurrent"), s.interval > 1);
      const left = ["gated_delta", "causal_conv", "expert_units", "expert_sum"].filter((kernel) =>
        kernels.has(kernel as KernelName)
      );
      assertEquals(left, []);
      // Op by op rounds activations to bfloat16 after each op, so it is farther from float32.
      const rounded = dtype === "bfloat16" ? await run("off", dtype) : undefined;
      for (const what of s.interval > 1 ? ["logits", "cache", "states"] as const : ["logits", "cache"] as const) {
        const error = nmse(found[what], expected[what]);
        const most = rounded ? nmse(rounded[what], expected[what]) : BOUND;
        assert(error <= most, `${what}: NMSE ${error}, not up to ${most}`);
      }
      await Deno.remove(folder, { recursive: true });
    });
  }

  const { concurrent } = mx.withDevice(device, getBackend).limits;
  for (const [name, sizes, format, context, dtype = "float32"] of ORDERS) {
    Deno.test({
      name: `all layers in one dispatch give the bits of steps with barriers: ${name} on ${device}`,
      ignore: !concurrent, // all workgroups have to run at once
      fn: async () => {
        const folder = await Deno.makeTempDir();
        const s = { ...SMALL, ...sizes };
        await write(`${folder}/model`, s, format);
        mx.setDefaultDevice(device);
        const shape = { ...s, layers: Math.floor(s.layers / s.interval) } as unknown as ModelShape;
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
        using _model = model;
        const run = async (launchMode: "barriers" | "per_phase" | "persistent"): Promise<Found> => {
          using _options = withOptions({ regions: "on", launchMode });
          let found: Found | undefined;
          const kernels = await kernelsOf(device, async () => {
            found = await steps(model, shape, context, 12);
          });
          assertEquals(kernels.has("decode_gemv_hybrid"), launchMode !== "barriers", [...kernels].join());
          assertEquals(kernels.has("decode_gemv_phase"), launchMode === "barriers", [...kernels].join());
          return found!;
        };
        const expected = await run("barriers");
        for (const mode of ["per_phase", "persistent"] as const) {
          const found = await run(mode);
          for (const what of ["logits", "cache", "states"] as const) {
            assertEquals(found[what], expected[what], `${what}, ${mode}`);
          }
        }
        await Deno.remove(folder, { recursive: true });
      },
    });
  }

  Deno.test(`a generation with delta nets has the tokens of one op by op on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, { ...SMALL, layers: 4 }, { groupSize: 64, seed: 3 });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, { device });
    using _model = model;
    const tokens = async (
      regions: "on" | "off",
      options: mx.lm.GenerateOptions,
      plan?: (count: number) => void,
      launchMode: "barriers" | "persistent" = "barriers",
    ): Promise<number[]> => {
      using _options = withOptions({ regions, launchMode });
      const found: number[] = [];
      for await (const r of mx.lm.streamGenerate(model, tokenizer, PROMPT, { maxTokens: 8, temp: 0, ...options })) {
        const count = found.push(r.token);
        plan?.(count);
      }
      return found;
    };
    const expected = await tokens("off", {});
    const kernels = await kernelsOf(device, async () => assertEquals(await tokens("on", {}), expected));
    for (const kernel of ["decode_gemv_recurrent", "decode_greedy_gemv"]) {
      assert(kernels.has(kernel), [...kernels].join());
    }
    {
      // A step that fails has replaced states: they go back to their copy, and what follows that is read again.
      using failure = plantedFailure(device);
      assertEquals(await tokens("on", {}, (count) => failure.plan(count === 4)), expected);
      assertEquals(failure.count, 1);
    }
    {
      // One look is never enough, and workgroups of a software device do not run together.
      using _failed = { [Symbol.dispose]: () => forgetLaunchModes(mx.withDevice(device, getBackend)) };
      using _options = withOptions({ spinLimit: 1 });
      const kernels = await kernelsOf(
        device,
        async () => assertEquals(await tokens("on", {}, undefined, "persistent"), expected),
      );
      assert(kernels.has("decode_gemv_hybrid"), [...kernels].join());
    }
    // Steps that verify drafted tokens run op by op, and states go back to those of the tokens that count.
    assertEquals(await tokens("on", { speculation: {} }), expected);
    // So do several sequences, whose pages lie as fused steps read them.
    using _options = withOptions({ regions: "on", launchMode: "barriers" });
    const found: number[][] = [[], []];
    const prompts = [PROMPT, PROMPT.slice(3)];
    for await (const r of mx.lm.streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 8, temp: 0 })) {
      found[r.sequence].push(r.token);
    }
    assertEquals(found[0], expected);
    await Deno.remove(folder, { recursive: true });
  });

  const one = async (draftHead: boolean): Promise<void> => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, { ...SMALL, layers: 4 }, { groupSize: 64, seed: 3, draftHead });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, { device, draftHead });
    using _model = model;
    const sizes = { kvBytes: 2 ** 24, contextSize: 256, maxSequences: 3 };
    const settings = { ...sizes, ...(draftHead && { speculation: { drafter: "mtp" } as const }) };
    // A request alone, then two together, whose slots are others, and one of which goes on alone.
    const prompts = [PROMPT, [7], PROMPT.slice(2)];
    const answers = async (
      regions: "on" | "off",
      plan?: (count: number) => void,
      launchMode: "barriers" | "persistent" = "barriers",
    ): Promise<number[][]> => {
      using _options = withOptions({ regions, launchMode });
      await using engine = new mx.lm.Engine(model, tokenizer, settings);
      const take = async (prompt: readonly number[], maxTokens: number): Promise<number[]> => {
        const tokens: number[] = [];
        for await (const { token } of engine.add({ prompt, maxTokens })) {
          const count = tokens.push(token);
          plan?.(count);
        }
        return tokens;
      };
      const alone = await take(prompts[2], 8);
      return [alone, ...await Promise.all([take(prompts[1], 3), take(prompts[0], 12)])];
    };
    const expected = await answers("off");
    const kernels = await kernelsOf(device, async () => assertEquals(await answers("on"), expected));
    assert(kernels.has("decode_gemv_recurrent"), [...kernels].join());
    if (concurrent) {
      const run = async (): Promise<void> => assertEquals(await answers("on", undefined, "persistent"), expected);
      const kernels = await kernelsOf(device, run);
      assert(kernels.has("decode_gemv_hybrid"), [...kernels].join());
    }
    // Steps that fail while one request runs, and while two do: their sequences read their tokens again, in other slots.
    using failure = plantedFailure(device);
    const failing = await answers("on", (count) => failure.plan(count === 3 || count === 9));
    assertEquals(failing, expected);
    assert(failure.count >= 2, `${failure.count} failures`);
    failure[Symbol.dispose]();
    await model.traces.idle();
    await Deno.remove(folder, { recursive: true });
  };
  const what = "one request of an engine has fused steps over the slots of its states";
  Deno.test(`${what} on ${device}`, () => one(false));
  Deno.test(`${what}, and its head takes nothing, on ${device}`, () => one(true));
}
