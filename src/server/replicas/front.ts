/**
 * A front: has replicas of one server answer the requests of one address.
 *
 * It loads no model. It has the limits, keys and origins of a server, and sends to a replica what is allowed.
 *
 * @module
 */

import { HttpClient } from "../../../ffi/http/client.ts";
import type { HttpRequest } from "../../../ffi/http/server.ts";
import type { lm } from "../../../mod.ts";
import { bodyText, type FrontContext, parseJson, readJson } from "../context.ts";
import { ANTHROPIC_VERSION, unavailable } from "../errors.ts";
import { type Answer, Listener, type ListenOptions, notFound } from "../listener.ts";
import { ModelNames } from "../model_names.ts";
import type { Found } from "../routes.ts";
import { Fleet, type FleetOptions } from "./fleet.ts";
import { askWhole, forward, type Sent } from "./forward.ts";
import { MERGED, type ReplicaReply } from "./merged.ts";
import { FrontMetrics } from "./metrics.ts";
import { lacks, promptBlocks } from "./prompt.ts";
import { Router } from "./router.ts";

/** How a front is started. */
export interface FrontOptions extends ListenOptions, FleetOptions {
  /** The version that /api/version tells. */
  readonly version: string;
  /** Names of the models that each replica offers. The first is the one of requests that name none. */
  readonly models: readonly string[];
  /** Milliseconds that each replica has to answer where all are asked. One that takes longer is left out. Default 5,000. */
  readonly askMs?: number;
  /** Tells what the model of a name is; undefined if its files are not there yet. Default never known. */
  readonly describe?: (id: string) => Promise<lm.ModelInfo | undefined>;
}

/** The default of {@link FrontOptions.askMs}. */
const ASK_MS = 5000;

/** A front that listens, until it is drained. */
export class Front {
  readonly #options: FrontOptions;
  readonly #client = new HttpClient();
  readonly #metrics = new FrontMetrics();
  readonly #router: Router;
  readonly #names: ModelNames;
  #fleet: Fleet | undefined;
  #listener: Listener | undefined;

  private constructor(options: FrontOptions) {
    this.#options = options;
    this.#router = new Router(options.count);
    this.#names = new ModelNames(options.models);
  }

  /** Starts the replicas and listens. Throws what a start throws, or an Error that names the address. */
  static async start(options: FrontOptions): Promise<Front> {
    const front = new Front(options);
    const onEvent: FleetOptions["onEvent"] = (event) => {
      if (event.event === "ended") front.#router.forget(event.replica);
      options.onEvent?.(event);
    };
    try {
      front.#fleet = await Fleet.start({ ...options, onEvent }, front.#client);
      front.#listener = await Listener.open(options, front.#metrics, (found, request) => front.#answer(found, request));
    } catch (error) {
      await front.#fleet?.drain();
      front.#client[Symbol.dispose]();
      throw error;
    }
    return front;
  }

  /** The address as a URL. */
  get url(): string {
    return this.#listener!.url;
  }

  /** The devices of the replicas that run. */
  get devices(): readonly string[] {
    return this.#fleet!.ready.map(({ process }) => process.device);
  }

  /** Takes no more connections, has the requests that are there answered, and ends the replicas. */
  async drain(): Promise<void> {
    this.#fleet!.closeQuestions();
    await this.#listener!.close();
    await this.#fleet!.drain();
    this.#client[Symbol.dispose]();
  }

  async #answer({ route, rest }: Found, request: HttpRequest): Promise<Answer> {
    if (route.by === "front") return await route.answer(this.#contextOf(request, rest));
    const { method, path, query, signal } = request;
    if (new URL(path, "http://replica").pathname !== path) throw notFound(request); // of another form, it may be another path
    const body = route.method === "POST" ? await bodyText(request) : undefined;
    const asked = { route, method, path, body, version: request.header(ANTHROPIC_VERSION), signal };
    if (route.by === "each") {
      const ask = (): Promise<readonly ReplicaReply[]> => this.#askAll(asked);
      return await MERGED[route.path]({ ask, replicas: this.#fleet!.all, metrics: this.#metrics });
    }
    if (route.by === "holder") return firstFound(await this.#askAll({ ...asked, path: path + query }));
    const fields = fieldsOf(body);
    if (route.loads !== undefined && lacks(fields, route.loads)) return firstFound(await this.#askAll(asked, Infinity));
    const previous = fields.previous_response_id;
    const blocks = promptBlocks(fields, route.prompt);
    return await forward(
      {
        fleet: this.#fleet!,
        router: this.#router,
        client: this.#client,
        onChoice: (choice) => this.#metrics.countChoice(choice),
      },
      { ...asked, blocks, holder: typeof previous === "string" ? await this.#holderOf(previous, signal) : undefined },
    );
  }

  /** The replies of all replicas that answer within a time. */
  async #askAll(
    asked: Sent,
    limitMs: number = this.#options.askMs ?? ASK_MS,
  ): Promise<readonly ReplicaReply[]> {
    const replies = await Promise.allSettled(this.#fleet!.ready.map(async (replica) => {
      const { process } = replica; // another one may have its place when the reply comes
      return { process, reply: await askWhole(this.#client, replica, asked, limitMs) };
    }));
    asked.signal.throwIfAborted();
    return replies.flatMap((one) => one.status === "fulfilled" ? one.value : []);
  }

  /** The replica that keeps a response; undefined if none does, and each would say so. */
  async #holderOf(id: string, signal: AbortSignal): Promise<number | undefined> {
    if (!/^\w+$/.test(id)) return undefined;
    const replies = await this.#askAll({ method: "HEAD", path: `/v1/responses/${id}`, signal });
    return replies.find(({ reply }) => reply.status === 200)?.reply.replica;
  }

  #contextOf(request: HttpRequest, rest: string): FrontContext {
    return {
      request,
      rest,
      models: this.#names,
      version: this.#options.version,
      describe: this.#options.describe ?? (() => Promise.resolve(undefined)),
      report: (error) => this.#listener!.report(error, request),
      read: (shape) => readJson(request, shape),
    };
  }
}

/** The reply of the replica that has what was asked about, be it an error, or of any if none has. Throws if none answered. */
function firstFound(replies: readonly ReplicaReply[]): Answer {
  const found = replies.find(({ reply }) => reply.status < 400) ?? replies.find(({ reply }) => reply.status !== 404) ??
    replies[0];
  if (found === undefined) throw unavailable("No replica is ready: try again");
  return found.reply;
}

/** The fields of a body; none of what is no JSON object, which a replica refuses. */
function fieldsOf(body: string | undefined): Readonly<Record<string, unknown>> {
  if (body === undefined) return {};
  let value: unknown;
  try {
    value = parseJson(body);
  } catch {
    return {};
  }
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {};
}
