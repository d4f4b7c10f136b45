/**
 * How fast a device runs a model: tokens of a prompt per second, and tokens generated after it.
 *
 * A prompt's time is that to the first token; decoding is timed from there to the last token. Everything runs once before it counts.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { UsageError } from "../flags.ts";
import { describeDevice } from "../loading.ts";
import type { ModelPlace } from "../model_flags.ts";
import { status } from "../output.ts";
import { deviation, median } from "./figures.ts";
import { promptOf, timeTokens } from "./tokens.ts";

/** Options of a measurement. */
export interface Work {
  /** Tokens of prompts. */
  readonly prompts: readonly number[];
  /** Tokens to generate after the first prompt. */
  readonly tokens: readonly number[];
  /** Runs of each. */
  readonly runs: number;
  /** Dtype of activations and the cache; default that of `mx.lm.load`. */
  readonly dtype: "float32" | "float16" | "bfloat16" | undefined;
  /** Whether one more run tells the time of every kernel. */
  readonly profile: boolean;
}

/** The result of one test. */
export interface Test {
  readonly test: "prompt" | "decode";
  /** Tokens of the prompt, or that were generated. */
  readonly tokens: number;
  /** Tokens per second: the median of the runs. */
  readonly tps: number;
  /** Their standard deviation; null of one run. */
  readonly spread: number | null;
  /** Those of every run. */
  readonly samples: readonly number[];
}

/** The results of one device. */
export interface Figures {
  readonly device: string;
  readonly description: string;
  /** Dtype of activations and the cache. */
  readonly dtype: string;
  readonly load_s: number;
  /** Highest use of memory: weights, cache and intermediates. */
  readonly peak_memory_bytes: number;
  /** Bytes of weights that are in host memory. */
  readonly host_weight_bytes: number;
  readonly tests: readonly Test[];
  readonly profile?: readonly Phase[];
}

/** Where the time of a phase went. */
export interface Phase {
  readonly phase: "prompt" | "decode";
  readonly tokens_in: number;
  readonly tokens_out: number;
  readonly profile: mx.Profile;
}

/** Measures a model on a device. Throws a {@link UsageError} if the model's context has no room for it. */
export async function measure(
  path: string | URL,
  place: ModelPlace,
  work: Work,
): Promise<Figures> {
  const names = place.devices ?? [place.device!];
  const device = names.at(-1)!;
  mx.setDefaultDevice(device);
  for (const name of names) mx.deviceMemory(name); // opens it: not part of loading
  const started = performance.now();
  const loaded = await mx.lm.load(path, { ...place, ...(work.dtype && { dtype: mx[work.dtype] }) });
  using model = loaded.model;
  const load_s = (performance.now() - started) / 1000;
  checkContext(model.config.maxPositionEmbeddings, work);
  mx.resetPeakMemory();
  const [first] = work.prompts;
  const prompts = new Map<number, number[]>();
  const decodes = new Map<number, number[]>();
  // Pairs that are run: the first prompt with every length after it, then the other prompts.
  const pairs = [
    ...work.tokens.map((tokens) => [first, tokens]),
    ...work.prompts.slice(1).map((prompt) => [prompt, 0]),
  ];
  for (const [prompt, tokens] of pairs) {
    const ids = promptOf(model, prompt);
    status(`Warming up ${device}: ${prompt} tokens of prompt`);
    await run(model, ids, Math.min(tokens, 4)); // pipelines, compiled code
    for (let i = 0; i < work.runs; i++) {
      status(`Measuring ${device}: ${prompt} tokens of prompt, ${tokens} after it, run ${i + 1} of ${work.runs}`);
      const { prompt_s, decode_s } = await run(model, ids, tokens);
      if (tokens > 0) listOf(decodes, tokens).push(tokens / decode_s);
      if (tokens === 0 || tokens === work.tokens[0]) listOf(prompts, prompt).push(prompt / prompt_s);
    }
  }
  status("");
  const tests = [...prompts].map((entry) => testOf("prompt", ...entry));
  return {
    device: describeDevice(loaded),
    description: names.map((name) => mx.deviceInfo(name).description).join(", "),
    dtype: loaded.dtype.name,
    load_s,
    peak_memory_bytes: names.reduce((sum, name) => sum + mx.deviceMemory(name).peak, 0),
    host_weight_bytes: loaded.hostBytes,
    tests: [...tests, ...[...decodes].map((entry) => testOf("decode", ...entry))],
    ...(work.profile ? { profile: await profile(model, promptOf(model, first), work.tokens[0]) } : {}),
  };
}

function checkContext(context: number, { prompts, tokens }: Work): void {
  const most = Math.max(prompts[0] + Math.max(...tokens), ...prompts);
  if (most < context) return;
  throw new UsageError(`--prompt and --tokens ask for ${most + 1} tokens, more than the model's context of ${context}`);
}

function listOf(lists: Map<number, number[]>, key: number): number[] {
  const list = lists.get(key) ?? [];
  lists.set(key, list);
  return list;
}

function testOf(test: Test["test"], tokens: number, samples: readonly number[]): Test {
  return { test, tokens, tps: median(samples)!, spread: deviation(samples), samples };
}

/** Seconds to the first token and for `tokens` more. */
async function run(
  model: mx.lm.LanguageModel,
  prompt: readonly number[],
  tokens: number,
): Promise<{ prompt_s: number; decode_s: number }> {
  using cache = model.makeCache();
  const started = performance.now();
  const times = await timeTokens(model, cache, prompt, tokens + 1);
  return { prompt_s: (times[0] - started) / 1000, decode_s: (times[times.length - 1] - times[0]) / 1000 };
}

/** Both phases with every kernel timed: a prompt with its first token, and the tokens after it. */
async function profile(model: mx.lm.LanguageModel, prompt: readonly number[], tokens: number): Promise<Phase[]> {
  using cache = model.makeCache();
  const phase = async (name: Phase["phase"], ids: readonly number[], count: number): Promise<Phase> => ({
    phase: name,
    tokens_in: ids.length,
    tokens_out: count,
    profile: await mx.profile(() => timeTokens(model, cache, ids, count)),
  });
  return [await phase("prompt", prompt, 1), await phase("decode", prompt.slice(-1), tokens)];
}
