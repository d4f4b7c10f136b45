/**
 * The native library below the backends: buffers, Plans, tickets, statuses, on every Vulkan device.
 *
 * Each test runs twice: as the device is, and with VKMX_STAGING, where all bytes pass through staging memory as on a
 * discrete GPU. Rare results of the driver come from VKMX_FAULT.
 */

import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { RuntimeError, type RuntimeErrorCode } from "../ffi/error.ts";
import {
  VKRT_BUFFER_HOST,
  VKRT_MEMORY_ACTIVE,
  VKRT_MEMORY_BUDGET,
  VKRT_MEMORY_HEAP,
  VKRT_MEMORY_PEAK,
  VKRT_MEMORY_STAGING,
} from "../ffi/symbols.ts";
import { listVulkanDevices, liveObjects, validationMessages, VulkanDevice } from "../ffi/vulkan.ts";
import { devices } from "../src/backend/devices.ts";
import { KERNELS, PLAN_DISJOINT, PLAN_MAGIC, PLAN_NO_SLOT } from "../src/backend/kernels.ts";
import { type Dispatch, encodePlan, encodePush } from "./harness.ts";

const INDICES = devices().filter((d) => d.usable && d.name.startsWith("vulkan:")).map((d) => Number(d.name.slice(7)));
const INFO = INDICES.length > 0 ? listVulkanDevices() : [];
const THREADS = 64;
const F32 = 9;
const MIB = 2 ** 20;

/** Opens a device with an environment that it reads while opening. */
function openWith(env: Record<string, string>, index: number, cache = ""): VulkanDevice {
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    return new VulkanDevice(index, cache);
  } finally {
    for (const name of Object.keys(env)) Deno.env.delete(name);
  }
}

/** One test on every Vulkan device, with and without staging; nothing may stay alive and validation must be silent. */
function deviceTest(name: string, body: (device: VulkanDevice, index: number) => void | Promise<void>): void {
  for (const index of INDICES) {
    for (const [mode, env] of [["", {}], [" through staging", { VKMX_STAGING: "1" }]] as const) {
      Deno.test(`${name} on vulkan:${index}${mode}`, async () => {
        const messages = validationMessages().count;
        const before = liveObjects();
        const device = openWith(env, index);
        try {
          await body(device, index);
        } finally {
          device.close();
        }
        assertEquals(liveObjects(), before);
        const { count, text } = validationMessages();
        assertEquals(count, messages, text);
      });
    }
  }
}

function assertFails(code: RuntimeErrorCode, run: () => unknown, ...parts: string[]): RuntimeError {
  const error = assertThrows(run, RuntimeError);
  assertEquals(error.code, code, error.message);
  for (const part of parts) assertStringIncludes(error.message, part);
  return error;
}

/** Bytes that repeat with no power of two. */
function pattern(length: number, seed = 0): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + seed) % 251;
  return bytes;
}

function bufferOf(device: VulkanDevice, bytes: Uint8Array<ArrayBuffer>): number {
  const buffer = device.bufferNew(bytes.length);
  device.bufferWrite(buffer, 0, bytes);
  return buffer;
}

function bytesOf(device: VulkanDevice, buffer: number, length: number, offset = 0): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(length);
  device.bufferRead(buffer, offset, out);
  return out;
}

function floatsOf(device: VulkanDevice, buffer: number, length: number): Float32Array {
  return new Float32Array(bytesOf(device, buffer, 4 * length).buffer);
}

const bits = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0];

/** out = start + i * step over `count` floats. */
function arange(slot: number, count: number, start: number, step: number, offset = 0): Dispatch {
  return {
    kernel: "arange",
    spec: [THREADS, F32],
    push: encodePush("ArangePush", { count, start: bits(start), step: bits(step) }),
    grid: [Math.ceil(count / THREADS), 1, 1],
    buffers: [[slot, offset]],
  };
}

/** Copies `count` words. */
function copy(from: number, to: number, count: number, fromOffset = 0, toOffset = 0): Dispatch {
  const push = { count, shape: [1, 1, 1, 1, count], in_strides: [0, 0, 0, 0, 1], out_strides: [0, 0, 0, 0, 1] };
  return {
    kernel: "copy",
    spec: [THREADS, 4, 0],
    push: encodePush("CopyPush", push),
    grid: [Math.ceil(count / THREADS), 1, 1],
    buffers: [[from, fromOffset], undefined, [to, toOffset]],
  };
}

