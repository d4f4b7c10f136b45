/**
 * GET /v1/responses/ID/input_items: what a response was made from, as items that have ids, in pages.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import { newId } from "../answer.ts";
import { fieldError } from "../errors.ts";

/** An item of a response, as clients get it. */
export type Item = Readonly<Record<string, unknown>> & { readonly id: string };

const MAX_PAGE = 100;
const PAGE = 20;
const ORDERS = ["asc", "desc"];

/** The items of messages, each of which is one item of a body. */
export function inputItems(messages: readonly lm.ChatMessage[]): Item[] {
  return messages.flatMap(({ role, content, reasoning_content: reasoning, tool_calls: calls = [], tool_call_id }) => {
    const text = typeof content === "string" ? content : "";
    const status = "completed";
    if (role === "tool") {
      return [{ id: newId("fco_"), type: "function_call_output", call_id: tool_call_id, output: text, status }];
    }
    const items: Item[] = [];
    if (reasoning !== undefined) {
      const part = { type: "reasoning_text", text: reasoning };
      items.push({ id: newId("rs_"), type: "reasoning", summary: [], content: [part], status });
    }
    if (text !== "" || reasoning === undefined && calls.length === 0) {
      const part = role === "assistant"
        ? { type: "output_text", text, annotations: [], logprobs: [] }
        : { type: "input_text", text };
      items.push({ id: newId("msg_"), type: "message", role, content: [part], status });
    }
    for (const { id: call_id, function: called } of calls) {
      items.push({ id: newId("fc_"), type: "function_call", call_id, ...called, status });
    }
    return items;
  });
}

/** A page of items, which are in their order: that of the query's `limit`, `order` and `after`. */
export function pageOf(items: readonly Item[], query: URLSearchParams): Readonly<Record<string, unknown>> {
  const order = query.get("order") ?? "desc";
  if (!ORDERS.includes(order)) throw fieldError("order", "order is asc or desc: the first item first, or the last");
  const limit = Number(query.get("limit") ?? PAGE);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) {
    throw fieldError("limit", `limit is a whole number from 1 to ${MAX_PAGE}`);
  }
  const ordered = order === "asc" ? items : items.toReversed();
  const after = query.get("after");
  const last = after === null ? -1 : ordered.findIndex(({ id }) => id === after);
  if (after !== null && last < 0) throw fieldError("after", "after is the id of no item of the response");
  const data = ordered.slice(last + 1, last + 1 + limit);
  return {
    object: "list",
    data,
    first_id: data.at(0)?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: last + 1 + limit < ordered.length,
  };
}
