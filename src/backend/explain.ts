/**
 * Choices and their reasons. `VKMX_EXPLAIN=1` prints them, one line on stderr each; a profile lists the fallbacks.
 *
 * @module
 */

import { environment } from "../../ffi/environment.ts";

const on = environment("VKMX_EXPLAIN") === "1";
const told = new Set<string>();
let listener: ((line: string) => void) | undefined;

/** Hands fallbacks to `listen` as they happen; undefined ends that. */
export function onFallback(listen: ((line: string) => void) | undefined): void {
  listener = listen;
}

/** Prints text on stderr as it is. */
export function print(text: string): void {
  console.error(text);
}

/** Says a line once, asked or not: what a user should know of the device. */
export function warn(line: string): void {
  if (told.has(line)) return;
  told.add(line);
  print(`vkmx: ${line}`);
}

/** Says a line once, when asked to. */
export function explain(line: string): void {
  if (on) warn(line);
}

/** Says that something takes a slower way. */
export function explainFallback(line: string): void {
  listener?.(line);
  explain(line);
}
