/**
 * How soon a server answers while it reads a long prompt.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import { print } from "../../../src/cli/output.ts";
import { percentile } from "../arrivals.ts";

/** Milliseconds between two questions. */
const PAUSE_MS = 20;
/** Milliseconds for which is asked, where the prompt takes longer. */
const MAX_MS = 30_000;

/** Asks GET /health again and again while a server reads a prompt, and prints how long the replies took. */
export async function measureHealth(url: string, prompt: readonly number[]): Promise<void> {
  const stop = new AbortController();
  let isRead = false;
  const body = JSON.stringify({ prompt, max_tokens: 1 });
  const read = fetch(`${url}/v1/completions`, { method: "POST", body, signal: stop.signal })
    .then((reply) => reply.text()).finally(() => isRead = true);
  read.catch(() => {}); // it is stopped where it takes too long
  const times: number[] = [];
  const end = performance.now() + MAX_MS;
  while (!isRead && performance.now() < end) {
    const asked = performance.now();
    await (await fetch(`${url}/health`)).text();
    times.push(performance.now() - asked);
    await setTimeout(PAUSE_MS);
  }
  stop.abort();
  const [middle, high, most] = [50, 95, 100].map((percent) => percentile(times, percent).toFixed(1));
  print(
    `health beside a prompt of ${prompt.length} tokens, ${times.length} times: median ${middle} ms, 95th percentile ${high} ms, ` +
      `at most ${most} ms\n`,
  );
}
