/**
 * GET /v1/models and /v1/models/ID, which Anthropic's API has too, with other fields.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type FrontContext, jsonReply } from "../context.ts";
import { fieldError, formOf } from "../errors.ts";
import type { NamedModel } from "../model_names.ts";

function describe({ id, created }: NamedModel): unknown {
  return { id, object: "model", created, owned_by: "vkmx" };
}

function describeForAnthropic({ id, created }: NamedModel): unknown {
  return { type: "model", id, display_name: id, created_at: new Date(created * 1000).toISOString() };
}

/** All models; Anthropic's clients get a page of them. */
export function listModels({ models: { all }, request }: FrontContext): Promise<HttpReply> {
  const list = formOf(request) === "anthropic"
    ? pageOf(all, new URLSearchParams(request.query))
    : { object: "list", data: all.map(describe) };
  return Promise.resolve(jsonReply(200, list));
}

const PAGE = 20;
const MAX_PAGE = 1000;

/** A page of models: `limit` of them after the one of `after_id`, or before that of `before_id`. */
function pageOf(all: readonly NamedModel[], query: URLSearchParams): unknown {
  const limit = Number(query.get("limit") ?? PAGE);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) {
    throw fieldError("limit", `limit is a whole number from 1 to ${MAX_PAGE}`);
  }
  const placeOf = (field: string): number | undefined => {
    const id = query.get(field);
    if (id === null) return undefined;
    const at = all.findIndex((model) => model.id === id);
    if (at < 0) throw fieldError(field, `${field} is the id of no model: take one of the list`);
    return at;
  };
  const [after, before] = [placeOf("after_id"), placeOf("before_id")];
  const within = all.slice((after ?? -1) + 1, before);
  const page = before === undefined ? within.slice(0, limit) : within.slice(-limit);
  return {
    data: page.map(describeForAnthropic),
    has_more: page.length < within.length,
    first_id: page.at(0)?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
  };
}

/** One model. */
export function showModel({ models, request, rest }: FrontContext): Promise<HttpReply> {
  const id = models.resolve(rest);
  const shown = formOf(request) === "anthropic" ? describeForAnthropic : describe;
  return Promise.resolve(jsonReply(200, shown(models.all.find((model) => model.id === id)!)));
}
