/**
 * The row "front" of `deno task bench:serve`: what the front of replicas costs, without a model.
 *
 * A replica that computes nothing, the front and the client are processes of their own. Requests and streams go to the replica directly
 * and through the front.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import { HttpClient } from "../../../ffi/http/client.ts";
import { serveHttp } from "../../../ffi/http/server.ts";
import { inputLines, print, printJson } from "../../../src/cli/output.ts";
import { Front } from "../../../src/server/replicas/front.ts";
import { percentile } from "../arrivals.ts";

const SELF = new URL(import.meta.url).pathname;
/** Requests one after the other, and those that are there at once. */
const [SERIAL, TOGETHER, ROUNDS] = [500, 64, 10];
/** Streams at once, events of each, and milliseconds between two of them: 2,064 events a second. */
const [STREAMS, EVENTS, PAUSE_MS] = [64, 100, 31];

/** A replica's reply to a prompt of n: n events with a pause of `max_tokens` milliseconds between them, or a whole reply. */
interface Ask {
  readonly prompt: number;
  readonly max_tokens: number;
  readonly stream: boolean;
}

async function* events({ prompt, max_tokens: pause }: Ask): AsyncGenerator<string, void, void> {
  const choices = [{ index: 0, text: " token", logprobs: null, finish_reason: null }];
  const event = `data: ${JSON.stringify({ id: `cmpl-${"0".repeat(32)}`, object: "text_completion", choices })}\n\n`;
  for (let i = 0; i < prompt; i++) {
    if (pause > 0) await setTimeout(pause);
    else if (i % 4 === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    yield event;
  }
}

/** A replica that computes nothing; a line of stdout has its address. */
async function runReplica(): Promise<void> {
  const { url } = await serveHttp({ hostname: "127.0.0.1", port: 0 }, async (request) => {
    if (request.method !== "POST") return { status: 200, body: "{}" };
    const ask: Ask = JSON.parse(new TextDecoder().decode(await request.body(2 ** 20)));
    if (!ask.stream) return { status: 200, headers: { "content-type": "application/json" }, body: '{"choices":[]}' };
    return { status: 200, headers: { "content-type": "text/event-stream" }, body: events(ask) };
  });
  printJson({ url });
}

/** A front of that replica. A line of stdout has its address; each line of stdin gets one with its microseconds of CPU. */
async function runFront(url: string): Promise<void> {
  const { promise: ended } = Promise.withResolvers<string>();
  const nothing = (): void => {};
  const front = await Front.start({
    hostname: "127.0.0.1",
    port: 0,
    version: "",
    models: ["fake"],
    count: 1,
    start: () =>
      Promise.resolve({ url, key: "", device: "", ended, closeQuestions: nothing, drain: nothing, kill: nothing }),
  });
  printJson({ url: front.url });
  for await (const _ of inputLines()) {
    const { user, system } = process.cpuUsage();
    printJson({ cpu: user + system });
  }
}

/** A process of this file, whose lines are JSON. */
function spawn(
  ...args: string[]
): AsyncDisposable & { read(): Promise<{ url: string; cpu: number }>; ask(): Promise<void> } {
  const command = ["run", "-A", "--no-lock", SELF, ...args];
  const child = new Deno.Command(Deno.execPath(), { args: command, stdin: "piped", stdout: "piped" }).spawn();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const writer = child.stdin.getWriter();
  return {
    read: async () => JSON.parse((await lines.read()).value!),
    ask: () => writer.write(new TextEncoder().encode("\n")),
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await Promise.all([lines.cancel(), writer.abort().catch(() => {}), child.status]);
    },
  };
}

/** Prints what the front costs. */
export async function measureFront(): Promise<void> {
  await using replica = spawn("replica");
  const direct = (await replica.read()).url;
  await using front = spawn("front", direct);
  const through = (await front.read()).url;
  const cpu = async (): Promise<number> => {
    await front.ask();
    return (await front.read()).cpu / 1000;
  };
  using client = new HttpClient();
  const send = async (url: string, ask: Ask): Promise<number> => {
    const { pieces } = await client.call({ method: "POST", url: `${url}/v1/completions`, body: JSON.stringify(ask) });
    let length = 0;
    for await (const piece of pieces) length += piece.length;
    return length;
  };
  const whole = { prompt: 0, max_tokens: 0, stream: false };
  const rows: Record<string, readonly number[]> = {};
  for (const url of [direct, through]) {
    const times: number[] = [];
    for (let i = 0; i < 200; i++) await send(url, whole);
    const before = await cpu();
    for (let i = 0; i < SERIAL; i++) {
      const begin = performance.now();
      await send(url, whole);
      times.push(performance.now() - begin);
    }
    const begin = performance.now();
    for (let i = 0; i < ROUNDS; i++) await Promise.all(Array.from({ length: TOGETHER }, () => send(url, whole)));
    const rate = ROUNDS * TOGETHER * 1000 / (performance.now() - begin);
    const used = (await cpu() - before) / (SERIAL + ROUNDS * TOGETHER);
    rows[url] = [percentile(times, 50), percentile(times, 95), rate, used];
  }
  const [[direct50, direct95, directRate], [front50, front95, frontRate, used]] = [rows[direct], rows[through]];
  print(
    `front: a request ${front50.toFixed(2)} ms (95 %: ${front95.toFixed(2)}), directly ${direct50.toFixed(2)} (${
      direct95.toFixed(2)
    }), difference ${(front50 - direct50).toFixed(2)} ms\n`,
  );
  print(`front: ${used.toFixed(2)} ms of a processor for a request\n`);
  print(`front: ${frontRate.toFixed(0)} requests/s of ${TOGETHER} at once, directly ${directRate.toFixed(0)}\n`);
  const streams = async (url: string, pause: number, count: number): Promise<{ rate: number; cpu: number }> => {
    const [begin, before] = [performance.now(), await cpu()];
    const ask = { prompt: count, max_tokens: pause, stream: true };
    await Promise.all(Array.from({ length: STREAMS }, () => send(url, ask)));
    const ms = performance.now() - begin;
    return { rate: STREAMS * count * 1000 / ms, cpu: 100 * (await cpu() - before) / ms };
  };
  await streams(through, PAUSE_MS, 20);
  const steady = await streams(through, PAUSE_MS, EVENTS);
  print(
    `front: ${STREAMS} streams, ${steady.rate.toFixed(0)} events/s with ${steady.cpu.toFixed(0)} % of a processor\n`,
  );
  const [fast, alone] = [await streams(through, 0, 10 * EVENTS), await streams(direct, 0, 10 * EVENTS)];
  print(
    `front: at most ${fast.rate.toFixed(0)} events/s with ${fast.cpu.toFixed(0)} % of a processor, directly ${
      alone.rate.toFixed(0)
    }\n`,
  );
}

if (import.meta.main) await (Deno.args[0] === "front" ? runFront(Deno.args[1]) : runReplica());
