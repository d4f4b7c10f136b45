/**
 * The committed generated files equal what the tables and the WASM kernels give now, and comments in tables change nothing. Building the
 * files takes a minute of a processor: before the full tier, the digest of their sources tells whether they were made of these.
 */

import { assert, assertEquals } from "@std/assert";
import { DIGEST_FILE, digestSources, GENERATED_FILES } from "../scripts/generated.ts";
import { TEXT_MODULES, textModule } from "../scripts/text_modules.ts";
import { findZig, ROOT, run } from "../scripts/tools.ts";
import { needing } from "./support/needs.ts";
import { TIER } from "./support/tier.ts";

Deno.test("generated files were made of the sources that are here", async () => {
  const kept = await Deno.readTextFile(ROOT + DIGEST_FILE);
  assertEquals(kept, `${digestSources()}\n`, "run `deno task gen`");
});

Deno.test({
  ...await needing("a comment in a table leaves the ABI hash as it is", "zig"),
  fn: async () => {
    const tests = await run([...(await findZig())!, "test", `${ROOT}runtime-c/gen/comments.zig`]);
    assert(tests.ok, tests.stderr);
  },
});

Deno.test("modules of texts have the texts that are here", async () => {
  for (const row of TEXT_MODULES) {
    assert(await Deno.readTextFile(ROOT + row.module) === textModule(row), `${row.module}: run \`deno task gen\``);
    const exported: Record<string, unknown> = await import(new URL(`../${row.module}`, import.meta.url).href);
    assert(exported[row.name] === await Deno.readTextFile(ROOT + row.source), row.module);
  }
});

const { name, ignore } = await needing("generated files equal what `zig build gen` writes", "zig");

Deno.test({
  name,
  ignore: ignore || TIER !== "full",
  fn: async () => {
    const folder = await Deno.makeTempDir();
    try {
      const build = await run([...(await findZig())!, "build", "generated", "--prefix", folder]);
      assert(build.ok, build.stderr);
      const stale: string[] = [];
      for (const file of GENERATED_FILES) {
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
  },
});
