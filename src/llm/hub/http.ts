/**
 * Requests to the hub. Redirects are followed here and not by `fetch`, so the token goes to the hub and never to another host. The
 * answer that redirects also has the hub's headers about the file. Every answer has limits of size and silence.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { PassingError, Retries, RETRY_POLICY, retryAfter, type RetryPolicy } from "./retry.ts";

const REDIRECTS = [301, 302, 303, 307, 308];
const MAX_HOPS = 6;
/** Most bytes of an answer in JSON. */
const MAX_JSON = 2 ** 24;
/** Failures in a row that a question is worth. */
const QUESTION_TRIES = 2;

/** Options of a {@link HubClient}. */
export interface ClientOptions {
  /** Address of the hub. */
  readonly endpoint: URL;
  /** The user's token, if there is one. */
  readonly token?: string | undefined;
  /** Ends everything. */
  readonly signal?: AbortSignal | undefined;
  /** How long the network is given. */
  readonly policy?: RetryPolicy;
}

/** Makes an error of an answer that is no success; `transient` ones are made before it is asked. */
export type Explain = (status: number, headers: Headers) => Error;

/** Aborts a request when the caller does, or when nothing came for a while. */
class Watch {
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal | undefined;
  readonly #idle: number;
  readonly #abort = (): void => this.#controller.abort(this.#signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether nothing came for too long. */
  silent = false;

  constructor(signal: AbortSignal | undefined, idle: number) {
    this.#signal = signal;
    this.#idle = idle;
    signal?.addEventListener("abort", this.#abort);
    if (signal?.aborted) this.#abort();
    this.touch();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Something came. */
  touch(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.silent = true;
      this.#controller.abort();
    }, this.#idle);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#abort);
  }
}

/** The answer after all redirects. */
export class Answer {
  /** Status of HTTP. */
  readonly status: number;
  /** Headers of the last answer. */
  readonly headers: Headers;
  /** Headers of the hub's own answers, the ones that redirected and maybe the last one. */
  readonly hub: readonly Headers[];
  readonly #response: Response;
  readonly #host: string;
  readonly #watch: Watch;

  /** Wraps a response of `host`. */
  constructor(response: Response, hub: readonly Headers[], host: string, watch: Watch) {
    this.status = response.status;
    this.headers = response.headers;
    this.hub = hub;
    this.#response = response;
    this.#host = host;
    this.#watch = watch;
  }

  /** The body, piece by piece. Throws a {@link PassingError} if it ends too soon. */
  async *chunks(): AsyncGenerator<Uint8Array> {
    const reader = this.#response.body?.getReader();
    try {
      while (reader) {
        const { done, value } = await reader.read();
        this.#watch.touch();
        if (done) return;
        yield value;
      }
    } catch (cause) {
      throw failure(cause, this.#host, this.#watch, "cut the connection");
    } finally {
      this.#watch.stop();
      await reader?.cancel().catch(() => {});
    }
  }

  /** Gives the body up. */
  async close(): Promise<void> {
    this.#watch.stop();
    await this.#response.body?.cancel().catch(() => {});
  }
}

/** The hub, for one user. */
export class HubClient {
  /** Its address. */
  readonly endpoint: URL;
  /** Whether requests carry a token. */
  readonly hasToken: boolean;
  /** Ends everything. */
  readonly signal: AbortSignal | undefined;
  readonly #token: string | undefined;
  readonly #policy: RetryPolicy;

  /** Makes a client; nothing is connected yet. */
  constructor({ endpoint, token, signal, policy = RETRY_POLICY }: ClientOptions) {
    this.endpoint = endpoint;
    this.hasToken = token !== undefined;
    this.signal = signal;
    this.#token = token;
    this.#policy = policy;
  }

  /** An address on the hub; the parts of the path are escaped here. */
  url(...parts: readonly string[]): URL {
    const path = parts.map((part) => part.split("/").map(encodeURIComponent).join("/")).join("/");
    return new URL(`${this.endpoint.href.replace(/\/$/, "")}/${path}`);
  }

