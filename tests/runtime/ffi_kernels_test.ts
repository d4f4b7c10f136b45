/** Kernels that the native library makes at run time: what it refuses, how many there are, and that Plans hold to what they are. */

import { assertEquals } from "@std/assert";
import {
  KERNEL_PUSH_WORDS,
  KERNEL_SPEC_WORDS,
  KERNELS,
  PLAN_MAGIC,
  PLAN_MAX_BUFFERS,
  PLAN_NO_SLOT,
} from "../../src/backend/kernels.ts";
import { VKRT_MAX_KERNELS } from "../../ffi/symbols.ts";
import { liveObjects } from "../../ffi/vulkan.ts";
import { assertFails, deviceTest, EMPTY_KERNEL, INFO, slotsOf } from "../support/devices/vulkan_device.ts";

const EMPTY = { name: "empty", spirv: EMPTY_KERNEL, buffers: 2, writes: 2, optional: 1 };
const FIRST = Object.keys(KERNELS).length;

/** A Plan of one dispatch of kernel `id` with 2 buffers. */
function planOf(
  id: number,
  more: { spec?: number[]; grid?: number[]; buffers?: number[] } = {},
): Uint32Array<ArrayBuffer> {
  const { spec = [1, 1, 1], grid = [1, 1, 1], buffers = [PLAN_NO_SLOT, 0, 0, 0] } = more;
  const counts = buffers.length / 2 | spec.length << 8 | KERNEL_PUSH_WORDS << 16;
  const words = Uint32Array.of(PLAN_MAGIC, 1, 1, 0, id, counts, ...grid, ...buffers, ...spec, 1, 1, 1);
  words[3] = words.length;
  return words;
}

deviceTest("a kernel made at run time has an id behind those of the table, and runs", (device) => {
  assertFails("plan", () => device.planNew(planOf(FIRST)), `there is no kernel ${FIRST}`);
  assertEquals([device.kernelNew(EMPTY), device.kernelNew(EMPTY)], [FIRST, FIRST + 1]);
  assertEquals(liveObjects().kernels, 2);
  const buffer = device.bufferNew(64);
  const plan = device.planNew(planOf(FIRST + 1));
  device.wait(device.planRun(plan, slotsOf(buffer)), 10_000);
  assertFails("plan", () => device.planNew(planOf(FIRST + 2)), "there is no kernel");
});

deviceTest("what is no kernel is refused", (device) => {
  const wrong = EMPTY_KERNEL.slice();
  wrong[0] = 0;
  const refused: readonly (readonly [Partial<typeof EMPTY>, string])[] = [
    [{ spirv: wrong }, "no SPIR-V"],
    [{ spirv: EMPTY_KERNEL.slice(0, 5) }, "no SPIR-V"],
    [{ spirv: new Uint32Array(0) }, "spirv is NULL"],
    [{ buffers: 0 }, "1 to 14 buffers"],
    [{ buffers: PLAN_MAX_BUFFERS + 1 }, "1 to 14 buffers"],
    [{ writes: 4 }, "more than 2 buffers"],
    [{ optional: 0x80000000 }, "more than 2 buffers"],
    [{ name: "a\0b" }, "NUL"],
  ];
  for (const [options, said] of refused) {
    assertFails("argument", () => device.kernelNew({ ...EMPTY, ...options }), said);
  }
  assertEquals(liveObjects().kernels, 0);
});

deviceTest("a Plan must call it with its buffers, within the limits of the device", (device, index) => {
  const id = device.kernelNew(EMPTY);
  const { maxWorkgroup, maxThreads, maxGrid } = INFO[index];
  const refused: readonly (readonly [Parameters<typeof planOf>[1], string])[] = [
    [{ buffers: [0, 0] }, "empty takes 2 buffers"],
    [{ buffers: [0, 0, 1, 0] }, "slot 1 of 1"],
    [{ buffers: [0, 0, PLAN_NO_SLOT, 0] }, "must be bound"],
    [{ spec: [1, 1] }, `${KERNEL_SPEC_WORDS} constants`],
    [{ spec: [1, 0, 1] }, "0 threads in a workgroup along y"],
    [{ spec: [1, 1, maxWorkgroup[2] + 1] }, "along z"],
    [{ spec: [maxThreads, 2, 1] }, `${2 * maxThreads} threads in a workgroup`],
    [{ spec: [2 ** 31, 2, 1] }, "along x"],
    [{ grid: [1, maxGrid[1] + 1, 1] }, "workgroups along y"],
  ];
  for (const [options, said] of refused) assertFails("plan", () => device.planNew(planOf(id, options)), said);
});

deviceTest("a device holds no more than it says", (device) => {
  for (let i = 0; i < VKRT_MAX_KERNELS; i++) device.kernelNew(EMPTY);
  assertFails("out-of-memory", () => device.kernelNew(EMPTY), `${VKRT_MAX_KERNELS} kernels`);
  assertEquals(liveObjects().kernels, VKRT_MAX_KERNELS);
});
