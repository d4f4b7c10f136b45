/**
 * The device that arrays are on.
 *
 * @module
 */

import { DeviceFacts } from "../../schedule/device_facts.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";

export type { DeviceFacts };

/** Facts of the device that evaluates arrays. */
export function deviceOf(arrays: readonly Tensor[]): DeviceFacts {
  return new DeviceFacts(arrays.map(nodeOf));
}

/** What holds on all of some devices. */
export function devicesOf(names: readonly string[]): DeviceFacts {
  return new DeviceFacts({ names });
}
