/**
 * The common part of the native library's tests: a device a test, bytes in and out, small dispatches.
 *
 * Each test runs twice: as the device is, and with VKMX_STAGING, where all bytes pass through staging memory as on a discrete
 * GPU. Nothing may stay alive and the validation layers must be silent.
 */

import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { RuntimeError, type RuntimeErrorCode } from "../../../ffi/error.ts";
import { listVulkanDevices, liveObjects, validationMessages, VulkanDevice } from "../../../ffi/vulkan.ts";
import { devices } from "../../../src/backend/devices.ts";
import { type Dispatch, encodePlan, encodePush } from "./harness.ts";
import { withOptions } from "../../../scripts/support/options.ts";

/** Of the usable Vulkan devices. */
export const INDICES = devices().filter((d) => d.usable && d.name.startsWith("vulkan:")).map((d) =>
  Number(d.name.slice(7))
);
/** The library's facts about all Vulkan devices. */
export const INFO = INDICES.length > 0 ? listVulkanDevices() : [];
export const THREADS = 64;
export const F32 = 9;
export const MIB = 2 ** 20;
/** SPIR-V of `void main() {}` with workgroups of one thread. */
export const EMPTY_KERNEL = Uint32Array.of(
  ...[0x7230203, 0x10600, 0xd000b, 8, 0, 0x20011, 1, 0x6000b, 1, 0x4c534c47, 0x6474732e, 0x3035342e, 0, 0x3000e, 0, 1],
  ...[0x5000f, 5, 4, 0x6e69616d, 0, 0x6014b, 4, 0x26, 7, 7, 7, 0x20013, 2, 0x30021, 3, 2, 0x40015, 6, 0x20, 0, 0x4002b],
  ...[6, 7, 1, 0x50036, 2, 4, 0, 3, 0x200f8, 5, 0x100fd, 0x10038],
);

/** Opens a device with a mask, and with an environment that it reads while opening. */
export function openWith(env: Record<string, string>, index: number, cache = "", mask = ""): VulkanDevice {
  using _options = withOptions({ env });
  return new VulkanDevice(index, cache, mask);
}

/** One test on every Vulkan device, with and without staging; nothing may stay alive and validation must be silent. */
export function deviceTest(name: string, body: (device: VulkanDevice, index: number) => void | Promise<void>): void {
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

/** Asserts an error with a code and parts of its message. */
export function assertFails(code: RuntimeErrorCode, run: () => unknown, ...parts: string[]): RuntimeError {
  const error = assertThrows(run, RuntimeError);
  assertEquals(error.code, code, error.message);
  for (const part of parts) assertStringIncludes(error.message, part);
  return error;
}

/** Bytes that repeat with no power of two. */
export function pattern(length: number, seed = 0): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + seed) % 251;
  return bytes;
}

export function bufferOf(device: VulkanDevice, bytes: Uint8Array<ArrayBuffer>): number {
  const buffer = device.bufferNew(bytes.length);
  device.bufferWrite(buffer, 0, bytes);
  return buffer;
}

export function bytesOf(device: VulkanDevice, buffer: number, length: number, offset = 0): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(length);
  device.bufferRead(buffer, offset, out);
  return out;
}

export function floatsOf(device: VulkanDevice, buffer: number, length: number): Float32Array {
  return new Float32Array(bytesOf(device, buffer, 4 * length).buffer);
}

export const bits = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0];

/** out = start + i * step over `count` floats. */
export function arange(slot: number, count: number, start: number, step: number, offset = 0): Dispatch {
  return {
    kernel: "arange",
    spec: [THREADS, F32],
    push: encodePush("ArangePush", { count, start: bits(start), step: bits(step) }),
    grid: [Math.ceil(count / THREADS), 1, 1],
    buffers: [[slot, offset]],
  };
}

/** Copies `count` words. */
export function copy(from: number, to: number, count: number, fromOffset = 0, toOffset = 0): Dispatch {
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
export function slotsOf(...buffers: (number | readonly [number, number])[]): Uint32Array<ArrayBuffer> {
  const words = buffers.flatMap((b) => typeof b === "number" ? [b, 0, 0, 0] : [b[0], b[1], 0, 0]);
  return Uint32Array.from(words);
}

export function plan(slots: number, ...dispatches: Dispatch[]): Uint32Array<ArrayBuffer> {
  return encodePlan(slots, dispatches) as Uint32Array<ArrayBuffer>;
}
