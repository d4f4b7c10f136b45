/**
 * One process of a benchmark: `worker.ts DIR SETTINGS` times vkmx on a model directory. It prints each `Line` of compare.ts as JSON as soon
 * as it is known. llama_cpp.mjs measures native llama.cpp.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { matrixMap } from "../../src/schedule/ops/matmul/coopmat.ts";
import { FORCED, inSteps, kindOf, type StepVariant, variantOf, VARIANTS } from "./step_variants.ts";
import {
  type Case,
  type CaseResult,
  type HostTimes,
  type Line,
  PROMPT,
  type SideSettings,
  type TimedRun,
} from "./compare.ts";
import { matrixRate } from "./matrix_rate.ts";
import { peakMemory } from "./times.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { HeadDrafter } from "../../src/llm/decode/head_drafter.ts";
import { promptOf, stepsOf, timeTokens } from "../../src/cli/bench/tokens.ts";
import { roomFor } from "../../src/llm/generation/generate.ts";
import { withOptions } from "../support/options.ts";

/** Tokens of the prompt that is part of loading. */
const FIRST_PROMPT = 16;
/** Tokens of a run whose kernels are timed or counted. */
const TIMED = 32;
const POSITION = 128;
const PROMPTS = [64, 512, 2048];
/** Tokens after which it is known in which variant steps run. */
const FEW = 4;
/** Tokens of an answer after which the chunk before it is tested in one dispatch. */
const TESTED = 40;
/** Milliseconds that a GPU is kept busy before a case counts: while pipelines were compiled and tested it stood still, and slowed its clock. */
const WARM_MS = 250;
/** Sequences together whose code is asked for. */
const TOGETHER = 8;

const [dir, text] = Deno.args;
const settings: SideSettings = JSON.parse(text);
const { device = mx.defaultDevice(), dtype, cases } = settings;
const started = performance.now();
mx.setDefaultDevice(device);
const { model, tokenizer } = await mx.lm.load(dir, {
  device,
  ...(dtype && { dtype: mx[dtype] }),
  draftHead: cases.some(({ head }) => head),
});
const loaded = performance.now();

function say(line: Line): void {
  console.log(JSON.stringify(line));
}

/** A prompt of the model. */
function ids(count: number): number[] {
  return promptOf(model, count);
}

/** Generates after a prompt, and gives the time of each token. */
function generate(
  cache: mx.lm.KvCache,
  prompt: readonly number[],
  tokens: number,
  sampled = false,
): Promise<readonly number[]> {
  const sampler = sampled ? mx.lm.makeSampler({ temp: 0.6, topK: 20, topP: 0.95, seed: 1 }) : undefined;
  return timeTokens(model, cache, prompt, tokens, sampler);
}

/** A cache that holds a prompt, which is read once for all cases in a row after so many positions. */
let filled: { readonly cache: mx.lm.KvCache; readonly positions: number } | undefined;

function empty(): void {
  filled?.cache.dispose();
  filled = undefined;
}

/** Such a cache, with the room for a prompt and `tokens` after these positions. A cache that is outgrown gets twice as much. */
async function filledWith(positions: number, prompt: readonly number[], tokens: number): Promise<mx.lm.KvCache> {
  if (filled?.positions !== positions) {
    empty();
    const cache = model.makeCache();
    cache.reserve(0, positions + roomFor(prompt, tokens));
    await generate(cache, ids(positions), 1);
    filled = { cache, positions };
  }
  const { cache } = filled!;
  cache.trim(cache.offset - positions);
  return cache;
}

/** Answers that were recorded, by prompt and length. */
const recorded = new Map<string, readonly number[]>();
/** Multiples of it are spread evenly over the numbers from 0 to 1: the golden ratio. */
const GOLDEN = 0.618034;

/** The greedy answer of a case. */
async function answerOf({ prompt }: Case, tokens: number): Promise<readonly number[]> {
  const key = `${prompt} ${tokens}`;
  const known = recorded.get(key);
  if (known) return known;
  const answer = await Array.fromAsync(stepsOf(model, await filledWith(prompt - 1, ids(1), tokens), ids(1), tokens));
  recorded.set(key, answer);
  return answer;
}

