/**
 * Endpoints whose replies are made of those of all replicas.
 *
 * @module
 */

import { jsonReply } from "../context.ts";
import type { Answer } from "../listener.ts";
import type { Replica } from "./fleet.ts";
import type { FrontMetrics } from "./metrics.ts";

/** A replica's reply, and the process that it is of. */
export interface ReplicaReply {
  readonly process: object;
  readonly reply: Answer & { readonly replica: number; readonly body: string };
}

/** What these endpoints are made of. */
export interface Gathering {
  /** Asks all replicas. */
  readonly ask: () => Promise<readonly ReplicaReply[]>;
  readonly replicas: readonly Replica[];
  readonly metrics: FrontMetrics;
}

/** The endpoints by path. */
export const MERGED: Readonly<Record<string, (gathering: Gathering) => Promise<Answer>>> = {
  "/health": health,
  "/metrics": metrics,
  "/api/ps": listRunning,
};

/** Status 200 as long as a replica runs. */
function health({ replicas }: Gathering): Promise<Answer> {
  const isUp = replicas.some(({ process }) => process !== undefined);
  const list = replicas.map(({ number, process, restarts }) => ({
    replica: number,
    status: process === undefined ? "starting" : "ok",
    restarts,
  }));
  const retry: Record<string, string> = isUp ? {} : { "retry-after": "1" };
  return Promise.resolve(jsonReply(isUp ? 200 : 503, { status: isUp ? "ok" : "starting", replicas: list }, retry));
}

async function metrics({ ask, replicas, metrics }: Gathering): Promise<Answer> {
  const headers = { "content-type": "text/plain; version=0.0.4; charset=utf-8" };
  for (const { process, reply } of await ask()) metrics.read(reply.replica, process, reply.body);
  return { status: 200, headers, body: metrics.merged(replicas) };
}

/** A model of a replica in ollama's list. */
interface Running {
  readonly name: string;
  readonly size: number;
  readonly size_vram: number;
  readonly expires_at: string;
}

/** The models in memory: sizes are those of all replicas together, and the last one to be unloaded says when. */
async function listRunning({ ask }: Gathering): Promise<Answer> {
  const models = new Map<string, Running>();
  for (const { reply } of await ask()) {
    for (const model of (JSON.parse(reply.body) as { models: readonly Running[] }).models) {
      const before = models.get(model.name);
      models.set(
        model.name,
        before === undefined ? model : {
          ...before,
          size: before.size + model.size,
          size_vram: before.size_vram + model.size_vram,
          expires_at: before.expires_at > model.expires_at ? before.expires_at : model.expires_at,
        },
      );
    }
  }
  return jsonReply(200, { models: [...models.values()] });
}