/** Slot words of whole buffers. */
function slotsOf(...buffers: (number | readonly [number, number])[]): Uint32Array<ArrayBuffer> {
  const words = buffers.flatMap((b) => typeof b === "number" ? [b, 0, 0, 0] : [b[0], b[1], 0, 0]);
  return Uint32Array.from(words);
}

function plan(slots: number, ...dispatches: Dispatch[]): Uint32Array<ArrayBuffer> {
  return encodePlan(slots, dispatches) as Uint32Array<ArrayBuffer>;
}

// ---- devices ----------------------------------------------------------------------------------------------------------

Deno.test({
  name: "listVulkanDevices() tells names, limits and features",
  ignore: INDICES.length === 0,
  fn: () => {
    for (const info of INFO) {
      assert(info.name.length > 0);
      if (info.unusable) continue;
      assert(info.heapBytes > 0 && info.maxAllocation > 0 && info.maxThreads >= 128 && info.pushBytes >= 128);
      assert(info.subgroupMin <= info.subgroup && info.subgroup <= info.subgroupMax);
      assertEquals(info.maxGrid.length, 3);
      assert(info.missingKernels.every((name) => name in KERNELS));
    }
  },
});

deviceTest("VulkanDevice refuses an index that is not there", () => {
  assertFails("argument", () => new VulkanDevice(INFO.length, ""), "vkrt_device_open()", `no device ${INFO.length}`);
});

deviceTest("VulkanDevice.close() twice is once, and later calls are refused", (device) => {
  device.close();
  device.close();
  assert(!device.isOpen);
  assertFails("handle", () => device.bufferNew(1), "closed");
  device.bufferFree(1); // finalizers may come late
});

// ---- buffers ------------------------------------------------------------------------------------------------------------

deviceTest("bufferWrite() and bufferRead() keep bytes at odd offsets and sizes", (device) => {
  for (const [size, offset, length] of [[1, 0, 1], [7, 3, 4], [1000, 333, 667], [65537, 1, 65535], [300, 299, 1]]) {
    const background = pattern(size);
    const buffer = bufferOf(device, background);
    const data = pattern(length, 99);
    device.bufferWrite(buffer, offset, data);
    background.set(data, offset);
    assertEquals(bytesOf(device, buffer, size), background);
    assertEquals(bytesOf(device, buffer, length, offset), data);
    device.bufferFree(buffer);
  }
});

deviceTest("bufferWrite() and bufferRead() pass more than all staging memory", (device) => {
  const data = pattern(70 * MIB + 5);
  const buffer = bufferOf(device, data);
  const back = bytesOf(device, buffer, data.length);
  assert(back.every((byte, i) => byte === data[i]));
  device.bufferFree(buffer);
});

deviceTest("bufferNew() makes buffers that the host sees", (device) => {
  const buffer = device.bufferNew(4096, VKRT_BUFFER_HOST);
  const p = device.planNew(plan(1, arange(0, 1024, 0, 1)));
  device.planRun(p, slotsOf(buffer));
  assertEquals(floatsOf(device, buffer, 3), Float32Array.of(0, 1, 2));
  device.bufferWrite(buffer, 0, new Uint8Array(12));
  assertEquals(floatsOf(device, buffer, 4), Float32Array.of(0, 0, 0, 3));
});

deviceTest("bufferNew() refuses sizes and kinds that are not", (device, index) => {
  for (const bytes of [0, -1, 1.5, NaN, 2 ** 60]) assertFails("argument", () => device.bufferNew(bytes), "0 bytes");
  assertFails("argument", () => device.bufferNew(4, 7), "kind");
  const tooBig = INFO[index].maxAllocation + 1;
  assertFails("out-of-memory", () => device.bufferNew(tooBig), "vkrt_buffer_new()", "MiB");
});

deviceTest("bufferWrite() and bufferRead() refuse ranges outside the buffer", (device) => {
  const buffer = device.bufferNew(10);
  assertFails("argument", () => device.bufferWrite(buffer, 8, new Uint8Array(3)), "3 bytes at 8", "10 bytes");
  assertFails("argument", () => device.bufferRead(buffer, 11, new Uint8Array(0)), "11");
  assertFails("argument", () => device.bufferWrite(buffer, 2 ** 53, new Uint8Array(1)), "10 bytes");
  device.bufferWrite(buffer, 10, new Uint8Array(0));
  device.bufferRead(buffer, 0, new Uint8Array(0));
});

