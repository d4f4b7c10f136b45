/** Prompt caches in files: of mlx-lm and ours, bit for bit on one device and from one to another; hostile files are refused. */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import {
  CACHE_CASES,
  CACHE_GOLDEN,
  type CacheCase,
  cacheFile,
  type CacheGolden,
  NEXT,
  PROMPT as IDS,
  smallModel,
} from "../../support/models/prompt_caches.ts";

const EXPECTED: Readonly<Record<string, CacheGolden>> = JSON.parse(Deno.readTextFileSync(CACHE_GOLDEN));
/** Most NMSE of logits after a cache: in float32, and where mlx-lm quantizes later tokens too, which a loaded cache does not. */
const EXACT = 1e-5; // the cache may be float16
const CODED: Readonly<Record<number, number>> = { 8: 1e-4, 4: 1e-2 };
const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const ANY = DEVICES.includes("wasm") ? "wasm" : DEVICES[0];
const PROMPT = "Once upon a time, there was a little girl";

/** A folder that goes at disposal. */
function folder(): { readonly path: string } & Disposable {
  const path = Deno.makeTempDirSync();
  return { path, [Symbol.dispose]: () => Deno.removeSync(path, { recursive: true }) };
}

/** The bits of what a cache holds. */
function bits(cache: mx.lm.KvCache): readonly ArrayLike<number>[] {
  const layers = Array.from({ length: cache.layers }, (_, i) => i);
  return layers.flatMap((layer) =>
    (["keys", "values"] as const).map((which) => {
      using rows = cache.read(layer, which);
      using floats = rows.astype(mx.float32); // exact
      return floats.toTypedArray() as Float32Array;
    })
  );
}

async function refused(file: string, model: mx.lm.LanguageModel, message: string, code = "cache"): Promise<void> {
  const error = await assertRejects(() => mx.lm.loadPromptCache(file, model), mx.lm.LlmError, message);
  assertEquals(error.code, code, error.message);
  assert(!error.message.includes("\n"));
}

/** A model whose steps are fused on every GPU, where regions are on. */
const FUSED = { hidden: 256, intermediate: 384, heads: 4, kvHeads: 2, headDim: 64 };

async function goesOn(device: string, regions: "off" | "on"): Promise<void> {
  using at = folder();
  const file = `${at.path}/c.safetensors`;
  const backend = mx.withDevice(device, getBackend);
  const alive = backend.liveObjects();
  using _options = withOptions({ regions });
  using files = await smallModel(FUSED, { groupSize: 64 });
  const { model, tokenizer } = await mx.lm.load(files.dir, { device });
  using cache = model.makeCache();
  assertEquals(cache.fused, regions === "on");
  const begin = await mx.lm.generate(model, tokenizer, PROMPT, { cache, maxTokens: 8 });
  await mx.lm.savePromptCache(file, cache, { metadata: { title: "a story" } });
  const { layers, dtype, tokens } = cache;
  const [batch, heads, rows, width] = cache.shapeOf(0, "keys");
  const payload = 2 * layers * batch * heads * rows * width * dtype.bytes;
  const { size } = Deno.statSync(file);
  assert(size >= payload && size < payload + 8000, `${size} bytes for ${payload} of keys and values`); // no unused rows
  assertEquals([...Deno.readDirSync(at.path)].length, 1);

  const { cache: loaded, metadata } = await mx.lm.loadPromptCache(file, model);
  using _loaded = loaded;
  assertEquals(metadata, { title: "a story" });
  assertEquals([loaded.offset, loaded.tokens, loaded.fused], [cache.offset, tokens, cache.fused]);
  assertEquals(bits(loaded), bits(cache));
  assertEquals(loaded.buffers.keys.length, cache.buffers.keys.length, "the layers lie together as before");

  const prompt = PROMPT + begin;
  const settings = { cachePrompt: true, maxTokens: 6, temp: 0.9, seed: 4, logprobs: 2 };
  const answers = [];
  const traces: number[] = [];
  for (const one of [cache, loaded]) {
    const tokens = [];
    for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { ...settings, cache: one })) {
      tokens.push([r.token, r.logprobs, r.cachedTokens]);
    }
    answers.push(tokens);
    traces.push(model.traces.size);
  }
  assertEquals(answers[1], answers[0]);
  assertEquals(traces[1], traces[0], "the steps are those of the other cache");
  assertEquals(bits(loaded), bits(cache));
  await model.traces.idle();
  loaded.dispose();
  cache.dispose();
  model[Symbol.dispose]();
  assertEquals(backend.liveObjects(), alive);
}

