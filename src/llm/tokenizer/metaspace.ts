/**
 * "Metaspace", a pre-tokenizer and a decoder of tokenizer.json: spaces are written as a character that is not white space.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { Fail, Step } from "./pipeline.ts";

/** Which pieces of a text get a space before them. */
const PREPEND_SCHEMES = ["always", "first", "never"] as const;

/** What a step says. */
export interface Metaspace {
  /** The character that stands for a space. */
  readonly replacement: string;
  /** Whether each piece of a text gets a space before it, the first one, or none. */
  readonly scheme: typeof PREPEND_SCHEMES[number];
  /** Whether text is cut before each replacement. */
  readonly cuts: boolean;
}

/** Reads a step. */
export function readMetaspace(step: Step, fail: Fail): Metaspace {
  const { replacement, prepend_scheme: given, add_prefix_space: adds, split } = step;
  if (typeof replacement !== "string" || [...replacement].length !== 1) {
    return fail(`"Metaspace" has the replacement ${quoted(replacement)}, expected one character`);
  }
  const name = given ?? (adds === false ? "never" : "always"); // older files say only whether a space is added
  const scheme = PREPEND_SCHEMES.find((scheme) => scheme === name);
  if (scheme === undefined) {
    return fail(`"Metaspace" has the prepend_scheme ${quoted(given)}: ${PREPEND_SCHEMES.join(", ")} are supported`);
  }
  return { replacement, scheme, cuts: split !== false };
}
