/**
 * A planted mistake: the form of the rows of the tables in this folder.
 *
 * @module
 */

/** Parts of the project. Every one has a table in this folder. */
export const AREAS = [
  "lowering",
  "arrays",
  "transforms",
  "runtime",
  "wasm",
  "glsl",
  "tables",
  "tokenizer",
  "templates",
  "cli",
  "files",
  "generation",
  "engine",
  "server",
  "nn",
  "training",
] as const;

/** One of {@link AREAS}. */
export type Area = typeof AREAS[number];

/** A mistake that a developer could make, in one place of one file. It changes what the project computes, says or refuses. */
export interface Mutant {
  /** The mistake's name, which no other row has. */
  readonly name: string;
  /** Path from the root of the project. */
  readonly file: string;
  /** Text that occurs once in the file. */
  readonly find: string;
  /** The text that replaces it. */
  readonly replace: string;
  /** Test files that an author of the change would run, the cheapest first: one to four. */
  readonly tests: readonly string[];
}
