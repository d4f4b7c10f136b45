/**
 * `mx.metal`: the backend of MLX that is not here, so that programs which ask get an answer; and older names of functions of memory.
 *
 * @module
 */

export {
  clearCache,
  getActiveMemory,
  getCacheMemory,
  getPeakMemory,
  resetPeakMemory,
  setCacheLimit,
  setMemoryLimit,
  setWiredLimit,
} from "../../schedule/device_info.ts";

/** Whether arrays run on Metal: never. */
export function isAvailable(): boolean {
  return false;
}

/** The properties of the Metal device: there are none. */
export function deviceInfo(): Record<string, never> {
  return {};
}
