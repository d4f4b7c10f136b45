/**
 * `vkmx devices`: the devices, which one is the default, why one is not used, and how many kernels a GPU does without and why.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { describeDevices, listDevices } from "../device.ts";
import type { Flags } from "../flags.ts";
import { print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";

const ABOUT = `Lists the devices of this machine; * marks the default, - what cannot be used, with the reason.
With names, such as gpu, cpu or vulkan:0-coopmat, only those. Usable devices are opened, which shows their memory.`;

const FLAGS = {
  "verbose": { help: "name the kernels that a GPU does without", short: "v" },
  ...JSON_FLAG,
} as const satisfies Flags;

const PROGRAM = {
  name: "vkmx devices",
  operand: "[NAME…]",
  about: ABOUT,
  flags: FLAGS,
  examples: ["", "gpu --json"],
};

const devices: Command = command(PROGRAM, async ({ json, verbose }, names) => {
  await mx.prepareDevices(names[0]);
  if (json) printJson(listDevices(names));
  else print(describeDevices(names, verbose));
  return 0;
});

export default devices;