/** Milliseconds of a token where the answer is drafted with a share of right tokens. */
async function timeDrafted(c: Case, tokens: number, share: number): Promise<number> {
  const answer = await answerOf(c, tokens + 1);
  let at = -1;
  const replay = {
    extend: (more: readonly number[]) => void (at = at < 0 ? 0 : at + more.length),
    draft: (count: number) => answer.slice(at, at + count).map((id, i) => (at + i) * GOLDEN % 1 < share ? id : id ^ 1),
  };
  using _head = c.head ? headReplaying(replay) : undefined;
  const drafter = c.head ? "mtp" as const : c.copied ? copying(answer) : replay;
  const cache = await filledWith(c.prompt - 1, ids(1), tokens + 1);
  const times: number[] = [];
  for await (const token of stepsOf(model, cache, ids(1), tokens + 1, { speculation: { drafter } })) {
    if (token !== answer[times.length]) throw new Error(`with drafts token ${times.length} of the answer is another`);
    times.push(performance.now());
  }
  return (times.at(-1)! - times[0]) / tokens;
}

/** Has the head of the model draft in sessions until it is disposed, and `replay` say what the drafted tokens are. */
function headReplaying({ extend, draft }: Pick<mx.lm.Drafter, "extend" | "draft">): Disposable {
  const { draft: own, extend: none } = HeadDrafter.prototype;
  extend([]); // a session gives a head no prompt
  HeadDrafter.prototype.extend = extend;
  HeadDrafter.prototype.draft = async function (count): Promise<readonly number[]> {
    const { length } = await own.call(this, count);
    return (await draft(count)).slice(0, length);
  };
  return { [Symbol.dispose]: () => Object.assign(HeadDrafter.prototype, { draft: own, extend: none }) };
}

/** N-grams of a sequence that begins with its answer. */
function copying(answer: readonly number[]): mx.lm.Drafter {
  const ngrams = new mx.lm.NgramDrafter();
  ngrams.extend(answer);
  return ngrams;
}

/** Milliseconds of a prompt or of a token. */
async function time(c: Case, tokens: number = c.tokens ?? 1): Promise<number> {
  const { kind, prompt, window = tokens, sampled, rows = 1, behind = 0 } = c;
  if (rows > 1) return await timeRows(prompt, tokens, rows);
  if (c.drafted !== undefined || c.copied) return await timeDrafted(c, tokens, c.drafted ?? 1);
  if (kind === "decode") {
    const cache = await filledWith(prompt - 1, ids(1), tokens + 1);
    const times = await generate(cache, ids(1), tokens + 1, sampled);
    return Math.min(...times.slice(window).map((t, i) => (t - times[i]) / window));
  }
  using fresh = behind === 0 ? model.makeCache() : undefined;
  const read = ids(prompt);
  const cache = fresh ?? await filledWith(behind, read, 1);
  const start = performance.now();
  const times = await generate(cache, read, 1);
  return times[0] - start;
}

/** Milliseconds of a token of any of several sequences, from when each has its first. */
async function timeRows(prompt: number, tokens: number, rows: number): Promise<number> {
  const prompts = Array.from(
    { length: rows },
    (_, row) => ids(prompt).map((id) => (id + row) % model.config.vocabSize),
  );
  const times: number[] = [];
  let started = 0;
  for await (
    const { generationTokens } of mx.lm.streamBatchGenerate(model, tokenizer, prompts, { maxTokens: tokens + 1 })
  ) {
    times.push(performance.now());
    if (generationTokens === 1) started = times.length;
  }
  return (times[times.length - 1] - times[started - 1]) / (times.length - started);
}

/** The variant of a case's steps; null if they are not fused. */
async function variantOfCase(c: Case, tokens?: number): Promise<StepVariant | null> {
  const { rows = 1, tokens: all = 1 } = c;
  const kernels = async (count: number): Promise<readonly mx.KernelTime[]> =>
    (await mx.profile(() => time(c, count), { timed: false })).kernels;
  const many = await kernels(tokens ?? all);
  return variantOf(rows > 1 ? inSteps(many, await kernels(1)) : many, rows) ?? null;
}

/** The variant that steps of one sequence take. */
let alone: Promise<StepVariant | null> | undefined;

function variantAlone(): Promise<StepVariant | null> {
  return alone ??= variantOfCase({ name: "", kind: "decode", prompt: POSITION, warmUps: 0, repeats: 0 }, FEW);
}

