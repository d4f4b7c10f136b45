/**
 * `deno task bench:serve`: many requests on one model, through the engine, beside the same work in other ways.
 *
 *     deno task bench:serve                                        Qwen3-0.6B shape, 4 bits, on the default device
 *     deno task bench:serve --shape qwen3-8b --sequences 1,64,256  so many requests together
 *     deno task bench:serve --rows load --requests 256             requests of random lengths at once
 *
 * Rows: "decode" has prompts of equal length that start together, and for one `streamGenerate` beside it. "prefix" reads a
 * prompt again whose beginning is kept. "load" has requests of 100 to 1,024 tokens in and out, all at once. "ttft" has the same ones arrive at
 * half of the rate that "load" sustains, as a Poisson process. It tells the times to the first token. "long" has 64 requests of 8,192 tokens in
 * and 1,024 out. "stream" has one answer beside seven others, and "http" one through `vkmx serve`. "health" asks a server for its health while it reads a
 * prompt of 4,050 tokens. "speculation" has drafts of which some share is right beside none, and "mtp" those of the model's head: for a folder that
 * `deno task synth --draft-head` writes. "replicas" has the requests of "load" sent to one server, to one replica and to several. "front"
 * has what passing a request and a stream on costs, without a model.
 * Every figure is the median of several runs after warming up, with the host in it.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { checkOneOf, type Flags, UsageError, type Values } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import { median, readCounts } from "../../src/cli/bench/figures.ts";
import { quoted } from "../../src/graph/error.ts";
import { promptOf } from "../../src/cli/bench/tokens.ts";
import * as mx from "../../mod.ts";
import { draws, percentile, poissonArrivals } from "./arrivals.ts";
import { modelFolder } from "./compare.ts";
import { measureFront } from "./serve/front.ts";
import { measureHealth } from "./serve/health.ts";
import { startServer } from "./serve/process.ts";
import { measureReplicas } from "./serve/replicas.ts";
import { measureDrafts } from "./serve/speculation.ts";

const FLAGS = {
  "device": { value: "NAME", help: "device to measure (the default device)" },
  "model": { value: "DIR", help: "folder of a model in place of a shape" },
  "shape": { value: "NAME", help: "shape of the model, or tiny for the embedded one (qwen3-0.6b)" },
  "dtype": { value: "NAME", help: "activations and cache (that of mx.lm.load)" },
  "rows": {
    value: "LIST",
    help: "decode, prefix, load, ttft, long, stream, http, health, speculation, mtp, replicas, front (all but mtp)",
  },
  "sequences": { value: "LIST", help: "requests together (1,8,64)" },
  "positions": { value: "N", help: "tokens of each prompt (128)", range: [1, 100000], whole: true },
  "tokens": { value: "N", help: "tokens of each answer (128)", range: [2, 4096], whole: true },
  "replicas": { value: "auto|N", help: "replicas of that row: one on each GPU, or N (2 on the CPU)" },
  "requests": { value: "N", help: "requests of load, ttft and replicas (256)", range: [1, 100000], whole: true },
  "lengths": { value: "LIST", help: "least and most tokens of their prompts and of their answers (100,1024)" },
  "long": { value: "LIST", help: "requests of long, tokens of each prompt and of each answer (64,8192,1024)" },
  "repeats": { value: "N", help: "runs of a figure (3)", range: [1, 100], whole: true },
  "kv-bytes": { value: "N", help: "bytes of keys and values (the engine's default)", whole: true, range: [1, 2 ** 50] },
  "kv-bits": { value: "N", help: "8: keys and values of 8 bits (as the model computes)" },
} as const satisfies Flags;
const PROGRAM = { name: "bench:serve", about: "Measures many requests on one model.", flags: FLAGS };

const DTYPES = ["float16", "bfloat16", "float32"] as const;
type Loaded = Awaited<ReturnType<typeof mx.lm.load>>;
type Options = Values<typeof FLAGS>;

/** Tokens of an answer, and when they came, in milliseconds. */
interface Answered {
  readonly tokens: number;
  readonly first: number;
  readonly last: number;
}

/** Takes an answer to its end. */
async function take(stream: AsyncIterable<unknown>): Promise<Answered> {
  let [tokens, first] = [0, 0];
  for await (const _ of stream) if (tokens++ === 0) first = performance.now();
  return { tokens, first, last: performance.now() };
}

