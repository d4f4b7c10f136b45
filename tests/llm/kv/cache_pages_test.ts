/**
 * Caches whose keys and values have 8 bits, and caches that keep the first and the last positions only, beside definitions that keep
 * everything.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { Cache, KeysValues } from "../../../src/llm/kv/cache.ts";
import { RING_CHUNK, type RingMask } from "../../../src/llm/kv/ring.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { CHECKPOINTS, PROMPTS, STEPS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";
import { smallModel } from "../../support/models/prompt_caches.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const ANY = DEVICES.includes("wasm") ? "wasm" : DEVICES[0];
const FORMAT = { groupSize: 32, seed: 5 };
const WINDOWED = {
  family: "llama",
  config: { layer_types: ["sliding_attention", "full_attention"], sliding_window: 16 },
} as const;
/** Most NMSE of logits where keys and values were rounded to 8 bits at another time, or from other digits. */
const ROUNDED = 1e-3;
const ids = (count: number, seed = 71): number[] => Array.from({ length: count }, (_, i) => (i * seed + 5) % 4000);

/** A cache that keeps all positions in the dtype of another one, and shows each token the first `keep` and the last `last`. */
class WholeCache implements Cache {
  readonly counted = undefined;
  readonly #dtype: mx.Dtype;
  readonly #sees: { readonly keep: number; readonly last: number };
  readonly #layers: { keys: mx.Tensor; values: mx.Tensor }[] = [];
  #offset = 0;
  #count = 0;

  constructor(dtype: mx.Dtype, sees: { readonly keep: number; readonly last: number }) {
    this.#dtype = dtype;
    this.#sees = sees;
  }

  begin(count: number): number {
    this.#offset += this.#count;
    this.#count = count;
    return this.#offset;
  }

