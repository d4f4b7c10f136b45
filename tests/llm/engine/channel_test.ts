/** The channel between an engine and a caller: order, the end, and waiting for the other side. */

import { assertEquals, assertRejects } from "@std/assert";
import { setImmediate } from "node:timers/promises";
import { Channel } from "../../../src/llm/engine/channel.ts";

/** Whether a promise has resolved after a turn of the event loop. */
async function isDone(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  promise.then(() => done = true);
  await setImmediate();
  return done;
}

Deno.test("a channel gives what came since the last call, and its end after the last value", async () => {
  const channel = new Channel<number>();
  channel.push(1);
  channel.push(2);
  assertEquals(await channel.next(), [1, 2]);
  const next = channel.next();
  assertEquals(await isDone(next), false);
  channel.push(3);
  channel.push(4); // in the same turn
  assertEquals(await next, [3, 4]);
  channel.push(5);
  channel.end(new Error("why"));
  channel.end(new Error("another"));
  channel.push(6);
  assertEquals(await channel.next(), [5]);
  await assertRejects(() => channel.next(), Error, "why");

  const plain = new Channel<number>();
  const values = Array.fromAsync(plain.take());
  for (let i = 0; i < 3; i++) {
    plain.push(i);
    if (i === 1) await setImmediate();
  }
  plain.end();
  assertEquals(await values, [0, 1, 2]);
  assertEquals(await plain.next(), undefined);
});

Deno.test("a channel is drained when its taker has all and waits for more, or at its end", async () => {
  const channel = new Channel<number>();
  const unread = channel.drained();
  assertEquals(await isDone(unread), false); // no taker waits
  const first = channel.next();
  assertEquals(await isDone(unread), true);
  channel.push(1);
  const pushed = channel.drained();
  assertEquals(await isDone(pushed), false);
  assertEquals(await first, [1]);
  assertEquals(await isDone(pushed), false); // the taker is busy with it
  const second = channel.next();
  assertEquals(await isDone(pushed), true);
  channel.push(2);
  const last = channel.drained();
  channel.end();
  assertEquals(await isDone(last), true);
  assertEquals(await second, [2]);
});
