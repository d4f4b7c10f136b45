/**
 * The body of a chat completion: its fields, and the conversation that it becomes.
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
  thinksWith,
  type ToolChoice,
} from "../conversation.ts";
import { fieldError } from "../errors.ts";
import {
  any,
  anyObject,
  boolean,
  type Kind,
  list,
  mapped,
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
import { PREDICTION } from "../prediction.ts";
import { SAMPLING } from "../sampling.ts";

/** Most choices of an answer. */
const MAX_CHOICES = 64;
/** Most functions, of which each one is a part of the prompt. */
const MAX_TOOLS = 1024;

const ONLY_TEXT = "models read text only";

/** The parts of a message's content. Other kinds than text are refused by name; a refusal is what an assistant said. */
const PART: Kind<{ readonly type: "text"; readonly text: string }> = union({
  text: mapped(object({ text: required(text) }), (part) => ({ type: "text" as const, ...part })),
  refusal: mapped(object({ refusal: required(text) }), ({ refusal }) => ({ type: "text" as const, text: refusal })),
  image_url: refused(`an image, and ${ONLY_TEXT}`),
  input_audio: refused(`audio, and ${ONLY_TEXT}`),
  file: refused(`a file, and ${ONLY_TEXT}`),
});

const MESSAGE = object({
  role: required(oneOf("system", "developer", "user", "assistant", "tool")),
  content: textOr(list(PART)),
  refusal: text,
  name: text,
  reasoning_content: text,
  tool_calls: list(object({
    id: text,
    function: required(object({ name: required(text), arguments: textOr(anyObject) })),
  })),
  tool_call_id: text,
  audio: refused(`audio, and ${ONLY_TEXT}`),
});

/** The messages of a conversation. */
export const MESSAGES: Kind<readonly Read<typeof MESSAGE>[]> = list(MESSAGE, { min: 1 });

/** Functions that the model may call. */
export const TOOLS: Kind<readonly FunctionTool[]> = list(
  mapped(
    object({
      type: oneOf("function"),
      function: required(object({ name: required(text), description: text, parameters: anyObject })),
    }),
    (tool): FunctionTool => ({ ...tool, type: "function" }),
  ),
  { max: MAX_TOOLS },
);

const FUNCTION = object({ name: required(text) });

const TOOL_CHOICE = textOr(object({
  type: oneOf("function", "allowed_tools"),
  function: FUNCTION,
  allowed_tools: object({
    mode: required(oneOf("auto", "required")),
    tools: required(list(object({ function: required(FUNCTION) }), { min: 1, max: MAX_TOOLS })),
  }),
}));

/** The forms that an answer may have. Grammars and regular expressions are an extension. */
const RESPONSE_FORMAT: Kind<lm.ResponseFormat> = union<lm.ResponseFormat>({
  text: mapped(anyObject, () => ({ type: "text" as const })),
  json_object: mapped(anyObject, () => ({ type: "json_object" as const })),
  json_schema: mapped(
    object({ json_schema: required(object({ schema: required(anyObject), strict: boolean })) }),
    ({ json_schema: { schema, strict } }) => schemaFormat(schema, strict),
  ),
  grammar: mapped(object({ grammar: required(text) }), ({ grammar }) => ({ type: "grammar" as const, grammar })),
  regex: mapped(object({ regex: required(text) }), ({ regex }) => ({ type: "regex" as const, regex })),
});

/** Variables of the template by name. Those that other fields give are refused by name. */
const TEMPLATE_KWARGS: Kind<{ readonly enableThinking?: boolean; readonly others: Readonly<Record<string, unknown>> }> =
  mapped(anyObject, ({ enable_thinking: given, ...others }, at) => {
    const elsewhere = ["messages", "tools", "add_generation_prompt"].find((name) => Object.hasOwn(others, name));
    if (elsewhere !== undefined) throw fieldError(`${at}.${elsewhere}`, `${at}.${elsewhere} may not be set there`);
    if ((given ?? undefined) === undefined) return { others };
    return { enableThinking: boolean.read(given, `${at}.enable_thinking`), others };
  });