  /** A new count of failures, of which at most `most` are borne. */
  retries(most = Infinity): Retries {
    return new Retries({ ...this.#policy, tries: Math.min(most, this.#policy.tries) }, this.signal);
  }

  /** One request, without a second try. Throws a {@link PassingError} if the network fails. */
  async open(url: URL, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    const hub: Headers[] = [];
    let target = url;
    let own = true;
    for (let hop = 0; hop < MAX_HOPS; hop++) {
      own &&= target.origin === this.endpoint.origin; // after another host no answer counts as the hub's
      const watch = new Watch(this.signal, this.#policy.idle);
      const response = await this.#send(target, headers, own, watch);
      if (own) hub.push(response.headers);
      if (!REDIRECTS.includes(response.status)) return new Answer(response, hub, target.host, watch);
      watch.stop();
      await response.body?.cancel();
      target = this.#next(target, response.headers.get("location"));
    }
    throw new LlmError("hub", `${url.host} redirects more than ${MAX_HOPS} times`);
  }

  /** A value in JSON, and the headers that came with it. `explain` makes the error of another status than 200. */
  async json(url: URL, explain: Explain): Promise<{ readonly value: unknown; readonly headers: Headers }> {
    const retries = this.retries(QUESTION_TRIES); // nothing has come yet: there may be no network at all
    for (;;) {
      try {
        const answer = await this.open(url, { accept: "application/json" });
        if (answer.status !== 200) {
          await answer.close();
          throw passing(answer.status, answer.headers, url.host) ?? explain(answer.status, answer.headers);
        }
        return { value: parse(await whole(answer, url.host), url.host), headers: answer.headers };
      } catch (failure) {
        await retries.wait(failure);
      }
    }
  }

  async #send(url: URL, headers: Readonly<Record<string, string>>, own: boolean, watch: Watch): Promise<Response> {
    try {
      return await fetch(url, {
        redirect: "manual",
        signal: watch.signal,
        headers: {
          ...headers,
          "accept-encoding": "identity", // ranges count bytes of the file
          "user-agent": "vkmx",
          ...(own && this.#token !== undefined && { authorization: `Bearer ${this.#token}` }),
        },
      });
    } catch (cause) {
      watch.stop();
      throw failure(cause, url.host, watch, "cannot be reached");
    }
  }

  #next(from: URL, location: string | null): URL {
    const next = location === null ? null : URL.parse(location, from);
    const fits = next !== null &&
      (next.protocol === "https:" || (next.protocol === "http:" && from.protocol === "http:"));
    if (fits) return next;
    const host = next === null ? "nowhere" : quoted(`${next.protocol}//${next.host}`);
    throw new LlmError("hub", `${from.host} redirects to ${host}, which is not followed: check HF_ENDPOINT`);
  }
}

/** The error of a status that may pass, undefined for all others. */
export function passing(status: number, headers: Headers, host: string): PassingError | undefined {
  if (status !== 408 && status !== 429 && status < 500) return undefined;
  const why = status === 429
    ? "has too many requests (HTTP 429; a token in HF_TOKEN raises the limit)"
    : `fails (HTTP ${status})`;
  return new PassingError(`${host} ${why}`, retryAfter(headers.get("retry-after")));
}

/** The error of a failed request or body. */
function failure(cause: unknown, host: string, watch: Watch, what: string): Error {
  if (watch.silent) return new PassingError(`${host} is silent for too long`);
  const { name, message } = cause as Error;
  if (name === "NotCapable") {
    return new LlmError("hub", `${host} may not be asked: run again with the --allow-net flag`);
  }
  if (watch.signal.aborted) return cause as Error;
  // Deno's text begins with the whole address, which may carry a signature.
  const reason = String(message).split("\n")[0].replace(/^error sending request for url \(.*?\): /, "").slice(0, 200);
  return new PassingError(`${host} ${what} (${quoted(reason).slice(1, -1)})`);
}

async function whole(answer: Answer, host: string): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of answer.chunks()) {
    bytes += piece.length;
    if (bytes > MAX_JSON) throw new LlmError("hub", `${host} answers with more than ${MAX_JSON} bytes of JSON`);
    pieces.push(piece);
  }
  const out = new Uint8Array(bytes);
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

function parse(bytes: Uint8Array, host: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new LlmError("hub", `${host} does not answer as the hub does: check HF_ENDPOINT and the network`);
  }
}