/** Tokens a second of all answers together, from the last first token on. */
function rateOf(answers: readonly Answered[]): number {
  const begin = Math.max(...answers.map(({ first }) => first));
  const end = Math.max(...answers.map(({ last }) => last));
  return answers.reduce((sum, { tokens }) => sum + tokens - 1, 0) * 1000 / (end - begin);
}

/** The median of what `run` gives after a run that warms up. */
async function measure(repeats: number, run: () => Promise<number>): Promise<number> {
  await run();
  const figures: number[] = [];
  for (let i = 0; i < repeats; i++) figures.push(await run());
  return median(figures)!;
}

/** A prompt that no other one begins like. */
function ownPrompt(model: mx.lm.LanguageModel, count: number, seed: number): number[] {
  const ids = [...promptOf(model, count)];
  ids[0] = seed % model.config.vocabSize;
  return ids.map((id, i) => (id + 7 * seed * (i + 1)) % Math.min(model.config.vocabSize, 50000));
}

let seeds = 1;

async function decode({ model, tokenizer }: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const { positions = 128, tokens = 128, repeats = 3, sequences = "1,8,64" } = options;
  for (const count of readCounts("sequences", sequences, 1)) {
    const prompts = (): number[][] => Array.from({ length: count }, () => ownPrompt(model, positions, seeds++));
    const ours = await measure(
      repeats,
      async () => rateOf(await Promise.all(prompts().map((prompt) => take(engine.add({ prompt, maxTokens: tokens }))))),
    );
    print(`decode ${count} at ${positions}: ${ours.toFixed(0)} tok/s${count > 1 ? "\n" : ""}`);
    if (count > 1) continue;
    const alone = await measure(
      repeats,
      async () => rateOf([await take(mx.lm.streamGenerate(model, tokenizer, prompts()[0], { maxTokens: tokens }))]),
    );
    print(`, streamGenerate ${alone.toFixed(0)}, ratio ${(ours / alone).toFixed(2)}\n`);
  }
}

async function prefix({ model }: Loaded, engine: mx.lm.Engine, { repeats = 3 }: Options): Promise<void> {
  const length = Math.min(4096, engine.contextSize - 64);
  const first = async (prompt: readonly number[]): Promise<number> => {
    const begin = performance.now();
    return (await take(engine.add({ prompt, maxTokens: 1 }))).first - begin;
  };
  const fresh = await measure(repeats, () => first(ownPrompt(model, length, seeds++)));
  const known = ownPrompt(model, length, seeds++);
  await first(known);
  const again = await measure(repeats, () => first(known));
  print(`prefix of ${length}: ${fresh.toFixed(1)} ms to the first token, again ${again.toFixed(1)} ms\n`);
}

/** So many numbers of a flag. */
function readList(flag: string, text: string, count: number): readonly number[] {
  const numbers = readCounts(flag, text, 1);
  if (numbers.length === count) return numbers;
  throw new UsageError(`--${flag} is "${text}", expected ${count} numbers`);
}

const draw = draws(1);

/** Requests of the load. */
function loadRequests(
  model: mx.lm.LanguageModel,
  { requests = 256, lengths = "100,1024" }: Options,
): mx.lm.EngineRequest[] {
  const [least, most] = readList("lengths", lengths, 2);
  const length = (): number => least + Math.floor(draw() * (most - least + 1));
  return Array.from({ length: requests }, () => ({ prompt: ownPrompt(model, length(), seeds++), maxTokens: length() }));
}

/** Tokens and requests a second that are sustained, measured at the first call. */
let sustained: Promise<{ readonly tokens: number; readonly requests: number }> | undefined;

async function sustain(
  { model }: Loaded,
  engine: mx.lm.Engine,
  options: Options,
): Promise<Awaited<typeof sustained & object>> {
  const rates: number[] = [];
  const tokens = await measure(Math.min(options.repeats ?? 3, 2), async () => {
    const asked = loadRequests(model, options);
    const begin = performance.now();
    const answers = await Promise.all(asked.map((request) => take(engine.add(request))));
    const seconds = (performance.now() - begin) / 1000;
    rates.push(asked.length / seconds);
    return answers.reduce((sum, { tokens }) => sum + tokens, 0) / seconds;
  });
  return { tokens, requests: median(rates.slice(1))! };
}

