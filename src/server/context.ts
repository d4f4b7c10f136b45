/**
 * What endpoints get: a request, and what the server has to answer it with.
 *
 * @module
 */

import { BodyError, type HttpReply, type HttpRequest } from "../../ffi/http/server.ts";
import type { lm } from "../../mod.ts";
import { ApiError } from "./errors.ts";
import type { Consent } from "../mcp/consent.ts";
import type { McpTools } from "../mcp/tools.ts";
import type { Kind } from "./fields.ts";
import type { Questions } from "./mcp/questions.ts";
import type { Metrics } from "./metrics.ts";
import type { ModelNames } from "./model_names.ts";
import type { Models } from "./models.ts";
import type { ResponseStore } from "./openai/response_store.ts";

/** MCP servers whose tools the page offers. */
export interface ServedMcp {
  /** The tools that the servers offer now. */
  readonly tools: Pick<McpTools, "tools" | "servers" | "failures">;
  /** Tools that are called without a question. */
  readonly consent: Consent;
  /** Most answers to one message. */
  readonly maxRounds: number;
}

/** A request with what answers it where that needs no loaded model. */
export interface FrontContext {
  readonly request: HttpRequest;
  /** What stands in the path for the `*` of the route. */
  readonly rest: string;
  readonly models: ModelNames;
  /** The version of the package. */
  readonly version: string;
  /** Tells what the model of a name is; undefined if its files are not there yet. */
  readonly describe: (id: string) => Promise<lm.ModelInfo | undefined>;
  /** Notes an error that came after the reply had begun. */
  readonly report: (error: unknown) => void;
  /** The body, of a shape. Throws an ApiError that names what is wrong. */
  read<T>(shape: Kind<T>): Promise<T>;
}

/** A request with what answers it. */
export interface Context extends FrontContext {
  readonly models: Models;
  readonly metrics: Metrics;
  readonly responses: ResponseStore;
  readonly mcp: ServedMcp | undefined;
  readonly questions: Questions;
}

/** Most bytes of a body. */
export const MAX_BODY = 2 ** 20;
/** Deepest nesting of a body: deeper ones could exhaust the stack of what walks them. */
const MAX_DEPTH = 128;

/** The JSON of a request's body, of a shape. */
export async function readJson<T>(request: HttpRequest, shape: Kind<T>): Promise<T> {
  return shape.read(parseJson(await bodyText(request)), "");
}

/** The value of a JSON text. Throws an ApiError if it is none, or nested too deep. */
export function parseJson(text: string): unknown {
  if (isDeeper(text, MAX_DEPTH)) throw new ApiError(400, `The body is nested deeper than ${MAX_DEPTH} levels`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ApiError(400, `The body is no JSON: ${(error as Error).message}`, { code: "invalid_json" });
  }
}

/** The text of a request's body. Throws an ApiError if it is too large, does not come or is no UTF-8. */
export async function bodyText(request: HttpRequest): Promise<string> {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await request.body(MAX_BODY));
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError(400, "The body is no UTF-8", { code: "invalid_json" });
    if (!(error instanceof BodyError)) throw error;
    throw new ApiError(error.code === "large" ? 413 : 408, error.message);
  }
}

/** Whether brackets of a JSON text are nested deeper than a limit. */
function isDeeper(text: string, limit: number): boolean {
  let depth = 0;
  for (const [mark] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/gs)) {
    if (mark === "[" || mark === "{") depth++;
    else if (mark === "]" || mark === "}") depth--;
    if (depth > limit) return true;
  }
  return false;
}

/** A reply with a JSON body. */
export function jsonReply(status: number, value: unknown, headers: Readonly<Record<string, string>> = {}): HttpReply {
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(value) };
}
