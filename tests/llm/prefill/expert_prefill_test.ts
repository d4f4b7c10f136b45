/**
 * Prompts and steps of several sequences through layers with experts. What is around the experts is fused, and gives what the same graph
 * gives op by op.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { PUBLISHED, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { tuningOf } from "../../../src/schedule/tuning/choose.ts";
import { profile } from "../../../src/schedule/plan/profile.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const LAYERS = 2;
const SIZES = {
  hidden_size: 128,
  intermediate_size: 192,
  moe_intermediate_size: 64,
  num_hidden_layers: LAYERS,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 64,
  vocab_size: 4099,
};

interface Case {
  readonly config: Readonly<Record<string, unknown>>;
  readonly sequences: number;
  /** Of each sequence that passes read, one after the other. */
  readonly tokens: readonly number[];
  readonly dtype: "float32" | "bfloat16";
  /** Norms by themselves in a pass, those of heads. */
  readonly norms: number;
  /** Layers fused before attention. */
  readonly before: number;
  /** Sums of experts by themselves in a pass, to which something is added before the residual. */
  readonly mixes: number;
  /** Whether routers are dense: rows keep their dtype for them, and are converted for experts. */
  readonly dense?: boolean;
  /** Whether choices of so few rows are sorted by expert as if the device were faster so. */
  readonly sorts?: boolean;
  /** Whether experts read the rows that are fused before them one by one. */
  readonly unsorted?: boolean;
}

const QWEN3 = { ...PUBLISHED["qwen3-30b-a3b"], ...SIZES, num_experts: 8, num_experts_per_tok: 4 };
const HYBRID = {
  ...PUBLISHED["qwen3.5-35b-a3b"],
  ...SIZES,
  full_attention_interval: 2,
  linear_num_key_heads: 1,
  linear_num_value_heads: 16,
  linear_key_head_dim: 64,
  linear_value_head_dim: 64,
  num_experts: 8,
  num_experts_per_tok: 4,
  shared_expert_intermediate_size: 64,
};
const LFM2 = {
  ...PUBLISHED["lfm2-8b-a1b"],
  ...SIZES,
  num_dense_layers: 1,
  num_experts: 8,
  layer_types: ["conv", "full_attention"],
};
const GLM = {
  ...PUBLISHED["glm-4.7-flash"],
  ...SIZES,
  num_key_value_heads: 2,
  q_lora_rank: 64,
  kv_lora_rank: 64,
  qk_nope_head_dim: 64,
  qk_rope_head_dim: 32,
  v_head_dim: 64,
  n_routed_experts: 8,
  first_k_dense_replace: 0,
};
const GPT_OSS = {
  ...PUBLISHED["gpt-oss-20b"],
  ...SIZES,
  intermediate_size: 64,
  num_local_experts: 8,
};

const CASES: Readonly<Record<string, Case>> = {
  "Qwen3-MoE": { config: QWEN3, sequences: 1, tokens: [20, 17], dtype: "float32", before: 2, norms: 0, mixes: 0 },
  "Qwen3-MoE, a step": {
    config: QWEN3,
    sequences: 16,
    tokens: [1, 1],
    dtype: "float32",
    before: 2,
    norms: 0,
    mixes: 0,
  },
  "Qwen3-MoE, a step of few": {
    config: QWEN3,
    sequences: 6,
    tokens: [1, 1],
    dtype: "float32",
    before: 2,
    norms: 0,
    mixes: 0,
    sorts: true,
  },
  "Qwen3-MoE in bfloat16": {
    config: QWEN3,
    sequences: 1,
    tokens: [33],
    dtype: "bfloat16",
    before: 2,
    norms: 0,
    mixes: 0,
  },
  "Qwen3-MoE, so few choices that they are not sorted": {
    config: { ...QWEN3, num_experts_per_tok: 2 },
    sequences: 1,
    tokens: [16, 9],
    dtype: "float32",
    before: 2,
    norms: 0,
    mixes: 0,
    unsorted: true,
  },
  "Qwen3.5-MoE": { config: HYBRID, sequences: 1, tokens: [20], dtype: "float32", before: 0, norms: 3, mixes: 0 },
  "LFM2-MoE": { config: LFM2, sequences: 1, tokens: [20], dtype: "float32", before: 1, norms: 0, mixes: 0 },
  "GLM-4.7": { config: GLM, sequences: 1, tokens: [20], dtype: "bfloat16", before: 0, norms: 4, mixes: 0, dense: true },
  "gpt-oss": { config: GPT_OSS, sequences: 1, tokens: [20], dtype: "float32", before: 2, norms: 0, mixes: 0 },
};

