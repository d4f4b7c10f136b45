/**
 * Rare results of a driver, caused by VKMX_FAULT, on every Vulkan device.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { RuntimeError } from "../../ffi/error.ts";
import { liveObjects, VulkanDevice } from "../../ffi/vulkan.ts";
import {
  arange,
  assertFails,
  bufferOf,
  bytesOf,
  copy,
  F32,
  INDICES,
  MIB,
  openWith,
  pattern,
  plan,
  slotsOf,
} from "../support/devices/vulkan_device.ts";

/** VkResult values. */
const OUT_OF_DEVICE_MEMORY = -2, LOST = -4, UNKNOWN = -13;

/** Most runs of a plan in a submission, and submissions that keep any GPU busy for longer than wait() polls before it asks the driver. */
const RUNS = 64, MAX_SUBMISSIONS = 1024;

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
      assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
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
  const count = 2 * MIB;
  const buffer = device.bufferNew(4 * count);
  const p = device.planNew(plan(1, arange(0, count, 7, 0)));
  // wait() polls for a while before it asks the driver, and a fast GPU is done by then. So each try has twice as much
  // work.
  const waits = (): void => {
    for (let submissions = 1; submissions <= MAX_SUBMISSIONS; submissions *= 2) {
      let ticket = 0;
      for (let i = 0; i < submissions; i++) {
        ticket = device.planRun(p, slotsOf(buffer), Math.min(submissions, RUNS));
      }
      device.wait(ticket, 10_000);
    }
  };
  assertFails("device-lost", waits, "vkWaitSemaphores");
});

faultTest("memory that the driver refuses is out-of-memory", `vkAllocateMemory:${OUT_OF_DEVICE_MEMORY}:1`, (device) => {
  const small = device.bufferNew(4);
  const error = assertFails("out-of-memory", () => device.bufferNew(100 * MIB), "100.0 MiB", "Free arrays");
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
  Deno.test(`the pipeline that fails on vulkan:${index} says so, whichever thread made it`, async () => {
    const count = 14;
    const several = plan(
      1,
      ...Array.from({ length: count }, (_, i) => ({ ...arange(0, 1, 0, 0), spec: [i + 1, F32] })),
    );
    for (let skip = 0; skip < count; skip++) {
      const fault = `vkCreateComputePipelines:${UNKNOWN}:${skip}`;
      const check = (error: unknown): void => {
        assert(error instanceof RuntimeError && error.code === "vulkan", String(error));
        assert(error.detail.startsWith("vkCreateComputePipelines answered VK_ERROR_UNKNOWN"), error.message);
      };
      {
        using device = openWith({ VKMX_FAULT: fault }, index);
        check(assertThrows(() => device.planNew(several)));
      }
      using device = openWith({ VKMX_FAULT: fault }, index);
      // Beside calls that fail for other reasons.
      const preparing = device.planPrepare(several).then(() => undefined, (error) => error);
      assertFails("argument", () => device.bufferNew(0), "0 bytes");
      assertFails("handle", () => device.planRun(1, slotsOf()), "no plan");
      check(await preparing);
      assertFails("argument", () => device.bufferNew(4, 7), "kind of buffer 7");
    }
  });

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
    assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
  });

  Deno.test(`opening and closing vulkan:${index} many times leaves nothing behind`, () => {
    for (let i = 0; i < 20; i++) {
      using device = new VulkanDevice(index, "");
      const buffer = bufferOf(device, pattern(100));
      device.planRun(device.planNew(plan(1, arange(0, 25, 0, 1))), slotsOf(buffer));
    }
    assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
  });
}
