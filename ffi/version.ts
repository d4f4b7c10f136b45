/**
 * Version of the package and the names of its files on this system.
 *
 * @module
 */

/** Version of the package; the same as in deno.json. */
export const VERSION = "0.1.0";

/** Name of this system in the table of releases, such as "x86_64-linux". */
export function target(): string {
  return `${Deno.build.arch}-${Deno.build.os}`;
}

/** File name of the library on a system, this one unless named. */
export function fileName(os: string = Deno.build.os): string {
  if (os === "windows") return "vk_runtime.dll";
  return os === "darwin" ? "libvk_runtime.dylib" : "libvk_runtime.so";
}
