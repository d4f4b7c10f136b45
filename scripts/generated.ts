/**
 * The committed generated files and what they are made of.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { ROOT } from "./tools.ts";

/** The files that `zig build gen` writes. */
export const GENERATED_FILES = [
  "src/backend/kernels.ts",
  "src/schedule/decoder/states.ts",
  "ffi/symbols.ts",
  "ffi/wasm_module.ts",
  "ffi/wasm_threads_module.ts",
] as const;

/** Keeps the digest of the sources that the generated files were made of. */
export const DIGEST_FILE = "runtime-c/wasm/sources.sha256";

/** Paths of what the generated files are made of. */
const SOURCES =
  /^(runtime-c\/(wasm\/.*\.(c|h|zig)|gen\.zig|gen\/.*\.zig|vk_runtime\.h)|shaders\/.*\.(h|zon)|build\.zig(\.zon)?)$/;

/** Paths of all files in a folder and below it. */
function* filesIn(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(ROOT + folder)) {
    if (isDirectory) yield* filesIn(`${folder}/${name}`);
    else yield `${folder}/${name}`;
  }
}

/** SHA-256 over the names and bytes of all sources of the generated files. */
export function digestSources(): string {
  const paths = ["build.zig", "build.zig.zon", ...filesIn("runtime-c"), ...filesIn("shaders")];
  const hash = createHash("sha256");
  for (const path of paths.filter((path) => SOURCES.test(path)).sort()) {
    hash.update(`${path}\0`).update(Deno.readFileSync(ROOT + path)).update("\0");
  }
  return hash.digest("hex");
}
