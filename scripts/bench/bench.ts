/**
 * `deno task bench`: how fast each device runs a model.
 *
 *     deno task bench                                   a synthetic Qwen3-0.6B on WASM and every GPU
 *     deno task bench --device wasm --profile           with the time of every kernel
 *     deno task bench --model DIR --prompt 512 --json
 *
 * Prompt speed counts the time to the first token, decode speed the tokens after it; both are medians of several runs. A
 * synthetic model is made once and kept in .tools/models.
 *
 * @module
 */

import { type Flags, UsageError } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { median, modelFolder } from "./compare.ts";
import { promptOf, timeTokens } from "./tokens.ts";
import { SHAPES } from "../synthetic.ts";

const FLAGS = {
  "model": { value: "DIR", help: "model directory" },
  "shape": { value: "NAME", help: `synthetic model instead: ${Object.keys(SHAPES).join(", ")} (qwen3-0.6b)` },
  "device": { value: "NAMES", help: "devices, separated by commas (all but software drivers)" },
  "all": { help: "software drivers too" },
  "prompt": { value: "N", help: "tokens of the prompt (128)", range: [1, 1e6], whole: true },
  "tokens": { value: "N", help: "tokens to generate after the first (32)", range: [1, 1e6], whole: true },
  "runs": { value: "N", help: "runs to take the median of (3)", range: [1, 1000], whole: true },
  "profile": { help: "time of every kernel, in one more run" },
  "json": { help: "print one JSON object" },
} as const satisfies Flags;

const HEAD = "device      load s   prompt tok/s   decode tok/s   peak GB";

/** What one device gave. */
interface Figures {
  readonly device: string;
  readonly description: string;
  readonly load_s: number;
  readonly prompt_tps: number;
  readonly generation_tps: number;
  /** Highest use of device memory: weights, cache and intermediates. */
  readonly peak_memory_bytes: number;
  readonly profile?: readonly Phase[];
}

/** Where the time of a phase went. */
interface Phase {
  readonly phase: "prompt" | "decode";
  readonly tokens_in: number;
  readonly tokens_out: number;
  readonly profile: mx.Profile;
}

/** Tokens to prompt with and to generate. */
interface Work {
  readonly prompt: number;
  readonly tokens: number;
  readonly runs: number;
  readonly profile: boolean;
}

const PROGRAM = { name: "bench", about: "Measures a model on each device.", flags: FLAGS };

await runMain(PROGRAM, async (values) => {
  if (values.model !== undefined && values.shape !== undefined) {
    throw new UsageError("--model and --shape exclude each other");
  }
  const dir = values.model ?? await synthetic(values.shape ?? "qwen3-0.6b");
  const { prompt = 128, tokens = 32, runs = 3, profile = false } = values;
  const results: Figures[] = [];
  const devices = chooseDevices(values.device, values.all ?? false);
  if (!values.json) print(`${dir}: ${prompt} tokens of prompt, ${tokens} generated, median of ${runs}\n\n${HEAD}\n`);
  for (const device of devices) {
    const figures = await measure(dir, device, { prompt, tokens, runs, profile });
    results.push(figures);
    if (!values.json) print(describe(figures));
  }
  if (values.json) print(JSON.stringify({ model: dir, prompt, tokens, runs, devices: results }, null, 2) + "\n");
  return 0;
});

/** The folder of a synthetic model. */
async function synthetic(name: string): Promise<string> {
  if (!Object.hasOwn(SHAPES, name)) {
    throw new UsageError(`--shape is "${name}", expected one of ${Object.keys(SHAPES).join(", ")}`);
  }
  return await modelFolder(name);
}

/** Names of the devices to measure. Throws where one is not there. */
function chooseDevices(named: string | undefined, all: boolean): string[] {
  if (named !== undefined) return named.split(",").map((name) => mx.deviceInfo(name).name);
  return mx.devices().filter(({ usable, type }) => usable && (all || type !== "cpu")).map(({ name }) => name);
}

async function measure(dir: string, device: string, work: Work): Promise<Figures> {
  mx.setDefaultDevice(device);
  mx.deviceMemory(device); // opens it: not part of loading
  const started = performance.now();
  const { model } = await mx.lm.load(dir, { device });
  const load_s = (performance.now() - started) / 1000;
  const prompt = promptOf(model, work.prompt);
  await run(model, prompt.slice(0, 32), 4); // warm-up: pipelines, compiled code
  mx.resetPeakMemory();
  const runs = [];
  for (let i = 0; i < work.runs; i++) runs.push(await run(model, prompt, work.tokens));
  const figures: Figures = {
    device,
    description: mx.deviceInfo(device).description,
    load_s,
    prompt_tps: work.prompt / median(runs.map((r) => r.prompt_s))!,
    generation_tps: work.tokens / median(runs.map((r) => r.decode_s))!,
    peak_memory_bytes: mx.deviceMemory(device).peak,
    ...(work.profile ? { profile: await profile(model, prompt, work.tokens) } : {}),
  };
  model[Symbol.dispose]();
  return figures;
}

/** Seconds to the first token and for `tokens` more. */
async function run(
  model: mx.lm.LanguageModel,
  prompt: readonly number[],
  tokens: number,
): Promise<{ prompt_s: number; decode_s: number }> {
  using cache = model.makeCache();
  const started = performance.now();
  const [first, ...times] = await timeTokens(model, cache, prompt, tokens + 1);
  return { prompt_s: (first - started) / 1000, decode_s: (times[times.length - 1] - first) / 1000 };
}

/** Both phases with every kernel timed: a prompt with its first token, and the tokens behind it. */
async function profile(
  model: mx.lm.LanguageModel,
  prompt: readonly number[],
  tokens: number,
): Promise<Phase[]> {
  using cache = model.makeCache();
  const phase = async (name: Phase["phase"], ids: readonly number[], count: number): Promise<Phase> => {
    return {
      phase: name,
      tokens_in: ids.length,
      tokens_out: count,
      profile: await mx.profile(() => timeTokens(model, cache, ids, count)),
    };
  };
  return [await phase("prompt", prompt, 1), await phase("decode", prompt.slice(-1), tokens)];
}

function describe(figures: Figures): string {
  const { device, load_s, prompt_tps, generation_tps, peak_memory_bytes, description, profile = [] } = figures;
  const columns = [
    device.padEnd(10),
    load_s.toFixed(2).padStart(7),
    prompt_tps.toFixed(1).padStart(14),
    generation_tps.toFixed(1).padStart(14),
    (peak_memory_bytes / 1e9).toFixed(3).padStart(9),
  ];
  return `${columns.join(" ")}   ${description}\n${profile.map(describePhase).join("")}`;
}

function describePhase({ phase, tokens_in, tokens_out, profile }: Phase): string {
  return `\n${phase}: ${tokens_in} tokens in, ${tokens_out} out\n${mx.describeProfile(profile)}\n`;
}
