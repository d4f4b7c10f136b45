/**
 * The server of models: has their endpoints answer the requests of one address.
 *
 * @module
 */

import type { HttpRequest } from "../../ffi/http/server.ts";
import type { lm } from "../../mod.ts";
import { type Context, readJson, type ServedMcp } from "./context.ts";
import { Listener, type ListenOptions, type LogEntry } from "./listener.ts";
import { Questions } from "./mcp/questions.ts";
import { Metrics } from "./metrics.ts";
import { Models, type Room } from "./models.ts";
import { ResponseStore } from "./openai/response_store.ts";
import type { Served } from "./served.ts";

export type { LogEntry };

/** How a server is started. */
export interface ServerOptions extends ListenOptions {
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
  /** MCP servers whose tools the page offers. Default none. */
  readonly mcp?: ServedMcp | undefined;
}

/** A server that listens, until it is drained. */
export class Server {
  readonly #options: ServerOptions;
  readonly #metrics = new Metrics();
  readonly #responses = new ResponseStore();
  readonly #questions = new Questions();
  readonly #models: Models;
  #listener: Listener | undefined;

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
      server.#listener = await Listener.open(
        options,
        server.#metrics,
        ({ route, rest }, request) => route.answer(server.#contextOf(request, rest)),
      );
    } catch (error) {
      await server.#models[Symbol.asyncDispose]();
      throw error;
    }
    return server;
  }

  /** The address as a URL. */
  get url(): string {
    return this.#listener!.url;
  }

  /** Refuses the calls of tools that wait for consent, and those that come later: no user is asked any more. */
  closeQuestions(): void {
    this.#questions.close();
  }

  /** Takes no more connections, answers the requests that are there, and frees the models. */
  async drain(): Promise<void> {
    this.closeQuestions();
    await this.#listener!.close();
    await this.#models[Symbol.asyncDispose]();
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
      report: (error) => this.#listener!.report(error, request),
      read: (shape) => readJson(request, shape),
    };
  }
}
