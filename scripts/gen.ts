/**
 * `deno task gen`: writes the committed generated files, and the digest of their sources, by which tests see in no time that one
 * of them changed since.
 *
 * @module
 */

import { DIGEST_FILE, digestSources } from "./generated.ts";
import { findZig, ROOT, run, ZIG_VERSION } from "./tools.ts";

if (import.meta.main) {
  const zig = await findZig();
  if (!zig) {
    console.error(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\`, or put it on the PATH`);
    Deno.exit(1);
  }
  const { ok } = await run([...zig, "build", "gen"], { show: true });
  if (ok) await Deno.writeTextFile(ROOT + DIGEST_FILE, `${digestSources()}\n`);
  Deno.exit(ok ? 0 : 1);
}
