/**
 * The format of an answer that has to begin with calls of functions, as `tool_choice` of the OpenAI API demands.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { CALL_FORMATS, type CallSyntax } from "../answer/call_formats.ts";
import { answerMarks } from "../answer/parts.ts";
import { LlmError } from "../error.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { grammarOf, type ToolCallsFormat } from "./response_format.ts";

/** How {@link requireToolCalls} restricts calls. */
export interface RequireToolCallsOptions {
  /** Whether an answer may have several calls; default true. Formats of some families have one. */
  readonly parallel?: boolean;
}

/** Names of functions that may stand in every format. */
const NAME = /^[\w.-]{1,128}$/;
/** What may be a control token in a format. */
const MARK = /<\|?[\w/]+\|?>|\[[A-Z_]+\]/g;

/**
 * A `responseFormat` of answers that begin with a call of one of some functions, in the format that the model's family was trained on.
 * Arguments fit the function's JSON schema. Thoughts may come first. Throws an {@link LlmError} if a tool has no name that a call can have, or
 * a schema that no grammar holds.
 *
 * @param tools Functions, as in the OpenAI API: one for a named choice, all for `required`.
 *
 * @example
 * ```ts ignore
 * const responseFormat = mx.lm.requireToolCalls(tokenizer, tools);
 * const { toolCalls } = await mx.lm.complete(model, tokenizer, messages, { tools, responseFormat });
 * ```
 */
export function requireToolCalls(
  tokenizer: Tokenizer,
  tools: readonly unknown[],
  { parallel = true }: RequireToolCallsOptions = {},
): ToolCallsFormat {
  if (tools.length === 0) throw new LlmError("option", "A call is required, and there is no tool to call");
  const functions = tools.map(describe);
  const format = answerMarks(tokenizer).calls;
  const tokens = marksOf(CALL_FORMATS[format].syntax).filter((mark) => {
    const id = tokenizer.idOf(mark);
    return id !== undefined && tokenizer.isSpecial(id) && !tokenizer.eosTokenIds.has(id);
  });
  const found: ToolCallsFormat = { type: "tool_calls", demand: { format, tokens, functions, parallel } };
  grammarOf(found); // throws what is wrong with the schemas
  return found;
}

function describe(tool: unknown, i: number): ToolCallsFormat["demand"]["functions"][number] {
  const { name, parameters, strict } = functionOf(tool);
  if (typeof name !== "string" || !NAME.test(name)) {
    throw new LlmError(
      "option",
      `tools[${i}] has the name ${quoted(String(name))}: letters, digits, _, . and - are taken`,
    );
  }
  if (
    parameters !== undefined && parameters !== null && (typeof parameters !== "object" || Array.isArray(parameters))
  ) {
    throw new LlmError("option", `tools[${i}] (${name}) has parameters that are no JSON schema`);
  }
  // Without parameters a function takes none.
  const schema = JSON.stringify({ type: "object", ...(parameters ?? { properties: {}, additionalProperties: false }) });
  return { name, schema, strict: strict !== false };
}

function functionOf(
  tool: unknown,
): { readonly name?: unknown; readonly parameters?: object | null; readonly strict?: unknown } {
  const outer = typeof tool === "object" && tool !== null ? tool as Record<string, unknown> : {};
  return typeof outer.function === "object" && outer.function !== null ? outer.function : outer;
}

/** Everything in a syntax that looks like a mark. */
function marksOf({ before, call, between = [], after }: CallSyntax): readonly string[] {
  const texts = [before, call, between, after].flat().flatMap((part) =>
    typeof part === "string" ? [part] : part.kind === "THOUGHTS" ? [part.begin, part.end] : []
  );
  return [...new Set(texts.flatMap((text) => text.match(MARK) ?? []))];
}
