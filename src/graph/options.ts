/**
 * Objects of options. A name that a function does not know is an error; otherwise the option that was meant would silently keep its
 * default. Also names of table entries, such as modes.
 *
 * @module
 */

import { quoted, ValueError } from "./error.ts";
import { nearest } from "./nearest.ts";

/** Letters of a name that are looked at: it may be a text of any length. */
const LONGEST = 64;

/**
 * Throws if `options` is no plain object or has a name that is no key of `known`, in the name of `op`. The error is a ValueError, or
 * what `error` makes of the message. It names the nearest key and all keys.
 */
export function checkOptions(
  op: string,
  options: object,
  known: Readonly<Record<string, unknown>>,
  error: (message: string) => Error = (message) => new ValueError(message),
): void {
  const names = Object.keys(known);
  const prototype = typeof options === "object" && options !== null ? Object.getPrototypeOf(options) : undefined;
  if (prototype !== null && prototype !== Object.prototype) {
    const found = prototype?.constructor?.name ?? quoted(options);
    throw error(`${op}() expected an object with options (${names.join(", ")}): found ${found}`);
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const near = nearest(name.slice(0, LONGEST).replaceAll("_", ""), names);
    const meant = near === undefined ? "." : `, did you mean "${near}"?`;
    throw error(`${op}() has no option ${quoted(name)}${meant} Its options are: ${names.join(", ")}`);
  }
}

/** The row of a table by the name that an argument gives, which may be anything at all; undefined if there is none. */
export function entryOf<T>(rows: Readonly<Record<string, T>>, name: unknown): T | undefined {
  return typeof name === "string" && Object.hasOwn(rows, name) ? rows[name] : undefined;
}
