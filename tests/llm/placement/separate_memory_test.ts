/**
 * Experts in the memory of the host beside that of a device: what stays there without a limit, accounts of a server, and errors. Devices of
 * these tests report such memory, whatever they have.
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { inHostMemory } from "../../../src/array/devices/on_device.ts";
import type { Room } from "../../../src/server/models.ts";
import { openModel, type OpenOptions } from "../../../src/server/open.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hostMemoryOf, withMemory } from "../../support/devices/host_memory.ts";
import { checkpointOf } from "../../support/models/changed_checkpoints.ts";
import { PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";
import { TestServer } from "../../support/server/served.ts";

const OTHER = "wasm-threads=1";
for (const name of [...testDevices(), OTHER]) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const device = testDevices().find((name) => name !== "wasm");

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
const nbytesOf = (tensors: readonly mx.Tensor[]): number => sum(tensors.map(({ nbytes }) => nbytes));

/** A model in a folder. */
interface Files {
  readonly folder: string;
  readonly path: string;
  /** Bytes of the experts of its layers, and of all weights. */
  readonly layers: readonly number[];
  readonly all: number;
  /** Bytes of a short context, for which there must be room. */
  readonly cache: number;
}

/** Runs a test with a model, on a device that reports such memory. All memory is free after it. */
function test(name: string, run: (files: Files, device: string) => Promise<void>): void {
  if (device === undefined) return;
  Deno.test(`memory of the host: ${name}, on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const folder = await Deno.makeTempDir();
    try {
      const path = `${folder}/model`;
      await writeCheckpoint(path, checkpointOf("Qwen3-MoE with a dense layer, 4 bits"));
      const { active } = getBackend(device).memory();
      const { model } = await mx.lm.load(path, { device });
      const { first, layers, last, experts } = decodingModel(model).sections;
      const files = {
        folder,
        path,
        layers: experts.map(nbytesOf).filter((bytes) => bytes > 0),
        all: nbytesOf([...new Set([first, layers.flat(), last].flat())]),
        cache: model.makeCache().byteLength(256),
      };
      model[Symbol.dispose]();
      await run(files, device);
      const { active: left, hostActive } = getBackend(device).memory();
      assertEquals([left, hostActive], [active, 0]);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

test("what does not fit stays there, with a line", async ({ path, layers, all, cache }, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  const notes: string[] = [];
  const loaded = await mx.lm.load(path, { device, memoryBytes: all + cache - 1, onNote: (line) => notes.push(line) });
  assertEquals(loaded.hostBytes, layers.at(-1));
  assertEquals(notes.length, 1);
  assertMatch(notes[0], /: the experts of layers? [\d, to]+ stay in host memory, .*; tokens take longer for that$/);
  loaded.model[Symbol.dispose]();
});

test("errors say what lacks, and what to do", async ({ path, layers, all, cache }, device) => {
  const experts = sum(layers);
  const least = all - experts;
  const cases: readonly (readonly [free: number, mx.lm.LoadOptions, RegExp])[] = [
    [
      experts / 2,
      { device, memoryBytes: least + cache },
      /must stay in host memory, .* may take .* of the .*: take a smaller/,
    ],
    [
      1e9,
      { device, memoryBytes: least + cache, hostMemoryBytes: 1 },
      /may take 0 bytes of the 1 bytes that .*: take a smaller/,
    ],
    [0, { device, weightBytes: least }, /must stay in host memory, .*: allow more weightBytes, or take a smaller/],
    [1e9, { device, memoryBytes: least + cache, weightBytes: all - 1 }, /: allow fewer weightBytes, or take a smaller/],
    [1e9, { device, memoryBytes: 1000 }, /has only 1\.00 kB free for .* that can be nowhere else: take a smaller/],
    [
      0,
      { devices: [device, OTHER], split: [2, 1], weightBytes: 1 },
      /are no experts, and weightBytes \(--weight-bytes\)/,
    ],
  ];
  for (const [free, options, message] of cases) {
    using _memory = withMemory(device, () => hostMemoryOf(free));
    const error = await assertRejects(() => mx.lm.load(path, options), mx.lm.LlmError);
    assertMatch(error.message, message);
  }
});

test("devices share it, and those that need none take no part of it", async ({ path }, device) => {
  const options = { devices: [device, OTHER], split: [2, 1] };
  const { model, parts } = await mx.lm.load(path, options);
  const weightBytes = parts[0].bytes - 1;
  model[Symbol.dispose]();
  let kept = 0;
  for (const isEnough of [true, false]) {
    using _memory = withMemory(device, () => hostMemoryOf(isEnough ? 1e9 : kept)); // all of it: weights may take three quarters
    const load = (): Promise<mx.lm.Loaded> => mx.lm.load(path, { ...options, weightBytes });
    if (isEnough) {
      const loaded = await load();
      kept = loaded.hostBytes;
      assert(kept > 0);
      loaded.model[Symbol.dispose]();
      using _just = withMemory(device, () => hostMemoryOf(Math.ceil(kept / 0.75)));
      (await load()).model[Symbol.dispose]();
    } else await assertRejects(load, mx.lm.LlmError, "What lacks: the experts of layer");
  }
});

test("trained experts take the place of those there", async ({ folder, path, all }, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  const whole = await mx.lm.load(path, { device });
  const own = mx.utils.treeFlatten(whole.model.parameters(), "", null, {}) as Record<string, mx.Tensor>;
  const trained = Object.entries(own).filter(([name]) => /switch_mlp/.test(name));
  await Deno.mkdir(`${folder}/trained`);
  mx.saveSafetensors(`${folder}/trained/adapters.safetensors`, Object.fromEntries(trained));
  const config = { fine_tune_type: "full", num_layers: -1 };
  await Deno.writeTextFile(`${folder}/trained/adapter_config.json`, JSON.stringify(config));
  whole.model[Symbol.dispose]();
  const found: unknown[] = [];
  for (const adapterPath of [undefined, `${folder}/trained`]) {
    const { active } = getBackend(device).memory();
    const options = { device, weightBytes: all - 1, ...(adapterPath !== undefined && { adapterPath }) };
    const loaded = await mx.lm.load(path, options);
    const logits = mx.tidy(() => loaded.model.forward(mx.array([[...PROMPTS[0]]], mx.int32)).tolist());
    const { active: after, hostActive } = getBackend(device).memory();
    assert(loaded.hostBytes > 0);
    found.push([loaded.hostBytes, hostActive, after - active, logits]);
    loaded.model[Symbol.dispose]();
  }
  assertEquals(found[1], found[0]);
});

const ENGINE = { maxSequences: 2, contextSize: 256 };
const KV_BYTES = 1e7;

/** What a server has of a model that it opens and ends. */
async function accountOf(path: string, room: Partial<Room>, options: OpenOptions): Promise<readonly [number, number]> {
  const whole = { bytes: Infinity, models: 1, isAll: true, ...room };
  const { bytes, hostBytes, engine, model, draft } = await openModel("m", path, whole, {
    kvBytes: KV_BYTES,
    engine: ENGINE,
    ...options,
  });
  const account = [bytes - engine.metrics.kvBytes, hostBytes] as const;
  await engine[Symbol.asyncDispose]();
  for (const one of [draft, model]) one?.[Symbol.dispose]();
  return account;
}

test("a server counts what is there, on each device and also when none is left", async ({ path, layers }, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  const [parameters] = await accountOf(path, {}, { load: { device } });
  const weightBytes = parameters - layers.at(-1)!;
  const limited = await accountOf(path, {}, { load: { device, weightBytes } });
  assert(limited[1] >= layers.at(-1)!);
  assertEquals(limited[0] + limited[1], parameters);
  const free = Math.ceil(limited[1] / 0.75);
  {
    using _full = withMemory(device, ({ hostActive }) => hostMemoryOf(hostActive > 0 ? 0 : free));
    assertEquals(await accountOf(path, {}, { load: { device, weightBytes } }), limited);
  }
  for (const devices of [[device, OTHER], [OTHER, device]]) {
    const { model, parts } = await mx.lm.load(path, { devices });
    const weightBytes = parts.find((part) => part.device === device)!.bytes - 1;
    model[Symbol.dispose]();
    const [here, there] = await accountOf(path, {}, { load: { devices, weightBytes } });
    assert(there > 0, `${devices}`);
    assertEquals(here + there, parameters);
  }
});

test("a server leaves experts there only if no other model is loaded", async ({ path, layers, cache }, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  const [parameters] = await accountOf(path, {}, { load: { device } });
  const bytes = KV_BYTES + 2 * parameters + cache - layers.at(-1)!; // a part of the second of two models has no room
  const options = { load: { device }, draft: path };
  const [here, there] = await accountOf(path, { bytes }, options);
  assert(there > 0);
  assertEquals(here + there, 2 * parameters);
  const isAll = false;
  await assertRejects(() => accountOf(path, { bytes, isAll }, options), mx.lm.LlmError, "take a smaller");
  const small = KV_BYTES + parameters + cache - 1;
  await assertRejects(
    () => accountOf(path, { bytes: small, isAll }, { load: { device } }),
    mx.lm.LlmError,
    "take a smaller",
  );
});

test("metrics and Ollama's list tell of it", async ({ path, all }, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  await using server = await TestServer.start({
    engines: {
      m: () => {
        throw new Error("it is opened");
      },
    },
    describe: () => mx.lm.inspect(path),
    open: (id) =>
      openModel(id, path, { bytes: Infinity, models: 1, isAll: true }, {
        kvBytes: KV_BYTES,
        engine: ENGINE,
        load: { device, weightBytes: all - 1 },
      }),
  });
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const bytes = Number(/^vkmx_host_weight_bytes\{model="m"\} (\d+)$/m.exec(metrics)![1]);
  const { models: [{ size, size_vram }] } = await (await fetch(`${server.url}/api/ps`)).json();
  assert(bytes > 0);
  assertEquals(size - size_vram, bytes);
});

test("a limit of memory is of the device's", async (_, device) => {
  using _memory = withMemory(device, () => hostMemoryOf(1e9));
  const backend = getBackend(device);
  const synchronize = backend.synchronize.bind(backend);
  let waits = 0;
  Object.defineProperty(backend, "synchronize", { configurable: true, value: () => (waits++, synchronize()) });
  const before = mx.setMemoryLimit(backend.memory().active + 2 ** 20);
  try {
    for (const isHost of [true, false]) {
      const make = (): mx.Tensor => mx.ones([2 ** 19]);
      const array = make();
      if (isHost) inHostMemory(() => mx.eval(array));
      else mx.eval(array);
      waits = 0;
      mx.tidy(() => mx.eval(mx.ones([4])));
      assertEquals(waits > 0, !isHost);
      array.dispose();
    }
  } finally {
    mx.setMemoryLimit(before);
    Reflect.deleteProperty(backend, "synchronize");
  }
  await Promise.resolve();
});
