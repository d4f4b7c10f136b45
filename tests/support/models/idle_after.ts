/**
 * Tests of models on a GPU, whose kernels are made on other threads beside the work. A test ends when that has, since Deno counts
 * what was begun in a test and goes on after it. What takes those kernels is looked at once they are there.
 */

import type * as mx from "../../../mod.ts";

/** Most rounds until all steps of some work are there. */
const ROUNDS = 16;

/**
 * Repeats work until no step of it waited for its kernels, and gives what it gave then. On a GPU nothing is drafted before.
 * One round is not enough: the step that verifies a draft is asked for only where the step that makes the draft is there.
 */
export async function onceMade<T>(models: readonly mx.lm.LanguageModel[], work: () => Promise<T>): Promise<T> {
  const idle = async (): Promise<void> => {
    for (const { traces } of models) await traces.idle();
  };
  const count = (): number => models.reduce((sum, { traces }) => sum + traces.made, 0);
  await idle();
  for (let round = 0; round < ROUNDS; round++) {
    const before = count();
    const result = await work();
    await idle();
    if (count() === before) return result;
  }
  throw new Error(`work takes steps that it did not take before, also in its round ${ROUNDS}`);
}

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
