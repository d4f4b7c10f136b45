/**
 * System packages: the shader compiler, the Vulkan loader with its headers, a software device and the validation layers; Open MPI.
 *
 * @module
 */

import { lastLine, say } from "../log.ts";
import { exists, run } from "../tools.ts";

/** On Debian and Ubuntu. */
export const APT: readonly string[] = [
  "glslc",
  "libvulkan1",
  "libvulkan-dev",
  "mesa-vulkan-drivers",
  "vulkan-validationlayers",
  "spirv-tools",
  "openmpi-bin",
];

/** Commands for other systems, by the ID of /etc/os-release or by operating system. */
const COMMANDS: Readonly<Record<string, string>> = {
  fedora: "sudo dnf install glslc vulkan-headers vulkan-loader-devel mesa-vulkan-drivers vulkan-validation-layers " +
    "spirv-tools",
  arch: "sudo pacman -S --needed shaderc vulkan-headers vulkan-icd-loader vulkan-swrast vulkan-validation-layers " +
    "spirv-tools",
  suse: "sudo zypper install shaderc vulkan-devel libvulkan_lvp vulkan-validationlayers spirv-tools",
  alpine:
    "sudo apk add shaderc vulkan-headers vulkan-loader-dev mesa-vulkan-swrast vulkan-validation-layers spirv-tools",
  darwin: "brew install shaderc vulkan-headers vulkan-loader molten-vk vulkan-validationlayers spirv-tools",
  windows: "winget install KhronosGroup.VulkanSDK",
};

/** Installs missing packages where it may, else prints the command that does. */
export async function providePackages(): Promise<void> {
  const system = await systemName();
  if (system === "debian") return await provideAptPackages();
  if ((await run(["glslc", "--version"])).ok && await hasHeaders()) return;
  const command = COMMANDS[system] ?? "install glslc, the Vulkan loader and headers, and spirv-tools";
  say(`glslc or the Vulkan headers are missing: ${command}`);
}

/** "debian" for all that use apt-get, else a key of {@link COMMANDS} if one fits. */
async function systemName(): Promise<string> {
  if (Deno.build.os !== "linux") return Deno.build.os;
  const names = Object.values(await osRelease()).join(" ");
  if ((await run(["apt-get", "--version"])).ok) return "debian";
  return Object.keys(COMMANDS).find((name) => names.toLowerCase().includes(name)) ?? "linux";
}

/** ID, ID_LIKE, VERSION_ID and VERSION_CODENAME of /etc/os-release. */
export async function osRelease(): Promise<Readonly<Record<string, string>>> {
  const text = await Deno.readTextFile("/etc/os-release").catch(() => "");
  const fields = text.matchAll(/^(ID|ID_LIKE|VERSION_ID|VERSION_CODENAME)="?([^"\n]*)"?$/gm);
  return Object.fromEntries([...fields].map(([, name, value]) => [name, value]));
}

async function hasHeaders(): Promise<boolean> {
  const sdk = Deno.env.get("VULKAN_SDK");
  const roots = [...sdk ? [`${sdk}/include`] : [], "/usr/include", "/usr/local/include", "/opt/homebrew/include"];
  const found = await Promise.all(roots.map((root) => exists(`${root}/vulkan/vulkan.h`)));
  return found.includes(true);
}

async function provideAptPackages(): Promise<void> {
  const missing = await missingPackages();
  if (missing.length === 0) return;
  if (Deno.uid() !== 0) return say(`missing packages: sudo apt-get install -y ${missing.join(" ")}`);
  say(`installing ${missing.join(" ")}`);
  const install = () => run(["apt-get", "install", "-y", "--no-install-recommends", ...missing], { env: QUIET });
  let result = await install();
  if (!result.ok) {
    await run(["apt-get", "update"], { env: QUIET }); // the lists may be old or empty
    result = await install();
  }
  if (!result.ok) say(`apt-get failed: ${lastLine(result.stderr)}`);
}

const QUIET = { DEBIAN_FRONTEND: "noninteractive" };

async function missingPackages(): Promise<string[]> {
  const { stdout } = await run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", ...APT]);
  const installed = new Set(stdout.split("\n").filter((line) => line.endsWith(" installed")));
  return APT.filter((name) => !installed.has(`${name} installed`));
}
