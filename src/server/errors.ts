/**
 * Errors of requests: what a client did wrong, or why it is not served, in the form of the OpenAI API.
 *
 * @module
 */

import { lm } from "../../mod.ts";

/** What an {@link ApiError} has besides its message. */
export interface ApiErrorDetails {
  /** OpenAI's code, such as "model_not_found". */
  readonly code?: string;
  /** The field that is wrong. */
  readonly param?: string;
  /** Further headers of the reply. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Kinds of errors by the status of their reply; OpenAI's names, and Anthropic's. */
const TYPES: Readonly<Record<number, readonly [openai: string, anthropic: string]>> = {
  400: ["invalid_request_error", "invalid_request_error"],
  401: ["authentication_error", "authentication_error"],
  403: ["permission_error", "permission_error"],
  404: ["not_found_error", "not_found_error"],
  405: ["invalid_request_error", "invalid_request_error"],
  408: ["invalid_request_error", "invalid_request_error"],
  413: ["invalid_request_error", "request_too_large"],
  500: ["server_error", "api_error"],
  503: ["server_error", "overloaded_error"],
};

/** The form of errors of an API. */
export type ErrorForm = "openai" | "anthropic" | "ollama";

/** The header in which Anthropic's clients say the version of their API. */
export const ANTHROPIC_VERSION = "anthropic-version";

/** The form of replies to a client on paths that several APIs have: Anthropic's clients say the version of theirs. */
export function formOf(request: { header(name: string): string | undefined }): ErrorForm {
  return request.header(ANTHROPIC_VERSION) === undefined ? "openai" : "anthropic";
}

/** An error that becomes a reply. */
export class ApiError extends Error {
  /** The status code of the reply. */
  readonly status: number;
  /** The rest of it. */
  readonly details: ApiErrorDetails;

  /** Makes an error with a one-line message for clients. */
  constructor(status: number, message: string, details: ApiErrorDetails = {}) {
    super(message);
    this.status = status;
    this.details = details;
  }

  /** The body of the reply in the form of an API. */
  bodyOf(form: ErrorForm): unknown {
    return { openai: this.body, anthropic: this.anthropicBody, ollama: this.ollamaBody }[form];
  }

  /** The body of the reply as the OpenAI API has it. */
  get body(): { readonly error: Record<string, unknown> } {
    const { param = null, code = null } = this.details;
    return { error: { message: this.message, type: TYPES[this.status][0], param, code } };
  }

  /** The body of the reply as the Anthropic API has it. */
  get anthropicBody(): { readonly type: "error"; readonly error: Record<string, unknown> } {
    return { type: "error", error: { type: TYPES[this.status][1], message: this.message } };
  }

  /** The body of the reply as ollama's API has it. */
  get ollamaBody(): { readonly error: string } {
    return { error: this.message };
  }
}

/** An error of a field of the request's body. */
export function fieldError(param: string, message: string, code?: string): ApiError {
  return new ApiError(400, message, { param, ...(code !== undefined && { code }) });
}

/** Seconds after which a client that found no room may ask again. */
const RETRY_AFTER = "1";

/** Replies to errors of the library, by their code. Others are faults of the server. */
const REPLIES: Readonly<Partial<Record<lm.LlmErrorCode, readonly [status: number, details: ApiErrorDetails]>>> = {
  context: [400, { code: "context_length_exceeded" }],
  option: [400, {}],
  template: [400, {}],
  tokenizer: [400, {}],
  busy: [503, { code: "server_busy", headers: { "retry-after": RETRY_AFTER } }],
  memory: [503, { code: "out_of_memory", headers: { "retry-after": RETRY_AFTER } }],
};

/** The error of a request that the server cannot answer now and may answer later. */
export function unavailable(message: string): ApiError {
  return new ApiError(503, message, { code: "server_unavailable", headers: { "retry-after": RETRY_AFTER } });
}

/** The reply to any error; one that is no matter of the client's says nothing of its cause. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const reply = error instanceof lm.LlmError ? REPLIES[error.code] : undefined;
  if (reply === undefined) {
    return new ApiError(500, "The server failed to answer this request", { code: "internal_error" });
  }
  return new ApiError(reply[0], (error as Error).message, reply[1]);
}

/** How messages about the form of an answer begin. */
const FORMAT = "responseFormat";

/** An error of an answer whose form comes from a field of the body: errors of the form name that field. */
export function formatError(error: unknown, field: string): unknown {
  if (!(error instanceof lm.LlmError && error.message.startsWith(FORMAT))) return error;
  const { status, message, details } = toApiError(error);
  return new ApiError(status, `${field}${message.slice(FORMAT.length)}`, { ...details, param: field });
}