deviceTest("buffers are unknown once freed", (device) => {
  const buffer = device.bufferNew(4);
  const p = device.planNew(plan(1, arange(0, 1, 0, 1)));
  device.bufferFree(buffer);
  const again = device.bufferNew(4);
  assert(again !== buffer);
  assertFails("handle", () => device.bufferFree(buffer), "freed");
  assertFails("handle", () => device.bufferWrite(buffer, 0, new Uint8Array(1)));
  assertFails("handle", () => device.bufferRead(0, 0, new Uint8Array(1)));
  assertFails("handle", () => device.planRun(p, slotsOf(buffer)), "slot 0");
  assertFails("handle", () => device.planRun(buffer, slotsOf(again)), "no plan");
  assertFails("handle", () => device.bufferFree(p), "no buffer");
});

deviceTest("bufferNew() takes tens of thousands of small buffers", (device) => {
  const count = 20_000;
  const handles = Array.from({ length: count }, (_, i) => device.bufferNew(1 + i % 40));
  assertEquals(new Set(handles).size, count);
  for (const i of [0, 1, 4999, count - 1]) device.bufferWrite(handles[i], 0, Uint8Array.of(i % 256));
  for (const i of [0, 1, 4999, count - 1]) assertEquals(bytesOf(device, handles[i], 1)[0], i % 256);
  for (let i = 0; i < count; i += 2) device.bufferFree(handles[i]);
  for (let i = 1; i < count; i += 2) device.bufferFree(handles[i]);
  assertEquals(device.memory()[VKRT_MEMORY_ACTIVE], 0);
});

deviceTest("freed memory is found again, whatever the order of sizes", (device) => {
  const live = new Map<number, { bytes: Uint8Array<ArrayBuffer> }>();
  let state = 12345;
  const random = (n: number): number => (state = (state * 1103515245 + 12345) % 2 ** 31) % n;
  for (let step = 0; step < 600; step++) {
    if (live.size > 20 || (live.size > 0 && random(3) === 0)) {
      const [buffer, { bytes }] = [...live][random(live.size)];
      assertEquals(bytesOf(device, buffer, bytes.length), bytes);
      device.bufferFree(buffer);
      live.delete(buffer);
    } else {
      const bytes = pattern(1 + random(random(4) === 0 ? 300_000 : 3000), step);
      live.set(bufferOf(device, bytes), { bytes });
    }
  }
  for (const [buffer, { bytes }] of live) assertEquals(bytesOf(device, buffer, bytes.length), bytes);
});

deviceTest("memory() counts live, peak and staging bytes", (device) => {
  const before = device.memory();
  assertEquals(before[VKRT_MEMORY_ACTIVE], 0);
  assert(before[VKRT_MEMORY_HEAP] > 0 && before[VKRT_MEMORY_BUDGET] > 0);
  const a = device.bufferNew(3 * MIB), b = device.bufferNew(20 * MIB);
  const active = device.memory()[VKRT_MEMORY_ACTIVE];
  assert(active >= 23 * MIB && active < 24 * MIB, String(active));
  device.bufferFree(b);
  assertEquals(device.memory()[VKRT_MEMORY_PEAK], active);
  device.resetPeakMemory();
  assert(device.memory()[VKRT_MEMORY_PEAK] < 4 * MIB);
  device.bufferFree(a);
  assertEquals(device.memory()[VKRT_MEMORY_ACTIVE], 0);
  assert(device.memory()[VKRT_MEMORY_STAGING] <= 64 * MIB);
});

// ---- files --------------------------------------------------------------------------------------------------------------

