/**
 * The endpoints: one row each.
 *
 * @module
 */

import type { HttpReply } from "../../ffi/http/server.ts";
import { countTokens, messages } from "./anthropic/messages.ts";
import type { Context } from "./context.ts";
import type { ErrorForm } from "./errors.ts";
import { consent, listMcp, mcpChat } from "./mcp/chat.ts";
import { chat, generate } from "./ollama/answers.ts";
import { embed, embedOne } from "./ollama/embed.ts";
import { listRunning, listTags, pull, show, version } from "./ollama/models.ts";
import { chatCompletions } from "./openai/chat_completions.ts";
import { completions } from "./openai/completions.ts";
import { embeddings } from "./openai/embeddings.ts";
import { listModels, showModel } from "./openai/models_list.ts";
import { createResponse, deleteResponse, showResponse } from "./openai/responses.ts";
import { makeChatPage } from "./page/chat_page.ts";
import { applyTemplate, detokenize, health, metrics, tokenize } from "./tools.ts";

/** An endpoint. */
export interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  /** Its path; a `*` at the end stands for any text. */
  readonly path: string;
  /** The form of its errors. Default OpenAI's. */
  readonly errors?: ErrorForm;
  /** Whether it needs no key. */
  readonly isOpen?: true;
  /** Answers a request; what it throws becomes a reply. */
  readonly answer: (context: Context) => Promise<HttpReply>;
}

/** All endpoints. */
export const ROUTES: readonly Route[] = [
  { method: "GET", path: "/", isOpen: true, answer: chatPage },
  { method: "GET", path: "/health", isOpen: true, answer: health },
  { method: "GET", path: "/metrics", answer: metrics },
  { method: "GET", path: "/v1/models", answer: listModels },
  { method: "GET", path: "/v1/models/*", answer: showModel },
  { method: "POST", path: "/v1/chat/completions", answer: chatCompletions },
  { method: "POST", path: "/v1/completions", answer: completions },
  { method: "POST", path: "/v1/responses", answer: createResponse },
  { method: "GET", path: "/v1/responses/*", answer: showResponse },
  { method: "DELETE", path: "/v1/responses/*", answer: deleteResponse },
  { method: "POST", path: "/v1/messages", errors: "anthropic", answer: messages },
  { method: "POST", path: "/v1/messages/count_tokens", errors: "anthropic", answer: countTokens },
  { method: "POST", path: "/v1/embeddings", answer: embeddings },
  { method: "POST", path: "/api/chat", errors: "ollama", answer: chat },
  { method: "POST", path: "/api/generate", errors: "ollama", answer: generate },
  { method: "POST", path: "/api/embed", errors: "ollama", answer: embed },
  { method: "POST", path: "/api/embeddings", errors: "ollama", answer: embedOne },
  { method: "GET", path: "/api/tags", errors: "ollama", answer: listTags },
  { method: "GET", path: "/api/ps", errors: "ollama", answer: listRunning },
  { method: "POST", path: "/api/show", errors: "ollama", answer: show },
  { method: "POST", path: "/api/pull", errors: "ollama", answer: pull },
  { method: "GET", path: "/api/version", errors: "ollama", answer: version },
  { method: "GET", path: "/mcp", answer: listMcp },
  { method: "POST", path: "/mcp/chat", answer: mcpChat },
  { method: "POST", path: "/mcp/consent", answer: consent },
  { method: "POST", path: "/tokenize", answer: tokenize },
  { method: "POST", path: "/detokenize", answer: detokenize },
  { method: "POST", path: "/apply-template", answer: applyTemplate },
];

/** GET /: the page on which a browser's user talks to the models. */
async function chatPage(): Promise<HttpReply> {
  const { html, headers } = await makeChatPage();
  return { status: 200, headers, body: html };
}

/** A route, and what its `*` stands for. */
export interface Found {
  readonly route: Route;
  readonly rest: string;
}

/** The route of a request, or the methods that its path takes; none if there is no such path. */
export function findRoute(method: string, path: string): Found | { readonly methods: readonly string[] } {
  const matching = ROUTES.filter((route) =>
    route.path.endsWith("*")
      ? path.startsWith(route.path.slice(0, -1)) && path.length >= route.path.length
      : path === route.path
  );
  const route = matching.find((one) => one.method === method || one.method === "GET" && method === "HEAD");
  if (route === undefined) return { methods: matching.map((one) => one.method) };
  return { route, rest: route.path.endsWith("*") ? path.slice(route.path.length - 1) : "" };
}
