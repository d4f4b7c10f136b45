/**
 * Errors of the language-model layer: one class, whose `code` says what kind an error is. Messages are one line that says what is wrong,
 * where, and what to do.
 *
 * @module
 */

import { quoted } from "../graph/error.ts";

/**
 * Codes of an {@link LlmError}. "busy": too many requests wait already. "logits": the logits of a step contain NaN or infinity. "cache":
 * the file of a prompt cache.
 * "hub": a model's name, its download or its cache. "output": a file that is written. "training": a training that diverged.
 */
export type LlmErrorCode =
  | "config"
  | "weights"
  | "tokenizer"
  | "template"
  | "memory"
  | "context"
  | "option"
  | "checksum"
  | "cache"
  | "hub"
  | "output"
  | "logits"
  | "training"
  | "busy";

/**
 * A model directory, prompt or option that cannot be used, or a step that gave no token. It has no `cause`, whose stack Deno would
 * print as well: the message says it.
 */
export class LlmError extends Error {
  /** The class's name. */
  override readonly name = "LlmError";
  /** The kind of error. */
  readonly code: LlmErrorCode;

  /** Makes an error with a one-line message. */
  constructor(code: LlmErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** An error that says what an option is and what it has to be. */
export function optionError(name: string, value: unknown, expected: string): LlmError {
  return new LlmError("option", `${name} is ${quoted(value)}, expected ${expected}`);
}

/** "a, b, c and 4 more": lists in messages stay on one line. */
export function listed(items: readonly string[], limit = 5): string {
  if (items.length <= limit) return items.join(", ");
  return `${items.slice(0, limit).join(", ")} and ${items.length - limit} more`;
}

/** The error of step `step`, after `tokens` tokens, whose logits choose no token. `which` names the sequence where there are several. */
export function logitsError(step: number, tokens: number, which: string = ""): LlmError {
  return new LlmError(
    "logits",
    `The logits of step ${step}${which}, after ${tokens} tokens, contain NaN or infinity, or no finite value. ` +
      "Look for such values in the weights, or for an overflow in their dtype",
  );
}
