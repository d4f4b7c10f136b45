/**
 * The body of Anthropic's messages: its fields, and the conversation that it becomes.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import { type ConversationCall, type FunctionTool, schemaFormat, type ToolChoice } from "../conversation.ts";
import {
  anyObject,
  boolean,
  type Kind,
  list,
  mapped,
  number,
  object,
  oneOf,
  type Read,
  type ReadFields,
  refused,
  required,
  text,
  textOr,
  union,
  whole,
} from "../fields.ts";

const TEXT = mapped(object({ text: required(text) }), (block) => ({ type: "text" as const, ...block }));
const IMAGE = refused("an image, and models read text only");
const DOCUMENT = refused("a document, and models read text only");

/** A text, or blocks of text, as one text. */
const TEXTS = mapped(
  textOr(list(union({ text: TEXT, image: IMAGE, document: DOCUMENT }))),
  (content) => typeof content === "string" ? content : content.map((block) => block.text).join(""),
);

/** A block of a message. */
type ContentBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly thinking: string }
  | { readonly type: "tool_use"; readonly id: string; readonly name: string; readonly input: unknown }
  | { readonly type: "tool_result"; readonly tool_use_id: string; readonly content: string };

const BLOCK: Kind<ContentBlock> = union<ContentBlock>({
  text: TEXT,
  thinking: mapped(object({ thinking: required(text) }), (block) => ({ type: "thinking" as const, ...block })),
  redacted_thinking: mapped(anyObject, () => ({ type: "thinking" as const, thinking: "" })),
  tool_use: mapped(
    object({ id: required(text), name: required(text), input: required(anyObject) }),
    (block) => ({ type: "tool_use" as const, ...block }),
  ),
  tool_result: mapped(
    object({ tool_use_id: required(text), content: TEXTS }),
    ({ tool_use_id, content = "" }) => ({ type: "tool_result" as const, tool_use_id, content }),
  ),
  image: IMAGE,
  document: DOCUMENT,
});

const TOOL = mapped(
  object({ type: oneOf("custom"), name: required(text), description: text, input_schema: required(anyObject) }),
  ({ name, description, input_schema: parameters }): FunctionTool => ({
    type: "function",
    function: { name, ...(description !== undefined && { description }), parameters },
  }),
);

/** Fields that the prompt is made of. */
const PROMPT_FIELDS = {
  model: text,
  messages: required(
    list(object({ role: required(oneOf("user", "assistant")), content: required(textOr(list(BLOCK))) }), { min: 1 }),
  ),
  system: TEXTS,
  tools: list(TOOL, { max: 1024 }),
  tool_choice: object({
    type: required(oneOf("auto", "any", "tool", "none")),
    name: text,
    disable_parallel_tool_use: boolean,
  }),
  thinking: object({ type: required(oneOf("enabled", "disabled", "adaptive")) }),
} as const;

/** The form of an answer: JSON of a schema. */
const FORMAT = union<lm.ResponseFormat>({
  json_schema: mapped(object({ schema: required(anyObject) }), ({ schema }) => schemaFormat(schema, undefined)),
});

const FIELDS = {
  ...PROMPT_FIELDS,
  output_config: object({ format: FORMAT }),
  output_format: FORMAT, // its name in a beta of the API
  max_tokens: required(whole(1)),
  temperature: number(0, 1),
  top_p: number(0, 1),
  top_k: whole(0),
  stop_sequences: list(text, { max: 64 }),
  stream: boolean,
} as const;

/** The body of a count of tokens. */
export const COUNTED: Kind<ReadFields<typeof PROMPT_FIELDS>> = object(PROMPT_FIELDS);
/** The body of a message. */
export const MESSAGES: Kind<ReadFields<typeof FIELDS>> = object(FIELDS);

/** The conversation of a body. Models think only where it asks for that. */
export function conversationOf(body: Read<typeof COUNTED> & Partial<Read<typeof MESSAGES>>): ConversationCall {
  const { system, tool_choice: choice, max_tokens: maxTokens, temperature, top_p, top_k, stop_sequences: stop } = body;
  const type = body.thinking?.type ?? "disabled";
  return {
    messages: [
      ...(system === undefined || system === "" ? [] : [{ role: "system" as const, content: system }]),
      ...body.messages.flatMap(({ role, content }) => messagesOf(role, content)),
    ],
    tools: body.tools,
    toolChoice: choiceOf(choice),
    parallelToolCalls: !(choice?.disable_parallel_tool_use ?? false),
    responseFormat: body.output_config?.format ?? body.output_format,
    formatField: body.output_config?.format ? "output_config.format" : "output_format",
    enableThinking: type !== "disabled",
    maxTokens,
    sampling: { temperature, top_p, top_k, stop },
  };
}

function choiceOf(choice: Read<typeof COUNTED>["tool_choice"]): ToolChoice | undefined {
  if (choice === undefined) return undefined;
  if (choice.type === "tool") return { name: choice.name ?? "" };
  return choice.type === "any" ? "required" : choice.type;
}

/** A message with blocks as messages with texts: results of tools are messages of their own, before the text beside them. */
function messagesOf(role: "user" | "assistant", content: string | readonly ContentBlock[]): lm.ChatMessage[] {
  if (typeof content === "string") return [{ role, content }];
  const of = <T extends ContentBlock["type"]>(type: T): Extract<ContentBlock, { type: T }>[] =>
    content.filter((block): block is Extract<ContentBlock, { type: T }> => block.type === type);
  const said = of("text").map((block) => block.text).join("");
  const thought = of("thinking").map(({ thinking }) => thinking).join("");
  const calls = of("tool_use").map(({ id, name, input }) => ({
    id,
    type: "function" as const,
    function: { name, arguments: input },
  }));
  const results = of("tool_result").map(({ tool_use_id: id, content: result }): lm.ChatMessage => ({
    role: "tool",
    tool_call_id: id,
    content: result,
  }));
  if (role === "user") return [...results, ...(said !== "" || results.length === 0 ? [{ role, content: said }] : [])];
  return [{
    role,
    content: said,
    ...(thought !== "" && { reasoning_content: thought }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }];
}
