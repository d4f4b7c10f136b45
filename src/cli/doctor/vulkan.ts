/**
 * The way to a GPU, link by link: the loader, the drivers, the library, the devices, and whether each computes what the CPU does.
 *
 * @module
 */

import { join } from "node:path";
import * as mx from "../../../mod.ts";
import { environment } from "../../../ffi/environment.ts";
import { gpuPresent } from "../../../ffi/gpu_present.ts";
import { openLibrary } from "../../../ffi/library.ts";
import { hasRelease, releasedSum } from "../../../ffi/released_library.ts";
import { names } from "../../../ffi/store.ts";
import { ABI_HASH } from "../../../ffi/symbols.ts";
import { brokenDrivers } from "../../backend/devices.ts";
import { shownPath } from "../../graph/error.ts";
import { inspectDevices } from "../device.ts";
import { describeBytes } from "../table.ts";
import { type Check, fail, ok, reasonOf, warn } from "./check.ts";

/** Names of the Vulkan loader, and what to do if there is none. */
const LOADERS: Readonly<Record<string, { readonly files: readonly string[]; readonly advice: string }>> = {
  windows: { files: ["vulkan-1.dll"], advice: "install or update the driver of the graphics card" },
  darwin: {
    files: ["", "/opt/homebrew/lib/", "/usr/local/lib/"].flatMap((
      folder,
    ) => [`${folder}libvulkan.1.dylib`, `${folder}libMoltenVK.dylib`]),
    advice: "brew install vulkan-loader molten-vk",
  },
  linux: {
    files: ["libvulkan.so.1"],
    advice: "install the Vulkan loader (Debian, Ubuntu: apt-get install libvulkan1)",
  },
};

/** Largest difference from the CPU's values, which are below 1. */
const TOLERANCE = 1e-4;

/** Checks the way to a GPU. Devices are opened. */
export async function checkVulkan(): Promise<Check[]> {
  const library = await checkLibrary();
  return [checkLoader(), ...checkDrivers(), library, ...checkDevices()];
}

function checkLoader(): Check {
  const { files, advice } = LOADERS[Deno.build.os] ?? LOADERS.linux;
  for (const file of files) {
    try {
      const loader = Deno.dlopen(file, {
        vkEnumerateInstanceVersion: { parameters: ["buffer"], result: "i32" },
      });
      const version = new Uint32Array(1);
      loader.symbols.vkEnumerateInstanceVersion(version);
      loader.close();
      const [packed] = version;
      return ok("Vulkan loader", `${file}, Vulkan ${packed >>> 22}.${(packed >>> 12) & 0x3ff}.${packed & 0xfff}`);
    } catch { /* the next name */ }
  }
  return warn("Vulkan loader", `${files[0]} is not installed`, advice);
}

/** The folders where drivers leave their manifests on Linux. */
function manifestFolders(): string[] {
  const all = (variable: string, otherwise: string): string[] => (environment(variable) ?? otherwise).split(":");
  const home = environment("HOME");
  return [
    ...(home === undefined ? [] : [`${home}/.config`, `${home}/.local/share`]),
    ...all("XDG_CONFIG_DIRS", "/etc/xdg"),
    "/etc",
    ...all("XDG_DATA_DIRS", "/usr/local/share:/usr/share"),
  ].map((folder) => `${folder}/vulkan/icd.d`);
}

/** The drivers' manifests; elsewhere than on Linux they are not in folders. */
function manifests(): string[] {
  const named = environment("VK_DRIVER_FILES") ?? environment("VK_ICD_FILENAMES");
  if (named !== undefined) return named.split(Deno.build.os === "windows" ? ";" : ":");
  if (Deno.build.os !== "linux") return [];
  return manifestFolders().flatMap((folder) =>
    names(folder).filter((name) => name.endsWith(".json")).map((name) => join(folder, name))
  );
}

function checkDrivers(): Check[] {
  const found = manifests();
  const broken = brokenDrivers();
  const checks = broken.map((line): Check => {
    const [text, advice] = line.split(/; (?=install )/);
    return warn("Vulkan driver", text, advice);
  });
  if (found.length > 0) return [ok("Vulkan drivers", found.map(shownPath).join(", ")), ...checks];
  if (Deno.build.os !== "linux") return checks;
  return [warn("Vulkan drivers", "none is installed", "install the driver of the GPU's maker")];
}

/** The library of this package, and where it came from. A package fetches it here, a checkout builds nothing. */
async function checkLibrary(): Promise<Check> {
  if (hasRelease()) await mx.prepareDevices("vulkan:0");
  const named = environment("VKMX_LIBRARY") !== undefined;
  try {
    const { path } = openLibrary();
    const from = named
      ? "named by VKMX_LIBRARY"
      : releasedSum(path) === undefined
      ? "built in this checkout"
      : "of this release, verified";
    return ok("library", `${shownPath(path)}, ${from}, ABI 0x${ABI_HASH.toString(16).padStart(8, "0")}`);
  } catch (error) {
    if (!(error instanceof mx.RuntimeError)) throw error;
    return warn("library", reasonOf(error), named ? "unset VKMX_LIBRARY" : undefined); // the reason says what to do
  }
}

/** Values below 1 that depend on every step of a small computation. */
function compute(device: string): readonly number[] {
  return mx.withDevice(device, () =>
    mx.tidy(() => {
      const x = mx.sin(mx.arange(64 * 64).reshape(64, 64).astype(mx.float32));
      return mx.softmax(mx.matmul(x, mx.transpose(x)), -1).flatten().tolist() as number[];
    }));
}

function checkDevices(): Check[] {
  const named = environment("VKMX_DEVICE");
  const expected = compute("wasm");
  const total = expected.reduce((sum, value) => sum + value, 0);
  const advice = "update the driver of the GPU, or set VKMX_DEVICE=cpu";
  const checks = inspectDevices().map(({ name, description, isDefault, usable, reason, memory, type }): Check => {
    const what = `${description}${isDefault ? ", the default" : ""}`;
    if (!usable) {
      const present = gpuPresent() ? "" : " (no GPU was seen)";
      return warn(name, `${what}: ${reason}${present}`, "vkmx devices tells more");
    }
    const room = memory ? `, ${describeBytes(memory.available)} of ${describeBytes(memory.total)} free` : "";
    if (type === "wasm") {
      // Rows of a softmax add up to one.
      const good = Math.abs(total - 64) < 64 * TOLERANCE;
      return good ? ok(name, `${what}${room}, computes`) : fail(name, `${what} computes wrongly`, "deno upgrade");
    }
    try {
      const found = compute(name);
      const most = found.reduce((worst, value, i) => Math.max(worst, Math.abs(value - expected[i])), 0);
      if (most <= TOLERANCE) return ok(name, `${what}${room}, computes what the CPU does`);
      return fail(name, `${what} computes wrongly: values differ from the CPU's by up to ${most}`, advice);
    } catch (error) {
      if (!(error instanceof mx.RuntimeError)) throw error;
      return isDefault
        ? fail(name, `${what}: ${error.detail}`, advice)
        : warn(name, `${what}: ${error.detail}`, advice);
    }
  });
  if (named === undefined) return checks;
  try {
    return [...checks, ok("VKMX_DEVICE", `${named} is ${mx.deviceInfo(named).description}`)];
  } catch (error) {
    if (!(error instanceof mx.RuntimeError)) throw error;
    return [...checks, fail("VKMX_DEVICE", error.detail, "unset VKMX_DEVICE, or name one that vkmx devices lists")];
  }
}
