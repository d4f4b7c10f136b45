/**
 * GET /v1/models and /v1/models/ID.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type Context, jsonReply } from "../context.ts";

function describe({ id, created }: Context["models"]["all"][number]): unknown {
  return { id, object: "model", created, owned_by: "vkmx" };
}

/** All models. */
export function listModels({ models }: Context): Promise<HttpReply> {
  return Promise.resolve(jsonReply(200, { object: "list", data: models.all.map(describe) }));
}

/** One model. */
export function showModel({ models, rest }: Context): Promise<HttpReply> {
  const id = models.resolve(rest);
  return Promise.resolve(jsonReply(200, describe(models.all.find((model) => model.id === id)!)));
}
