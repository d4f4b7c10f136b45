/** Keys and values in 8 bits, by a search over all exponents: what src/graph/kv_codes.ts says, in plain numbers. */

/** The nearest integer, halves to even. */
function nearest(x: number): number {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/** The word of four numbers: the least exponent that leaves none above 63. */
export function wordOf(four: readonly number[]): number {
  const numbers = four.map((x) => Number.isNaN(x) ? 0 : Math.max(-2016, Math.min(2016, x)));
  for (let e = 0;; e++) {
    const m = numbers.map((x) => nearest(x * 2 ** (10 - e)));
    if (m.some((x) => Math.abs(x) > 63)) continue;
    return m.reduce((word, x, i) => word + (x < 0 ? x + 128 : x) * 2 ** (7 * i), e * 2 ** 28);
  }
}

/** The numbers that a word stands for. */
export function numbersOf(word: number): number[] {
  return Array.from({ length: 4 }, (_, i) => {
    const m = Math.floor(word / 2 ** (7 * i)) % 128;
    return (m < 64 ? m : m - 128) * 2 ** (Math.floor(word / 2 ** 28) - 10);
  });
}

/** The words of numbers, four each. */
export function wordsOf(numbers: readonly number[]): number[] {
  return Array.from({ length: numbers.length / 4 }, (_, i) => wordOf(numbers.slice(4 * i, 4 * i + 4)));
}