for (const device of DEVICES) {
  for (const regions of device === "wasm" ? ["off"] as const : ["off", "on"] as const) {
    Deno.test(`a loaded cache goes on as the one that was saved, regions ${regions}, on ${device}`, () =>
      goesOn(device, regions));
  }

  for (const one of drawSome<CacheCase>(device, "caches of mlx-lm", CACHE_CASES, 1)) {
    Deno.test(`a cache of mlx-lm goes on as there, and so does ours of its kind: ${one.name} on ${device}`, async () => {
      using at = folder();
      using files = await smallModel(one.shape);
      const { model, tokenizer } = await mx.lm.load(files.dir, { device });
      using _model = model;
      const { logits: expected, tokens } = EXPECTED[one.name];
      const greedy = tokens.slice(0, one.bits === 4 ? 4 : tokens.length); // soon the other digits of later tokens show
      const ids = [...IDS, ...one.steps];
      const goesOn = async (file: string): Promise<void> => {
        const { cache, metadata } = await mx.lm.loadPromptCache(file, model, { tokens: ids });
        using _cache = cache;
        assertEquals([metadata.model, cache.offset, cache.tokens], ["synthetic", ids.length, ids]);
        mx.tidy(() => {
          const logits = model.forward(mx.array([[NEXT]], mx.int32), cache).toTypedArray() as Float32Array;
          const error = nmse(logits.filter((_, i) => i % 64 === 0), expected);
          assert(error < (one.bits ? CODED[one.bits] : EXACT), `${error}`);
        });
        cache.trim(1);
        const found = [];
        const options = { cache, maxTokens: greedy.length, temp: 0 };
        for await (const { token } of mx.lm.streamGenerate(model, tokenizer, [NEXT], options)) found.push(token);
        assertEquals(found, greedy);
      };
      await goesOn(cacheFile(one.name));

      using cache = model.makeCache(one.size === undefined ? {} : { maxKvSize: one.size });
      mx.tidy(() => mx.eval(model.forward(mx.array([ids], mx.int32), cache)));
      const file = `${at.path}/c.safetensors`;
      const options = one.bits && { kvBits: one.bits, kvGroupSize: one.group };
      await mx.lm.savePromptCache(file, cache, {
        metadata: { model: "synthetic", tokenizer_config: "{}" },
        ...options,
      });
      await goesOn(file);
      // But for rows to spare, the file is as mlx-lm's.
      const [theirs, ours] = [cacheFile(one.name), file].map((path) => {
        const { format: _format, "0.vkmx": _own, ...marks } = mx.safetensorsMetadata(path);
        const shapes = Object.entries(mx.loadSafetensors(path)).map(([name, { shape, dtype }]) => {
          const kind = dtype.kind === "float" ? "float" : dtype.name;
          return `${name} ${shape.length === 4 ? shape.with(2, 0) : shape} ${kind}`;
        });
        return [marks, shapes.sort()];
      });
      assertEquals(ours, theirs);
    });
  }

  Deno.test(`a loaded cache grows, and one of several sequences loads, on ${device}`, async () => {
    using at = folder();
    using files = await smallModel({}, { groupSize: 32, seed: 5 });
    const file = `${at.path}/c.safetensors`;
    const { model, tokenizer } = await mx.lm.load(files.dir, { device });
    using _model = model;
    using cache = model.makeCache();
    const ids = Array.from({ length: 250 }, (_, i) => (i * 71) % 4000);
    const go = (one: mx.lm.KvCache, prompt: number[]): Promise<string> =>
      mx.lm.generate(model, tokenizer, prompt, { cache: one, maxTokens: 12, temp: 3, seed: 2, stop: [] });
    await go(cache, ids.slice(0, 240));
    cache.trim(cache.offset - 250);
    await mx.lm.savePromptCache(file, cache);
    const { cache: loaded } = await mx.lm.loadPromptCache(file, model);
    using _loaded = loaded;
    assertEquals(await go(loaded, [7]), await go(cache, [7]));
    assert(loaded.offset > 256 && loaded.capacity > 256, `${loaded.offset} of ${loaded.capacity}`);
    assertEquals(bits(loaded), bits(cache));

    using two = model.makeCache(2);
    mx.tidy(() => mx.eval(model.forward(mx.array([ids.slice(0, 9), ids.slice(9, 18)], mx.int32), two)));
    await mx.lm.savePromptCache(file, two);
    const { cache: both } = await mx.lm.loadPromptCache(file, model);
    using _both = both;
    assertEquals([both.shapeOf(0, "keys"), bits(both)], [two.shapeOf(0, "keys"), bits(two)]);
  });
}

