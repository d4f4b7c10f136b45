/**
 * Sends a request to a replica and its reply back, as it comes.
 *
 * A request goes on to another replica if one has no room or ends, until a byte of the answer has been sent. From then on an error
 * event ends the stream.
 *
 * @module
 */

import type { HttpAnswer, HttpClient } from "../../../ffi/http/client.ts";
import type { HttpReply } from "../../../ffi/http/server.ts";
import { ANTHROPIC_VERSION, type ApiError, toApiError, unavailable } from "../errors.ts";
import type { Answer } from "../listener.ts";
import type { Route } from "../routes.ts";
import { ERROR_PIECES } from "../sse.ts";
import type { Fleet, Replica, Running } from "./fleet.ts";
import type { Choice, Router } from "./router.ts";

/** A request for replicas. */
export interface Asked {
  readonly route: Exclude<Route, { readonly by: "front" }>;
  readonly method: string;
  readonly path: string;
  readonly body?: string | undefined;
  /** The version of Anthropic's API that the client names, if it is one of that. */
  readonly version?: string | undefined;
  /** Is aborted when the client goes. */
  readonly signal: AbortSignal;
  /** Blocks of its prompt. */
  readonly blocks: readonly number[];
  /** The one replica that can answer. Default any. */
  readonly holder?: number | undefined;
}

/** What a replica gets of a request. */
export type Sent = Pick<Asked, "method" | "path" | "body" | "version" | "signal">;

/** Replicas that may end in the course of one request: the next could be the request's own doing. */
const MOST_LOST = 2;

const NONE = "No replica could answer the request: try again";

/** What marks the end of a piece of a stream, by the beginning of its type. */
const SEPARATORS = [["text/event-stream", "\n\n"], ["application/x-ndjson", "\n"]] as const;

/** A stream that a replica has begun. */
interface Opened {
  readonly replica: number;
  readonly answer: HttpAnswer;
  readonly separator: string;
  /** Counts its end. */
  readonly release: () => void;
}

/** Asks one replica, for `limitMs` milliseconds at most; its reply whole. Rejects if the replica ends before. */
export async function askWhole(
  client: HttpClient,
  { number, process }: Replica & { readonly process: Running },
  asked: Sent,
  limitMs: number,
): Promise<Answer & { readonly replica: number; readonly body: string }> {
  return { ...await wholeOf(await send(client, process, asked, limitMs)), replica: number };
}

function send(
  client: HttpClient,
  { url, key, gone }: Running,
  { method, path, body, version, signal }: Sent,
  limitMs = Infinity,
): Promise<HttpAnswer> {
  const signals = [signal, gone, ...limitMs === Infinity ? [] : [AbortSignal.timeout(limitMs)]];
  // No endpoint reads other headers of its client than the key, those that the front has looked at, and that of Anthropic's clients.
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    ...(version !== undefined && { [ANTHROPIC_VERSION]: version }),
  };
  return client.call({ method, url: url + path, headers, body, signals });
}

async function wholeOf({ status, headers, pieces }: HttpAnswer): Promise<HttpReply & { readonly body: string }> {
  let body = "";
  for await (const piece of pieces) body += piece;
  return { status, headers, body };
}

/** Where requests go. */
export interface ForwardOptions {
  readonly fleet: Fleet;
  readonly router: Router;
  readonly client: HttpClient;
  /** Called with each choice. */
  readonly onChoice?: (choice: Choice) => void;
}

/** Answers a request by a replica. Throws an ApiError with status 503 if none can. */
export async function forward(options: ForwardOptions, asked: Asked): Promise<Answer> {
  const forwarding = new Forwarding(options, asked);
  const opened = await forwarding.open();
  if (!("answer" in opened)) return opened;
  const { replica, answer: { status, headers } } = opened;
  return { status, headers, replica, body: forwarding.pieces(opened) };
}