deviceTest("bufferLoad() reads ranges of a file", (device) => {
  const path = Deno.makeTempFileSync({ prefix: "vkmx-ü " });
  try {
    const data = pattern(40 * MIB + 3);
    Deno.writeFileSync(path, data);
    const buffer = device.bufferNew(data.length);
    device.bufferLoad(buffer, 0, path, 0, data.length);
    assert(bytesOf(device, buffer, data.length).every((byte, i) => byte === data[i]));
    device.bufferLoad(buffer, 5, path, 1001, 77);
    assertEquals(bytesOf(device, buffer, 77, 5), data.slice(1001, 1078));
    device.bufferLoad(buffer, 0, path, data.length, 0);
    assertFails("io", () => device.bufferLoad(buffer, 0, path, 10, data.length), path, "too short", `${data.length}`);
    assertFails("io", () => device.bufferLoad(buffer, 0, `${path}.none`, 0, 1), "cannot open", `${path}.none`);
    assertFails("io", () => device.bufferLoad(buffer, 0, Deno.cwd(), 0, 1), "cannot open");
    assertFails("argument", () => device.bufferLoad(buffer, 1, path, 0, data.length), "do not fit");
    assertFails("argument", () => device.bufferLoad(buffer, 0, "a\0b", 0, 1), "NUL");
  } finally {
    Deno.removeSync(path);
  }
});

// ---- Plans --------------------------------------------------------------------------------------------------------------

deviceTest("planRun() runs dispatches in order over hazards of all kinds", (device) => {
  const n = 5000, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n), c = device.bufferNew(4 * n);
  const p = device.planNew(plan(
    3,
    arange(0, n, 1, 0), // a = 1
    copy(0, 1, n), //      b = 1: read after write
    arange(0, n, 2, 0), // a = 2: write after read
    arange(0, n, 3, 0), // a = 3: write after write
    copy(0, 2, n), //      c = 3
  ));
  device.planRun(p, slotsOf(a, b, c));
  for (const [buffer, value] of [[a, 3], [b, 1], [c, 3]]) {
    assert(floatsOf(device, buffer, n).every((x) => x === value));
  }
});

deviceTest("planRun() replays with the same slots and records again for others", (device) => {
  const n = 1000, p = device.planNew(plan(2, copy(0, 1, n)));
  const inputs = Array.from({ length: 7 }, (_, i) => bufferOf(device, pattern(4 * n, i)));
  const outputs = Array.from({ length: 7 }, () => device.bufferNew(4 * n));
  let last = 0;
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 7; i++) {
      const ticket = device.planRun(p, slotsOf(inputs[i], outputs[(i + round) % 7]));
      assert(ticket > last);
      last = ticket;
      device.planRun(p, slotsOf(inputs[i], outputs[(i + round) % 7]));
    }
    for (let i = 0; i < 7; i++) {
      assertEquals(bytesOf(device, outputs[(i + round) % 7], 4 * n), pattern(4 * n, i));
    }
  }
});

deviceTest("planRun() takes offsets of slots and of the Plan", (device) => {
  const source = bufferOf(device, pattern(4096)), out = bufferOf(device, new Uint8Array(4096));
  const p = device.planNew(plan(2, copy(0, 1, 10, 8, 16)));
  device.planRun(p, slotsOf([source, 100], [out, 256]));
  const expected = new Uint8Array(4096);
  expected.set(pattern(4096).subarray(108, 148), 272);
  assertEquals(bytesOf(device, out, 4096), expected);
});

deviceTest("bufferWrite() between runs comes in order, also while they run", (device) => {
  const n = 200_000, x = device.bufferNew(4 * n), results: number[] = [];
  const p = device.planNew(plan(2, copy(0, 1, n)));
  for (let i = 0; i < 6; i++) {
    device.bufferWrite(x, 0, new Uint8Array(4 * n).fill(i + 1));
    results.push(device.bufferNew(4 * n));
    device.planRun(p, slotsOf(x, results[i]));
  }
  results.forEach((buffer, i) => assert(bytesOf(device, buffer, 4 * n).every((byte) => byte === i + 1)));
});

deviceTest("bufferWrite() twice to one place keeps the last bytes", (device) => {
  const n = 100_000, x = device.bufferNew(4 * n), y = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, copy(0, 1, n)));
  device.planRun(p, slotsOf(x, y));
  device.bufferWrite(x, 0, new Uint8Array(1000).fill(1));
  device.bufferWrite(x, 500, new Uint8Array(1000).fill(2));
  device.planRun(p, slotsOf(x, y));
  const bytes = bytesOf(device, y, 1500);
  assert(bytes.every((byte, i) => byte === (i < 500 ? 1 : 2)));
});

