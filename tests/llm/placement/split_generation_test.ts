/**
 * Generation with the layers of the embedded model on two devices: sampling, caches of all kinds, drafts, grammars and an engine. Caches in
 * files go from one device to two, and back. And what is refused.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { GenerationSession } from "../../../src/llm/decode/session.ts";
import { anyDevice } from "../../support/devices/devices.ts";

const OTHER = "wasm-threads=1";
const device = anyDevice();
const DEVICES = { devices: [device, OTHER], split: [5, 3], dtype: mx.float32 };
const LONG = Array.from({ length: 40 }, (_, i) => (i * 37) % 4000);
const REPEATED = "one two three one two three one two three one two";

/** Options of generation by what they try, and a prompt that is not the usual one. */
const WAYS: Readonly<Record<string, readonly [options: mx.lm.GenerateOptions, prompt?: mx.lm.Prompt]>> = {
  greedy: [{}],
  sampling: [{ temp: 0.8, topP: 0.9, seed: 3, repetitionPenalty: 1.3 }],
  "codes of 8 bits": [{ kvBits: 8 }],
  "a ring": [{ maxKvSize: 16 }],
  "a prompt in chunks": [{ prefillStepSize: 16 }, LONG],
  drafts: [{ speculation: {}, maxTokens: 30 }, REPEATED],
  "a grammar": [{ responseFormat: { type: "regex", regex: "[a-z]{3,9} [a-z]{3,9}" } }],
};

async function tokensOf(
  { model, tokenizer }: mx.lm.Loaded,
  [options, prompt = "Once upon a time"]: typeof WAYS[string],
): Promise<number[]> {
  const tokens: number[] = [];
  const all = { maxTokens: 12, temp: 0, ...options };
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, all)) tokens.push(token);
  return tokens;
}

Deno.test("generation on two devices gives the tokens of one", async () => {
  mx.setDefaultDevice(device);
  const before = mx.getActiveMemory();
  const whole = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device, dtype: mx.float32 });
  const split = await mx.lm.load(mx.lm.EMBEDDED_MODEL, DEVICES);
  assertEquals(split.parts.map(({ from, to }) => [from, to]), [[0, 5], [5, 8]]);
  for (const [name, way] of Object.entries(WAYS)) {
    assertEquals(await tokensOf(split, way), await tokensOf(whole, way), name);
  }
  for (const { model } of [whole, split]) model[Symbol.dispose]();
  assertEquals(mx.getActiveMemory(), before);
});

/** A small Qwen3.5: every other layer has attention. */
const HYBRID = {
  model_type: "qwen3_5_text",
  hidden_size: 128,
  intermediate_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 64,
  full_attention_interval: 2,
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 64,
  linear_value_head_dim: 32,
  linear_conv_kernel_dim: 4,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-6,
  rope_parameters: { rope_type: "default", rope_theta: 10000, partial_rotary_factor: 0.25 },
  tie_word_embeddings: true,
  vocab_size: 4099,
};

Deno.test("drafts of a model with recurrent layers on two devices give the tokens of one", async () => {
  mx.setDefaultDevice(device);
  const folder = await Deno.makeTempDir();
  const path = `${folder}/model`;
  await writePublished(path, HYBRID, { groupSize: 64 });
  const plain = { maxTokens: 8, temp: 0 };
  const run = async (where: mx.lm.LoadOptions, options: mx.lm.GenerateOptions): Promise<number[]> => {
    const loaded = await mx.lm.load(path, { ...where, dtype: mx.float32 });
    const found = await tokensOf(loaded, [options, [3, 14, 159, 26, 7]]);
    await loaded.model.traces.idle();
    loaded.model[Symbol.dispose]();
    return found;
  };
  const expected = await run({ device }, plain);
  // Of two drafts one is right.
  let at = -1;
  let drafts = 0;
  const drafter: mx.lm.Drafter = {
    extend: (more) => void (at = at < 0 ? 0 : at + more.length),
    draft: () => {
      drafts++;
      return [expected[at] ?? 5, (expected[at + 1] ?? 5) ^ 1];
    },
  };
  const speculation = { drafter, numDraftTokens: 2, adaptive: false };
  const split = { devices: [device, OTHER], split: [2, 2] };
  assertEquals(await run(split, { ...plain, speculation }), expected);
  assert(drafts > 0, "nothing was drafted");
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a prompt on two devices that is aborted between its parts leaves nothing", async () => {
  mx.setDefaultDevice(device);
  const before = mx.getActiveMemory();
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, DEVICES);
  const controller = new AbortController();
  const told: number[] = [];
  const options = {
    maxTokens: 2,
    prefillStepSize: 8,
    signal: controller.signal,
    onPrompt: (read: number): void => {
      told.push(read);
      if (told.length === 2) controller.abort(new Error("enough"));
    },
  };
  await assertRejects(
    async () => {
      for await (const _ of mx.lm.streamGenerate(model, tokenizer, LONG, options)) { /* none comes */ }
    },
    Error,
    "enough",
  );
  assertEquals(told, [8, 16]);
  assertEquals((await tokensOf({ model, tokenizer } as mx.lm.Loaded, [{}])).length, 12); // the model goes on
  model[Symbol.dispose]();
  assertEquals(mx.getActiveMemory(), before);
});

