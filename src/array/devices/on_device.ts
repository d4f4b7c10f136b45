/**
 * Scopes of devices for what belongs to one of several, and of host memory.
 *
 * @module
 */

import { explain } from "../../schedule/device_info.ts";
import { inHostMemory, isInHostMemory } from "../../schedule/plan/storage.ts";
import { stream } from "../../schedule/streams.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";

export { explain, inHostMemory };

/** Bytes of those evaluated arrays that {@link inHostMemory} allocated. */
export function hostBytesOf(arrays: readonly Tensor[]): number {
  return arrays.reduce((sum, array) => isInHostMemory(nodeOf(array).stored) ? sum + array.nbytes : sum, 0);
}

/** Runs `fn` in the scope of a device, see {@link stream}; without one as it is. */
export function onDevice<T>(device: string | undefined, fn: () => T): T {
  return device === undefined ? fn() : stream(device, fn);
}