/**
 * Whether a device serves a variant. Two kinds of kernels are there for tests and are not measured. One kind is batched kernels without
 * matrix units. In the other workgroups wait for each other, on devices that may not run all of them at once.
 */
function serves(variant: StepVariant): boolean {
  const backend = getBackend(device);
  if (variant.startsWith("batched") && !matrixMap(backend).pairs) return false;
  if (variant === "products" && !matrixMap(backend).weights) return false;
  return !variant.endsWith("persistent") || backend.limits.concurrent;
}

/** The times of a case and the variant of its steps, or why there are none. */
async function measureCase(c: Case): Promise<CaseResult> {
  const { name, variant, rows = 1 } = c;
  const none = (why: string, found?: StepVariant | null): CaseResult => ({
    case: name,
    times: [],
    why,
    variant: found,
  });
  const forced = variant === "any" ? undefined : variant;
  if (forced && c.sameKind) {
    const taken = await variantAlone();
    if (!taken || kindOf(taken) !== kindOf(forced)) return none("left out");
  }
  if (forced && !serves(forced)) return none("not supported");
  if (forced) empty(); // its layout may be another one
  using _options = withOptions(forced ? FORCED[forced] : {});
  // Op by op many sequences take long, which is found out with few tokens.
  if (variant && rows > 1 && await variantOfCase(c, FEW) === null && (forced || await variantAlone())) {
    return none("not supported", null);
  }
  if (c.behind) await generate(await filledWith(c.behind, ids(c.prompt), TESTED), ids(c.prompt), TESTED);
  for (let i = 0; i < c.warmUps; i++) await time(c);
  await model.traces.idle(); // a step that is still being tested would change in the middle
  const warm = getBackend(device).limits.concurrent ? performance.now() + WARM_MS : 0;
  const found = variant ? await variantOfCase(c) : undefined;
  while (performance.now() < warm) await time(c);
  if (forced && found !== forced) return none("not supported", found);
  const times: number[] = [];
  for (let i = 0; i < c.repeats; i++) times.push(await time(c));
  if (forced) empty();
  return { case: name, times, variant: found };
}

async function measure(): Promise<void> {
  {
    using cache = model.makeCache();
    await generate(cache, ids(FIRST_PROMPT), 1);
    const times = { load: [performance.now() - started], loaded: [loaded - started] };
    const { description } = mx.devices().find(({ name }) => name === device)!;
    say({ load: { device: `${device}: ${description}`, times, memory: peakMemory() } });
  }
  if (settings.rates) {
    const matrix = await matrixRate(getBackend(device)).catch(() => undefined) ?? null;
    say({ rates: { copy: await copyRate(), matrix } });
  }
  for (const c of cases) {
    const failed = (error: Error): CaseResult => ({ case: c.name, times: [], why: error.message.split("\n")[0] });
    say({ result: await measureCase(c).catch(failed) });
  }
  if (settings.host) say({ host: await hostTimes() });
  if (settings.profiles) say({ profiles: await timedRuns() });
  for (const variant of settings.code ?? []) await sayCode(variant);
  empty();
}

/** The code of a variant's kernels, where the device serves it. */
async function sayCode(variant: StepVariant): Promise<void> {
  const rows = VARIANTS.several.includes(variant) ? TOGETHER : 1;
  const c: Case = { name: "", kind: "decode", prompt: POSITION, rows, warmUps: 0, repeats: 0 };
  const taken = settings.everyKind || rows > 1 ? variant : await variantAlone();
  if (!serves(variant) || taken === null || kindOf(taken) !== kindOf(variant)) return;
  empty();
  using _options = withOptions(FORCED[variant]);
  const { kernels, pipelines } = await mx.profile(() => time(c, FEW), { timed: false, code: true });
  const steps = rows > 1 ? kernels.filter(({ region }) => region !== "prompt layer") : kernels; // of these variants none has such
  if (variantOf(steps, rows) === variant) say({ code: { variant, pipelines } });
  empty();
}

// ---- where the time goes ----------------------------------------------------------------------------------------------