deviceTest("a freed buffer's memory may be used again while earlier work runs", (device) => {
  const n = 300_000, out: number[] = [];
  const fill = device.planNew(plan(1, arange(0, n, 0, 1)));
  const copies = device.planNew(plan(2, copy(0, 1, n)));
  for (let i = 0; i < 8; i++) {
    const temporary = device.bufferNew(4 * n);
    if (i % 2) device.bufferWrite(temporary, 0, new Uint8Array(4 * n).fill(i));
    else device.planRun(fill, slotsOf(temporary));
    out.push(device.bufferNew(4 * n));
    device.planRun(copies, slotsOf(temporary, out[i]));
    device.bufferFree(temporary);
  }
  out.forEach((buffer, i) => {
    if (i % 2) assert(bytesOf(device, buffer, 4 * n).every((byte) => byte === i));
    else assert(floatsOf(device, buffer, n).every((x, j) => x === j));
  });
});

deviceTest("planRun() refuses bindings that do not fit", (device) => {
  const buffer = device.bufferNew(64);
  const p = device.planNew(plan(1, arange(0, 4, 0, 1, 32)));
  assertFails("argument", () => device.planRun(p, slotsOf()), "1 slots");
  assertFails("argument", () => device.planRun(p, slotsOf(buffer, buffer)), "8 words");
  assertFails("argument", () => device.planRun(p, slotsOf([buffer, 32])), "slot 0", "64 bytes");
  assertFails("argument", () => device.planRun(p, Uint32Array.of(buffer, 0, 9, 0)), "slot 0");
  device.planFree(p);
  assertFails("handle", () => device.planRun(p, slotsOf(buffer)), "no plan");
  assertFails("handle", () => device.planFree(p));
});

deviceTest("planNew() takes a Plan without dispatches", (device) => {
  const p = device.planNew(plan(0));
  assert(device.wait(device.planRun(p, slotsOf()), 1000));
});

deviceTest("planNew() says what is wrong with a Plan", (device) => {
  const valid = plan(2, copy(0, 1, 10));
  const wrong = (change: (words: number[]) => void, ...parts: string[]): void => {
    const words = [...valid];
    change(words);
    assertFails("plan", () => device.planNew(Uint32Array.from(words)), "vkrt_plan_new()", ...parts);
  };
  wrong((w) => w.length = 0, "0 words are no Plan");
  wrong((w) => w.length = 3, "no Plan");
  wrong((w) => w[0] = 0, "no Plan", PLAN_MAGIC.toString(16));
  wrong((w) => w.push(0), "header says");
  wrong((w) => w[3] = w.push(0), "stand behind the last dispatch");
  wrong((w) => w[1] = 2 ** 31, "2147483648 slots");
  wrong((w) => w[2] = 2 ** 31, "dispatches");
  wrong((w) => w[2] = 2, "past the end");
  wrong((w) => w[4] = 999, "no kernel 999");
  wrong((w) => w[4] |= 0x20000, "unknown flags");
  wrong((w) => w[5] += 1, "copy takes 3 buffers");
  wrong((w) => w[6] = 2 ** 32 - 1, "workgroups along x");
  wrong((w) => w[9] = 2, "slot 2 of 2");
  wrong((w) => w[9] = PLAN_NO_SLOT, "buffer 0 must be bound");
  wrong((w) => w[15] = 0, "0 threads");
  wrong((w) => w[15] = 65536, "65536 threads");
});

deviceTest("planNew() survives random words and mutated Plans", (device) => {
  let state = 1;
  const random = (n: number): number => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return (state >>> 0) % n;
  };
  const valid = plan(3, arange(0, 10, 0, 1), copy(0, 1, 10), copy(1, 2, 10));
  const structure = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 19, 20]; // all but constants and push words of the first two
  let accepted = 0;
  for (let i = 0; i < 4000; i++) {
    let words: Uint32Array<ArrayBuffer>;
    if (i % 4 === 0) {
      words = Uint32Array.from({ length: random(40) }, () => random(3) ? random(64) : random(2 ** 32));
      if (words.length > 3 && i % 8 === 0) words.set([PLAN_MAGIC, random(4), random(4), words.length]);
    } else {
      words = valid.slice(0, i % 16 === 1 ? random(valid.length) : valid.length);
      const value = [random(2 ** 32), random(8), 0, 2 ** 32 - 1, 2 ** 31, 0xffff][random(6)];
      if (words.length > 0) words[structure[random(structure.length)] % words.length] = value;
    }
    try {
      device.planFree(device.planNew(words));
      accepted++;
    } catch (error) {
      assert(error instanceof RuntimeError && error.code === "plan", String(error));
    }
  }
  assert(accepted > 0 && accepted < 4000, `${accepted} of 4000`);
});

