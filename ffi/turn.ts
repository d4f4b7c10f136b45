/**
 * Turns of the event loop within long work.
 *
 * @module
 */

import { setImmediate, setTimeout } from "node:timers/promises";

/**
 * Milliseconds between two turns that wait for a timer. An event loop that never rests seldom looks for signals, files and sockets, such
 * as those of Ctrl-C and of a notebook's Stop. A rest takes about 2 ms.
 */
const REST_MS = 120;

let rested = performance.now();

/** Waits for a timer where the last time was a while ago. True if it did. */
export async function restIfDue(): Promise<boolean> {
  if (performance.now() - rested < REST_MS) return false;
  await setTimeout(0);
  rested = performance.now();
  return true;
}

/** Lets timers and messages have their turn. */
export async function yieldToEventLoop(): Promise<void> {
  if (!await restIfDue()) await setImmediate();
}
