/**
 * Preloaded by `deno task test:gpu`: a test ends when nothing is compiled or probed beside it any more. On a GPU a faster form of a step is
 * looked for while tokens come, which takes seconds there. Deno would count that as a leak of the test.
 *
 * @module
 */

import { settled } from "../../src/array/compile/loop.ts";
import { registerBy } from "./definitions.ts";

registerBy((definition) => ({
  ...definition,
  fn: async (context) => {
    try {
      await definition.fn(context);
    } finally {
      await settled();
    }
  },
}));
