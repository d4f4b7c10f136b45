/** A native library with the ABI hash of another build, for tests of the message. */

import { assert } from "@std/assert";
import { ABI_HASH } from "../../../ffi/symbols.ts";

/** The hash that the copy has. */
export const OTHER_ABI = 0x12345678;

/** Makes a copy of a library with {@link OTHER_ABI} in place of its hash; returns its path, which the caller removes. */
export async function otherBuild(library: string): Promise<string> {
  const bytes = await Deno.readFile(library);
  const view = new DataView(bytes.buffer);
  let found = 0;
  for (let at = 0; at + 4 <= bytes.length; at++) {
    if (view.getUint32(at, true) !== ABI_HASH) continue;
    view.setUint32(at, OTHER_ABI, true);
    found++;
  }
  assert(found > 0, `${library} does not have the ABI hash of this source: run \`deno task build\``);
  const path = await Deno.makeTempFile({ suffix: ".so" });
  await Deno.writeFile(path, bytes);
  return path;
}
