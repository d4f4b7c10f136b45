/**
 * The body of a response: its fields, and the conversation that its items become.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { lm } from "../../../mod.ts";
import {
  type AllowedTools,
  type ConversationCall,
  EFFORTS,
  type FunctionTool,
  offered,
  schemaFormat,
  type ToolChoice,
} from "../conversation.ts";
import { fieldError } from "../errors.ts";
import {
  anyObject,
  boolean,
  type Kind,
  list,
  mapped,
  object,
  oneOf,
  type Read,
  type ReadFields,
  record,
  refused,
  required,
  text,
  textOr,
  union,
  whole,
} from "../fields.ts";
import { SAMPLING } from "../sampling.ts";
import { templateOf } from "./chat_fields.ts";

const PART = mapped(object({ text: required(text) }), (part) => part.text);
const REFUSAL = mapped(object({ refusal: required(text) }), (part) => part.refusal);
const IMAGE = refused("an image, and models read text only");
const FILE = refused("a file, and models read text only");

/** A text, or parts of text, as one text. */
const CONTENT = mapped(
  textOr(
    list(
      union({
        input_text: PART,
        output_text: PART,
        text: PART,
        refusal: REFUSAL,
        input_image: IMAGE,
        input_file: FILE,
      }),
    ),
  ),
  (content) => typeof content === "string" ? content : content.join(""),
);

/** An item as what it adds to the conversation: a message, or a part of one of the assistant. */
const ITEM: Kind<lm.ChatMessage> = union<lm.ChatMessage>({
  message: object({
    role: required(oneOf("system", "developer", "user", "assistant")),
    content: required(CONTENT),
  }) as Kind<lm.ChatMessage>,
  function_call: mapped(
    object({ call_id: required(text), name: required(text), arguments: required(text) }),
    ({ call_id: id, name, arguments: given }) => ({
      role: "assistant" as const,
      content: "",
      tool_calls: [{ id, type: "function" as const, function: { name, arguments: given } }],
    }),
  ),
  function_call_output: mapped(
    object({ call_id: required(text), output: required(CONTENT) }),
    ({ call_id: id, output }) => ({ role: "tool" as const, tool_call_id: id, content: output }),
  ),
  reasoning: mapped(
    object({ content: list(object({ text: required(text) })) }),
    ({ content = [] }) => ({
      role: "assistant" as const,
      content: "",
      reasoning_content: content.map((part) => part.text).join(""),
    }),
  ),
  item_reference: refused("send the item itself, or previous_response_id"),
});

const TOOL = union<FunctionTool>({
  function: mapped(
    object({ name: required(text), description: text, parameters: anyObject }),
    (described) => ({ type: "function" as const, function: described }),
  ),
});

const INPUT = textOr(list(ITEM, { min: 1 }));

/** Fields that the prompt is made of. */
const PROMPT_FIELDS = {
  model: text,
  input: INPUT,
  instructions: text,
  previous_response_id: text,
  tools: list(TOOL, { max: 1024 }),
  tool_choice: textOr(object({
    type: oneOf("function", "allowed_tools"),
    name: text,
    mode: oneOf("auto", "required"),
    tools: list(object({ name: required(text) }), { min: 1, max: 1024 }),
  })),
  parallel_tool_calls: boolean,
  text: object({
    format: union<lm.ResponseFormat>({
      text: mapped(anyObject, () => ({ type: "text" as const })),
      json_object: mapped(anyObject, () => ({ type: "json_object" as const })),
      json_schema: mapped(
        object({ schema: required(anyObject), strict: boolean }),
        ({ schema, strict }) => schemaFormat(schema, strict),
      ),
    }),
  }),
  reasoning: object({ effort: oneOf(...EFFORTS) }),
  conversation: refused("use previous_response_id"),
} as const;

const FIELDS = {
  ...PROMPT_FIELDS,
  input: required(INPUT),
  store: boolean,
  stream: boolean,
  temperature: SAMPLING.temperature,
  top_p: SAMPLING.top_p,
  max_output_tokens: whole(1),
  metadata: record(text),
  background: mapped(boolean, (background, at) => {
    if (background) throw fieldError(at, "background is not supported: stream the response", "unsupported_parameter");
    return background;
  }),
} as const;

/** The body of a count of tokens. */
export const COUNTED: Kind<ReadFields<typeof PROMPT_FIELDS>> = object(PROMPT_FIELDS);

/** The body of a response. */
export const RESPONSE: Kind<ReadFields<typeof FIELDS>> = object(FIELDS);

/** The messages of a body's input, one of each item. */
export function itemsOf({ input = [] }: Read<typeof COUNTED>): readonly lm.ChatMessage[] {
  return typeof input === "string" ? [{ role: "user", content: input }] : input;
}

/** The messages of a body's input, without those before. */
export function inputOf(body: Read<typeof COUNTED>): readonly lm.ChatMessage[] {
  const messages: lm.ChatMessage[] = [];
  for (const message of itemsOf(body)) {
    const before = messages.at(-1);
    // What an assistant thought, said and called in one turn are items of their own.
    if (before?.role === "assistant" && message.role === "assistant") {
      messages[messages.length - 1] = joined(before, message);
    } else messages.push(message);
  }
  return messages;
}

function joined(a: lm.ChatMessage, b: lm.ChatMessage): lm.ChatMessage {
  const reasoning = `${a.reasoning_content ?? ""}${b.reasoning_content ?? ""}`;
  const calls = [...a.tool_calls ?? [], ...b.tool_calls ?? []];
  return {
    role: "assistant",
    content: `${a.content ?? ""}${b.content ?? ""}`,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/** The conversation of a body that goes on from earlier messages. */
export function conversationOf(
  body: Read<typeof COUNTED> & Partial<Read<typeof RESPONSE>>,
  messages: readonly lm.ChatMessage[],
): ConversationCall {
  const { instructions, reasoning, text: form } = body;
  return {
    messages: instructions === undefined ? messages : [{ role: "system", content: instructions }, ...messages],
    ...offered(body.tools, choiceOf(body.tool_choice)),
    parallelToolCalls: body.parallel_tool_calls,
    responseFormat: form?.format,
    formatField: "text.format",
    ...templateOf({ reasoning_effort: reasoning?.effort }),
    maxTokens: body.max_output_tokens,
    sampling: { temperature: body.temperature, top_p: body.top_p },
  };
}

/** The choice of a body; an object without `type` is one of some tools where it has `tools`. */
export function choiceOf(choice: Read<typeof COUNTED>["tool_choice"]): ToolChoice | AllowedTools | undefined {
  if (choice === undefined || choice === "auto" || choice === "none" || choice === "required") return choice;
  if (typeof choice !== "string") {
    const { name, mode = "auto", tools, type = tools ? "allowed_tools" : "function" } = choice;
    const missing = (field: string): never => {
      throw fieldError(`tool_choice.${field}`, `tool_choice.${field} is missing`, "missing_required_parameter");
    };
    if (type === "function") return { name: name ?? missing("name") };
    return { mode, names: (tools ?? missing("tools")).map((tool) => tool.name) };
  }
  throw fieldError("tool_choice", `tool_choice is ${quoted(choice)}, expected one of auto, none, required`);
}
