/**
 * Turns of the event loop within long work.
 *
 * @module
 */

import { setImmediate, setTimeout } from "node:timers/promises";

/**
 * Milliseconds between two turns that wait for a timer. An event loop that never rests seldom looks for signals, files and sockets, such
 * as those of Ctrl-C and of a notebook's Stop. A rest takes 2 to 5 ms.
 */
const REST_MS = 120;

/** Milliseconds between two turns that look at sockets by {@link lookBy}. A request takes three such turns. */
const LOOK_MS = 12;

let rested = performance.now();
let looked = rested;
/** Looks at sockets and signals without a timer; undefined where no server has given it. */
let look: (() => Promise<void>) | undefined;

/** Waits for a timer where the last time was a while ago. True if it did. */
export async function restIfDue(): Promise<boolean> {
  if (performance.now() - rested < REST_MS) return false;
  await setTimeout(0);
  rested = performance.now();
  return true;
}

/** Lets timers and messages have their turn, and where {@link lookBy} is in force sockets and signals too. */
export async function yieldToEventLoop(): Promise<void> {
  if (look === undefined) {
    if (!await restIfDue()) await setImmediate();
  } else if (performance.now() - looked < LOOK_MS) await setImmediate();
  else {
    await look();
    looked = performance.now();
  }
}

/** Has each turn look at sockets and signals by a function, until this is disposed. */
export function lookBy(sockets: () => Promise<void>): Disposable {
  look = sockets;
  return {
    [Symbol.dispose]: () => {
      if (look === sockets) look = undefined;
    },
  };
}
