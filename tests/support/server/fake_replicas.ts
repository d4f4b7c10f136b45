/**
 * Replicas of a front whose replies a test writes, and that die as a killed process does: connections end in the middle of a reply.
 *
 * @module
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { assert } from "@std/assert";
import { VERSION } from "../../../ffi/version.ts";
import type { ReplicaEvent, ReplicaProcess } from "../../../src/server/replicas/fleet.ts";
import { Front, type FrontOptions } from "../../../src/server/replicas/front.ts";

/** A request that a replica got, with its reply to be written. */
export interface Arrived {
  readonly replica: FakeReplica;
  readonly method: string;
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: string;
  readonly response: ServerResponse;
}

/** A replica. */
export class FakeReplica {
  readonly number: number;
  readonly #server: Server;
  readonly #ended = Promise.withResolvers<string>();
  /** Whether it answers GET /health. */
  isHealthy = true;
  /** What the front asked of it, but for requests. */
  readonly orders: string[] = [];

  constructor(number: number, answer: (arrived: Arrived) => void) {
    this.number = number;
    this.#server = createServer((request: IncomingMessage, response) => {
      const pieces: Uint8Array[] = [];
      request.on("data", (piece: Uint8Array) => pieces.push(piece));
      request.on("end", () => {
        const { method = "", url: path = "" } = request;
        if (path === "/health") return void (this.isHealthy && response.end("{}"));
        const { authorization } = request.headers;
        const body = new TextDecoder().decode(Uint8Array.from(pieces.flatMap((piece) => [...piece])));
        answer({ replica: this, method, path, authorization, body, response });
      });
    });
  }

  /** Listens; what the front has of it. */
  async process(): Promise<ReplicaProcess> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", () => resolve()));
    return {
      url: `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`,
      key: `key ${this.number}`,
      device: `fake:${this.number}`,
      ended: this.#ended.promise,
      closeQuestions: () => void this.orders.push("close questions"),
      drain: () => {
        this.orders.push("drain");
        this.die("it ended");
      },
      kill: () => {
        this.orders.push("kill");
        this.die();
      },
    };
  }

  /** Ends all connections. */
  die(how = "it was ended by SIGKILL"): void {
    this.#server.closeAllConnections();
    this.#server.close();
    this.#ended.resolve(how);
  }
}

/** A front with such replicas. */
export class FakeFront implements AsyncDisposable {
  readonly front: Front;
  /** Those that were started, in order. */
  readonly replicas: readonly FakeReplica[];
  readonly events: readonly ReplicaEvent[];

  private constructor(front: Front, replicas: readonly FakeReplica[], events: readonly ReplicaEvent[]) {
    this.front = front;
    this.replicas = replicas;
    this.events = events;
  }

  /** Starts a front whose replicas answer by a function. `onStart` may throw what a start throws. */
  static async start(
    answer: (arrived: Arrived) => void,
    { onStart, ...options }: Partial<FrontOptions> & { readonly onStart?: (replica: number) => void } = {},
  ): Promise<FakeFront> {
    const replicas: FakeReplica[] = [];
    const events: ReplicaEvent[] = [];
    const front = await Front.start({
      hostname: "127.0.0.1",
      port: 0,
      version: VERSION,
      models: ["fake"],
      count: 2,
      healthMs: 20,
      pauseMs: 20,
      start: async (number) => {
        onStart?.(number);
        const replica = new FakeReplica(number, answer);
        replicas.push(replica);
        return await replica.process();
      },
      onEvent: (event) => events.push(event),
      ...options,
    });
    return new FakeFront(front, replicas, events);
  }

  /** Sends a request with a JSON body. */
  post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return fetch(this.front.url + path, { method: "POST", body: text, ...init });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.front.drain();
  }
}

/** Waits until something holds. */
export async function until(what: string, test: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await test()) return;
    await sleep(10);
  }
  assert(false, `it never came: ${what}`);
}
