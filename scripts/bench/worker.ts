/**
 * One process of a benchmark: `worker.ts DIR SETTINGS` times vkmx on a model directory and prints an `Answer` of
 * compare.ts as one line of JSON. bench_peer.mjs does the same for native llama.cpp.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { matrixMap } from "../../src/schedule/ops/coopmat.ts";
import { FORCED, type Form, formOf } from "./sequences.ts";
import { type Answer, type Case, type Details, PROMPT, type SideSettings } from "./compare.ts";
import { peakMemory } from "./times.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { promptOf, timeTokens } from "../../src/cli/bench/tokens.ts";
import { withOptions } from "../../tests/support/options.ts";

/** Tokens of the prompt that is part of loading. */
const FIRST_PROMPT = 16;
/** Tokens of a run whose kernels are timed or counted. */
const TIMED = 32;
const POSITION = 128;
const PROMPTS = [64, 512, 2048];

const [dir, text] = Deno.args;
const settings: SideSettings = JSON.parse(text);
const { device = mx.defaultDevice(), dtype = "float32", cases, details } = settings;
const started = performance.now();
mx.setDefaultDevice(device);
const { model, tokenizer } = await mx.lm.load(dir, { device, dtype: mx[dtype] });
const loaded = performance.now();

/** A prompt of the model. */
function ids(count: number): number[] {
  return promptOf(model, count);
}

/** Generates behind a prompt, and gives the time of each token. */
function generate(
  cache: mx.lm.KvCache,
  prompt: readonly number[],
  tokens: number,
  sampled = false,
): Promise<readonly number[]> {
  const sampler = sampled ? mx.lm.makeSampler({ temp: 0.6, topK: 20, topP: 0.95, seed: 1 }) : undefined;
  return timeTokens(model, cache, prompt, tokens, sampler);
}

/** Milliseconds of a prompt or of a token. */
async function time(c: Case): Promise<number> {
  const { kind, prompt, tokens = 1, window = tokens, sampled, rows = 1 } = c;
  if (rows > 1) return await timeRows(prompt, tokens, rows);
  using cache = model.makeCache();
  const read = ids(prompt);
  const start = performance.now();
  const times = await generate(cache, read, kind === "prefill" ? 1 : tokens + 1, sampled);
  if (kind === "prefill") return times[0] - start;
  return Math.min(...times.slice(window).map((t, i) => (t - times[i]) / window));
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

/**
 * The times of a case, none where its steps do not have the form that it asks for; the one that they have is noted in `forms`.
 * The kernels of several sequences that need no matrix units are there for tests, and are not measured.
 */
async function measureCase(c: Case, forms: Record<string, Form | null>): Promise<number[]> {
  const { name, form } = c;
  if (form && form !== "any" && form !== "grid" && !matrixMap(getBackend(device)).pairs) return [];
  using _options = withOptions(form && form !== "any" ? FORCED[form] : {});
  for (let i = 0; i < c.warmUps; i++) await time(c);
  await model.traces.idle(); // a step that is still being tested would change in the middle
  if (form) {
    const { kernels } = await mx.profile(() => time(c), { timed: false });
    forms[name] = formOf(kernels) ?? null;
    if (form !== "any" && forms[name] !== form) return [];
  }
  const times: number[] = [];
  for (let i = 0; i < c.repeats; i++) times.push(await time(c));
  return times;
}

async function measure(): Promise<Answer> {
  const times: Record<string, number[]> = {};
  const forms: Record<string, Form | null> = {};
  {
    using cache = model.makeCache();
    await generate(cache, ids(FIRST_PROMPT), 1);
    times.load = [performance.now() - started];
    times.loaded = [loaded - started];
  }
  const memory = peakMemory();
  for (const c of cases) times[c.name] = await measureCase(c, forms);
  const { description } = mx.devices().find(({ name }) => name === device)!;
  return { device: `${device}: ${description}`, times, forms, memory, ...(details ? { details: await detail() } : {}) };
}

// ---- where the time goes ----------------------------------------------------------------------------------------------

async function detail(): Promise<Details> {
  await count(2 * TIMED);
  await model.traces.idle(); // steps over a cache of this size are tested before they are counted
  const [few, many] = [await count(TIMED), await count(2 * TIMED)];
  const perToken = (of: (p: mx.Profile) => number): number => (of(many) - of(few)) / TIMED;
  const profiles = [];
  for (const prompt of PROMPTS) {
    using cache = model.makeCache();
    const profile = await mx.profile(() => generate(cache, ids(prompt), 1));
    profiles.push({ name: `prompt of ${prompt} and first token`, tokens: prompt, profile });
  }
  profiles.unshift({ name: `token @${POSITION}`, tokens: TIMED, profile: await profileDecode(TIMED, true) });
  return {
    hostUs: await hostTime(),
    promptUs: await promptTime(),
    dispatches: perToken((p) => p.kernels.reduce((sum, { calls }) => sum + calls, 0)),
    barriers: perToken((p) => p.barriers),
    submissions: perToken((p) => p.submissions),
    profiles,
    copyRate: await copyRate(),
  };
}

function count(tokens: number): Promise<mx.Profile> {
  return profileDecode(tokens, false);
}

/** Profile of tokens behind a prompt, the prompt left out. */
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

/** Microseconds of host work in front of a prompt's submission and behind its end: the middle of some runs. */
async function promptTime(): Promise<Details["promptUs"]> {
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
  const behind: number[] = [];
  for (let i = 0; i < 10; i++) {
    using cache = model.makeCache();
    const start = performance.now();
    const [first] = await generate(cache, ids(PROMPT), 1);
    before.push(1000 * (submitted - start));
    behind.push(1000 * (first - ended));
  }
  Object.assign(backend, { run, waitAsync });
  return { before: median(before)!, behind: median(behind)! };
}

/** GB/s that copying an array of 512 MB moves, read and written. */
async function copyRate(): Promise<number> {
  using x = mx.zeros([2 ** 27], mx.float32);
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

console.log(JSON.stringify(await measure()));
Deno.exit(0);
