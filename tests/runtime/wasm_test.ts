/**
 * The WASM device: allocator, Plan check, order of queued work, asynchronous slices, file reads.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { RuntimeError } from "../../ffi/error.ts";
import { instantiateWasm } from "../../ffi/wasm.ts";
import { type Backend, type BufferHandle, encodeSlots, type PlanHandle } from "../../src/backend/backend.ts";
import { DTYPE_F32, DTYPE_I32, ELEMENTWISE, KERNELS } from "../../src/backend/kernels.ts";
import { createWasmBackend } from "../../src/backend/wasm.ts";
import { type Dispatch, encodePlan, encodePush } from "../support/devices/harness.ts";

Deno.test("wasm alloc() aligns, keeps blocks apart and merges what is freed", () => {
  const runtime = instantiateWasm();
  let state = 1;
  const random = (n: number): number => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % n;
  const live: { address: number; bytes: number; mark: number }[] = [];
  let active = 0;
  for (let i = 0; i < 4000; i++) {
    if (live.length > 0 && random(5) < 2) {
      const [{ address, bytes, mark }] = live.splice(random(live.length), 1);
      const block = runtime.bytes.subarray(address, address + bytes);
      assert(block.every((b) => b === mark), "a block was overwritten");
      runtime.free(address);
      active -= bytes;
    } else {
      const bytes = 1 + (random(10) === 0 ? random(300_000) : random(5000));
      const address = runtime.alloc(bytes, "buffer");
      assert(address > 0);
      assertEquals(address % 64, 0);
      const mark = 1 + random(255);
      runtime.bytes.fill(mark, address, address + bytes);
      live.push({ address, bytes, mark });
      active += bytes;
    }
    assertEquals(runtime.memory("active"), active);
  }
  live.sort((a, b) => a.address - b.address);
  for (let i = 1; i < live.length; i++) {
    assert(live[i - 1].address + live[i - 1].bytes + 64 <= live[i].address, "64 bytes of slack follow a block");
  }
  const size = runtime.bytes.byteLength;
  for (const { address } of live) runtime.free(address);
  assertEquals(runtime.memory("active"), 0);
  // Everything has merged: one block takes nearly all of it without growth.
  const most = runtime.alloc(size - 2_000_000, "buffer");
  assert(most > 0);
  assertEquals(runtime.bytes.byteLength, size);
  assertThrows(() => runtime.free(most + 64), RuntimeError);
  runtime.free(most);
  assertThrows(() => runtime.free(most), RuntimeError);
});

Deno.test("wasm alloc() says what does not fit and goes on", () => {
  using backend = createWasmBackend();
  const small = backend.alloc(1000);
  const e = assertThrows(() => backend.alloc(2 ** 35), RuntimeError) as RuntimeError;
  assertEquals(e.code, "out-of-memory");
  assert(/34359\.7 MB.* of at most (429|1717)\d\.\d MB/.test(e.message), e.message);
  backend.free(small);
  backend.free(backend.alloc(1000));
  assertEquals(backend.memory().active, 0);
  assertEquals(backend.memory().peak, 1000);
});

Deno.test("wasm memory() promises no more than the machine has", () => {
  using backend = createWasmBackend();
  const { total, available } = backend.memory();
  assert(0 < available && available <= total && total <= Deno.systemMemoryInfo().total);
});

Deno.test("wasm buffers lie beyond 4 GiB where memory is shared", () => {
  const shared = instantiateWasm(true).shared;
  using backend = createWasmBackend(2);
  const far = [3, 2].map((gigabytes) => shared ? backend.alloc(gigabytes * 2 ** 30) : 0); // untouched pages cost nothing
  const a = filled(backend, [1, 2, 3]);
  const out = filled(backend, [10, 20, 30]);
  assertEquals(a > 2 ** 32 && out > 2 ** 32, shared);
  backend.run(plan(backend, 2, 3), encodeSlots([{ buffer: a, byteOffset: 0 }, { buffer: out, byteOffset: 0 }]));
  assertEquals(floats(backend, out, 3), [12, 24, 36]);
  const path = Deno.makeTempFileSync();
  Deno.writeFileSync(path, new Uint8Array(Float32Array.of(7, 8).buffer));
  backend.load(out, 4, path, 0, 8);
  Deno.removeSync(path);
  assertEquals(floats(backend, out, 3), [12, 7, 8]);
  for (const buffer of [a, out, ...far]) if (buffer) backend.free(buffer);
  assertEquals(backend.memory().active, 0);
});

/** The words of a Plan of out = out + a, over and over. */
function wordsOf(dispatches: number, count: number): Uint32Array {
  const spec = [64, DTYPE_F32, DTYPE_F32, 0, DTYPE_F32, 1, 1, ELEMENTWISE.add.id | 1 << 16];
  const add: Dispatch = {
    kernel: "elementwise",
    spec: KERNELS.elementwise.spec.map((_, i) => spec[i] ?? 0),
    push: encodePush("ElementwisePush", { count }),
    grid: [1, 1, 1],
    buffers: [[0, 0], [1, 0], undefined, [1, 0]],
  };
  return encodePlan(2, new Array(dispatches).fill(add));
}

