/**
 * Seeds of what the tests draw.
 *
 * @module
 */

/** A number for a text. */
export function hashOf(text: string): number {
  return Array.from(text).reduce((n, c) => (31 * n + c.codePointAt(0)!) >>> 0, 7);
}

/**
 * A number for a seed. If seeds are dates or whole numbers, each gets one more than the one before it. Cases that run
 * by turns have all run after as many consecutive seeds as there are turns.
 */
export function turnOf(seed: string): number {
  const turn = /^\d{4}-\d\d-\d\d$/.test(seed) ? Date.parse(seed) / 86_400_000 : Number(seed);
  return Number.isInteger(turn) && turn >= 0 ? turn : hashOf(seed);
}
