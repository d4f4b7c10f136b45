/**
 * The committed generated files equal what the tables and the WASM kernels give now.
 */

import { assert, assertEquals } from "@std/assert";
import { findZig, ROOT, run } from "../scripts/tools.ts";
import { needing } from "./support/needs.ts";

const FILES = [
  "src/backend/kernels.ts",
  "src/schedule/decoder/states.ts",
  "ffi/symbols.ts",
  "ffi/wasm_module.ts",
  "ffi/wasm_threads_module.ts",
];

Deno.test(await needing("generated files equal what `zig build gen` writes", "zig"), async () => {
  const folder = await Deno.makeTempDir();
  try {
    const build = await run([...(await findZig())!, "build", "generated", "--prefix", folder]);
    assert(build.ok, build.stderr);
    const stale: string[] = [];
    for (const file of FILES) {
      const [committed, fresh] = await Promise.all([
        Deno.readTextFile(ROOT + file),
        Deno.readTextFile(`${folder}/generated/${file}`),
      ]);
      if (committed !== fresh) stale.push(file);
    }
    assertEquals(stale, []);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