async function load(loaded: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const { tokens, requests } = await (sustained ??= sustain(loaded, engine, options));
  print(
    `load of ${options.requests ?? 256}: ${tokens.toFixed(0)} tok/s out, ${
      requests.toFixed(2)
    } requests/s, ${engine.metrics.preemptions} preemptions\n`,
  );
}

async function ttft(loaded: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const { requests } = await (sustained ??= sustain(loaded, engine, options));
  const rate = requests / 2;
  const asked = loadRequests(loaded.model, options);
  const begin = performance.now();
  const times = await Promise.all(
    poissonArrivals(asked.length, rate, draw).map(async (at, i) => {
      await setTimeout(Math.max(0, begin + at - performance.now()));
      return (await take(engine.add(asked[i]))).first - begin - at;
    }),
  );
  const [middle, high] = [50, 95].map((percent) => percentile(times, percent).toFixed(1));
  print(`ttft of ${asked.length} at ${rate.toFixed(2)} requests/s: median ${middle} ms, 95th percentile ${high} ms\n`);
}

async function long({ model }: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const [requests, positions, tokens] = readList("long", options.long ?? "64,8192,1024", 3);
  let seconds = 0;
  const rate = await measure(1, async () => {
    const prompts = Array.from({ length: requests }, () => ownPrompt(model, positions, seeds++));
    const begin = performance.now();
    const answers = await Promise.all(prompts.map((prompt) => take(engine.add({ prompt, maxTokens: tokens }))));
    seconds = (performance.now() - begin) / 1000;
    return answers.reduce((sum, { tokens }) => sum + tokens, 0) / seconds;
  });
  print(
    `long of ${requests}, ${positions} in and ${tokens} out: ${rate.toFixed(0)} tok/s out, ${
      (requests * positions / seconds).toFixed(0)
    } in, ${engine.metrics.preemptions} preemptions\n`,
  );
}

async function stream({ model }: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const { positions = 128, tokens = 128, repeats = 3 } = options;
  const perToken = async (others: number): Promise<number> => {
    const all = Array.from({ length: others + 1 }, () => ownPrompt(model, positions, seeds++));
    const [one] = await Promise.all(all.map((prompt) => take(engine.add({ prompt, maxTokens: tokens }))));
    return (one.last - one.first) / (one.tokens - 1);
  };
  const alone = await measure(repeats, () => perToken(0));
  const beside = await measure(repeats, () => perToken(7));
  print(
    `stream: ${alone.toFixed(2)} ms a token alone, ${beside.toFixed(2)} ms beside 7, ratio ${
      (beside / alone).toFixed(2)
    }\n`,
  );
}

/** One stream over HTTP beside `streamGenerate`, both in the dtype that a model has without options. */
async function http(_: Loaded, __: mx.lm.Engine, options: Options): Promise<void> {
  const { positions = 128, tokens = 128, repeats = 3, device = mx.defaultDevice(), shape = "qwen3-0.6b" } = options;
  const folder = await modelFolder(shape);
  const { model, tokenizer } = await mx.lm.load(folder, { device });
  await using server = await startServer(["--model", folder, "--device", device]);
  async function* pieces(): AsyncGenerator<string, void, void> {
    const body = JSON.stringify({
      prompt: ownPrompt(model, positions, seeds++),
      max_tokens: tokens,
      stream: true,
      temperature: 0,
    });
    const reply = await fetch(`${server.url}/v1/completions`, { method: "POST", body });
    let rest = "";
    for await (const piece of reply.body!.pipeThrough(new TextDecoderStream())) {
      const events = (rest + piece).split("\n\n");
      rest = events.pop()!;
      yield* events.filter((event) => event.includes('"text"'));
    }
  }
  const alone = (): Promise<Answered> =>
    take(mx.lm.streamGenerate(model, tokenizer, ownPrompt(model, positions, seeds++), { maxTokens: tokens }));
  const over = await measure(repeats, async () => rateOf([await take(pieces())]));
  const direct = await measure(repeats, async () => rateOf([await alone()]));
  print(`http: ${over.toFixed(0)} tok/s, streamGenerate ${direct.toFixed(0)}, ratio ${(over / direct).toFixed(2)}\n`);
  model[Symbol.dispose]();
}

async function health({ model }: Loaded, _: mx.lm.Engine, options: Options): Promise<void> {
  const { device = mx.defaultDevice() } = options;
  const source = await sourceOf(options);
  await using server = await startServer([
    "--model",
    source instanceof URL ? fileURLToPath(source) : source,
    "--device",
    device,
  ]);
  await measureHealth(server.url, ownPrompt(model, HEALTH_TOKENS, seeds++));
}

