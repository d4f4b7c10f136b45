/**
 * Whether a machine shows signs of a GPU, found out without opening a library.
 *
 * @module
 */

import { environment, granted } from "./environment.ts";

/** Files and folders that come with the kernel's driver of a GPU: NVIDIA, AMD, WSL. */
const LINUX_DEVICES = ["/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"];

/** Whether something is there; false where looking is not permitted. */
function present(path: string): boolean {
  try {
    return granted({ name: "read", path }) && Deno.statSync(path) !== undefined;
  } catch {
    return false;
  }
}

/** Whether this machine shows signs of a GPU: a render node, an NVIDIA, AMD or WSL device; always on Apple silicon. */
export function gpuPresent(): boolean {
  if (Deno.build.os === "darwin") return Deno.build.arch === "aarch64";
  if (Deno.build.os === "windows") {
    return present(`${environment("SystemRoot") ?? "C:\\Windows"}\\System32\\vulkan-1.dll`);
  }
  if (LINUX_DEVICES.some(present)) return true;
  try {
    return granted({ name: "read", path: "/dev/dri" }) &&
      Array.from(Deno.readDirSync("/dev/dri")).some((entry) => entry.name.startsWith("renderD"));
  } catch {
    return false;
  }
}
