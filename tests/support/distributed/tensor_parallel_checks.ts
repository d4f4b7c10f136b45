/**
 * What each process of tests/distributed/tensor_parallel_test.ts runs: models in parts beside the whole ones, which every process loads too. The
 * arguments are model folders. It prints one line of JSON.
 */

import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { collect } from "../../../src/schedule/plan/garbage.ts";
import { modelOf } from "../models/architectures.ts";

const group = mx.distributed.init();
const [rank, size] = [group.rank(), group.size()];
const [narrow, ...folders] = Deno.args;
const failures: string[] = [];
let checks = 0;

function check(name: string, holds: boolean, found: unknown): void {
  checks++;
  if (!holds) failures.push(`${name}: ${JSON.stringify(found)}`);
}

const IDS = Array.from({ length: 20 }, (_, i) => (i * 1237 + 11) % 4096);

/** Logits of a prompt, then of two tokens after it by way of a cache. */
function logitsOf(model: mx.lm.LanguageModel): Float32Array {
  using cache = model.makeCache();
  const rows = [IDS.slice(0, 18), IDS.slice(18, 19), IDS.slice(19)].map((ids) =>
    model.forward(mx.array([ids], mx.int32), cache).astype(mx.float32)
  );
  const all = mx.concatenate(rows, 1);
  return all.toTypedArray() as Float32Array;
}

/** The mean squared difference as a part of the mean square. */
function nmse(found: Float32Array, expected: Float32Array): number {
  let [difference, square] = [0, 0];
  expected.forEach((x, i) => {
    difference += (found[i] - x) ** 2;
    square += x ** 2;
  });
  return difference / square;
}

type Options = mx.lm.GenerateOptions;

async function tokensOf({ model, tokenizer }: mx.lm.Loaded, options: Options = {}): Promise<number[]> {
  const tokens: number[] = [];
  const prompt = tokenizer.encode("Once upon a time");
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: 12, ...options })) {
    tokens.push(token);
  }
  return tokens;
}

/** Whether all processes have the same numbers. */
function agree(numbers: readonly number[]): boolean {
  const all = mx.distributed.allGather(mx.array([[...numbers]], mx.int32)).tolist() as number[][];
  return all.every((row) => `${row}` === `${numbers}`);
}

for (const folder of folders) {
  const name = folder.split("/").at(-1)!;
  const options = { dtype: mx.float32 };
  const start = mx.getActiveMemory();
  const whole = await mx.lm.load(folder, options);
  const before = mx.getActiveMemory();
  const sharded = await mx.lm.shardedLoad(folder, options);
  const part = mx.getActiveMemory() - before;
  // Embedding and head are whole; of the layers, norms are.
  const layers = (model: mx.lm.LanguageModel): number =>
    mx.utils.treeFlatten(model.parameters()).filter(([path]) => path.includes("layers."))
      .reduce((sum, [, array]) => sum + (array as mx.Tensor).nbytes, 0);
  const expectedPart = before - layers(whole.model) * (1 - 1 / size);
  check(`bytes of ${name}`, part <= expectedPart * 1.05 + 65536, [part, expectedPart]);
  const found = nmse(logitsOf(sharded.model), logitsOf(whole.model));
  check(`logits of ${name}`, found <= 1e-6, found);

  const [greedy, expected] = [await tokensOf(sharded), await tokensOf(whole)];
  check(`greedy tokens of ${name}`, `${greedy}` === `${expected}`, [greedy, expected]);
  // Processes that draw differently take the tokens of the first one.
  const drawn = await tokensOf(sharded, { temp: 1.5, seed: 7 + rank });
  check(`drawn tokens of ${name} agree`, agree(drawn), drawn);
  const first = await tokensOf(sharded, { temp: 1.5, seed: 7 });
  check(`drawn tokens of ${name}`, `${drawn}` === `${first}`, [drawn, first]);

  if (folder === folders[0]) {
    const limited: Options = {
      responseFormat: { type: "json_object" },
      repetitionPenalty: 1.2,
      logprobs: 2,
      maxTokens: 8,
    };
    const masked = await tokensOf(sharded, limited);
    check("tokens of a grammar", `${masked}` === `${await tokensOf(whole, limited)}`, masked);
    check("a second sharding is refused", size === 1 || refuses(() => sharded.model.shard(), /sharded before/), "");
    const drafted = await tokensOf(sharded, { speculation: {} }).then(String, ({ message }) => message);
    check("speculation is refused", size === 1 || drafted.startsWith("speculation takes a whole model"), drafted);
    check(
      "an engine is refused",
      size === 1 || refuses(() => new mx.lm.Engine(sharded.model, sharded.tokenizer), /one request at a time/),
      "",
    );
  }
  sharded.model[Symbol.dispose]();
  whole.model[Symbol.dispose]();
  for (let i = 0; i < 10 && mx.getActiveMemory() > start; i++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  check(`memory of ${name} is freed`, mx.getActiveMemory() <= start, [mx.getActiveMemory(), start]);
}

// A model that is there already, with projections in one matrix each.
mx.setDefaultDevice(getBackend().name);
const shape = { hidden: 256, intermediate: 512, layers: 2, heads: 8, kvHeads: 4, headDim: 32, tied: true, vocab: 4096 };
for (const qkvBias of [false, true]) {
  const architecture = { qkNorm: true, qkvBias, activation: "silu", joinedProjections: !qkvBias } as const;
  const model = await modelOf(architecture, shape, { groupSize: 32, seed: 31 }, mx.float32);
  const expected = logitsOf(model);
  model.shard();
  const found = nmse(logitsOf(model), expected);
  check(`logits of a model that was loaded, ${qkvBias ? "biases" : "joined projections"}`, found <= 1e-6, found);
  model[Symbol.dispose]();
}

/** Whether a call throws an error with such a message. */
function refuses(call: () => unknown, message: RegExp): boolean {
  try {
    call();
    return false;
  } catch (error) {
    return message.test((error as Error).message);
  }
}

if (size > 2) {
  const refused = await mx.lm.shardedLoad(narrow).then(() => "loaded", ({ code, message }) => `${code}: ${message}`);
  const expected = "option: 4 processes cannot divide the 2 key/value heads of the model: use 1 or 2";
  check("heads that processes do not divide", refused === expected, refused);
}

console.log(JSON.stringify({ rank, size, checks, failures }));
