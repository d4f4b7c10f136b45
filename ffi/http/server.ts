/**
 * An HTTP server: requests and replies as plain values, with limits of size and time.
 *
 * It is that of node:http, which Deno has. `Deno.serve` closes neither idle connections nor those whose headers or bodies never end.
 *
 * @module
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { lookBy } from "../turn.ts";
import { Loopback } from "./loopback.ts";

/** Limits of time in milliseconds, after which a connection is closed. */
export interface HttpLimits {
  /** From the first byte of a request to the end of its headers. Default 10,000. */
  readonly headersMs?: number;
  /** To the end of its body. Default 30,000. */
  readonly requestMs?: number;
  /** Between two requests of a connection. Default 60,000. */
  readonly idleMs?: number;
  /** While a client reads nothing of its reply. Default 60,000. */
  readonly stalledMs?: number;
}

/** Where to listen. */
export interface HttpOptions {
  /** A name or an address of this machine. */
  readonly hostname: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Limits of time. */
  readonly limits?: HttpLimits;
}

/** A request of a client. */
export interface HttpRequest {
  /** "GET", "POST" and the like. */
  readonly method: string;
  /** The path as it was sent, without the query. */
  readonly path: string;
  /** The query as it was sent, with its "?"; empty where there is none. */
  readonly query: string;
  /** Is aborted when the client goes before it has the whole reply. */
  readonly signal: AbortSignal;
  /** The value of a header by its name in lower case. */
  header(name: string): string | undefined;
  /** The whole body. Throws a {@link BodyError} if it has more than `limit` bytes or does not come. */
  body(limit: number): Promise<Uint8Array>;
}

/** A reply to a request. A body in pieces is sent as they come; the source is closed if the client goes. */
export interface HttpReply {
  /** The status code. */
  readonly status: number;
  /** Headers by name. */
  readonly headers?: Readonly<Record<string, string>>;
  /** All of the body, or its pieces. */
  readonly body?: string | AsyncIterable<string>;
}

/** Why a body could not be read. */
export class BodyError extends Error {
  /** "large": it is over the limit. "gone": the client went, or was too slow. */
  readonly code: "large" | "gone";

  /** Makes an error with a one-line message. */
  constructor(code: "large" | "gone", message: string) {
    super(message);
    this.code = code;
  }
}

/** A server that listens. */
export interface HttpServer {
  /** The address as a URL: "http://127.0.0.1:8080". */
  readonly url: string;
  /** Takes no more connections; resolves when all replies have been sent. */
  close(): Promise<void>;
}

/** Characters of a reply that wait to be written before no more are asked for. */
const MAX_WAITING = 2 ** 16;
/** How often limits of time are looked at. */
const CHECK_MS = 1000;
/** Bytes of an unwanted body that are read so that its client, which still sends them, sees the reply. */
const MAX_DISCARDED = 16 * 2 ** 20;

/** Replies to what is no HTTP, by the code of its error. */
const BROKEN: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: "431 Request Header Fields Too Large",
  ERR_HTTP_REQUEST_TIMEOUT: "408 Request Timeout",
};

/** Why an address cannot be had, by the code of the error. */
const REFUSALS: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens there: choose another port, or 0 for a free one",
  EACCES: "this user may not: choose a port from 1024 on",
  EADDRNOTAVAIL: "this machine has no such address",
  EINVAL: "this machine has no such address",
  ENOTFOUND: "this machine has no such address",
};

/**
 * Listens and has `handle` answer each request. An error of `handle` is a reply with status 500 and no text.
 * Throws an Error that names the address if it cannot be had.
 */