async function hostTimes(): Promise<HostTimes> {
  await count(2 * TIMED);
  await model.traces.idle(); // steps over a cache of this size are tested before they are counted
  const [few, many] = [await count(TIMED), await count(2 * TIMED)];
  const perToken = (of: (p: mx.Profile) => number): number => (of(many) - of(few)) / TIMED;
  return {
    hostUs: await hostTime(),
    promptUs: await promptTime(),
    dispatches: perToken((p) => p.kernels.reduce((sum, { calls }) => sum + calls, 0)),
    barriers: perToken((p) => p.barriers),
    submissions: perToken((p) => p.submissions),
  };
}

async function timedRuns(): Promise<TimedRun[]> {
  const runs = [{ name: `token @${POSITION}`, tokens: TIMED, profile: await profileDecode(TIMED, true) }];
  for (const prompt of PROMPTS) {
    using cache = model.makeCache();
    const profile = await mx.profile(() => generate(cache, ids(prompt), 1));
    runs.push({ name: `prompt of ${prompt} and first token`, tokens: prompt, profile });
  }
  return runs;
}

function count(tokens: number): Promise<mx.Profile> {
  return profileDecode(tokens, false);
}

/** Profile of tokens after a prompt, the prompt left out. */
async function profileDecode(tokens: number, timed: boolean): Promise<mx.Profile> {
  using cache = model.makeCache();
  await generate(cache, ids(POSITION), 1);
  return await mx.profile(() => generate(cache, ids(1), tokens), { timed });
}

/**
 * Microseconds of a token, as text, in which the host does something else than wait for the device: the middle of some runs.
 * Growing the cache is left out.
 */
async function hostTime(): Promise<number> {
  const backend = getBackend(device);
  const wait = backend.waitAsync;
  let waited = 0;
  backend.waitAsync = async (ticket) => {
    const start = performance.now();
    await wait.call(backend, ticket);
    waited += performance.now() - start;
  };
  const runs: number[] = [];
  for (let i = 0; i < 5; i++) {
    // Of two lengths, so that what begins a run does not count.
    const costs = [];
    for (const maxTokens of [TIMED, 3 * TIMED]) {
      using cache = model.makeCache();
      cache.reserve(0, POSITION + 4 * TIMED);
      waited = 0;
      const start = performance.now();
      let count = 0;
      for await (const _ of mx.lm.streamGenerate(model, tokenizer, ids(POSITION), { maxTokens, cache, temp: 0 })) {
        count++;
      }
      if (count < maxTokens) throw new Error(`the model ended after ${count} of ${maxTokens} tokens`);
      costs.push(performance.now() - start - waited);
    }
    runs.push(1000 * (costs[1] - costs[0]) / (2 * TIMED));
  }
  backend.waitAsync = wait;
  return runs.toSorted((a, b) => a - b)[runs.length >> 1];
}

/** Microseconds of host work before a prompt's submission and after its end: the middle of some runs. */
async function promptTime(): Promise<HostTimes["promptUs"]> {
  const backend = getBackend(device);
  const { run, waitAsync } = backend;
  let submitted = 0;
  let ended = 0;
  backend.run = (...args) => {
    const ticket = run.apply(backend, args);
    submitted = performance.now();
    return ticket;
  };
  backend.waitAsync = async (...args) => {
    await waitAsync.apply(backend, args);
    ended = performance.now();
  };
  const before: number[] = [];
  const after: number[] = [];
  for (let i = 0; i < 10; i++) {
    using cache = model.makeCache();
    const start = performance.now();
    const [first] = await generate(cache, ids(PROMPT), 1);
    before.push(1000 * (submitted - start));
    after.push(1000 * (first - ended));
  }
  Object.assign(backend, { run, waitAsync });
  return { before: median(before)!, after: median(after)! };
}

/** GB/s that copying an array moves, read and written: of 512 MB, or what a software device does in no time. */
async function copyRate(): Promise<number> {
  using x = mx.zeros([getBackend(device).limits.concurrent ? 2 ** 27 : 2 ** 22], mx.float32);
  mx.eval(x);
  let best = 0;
  for (let i = 0; i < 5; i++) {
    const { kernels: [{ bytes, nanoseconds }] } = await mx.profile(() =>
      mx.tidy(() => mx.eval(mx.concatenate([x, x])))
    );
    best = Math.max(best, bytes / nanoseconds);
  }
  return best;
}

await measure();
Deno.exit(0);