Deno.test("a cache that has the last positions of a window only goes back by one token", async () => {
  using files = await smallModel(CACHE_CASES[2].shape);
  const { model } = await mx.lm.load(files.dir, { device: ANY });
  using _model = model;
  const { cache } = await mx.lm.loadPromptCache(cacheFile("ring"), model);
  using _cache = cache;
  const { offset } = cache;
  assertEquals([offset, offset - 1, offset - 2, 3].map((at) => cache.reachable(at)), [offset, offset - 1, 0, 0]);
  assertThrows(() => cache.trim(2), mx.lm.LlmError, "that its tokens see are gone: it goes back to 0 and not to");
  assertEquals([cache.trim(1), cache.trim(Infinity), cache.offset], [1, offset - 1, 0]);
  mx.tidy(() => mx.eval(model.forward(mx.array([IDS], mx.int32), cache)));
  assertEquals(cache.reachable(5), 5);
});

Deno.test("a prompt cache of an older mlx-lm loads", async () => {
  using at = folder();
  using files = await smallModel();
  const { model } = await mx.lm.load(files.dir, { device: ANY });
  using _model = model;
  const old = `${at.path}/old.safetensors`;
  const arrays = mx.loadSafetensors(cacheFile("plain"));
  const kept = Object.entries(arrays).filter(([name]) => !name.endsWith(".2")).map(([name, array]) =>
    [name, array.index("...", mx.Slice(0, IDS.length), mx.Slice(null))] as const
  );
  mx.saveSafetensors(old, Object.fromEntries(kept), {
    "0.0": "",
    "0.1": "",
    "1.model": "synthetic",
    "2.0": "KVCache",
    "2.1": "KVCache",
  });
  const { cache, metadata } = await mx.lm.loadPromptCache(old, model);
  using _cache = cache;
  assertEquals([metadata.model, cache.offset, cache.tokens], ["synthetic", IDS.length, []]);
  mx.tidy(() => {
    const logits = model.forward(mx.array([[NEXT]], mx.int32), cache).toTypedArray() as Float32Array;
    assert(nmse(logits.filter((_, i) => i % 64 === 0), EXPECTED.plain.logits) < EXACT);
  });
});