function plan(backend: Backend, dispatches: number, count: number): PlanHandle {
  return backend.compile(wordsOf(dispatches, count));
}

function floats(backend: Backend, buffer: BufferHandle, count: number): number[] {
  const out = new Float32Array(count);
  backend.read(buffer, 0, new Uint8Array(out.buffer));
  return Array.from(out);
}

function filled(backend: Backend, values: number[]): BufferHandle {
  const buffer = backend.alloc(values.length * 4);
  backend.write(buffer, 0, new Uint8Array(Float32Array.from(values).buffer));
  return buffer;
}

Deno.test("wasm run() keeps writes, runs and frees in order", () => {
  using backend = createWasmBackend();
  const a = filled(backend, [1, 2]);
  const out = filled(backend, [0, 0]);
  const p = plan(backend, 3, 2);
  const slots = encodeSlots([{ buffer: a, byteOffset: 0 }, { buffer: out, byteOffset: 0 }]);
  backend.run(p, slots);
  const bytes = new Uint8Array(Float32Array.of(10, 20).buffer);
  backend.write(a, 0, bytes); // the first run must still see 1, 2
  bytes.fill(0); // and the write what the bytes were
  backend.run(p, slots);
  backend.free(a);
  backend.release(p);
  assertEquals(backend.memory().active, 16);
  assertEquals(floats(backend, out, 2), [33, 66]);
  assertEquals(backend.memory().active, 8);
  backend.free(out);
  assertEquals(backend.liveObjects(), { buffers: 0, plans: 0 });
});

Deno.test("wasm waitAsync() lets the event loop turn", async () => {
  using backend = createWasmBackend();
  const n = 1 << 18;
  const a = filled(backend, new Array(n).fill(1));
  const out = filled(backend, new Array(n).fill(0));
  const p = plan(backend, 400, n);
  const slots = encodeSlots([{ buffer: a, byteOffset: 0 }, { buffer: out, byteOffset: 0 }]);
  let turns = 0;
  let over = false;
  const count = (): void => {
    turns++;
    if (!over) setImmediate(count);
  };
  setImmediate(count);
  const first = backend.waitAsync(backend.run(p, slots));
  const second = backend.waitAsync(backend.run(p, slots));
  await Promise.all([first, second]);
  over = true;
  await new Promise<void>((resolve) => setImmediate(resolve));
  assert(turns >= 3, `${turns} turns`);
  assertEquals(new Set(floats(backend, out, n)), new Set([800]));
  // A synchronous wait takes over what an asynchronous one has begun.
  const pending = backend.waitAsync(backend.run(p, slots));
  assertEquals(new Set(floats(backend, out, n)), new Set([1200]));
  await pending;
});

Deno.test("wasm profile() times single dispatches", () => {
  using backend = createWasmBackend();
  const a = filled(backend, [1]);
  const p = plan(backend, 5, 1);
  const slots = encodeSlots([{ buffer: a, byteOffset: 0 }, { buffer: a, byteOffset: 0 }]);
  backend.wait(backend.run(p, slots));
  assertEquals(backend.profileRead(p).length, 0);
  backend.profile(true);
  backend.wait(backend.run(p, slots));
  assertEquals(backend.profileRead(p).length, 5);
  assert(backend.profileRead(p).every((ns) => ns >= 0));
});

