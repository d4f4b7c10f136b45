/**
 * Where a JSON value ends in a text that goes on.
 *
 * @module
 */

const PARTS = /"[^"\\]*(?:\\[\s\S][^"\\]*)*"|["{}[\]]/g;

/** The index after the object or list that begins at `from`; undefined while it is not whole. */
export function jsonEnd(text: string, from: number): number | undefined {
  PARTS.lastIndex = from;
  let depth = 0;
  for (let found; (found = PARTS.exec(text));) {
    const [part] = found;
    if (part === '"') return undefined; // a string that is not whole
    if (part === "{" || part === "[") depth++;
    else if (part === "}" || part === "]") depth--;
    if (depth === 0) return PARTS.lastIndex;
  }
  return undefined;
}
