/**
 * `deno task gen`: writes the committed generated files and the digest of their sources. By the digest a test sees at once that a
 * source changed since.
 *
 * @module
 */

import { DIGEST_FILE, digestSources } from "./generated.ts";
import { writeTextModules } from "./text_modules.ts";
import { ROOT } from "./tools.ts";
import { runZig } from "./zig.ts";

if (import.meta.main) {
  writeTextModules();
  if (!await runZig(["build", "gen"])) Deno.exit(1);
  await Deno.writeTextFile(ROOT + DIGEST_FILE, `${digestSources()}\n`);
}