async function speculation({ model }: Loaded, engine: mx.lm.Engine, options: Options): Promise<void> {
  const { positions = 128, tokens = 128, repeats = 3, sequences = "1,8,16" } = options;
  const counts = readCounts("sequences", sequences, 1);
  const prompts = Array.from({ length: Math.max(...counts) }, () => ownPrompt(model, positions, seeds++));
  const engines = { plain: engine, drafting: engine };
  await measureDrafts(model, { drafter: "replay", engines, prompts, counts, tokens, repeats });
}

async function mtp({ model, tokenizer }: Loaded, plain: mx.lm.Engine, options: Options): Promise<void> {
  const { positions = 128, tokens = 128, repeats = 3, sequences = "1,16" } = options;
  const counts = readCounts("sequences", sequences, 1);
  const maxSequences = Math.max(...counts);
  const prompts = Array.from({ length: maxSequences }, () => ownPrompt(model, positions, seeds++));
  await using drafting = new mx.lm.Engine(model, tokenizer, {
    maxSequences,
    contextSize: 2 * (positions + tokens),
    speculation: { drafter: "mtp" },
  });
  await measureDrafts(model, { drafter: "mtp", engines: { plain, drafting }, prompts, counts, tokens, repeats });
}

/** Tokens of the prompt of "health". */
const HEALTH_TOKENS = 4050;

async function replicas(options: Options): Promise<void> {
  const { requests = 256, lengths = "100,1024", device } = options;
  const count = options.replicas ?? ((device ?? mx.defaultDevice()) === "wasm" ? "2" : "auto");
  const source = await sourceOf(options);
  const limits = readList("lengths", lengths, 2);
  await measureReplicas(source instanceof URL ? fileURLToPath(source) : source, { requests, limits, count, device });
}

/** Rows that load no model in this process. */
const APART = { replicas, front: measureFront };

const MEASURES = { decode, prefix, load, ttft, long, stream, http, health, speculation, mtp };

/** Where the model is. */
function sourceOf({ model, shape = "qwen3-0.6b" }: Options): Promise<string | URL> {
  if (model !== undefined) return Promise.resolve(model);
  return shape === "tiny" ? Promise.resolve(mx.lm.EMBEDDED_MODEL) : modelFolder(shape);
}

await runMain(PROGRAM, async (options) => {
  const { device = mx.defaultDevice(), model: folder, shape = "qwen3-0.6b", dtype } = options;
  const names = Object.keys({ ...MEASURES, ...APART }) as (keyof typeof MEASURES | keyof typeof APART)[];
  const rows = options.rows?.split(",").map((name) => checkOneOf("--rows", name, names)) ??
    names.filter((name) => name !== "mtp");
  const isApart = (name: string): name is keyof typeof APART => Object.hasOwn(APART, name);
  for (const name of rows.filter(isApart)) await APART[name](options);
  const chosen = rows.filter((name) => !isApart(name));
  if (chosen.length === 0) return 0;
  const dtypeName = dtype === undefined ? undefined : checkOneOf("--dtype", dtype, DTYPES);
  const loaded = await mx.lm.load(await sourceOf(options), {
    device,
    ...(dtypeName && { dtype: mx[dtypeName] }),
    ...(chosen.includes("mtp") && { draftHead: true }),
  });
  const most = Math.max(...readCounts("sequences", options.sequences ?? "1,8,64", 1), 64);
  const kvBytes = options["kv-bytes"];
  const bits = options["kv-bits"];
  if (bits !== undefined && bits !== "8") throw new UsageError(`--kv-bits is ${quoted(bits)}, expected 8`);
  await using engine = new mx.lm.Engine(loaded.model, loaded.tokenizer, {
    maxSequences: most,
    maxQueue: 1e5,
    ...(kvBytes && { kvBytes }),
    ...(bits !== undefined && { kvBits: 8 as const }),
  });
  print(
    `${device}: ${folder ?? shape}, ${loaded.dtype.name}, ${
      (engine.metrics.kvBytes / 1e9).toFixed(1)
    } GB of keys and values, context ${engine.contextSize}\n`,
  );
  for (const name of chosen) await MEASURES[name](loaded, engine, options);
  loaded.model[Symbol.dispose]();
  return 0;
});
