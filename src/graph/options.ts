/**
 * Objects of options: a name that a function does not know is an error, since the option that was meant would be left at its
 * default without a word.
 *
 * @module
 */

import { quoted, ValueError } from "./error.ts";

/**
 * Throws a ValueError where `options` is no plain object or has a name that is not in `known`, in the name of `op`. The message
 * tells the nearest name and all there are.
 */
export function checkOptions(op: string, options: object, known: Readonly<Record<string, true>>): void {
  const names = Object.keys(known);
  const prototype = typeof options === "object" && options !== null ? Object.getPrototypeOf(options) : undefined;
  if (prototype !== null && prototype !== Object.prototype) {
    const found = prototype?.constructor?.name ?? quoted(options);
    throw new ValueError(`${op}() expected an object with options (${names.join(", ")}): found ${found}`);
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const nearest = nearestName(name, names);
    const meant = nearest === undefined ? "." : `, did you mean "${nearest}"?`;
    throw new ValueError(`${op}() has no option ${quoted(name)}${meant} Its options are: ${names.join(", ")}`);
  }
}

/** The name that differs least, where it is likely that it was meant: other cases and underscores count as no difference. */
function nearestName(name: string, names: readonly string[]): string | undefined {
  const plain = (text: string): string => text.replaceAll(/[_-]/g, "").toLowerCase();
  const [best] = names
    .map((known) => ({ known, distance: distanceOf(plain(name), plain(known)) }))
    .filter(({ known, distance }) => distance <= Math.max(1, Math.floor(known.length / 3)))
    .sort((a, b) => a.distance - b.distance);
  return best?.known;
}

/** Letters to insert, drop, replace or exchange with their neighbour, at least, to make one text of another. */
function distanceOf(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > b.length) return Infinity; // names of any length may come in
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = rows[i - 1][j - 1] + Number(a[i - 1] !== b[j - 1]);
      row.push(Math.min(replaced, rows[i - 1][j] + 1, row[j - 1] + 1));
      const exchanged = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (exchanged) row[j] = Math.min(row[j], rows[i - 2][j - 2] + 1);
    }
    rows.push(row);
  }
  return rows[a.length][b.length];
}
