/**
 * Preloaded by `deno task test` before a file whose tests take long: those that are another seed's are ignored (scripts/test/share.ts).
 *
 * VKMX_TEST_SHARE is n, one in so many tests runs. VKMX_TEST_SHARE_FROM is the first test that runs. VKMX_TEST_SHARE_OF is "vulkan" for
 * the tests of Vulkan devices alone, else "all".
 *
 * @module
 */

import { isOtherSeeds } from "../../scripts/test/share.ts";
import { registerBy } from "./definitions.ts";

const share = Number(Deno.env.get("VKMX_TEST_SHARE"));
const from = Number(Deno.env.get("VKMX_TEST_SHARE_FROM"));
const shareOf = Deno.env.get("VKMX_TEST_SHARE_OF") === "vulkan" ? "vulkan" : "all";

if (!(share >= 1) || !(from >= 0)) throw new Error("VKMX_TEST_SHARE or VKMX_TEST_SHARE_FROM is no number");

const isOther = isOtherSeeds({ share, from, shareOf });
registerBy((definition) => isOther(definition) ? { ...definition, ignore: true } : definition);
