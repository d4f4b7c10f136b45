/**
 * `deno task devices`: the devices of this machine, which one is the default, and why one is not used.
 *
 * @module
 */

import { defaultDevice, devices } from "../src/backend/devices.ts";

if (import.meta.main) {
  const list = devices();
  const chosen = defaultDevice();
  const width = Math.max(...list.map((d) => d.name.length));
  for (const { name, description, usable, reason } of list) {
    const mark = name === chosen ? "*" : usable ? " " : "-";
    console.log(`${mark} ${name.padEnd(width)}  ${description}${reason ? `: ${reason}` : ""}`);
  }
}