  update(layer: number, keys: mx.Tensor, values: mx.Tensor): KeysValues {
    const held = this.#layers[layer];
    const [k, v] = [keys, values].map((x) => x.astype(this.#dtype));
    const all = held ? { keys: mx.concatenate([held.keys, k], 2), values: mx.concatenate([held.values, v], 2) } : {
      keys: k,
      values: v,
    };
    this.#layers[layer] = all;
    const { keep, last } = this.#sees;
    const mask = (queries: mx.Tensor, window = Infinity): mx.Tensor => {
      const at = queries.toTypedArray() as Int32Array;
      const [, , count] = all.keys.shape;
      const bits = Uint8Array.from({ length: at.length * count }, (_, i) => {
        const [q, p] = [at[Math.floor(i / count)], i % count];
        return Number(p <= q && p > q - window && (p < keep || p > q - last));
      });
      return mx.array(bits).reshape([1, 1, at.length, count]).astype(mx.bool);
    };
    return { ...all, lengths: undefined, ring: { mask } as RingMask };
  }

  /** Forgets the tokens after a position. */
  trim(position: number): void {
    for (const layer of this.#layers) {
      layer.keys = layer.keys.index("...", mx.Slice(0, position), mx.Slice(null));
      layer.values = layer.values.index("...", mx.Slice(0, position), mx.Slice(null));
    }
    [this.#offset, this.#count] = [position, 0];
  }

  readState(): mx.Tensor {
    throw new Error("no layer has a state");
  }

  writeState(): void {}
}

/** The logits after tokens, of the last one. */
function logitsAfter(model: mx.lm.LanguageModel, tokens: readonly number[], cache: Cache): Float32Array {
  const rows = mx.array([tokens.length - 1], mx.int32);
  return model.forward(mx.array([[...tokens]], mx.int32), cache, rows).astype(mx.float32)
    .toTypedArray() as Float32Array;
}

for (
  const [name, shape, maxKvSize] of [["no windows", {}, 12], ["windows in the ring", WINDOWED, 40], [
    "windows beyond the ring",
    WINDOWED,
    10,
  ]] as const
) {
  Deno.test(`a ring shows what a cache of all positions shows, with ${name}`, async () => {
    using files = await smallModel(shape, FORMAT);
    const { model } = await mx.lm.load(files.dir, { device: ANY });
    using _model = model;
    using cache = model.makeCache({ maxKvSize });
    mx.tidy(() => {
      const whole = new WholeCache(cache.dtype, { keep: 4, last: maxKvSize - 4 });
      const step = (tokens: readonly number[]): void => {
        const error = nmse(logitsAfter(model, tokens, cache), logitsAfter(model, tokens, whole));
        assert(error < 1e-8, `${error} at ${cache.offset}`);
      };
      // The ring has 576 positions at most: it turns in the middle of a pass, at its begin and between single tokens.
      for (const count of [3, 1, 200, 256, 1, 115, 1, 256]) step(ids(count, count));
      const [position, bytes] = [cache.offset - 200, cache.byteLength()];
      assertEquals([cache.reachable(position), cache.reachable(position - RING_CHUNK), cache.held], [
        position,
        0,
        maxKvSize,
      ]);
      assertThrows(() => cache.trim(700), mx.lm.LlmError, "earlier positions that its tokens see are gone");
      cache.trim(200);
      whole.trim(position);
      for (const count of [1, 256, 1]) step(ids(count, 7 * count));
      assertEquals(cache.byteLength(), bytes);
      cache.reset();
      whole.trim(0);
      step(ids(20));
      assertEquals(cache.reachable(3), 3);
    });
  });
}

/** Generation with caches of pages, by what is held. */
const GENERATIONS: readonly (readonly [name: string, run: (device: string) => Promise<void>])[] = [
  ["a ring follows the definition", async (device) => {
    using files = await smallModel({}, FORMAT);
    const backend = mx.withDevice(device, getBackend);
    const alive = backend.liveObjects();
    const { model, tokenizer } = await mx.lm.load(files.dir, { device });
    const maxKvSize = 12;
    const prompt = ids(300); // two passes
    const count = 330; // the ring of 576 positions turns
    using cache = model.makeCache({ maxKvSize });
    const options = { cache, temp: 0, maxTokens: count, stop: [] };
    const tokens: number[] = [];
    for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, options)) tokens.push(token);
    assertEquals([tokens.length, cache.offset, cache.held], [count, 300 + count - 1, maxKvSize]);
    mx.tidy(() => {
      const whole = new WholeCache(cache.dtype, { keep: 4, last: maxKvSize - 4 });
      logitsAfter(model, prompt, whole);
      const fed = tokens.slice(0, -1);
      const expected = [logitsAfter(model, fed, whole), logitsAfter(model, [tokens.at(-1)!], whole)];
      cache.trim(0);
      const row = logitsAfter(model, [tokens.at(-1)!], cache);
      // Rounding to 16 bits after 600 tokens: what a token sees wrongly shows in the first digit.
      assert(nmse(row, expected[1]) < 1e-4, `${nmse(row, expected[1])}`);
      assertEquals(expected[0].indexOf(Math.max(...expected[0])), tokens.at(-1));
    });
    await model.traces.idle();
    cache.dispose();
    model[Symbol.dispose]();
    assertEquals(backend.liveObjects(), alive);
  }],
  ["8 bits chooses the tokens of an engine with 8 bits", async (device) => {
    using files = await smallModel({}, FORMAT);
    const backend = mx.withDevice(device, getBackend);
    const alive = backend.liveObjects();
    const { model, tokenizer } = await mx.lm.load(files.dir, { device });
    const options = { temp: 0, maxTokens: 30, stop: [] };
    const prompt = ids(240); // the cache grows from 256 positions
    const expected: number[] = [];
    {
      await using engine = new mx.lm.Engine(model, tokenizer, { kvBits: 8 });
      for await (const { token } of engine.add({ ...options, prompt })) expected.push(token);
    }
    const tokens: number[] = [];
    for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { ...options, kvBits: 8 })) {
      tokens.push(token);
    }
    assertEquals(tokens, expected);
    await model.traces.idle();
    model[Symbol.dispose]();
    assertEquals(backend.liveObjects(), alive);
  }],
];