deviceTest("planRun() lets flagged dispatches of one slot run together", (device) => {
  const n = 4096, pieces = 8;
  const words = plan(1, ...Array.from({ length: pieces }, (_, i) => arange(0, n, i, 0, 4 * n * i)));
  const size = (words.length - 4) / pieces;
  for (let i = 1; i < pieces; i++) words[4 + i * size] |= PLAN_DISJOINT << 16;
  const out = device.bufferNew(4 * n * pieces);
  device.planRun(device.planNew(words), slotsOf(out));
  assert(floatsOf(device, out, n * pieces).every((x, i) => x === Math.floor(i / n)));
});

// ---- tickets and timestamps -----------------------------------------------------------------------------------------------

deviceTest("wait() times out while work runs and ends with it", async (device) => {
  const n = 2 * MIB, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, ...Array.from({ length: 10 }, (_, i) => i % 2 ? copy(1, 0, n) : copy(0, 1, n))));
  let ticket = 0;
  for (let i = 0; i < 4; i++) ticket = device.planRun(p, slotsOf(a, b));
  assertEquals(device.wait(ticket, 0), false);
  const start = performance.now();
  device.wait(ticket, 1);
  assert(performance.now() - start < 1000);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  while (!await device.waitAsync(ticket, 50));
  clearInterval(timer);
  assert(turns > 0 || INFO[0].type !== "cpu", "the event loop stood still");
  assertEquals(device.wait(ticket, 0), true);
  assertEquals(device.wait(0, 0), true);
  assertFails("argument", () => device.wait(ticket + 1, 0), "never given");
});

deviceTest("close() lets a wait on another thread end", async (device) => {
  const buffer = device.bufferNew(4 * MIB);
  const p = device.planNew(plan(1, arange(0, MIB, 0, 1)));
  const waiting = device.waitAsync(device.planRun(p, slotsOf(buffer)), 5000).catch((error) => {
    assertEquals(error.code, "handle"); // the device was gone before the thread began
    return true;
  });
  device.close();
  assertEquals(await waiting, true);
});

deviceTest("profileRead() gives one time a dispatch", (device, index) => {
  const n = MIB, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, arange(0, n, 0, 1), copy(0, 1, n), arange(0, 1, 0, 1)));
  device.planRun(p, slotsOf(a, b));
  assertEquals(device.profileRead(p, 3).length, 0);
  if (INFO[index].timestampPeriod === 0) return;
  device.profile(true);
  device.planRun(p, slotsOf(a, b));
  device.planRun(p, slotsOf(a, b));
  const times = device.profileRead(p, 3);
  assertEquals(times.length, 3);
  assert(times.every((t) => t >= 0 && t < 60e9) && times[0] > times[2], String(times));
  assertEquals(device.profileRead(p, 2).length, 2);
  device.profile(false);
  device.planRun(p, slotsOf(a, b));
  assertEquals(device.profileRead(p, 3), times);
});

// ---- the pipeline cache -----------------------------------------------------------------------------------------------------

for (const index of INDICES) {
  Deno.test(`close() on vulkan:${index} keeps pipelines in a file, and a damaged one does no harm`, () => {
    const folder = Deno.makeTempDirSync();
    const cache = `${folder}/not/yet`;
    const files = (): string[] => Array.from(Deno.readDirSync(cache), (entry) => entry.name);
    const use = (): void => {
      using device = new VulkanDevice(index, cache);
      device.planNew(plan(1, arange(0, 1, 0, 1)));
    };
    try {
      use();
      assertEquals(files().length, 1);
      const path = `${cache}/${files()[0]}`;
      const whole = Deno.readFileSync(path);
      use();
      for (const damaged of [whole.slice(0, whole.length / 2), pattern(whole.length), new Uint8Array(0)]) {
        Deno.writeFileSync(path, damaged);
        use();
        assertEquals(files().length, 1);
        assert(Deno.readFileSync(path).length > 16);
      }
      Deno.removeSync(cache, { recursive: true });
      Deno.writeTextFileSync(cache, ""); // a file where the folder should be
      use();
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  });
}

// ---- what drivers answer on bad days ----------------------------------------------------------------------------------------

/** VkResult values. */
const OUT_OF_DEVICE_MEMORY = -2, LOST = -4, UNKNOWN = -13;

/** A test with a fault of the driver; the device opens again afterwards. */
function faultTest(name: string, fault: string, body: (device: VulkanDevice) => void): void {
  for (const index of INDICES) {
    Deno.test(`${name} on vulkan:${index}`, () => {
      const device = openWith({ VKMX_FAULT: fault, VKMX_STAGING: "1" }, index);
      try {
        body(device);
      } finally {
        device.close();
      }
      assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0 });
      using again = new VulkanDevice(index, "");
      assertEquals(bytesOf(again, bufferOf(again, pattern(9)), 9), pattern(9));
    });
  }
}

