/**
 * The endpoints: one row each.
 *
 * @module
 */

import type { HttpReply } from "../../ffi/http/server.ts";
import { countTokens, messages } from "./anthropic/messages.ts";
import type { Context, FrontContext } from "./context.ts";
import type { ApiError, ErrorForm } from "./errors.ts";
import { consent, listMcp, mcpChat } from "./mcp/chat.ts";
import { chat, generate } from "./ollama/answers.ts";
import { embed, embedOne } from "./ollama/embed.ts";
import { listRunning, listTags, pull, show, version } from "./ollama/models.ts";
import { chatCompletions } from "./openai/chat_completions.ts";
import { completions } from "./openai/completions.ts";
import { embeddings } from "./openai/embeddings.ts";
import { listModels, showModel } from "./openai/models_list.ts";
import {
  countInputTokens,
  createResponse,
  deleteResponse,
  errorAfter,
  listInputItems,
  showResponse,
} from "./openai/responses.ts";
import { makeChatPage } from "./page/chat_page.ts";
import { applyTemplate, detokenize, health, metrics, tokenize } from "./tools.ts";

/** What each endpoint has. */
interface RouteBase {
  readonly method: "GET" | "POST" | "DELETE";
  /** Its path; a `*` stands for any text without a slash, and `**` for any. A path without them comes before one with them. */
  readonly path: string;
  /** The form of its errors. Default that of the client's API. */
  readonly errors?: ErrorForm;
  /** Whether it needs no key. */
  readonly isOpen?: true;
}

/** An endpoint that needs no loaded model, so that a front of replicas answers it itself. */
interface FrontRoute extends RouteBase {
  readonly by: "front";
  /** Answers a request; what it throws becomes a reply. */
  readonly answer: (context: FrontContext) => Promise<HttpReply>;
}

/** An endpoint that needs the models of a server, so that a front of replicas asks them. */
interface ModelRoute extends RouteBase {
  /**
   * Which replicas: "each" where their replies are merged. "holder" where one of them has what the request is about, and the others do
   * not find it. Default the one that the router chooses.
   */
  readonly by?: "each" | "holder";
  /** Fields of the body with the prompt, in the order in which a model reads them: the router finds prefixes in them. Default none. */
  readonly prompt?: readonly string[];
  /** The field without which a request only loads or unloads the model, which each replica does then. */
  readonly loads?: string;
  /** The event of an error that ends a stream, of which `sent` is the end. Default that of the form of errors. */
  readonly errorAfter?: (error: ApiError, sent: string) => string;
  /** Answers a request; what it throws becomes a reply. */
  readonly answer: (context: Context) => Promise<HttpReply>;
}

/** An endpoint. */
export type Route = FrontRoute | ModelRoute;

const CHAT = ["model", "tools", "messages"] as const;

/** All endpoints. */
export const ROUTES: readonly Route[] = [
  { method: "GET", path: "/", isOpen: true, by: "front", answer: chatPage },
  { method: "GET", path: "/health", isOpen: true, by: "each", answer: health },
  { method: "GET", path: "/metrics", by: "each", answer: metrics },
  { method: "GET", path: "/v1/models", by: "front", answer: listModels },
  { method: "GET", path: "/v1/models/**", by: "front", answer: showModel },
  { method: "POST", path: "/v1/chat/completions", prompt: CHAT, answer: chatCompletions },
  { method: "POST", path: "/v1/completions", prompt: ["model", "prompt"], answer: completions },
  {
    method: "POST",
    path: "/v1/responses",
    prompt: ["model", "instructions", "tools", "input"],
    errorAfter,
    answer: createResponse,
  },
  { method: "POST", path: "/v1/responses/input_tokens", answer: countInputTokens },
  { method: "GET", path: "/v1/responses/*/input_items", by: "holder", answer: listInputItems },
  { method: "GET", path: "/v1/responses/*", by: "holder", answer: showResponse },
  { method: "DELETE", path: "/v1/responses/*", by: "holder", answer: deleteResponse },
  {
    method: "POST",
    path: "/v1/messages",
    errors: "anthropic",
    prompt: ["model", "tools", "system", "messages"],
    answer: messages,
  },
  { method: "POST", path: "/v1/messages/count_tokens", errors: "anthropic", answer: countTokens },
  { method: "POST", path: "/v1/embeddings", answer: embeddings },
  { method: "POST", path: "/api/chat", errors: "ollama", prompt: CHAT, loads: "messages", answer: chat },
  {
    method: "POST",
    path: "/api/generate",
    errors: "ollama",
    prompt: ["model", "system", "prompt"],
    loads: "prompt",
    answer: generate,
  },
  { method: "POST", path: "/api/embed", errors: "ollama", answer: embed },
  { method: "POST", path: "/api/embeddings", errors: "ollama", answer: embedOne },
  { method: "GET", path: "/api/tags", errors: "ollama", by: "front", answer: listTags },
  { method: "GET", path: "/api/ps", errors: "ollama", by: "each", answer: listRunning },
  { method: "POST", path: "/api/show", errors: "ollama", answer: show },
  { method: "POST", path: "/api/pull", errors: "ollama", by: "front", answer: pull },
  { method: "GET", path: "/api/version", errors: "ollama", by: "front", answer: version },
  { method: "GET", path: "/mcp", answer: listMcp },
  { method: "POST", path: "/mcp/chat", prompt: CHAT, answer: mcpChat },
  { method: "POST", path: "/mcp/consent", by: "holder", answer: consent },
  { method: "POST", path: "/tokenize", answer: tokenize },
  { method: "POST", path: "/detokenize", answer: detokenize },
  { method: "POST", path: "/apply-template", answer: applyTemplate },
];

/** GET /: the page on which a browser's user talks to the models. */
async function chatPage(): Promise<HttpReply> {
  const { html, headers } = await makeChatPage();
  return { status: 200, headers, body: html };
}

/** A route, and what its `*` or `**` stands for. */
export interface Found {
  readonly route: Route;
  readonly rest: string;
}

/** The route of a request, or the methods that its path takes; none if there is no such path. */
export function findRoute(method: string, path: string): Found | { readonly methods: readonly string[] } {
  const exact = ROUTES.filter((route) => route.path === path).map((route) => ({ route, rest: "" }));
  const matching = exact.length > 0 ? exact : ROUTES.flatMap((route) => {
    const [start, end] = route.path.split(/\*+/);
    if (end === undefined) return [];
    const rest = path.slice(start.length, path.length - end.length);
    const fits = rest !== "" && path === `${start}${rest}${end}` && (route.path.includes("**") || !rest.includes("/"));
    return fits ? [{ route, rest }] : [];
  });
  const found = matching.find(({ route }) => route.method === method || route.method === "GET" && method === "HEAD");
  return found ?? { methods: [...new Set(matching.map(({ route }) => route.method))] };
}
