/**
 * Whether a machine shows signs of a GPU, found out without opening a library.
 *
 * @module
 */

import { environment, granted } from "./environment.ts";

/** Files and folders that come with the kernel's driver of a GPU: NVIDIA, AMD, WSL. */
const LINUX_DEVICES = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"];

/** Whether something is there; undefined if Deno may not look. It looks under /dev of Linux only with all permissions. */
function present(
  path: string,
  look: (path: string) => boolean = (path) => Deno.statSync(path) !== undefined,
): boolean | undefined {
  if (!granted({ name: "read", path })) return undefined;
  try {
    return look(path);
  } catch (error) {
    return error instanceof Deno.errors.NotCapable ? undefined : false;
  }
}

/** Whether a folder holds a render node. */
function hasRenderNode(folder: string): boolean {
  return Array.from(Deno.readDirSync(folder)).some((entry) => entry.name.startsWith("renderD"));
}

/**
 * Whether this machine shows signs of a GPU: a render node, an NVIDIA, AMD or WSL device; always on Apple silicon. Undefined where
 * Deno may not look.
 */
export function gpuPresent(): boolean | undefined {
  if (Deno.build.os === "darwin") return Deno.build.arch === "aarch64";
  if (Deno.build.os === "windows") {
    return present(`${environment("SystemRoot") ?? "C:\\Windows"}\\System32\\vulkan-1.dll`);
  }
  const signs = [...LINUX_DEVICES.map((path) => present(path)), present("/dev/dri", hasRenderNode)];
  return signs.includes(true) || (signs.includes(undefined) ? undefined : false);
}