/** One request on its way. */
class Forwarding {
  readonly #options: ForwardOptions;
  readonly #asked: Asked;
  /** Replicas that ended before they answered, and those that had no room. */
  readonly #lost = new Set<number>();
  readonly #full = new Set<number>();
  #losses = 0;
  #refusal: Answer | undefined;

  constructor(options: ForwardOptions, asked: Asked) {
    this.#options = options;
    this.#asked = asked;
  }

  /** The stream or the whole reply of the next replica that answers. */
  async open(): Promise<Opened | Answer> {
    const { fleet, router, client, onChoice } = this.#options;
    const { blocks, signal } = this.#asked;
    for (;;) {
      signal.throwIfAborted();
      const choice = this.#losses < MOST_LOST ? router.choose(blocks, this.#candidates()) : undefined;
      if (choice === undefined) {
        if (this.#refusal) return this.#refusal;
        throw unavailable(NONE);
      }
      onChoice?.(choice);
      const { replica } = choice;
      const release = router.begin(replica, blocks);
      try {
        const answer = await send(client, fleet.all[replica].process!, this.#asked);
        const separator = SEPARATORS.find(([type]) => answer.headers["content-type"]?.startsWith(type))?.[1];
        if (answer.status === 200 && separator !== undefined) {
          signal.addEventListener("abort", release); // a client may go before it has read any of it
          return { replica, answer, separator, release };
        }
        const reply = { ...await wholeOf(answer), replica };
        release();
        if (reply.status !== 503) return reply;
        this.#full.add(replica);
        this.#refusal = reply;
      } catch {
        release();
        this.#lose(replica);
      }
    }
  }

  /** The pieces of a stream. They go on with those of another replica if none but comments came. */
  async *pieces(first: Opened): AsyncGenerator<string, void, void> {
    const { signal } = this.#asked;
    let opened = first;
    let sent = "";
    for (;;) {
      try {
        for await (const piece of wholePieces(opened)) {
          if (isAnswer(piece)) sent = piece;
          yield piece;
        }
        return;
      } catch {
        if (signal.aborted) return;
        if (sent !== "") {
          return yield this.#errorAfter(unavailable("The replica that was answering has ended: try again"), sent);
        }
        this.#lose(opened.replica);
      } finally {
        opened.release();
      }
      try {
        const next = await this.open();
        if (!("answer" in next)) throw unavailable(NONE); // it refuses what another one had begun
        opened = next;
      } catch (error) {
        if (signal.aborted) return;
        return yield this.#errorAfter(toApiError(error), sent);
      }
    }
  }

  /** Numbers of replicas that may be asked: those that were lost last of all, since they may have been started again. */
  #candidates(): readonly number[] {
    const { holder } = this.#asked;
    const ready = this.#options.fleet.ready.map(({ number }) => number)
      .filter((number) => !this.#full.has(number) && (holder === undefined || number === holder));
    const fresh = ready.filter((number) => !this.#lost.has(number));
    return fresh.length > 0 ? fresh : ready;
  }

  #lose(replica: number): void {
    this.#losses++;
    this.#lost.add(replica);
  }

  #errorAfter(error: ApiError, sent: string): string {
    const { errorAfter, errors = "openai" } = this.#asked.route;
    return errorAfter ? errorAfter(error, sent) : ERROR_PIECES[errors](error);
  }
}

/** Text of a stream in whole events or lines, so that one that is cut off is never sent. */
async function* wholePieces({ answer, separator }: Opened): AsyncGenerator<string, void, void> {
  let rest = "";
  for await (const text of answer.pieces) {
    rest += text;
    const end = rest.lastIndexOf(separator);
    if (end < 0) continue;
    yield rest.slice(0, end + separator.length);
    rest = rest.slice(end + separator.length);
  }
  if (rest !== "") throw new Error("A stream ended within a piece");
}

/** Whether a text has more than comments. */
function isAnswer(text: string): boolean {
  return /^[^:\r\n]/m.test(text);
}
