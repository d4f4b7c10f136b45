/**
 * The devices as the layers above see them: their names, which one is the default, and how much memory they hold.
 *
 * @module
 */

import { getBackend, openBackends } from "../backend/devices.ts";

export {
  closeDevices,
  defaultDevice,
  type DeviceInfo,
  deviceInfo,
  devices,
  type MissingKernels,
  openAhead,
  prepareDevices,
  RuntimeError,
  type RuntimeErrorCode,
  setDefaultDevice,
  withDevice,
} from "../backend/devices.ts";

/** Memory of one device in bytes. */
export interface DeviceMemory {
  /** Name of the device. */
  readonly name: string;
  /** Bytes in arrays and intermediates. */
  readonly active: number;
  /** Highest `active` since the last `resetPeakMemory()`. */
  readonly peak: number;
  /** Bytes the device offers. */
  readonly total: number;
  /** Bytes free now, as far as the device tells. */
  readonly available: number;
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

/** Lets {@link getPeakMemory} begin anew from what is in use now. */
export function resetPeakMemory(): void {
  for (const backend of openBackends()) backend.resetPeakMemory();
}
