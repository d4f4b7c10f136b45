/**
 * `VKMX_EXPLAIN=1`: what was chosen and why, one line on stderr each.
 *
 * @module
 */

import { environment } from "../../ffi/library.ts";

const on = environment("VKMX_EXPLAIN") === "1";
const told = new Set<string>();

/** Says a line once, when asked to. */
export function explain(line: string): void {
  if (!on || told.has(line)) return;
  told.add(line);
  console.error(`vkmx: ${line}`);
}