Deno.test("the first device has the next part of a prompt before the last one has a part", async () => {
  mx.setDefaultDevice(device);
  const { model } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, DEVICES);
  using _model = model;
  using cache = model.makeCache();
  const sampler = mx.lm.makeSampler();
  const options = { sampler, processors: [], contextSize: 0 };
  using session = new GenerationSession(model, cache, LONG, 1, options);
  cache.reserve(LONG.length);
  const runs: string[] = [];
  const backends = [device, OTHER].map((name) => mx.withDevice(name, getBackend));
  const own = backends.map((backend) => backend.run);
  backends.forEach((backend, i) => backend.run = (...given) => (runs.push("AB"[i]), own[i].apply(backend, given)));
  try {
    await session.read(8); // its arrays are made
    await session.idle();
    runs.length = 0;
    await session.read(8);
    assertEquals(runs.join(""), "A");
    await session.read(8);
    assertEquals(runs.join(""), "AAB");
    await session.idle();
    assertEquals(runs.join(""), "AABB");
  } finally {
    backends.forEach((backend, i) => backend.run = own[i]);
  }
});

Deno.test("an engine on two devices gives the texts of one", async () => {
  mx.setDefaultDevice(device);
  const texts = async (options: mx.lm.LoadOptions): Promise<string[]> => {
    const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { ...options, dtype: mx.float32 });
    try {
      await using engine = new mx.lm.Engine(model, tokenizer, { maxSequences: 3, memoryBytes: 2 ** 26 });
      const textOf = async (prompt: string): Promise<string> => {
        let text = "";
        for await (const part of engine.add({ prompt, maxTokens: 12, temp: 0 })) text += part.text;
        return text;
      };
      const first = await Promise.all(["Once upon", "The sea", "A dog"].map(textOf));
      return [...first, await textOf("Once upon a time there was a king. Once upon a time")];
    } finally {
      model[Symbol.dispose]();
    }
  };
  assertEquals(await texts(DEVICES), await texts({ device }));
});

Deno.test("caches in files go from one device to two, and back", async () => {
  mx.setDefaultDevice(device);
  const dir = await Deno.makeTempDir();
  const whole = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device, dtype: mx.float32 });
  const split = await mx.lm.load(mx.lm.EMBEDDED_MODEL, DEVICES);
  try {
    const [first, then]: [string, string] = ["Once upon a time", " and then"];
    const going = async (saving: mx.lm.Loaded, going: mx.lm.Loaded): Promise<number[]> => {
      using cache = saving.model.makeCache();
      await tokensOf(saving, [{ cache }, first]);
      await mx.lm.savePromptCache(`${dir}/cache.safetensors`, cache);
      const { cache: held } = await mx.lm.loadPromptCache(`${dir}/cache.safetensors`, going.model);
      using loaded = held;
      assertEquals(loaded.offset, cache.offset);
      return await tokensOf(going, [{ cache: loaded }, then]);
    };
    const wanted = await going(whole, whole);
    assertEquals(await going(split, whole), wanted, "saved on two devices");
    assertEquals(await going(whole, split), wanted, "loaded on two devices");
    using cache = split.model.makeCache();
    await tokensOf(split, [{ cache }, first]);
    cache.trim(4);
    assertEquals((await tokensOf(split, [{ cache }, then])).length, 12);
  } finally {
    for (const { model } of [whole, split]) model[Symbol.dispose]();
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("one device that is named twice is one device", async () => {
  const { model, parts } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { devices: [device, device] });
  assertEquals(parts, []);
  model[Symbol.dispose]();
});

Deno.test("what devices cannot share is refused with the reason", async () => {
  const devices = [device, OTHER];
  const refused: readonly (readonly [options: mx.lm.LoadOptions, message: string])[] = [
    [{ device, devices }, "load() takes device or devices, not both"],
    [{ split: [1, 1] }, "load() takes split with devices"],
    [{ devices, split: [1] }, "split is [1], expected 2 positive numbers, one for each device"],
    [{ devices, split: [1, -1] }, "split is [1,-1], expected 2 positive numbers, one for each device"],
    [{ devices: [device, device], split: [1, 1] }, "split takes devices that differ"],
    [{ devices: [] }, "devices is [], expected a list of names of devices"],
    [{ devices: [0, 1] as unknown as string[] }, "devices is [0,1], expected a list of names of devices"],
    [{ devices, adapterPath: "adapters" }, "load() takes adapterPath with one device"],
    [{ devices, draftHead: true }, "load() takes draftHead with one device"],
    [{ devices, split: [5, 3], memoryBytes: 2 ** 20 }, "Its parts do not fit: layers 0 to 4 on"],
  ];
  for (const [options, message] of refused) {
    const error = await assertRejects(() => mx.lm.load(mx.lm.EMBEDDED_MODEL, options), mx.lm.LlmError);
    assert(error.message.includes(message), error.message);
  }
  const error = await assertRejects(() => mx.lm.load(mx.lm.EMBEDDED_MODEL, { devices: [device, "vulkan:99"] }));
  assert(error instanceof mx.RuntimeError, `${error}`);
});
