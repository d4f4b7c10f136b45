/**
 * The devices on the command line: the one that `--device` names, and the list of this machine's devices.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { brokenDrivers, hushFallback } from "../backend/devices.ts";
import { vulkanDeviceInfo } from "../../ffi/vulkan.ts";
import { print, printJson } from "./output.ts";
import { describeBytes } from "./table.ts";

/** Names whose device is looked for when it is opened, on another thread. */
const LATER = /^(gpu|vulkan:\d+.*)$/;

/** How {@link useDevice} tells things. */
interface TellOptions {
  /** Whether the list is JSON. */
  readonly json?: boolean | undefined;
  /** Whether the line that says why the CPU does the work is left out. */
  readonly quiet?: boolean;
}

/**
 * Readies the device of `--device`, or the devices; "list" prints what is here and ends the program. Throws a RuntimeError that lists what is here where
 * nothing has that name.
 */
export async function useDevice(
  name: string | undefined,
  { json = false, quiet = false }: TellOptions = {},
): Promise<void> {
  if (quiet) hushFallback();
  if (name === "list") {
    await mx.prepareDevices();
    if (json) printJson(listDevices());
    else print(describeDevices());
    Deno.exit(0);
  }
  for (const one of name?.split(",") ?? [undefined]) {
    await mx.prepareDevices(one);
    if (one !== undefined && !LATER.test(one)) mx.deviceInfo(one);
  }
}

/** A device with the properties that are known after opening it. */
export interface DescribedDevice extends mx.DeviceInfo {
  /** Whether work goes to it where no device is named. */
  readonly isDefault: boolean;
  /** Name and version of its driver; undefined of what has none. */
  readonly driver: string | undefined;
  /** The version of Vulkan that it has. */
  readonly vulkan: string | undefined;
  /** Undefined if it cannot be opened. */
  readonly memory: mx.DeviceMemory | undefined;
}

/** The default device; undefined if VKMX_DEVICE names one that is not here. */
function defaultName(): string | undefined {
  try {
    return mx.defaultDevice();
  } catch (error) {
    if (error instanceof mx.RuntimeError) return undefined;
    throw error;
  }
}

/** The devices of those names, default all of this machine. Usable ones are opened. */
export function inspectDevices(names: readonly string[] = []): DescribedDevice[] {
  const chosen = defaultName();
  return (names.length > 0 ? names.map(mx.deviceInfo) : mx.devices()).map((info) => {
    const index = /^vulkan:(\d+)/.exec(info.name)?.[1];
    const vulkan = index === undefined || info.type === "none" ? undefined : vulkanDeviceInfo(Number(index));
    const device = {
      ...info,
      isDefault: info.name === chosen,
      driver: vulkan && `${vulkan.driver} ${vulkan.driverInfo}`.trim(),
      vulkan: vulkan?.apiVersion,
    };
    if (!info.usable) return { ...device, memory: undefined };
    try {
      return { ...device, memory: mx.deviceMemory(info.name) };
    } catch (error) {
      if (!(error instanceof mx.RuntimeError)) throw error;
      return { ...device, usable: false, reason: error.detail, memory: undefined };
    }
  });
}

/** The devices of those names, default all of this machine: what --json prints. */
export function listDevices(names: readonly string[] = []): Record<string, unknown>[] {
  return inspectDevices(names).map(jsonOf);
}

function jsonOf(device: DescribedDevice): Record<string, unknown> {
  const { name, isDefault, description, type, usable, reason, driver, vulkan, memory, features, missing } = device;
  return {
    name,
    default: isDefault,
    description,
    type,
    usable,
    reason: reason ?? null,
    driver: driver ?? null,
    vulkan: vulkan ?? null,
    memory_total_bytes: memory?.total ?? null,
    memory_free_bytes: memory?.available ?? null,
    host_memory_free_bytes: memory?.hostAvailable ?? null,
    features: features ?? [],
    missing: missing ?? [],
  };
}

/**
 * Lines about the devices of those names, default all of this machine. They say which one is the default, its memory, and why one is not
 * used. They also say how many kernels a GPU does without and why, and which drivers cannot be loaded. With `verbose` they name the kernels.
 */
export function describeDevices(names: readonly string[] = [], verbose = false): string {
  const list = inspectDevices(names);
  const width = Math.max(...list.map((d) => d.name.length));
  const lines: string[] = [];
  for (const { name, type, description, usable, isDefault, reason, memory, features, missing = [] } of list) {
    const mark = isDefault ? "*" : usable ? " " : "-";
    lines.push(`${mark} ${name.padEnd(width)}  ${description}${reason ? `: ${reason}` : ""}`);
    if (memory) {
      const kind = KINDS[type] === undefined ? "" : `${KINDS[type]}, `;
      const beside = memory.hostAvailable > 0
        ? `, ${describeBytes(memory.hostAvailable)} of host memory for experts`
        : "";
      lines.push(`    ${kind}${describeBytes(memory.available)} of ${describeBytes(memory.total)} free${beside}`);
    }
    if (features) lines.push(`    features: ${features.join(", ") || "none of the optional ones"}`);
    for (const { reason, kernels } of missing) {
      const what = verbose ? kernels.join(", ") : kernels.length === 1 ? kernels[0] : `${kernels.length} kernels`;
      lines.push(`    without ${what}: ${reason}`);
    }
  }
  const told = list.some((d) => d.type === "none"); // broken drivers are its reason
  if (names.length === 0 && !told) lines.push(...brokenDrivers().map((line) => `- ${line}`));
  return lines.map((line) => `${line}\n`).join("");
}

/** Kinds of device in words. */
const KINDS: Readonly<Partial<Record<mx.DeviceInfo["type"], string>>> = {
  discrete: "discrete GPU",
  integrated: "integrated GPU",
  virtual: "virtual GPU",
  cpu: "software driver",
  wasm: "CPU",
};