export async function serveHttp(
  { hostname, port, limits = {} }: HttpOptions,
  handle: (request: HttpRequest) => Promise<HttpReply>,
): Promise<HttpServer> {
  const { headersMs = 10_000, requestMs = 30_000, idleMs = 60_000, stalledMs = 60_000 } = limits;
  /** Replies that have not been sent to their end. */
  const open = new Set<Promise<void>>();
  const server = createServer({
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    keepAliveTimeout: idleMs,
    connectionsCheckingInterval: Math.min(CHECK_MS, headersMs, requestMs, idleMs),
    // deno-lint-ignore no-explicit-any -- a newer option than the types have
  } as any, (request, response) => {
    const closed = new Promise<void>((resolve) => response.once("close", resolve));
    open.add(closed);
    closed.then(() => open.delete(closed));
    void answer(request, response, handle, stalledMs);
  });
  server.on("clientError", (error: Error & { code?: string }, socket: Socket) => {
    if (!socket.writable) return socket.destroy();
    socket.end(`HTTP/1.1 ${BROKEN[error.code ?? ""] ?? "400 Bad Request"}\r\nConnection: close\r\n\r\n`);
  });
  await listen(server, hostname, port);
  const loopback = await Loopback.open();
  const looks = loopback && lookBy(() => loopback.look());
  const { address, family, port: found } = server.address() as AddressInfo;
  const host = family === "IPv6" ? `[${address}]` : address;
  return {
    url: `http://${host}:${found}`,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      while (open.size > 0) await Promise.all(open);
      server.closeAllConnections(); // those that became idle since then
      await closed;
      looks?.[Symbol.dispose]();
      loopback?.[Symbol.dispose]();
    },
  };
}

function listen(server: Server, hostname: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: Error & { code?: string }) => {
      const why = REFUSALS[error.code ?? ""] ?? error.message;
      reject(new Error(`${hostname}:${port} cannot be listened on: ${why}`));
    });
    server.listen(port, hostname, () => resolve());
  });
}

/** One request and its reply. */
async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  handle: (request: HttpRequest) => Promise<HttpReply>,
  stalledMs: number,
): Promise<void> {
  const gone = new AbortController();
  response.on("close", () => {
    if (!response.writableFinished) gone.abort(new DOMException("The client went", "AbortError"));
  });
  for (const end of [request, response]) end.on("error", () => {}); // "close" says it
  const reply = await handle(requestOf(request, gone.signal)).catch((): HttpReply => ({ status: 500 }));
  if (!request.complete) await discard(request);
  if (!request.complete) response.setHeader("connection", "close"); // the rest of its body would be taken for the next request
  try {
    await send(response, reply, gone.signal, stalledMs);
  } catch {
    response.destroy(); // the pieces of the body ended with an error: the client must not take them for the whole
  }
}

function requestOf(request: IncomingMessage, signal: AbortSignal): HttpRequest {
  return {
    method: request.method ?? "GET",
    path: (request.url ?? "/").replace(/[?#].*$/s, ""),
    query: /\?[^#]*/s.exec(request.url ?? "")?.[0] ?? "",
    signal,
    header: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value.join(", ") : value;
    },
    body: (limit) => readBody(request, limit),
  };
}

async function readBody(request: IncomingMessage, limit: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const piece of request) {
      length += piece.length;
      if (length <= limit) pieces.push(piece);
      else if (length > MAX_DISCARDED) break;
    }
  } catch {
    throw new BodyError("gone", "The body did not come");
  }
  if (length > limit) throw new BodyError("large", `The body has more than ${limit} bytes`);
  const body = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    body.set(piece, at);
    at += piece.length;
  }
  return body;
}

/** Reads what is left of a body. */
async function discard(request: IncomingMessage): Promise<void> {
  await readBody(request, 0).catch(() => {});
}

async function send(
  response: ServerResponse,
  { status, headers = {}, body = "" }: HttpReply,
  signal: AbortSignal,
  stalledMs: number,
): Promise<void> {
  response.writeHead(status, headers);
  if (typeof body === "string") return void response.end(body);
  response.flushHeaders();
  // Pieces of one turn of the event loop go together: each write costs more than a token.
  let waiting = "";
  let writing: Promise<void> | undefined;
  const write = async (): Promise<void> => {
    while (waiting !== "" && !response.destroyed) {
      await setImmediate();
      const text = waiting;
      waiting = "";
      if (!response.write(text) && !await isDrained(response, stalledMs)) response.destroy();
    }
    writing = undefined;
  };
  try {
    for await (const piece of body) {
      if (signal.aborted || response.destroyed) return;
      waiting += piece;
      writing ??= write();
      if (waiting.length > MAX_WAITING) await writing;
    }
  } finally {
    await writing;
  }
  response.end();
}

/** Waits until the client has read on; false if it went or does not read. */
function isDrained(response: ServerResponse, stalledMs: number): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const end = (drained: boolean): void => {
      clearTimeout(timer);
      response.off("drain", onDrain).off("close", onClose);
      resolve(drained);
    };
    const onDrain = (): void => end(true);
    const onClose = (): void => end(false);
    const timer = setTimeout(onClose, stalledMs);
    response.on("drain", onDrain).on("close", onClose);
  });
}
