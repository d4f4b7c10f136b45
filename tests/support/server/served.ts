/**
 * Servers for tests: the embedded model on the CPU, under its name and that of a model of which the test writes the answers.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { VERSION } from "../../../ffi/version.ts";
import * as mx from "../../../mod.ts";
import { Server, type ServerOptions } from "../../../src/server/server.ts";
import type { ServedEngine } from "../../../src/server/served.ts";

/** The name of the embedded model. */
export const TINY = "tiny-qwen3";

/** Bytes of keys and values of two whole contexts. The default, a share of the memory, takes long to make. */
export const KV_BYTES = 2 ** 26;

/** The engine of a loaded model. */
export const ENGINE = ({ model, tokenizer }: mx.lm.Loaded): ServedEngine =>
  new mx.lm.Engine(model, tokenizer, { kvBytes: KV_BYTES });

const load = (directory: string | URL): Promise<mx.lm.Loaded> => mx.lm.load(directory, { device: "cpu" });

/** What models have that compute nothing, by their directory: loaded once, and never freed. */
const tokenizers = new Map<string, Promise<mx.lm.Loaded>>();

/** A model that is not there, with the tokenizer of one that is. */
function shared(directory: string | URL): Promise<mx.lm.Loaded> {
  const key = String(directory);
  const found = tokenizers.get(key) ?? load(directory).then((loaded) => {
    loaded.model[Symbol.dispose]();
    return { ...loaded, model: { [Symbol.dispose]() {} } as mx.lm.LanguageModel };
  });
  tokenizers.set(key, found);
  return found;
}

/** How a test's server differs. */
export interface TestServerOptions extends Partial<ServerOptions> {
  /** Engines of models by name, default the embedded one alone. One that takes no model has the tokenizer only. */
  readonly engines?: Readonly<Record<string, (loaded: mx.lm.Loaded) => ServedEngine>>;
  /** Directory of the models, default that of the embedded one. */
  readonly directory?: string | URL;
}

/** A server, and requests to it. */
export class TestServer implements AsyncDisposable {
  readonly server: Server;
  readonly errors: unknown[];
  readonly #expectsErrors: boolean;

  private constructor(server: Server, errors: unknown[], expectsErrors: boolean) {
    this.server = server;
    this.errors = errors;
    this.#expectsErrors = expectsErrors;
  }

  /** Starts one on a free port. Errors of the server fail the test, unless it looks at them by `onError`. */
  static async start(options: TestServerOptions = {}): Promise<TestServer> {
    const { engines = { [TINY]: ENGINE }, directory = mx.lm.EMBEDDED_MODEL, ...rest } = options;
    const errors: unknown[] = [];
    const server = await Server.start({
      hostname: "127.0.0.1",
      port: 0,
      version: VERSION,
      models: Object.keys(engines),
      open: async (id) => {
        const loaded = engines[id].length > 0 ? await load(directory) : await shared(directory);
        return { ...loaded, id, bytes: 0, engine: engines[id](loaded) };
      },
      describe: () => mx.lm.inspect(directory),
      onError: (error) => errors.push(error),
      ...rest,
    });
    return new TestServer(server, errors, options.onError !== undefined);
  }

  get url(): string {
    return this.server.url;
  }

  /** Sends JSON. */
  post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(this.url + path, {
      method: "POST",
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...init,
      headers: { "content-type": "application/json", ...init.headers },
    });
  }

  /** Sends JSON, and reads the JSON of a reply with status 200. */
  // deno-lint-ignore no-explicit-any -- what a test looks at
  async ask(path: string, body: unknown): Promise<any> {
    const response = await this.post(path, body);
    const text = await response.text();
    assertEquals(response.status, 200, text);
    return JSON.parse(text);
  }

  /** The events of a stream: their data, parsed but for "[DONE]", and their names. */
  // deno-lint-ignore no-explicit-any -- what a test looks at
  async events(path: string, body: Record<string, unknown>): Promise<{ readonly name?: string; readonly data: any }[]> {
    const response = await this.post(path, { ...body, stream: true });
    const text = await response.text();
    assertEquals(response.status, 200, text);
    assertEquals(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
    return eventsOf(text);
  }

  /** The lines of a stream, parsed. */
  // deno-lint-ignore no-explicit-any -- what a test looks at
  async lines(path: string, body: Record<string, unknown>): Promise<any[]> {
    const response = await this.post(path, body);
    const text = await response.text();
    assertEquals(response.status, 200, text);
    assertEquals(response.headers.get("content-type"), "application/x-ndjson");
    return text.trimEnd().split("\n").map((line) => JSON.parse(line));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.drain();
    if (!this.#expectsErrors) assertEquals(this.errors, []);
  }
}

/** Events of a text by the rules of the HTML standard. */
// deno-lint-ignore no-explicit-any -- what a test looks at
export function eventsOf(text: string): { readonly name?: string; readonly data: any }[] {
  const blocks = text.split("\n\n");
  assertEquals(blocks.pop(), "", "the last event is not whole");
  return blocks.filter((block) => !block.startsWith(":")).map((block) => {
    const fields = Object.fromEntries(block.split("\n").map((line) => /^(\w+): (.*)$/s.exec(line)!.slice(1)));
    const data = fields.data === "[DONE]" ? fields.data : JSON.parse(fields.data);
    return { ...(fields.event !== undefined && { name: fields.event }), data };
  });
}
