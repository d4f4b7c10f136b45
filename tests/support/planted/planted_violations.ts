/**
 * Mistakes in the use of Vulkan, one for each kind of check, by which `deno task test:validate` shows that it can fail.
 *
 *     deno run -A tests/support/planted/planted_violations.ts memory | barrier | bounds
 *
 * @module
 */

import type { VulkanDevice } from "../../../ffi/vulkan.ts";
import { arange, bytesOf, INDICES, MIB, openWith, pattern, plan, slotsOf } from "../devices/vulkan_device.ts";

const [INDEX] = INDICES;

/** Each leaves its device open: ending without it is no matter of these checks. */
const PLANTED: Readonly<Record<string, () => VulkanDevice>> = {
  /** A buffer without memory. */
  memory: () => {
    const device = openWith({ VKMX_FAULT: "vkBindBufferMemory:0" }, INDEX);
    device.bufferNew(100);
    return device;
  },
  /** Two copies to one place with no barrier between them. */
  barrier: () => {
    const device = openWith({ VKMX_FAULT: "vkCmdPipelineBarrier2:0", VKMX_STAGING: "1" }, INDEX);
    const buffer = device.bufferNew(100);
    for (const seed of [1, 2]) device.bufferWrite(buffer, 0, pattern(100, seed));
    bytesOf(device, buffer, 100);
    return device;
  },
  /** A kernel that writes past the end of a buffer which has memory of its own. */
  bounds: () => {
    const device = openWith({}, INDEX);
    const buffer = device.bufferNew(17 * MIB);
    device.planRun(device.planNew(plan(1, arange(0, MIB, 0, 1))), slotsOf([buffer, 16 * MIB]));
    bytesOf(device, buffer, 100);
    return device;
  },
};

if (import.meta.main) {
  PLANTED[Deno.args[0]]();
  Deno.exit(0);
}
