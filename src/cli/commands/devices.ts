/**
 * `vkmx devices`: what there is to compute on, which device is the default, why one is not used, and which kernels a GPU has to do
 * without and why.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { describeDevices, listDevices } from "../device.ts";
import { print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";

const ABOUT = `Lists the devices of this machine; * marks the default, - what cannot be used, with the reason.
With names, such as gpu, cpu or vulkan:0-coopmat, only those. Usable devices are opened, which shows their memory.`;

const PROGRAM = {
  name: "vkmx devices",
  operand: "[NAME…]",
  about: ABOUT,
  flags: JSON_FLAG,
  examples: ["", "gpu --json"],
};

const devices: Command = command(PROGRAM, async ({ json }, names) => {
  await mx.prepareDevices(names[0]);
  if (json) printJson(listDevices(names));
  else print(describeDevices(names));
  return 0;
});

export default devices;
