/**
 * Tests of models on a GPU, whose faster kernels are made on other threads beside the work. A test ends when that has, since Deno counts
 * what was begun in a test and goes on after it.
 */

import type * as mx from "../../../mod.ts";

/** A test that waits at its end until nothing is prepared for a model any more, if there is one. */
export function idleAfter(
  model: () => mx.lm.LanguageModel | undefined,
  work: () => void | Promise<void>,
): () => Promise<void> {
  return async () => {
    try {
      await work();
    } finally {
      await model()?.traces.idle();
    }
  };
}
