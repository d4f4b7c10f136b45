/**
 * `deno task devices [NAME…]`: the devices of this machine, which one is the default, why one is not used, and which kernels a
 * GPU has to do without and why. With names, such as vulkan:0-coopmat, only those.
 *
 * @module
 */

import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { describeDevices } from "../src/cli/device.ts";

const ABOUT = `Lists the devices of this machine; * marks the default, - what cannot be used, with the reason.
With names, such as gpu, cpu or vulkan:0-coopmat, only those.`;

await runMain({ name: "devices", operand: "[name…]", about: ABOUT, flags: {} }, (_values, names) => {
  print(describeDevices(names));
  return Promise.resolve(0);
});