if (DEVICES.length > 1) {
  Deno.test(`a cache goes from ${DEVICES[0]} to ${DEVICES[1]} and back`, async () => {
    using at = folder();
    using files = await smallModel({}, { groupSize: 32, seed: 5 });
    const open = (device: string): Promise<mx.lm.Loaded> => mx.lm.load(files.dir, { device });
    const [{ model: a, tokenizer }, { model: b }] = await Promise.all(DEVICES.slice(0, 2).map(open));
    using _a = a;
    using _b = b;
    using first = a.makeCache();
    await mx.lm.generate(a, tokenizer, [...IDS], { cache: first, maxTokens: 4 });
    let file = `${at.path}/0.safetensors`;
    await mx.lm.savePromptCache(file, first);
    let last = first;
    for (const [i, model] of [b, a].entries()) {
      const { cache } = await mx.lm.loadPromptCache(file, model);
      assertEquals(cache.tokens, first.tokens);
      file = `${at.path}/${i + 1}.safetensors`;
      await mx.lm.savePromptCache(file, cache);
      if (last !== first) last.dispose();
      last = cache;
    }
    const read = (cache: mx.lm.KvCache): number[] => {
      using rows = cache.read(1, "values");
      using floats = rows.astype(mx.float32);
      return [...floats.toTypedArray() as Float32Array];
    };
    assert(nmse(Float32Array.from(read(last)), read(first)) < 1e-6); // float16 on the CPU
    last.dispose();
  });
}

