/**
 * Masks of tokens: a bit for each of the tokens of a row of logits, in words of 32.
 *
 * @module
 */

/** Bits of a word. */
export const MASK_BITS = 32;

/** Words of the mask of a row of `cols` logits. */
export function maskWords(cols: number): number {
  return Math.ceil(cols / MASK_BITS);
}