for (const device of DEVICES) {
  for (const [name, run] of drawSome(device, "caches of pages", GENERATIONS, 1)) {
    Deno.test(`generation with ${name} on ${device}`, () => run(device));
  }
}

Deno.test("a cache with 8 bits holds several sequences, goes back, and takes the memory that it says", async () => {
  using files = await smallModel({}, FORMAT);
  const { model } = await mx.lm.load(files.dir, { device: ANY });
  using _model = model;
  using two = model.makeCache({ batch: 2, kvBits: 8 });
  using one = model.makeCache({ kvBits: 8 });
  const [a, b] = [ids(300, 3), ids(300, 17)];
  mx.tidy(() => {
    const forward = (from: number, to: number): Float32Array =>
      model.forward(mx.array([a.slice(from, to), b.slice(from, to)], mx.int32), two).toTypedArray() as Float32Array;
    forward(0, 200);
    const later = forward(200, 300);
    two.trim(100);
    assertEquals(forward(200, 300), later);
    logitsAfter(model, b.slice(0, 250), one);
    const alone = logitsAfter(model, b.slice(250), one);
    assert(nmse(alone, later.slice(-alone.length)) < ROUNDED);
  });
  const { capacity, layers } = one;
  assertEquals([capacity, one.byteLength(), two.byteLength()], [512, 512 * layers * 2 * 32, 2 * 512 * layers * 2 * 32]);
  assertEquals(two.shapeOf(0, "keys"), [2, 1, 300, 32]);
});

Deno.test("perplexity with 8 bits is that of a cache with 8 bits", async () => {
  using files = await smallModel({}, FORMAT);
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: ANY, dtype: mx.float32 });
  using _model = model;
  const text = ids(60);
  const { nll } = await mx.lm.perplexity(model, tokenizer, text, { kvBits: 8 });
  const { nll: exact } = await mx.lm.perplexity(model, tokenizer, text);
  const expected = mx.tidy(() => {
    using cache = model.makeCache({ kvBits: 8 });
    const logits = model.forward(mx.array([text.slice(0, -1)], mx.int32), cache).astype(mx.float32);
    const scores = mx.subtract(logits, mx.logsumexp(logits, -1, true));
    return -mx.mean(mx.takeAlongAxis(scores, mx.array([text.slice(1).map((id) => [id])], mx.int32), -1)).item();
  });
  assert(Math.abs(nll - expected) < 1e-3 * Math.abs(nll - exact) + 1e-5 * nll, `${nll}, ${expected}, ${exact}`);
  assert(nll !== exact);
});

Deno.test("caches in files become caches of other kinds, as far as those see the positions that are there", async () => {
  using files = await smallModel({}, FORMAT);
  const dir = await Deno.makeTempDir();
  using stack = new DisposableStack();
  stack.defer(() => Deno.removeSync(dir, { recursive: true }));
  const { model } = await mx.lm.load(files.dir, { device: ANY });
  stack.use(model);
  const saved = async (name: string, options: object): Promise<string> => {
    using cache = model.makeCache(options);
    mx.tidy(() => logitsAfter(model, ids(100), cache));
    await mx.lm.savePromptCache(`${dir}/${name}`, cache);
    return `${dir}/${name}`;
  };
  const plain = await saved("plain", {});
  const ring = await saved("ring", { maxKvSize: 20 });
  const coded = await saved("coded", { kvBits: 8 });
  for (
    const [file, options, made] of [
      [plain, {}, {}],
      [plain, { kvBits: 8 }, { kvBits: 8 }],
      [plain, { maxKvSize: 20 }, undefined],
      [ring, {}, { maxKvSize: 20 }],
      [ring, { kvBits: 8 }, undefined],
      [coded, { kvBits: 8 }, { kvBits: 8 }],
      [plain, { maxKvSize: 300 }, { maxKvSize: 300 }],
    ] as const
  ) {
    const { cache } = await mx.lm.loadPromptCache(file, model, options);
    using _cache = cache;
    const { kvBits, ring: sizes } = cache;
    assertEquals(kvBits, "kvBits" in options ? options.kvBits : undefined);
    assertEquals(sizes === undefined, !("maxKvSize" in options) && file !== ring);
    mx.tidy(() => {
      const found = logitsAfter(model, [9], cache);
      if (!made) return;
      using fresh = model.makeCache(made);
      logitsAfter(model, ids(100), fresh);
      const error = nmse(found, logitsAfter(model, [9], fresh));
      const bound = file === plain && "kvBits" in options ? ROUNDED : 1e-8;
      assert(error < bound, `${error} of ${file} ${JSON.stringify(options)}`);
    });
  }
  const longer = { maxKvSize: 40 };
  const gone = "has the first 4 and the last 16 of 100 positions of layer 0, which sees the first 4 and the last 36";
  await assertRejects(() => mx.lm.loadPromptCache(ring, model, longer), mx.lm.LlmError, gone);
});

