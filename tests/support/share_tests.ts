/**
 * Preloaded by `deno task test` before a file whose tests take long: every n-th test runs, beginning where the seed says, and the
 * others are ignored. So n runs in a row with the seeds 0 to n - 1 have all of them.
 *
 * VKMX_TEST_SHARE is n and VKMX_TEST_SHARE_FROM the first test that runs. VKMX_TEST_SHARE_OF is "vulkan" for the tests of Vulkan
 * devices alone, else "all".
 *
 * @module
 */

import { registerBy } from "./definitions.ts";

const SHARE = Number(Deno.env.get("VKMX_TEST_SHARE"));
const FROM = Number(Deno.env.get("VKMX_TEST_SHARE_FROM"));
const SHARED = Deno.env.get("VKMX_TEST_SHARE_OF") === "vulkan" ? /\bvulkan:\d/ : /(?:)/;

if (!(SHARE >= 1) || !(FROM >= 0)) throw new Error("VKMX_TEST_SHARE or VKMX_TEST_SHARE_FROM is no number");

let count = 0;

// A test is ignored if it is another seed's.
registerBy((definition) => {
  const other = SHARED.test(definition.name) && !definition.ignore && count++ % SHARE !== FROM % SHARE;
  return other ? { ...definition, ignore: true } : definition;
});
