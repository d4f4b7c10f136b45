/**
 * The row "replicas" of `deno task bench:serve`: the same requests to one server, to one replica and to several.
 *
 * @module
 */

import { print } from "../../../src/cli/output.ts";
import * as mx from "../../../mod.ts";
import { draws, percentile } from "../arrivals.ts";
import type { ClientWork, Streamed } from "./client.ts";
import { startServer } from "./process.ts";

/** Most threads that read streams. */
const MOST_CLIENTS = 16;

/** What is measured. */
interface ReplicasOptions {
  readonly requests: number;
  /** Least and most tokens of prompts and answers. */
  readonly limits: readonly number[];
  /** Replicas beside one. */
  readonly count: string;
  readonly device: string | undefined;
}

/** Figures of a run. */
interface Figures {
  readonly rate: number;
  readonly p50: number;
  readonly p95: number;
}

/** Prints tokens a second and times to the first token. */
export async function measureReplicas(model: string, options: ReplicasOptions): Promise<void> {
  const { requests, limits: [least, most], count, device } = options;
  const { config: { vocabSize } } = await mx.lm.inspect(model);
  const draw = draws(1);
  const length = (): number => least + Math.floor(draw() * (most - least + 1));
  const work = (n: number): ClientWork["requests"] =>
    Array.from({ length: n }, () => ({
      prompt: Array.from({ length: length() }, () => Math.floor(draw() * Math.min(vocabSize, 50_000))),
      tokens: length(),
    }));
  const measured = work(requests);
  const common = ["--model", model, "--queue", "100000", ...device === undefined ? [] : ["--device", device]];
  const figures: Figures[] = [];
  for (const [name, args] of [["one server", []], ["1 replica", ["1"]], [`${count} replicas`, [count]]] as const) {
    await using server = await startServer([...common, ...args.flatMap((text) => ["--replicas", text])]);
    await streamAll(server.url, work(Math.min(requests, 64))); // compiles what is needed
    const begin = performance.now();
    const streams = await streamAll(server.url, measured);
    const tokens = streams.reduce((sum, one) => sum + one.tokens, 0);
    const firsts = streams.map(({ first }) => first);
    const found = {
      rate: tokens * 1000 / (performance.now() - begin),
      p50: percentile(firsts, 50),
      p95: percentile(firsts, 95),
    };
    figures.push(found);
    print(`replicas, ${name}, ${requests} requests: ${described(found)}\n`);
  }
  const [, one, several] = figures;
  const ratio = (key: keyof Figures): string => (several[key] / one[key]).toFixed(2);
  print(
    `replicas, ${count} beside 1: ${ratio("rate")} x tok/s, first token ${ratio("p50")} x at the median, ${
      ratio("p95")
    } x at the 95th percentile\n`,
  );
}

function described({ rate, p50, p95 }: Figures): string {
  return `${rate.toFixed(0)} tok/s out, first token ${p50.toFixed(0)} ms median, ${p95.toFixed(0)} ms 95th percentile`;
}

/** Streams of all requests, which several threads read. */
async function streamAll(url: string, requests: ClientWork["requests"]): Promise<readonly Streamed[]> {
  const threads = Math.min(MOST_CLIENTS, Math.max(1, Math.floor(navigator.hardwareConcurrency / 2)), requests.length);
  const parts = await Promise.all(Array.from({ length: threads }, (_, i) => {
    const worker = new Worker(new URL("./client.ts", import.meta.url), { type: "module" });
    const { promise, resolve, reject } = Promise.withResolvers<readonly Streamed[]>();
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = (event) => {
      event.preventDefault();
      reject(new Error(event.message));
    };
    const work: ClientWork = { url, requests: requests.filter((_, k) => k % threads === i) };
    worker.postMessage(work);
    return promise.finally(() => worker.terminate());
  }));
  return parts.flat();
}
