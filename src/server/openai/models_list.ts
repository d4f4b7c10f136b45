/**
 * GET /v1/models and /v1/models/ID.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type FrontContext, jsonReply } from "../context.ts";
import type { NamedModel } from "../model_names.ts";

function describe({ id, created }: NamedModel): unknown {
  return { id, object: "model", created, owned_by: "vkmx" };
}

/** All models. */
export function listModels({ models }: FrontContext): Promise<HttpReply> {
  return Promise.resolve(jsonReply(200, { object: "list", data: models.all.map(describe) }));
}

/** One model. */
export function showModel({ models, rest }: FrontContext): Promise<HttpReply> {
  const id = models.resolve(rest);
  return Promise.resolve(jsonReply(200, describe(models.all.find((model) => model.id === id)!)));
}
