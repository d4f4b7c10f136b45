/**
 * The body of Anthropic's messages: its fields, and the conversation that it becomes.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import { type ConversationCall, type FunctionTool, schemaFormat, type ToolChoice } from "../conversation.ts";
import { fieldError } from "../errors.ts";
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
const PDF = refused("a file that is no text, and models read text only");

/** A text that stands by itself: a document or a result of a search. */
interface Paper {
  readonly type: "paper";
  readonly text: string;
}

/** A text, or blocks of text, as one text. */
const TEXTS = mapped(
  textOr(list(union({ text: TEXT, image: IMAGE, document: refused("a document, and texts alone may be here") }))),
  (content) => typeof content === "string" ? content : content.map((block) => block.text).join(""),
);

/** Answers that quote a document have none of the marks that this asks for. */
const CITATIONS = mapped(object({ enabled: boolean }), ({ enabled = false }, at) => {
  if (enabled) {
    throw fieldError(
      at,
      `${at} are not supported, as answers cite nothing: leave the field out`,
      "unsupported_parameter",
    );
  }
});

/** The text of a document. */
const SOURCE = union<string>({
  text: mapped(object({ media_type: oneOf("text/plain"), data: required(text) }), ({ data }) => data),
  content: mapped(object({ content: required(TEXTS) }), ({ content }) => content),
  base64: PDF,
  url: PDF,
  file: PDF,
});

const paper = (...parts: readonly (string | undefined)[]): Paper => ({
  type: "paper",
  text: parts.filter((part) => part !== undefined && part !== "").join("\n\n"),
});

/** A document: its title, what is said about it, and its text. */
const DOCUMENT = mapped(
  object({ source: required(SOURCE), title: text, context: text, citations: CITATIONS }),
  ({ source, title, context }) => paper(title, context, source),
);

const SEARCH_RESULT = mapped(
  object({ source: required(text), title: required(text), content: required(TEXTS), citations: CITATIONS }),
  ({ source, title, content }) => paper(title, source, content),
);

/** Texts as one; a document has an empty line before and after it, and one without text nothing. */
function joined(given: readonly (Paper | { readonly type: "text"; readonly text: string })[]): string {
  const blocks = given.filter(({ type, text }) => type === "text" || text !== "");
  return blocks.reduce((all, { type, text }, i) => {
    const apart = i > 0 && (type === "paper" || blocks[i - 1].type === "paper");
    return `${all}${apart ? "\n\n" : ""}${text}`;
  }, "");
}

/** What a tool gave, as one text. */
const RESULT = mapped(
  textOr(
    list(union<Paper | { readonly type: "text"; readonly text: string }>({
      text: TEXT,
      image: IMAGE,
      document: DOCUMENT,
      search_result: SEARCH_RESULT,
    })),
  ),
  (content) => typeof content === "string" ? content : joined(content),
);

/** A block of a message. */
type ContentBlock =
  | { readonly type: "text"; readonly text: string }
  | Paper
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
    object({ tool_use_id: required(text), content: RESULT }),
    ({ tool_use_id, content = "" }) => ({ type: "tool_result" as const, tool_use_id, content }),
  ),
  image: IMAGE,
  document: DOCUMENT,
  search_result: SEARCH_RESULT,
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
  max_tokens: required(whole(0)),
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

/** Throws if a body asks for what its answer cannot be. No tokens have the prompt read and no more; one that has begun goes on. */
export function checkAnswer(body: Read<typeof MESSAGES>, { begun }: ConversationCall): void {
  const { max_tokens, stream, thinking, output_config, output_format, tool_choice } = body;
  const asked = ([
    ["stream", stream && max_tokens === 0],
    ["thinking", thinking !== undefined && thinking.type !== "disabled"],
    ["output_config.format", output_config?.format],
    ["output_format", output_format],
    ["tool_choice", tool_choice?.type === "any" || tool_choice?.type === "tool"],
  ] as const).find(([, wanted]) => wanted)?.[0];
  if (max_tokens === 0 && asked) {
    throw fieldError("max_tokens", `max_tokens is 0, so that there is no answer: leave ${asked} out`);
  }
  if (begun === undefined) return;
  const at = `messages[${body.messages.length - 1}]`;
  if (asked) throw fieldError(at, `${at} is the assistant's, which the answer goes on from: leave ${asked} out`);
  if (/\s$/.test(begun)) {
    throw fieldError(at, `${at}, the assistant's last message, ends with white space: leave it out`);
  }
}

/** The conversation of a body. Models think only where it asks for that. */
export function conversationOf(body: Read<typeof COUNTED> & Partial<Read<typeof MESSAGES>>): ConversationCall {
  const { system, tool_choice: choice, max_tokens: maxTokens, temperature, top_p, top_k, stop_sequences: stop } = body;
  const type = body.thinking?.type ?? "disabled";
  const said = turnsOf(body.messages).flatMap(({ role, content }) => messagesOf(role, content));
  const last = said.at(-1)!;
  const isBegun = last.role === "assistant" && last.tool_calls === undefined;
  const before = isBegun ? said.slice(0, -1) : said;
  if (before.length === 0) throw fieldError("messages", "messages have none of the user: begin with one");
  return {
    messages: [
      ...(system === undefined || system === "" ? [] : [{ role: "system" as const, content: system }]),
      ...before,
    ],
    begun: isBegun && last.content ? last.content as string : undefined,
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

type Turn = Read<typeof COUNTED>["messages"][number];

/** Messages with those of one role after another as one. Between two texts of the user is an empty line. */
function turnsOf(messages: readonly Turn[]): readonly Turn[] {
  const turns: Turn[] = [];
  for (const turn of messages) {
    const before = turns.at(-1);
    if (before?.role !== turn.role) {
      turns.push(turn);
      continue;
    }
    const [first, next] = [before, turn].map(({ content }): readonly ContentBlock[] =>
      typeof content === "string" ? [{ type: "text", text: content }] : content
    );
    const isApart = turn.role === "user" && first.at(-1)?.type === "text" && next[0]?.type === "text";
    const content = [...first, ...(isApart ? [{ type: "text" as const, text: "\n\n" }] : []), ...next];
    turns[turns.length - 1] = { role: turn.role, content };
  }
  return turns;
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
  const said = joined(content.filter((block) => block.type === "text" || block.type === "paper"));
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
