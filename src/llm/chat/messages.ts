/**
 * Messages of the OpenAI API: their checks, and the forms in which chat templates take them.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";

/** One turn of a conversation, in the form of the OpenAI API. */
export interface ChatMessage {
  /** The speaker. Templates get "developer" as "system". */
  readonly role: "system" | "developer" | "user" | "assistant" | "tool";
  /** The text, also as a list of parts, whose texts are joined; may be absent beside tool calls. */
  readonly content?: string | readonly TextPart[] | null;
  /** Name of the speaker or of the function; most templates ignore it. */
  readonly name?: string;
  /** Thoughts of an assistant before its answer. */
  readonly reasoning_content?: string | null;
  /** Functions that an assistant called. */
  readonly tool_calls?: readonly ToolCall[];
  /** Which call a tool answers. */
  readonly tool_call_id?: string;
}

/** A part of a content. Other types, such as images, are refused. */
export interface TextPart {
  /** The type of the part. */
  readonly type: "text";
  /** The text. */
  readonly text: string;
}

/** A call of a function, either bare or wrapped in "function". */
export interface ToolCall {
  /** The call. */
  readonly type?: "function";
  /** The id that a tool's answer repeats as `tool_call_id`. */
  readonly id?: string;
  /** Name and arguments, as the OpenAI API nests them: a JSON text or an object. */
  readonly function?: { readonly name: string; readonly arguments: unknown };
  /** Name of a bare call. */
  readonly name?: string;
  /** Arguments of a bare call: a JSON text or an object. */
  readonly arguments?: unknown;
}

const ROLES: readonly unknown[] = ["system", "developer", "user", "assistant", "tool"];
const MAX_MESSAGES = 10_000;

/** A template that asks whether the arguments of a call are a text or an object: it takes both. */
export const READS_TEXT = /arguments['"\]]*\s+is\s+(?:not\s+)?(?:string|mapping)/;

/** Throws an {@link LlmError} unless messages are ones of the OpenAI API that hold nothing but text and calls. */
export function checkMessages(messages: readonly ChatMessage[]): void {
  if (messages.length === 0) throw new LlmError("template", "The conversation has no messages");
  if (messages.length > MAX_MESSAGES) {
    throw new LlmError("template", `The conversation has ${messages.length} messages, at most ${MAX_MESSAGES}`);
  }
  messages.forEach((message, i) => {
    if (!ROLES.includes(message?.role)) {
      throw new LlmError(
        "template",
        `messages[${i}].role is ${quoted(message?.role)}, expected ${ROLES.join(", ")}`,
      );
    }
    if (message.content === undefined && message.role !== "assistant") {
      throw new LlmError("template", `messages[${i}] of the ${message.role} has no content`);
    }
    checkContent(message.content ?? "", `messages[${i}].content`);
    const calls: unknown = message.tool_calls ?? [];
    if (!Array.isArray(calls) || !calls.every((call) => typeof (call?.function ?? call)?.name === "string")) {
      throw new LlmError("template", `messages[${i}].tool_calls is not a list of calls that have a name`);
    }
  });
}

function checkContent(content: unknown, name: string): void {
  if (typeof content === "string") return;
  if (!Array.isArray(content)) throw new LlmError("template", `${name} is neither a string nor a list of text parts`);
  content.forEach((part: unknown, i) => {
    const { type, text } = (typeof part === "object" && part !== null ? part : {}) as Record<string, unknown>;
    if (typeof type !== "string") {
      throw new LlmError("template", `${name}[${i}] is no part such as {"type": "text", "text": "Hello"}`);
    }
    if (type !== "text") {
      throw new LlmError("template", `${name}[${i}] has the type ${quoted(type)}: this model reads only "text"`);
    }
    if (typeof text !== "string") {
      throw new LlmError("template", `${name}[${i}].text is ${quoted(text)}, expected a string`);
    }
  });
}

/**
 * The forms in which a template may take messages, in the order in which they are tried. Arguments that are JSON text are objects first,
 * as mlx-lm and vLLM give them, unless the template `readsText`. A content that is null is an empty text in later forms.
 */
export function formsOf(messages: readonly ChatMessage[], readsText: boolean): ChatMessage[][] {
  const given = messages.map(flatMessage);
  const parsed = given.map((message) => ({ ...message, ...parsedCalls(message) }));
  const hasTexts = given.some(({ tool_calls: calls }) => calls?.some((call) => typeof argumentsOf(call) === "string"));
  const forms = !hasTexts ? [given] : readsText ? [given, parsed] : [parsed, given];
  const lacksContent = given.some(({ content }) => (content ?? null) === null);
  return lacksContent ? forms.flatMap((form) => [form, form.map(withContent)]) : forms;
}

/** A message of a role that all templates know, whose content is one text. */
function flatMessage(message: ChatMessage): ChatMessage {
  const { role, content } = message;
  return {
    ...message,
    ...(role === "developer" && { role: "system" }),
    ...(content instanceof Array && { content: content.map(({ text }) => text).join("") }),
  };
}

function withContent(message: ChatMessage): ChatMessage {
  return { ...message, content: message.content ?? "" };
}

function parsedCalls({ tool_calls: calls }: ChatMessage): Pick<ChatMessage, "tool_calls"> {
  return calls ? { tool_calls: calls.map(parsedCall) } : {};
}

function parsedCall(call: ToolCall): ToolCall {
  const found = parsed(argumentsOf(call));
  return call.function ? { ...call, function: { ...call.function, arguments: found } } : { ...call, arguments: found };
}

function argumentsOf(call: ToolCall): unknown {
  return (call.function ?? call).arguments;
}

/** The object of a JSON text; anything else stays. */
function parsed(value: unknown): unknown {
  if (typeof value !== "string") return value;
  try {
    const found: unknown = JSON.parse(value, exactIntegers);
    return typeof found === "object" && found !== null ? found : value;
  } catch {
    return value;
  }
}

/** Keeps the digits of integers that are too large for a number. */
function exactIntegers(_: string, value: unknown, context?: { readonly source?: string }): unknown {
  const { source = "" } = context ?? {};
  return typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value;
}
