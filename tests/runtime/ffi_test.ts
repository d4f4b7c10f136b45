/**
 * The native library below the backends: devices, buffers and files, on every Vulkan device.
 */

import { assert, assertEquals } from "@std/assert";
import {
  VKRT_BUFFER_HOST,
  VKRT_BUFFER_READBACK,
  VKRT_BUFFER_VISIBLE,
  VKRT_MEMORY_ACTIVE,
  VKRT_MEMORY_BUDGET,
  VKRT_MEMORY_CACHE,
  VKRT_MEMORY_HEAP,
  VKRT_MEMORY_HOST,
  VKRT_MEMORY_HOST_BUDGET,
  VKRT_MEMORY_HOST_HEAP,
  VKRT_MEMORY_PEAK,
  VKRT_MEMORY_STAGING,
} from "../../ffi/symbols.ts";
import { VulkanDevice } from "../../ffi/vulkan.ts";
import { KERNELS } from "../../src/backend/kernels.ts";
import {
  arange,
  assertFails,
  bufferOf,
  bytesOf,
  copy,
  deviceTest,
  floatsOf,
  INDICES,
  INFO,
  MIB,
  pattern,
  plan,
  slotsOf,
} from "../support/devices/vulkan_device.ts";

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
      assert(Object.keys(info.missingKernels).every((name) => name in KERNELS));
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
  const buffer = device.bufferNew(4096, VKRT_BUFFER_VISIBLE);
  const p = device.planNew(plan(1, arange(0, 1024, 0, 1)));
  device.planRun(p, slotsOf(buffer));
  assertEquals(floatsOf(device, buffer, 3), Float32Array.of(0, 1, 2));
  device.bufferWrite(buffer, 0, new Uint8Array(12));
  assertEquals(floatsOf(device, buffer, 4), Float32Array.of(0, 0, 0, 3));
});

deviceTest("bufferNew() makes buffers in memory of the host, which kernels read and write", (device) => {
  const data = pattern(17 * MIB); // a chunk of its own
  const large = device.bufferNew(data.length, VKRT_BUFFER_HOST), small = device.bufferNew(4096, VKRT_BUFFER_HOST);
  const host = device.memory()[VKRT_MEMORY_HOST];
  assert(host >= data.length + 4096 && host <= device.memory()[VKRT_MEMORY_ACTIVE], String(host));
  assert(device.memory()[VKRT_MEMORY_HOST_BUDGET] <= device.memory()[VKRT_MEMORY_HOST_HEAP]);
  device.bufferWrite(large, 0, data);
  const copied = device.bufferNew(4 * MIB);
  const p = device.planNew(plan(3, arange(1, 1024, 0, 1), copy(0, 2, MIB)));
  device.planRun(p, slotsOf(large, small, copied));
  assertEquals(floatsOf(device, small, 3), Float32Array.of(0, 1, 2));
  assert(bytesOf(device, copied, 4 * MIB).every((byte, i) => byte === data[i]));
  assert(bytesOf(device, large, data.length).every((byte, i) => byte === data[i]));
  device.bufferLoad(small, 0, import.meta.filename!, 0, 100);
  assertEquals(bytesOf(device, small, 100), Deno.readFileSync(import.meta.filename!).slice(0, 100));
  assertFails(
    "argument",
    () => device.bufferReadMapped(small, 0, new Uint8Array(4)),
    "only buffers of the visible kind",
  );
  for (const buffer of [large, small, copied]) device.bufferFree(buffer);
  assertEquals([device.memory()[VKRT_MEMORY_HOST], device.memory()[VKRT_MEMORY_ACTIVE]], [0, 0]);
});