interface Found {
  readonly logits: Float32Array;
  readonly calls: ReadonlyMap<string, number>;
  /** Conversions to float16 that are of no region. */
  readonly conversions: number;
}

/** The logits of the last pass, and how often each kernel ran. */
async function read(model: mx.lm.LanguageModel, device: string, regions: "on" | "off", c: Case): Promise<Found> {
  using _options = withOptions({ regions, matrices: hasMatrices(device) ? "auto" : "emulated" });
  const tuning = tuningOf(getBackend(device));
  // The reference leaves choices unsorted, so it does not run what is checked.
  const sorts = regions === "on" && c.sorts;
  using _sorted = withOptions(sorts ? { tuning: { ...tuning, experts: { minSorted: 1, maxUnsortedRows: 0 } } } : {});
  using cache = model.makeCache(c.sequences);
  let logits = new Float32Array();
  const { kernels } = await profile(() => {
    c.tokens.forEach((tokens, pass) =>
      mx.tidy(() => {
        const ids = Int32Array.from(
          { length: c.sequences * tokens },
          (_, i) => (i * 1237 + pass * 77) % SIZES.vocab_size,
        );
        const found = model.forward(mx.array(ids).reshape(c.sequences, tokens), cache);
        mx.eval(found, ...cache.state);
        logits = Float32Array.from(found.astype(mx.float32).toTypedArray() as Float32Array);
      })
    );
    return Promise.resolve();
  }, { device, timed: false });
  const calls = new Map<string, number>();
  for (const { kernel, calls: n } of kernels) calls.set(kernel, (calls.get(kernel) ?? 0) + n);
  const others = kernels.filter(({ kernel, op }) => kernel === "half_rows" && op !== "region");
  return { logits, calls, conversions: others.length };
}

for (const device of DEVICES) {
  for (const [name, c] of Object.entries(CASES)) {
    Deno.test(`what is around experts is fused and equals op by op: ${name}, on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writePublished(`${folder}/model`, c.config as (typeof PUBLISHED)[string], { groupSize: 64 });
      mx.setDefaultDevice(device);
      const run = async (regions: "on" | "off", as: Case["dtype"]): Promise<Found> => {
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[as] });
        using _model = model;
        return await read(model, device, regions, c);
      };
      const expected = await run("off", "float32");
      const found = await run("on", c.dtype);
      const all = [...found.calls].map(([kernel, n]) => `${kernel} ${n}`).join();
      const count = (kernel: string): number => (found.calls.get(kernel) ?? 0) / c.tokens.length;
      // Before each layer, after each mixer, and before the head.
      const others = [count("rms_norm"), found.conversions > 0];
      assertEquals([count("add_norm"), ...others], [2 * LAYERS + 1, c.norms, c.dense ?? false], all);
      const openings = [...found.calls].filter(([kernel]) => kernel.startsWith("coopmat_qkv"));
      const before = openings.reduce((sum, [, n]) => sum + n, 0) / c.tokens.length;
      assertEquals([count("expert_mix"), before], [c.mixes, c.before], all);
      if (c.unsorted) assertEquals([count("expert_units"), count("expert_sum")], [LAYERS, LAYERS], all);
      if (c.sorts) assertEquals([count("expert_units"), count("expert_order")], [0, 0], all);
      // Op by op rounds activations to bfloat16 after each op, so it is farther from float32.
      const rounded = c.dtype === "bfloat16" ? await run("off", c.dtype) : undefined;
      const error = nmse(found.logits, expected.logits);
      const most = rounded ? nmse(rounded.logits, expected.logits) : 1e-5;
      assert(error <= most, `NMSE ${error}, not up to ${most}`);
      await Deno.remove(folder, { recursive: true });
    });
  }
}
