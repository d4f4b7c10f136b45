/**
 * Requests to an HTTP server of this machine.
 *
 * It is the client of node:http, which takes no proxy from the environment, as `fetch` does for loopback addresses too.
 *
 * @module
 */

import { Agent, type IncomingMessage, request as open } from "node:http";

/** A request. */
export interface HttpCall {
  readonly method: string;
  /** The address: "http://127.0.0.1:8080/health". */
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Each of them ends the request and its answer. */
  readonly signals?: readonly AbortSignal[];
}

/** An answer whose headers have come. */
export interface HttpAnswer {
  readonly status: number;
  /** Headers that say something of the body or to the client, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The body as it comes. Throws if the connection ends before it does. */
  readonly pieces: AsyncIterable<string>;
}

/** Headers of one connection, which say nothing to the next. */
const OF_CONNECTION: ReadonlySet<string> = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "transfer-encoding",
]);

/** Milliseconds after which an idle connection is closed: less than servers wait, so that none closes one that is taken. */
const IDLE_MS = 20_000;

/**
 * Connections to servers. A request with a body has one of its own. Over a used one Deno 2.9 sends it again if it ends before its answer
 * begins, and the server would answer it for no client.
 */
export class HttpClient implements Disposable {
  readonly #agent = new Agent({ keepAlive: true, timeout: IDLE_MS, maxFreeSockets: 1024 });

  /** Sends a request; resolves when the headers of its answer have come. Rejects if there is no connection, or if it ends before. */
  call({ method, url, headers = {}, body, signals = [] }: HttpCall): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      for (const signal of signals) signal.throwIfAborted();
      const length = body === undefined ? {} : { "content-length": String(new TextEncoder().encode(body).length) };
      const sent = open(url, { method, agent: body === undefined && this.#agent, headers: { ...headers, ...length } });
      let received: IncomingMessage | undefined;
      const forget = (): void => signals.forEach((signal) => signal.removeEventListener("abort", abort));
      const abort = (): void => {
        forget();
        const { reason } = signals.find(({ aborted }) => aborted)!;
        sent.destroy(reason);
        received?.destroy(reason);
        reject(reason); // Deno 2.9 may say nothing of the end of a request over a connection that was used before
      };
      for (const signal of signals) signal.addEventListener("abort", abort);
      sent.on("close", () => {
        forget();
        reject(new Error("The connection ended before an answer came"));
      });
      sent.on("error", reject);
      sent.on("response", (answer) => {
        received = answer;
        answer.setEncoding("utf8");
        resolve({ status: answer.statusCode!, headers: headersOf(answer), pieces: answer });
      });
      sent.end(body);
    });
  }

  /** Closes the connections. */
  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  const kept = Object.entries(headers).filter(([name, value]) => value !== undefined && !OF_CONNECTION.has(name));
  return Object.fromEntries(kept.map(([name, value]) => [name, [value!].flat().join(", ")]));
}