deviceTest("bufferNew() makes buffers that the host reads fast, which kernels write", (device) => {
  const buffer = device.bufferNew(4096, VKRT_BUFFER_READBACK);
  const p = device.planNew(plan(1, arange(0, 1024, 2, 1)));
  device.planRun(p, slotsOf(buffer));
  assertEquals(floatsOf(device, buffer, 3), Float32Array.of(2, 3, 4));
  device.bufferWrite(buffer, 4, new Uint8Array(4));
  assertEquals(floatsOf(device, buffer, 3), Float32Array.of(2, 0, 4));
  device.bufferLoad(buffer, 0, import.meta.filename!, 0, 100);
  assertEquals(bytesOf(device, buffer, 100), Deno.readFileSync(import.meta.filename!).slice(0, 100));
  const read = (): void => device.bufferReadMapped(buffer, 0, new Uint8Array(4));
  assertFails("argument", read, "only buffers of the visible kind");
  assertEquals(device.memory()[VKRT_MEMORY_HOST], 0);
  device.bufferFree(buffer);
  assertEquals(device.memory()[VKRT_MEMORY_ACTIVE], 0);
  assertFails("argument", () => device.bufferNew(4096, VKRT_BUFFER_READBACK + 1), "there is no kind of buffer 4");
});

deviceTest(
  "bufferReadMapped() reads what finished work left in buffers of the visible kind, and waits for nothing",
  (device) => {
    const n = 1000, buffer = device.bufferNew(4 * n, VKRT_BUFFER_VISIBLE);
    const peek = (offset: number, bytes: number): Uint8Array<ArrayBuffer> => {
      const out = new Uint8Array(bytes);
      device.bufferReadMapped(buffer, offset, out);
      return out;
    };
    const p = device.planNew(plan(1, arange(0, n, 5, 1)));
    const ticket = device.planRun(p, slotsOf(buffer));
    while (!device.wait(ticket, 1000));
    assertEquals(new Float32Array(peek(0, 4 * n).buffer), Float32Array.from({ length: n }, (_, i) => 5 + i));
    assertEquals(new Float32Array(peek(4 * (n - 1), 4).buffer)[0], 5 + n - 1);
    assertEquals(peek(4 * n, 0).length, 0);
    device.bufferReadMapped(buffer, 4, new Uint8Array(0));
    assertFails("argument", () => peek(1, 4 * n), "vkrt_buffer_read_mapped()", `${4 * n} bytes at 1`);
    const hidden = device.bufferNew(4);
    assertFails("argument", () => device.bufferReadMapped(hidden, 0, new Uint8Array(4)), "visible kind");
    device.bufferFree(buffer);
    assertFails("handle", () => peek(0, 4), "freed");
  },
);

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

deviceTest("handles of freed buffers stay unknown when their indices serve again", (device) => {
  const count = 5000; // a freed index serves again after about 1,000 frees
  const handles = Array.from({ length: count }, () => {
    const buffer = device.bufferNew(4);
    device.bufferFree(buffer);
    return buffer;
  });
  assertEquals(new Set(handles).size, count);
  const last = Array.from({ length: 1100 }, () => device.bufferNew(4));
  for (const stale of handles) assertFails("handle", () => device.bufferRead(stale, 0, new Uint8Array(4)), "freed");
  for (const buffer of last) device.bufferFree(buffer);
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

deviceTest("memory() counts freed bytes as cached until they are taken again", (device) => {
  const cached = (): number => device.memory()[VKRT_MEMORY_CACHE];
  assertEquals(cached(), 0);
  const small = device.bufferNew(MIB), large = device.bufferNew(20 * MIB);
  assertEquals(cached(), 0);
  device.bufferFree(large);
  const one = cached();
  assert(one >= 20 * MIB && one < 21 * MIB, String(one));
  device.bufferFree(small); // its chunk is larger, and nothing else is in it
  const both = cached();
  assert(both >= one + MIB, String(both));
  const again = device.bufferNew(20 * MIB);
  assertEquals(cached(), both - one);
  device.bufferFree(device.bufferNew(MIB));
  assertEquals(cached(), both - one);
  device.bufferFree(again);
  assertEquals(cached(), both);
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
