/**
 * NaN and infinity in a model's weights end a generation with an error that names the step, and the tokens before it stay. This holds on
 * every device, however tokens are chosen, op by op and in the kernels of a decoder, whose accumulators are integers.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { type Damage, loadDamaged } from "../../support/models/damaged_model.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const { tokenizer } = await mx.lm.load(TINY_DIR, { device: DEVICES.at(-1) }).then((loaded) => {
  loaded.model[Symbol.dispose]();
  return loaded;
});

/** Tokens of a generation and what it ended with. */
async function generated(
  model: mx.lm.LanguageModel,
  settings: mx.lm.GenerateOptions,
): Promise<{ tokens: number[]; error: string }> {
  const tokens: number[] = [];
  try {
    for await (const r of mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].ids, { maxTokens: 12, ...settings })) {
      tokens.push(r.token);
    }
  } catch (error) {
    const { code, message } = error as mx.lm.LlmError;
    return { tokens, error: `${code}: ${message.split(",")[0]}` };
  }
  return { tokens, error: "" };
}

/** Ways to choose; each of them takes the most probable token. */
const WAYS: Readonly<Record<string, mx.lm.GenerateOptions>> = {
  greedy: {},
  sampled: { temp: 0.5, topK: 1, seed: 1 },
  logprobs: { logprobs: 3 },
  "sampled from all": { temp: 1e-3, seed: 1 },
  "with a penalty": { repetitionPenalty: 1.0001 },
  "with a sampler of one's own": {
    sampler: Object.assign((logits: mx.Tensor) => mx.argmax(logits, -1), { key: undefined }),
  },
};

/** How a device runs steps: op by op and, on software devices only when told to, in a decoder's kernels; and what is tried there. */
const variants = (device: string): readonly (readonly [Partial<typeof options>, ...(keyof typeof WAYS)[]])[] =>
  device === "wasm" ? [[{}, ...Object.keys(WAYS)]] : [
    [{ regions: "off" }, "greedy", "sampled"],
    [
      { regions: "on", accumulators: "u64", launchMode: "barriers" },
      "greedy",
      "sampled",
      "with a sampler of one's own",
    ],
    [{ regions: "on", accumulators: "i32", launchMode: "barriers" }, "greedy"],
    [{ regions: "on", accumulators: "u64", launchMode: "per_phase" }, "greedy"],
  ];

async function within<T>(change: Partial<typeof options>, body: () => Promise<T>): Promise<T> {
  using _options = withOptions(change);
  return await body();
}

/** Weights whose damage spoils the first step. */
const SPOILED: readonly Damage[] = [
  ["model.layers.1.self_attn.q_proj.scales", 3, NaN],
  ["model.layers.1.self_attn.k_norm.weight", 3, NaN],
  ["model.layers.0.self_attn.v_proj.biases", 3, Infinity],
  ["model.layers.2.self_attn.o_proj.scales", 3, NaN],
  ["model.layers.1.mlp.down_proj.scales", 3, NaN],
  ["model.layers.1.mlp.gate_proj.biases", 3, NaN],
  ["model.layers.1.input_layernorm.weight", 3, NaN],
  ["model.layers.0.post_attention_layernorm.weight", 3, Infinity],
  ["model.norm.weight", 3, NaN],
  ["lm_head.scales", 3, NaN],
];

const { greedy } = GOLDEN[0];

for (const device of DEVICES) {
  for (const [variant, ...ways] of variants(device)) {
    const name = `${device} ${Object.values(variant).join(" ")}`.trim();

    Deno.test(`a step without finite logits ends with its number, tokens before it stay: ${name}`, () =>
      within(variant, async () => {
        // The embedding of the third token is spoiled, which step 4 feeds.
        const loaded = await loadDamaged(device, ["model.embed_tokens.scales", greedy[2], NaN]);
        using model = loaded.model;
        for (const way of ways) {
          const { tokens, error } = await generated(model, WAYS[way]);
          assertEquals(tokens, greedy.slice(0, 3), way);
          assertEquals(error, "logits: The logits of step 4", way);
        }
        if (variant.launchMode === "per_phase" || variant.accumulators === "i32") return;
        const texts: string[] = ["", ""];
        let message = "";
        try {
          const prompts = [GOLDEN[0].ids.slice(0, 2), GOLDEN[0].ids];
          for await (const r of mx.lm.streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 12 })) {
            texts[r.sequence] += ` ${r.token}`;
          }
        } catch (error) {
          message = (error as Error).message.split(",")[0];
        }
        assertEquals(message, "The logits of step 4 of sequence 1");
        assertEquals(texts[1], ` ${greedy.slice(0, 3).join(" ")}`);
        const other = await generated(model, { logitBias: { [greedy[2]]: -Infinity } }); // goes another way
        assertEquals([other.tokens.length, other.error], [12, ""]);
      }));

    Deno.test(`NaN or infinity in any weight is noticed: ${name}`, () =>
      within(variant, async () => {
        for (const damage of SPOILED) {
          const loaded = await loadDamaged(device, damage);
          using model = loaded.model;
          const { tokens, error } = await generated(model, {});
          assertEquals([tokens, error], [[], "logits: The logits of step 1"], String(damage));
        }
      }));
  }
}
