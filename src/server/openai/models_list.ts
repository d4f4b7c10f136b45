/**
 * GET /v1/models and /v1/models/ID, which Anthropic's API has too, with other fields.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type FrontContext, jsonReply } from "../context.ts";
import { formOf } from "../errors.ts";
import type { NamedModel } from "../model_names.ts";

function describe({ id, created }: NamedModel): unknown {
  return { id, object: "model", created, owned_by: "vkmx" };
}

function describeForAnthropic({ id, created }: NamedModel): unknown {
  return { type: "model", id, display_name: id, created_at: new Date(created * 1000).toISOString() };
}

/** All models. */
export function listModels({ models: { all }, request }: FrontContext): Promise<HttpReply> {
  const list = formOf(request) === "anthropic"
    ? { data: all.map(describeForAnthropic), has_more: false, first_id: all[0].id, last_id: all.at(-1)!.id }
    : { object: "list", data: all.map(describe) };
  return Promise.resolve(jsonReply(200, list));
}

/** One model. */
export function showModel({ models, request, rest }: FrontContext): Promise<HttpReply> {
  const id = models.resolve(rest);
  const shown = formOf(request) === "anthropic" ? describeForAnthropic : describe;
  return Promise.resolve(jsonReply(200, shown(models.all.find((model) => model.id === id)!)));
}
