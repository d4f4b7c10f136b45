/**
 * A server with the endpoints that the chat page asks, whose answers are canned.
 *
 * @module
 */

import { makeChatPage } from "../../../src/server/page/chat_page.ts";

/** A piece of an answer. */
export interface Delta {
  readonly content?: string;
  readonly reasoning_content?: string;
}

/** How a stand-in answers. */
export interface ChatServerOptions {
  /** The pieces of the answer to a message. `"wait"` leaves the answer open, `"break"` ends the connection within it. */
  readonly answer: (message: string) => readonly (Delta | "wait" | "break")[];
  /** The key that requests must have. Default none. */
  readonly key?: string;
}

/** A server on a free port. */
export class ChatServer implements AsyncDisposable {
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #options: ChatServerOptions;
  /** Bodies of the conversations that were asked. */
  readonly bodies: Record<string, unknown>[] = [];
  /** Answers that the page broke off. */
  aborted = 0;

  constructor(options: ChatServerOptions) {
    this.#options = options;
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => this.#reply(request),
    );
  }

  /** The address of the page. */
  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}/`;
  }

  async #reply(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname === "/") {
      const { html, headers } = await makeChatPage();
      return new Response(html, { headers });
    }
    if (this.#options.key && request.headers.get("authorization") !== `Bearer ${this.#options.key}`) {
      return Response.json({ error: { message: "The API key is wrong", type: "authentication_error" } }, {
        status: 401,
      });
    }
    if (pathname === "/v1/models") {
      const data = ["tiny-qwen3", "qwen3-0.6b"].map((id) => ({ id, object: "model" }));
      return Response.json({ object: "list", data });
    }
    if (pathname === "/mcp") return Response.json({ servers: [] });
    const body = await request.json();
    this.bodies.push(body);
    return new Response(this.#stream(body.messages.at(-1).content), {
      headers: { "content-type": "text/event-stream" },
    });
  }

  #stream(message: string): ReadableStream<Uint8Array> {
    const deltas = this.#options.answer(message);
    const event = (value: unknown): Uint8Array => new TextEncoder().encode(`data: ${JSON.stringify(value)}\n\n`);
    let at = 0;
    return new ReadableStream({
      pull: async (controller) => {
        // A pause between pieces, so that each one arrives by itself.
        await new Promise((resolve) => setTimeout(resolve, 5));
        const delta = deltas[at++];
        if (delta === "wait") return await new Promise(() => {});
        if (delta === "break") return controller.close();
        if (delta) return controller.enqueue(event({ choices: [{ index: 0, delta, finish_reason: null }] }));
        controller.enqueue(event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }));
        controller.enqueue(event({ choices: [], usage: { prompt_tokens: 12, completion_tokens: deltas.length } }));
        controller.enqueue(new TextEncoder().encode("data: [DONE]\n\n"));
        controller.close();
      },
      cancel: () => {
        this.aborted++;
      },
    });
  }

  /** Ends the server. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}
