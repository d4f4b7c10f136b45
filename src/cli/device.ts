/**
 * The devices on the command line: what `--device` names, and the list of what is here.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { brokenDrivers } from "../backend/devices.ts";
import { print, printJson } from "./output.ts";

/** Names whose device is looked for when it is opened, on another thread. */
const LATER = /^(gpu|vulkan:\d+.*)$/;

/**
 * Readies the device of `--device`; "list" prints what is here, as JSON where that is asked for, and ends the program. Throws a
 * RuntimeError that lists what is here where nothing has that name.
 */
export async function useDevice(name: string | undefined, json = false): Promise<void> {
  if (name === "list") {
    if (json) printJson(listDevices());
    else print(describeDevices());
    Deno.exit(0);
  }
  await mx.prepareDevices(name);
  if (name !== undefined && !LATER.test(name)) mx.deviceInfo(name);
}

/** The devices of those names, all of this machine unless given, and which one is the default: what --json prints. */
export function listDevices(names: readonly string[] = []): (mx.DeviceInfo & { readonly default: boolean })[] {
  const list = names.length > 0 ? names.map(mx.deviceInfo) : mx.devices();
  const chosen = mx.defaultDevice();
  return list.map((device) => ({ ...device, default: device.name === chosen }));
}

/**
 * Lines about the devices of those names, all of this machine unless given: which one is the default, why one is not used, which
 * kernels a GPU does without and why, and drivers that cannot be loaded.
 */
export function describeDevices(names: readonly string[] = []): string {
  const list = names.length > 0 ? names.map(mx.deviceInfo) : mx.devices();
  const chosen = mx.defaultDevice();
  const width = Math.max(...list.map((d) => d.name.length));
  const lines: string[] = [];
  for (const { name, description, usable, reason, features, missing = [] } of list) {
    const mark = name === chosen ? "*" : usable ? " " : "-";
    lines.push(`${mark} ${name.padEnd(width)}  ${description}${reason ? `: ${reason}` : ""}`);
    if (features) lines.push(`    features: ${features.join(", ") || "none of the optional ones"}`);
    for (const { reason, kernels } of missing) lines.push(`    without ${kernels.join(", ")}: ${reason}`);
  }
  const told = list.some((d) => d.type === "none"); // broken drivers are its reason
  if (names.length === 0 && !told) lines.push(...brokenDrivers().map((line) => `- ${line}`));
  return lines.map((line) => `${line}\n`).join("");
}