/** What conversations share with {@link CHAT}: the fields that a chat template reads. */
export const TEMPLATE = {
  model: text,
  messages: required(MESSAGES),
  tools: TOOLS,
  chat_template_kwargs: TEMPLATE_KWARGS,
  reasoning_effort: oneOf(...EFFORTS),
} as const;

/** Fields of a chat completion. */
export const CHAT_FIELDS = {
  ...TEMPLATE,
  ...SAMPLING,
  max_tokens: whole(1),
  max_completion_tokens: whole(1),
  n: whole(1, MAX_CHOICES),
  stream: boolean,
  stream_options: object({ include_usage: boolean }),
  logprobs: boolean,
  top_logprobs: whole(0, 20),
  tool_choice: TOOL_CHOICE,
  parallel_tool_calls: boolean,
  response_format: RESPONSE_FORMAT,
  prediction: PREDICTION,
  modalities: list(mapped(text, (modality, at) => {
    if (modality !== "text") throw fieldError(at, `${at} is ${quoted(modality)}, and models write text only`);
    return modality;
  })),
  functions: refused("use tools"),
  function_call: refused("use tool_choice"),
  web_search_options: refused("models do not search"),
  store: any,
} as const;

/** A chat completion's body. */
export const CHAT: Kind<ReadFields<typeof CHAT_FIELDS>> = object(CHAT_FIELDS);

/** The conversation of a body. */
export function conversationOf(body: Read<typeof CHAT>): ConversationCall {
  const { top_logprobs: top = 0, logprobs = false } = body;
  if (top > 0 && !logprobs) throw fieldError("top_logprobs", "top_logprobs needs logprobs: true");
  return {
    messages: messagesOf(body.messages),
    ...offered(body.tools, choiceOf(body.tool_choice)),
    parallelToolCalls: body.parallel_tool_calls,
    responseFormat: body.response_format,
    ...templateOf(body),
    maxTokens: body.max_completion_tokens ?? body.max_tokens,
    prediction: body.prediction,
    logprobs: logprobs ? top : undefined,
    sampling: body,
  };
}

/** Messages as the library takes them: without what is not there. A refusal that stands alone is what the assistant said. */
export function messagesOf(messages: readonly Read<typeof MESSAGE>[]): readonly lm.ChatMessage[] {
  return messages.map(({ refusal, ...given }, i) => {
    const message = given.role === "assistant" ? { ...given, content: given.content ?? refusal } : given;
    if (message.content === undefined && message.role !== "assistant") {
      throw fieldError(`messages[${i}].content`, `messages[${i}].content is missing`, "missing_required_parameter");
    }
    return Object.fromEntries(
      Object.entries(message).filter(([, value]) => value !== undefined),
    ) as unknown as lm.ChatMessage;
  });
}

/** Whether a body lets the model think, and the further variables of its template, one of which is the effort. */
export function templateOf(
  { chat_template_kwargs: kwargs, reasoning_effort: effort }: Partial<
    Pick<Read<typeof CHAT>, "chat_template_kwargs" | "reasoning_effort">
  >,
): Pick<ConversationCall, "enableThinking" | "templateVariables"> {
  return {
    enableThinking: kwargs?.enableThinking ?? thinksWith(effort),
    templateVariables: { ...(effort !== undefined && { reasoning_effort: effort }), ...kwargs?.others },
  };
}

const CHOICES = ["auto", "none", "required"] as const;

function choiceOf(choice: Read<typeof TOOL_CHOICE> | undefined): ToolChoice | AllowedTools | undefined {
  if (choice === undefined) return undefined;
  if (typeof choice !== "string") {
    const { function: one, allowed_tools: allowed, type = allowed ? "allowed_tools" : "function" } = choice;
    if (type === "allowed_tools" && allowed) {
      return { mode: allowed.mode, names: allowed.tools.map((tool) => tool.function.name) };
    }
    if (type === "function" && one) return one;
    throw fieldError(`tool_choice.${type}`, `tool_choice.${type} is missing`, "missing_required_parameter");
  }
  const known = CHOICES.find((one) => one === choice);
  if (known !== undefined) return known;
  throw fieldError("tool_choice", `tool_choice is ${quoted(choice)}, expected one of ${CHOICES.join(", ")}`);
}
