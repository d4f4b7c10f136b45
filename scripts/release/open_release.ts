/**
 * Unpacks the library of this machine from the release that `deno task release` wrote here, as the package does, and opens it.
 *
 * @module
 */

import { openLibrary } from "../../ffi/library.ts";
import { fetchLibrary, verifiedLibrary } from "../../ffi/released_library.ts";

if (import.meta.main) {
  const reason = await fetchLibrary();
  const path = verifiedLibrary();
  if (path === undefined) {
    console.error(`open_release: ${reason ?? "what was unpacked is gone"}`);
    Deno.exit(1);
  }
  Deno.env.set("VKMX_LIBRARY", path); // not one that was built here
  openLibrary();
  console.log(`${path} opens`);
}
