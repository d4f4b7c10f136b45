/**
 * `deno task devices [NAME…]`: the devices of this machine, which one is the default, why one is not used, and which kernels a
 * GPU has to do without and why. With names, such as vulkan:0-coopmat, only those.
 *
 * @module
 */

import { RuntimeError } from "../ffi/error.ts";
import { defaultDevice, deviceInfo, devices } from "../src/backend/devices.ts";

if (import.meta.main) {
  try {
    const list = Deno.args.length > 0 ? Deno.args.map(deviceInfo) : devices();
    const chosen = defaultDevice();
    const width = Math.max(...list.map((d) => d.name.length));
    for (const { name, description, usable, reason, features, missing = [] } of list) {
      const mark = name === chosen ? "*" : usable ? " " : "-";
      console.log(`${mark} ${name.padEnd(width)}  ${description}${reason ? `: ${reason}` : ""}`);
      if (features) console.log(`    features: ${features.join(", ") || "none of the optional ones"}`);
      for (const { reason, kernels } of missing) console.log(`    without ${kernels.join(", ")}: ${reason}`);
    }
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
    console.error(`devices: ${error.detail}`);
    Deno.exit(1);
  }
}
