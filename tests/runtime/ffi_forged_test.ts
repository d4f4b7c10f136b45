/**
 * Calls that no program should make leave the native library as it was; `deno task test:sanitize` makes more of them.
 */

import { assert } from "@std/assert";
import { forgeCalls } from "../support/planted/forged_calls.ts";
import { INDICES } from "../support/devices/vulkan_device.ts";

for (const seed of [1, 2]) {
  Deno.test({
    name: `2,000 forged, stale and NULL calls answer a status (seed ${seed})`,
    ignore: INDICES.length === 0,
    fn: () => {
      const tally = Object.entries(forgeCalls(2000, seed));
      assert(tally.length > 20, "nearly all functions are called");
      // Calls that are all refused would test no more than the first check of each function.
      for (const name of ["vkrt_buffer_new", "vkrt_buffer_read", "vkrt_plan_new", "vkrt_plan_run", "vkrt_wait"]) {
        const { calls, succeeded } = Object.fromEntries(tally)[name];
        assert(succeeded > 0 && succeeded < calls, `${name}: ${succeeded} of ${calls} succeeded`);
      }
    },
  });
}
