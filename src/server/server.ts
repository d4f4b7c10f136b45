/**
 * The server: takes requests, finds their endpoint, and makes a reply of whatever comes of it.
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
import type { lm } from "../../mod.ts";
import { checkKey, corsHeaders } from "./access.ts";
import { type Context, jsonReply, readJson, type ServedMcp } from "./context.ts";
import { ApiError, toApiError } from "./errors.ts";
import { Questions } from "./mcp/questions.ts";
import { Metrics } from "./metrics.ts";
import { Models, type Room } from "./models.ts";
import { ResponseStore } from "./openai/response_store.ts";
import { findRoute } from "./routes.ts";
import type { Served } from "./served.ts";

/** What a server says of a request. */
export interface LogEntry {
  readonly method: string;
  readonly path: string;
  /** 499 if the client went before. */
  readonly status: number;
  /** To the end of the reply. */
  readonly milliseconds: number;
}

/** How a server is started. */
export interface ServerOptions {
  readonly hostname: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** The version that /api/version tells. */
  readonly version: string;
  /** Names of the models. The first is loaded at once, and the one of requests that name none. */
  readonly models: readonly string[];
  /** Loads the model of a name. Throws an LlmError with code "memory" if it needs more than there is room. */
  readonly open: (id: string, room: Room) => Promise<Served>;
  /** Tells what the model of a name is, loaded or not; undefined if its files are not there yet. Default never known. */
  readonly describe?: (id: string) => Promise<lm.ModelInfo | undefined>;
  /** Bytes of the device for the weights and pages of all models. Default no limit. */
  readonly memoryBytes?: number | undefined;
  /** Milliseconds without a request after which a model is unloaded. Default never. */
  readonly unloadAfterMs?: number | undefined;
  /** The key that requests must have, in visible ASCII characters. */
  readonly apiKey?: string | undefined;
  /** Origins of web pages that may ask; "*" for all. */
  readonly cors?: readonly string[];
  /** MCP servers whose tools the page offers. Default none. */
  readonly mcp?: ServedMcp | undefined;
  readonly limits?: HttpLimits;
  /** Called after each request. */
  readonly onRequest?: (entry: LogEntry) => void;
  /** Called with errors that are no matter of a client. */
  readonly onError?: (error: unknown) => void;
}

/** Status in logs of a request whose client went, as other servers write it. */
const CLIENT_GONE = 499;

/** A server that listens, until it is drained. */
export class Server {
  readonly #options: ServerOptions;
  readonly #metrics = new Metrics();
  readonly #responses = new ResponseStore();
  readonly #questions = new Questions();
  readonly #models: Models;
  #http: HttpServer | undefined;

  private constructor(options: ServerOptions) {
    this.#options = options;
    const { open, memoryBytes, unloadAfterMs, onError } = options;
    this.#models = new Models(options.models, {
      open,
      onUnload: (served) => this.#metrics.keep(served),
      ...(memoryBytes !== undefined && { memoryBytes }),
      ...(unloadAfterMs !== undefined && { unloadAfterMs }),
      ...(onError && { onError }),
    });
  }

  /** Loads the first model and listens. Throws what the load throws, or an Error that names the address. */
  static async start(options: ServerOptions): Promise<Server> {
    const server = new Server(options);
    try {
      (await server.#models.lease(undefined))[Symbol.dispose]();
      server.#http = await serveHttp(options, (request) => server.#answer(request));
    } catch (error) {
      await server.#models[Symbol.asyncDispose]();
      throw error;
    }
    return server;
  }

  /** The address as a URL. */
  get url(): string {
    return this.#http!.url;
  }

  /** Takes no more connections, answers the requests that are there, and frees the models. */
  async drain(): Promise<void> {
    this.#questions.close();
    await this.#http!.close();
    await this.#models[Symbol.asyncDispose]();
  }

  async #answer(request: HttpRequest): Promise<HttpReply> {
    const started = performance.now();
    const { method, path } = request;
    const found = findRoute(method, path);
    let headers: Readonly<Record<string, string>> = {};
    const finish = (status: number): void => {
      const milliseconds = performance.now() - started;
      const logged = request.signal.aborted ? CLIENT_GONE : status;
      this.#metrics.countRequest("route" in found ? found.route.path : "other", logged);
      this.#metrics.observe("request_duration", milliseconds);
      this.#options.onRequest?.({ method, path, status: logged, milliseconds });
    };
    let reply: HttpReply;
    try {
      headers = corsHeaders(request, this.#options.cors ?? []);
      if (method === "OPTIONS" && "access-control-allow-origin" in headers) reply = { status: 204 };
      else if ("route" in found) {
        if (!found.route.isOpen) checkKey(request, this.#options.apiKey);
        reply = await found.route.answer(this.#contextOf(request, found.rest));
      } else throw notFound(request, found.methods);
    } catch (error) {
      if (!request.signal.aborted) this.#report(error);
      const api = toApiError(error);
      const form = "route" in found ? found.route.errors : undefined;
      reply = jsonReply(api.status, api.bodyOf(form ?? "openai"), api.details.headers);
    }
    reply = { ...reply, headers: { ...headers, ...reply.headers } };
    if (typeof reply.body === "object") return { ...reply, body: ended(reply.body, () => finish(reply.status)) };
    finish(reply.status);
    return reply;
  }

  #contextOf(request: HttpRequest, rest: string): Context {
    return {
      request,
      rest,
      models: this.#models,
      metrics: this.#metrics,
      responses: this.#responses,
      mcp: this.#options.mcp,
      questions: this.#questions,
      version: this.#options.version,
      describe: this.#options.describe ?? (() => Promise.resolve(undefined)),
      report: (error) => {
        if (!request.signal.aborted) this.#report(error);
      },
      read: (shape) => readJson(request, shape),
    };
  }

  /** Notes an error if it is the server's own. */
  #report(error: unknown): void {
    if (toApiError(error).status === 500) this.#options.onError?.(error);
  }
}

function notFound({ method, path }: HttpRequest, methods: readonly string[]): ApiError {
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
