/**
 * Where a server listens: who may ask, which endpoint a request means, replies of errors, counts and the log.
 *
 * @module
 */

import {
  type HttpLimits,
  type HttpReply,
  type HttpRequest,
  type HttpServer,
  serveHttp,
} from "../../ffi/http/server.ts";
import { checkKey, corsHeaders } from "./access.ts";
import { jsonReply } from "./context.ts";
import { ApiError, formOf, toApiError } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import { findRoute, type Found } from "./routes.ts";

/** What a server says of a request. */
export interface LogEntry {
  readonly method: string;
  readonly path: string;
  /** 499 if the client went before. */
  readonly status: number;
  /** To the end of the reply. */
  readonly milliseconds: number;
  /** The number of the replica that answered, where there are some. */
  readonly replica?: number;
}

/** Where a server listens and for whom. */
export interface ListenOptions {
  readonly hostname: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** The key that requests must have, in visible ASCII characters. */
  readonly apiKey?: string | undefined;
  /** Origins of web pages that may ask; "*" for all. */
  readonly cors?: readonly string[];
  readonly limits?: HttpLimits;
  /** Called after each request. */
  readonly onRequest?: (entry: LogEntry) => void;
  /** Called with errors that are no matter of a client. */
  readonly onError?: (error: unknown) => void;
}

/** A reply, and the number of the replica that it is of, where there are some. */
export type Answer = HttpReply & { readonly replica?: number };

/** Answers a request that may ask, at its route. What it throws becomes a reply. */
export type Answerer = (found: Found, request: HttpRequest) => Promise<Answer>;

/** Status in logs of a request whose client went, as other servers write it. */
const CLIENT_GONE = 499;

/** A server that listens, until it is closed. */
export class Listener {
  readonly #options: ListenOptions;
  readonly #metrics: Metrics;
  readonly #answerer: Answerer;
  #http: HttpServer | undefined;

  private constructor(options: ListenOptions, metrics: Metrics, answerer: Answerer) {
    this.#options = options;
    this.#metrics = metrics;
    this.#answerer = answerer;
  }

  /** Listens, and counts requests in `metrics`. Throws an Error that names the address if it cannot be had. */
  static async open(options: ListenOptions, metrics: Metrics, answerer: Answerer): Promise<Listener> {
    const listener = new Listener(options, metrics, answerer);
    listener.#http = await serveHttp(options, (request) => listener.#answer(request));
    return listener;
  }

  /** The address as a URL. */
  get url(): string {
    return this.#http!.url;
  }

  /** Takes no more connections; resolves when the requests that are there have been answered. */
  close(): Promise<void> {
    return this.#http!.close();
  }

  /** Notes an error if it is the server's own, and its client is there. */
  report(error: unknown, { signal }: HttpRequest): void {
    if (!signal.aborted && toApiError(error).status === 500) this.#options.onError?.(error);
  }

  async #answer(request: HttpRequest): Promise<HttpReply> {
    const started = performance.now();
    const { method, path } = request;
    const found = findRoute(method, path);
    let headers: Readonly<Record<string, string>> = {};
    const finish = ({ status, replica }: Answer): void => {
      const milliseconds = performance.now() - started;
      const logged = request.signal.aborted ? CLIENT_GONE : status;
      this.#metrics.countRequest("route" in found ? found.route.path : "other", logged);
      this.#metrics.observe("request_duration", milliseconds);
      const by = replica === undefined ? {} : { replica };
      this.#options.onRequest?.({ method, path, status: logged, milliseconds, ...by });
    };
    let reply: Answer;
    try {
      headers = corsHeaders(request, this.#options.cors ?? []);
      if (method === "OPTIONS" && "access-control-allow-origin" in headers) reply = { status: 204 };
      else if ("route" in found) {
        if (!found.route.isOpen) checkKey(request, this.#options.apiKey);
        reply = await this.#answerer(found, request);
      } else throw notFound(request, found.methods);
    } catch (error) {
      this.report(error, request);
      const api = toApiError(error);
      const form = "route" in found ? found.route.errors : undefined;
      reply = jsonReply(api.status, api.bodyOf(form ?? formOf(request)), api.details.headers);
    }
    const whole = { ...reply, headers: { ...headers, ...reply.headers } };
    if (typeof whole.body === "object") return { ...whole, body: ended(whole.body, () => finish(reply)) };
    finish(reply);
    return whole;
  }
}

/** The error of a path that is not there, or takes other methods. */
export function notFound({ method, path }: HttpRequest, methods: readonly string[] = []): ApiError {
  if (methods.length === 0) {
    return new ApiError(404, `There is no ${JSON.stringify(path.slice(0, 200))}`, { code: "not_found" });
  }
  const allow = methods.join(", ");
  return new ApiError(405, `${path} takes ${allow}, not ${method}`, { code: "method_not_allowed", headers: { allow } });
}

/** The same pieces; calls `end` after the last one, or when no more are wanted. */
async function* ended(pieces: AsyncIterable<string>, end: () => void): AsyncGenerator<string, void, void> {
  try {
    yield* pieces;
  } finally {
    end();
  }
}