faultTest("a lost device says so from then on, and closes", `vkQueueSubmit2:${LOST}:1`, (device) => {
  const buffer = device.bufferNew(4);
  const p = device.planNew(plan(1, arange(0, 1, 7, 0)));
  device.planRun(p, slotsOf(buffer));
  assertFails("device-lost", () => device.planRun(p, slotsOf(buffer)), "vkQueueSubmit2", "open it again");
  assertFails("device-lost", () => device.bufferNew(4), "vkrt_buffer_new()");
  assertFails("device-lost", () => device.bufferRead(buffer, 0, new Uint8Array(4)));
  assertFails("device-lost", () => device.wait(1, 1000));
  device.bufferFree(buffer);
  device.planFree(p);
});

faultTest("a device lost during a wait says so", `vkWaitSemaphores:${LOST}`, (device) => {
  const buffer = device.bufferNew(4);
  const p = device.planNew(plan(1, arange(0, 1, 7, 0)));
  const ticket = device.planRun(p, slotsOf(buffer));
  assertFails("device-lost", () => device.wait(ticket, 1000), "vkWaitSemaphores");
});

faultTest("memory that the driver refuses is out-of-memory", `vkAllocateMemory:${OUT_OF_DEVICE_MEMORY}:1`, (device) => {
  const small = device.bufferNew(4);
  const error = assertFails("out-of-memory", () => device.bufferNew(100 * MIB), "100.0 MiB", "free arrays");
  assert(/\d MiB in use of \d/.test(error.message));
  assertEquals(bytesOf(device, small, 0).length, 0);
});

faultTest("any other answer names the call and the result", `vkCreateComputePipelines:${UNKNOWN}`, (device) => {
  assertFails(
    "vulkan",
    () => device.planNew(plan(1, arange(0, 1, 0, 0))),
    "vkCreateComputePipelines",
    "VK_ERROR_UNKNOWN",
  );
});

for (const index of INDICES) {
  Deno.test(`VulkanDevice frees what it began when opening vulkan:${index} fails`, () => {
    const calls = [
      "CreateCommandPool",
      "CreateSemaphore",
      "CreatePipelineLayout",
      "CreatePipelineCache",
      "AllocateCommandBuffers",
    ];
    for (const call of calls) {
      assertFails("vulkan", () => openWith({ VKMX_FAULT: `vk${call}:${UNKNOWN}` }, index), `vk${call}`);
    }
    assertEquals(liveObjects().devices, 0);
  });

  Deno.test(`failing allocations leave vulkan:${index} usable, whichever it is`, () => {
    for (let skip = 0; skip < 50; skip++) {
      using device = openWith(
        { VKMX_FAULT: `vkAllocateMemory:${OUT_OF_DEVICE_MEMORY}:${skip}`, VKMX_STAGING: "1" },
        index,
      );
      const p = device.planNew(plan(2, copy(0, 1, 16)));
      try {
        for (let i = 0; i < 4; i++) {
          const a = bufferOf(device, pattern(64, i)), b = device.bufferNew(17 * MIB);
          device.planRun(p, slotsOf(a, b));
          assertEquals(bytesOf(device, b, 64), pattern(64, i));
        }
      } catch (error) {
        assert(error instanceof RuntimeError && error.code === "out-of-memory", String(error));
      }
      if (skip > 8) break; // more than the body allocates
    }
    assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0 });
  });

  Deno.test(`opening and closing vulkan:${index} many times leaves nothing behind`, () => {
    for (let i = 0; i < 20; i++) {
      using device = new VulkanDevice(index, "");
      const buffer = bufferOf(device, pattern(100));
      device.planRun(device.planNew(plan(1, arange(0, 25, 0, 1))), slotsOf(buffer));
    }
    assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0 });
  });
}
