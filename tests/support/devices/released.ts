/**
 * Memory of arrays that a test forgot without disposing of them.
 *
 * @module
 */

import { collect } from "../../../src/schedule/plan/garbage.ts";

/**
 * Collects until `used()` is at most `most`, for five seconds if it must, and returns what it is then. One collection need not do:
 * on a busy machine it was seen to leave an array that a later one released.
 */
export async function whenReleased(used: () => number, most: number): Promise<number> {
  for (let i = 0; i < 250; i++) {
    collect();
    if (used() <= most) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return used();
}
