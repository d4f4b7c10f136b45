/**
 * How setup talks: one line on stderr for each thing it does or cannot do.
 *
 * @module
 */

/** Prints one line of progress. */
export function say(line: string): void {
  console.error(`setup: ${line}`);
}

/** The end of an error output, where programs say what went wrong. */
export function lastLine(text: string): string {
  return text.trimEnd().split("\n").at(-1) ?? "";
}
