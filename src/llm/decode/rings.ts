/**
 * The tokens that penalties look at, as a ring by position.
 *
 * @module
 */

/** The last tokens by position modulo size; places that no token reached hold the last one, which a set does not notice. */
export function ring(prompt: readonly number[], last: number, size: number): number[] {
  return inRing(prompt, last, size, prompt[prompt.length - 1]);
}

/** 1 where {@link ring} has a token, 0 if no token reached. */
export function ringWeights(prompt: readonly number[], last: number, size: number): number[] {
  return inRing(prompt.map(() => 1), last, size, 0);
}

function inRing(values: readonly number[], last: number, size: number, rest: number): number[] {
  const slots = new Array<number>(size).fill(rest);
  for (let back = Math.min(size, values.length) - 1; back >= 0; back--) {
    slots[(((last - back) % size) + size) % size] = values[values.length - 1 - back];
  }
  return slots;
}
