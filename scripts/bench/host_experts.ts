/**
 * Measures a model with experts whose weights are on the device, half of them, and none of them:
 * `deno run -A scripts/bench/host_experts.ts DIR [--shares=0.5,0] [--runs=2] [--prompt=2048] [--array=MIB]`.
 *
 * Each part is a share of the experts on the device, all of them first. It has one sequence at 128 positions, eight sequences of an engine, and a
 * prompt. Beside it is the least time of a token. That is what its bytes in host memory take at the rate of a sum of a large array there.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { hostBytesOf, inHostMemory } from "../../src/array/devices/on_device.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { promptOf, timeTokens } from "../../src/cli/bench/tokens.ts";
import type { DecoderConfig } from "../../src/llm/config/decoder.ts";
import { withOptions } from "../support/options.ts";

const flag = (name: string): string | undefined => Deno.args.find((a) => a.startsWith(`--${name}=`))?.split("=")[1];
const [DIR] = Deno.args.filter((arg) => !arg.startsWith("--"));
if (DIR === undefined) throw new Error("Expected the folder of a model with experts");
const SHARES = [1, ...(flag("shares") ?? "0.5,0").split(",").map(Number)]; // the first one tells how large the model is
const RUNS = Number(flag("runs") ?? 2);
const PROMPT = Number(flag("prompt") ?? 2048);
const ARRAY = 2 ** 18 * Number(flag("array") ?? 1024);
const TOKENS = 32;
/** Bytes of what is no parameter, such as frequencies of positions; less than a layer. */
const SLACK = 2 ** 20;

/** Seconds that the fastest of some runs takes. */
async function fastest(run: () => Promise<unknown> | unknown, runs: number = RUNS): Promise<number> {
  const seconds: number[] = [];
  for (let i = 0; i <= runs; i++) {
    const begin = performance.now();
    await run();
    seconds.push((performance.now() - begin) / 1000);
  }
  return Math.min(...seconds.slice(1));
}

/** Bytes a second at which the device sums an array in its own memory or in the host's. */
async function rateOf(isHost: boolean): Promise<number> {
  const make = (): mx.Tensor => mx.ones([ARRAY]);
  using array = isHost ? inHostMemory(() => evaluated(make())) : evaluated(make());
  if (isHost && hostBytesOf([array]) === 0) throw new Error("the array is not in host memory");
  return array.nbytes / await fastest(() => mx.tidy(() => void mx.sum(array).item()), 5);
}

function evaluated(array: mx.Tensor): mx.Tensor {
  mx.eval(array);
  return array;
}

/** Milliseconds a token, after 128 tokens of prompt. */
async function alone(model: mx.lm.LanguageModel): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i <= RUNS; i++) {
    using cache = model.makeCache();
    const at = await timeTokens(model, cache, promptOf(model, 128), TOKENS);
    if (i > 0) times.push((at.at(-1)! - at[0]) / (at.length - 1));
  }
  return median(times)!;
}

/** Tokens a second of eight sequences together. */
async function together({ model, tokenizer }: mx.lm.Loaded): Promise<number> {
  await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 8, contextSize: 1024, kvBytes: 2 ** 31 });
  const rates: number[] = [];
  for (let run = 0; run <= RUNS; run++) {
    const ends = await Promise.all(Array.from({ length: 8 }, async (_, i) => {
      const prompt = promptOf(model, 128).map((id) => (id + 7 * i + 101 * run) % model.config.vocabSize);
      const times: number[] = [];
      for await (const _ of engine.add({ prompt, maxTokens: TOKENS })) times.push(performance.now());
      return times;
    }));
    const begin = Math.max(...ends.map((times) => times[0]));
    const end = Math.max(...ends.map((times) => times.at(-1)!));
    rates.push(1000 * ends.reduce((sum, times) => sum + times.length - 1, 0) / (end - begin));
  }
  return median(rates.slice(1))!;
}

/** Tokens a second of a prompt. */
async function reading(model: mx.lm.LanguageModel): Promise<number> {
  const seconds = await fastest(async () => {
    using cache = model.makeCache();
    await timeTokens(model, cache, promptOf(model, PROMPT), 1);
  });
  return PROMPT / seconds;
}

/** Bytes of the model's experts, of all its weights, and of the experts of a token. */
function sizesOf(
  model: mx.lm.LanguageModel,
): { readonly experts: number; readonly all: number; readonly token: number } {
  const { experts: config } = model.config as DecoderConfig;
  if (config === undefined) throw new Error(`${DIR} has no experts. Expected the folder of a model with experts`);
  const { count, chosen } = config;
  const of = (name: string): boolean => /(switch_mlp|experts|switch_glu)\./.test(name);
  let [experts, all] = [0, 0];
  for (const [name, { nbytes }] of mx.utils.treeFlatten(model.parameters()) as [string, mx.Tensor][]) {
    all += nbytes;
    if (of(name)) experts += nbytes;
  }
  return { experts, all, token: experts * chosen / count };
}

const rates = [await rateOf(false), await rateOf(true)];
console.log(
  `reading: ${(rates[0] / 1e9).toFixed(0)} GB/s of the device's memory, ${(rates[1] / 1e9).toFixed(1)} of the host's`,
);
let sizes: ReturnType<typeof sizesOf> | undefined;
for (const share of SHARES) {
  const weightBytes = sizes === undefined ? Infinity : Math.ceil(sizes.all - (1 - share) * sizes.experts) + SLACK;
  const begin = performance.now();
  const loaded = await mx.lm.load(DIR, { weightBytes });
  using model = loaded.model;
  const seconds = (performance.now() - begin) / 1000;
  sizes ??= sizesOf(model);
  const host = loaded.hostBytes;
  const floor = 1000 * sizes.token * (host / sizes.experts) / rates[1];
  const gigabytes = [host, sizes.all].map((bytes) => (bytes / 1e9).toFixed(2)).join(" of ");
  console.log(
    `${share} of the experts on the device: ${gigabytes} GB in host memory, loaded in ${seconds.toFixed(1)} s`,
  );
  console.log(`  the host's bytes of a token take ${floor.toFixed(2)} ms`);
  for (const launchMode of ["auto", "barriers"] as const) {
    using _options = withOptions({ launchMode });
    const ms = await alone(model);
    console.log(`  one at 128, ${launchMode}: ${ms.toFixed(2)} ms a token, ${(1000 / ms).toFixed(1)} tok/s`);
    model.traces[Symbol.dispose]();
  }
  console.log(`  eight at 128: ${(await together(loaded)).toFixed(1)} tok/s`);
  console.log(`  a prompt of ${PROMPT}: ${(await reading(model)).toFixed(0)} tok/s`);
  const { active, hostActive, available } = mx.deviceMemory();
  console.log(
    `  ${[active, hostActive, available].map((n) => (n / 1e9).toFixed(2)).join(", ")} GB active, of the host, free`,
  );
}