/** Families with latent attention, shared keys and values, sinks, recurrent states of two kinds. */
const KINDS = ["glm4_moe_lite", "gemma4_text", "gpt_oss", "lfm2", "qwen3_5"] as const;

for (const kind of KINDS) {
  Deno.test(`smaller caches hold what ${kind} keeps`, async () => {
    const checkpoint = CHECKPOINTS.find(({ config }) => JSON.parse(config).model_type === kind)!;
    const dir = await Deno.makeTempDir();
    using stack = new DisposableStack();
    stack.defer(() => Deno.removeSync(dir, { recursive: true }));
    await writeCheckpoint(dir, checkpoint);
    const { model, tokenizer } = await mx.lm.load(dir, { device: ANY, dtype: mx.float32 });
    stack.use(model);
    for (const [i, greedy] of checkpoint.greedy.entries()) {
      const tokens: number[] = [];
      const options = { temp: 0, maxTokens: greedy.length, stop: [], maxKvSize: 64 };
      for await (const { token } of mx.lm.streamGenerate(model, tokenizer, PROMPTS[i], options)) tokens.push(token);
      assertEquals(tokens, greedy);
    }
    mx.tidy(() => {
      using all = model.makeCache();
      using coded = model.makeCache({ kvBits: 8 });
      for (const part of [PROMPTS[0], STEPS]) {
        const [exact, rounded] = [all, coded].map((cache) => logitsAfter(model, part, cache));
        const error = nmse(rounded, exact);
        assert(error < 1e-2 && error > 0, `${error}`); // sinks and experts tell small differences apart
      }
    });
    await model.traces.idle();
  });
}

Deno.test("options of caches that cannot be are refused", async () => {
  using files = await smallModel({}, FORMAT);
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: ANY });
  using _model = model;
  const refused = (options: object, message: string): unknown =>
    assertThrows(() => model.makeCache(options), mx.lm.LlmError, message);
  refused({ kvBits: 4 }, "kvBits is 4, expected 8");
  refused({ maxKvSize: 7 }, "maxKvSize is 7, expected an integer of at least 8");
  refused({ batch: 0 }, "batch is 0, expected a positive integer");
  refused({ bits: 8 }, "bits");
  using cache = model.makeCache({ maxKvSize: 8 });
  assertThrows(
    () => model.forward(mx.zeros([1, RING_CHUNK + 1], mx.int32), cache),
    mx.lm.LlmError,
    `takes ${RING_CHUNK} tokens at once: ${RING_CHUNK + 1} were given`,
  );
  await assertRejects(
    () => mx.lm.generate(model, tokenizer, [1], { cache, kvBits: 8 }),
    mx.lm.LlmError,
    "kvBits is of a cache that is made: give it to makeCache()",
  );
  await assertRejects(() => mx.lm.generate(model, tokenizer, [1], { maxKvSize: 2 }), mx.lm.LlmError, "maxKvSize is 2");
});
