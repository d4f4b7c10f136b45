/**
 * Scopes of devices for what belongs to one of several.
 *
 * @module
 */

import { explain } from "../../schedule/device_info.ts";
import { stream } from "../../schedule/streams.ts";

export { explain };

/** Runs `fn` in the scope of a device, see {@link stream}; without one as it is. */
export function onDevice<T>(device: string | undefined, fn: () => T): T {
  return device === undefined ? fn() : stream(device, fn);
}
