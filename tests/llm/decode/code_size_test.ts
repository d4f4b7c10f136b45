/**
 * Machine code of decode steps. The kernels of a layer stay below what a multiprocessor caches, for every published shape in the variant
 * that is taken. Past that each layer fetches all of its code again, which doubles the time of a token (docs/performance-gpu.md).
 *
 * Models of two layers and few tokens have the code of whole ones. Limits are those of NVIDIA's discrete GPUs, whose driver tells.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { LAYER_KERNELS, OP_BY_OP, variantOf } from "../../../scripts/bench/step_variants.ts";
import { NEAR_CODE } from "../../../scripts/bench/gpu/targets.ts";
import { SHAPES, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { promptOf, timeTokens } from "../../../src/cli/bench/tokens.ts";
import { pipelineName } from "../../../src/schedule/plan/profile_code.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** Shapes, and bits of a weight. */
const MODELS = [
  ["qwen3-0.6b", 4],
  ["qwen3-1.7b", 4],
  ["qwen3-4b", 4],
  ["qwen3-8b", 4],
  ["qwen3-8b", 8],
  ["qwen3-0.6b", 16],
  ["qwen3-8b", 16],
] as const;

/** KB of the kernels of a layer. One sequence leaves the rest to the head and to the start of a token; several have this limit. */
const LIMITS = { one: 100, several: NEAR_CODE / 1024 };

/** Sequences together, and positions before the first token: few, and enough for attention that all workgroups share. */
const STEPS = [
  { sequences: 1, positions: 100 },
  { sequences: 1, positions: 800 },
  { sequences: 8, positions: 100 },
];

/** Tokens after which a faster variant was looked for, and those whose kernels count. */
const [MANY, FEW] = [48, 4];

/** The kernels of steps in the variant that is taken. */
async function profileSteps(
  { model, tokenizer }: mx.lm.Loaded,
  { sequences, positions }: typeof STEPS[number],
): Promise<mx.Profile> {
  const run = async (tokens: number): Promise<void> => {
    if (sequences === 1) {
      using cache = model.makeCache();
      await timeTokens(model, cache, promptOf(model, positions), tokens);
      return;
    }
    // They begin differently: what prompts have in common is read once, and their ends would be chunks.
    const prompts = Array.from({ length: sequences }, (_, i) => [i, ...promptOf(model, positions - 1)]);
    for await (const _ of mx.lm.streamBatchGenerate(model, tokenizer, prompts, { maxTokens: tokens })) { /* runs */ }
  };
  await run(MANY);
  await model.traces.idle();
  return await mx.profile(() => run(FEW), { timed: false, code: true });
}

for (const device of testDevices()) {
  const { shaders, limits } = mx.withDevice(device, getBackend);
  const tells = limits.concurrent && (shaders?.features.includes("pipelineStatistics") ?? false);
  for (const [name, bits] of MODELS) {
    Deno.test({
      name: `a layer of ${name} in ${bits} bits has little code on ${device}${
        tells ? "" : " (no driver of NVIDIA tells)"
      }`,
      ignore: !tells,
      fn: async () => {
        mx.setDefaultDevice(device);
        const folder = await Deno.makeTempDir();
        await writeModel(`${folder}/model`, { ...SHAPES[name], layers: 2, vocab: 4096 }, { bits });
        const loaded = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float16 });
        const large: string[] = [];
        for (const step of STEPS) {
          const { kernels, pipelines } = await profileSteps(loaded, step);
          const variant = variantOf(kernels.filter(({ region }) => region === "decoder step"), step.sequences);
          if (variant === undefined && step.sequences > 1) continue; // the products of prompts, which share out their layers otherwise
          assert(variant, `steps of ${step.sequences} sequences ran ${OP_BY_OP}`);
          const layer = pipelines.filter((p) => p.region === "decoder step" && LAYER_KERNELS.test(p.kernel));
          assert(layer.length > 0 && layer.every(({ bytes }) => bytes! > 0), "the driver told nothing");
          const size = (bytes: number): string => `${(bytes / 1024).toFixed(1)} KB`;
          const sum = layer.reduce((all, { bytes }) => all + bytes!, 0);
          const limit = step.sequences > 1 ? LIMITS.several : LIMITS.one;
          if (sum <= limit * 1024) continue;
          const each = layer.map((p) => `${pipelineName(p)}: ${size(p.bytes!)}`).join(", ");
          large.push(`${step.sequences} at ${step.positions}, ${variant}: ${size(sum)} of ${limit} KB (${each})`);
        }
        loaded.model[Symbol.dispose]();
        await Deno.remove(folder, { recursive: true });
        assert(large.length === 0, `${name} has more code than it may:\n${large.join("\n")}`);
      },
    });
  }
}
