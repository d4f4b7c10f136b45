/**
 * `VKMX_EXPLAIN=1`: what the scheduler chose and why, one line on stderr each.
 *
 * @module
 */

import { environment } from "../backend/devices.ts";

const on = environment("VKMX_EXPLAIN") === "1";
const told = new Set<string>();

/** Says a line once, when asked to. */
export function explain(line: string): void {
  if (!on || told.has(line)) return;
  told.add(line);
  console.error(`vkmx: ${line}`);
}
