/**
 * Replies that are streams: of events (server-sent events of the HTML standard), or of JSON values on a line each.
 *
 * @module
 */

import type { HttpReply } from "../../ffi/http/server.ts";
import { type ApiError, type ErrorForm, toApiError } from "./errors.ts";

/** Longest wait for the first event: an error until then is a reply with its own status. */
const FIRST_MS = 1000;
/** After so long without an event a comment is sent, so that nothing between takes the connection for idle. */
const PING_MS = 15_000;

/** Forms of streams. */
const EVENTS = { type: "text/event-stream; charset=utf-8", ping: ": ping\n\n" } as const;
const LINES = { type: "application/x-ndjson" } as const;
/** The form of a stream: its type, and what its readers skip. */
interface Form {
  readonly type: string;
  readonly ping?: string;
}

/** An event: its data, and its name where the API has names. */
export function event(data: unknown, name?: string): string {
  return `${name === undefined ? "" : `event: ${name}\n`}data: ${
    typeof data === "string" ? data : JSON.stringify(data)
  }\n\n`;
}

/** A JSON value on a line. */
export function line(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}

/** The last piece of a stream that an error ends, by the form of its errors. */
export const ERROR_PIECES: Readonly<Record<ErrorForm, (error: ApiError) => string>> = {
  openai: (error) => event(error.body),
  anthropic: (error) => event(error.anthropicBody, error.anthropicBody.type),
  ollama: (error) => line(error.ollamaBody),
};

/**
 * The reply that sends events as they come. An error before the first event is thrown, unless that takes long; a later one becomes
 * the last event, which `describe` makes of it.
 */
export function eventReply(
  events: AsyncGenerator<string, void, void>,
  describe: (error: ApiError) => string,
  onError: (error: unknown) => void,
): Promise<HttpReply> {
  return streamReply(EVENTS, events, describe, onError);
}

/** The same of lines. */
export function lineReply(
  lines: AsyncGenerator<string, void, void>,
  describe: (error: ApiError) => string,
  onError: (error: unknown) => void,
): Promise<HttpReply> {
  return streamReply(LINES, lines, describe, onError);
}

async function streamReply(
  form: Form,
  pieces: AsyncGenerator<string, void, void>,
  describe: (error: ApiError) => string,
  onError: (error: unknown) => void,
): Promise<HttpReply> {
  const first = pieces.next();
  await settledWithin(first, FIRST_MS);
  return {
    status: 200,
    headers: {
      "content-type": form.type,
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
    },
    body: body(form, pieces, first, describe, onError),
  };
}

async function* body(
  { ping }: Form,
  pieces: AsyncGenerator<string, void, void>,
  first: Promise<IteratorResult<string, void>>,
  describe: (error: ApiError) => string,
  onError: (error: unknown) => void,
): AsyncGenerator<string, void, void> {
  try {
    for (let next = first;; next = pieces.next()) {
      if (ping !== undefined) { while (!await settledWithin(next, PING_MS)) yield ping; }
      const result = await next;
      if (result.done) return;
      yield result.value;
    }
  } catch (error) {
    onError(error);
    yield describe(toApiError(error));
  } finally {
    await pieces.return();
  }
}

/** Whether a promise has a result within some time; throws its error. */
async function settledWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => timer = setTimeout(() => resolve(false), ms));
  try {
    return await Promise.race([promise.then(() => true as const), late]);
  } finally {
    clearTimeout(timer);
  }
}
