/**
 * Kernelspecs: the folders in which Jupyter finds out which kernels there are and how to start them.
 *
 * @module
 */

import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { environment } from "../../../ffi/environment.ts";
import { VERSION } from "../../../ffi/version.ts";
import { shownPath } from "../../graph/error.ts";
import { LAUNCHER } from "./launch.ts";

/** A kernel as Jupyter knows it. */
export interface KernelName {
  /** Name of its folder. */
  readonly name: string;
  /** The name that people see. */
  readonly display: string;
}

/** Where the kernels of a user are: JUPYTER_DATA_DIR, else where Jupyter keeps data on this system; of an environment below `prefix`. */
export function kernelsFolder(prefix?: string): string {
  if (prefix !== undefined) return join(prefix, "share", "jupyter", "kernels");
  return join(environment("JUPYTER_DATA_DIR") ?? dataFolder(), "kernels");
}

function dataFolder(): string {
  const of = (name: string): string => {
    const folder = environment(name);
    if (folder === undefined) throw new Error(`${name} is not set: --prefix DIR says where the kernel goes`);
    return folder;
  };
  if (Deno.build.os === "windows") return join(of("APPDATA"), "jupyter");
  if (Deno.build.os === "darwin") return join(of("HOME"), "Library", "Jupyter");
  const shared = environment("XDG_DATA_HOME");
  return join(shared ?? join(of("HOME"), ".local", "share"), "jupyter");
}

/** The command that starts a kernel. */
export function kernelSpec(display: string): object {
  const launcher = new URL(LAUNCHER);
  const module = launcher.protocol === "file:" ? fileURLToPath(launcher) : launcher.href;
  return {
    argv: [denoPath(), "run", "--quiet", "-A", "--no-config", "--no-lock", module, "{connection_file}"],
    display_name: display,
    language: "typescript",
    interrupt_mode: "message", // a signal would end the kernel
    metadata: { vkmx: VERSION },
  };
}

/** Deno's path: that of the PATH if it is the same program, since package managers keep it when they update. */
function denoPath(): string {
  const own = Deno.execPath();
  const file = Deno.build.os === "windows" ? "deno.exe" : "deno";
  for (const folder of environment("PATH")?.split(delimiter) ?? []) {
    const path = join(folder, file);
    try {
      if (Deno.realPathSync(path) === Deno.realPathSync(own)) return path;
    } catch { /* not there */ }
  }
  return own;
}

/** Whether a folder has a kernel: one of vkmx, or another. */
function found(folder: string): "own" | "other" | undefined {
  let text: string;
  try {
    text = Deno.readTextFileSync(join(folder, "kernel.json"));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  try {
    return JSON.parse(text).metadata?.vkmx === undefined ? "other" : "own";
  } catch {
    return "other";
  }
}

/** Throws if a folder has a foreign kernel. */
function checkOwn(folder: string): void {
  if (found(folder) !== "other") return;
  throw new Error(`${shownPath(folder)} is another kernel: choose another --name, or --force to replace it`);
}

/** Writes a kernel and gives the path of its kernel.json. A foreign kernel is replaced with `force` only. */
export function addKernel(kernels: string, { name, display }: KernelName, force: boolean): string {
  const folder = join(kernels, name);
  if (!force) checkOwn(folder);
  Deno.mkdirSync(folder, { recursive: true });
  const path = join(folder, "kernel.json");
  Deno.writeTextFileSync(path, `${JSON.stringify(kernelSpec(display), null, 2)}\n`);
  return path;
}

/** Removes a kernel and gives the path of its folder. A foreign one is removed with `force` only. */
export function removeKernel(kernels: string, name: string, force: boolean): string {
  const folder = join(kernels, name);
  if (found(folder) === undefined) throw new Error(`${shownPath(folder)} is not there: nothing was removed`);
  if (!force) checkOwn(folder);
  Deno.removeSync(folder, { recursive: true });
  return folder;
}
