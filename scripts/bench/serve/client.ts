/**
 * A worker that streams completions, for benchmarks whose clients would need more than one thread.
 *
 * @module
 */

import { HttpClient } from "../../../ffi/http/client.ts";

/** The streams of a worker, all at once. */
export interface ClientWork {
  readonly url: string;
  readonly requests: readonly { readonly prompt: readonly number[]; readonly tokens: number }[];
}

/** A stream: its tokens, and when the first one and the end came, in milliseconds from the beginning. */
export interface Streamed {
  readonly tokens: number;
  readonly first: number;
  readonly last: number;
}

async function run({ url, requests }: ClientWork): Promise<Streamed[]> {
  using client = new HttpClient();
  const begin = performance.now();
  return await Promise.all(requests.map(async ({ prompt, tokens: max_tokens }) => {
    const ask = { prompt, max_tokens, temperature: 0, stream: true, stream_options: { include_usage: true } };
    const { status, pieces } = await client.call({
      method: "POST",
      url: `${url}/v1/completions`,
      body: JSON.stringify(ask),
    });
    let first = 0;
    let last = "";
    for await (const piece of pieces) {
      first ||= performance.now() - begin;
      last = (last + piece).slice(-1000);
    }
    const tokens = Number(/"completion_tokens":(\d+)/.exec(last)?.[1]);
    if (status !== 200 || !(tokens > 0)) throw new Error(`A stream failed with status ${status}: ${last}`);
    return { tokens, first, last: performance.now() - begin };
  }));
}

/** The worker's own side, which the types of programs lack. */
const worker = globalThis as unknown as {
  onmessage: (event: MessageEvent<ClientWork>) => Promise<void>;
  postMessage(streams: readonly Streamed[]): void;
};
worker.onmessage = async ({ data }) => worker.postMessage(await run(data));
