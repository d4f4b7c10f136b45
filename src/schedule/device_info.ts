/**
 * The devices as the layers above see them: their names, which one is the default, and how much memory they hold.
 *
 * @module
 */

import { getBackend, limits, openBackends, setCacheLimit as limitCaches } from "../backend/devices.ts";
import { ValueError } from "../graph/error.ts";

export { explain } from "../backend/explain.ts";
export {
  closeDevices,
  defaultDevice,
  type DeviceInfo,
  devices,
  type MissingKernels,
  openAhead,
  prepareDevices,
  RuntimeError,
  type RuntimeErrorCode,
} from "../backend/devices.ts";

/** Memory of one device in bytes. */
export interface DeviceMemory {
  /** Name of the device. */
  readonly name: string;
  /** Bytes in arrays and intermediates, those in host memory among them. */
  readonly active: number;
  /** Highest `active` since the last `resetPeakMemory()`. */
  readonly peak: number;
  /** Bytes the device offers. */
  readonly total: number;
  /** Bytes free now, as far as the device tells. */
  readonly available: number;
  /** Bytes in arrays that are in host memory for want of room, such as experts of a large model. */
  readonly hostActive: number;
  /** Bytes free for more of them, of the driver's share and of the machine; 0 if `hostTotal` is. */
  readonly hostAvailable: number;
  /** Bytes of the host's memory that the device may use besides its own; 0 if there is only one memory. */
  readonly hostTotal: number;
}

/** Memory of a device, the default one unless named; opens it. */
export function deviceMemory(name?: string): DeviceMemory {
  const backend = getBackend(name);
  return { name: backend.name, ...backend.memory() };
}

/**
 * Bytes in arrays on all devices in use.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * using x = mx.zeros([1024]);
 * mx.eval(x);
 * mx.getActiveMemory(); // 4096 or more
 * ```
 */
export function getActiveMemory(): number {
  return openBackends().reduce((sum, backend) => sum + backend.memory().active, 0);
}

/** Highest number of bytes that arrays took since the start or {@link resetPeakMemory}. */
export function getPeakMemory(): number {
  return openBackends().reduce((sum, backend) => sum + backend.memory().peak, 0);
}

/** Lets {@link getPeakMemory} begin anew: 0 until something is allocated. */
export function resetPeakMemory(): void {
  for (const backend of openBackends()) backend.resetPeakMemory();
}

/** Bytes of freed memory that all devices in use keep for reuse. */
export function getCacheMemory(): number {
  return openBackends().reduce((sum, backend) => sum + backend.memory().cached, 0);
}

/** Gives the freed memory that is kept for reuse back to the driver. */
export function clearCache(): void {
  for (const backend of openBackends()) {
    const { cacheLimit } = backend.memory();
    backend.setCacheLimit(0);
    backend.setCacheLimit(cacheLimit);
  }
}

function checkBytes(bytes: number, call: string): void {
  if (Number.isSafeInteger(bytes) && bytes >= 0) return;
  throw new ValueError(`${call}() expected a number of bytes: found ${bytes}`);
}

/**
 * Sets how many bytes of freed memory each device keeps for reuse; 0 gives all back at once. Returns the limit before: that of the
 * default device where none was set.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const before = mx.setCacheLimit(0);
 * mx.setCacheLimit(before); // 0
 * ```
 */
export function setCacheLimit(bytes: number): number {
  checkBytes(bytes, "setCacheLimit");
  const before = limits.cache ?? getBackend().memory().cacheLimit;
  limitCaches(bytes);
  return before;
}

/**
 * Sets the bytes in use from which on a device, before it allocates, waits for submitted work and frees the cache. Weights in host memory
 * beside the device's do not count. If a request still does not fit, it is allocated all the same, as far as there is memory. Returns the limit before: half more than the default device offers
 * where none was set, as in MLX.
 */
export function setMemoryLimit(bytes: number): number {
  checkBytes(bytes, "setMemoryLimit");
  const before = getMemoryLimit();
  limits.memory = bytes;
  return before;
}

/** From how many bytes in use on a device allocating waits: see {@link setMemoryLimit}. */
export function getMemoryLimit(): number {
  return limits.memory ?? Math.floor(1.5 * getBackend().memory().total);
}

/**
 * Takes the bytes that MLX would keep resident, at most what the default device offers; returns those given before. The memory of
 * Vulkan devices is resident anyway, so that nothing else follows.
 */
export function setWiredLimit(bytes: number): number {
  checkBytes(bytes, "setWiredLimit");
  const { total } = getBackend().memory();
  if (bytes > total) {
    throw new ValueError(`setWiredLimit() expected at most the ${total} bytes of the device: found ${bytes}`);
  }
  const before = limits.wired;
  limits.wired = bytes;
  return before;
}
