/** Vulkan layers of tests/support/planted, compiled for a test: they give software devices what only others have. */

import { assert } from "@std/assert";
import { findZig, ROOT } from "../../../scripts/tools.ts";

/**
 * Compiles a layer into a folder, and gives the environment in which programs run under it. `source` is a file of tests/support/planted,
 * `functions` are the names that the layer has for those that the loader asks for.
 */
export async function compileLayer(
  folder: string,
  source: string,
  functions: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  const path = `${ROOT}tests/support/planted/${source}`;
  const [command, ...args] = [
    ...(await findZig())!,
    "cc",
    "-shared",
    "-fPIC",
    // What it calls is in the program that loads it; Zig would first compile a runtime for half a minute.
    "-nostdlib",
    "-fno-sanitize=all",
    "-I/usr/include",
    "-o",
    `${folder}/layer.so`,
    path,
  ];
  const compiled = await new Deno.Command(command, { args }).output();
  assert(compiled.success, new TextDecoder().decode(compiled.stderr));
  const name = `VK_LAYER_VKMX_${source.replace(/_layer\.c$/, "")}`;
  const layer = {
    name,
    type: "GLOBAL",
    library_path: "./layer.so",
    api_version: "1.3.0",
    description: "",
    implementation_version: "1",
    functions,
  };
  await Deno.writeTextFile(`${folder}/layer.json`, JSON.stringify({ file_format_version: "1.1.2", layer }));
  return { VK_LAYER_PATH: folder, VK_INSTANCE_LAYERS: name, VKMX_CACHE: folder, NO_COLOR: "1" };
}
