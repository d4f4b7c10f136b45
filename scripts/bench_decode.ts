/**
 * What a decoded token costs on a GPU: `deno run -A scripts/bench_decode.ts [--model=DIR] [--positions=128,1024,3500]
 * [--sums=u64,i32,f32] [--dtype=bfloat16] [--tokens=128]`.
 *
 * Prints tokens per second of the whole generation loop at each position, greedy and sampled, and the time of each kernel of a
 * step by the device's timestamps. Without `--model` it takes, or makes, a synthetic Qwen3-0.6B.
 *
 * @module
 */

import * as mx from "../mod.ts";
import { getBackend } from "../src/backend/devices.ts";
import { generateStep } from "../src/llm/generate.ts";
import { makeSampler, type Sampler } from "../src/llm/sampler.ts";
import { options } from "../src/schedule/options.ts";
import { profiler } from "../src/schedule/profile.ts";
import { SHAPES, writeModel } from "./synthetic.ts";
import { exists, TOOLS } from "./tools.ts";

const flag = (name: string): string | undefined => Deno.args.find((a) => a.startsWith(`--${name}=`))?.split("=")[1];
const POSITIONS = (flag("positions") ?? "128,1024,3500").split(",").map(Number);
const SUMS = (flag("sums") ?? "u64,i32,f32").split(",") as ("u64" | "i32" | "f32")[];
const DTYPE = mx[(flag("dtype") ?? "bfloat16") as "float32" | "float16" | "bfloat16"];
const TOKENS = Number(flag("tokens") ?? 128);
const DEVICE = flag("device") ?? mx.defaultDevice();
const RUNS = 3;
/** Runs that prepare weights and pipelines and bring the clocks up. */
const WARM_UPS = 2;

async function modelFolder(): Promise<string> {
  const named = flag("model");
  if (named) return named;
  const dir = `${TOOLS}/models/qwen3-0.6b-4bit`;
  if (!await exists(dir)) {
    await Deno.mkdir(`${TOOLS}/models`, { recursive: true });
    await writeModel(dir, SHAPES["qwen3-0.6b"]);
  }
  return dir;
}

/** One generation behind `position` tokens: tokens per second after the first, and the longest pause between two tokens. */
async function run(
  model: mx.lm.LanguageModel,
  position: number,
  sampler: Sampler,
): Promise<{ readonly tps: number; readonly gap: number }> {
  using cache = model.makeCache();
  const prompt = Array.from({ length: position }, (_, i) => (i * 7919) % model.config.vocabSize);
  const times: number[] = [];
  const settings = { maxTokens: TOKENS + 1, sampler, processors: [], contextSize: 20, cache, prefillStepSize: 2048 };
  for await (const _ of generateStep(prompt, model, settings)) times.push(performance.now());
  const gaps = times.slice(1).map((t, i) => t - times[i]);
  return { tps: TOKENS * 1000 / (times[times.length - 1] - times[0]), gap: Math.max(...gaps) };
}

const { model } = await mx.lm.load(await modelFolder(), { device: DEVICE, dtype: DTYPE });
const backend = getBackend(DEVICE);
console.log(
  `${DEVICE}: ${backend.description}; activations and cache ${DTYPE.name}, ${TOKENS} tokens, best of ${RUNS}`,
);
for (const sums of SUMS) {
  options.sums = sums;
  for (const position of POSITIONS) {
    for (const temp of [0, 0.6]) {
      const sampler = (): Sampler => makeSampler({ temp, topK: 20, topP: 0.95, seed: 1 });
      for (let i = 0; i < WARM_UPS; i++) await run(model, position, sampler());
      const runs = [];
      for (let i = 0; i < RUNS; i++) runs.push(await run(model, position, sampler()));
      const best = runs.reduce((a, b) => a.tps > b.tps ? a : b);
      const rate = best.tps.toFixed(0).padStart(6);
      console.log(`${sums} @${position} temperature ${temp}: ${rate} tok/s, longest pause ${best.gap.toFixed(1)} ms`);
    }
    profiler.enable(backend, true);
    await run(model, position, makeSampler());
    const rows = profiler.rows().filter((r) => r.kernel.startsWith("decode_"));
    profiler.enable(backend, false);
    const each = rows.map((r) => `${r.kernel} ${(r.nanoseconds / r.calls / 1000).toFixed(2)} us`);
    console.log(`  ${each.join(", ")}`);
  }
}
model[Symbol.dispose]();