Deno.test("wasm compile() refuses a malformed Plan and says where", () => {
  using backend = createWasmBackend();
  const good: Dispatch = {
    kernel: "arange",
    spec: [64, DTYPE_I32],
    push: encodePush("ArangePush", { count: 1 }),
    grid: [1, 1, 1],
    buffers: [[0, 0]],
  };
  const words = encodePlan(1, [good, good]);
  const second = 4 + (words.length - 4) / 2;
  const change = (at: number, value: number): Uint32Array => words.with(at, value);
  const cases: [Uint32Array, RegExp][] = [
    [new Uint32Array(0), /header/],
    [change(0, 1), /header/],
    [change(3, words.length + 1), /header/],
    [change(2, 3).with(3, words.length), /dispatch 2: .*early/],
    [change(2, 1), /left over/],
    [change(4, 1000), /dispatch 0: a kernel/],
    [change(second, KERNELS.arange.id | 4 << 16), /dispatch 1: a flag/],
    [change(second + 1, 0), /dispatch 1: the counts/],
    [change(second + 5, 1), /dispatch 1: a slot/],
    [change(second + 5, 0xffffffff), /dispatch 1: a slot/],
  ];
  for (const [bad, message] of cases) {
    const e = assertThrows(() => backend.compile(bad), RuntimeError) as RuntimeError;
    assertEquals(e.code, "plan");
    assert(message.test(e.message), `${e.message} for ${message}`);
  }
  const p = backend.compile(words);
  assertThrows(() => backend.run(p, encodeSlots([])), RuntimeError, "1 slots");
  backend.release(p);
  assertThrows(() => backend.release(p), RuntimeError);
  assertEquals(backend.liveObjects(), { buffers: 0, plans: 0 });
});

Deno.test("wasm compile() takes words that were compiled before, also while a Plan of them lives", () => {
  using backend = createWasmBackend();
  const a = filled(backend, [1, 2]);
  const out = filled(backend, [0, 0]);
  const slots = encodeSlots([{ buffer: a, byteOffset: 0 }, { buffer: out, byteOffset: 0 }]);
  const all = Array.from({ length: 200 }, (_, i) => wordsOf(1 + i % 3, 2)); // more than are kept
  let sum = 0;
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < all.length; i++) {
      const first = backend.compile(all[i]), second = backend.compile(all[i]);
      backend.run(first, slots);
      backend.release(first); // its run is queued
      backend.run(second, slots);
      backend.release(second);
      sum += 2 * (1 + i % 3);
    }
    assertEquals(floats(backend, out, 2), [sum, 2 * sum]);
  }
  backend.free(a);
  backend.free(out);
  assertEquals(backend.liveObjects(), { buffers: 0, plans: 0 });
});

Deno.test("wasm load() reads a file range and refuses a short file", () => {
  using backend = createWasmBackend();
  const path = Deno.makeTempFileSync();
  try {
    Deno.writeFileSync(path, Uint8Array.from({ length: 100 }, (_, i) => i));
    const buffer = backend.alloc(16);
    backend.load(buffer, 4, path, 90, 10);
    const out = new Uint8Array(10);
    backend.read(buffer, 4, out);
    assertEquals(Array.from(out), [90, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
    assertThrows(() => backend.load(buffer, 0, path, 90, 11), RuntimeError, "1 short");
    assertThrows(() => backend.load(buffer, 8, path, 0, 9), RuntimeError, "outside");
    assertThrows(() => backend.load(buffer, 0, `${path}.none`, 0, 4), RuntimeError, "cannot open");
    backend.free(buffer);
  } finally {
    Deno.removeSync(path);
  }
});

Deno.test("wasm calls on stale buffers throw", () => {
  const backend = createWasmBackend();
  const buffer = backend.alloc(8);
  backend.free(buffer);
  const out = new Uint8Array(8);
  assertThrows(() => backend.read(buffer, 0, out), RuntimeError, "not a live buffer");
  assertThrows(() => backend.free(buffer), RuntimeError, "not a live buffer");
  backend[Symbol.dispose]();
  assertThrows(() => backend.alloc(8), RuntimeError, "gone");
});