Deno.test("caches of other models and damaged files are refused before anything is allocated", async () => {
  using at = folder();
  using files = await smallModel();
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: ANY });
  using _model = model;
  using cache = model.makeCache();
  const good = `${at.path}/good.safetensors`;
  await mx.lm.generate(model, tokenizer, [...IDS], { cache, maxTokens: 3 });
  await mx.lm.savePromptCache(good, cache, { metadata: { note: "x" } });
  const alive = mx.withDevice(ANY, getBackend).liveObjects();

  const arrays = (): Record<string, mx.Tensor> => mx.loadSafetensors(good);
  const { format: _format, ...metadata } = { format: "", ...mx.safetensorsMetadata(good) };
  const wrong = `${at.path}/wrong.safetensors`;
  const write = (change: (a: Record<string, mx.Tensor>, m: Record<string, string>) => void): void =>
    mx.tidy(() => {
      const [a, m] = [arrays(), { ...metadata }];
      change(a, m);
      mx.saveSafetensors(wrong, a, m);
    });
  /** The cache as rings with keep, max_size and _idx, after a number of tokens. */
  const ring = (numbers: readonly number[], count = t, more = 0): void =>
    write((a, m) => {
      for (const layer of [0, 1]) {
        m[`1.${layer}`] = "RotatingKVCache";
        const [keep, size, next] = numbers;
        [count, keep, size + more * layer, next].forEach((number, i) =>
          a[`${layer}.${2 + i}`] = mx.array(number, mx.int32)
        );
      }
      delete a["2.tokens"];
    });
  /** A quantized cache of mlx-lm with a change. */
  const coded = (change: (a: Record<string, mx.Tensor>, m: Record<string, string>) => void): void =>
    mx.tidy(() => {
      const { format: _format, ...m } = { format: "", ...mx.safetensorsMetadata(cacheFile("8bit")) };
      const a = mx.loadSafetensors(cacheFile("8bit"));
      change(a, m);
      mx.saveSafetensors(wrong, a, m);
    });
  const own = (change: (own: { version: number; model: Record<string, string> }) => void): void =>
    write((_, m) => {
      const value = JSON.parse(m["0.vkmx"]);
      change(value);
      m["0.vkmx"] = JSON.stringify(value);
    });
  const [b, h, t, d] = cache.shapeOf(0, "keys");
  const zeros = (shape: number[]): mx.Tensor => mx.zeros(shape);
  const cases: readonly (readonly [() => void, string])[] = [
    [() =>
      write((_, m) => {
        for (const name in m) delete m[name];
      }), "is no prompt cache: its metadata name no caches"],
    [() => write((_, m) => m["1.1"] = "ChunkedKVCache"), 'holds a "ChunkedKVCache" of mlx-lm'],
    [() => write((_, m) => m["1.1"] = "ArraysCache"), "layer 1 is ArraysCache, that of this one is KVCache"],
    [() => write((_, m) => m["1.1"] = "RotatingKVCache"), 'lacks the array "1.3"'],
    [() => ring([0, 16, 0]), `has a ring of ${t} rows with keep 0, max_size 16 and _idx 0`],
    [() => ring([4, 3, t]), `has a ring of ${t} rows with keep 4, max_size 3 and _idx ${t}`],
    [() => ring([4, 50, 3], t + 9), `has a ring of ${t} rows with keep 4, max_size 50 and _idx 3`],
    [() => ring([0, 50, t + 1]), `has a ring of ${t} rows with keep 0, max_size 50 and _idx ${t + 1}`],
    [
      () => ring([0, t, t - 9], t + 9),
      `the first 0 and the last ${t} of ${t + 9} positions of layer 0, which sees all`,
    ],
    [() => ring([3, t, t - 9], t + 9), "keeps the first 3 positions: only 4 are read"],
    [() => ring([4, t, t - 9], t + 9, 1), "has layers that keep different positions"],
    [() => coded((_, m) => m["1.1"] = "KVCache"), 'lacks the array "1.0"'],
    [
      () => coded((a) => a["1.4"] = mx.array(5, mx.int32)),
      "has keys and values of 5 bits in groups of 32; known are 2,4,8",
    ],
    [() => coded((a) => a["1.3"] = mx.array(16, mx.int32)), "has keys and values of 8 bits in groups of 16"],
    [() => coded((a) => a["1.0.0"] = zeros([b, h, 256, 8])), 'the array "1.0.0" is float32, expected uint32'],
    [
      () => coded((a) => a["1.1.2"] = zeros([b, h, 256, 2])),
      'the array "1.1.2" is float32 (1,1,256,2), expected floats (1,1,256,1)',
    ],
    [
      () => coded((a) => a["1.4"] = mx.array(4, mx.int32)),
      'the array "1.0.1" is float32 (1,1,256,1), expected floats (1,1,256,2)',
    ],
    [() => write((_, m) => delete m["1.1"]), "is of another model: it has 1 layers, this one 2"],
    [() => write((a) => delete a["1.1"]), 'lacks the array "1.1"'],
    [
      () => write((a) => a["1.1"] = zeros([b, h, t, d + 2])),
      `the array "1.1" is (1,1,${t},34), expected (1,1,${t},32)`,
    ],
    [
      () => write((a) => a["0.1"] = zeros([b, h + 1, t, d])),
      `the array "0.1" is (1,2,${t},32), expected (1,1,${t},32)`,
    ],
    [() => write((a) => a["0.0"] = zeros([b, h, t])), 'the array "0.0" is '],
    [() =>
      write((a) => {
        for (const n of ["0.0", "0.1", "1.0", "1.1"]) a[n] = zeros([0, h, t, d]);
      }), "is of another model"],
    [() => write((a) => a["0.1"] = mx.zeros([b, h, t, d], mx.int32)), 'the array "0.1" is int32, expected floats'],
    [() => write((a) => a["1.2"] = mx.array(NaN, mx.float32)), 'a number of tokens "1.2" that is no single int32'],
    [() => write((a) => a["1.2"] = mx.array([t, t], mx.int32)), 'a number of tokens "1.2" that is no single int32'],
    [() => write((a) => a["1.2"] = mx.array(t + 1, mx.int32)), `has layers of ${t} and of ${t + 1} tokens`],
    [() =>
      write((a) => {
        a["0.2"] = a["1.2"] = mx.array(-1, mx.int32);
      }), "says that it holds -1 tokens"],
    [() =>
      write((a) => {
        a["0.2"] = a["1.2"] = mx.array(2 ** 31 - 1, mx.int32);
      }), "says that it holds 2147483647 tokens"],
    [() => write((a) => delete a["0.2"]), "has the number of tokens of some layers only"],
    [() => write((a) => a["2.tokens"] = mx.zeros([3], mx.int32)), 'has ids "2.tokens" that are not'],
    [() => write((_, m) => m["0.vkmx"] = "{"), "has metadata vkmx that are no JSON"],
    [() => write((_, m) => m["0.vkmx"] = "null"), "has version"],
    [() => own((o) => o.version = 2), "has version 2 of a prompt cache: known is 1"],
    [() => own((o) => o.model.ropeTheta = "10000"), "is of another model: its ropeTheta is 10000, this one's"],
    [() => own((o) => delete o.model.hiddenSize), "is of another model: its hiddenSize is not set, this one's 64"],
    [() => own((o) => o.model.more = "\x1b[31m"), "is of another model: its more is \\u001b[31m, this one has none"],
    [() => Deno.writeFileSync(wrong, Deno.readFileSync(good).subarray(0, 5000)), "cut off"],
    [() => Deno.writeTextFileSync(wrong, "GGUF and more than that"), "is no safetensors file"],
  ];
  for (const [make, message] of cases) {
    make();
    await refused(wrong, model, message);
  }
  write((a) => a["2.tokens"] = mx.array(Array.from({ length: t }, () => 4096), mx.int32));
  await refused(wrong, model, "has token id 4096", "tokenizer");
  await refused(`${at.path}/none.safetensors`, model, "does not exist");
  const wide = 2 ** 20; // rows that the context has no room for, in a file that is nearly all hole
  const header = new TextEncoder().encode(JSON.stringify({
    __metadata__: { "2.0": "", "1.0": "KVCache", "1.1": "KVCache", "0.note": "" },
    ...Object.fromEntries(["0.0", "0.1", "1.0", "1.1"].map((name, i) => [name, {
      dtype: "F32",
      shape: [b, h, wide, d],
      data_offsets: [i * wide * h * d * 4, (i + 1) * wide * h * d * 4],
    }])),
  }));
  using sparse = Deno.openSync(wrong, { write: true, create: true, truncate: true });
  sparse.writeSync(Uint8Array.from([header.length & 255, header.length >> 8, 0, 0, 0, 0, 0, 0]));
  sparse.writeSync(header);
  sparse.truncateSync(8 + header.length + 4 * wide * h * d * 4);
  await refused(wrong, model, `The cache has ${wide} rows and the model's context holds`, "context");
  assertEquals(mx.withDevice(ANY, getBackend).liveObjects(), alive);

  await assertRejects(() => mx.lm.savePromptCache(wrong, model.makeCache()), mx.lm.LlmError, "holds no tokens");
  await assertRejects(
    () => mx.lm.savePromptCache(`${at.path}/no/where.safetensors`, cache),
    mx.ArrayError,
    "cannot be written",
  );
  const tokens = { tokens: [1, 2] };
  await assertRejects(() => mx.lm.loadPromptCache(good, model, tokens), mx.lm.LlmError, "tokens has 2 ids");
  const metadataOf = (value: unknown): { metadata: Record<string, string> } => ({ metadata: { a: value as string } });
  await assertRejects(() => mx.lm.savePromptCache(wrong, cache, metadataOf(1)), mx.lm.LlmError, 'metadata has "a"');
  const save = (options: object): Promise<void> => mx.lm.savePromptCache(wrong, cache, options);
  await assertRejects(() => save({ kvBits: 3 }), mx.lm.LlmError, "kvBits is 3, expected 4 or 8");
  await assertRejects(() => save({ kvBits: 4, kvGroupSize: 48 }), mx.lm.LlmError, "kvGroupSize is 48, expected 32, 64");
  await assertRejects(() => save({ kvBits: 4 }), mx.lm.LlmError, "kvGroupSize 64 does not divide heads of 32 features");
});
