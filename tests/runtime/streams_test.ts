/**
 * Streams. Whatever streams a graph runs on, its values are those of one stream, bit for bit. Also scopes, waiting,
 * failures in between, and arrays of two devices in one graph.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { liveObjects } from "../../ffi/vulkan.ts";
import { drawSome } from "../support/draw_cases.ts";
import { testDevices } from "../support/devices/devices.ts";
import { withOptions } from "../../scripts/support/options.ts";

/** Numbers from 0 to 1, the same for the same seed. */
function draws(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Each draws a graph; software Vulkan compiles the pipelines of every one. */
const SEEDS = Array.from({ length: 24 }, (_, i) => i + 1);

const OPS: readonly ((a: mx.Tensor, b: mx.Tensor) => mx.Tensor)[] = [
  (a, b) => mx.add(a, b),
  (a, b) => mx.subtract(a, mx.multiply(b, 0.5)),
  (a, b) => mx.maximum(mx.sin(a), b),
  (a, b) => mx.multiply(mx.matmul(a, b), 0.125),
  (a, b) => mx.add(mx.softmax(a, -1), b.T),
  (a, b) => mx.add(mx.sum(a, 0, true), b),
  (a, b) => mx.subtract(mx.cumsum(a, 1), b),
];

/** A drawn program over `streams`; the values that it ends with. It evaluates and lets go in between. */
async function program(seed: number, streams: readonly mx.Stream[], size: number): Promise<number[][][]> {
  const draw = draws(seed);
  const pick = (n: number): number => Math.floor(draw() * n);
  const evaluations: Promise<void>[] = [];
  return await mx.tidy(async () => {
    const values = Array.from({ length: 24 }, () => draw() - 0.5);
    const live: mx.Tensor[] = [0, 1, 2].map((i) =>
      mx.multiply(mx.reshape(mx.arange(size * size), [size, size]), values[i] / (size * size))
    );
    for (let i = 0; i < 40; i++) {
      const [a, b] = [live[pick(live.length)], live[pick(live.length)]];
      const [op, where] = [OPS[pick(OPS.length)], streams[pick(4) % streams.length]];
      const y = mx.stream(where, () => mx.clip(op(a, b), -4, 4));
      live.push(y);
      const step = draw();
      if (step < 0.1) mx.eval(y);
      else if (step < 0.3) evaluations.push(mx.asyncEval(y));
      else if (step < 0.4) mx.dispose(live.splice(pick(live.length - 1), 1));
    }
    mx.eval(live);
    await Promise.all(evaluations);
    return live.map((x) => x.tolist() as number[][]);
  });
}

for (const device of testDevices()) {
  const fresh = (count: number): mx.Stream[] => Array.from({ length: count }, () => mx.newStream(device));

  Deno.test(`drawn graphs over streams equal those of one stream on ${device}`, async () => {
    mx.setDefaultDevice(device);
    for (const seed of drawSome(device, "graphs over streams", SEEDS, 2)) {
      const size = seed % 3 === 0 ? 33 : 8;
      const one = await program(seed, [mx.defaultStream(device)], size);
      for (const count of [2, 3, 4]) {
        const streams = [mx.defaultStream(device), ...fresh(count - 1)];
        assertEquals(await program(seed, streams, size), one, `seed ${seed}, ${count} streams`);
      }
    }
    mx.clearStreams();
  });

  Deno.test(`memory that one stream freed serves another after its last use on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const [one, other] = fresh(2);
    const evaluations: Promise<void>[] = [];
    const sums: mx.Tensor[] = [];
    for (let round = 0; round < 40; round++) {
      mx.stream(round % 2 ? one : other, () => {
        const x = mx.add(mx.zeros([64, 1024]), round);
        const y = mx.matmul(x, mx.ones([1024, 16]));
        sums.push(mx.sum(y));
        evaluations.push(mx.asyncEval(x, y), mx.asyncEval(sums.at(-1)));
        mx.dispose([x, y]);
      });
    }
    await Promise.all(evaluations);
    assertEquals(sums.map((s) => s.item()), sums.map((_, round) => round * 1024 * 64 * 16));
    mx.dispose(sums);
    mx.clearStreams();
  });

  Deno.test(`a graph that fails on one stream leaves the others and can go on on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [one, other] = fresh(2);
    const path = Deno.makeTempFileSync({ suffix: ".safetensors" });
    mx.saveSafetensors(path, { w: mx.ones([4]) });
    const { w } = mx.loadSafetensors(path);
    const a = mx.stream(one, () => mx.add(mx.ones([4]), 1));
    const b = mx.stream(other, () => mx.multiply(a, w));
    const c = mx.stream(one, () => mx.add(a, b));
    const bytes = Deno.readFileSync(path);
    Deno.removeSync(path);
    for (let i = 0; i < 3; i++) assertThrows(() => mx.eval(c), mx.ArrayError);
    assertEquals(a.tolist(), [2, 2, 2, 2]);
    assertEquals(mx.stream(other, () => mx.add(a, 1)).tolist(), [3, 3, 3, 3]);
    assertEquals(mx.stream(one, () => mx.exp(mx.zeros([1]))).tolist(), [1]);
    assert(bytes.length > 0);
    mx.synchronize();
    mx.clearStreams();
  });

  Deno.test(`scopes decide streams and the default device on ${device}`, () => {
    mx.setDefaultDevice(device);
    const side = mx.newStream(device);
    assert(mx.defaultStream(device) === mx.defaultStream());
    assert(!side.equals(mx.defaultStream(device)) && side.equals(side));
    assert(side.device.equals(device) && side.index > 0);
    {
      using scope = mx.stream(side);
      assert(scope.stream === side && mx.defaultStream() === side);
      mx.stream(mx.cpu, () => assertEquals(mx.defaultDevice(), "wasm"));
      assertThrows(() => mx.stream("wasm", () => mx.reshape(mx.ones([2]), [3])));
      assert(mx.defaultStream() === side);
      assertEquals(mx.add(mx.ones([2]), 1).tolist(), [2, 2]);
    }
    assertEquals(mx.defaultDevice(), device);
    assertEquals(mx.defaultStream().index, 0);
    mx.setDefaultStream(side);
    assert(mx.defaultStream(device) === side);
    assertEquals(mx.exp(mx.zeros([1])).tolist(), [1]);
    mx.clearStreams();
    assertEquals([mx.defaultStream(device).index, mx.defaultStream("wasm").index], [0, 0]);
    assertThrows(() => mx.stream("vulkan:99"), mx.RuntimeError);
    assertEquals(mx.newThreadLocalStream(device).device.name, device);
    assertEquals(mx.newThreadUnsafeStream(device).deviceName, device);
    mx.clearStreams();
  });

  Deno.test(`who submits on two streams without waiting holds little on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const streams = fresh(2);
    const before = mx.getActiveMemory();
    mx.resetPeakMemory();
    const evaluations: Promise<void>[] = [];
    for (let i = 0; i < 400; i++) {
      const x = mx.stream(streams[i % 2], () => mx.add(mx.zeros([1 << 18]), i));
      evaluations.push(mx.asyncEval(x));
      mx.dispose(x);
    }
    assert(mx.getPeakMemory() - before < 80e6, `${mx.getPeakMemory() - before} bytes`);
    await Promise.all(evaluations);
    for (const stream of streams) mx.synchronize(stream);
    mx.clearStreams();
  });

  Deno.test(`compiled functions run on the stream of the scope on ${device}`, () => {
    mx.setDefaultDevice(device);
    const f = mx.compile((x: mx.Tensor) => mx.add(mx.exp(x), x));
    const x = mx.ones([5]), wanted = mx.add(mx.exp(x), x).tolist();
    for (const stream of [...fresh(3), mx.defaultStream(device)]) {
      assertEquals(mx.stream(stream, () => f(x)).tolist(), wanted);
    }
    f[Symbol.dispose]?.();
    mx.clearStreams();
  });
}

const [gpu] = testDevices().filter((name) => name.startsWith("vulkan"));
Deno.test({ name: "ops on the CPU read arrays of a GPU, and the other way round", ignore: !gpu }, async () => {
  mx.setDefaultDevice(gpu);
  const x = mx.add(mx.ones([3, 2]), 1);
  mx.eval(x);
  const { fallbacks } = await mx.profile(() => mx.eval(mx.stream(mx.cpu, () => mx.add(x.T, 1))), { timed: false });
  assert(fallbacks.some((line) => line.includes(`copied from ${gpu} to wasm`)), fallbacks.join("; "));
  const y = mx.stream(mx.cpu, () => mx.add(x.T, 1)); // [2, 3] of threes
  assertEquals(mx.multiply(y.T, x).tolist(), [[6, 6], [6, 6], [6, 6]]);
  {
    using _options = withOptions({ env: { VKMX_STRICT: "1" } });
    assertThrows(() => mx.eval(mx.multiply(y.T, x)), mx.ValueError, "VKMX_STRICT");
  }
  assertEquals(mx.add(y, 1).to("wasm").tolist(), [[4, 4, 4], [4, 4, 4]]);
  const there = x.to("wasm");
  assertThrows(() => mx.eval(mx.add(there, x)), mx.ValueError, "x.to(device)");
  assertEquals(mx.stream(mx.cpu, () => mx.add(there, x)).tolist(), [[4, 4], [4, 4], [4, 4]]);
  assertEquals(mx.withDevice("wasm", () => mx.add(there, 1)).tolist(), [[3, 3], [3, 3], [3, 3]]);
  mx.clearStreams();
});

Deno.test({ name: "streams go with their device", ignore: !gpu }, () => {
  mx.setDefaultDevice(gpu);
  const x = mx.stream(mx.newStream(gpu), () => mx.exp(mx.ones([4])));
  mx.eval(x);
  mx.closeDevices();
  assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
  assertEquals(mx.stream(mx.newStream(gpu), () => mx.add(mx.ones([1]), 1)).tolist(), [2]);
});

Deno.test("devices have kinds, numbers and facts", () => {
  const cpu = new mx.Device(mx.cpu);
  assertEquals([`${cpu}`, cpu.name, cpu.type, cpu.index], ["Device(cpu, 0)", "wasm", "cpu", 0]);
  assert(cpu.equals("wasm") && cpu.equals(mx.cpu) && cpu.equals(new mx.Device(mx.DeviceType.cpu)));
  assertEquals(mx.deviceCount(mx.cpu), 1);
  assert(mx.isAvailable(mx.cpu) && !mx.isAvailable(new mx.Device(mx.gpu, 99)));
  assertEquals(mx.isAvailable(mx.gpu), mx.deviceCount(mx.gpu) > 0);
  mx.setDefaultDevice(cpu);
  assertEquals(mx.defaultDevice(), "wasm");
  assertEquals(mx.deviceInfo().architecture, "wasm");
  assert(mx.deviceInfo(mx.cpu).deviceName.length > 0);
  assertThrows(() => new mx.Device("tpu" as "cpu"), mx.ValueError, "tpu");
  assertEquals([mx.metal.isAvailable(), mx.cuda.isAvailable()], [false, false]);
});

Deno.test("distributed computing is of one process", () => {
  const group = mx.distributed.init();
  assertEquals([group.size(), group.rank(), mx.distributed.isAvailable("ring")], [1, 0, false]);
  const x = mx.array([1, 2]);
  const { allSum, allMax, allMin, allGather, sumScatter } = mx.distributed;
  for (const op of [allSum, allMax, allMin, allGather, sumScatter]) assertEquals(op(x, { group }).tolist(), [1, 2]);
  assertThrows(() => mx.distributed.send(x, 0), mx.ValueError);
  assertThrows(() => mx.distributed.recv([2], mx.float32, 0), mx.ValueError);
  assertThrows(() => mx.distributed.recvLike(x, 0), mx.ValueError);
  assertThrows(() => group.split(0), mx.RuntimeError);
  assertThrows(() => mx.distributed.init({ strict: true, backend: "ring" }), mx.RuntimeError);
  assertThrows(() => mx.distributed.init({ backend: "smoke" }), mx.ValueError, "smoke");
  assertThrows(
    () => allSum(x, { group: 2 as never }),
    mx.ValueError,
    "expected a group of distributed.init(): found 2",
  );
  assertThrows(() => mx.distributed.init({ timeout: 0 }), mx.ValueError, "timeout");
  assertThrows(() => mx.distributed.init({ stric: true } as never), mx.ValueError, 'did you mean "strict"');
});

for (const device of testDevices()) {
  Deno.test(`limits of memory on ${device}`, () => {
    mx.setDefaultDevice(device);
    const cache = mx.setCacheLimit(0);
    const a = mx.zeros([1 << 23]); // memory of its own
    mx.eval(a);
    const active = mx.getActiveMemory();
    a.dispose();
    mx.synchronize();
    assertEquals([mx.getCacheMemory(), mx.setCacheLimit(cache)], [0, 0]);
    assertEquals(mx.setCacheLimit(cache), cache);
    const b = mx.zeros([1 << 23]);
    mx.eval(b);
    assertEquals(mx.getActiveMemory(), active);
    b.dispose();
    mx.synchronize();
    if (device !== "wasm") assert(mx.getCacheMemory() >= 4 << 23, "what is freed is kept for reuse");
    mx.clearCache();
    assertEquals(mx.getCacheMemory(), 0);
    const memory = mx.setMemoryLimit(10);
    assertEquals(mx.add(mx.ones([1000]), 1).tolist()[999], 2);
    assertEquals([mx.setMemoryLimit(memory), mx.setMemoryLimit(memory)], [10, memory]);
    assertEquals([mx.setWiredLimit(1000), mx.setWiredLimit(0)], [0, 1000]);
    assertThrows(() => mx.setWiredLimit(2 ** 52), mx.ValueError);
    assertThrows(() => mx.setCacheLimit(-1), mx.ValueError);
    mx.resetPeakMemory();
    assertEquals(mx.getPeakMemory(), 0);
  });
}

Deno.test("a graph is text for Graphviz", () => {
  let text = "";
  const y = mx.exp(mx.add(mx.ones([2]), 1));
  mx.exportToDot({ write: (part) => text += part }, y);
  assert(text.startsWith("digraph {") && text.includes("elementwise exp") && text.includes(" -> "), text);
  const path = Deno.makeTempFileSync();
  mx.exportToDot(path, y);
  assertEquals(Deno.readTextFileSync(path), text);
  Deno.removeSync(path);
});
