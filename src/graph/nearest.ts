/**
 * The name that a mistyped one was most likely meant to be.
 *
 * @module
 */

/** Letters at which a name may be an abbreviation. */
const SHORT = 4;

/** The nearest of some names by Levenshtein distance, or one that it is short for or that is short for it; undefined if none is. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const [best] = names.map((n) => ({ n, d: distance(name, n) })).sort((a, b) => a.d - b.d);
  return best !== undefined && best.d <= Math.max(2, name.length / 3)
    ? best.n
    : names.find((n) => abbreviates(name, n) || abbreviates(n, name));
}

/** Whether one name begins the other, capitals aside. */
function abbreviates(short: string, long: string): boolean {
  return short.length >= SHORT && long.toLowerCase().startsWith(short.toLowerCase());
}

/** Levenshtein distance, capitals aside. */
function distance(one: string, other: string): number {
  const [a, b] = [one.toLowerCase(), other.toLowerCase()];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}
