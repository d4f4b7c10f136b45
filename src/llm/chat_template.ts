/**
 * Conversations to prompts.
 *
 * A template renders to parts: the markers that the template writes, and the contents that people and programs wrote.
 * Only markers can become control tokens (see tokenizer.ts), so a message that contains `<|im_end|>` cannot end its turn.
 *
 * The template of Qwen3 and the plain ChatML one are written out here and are chosen when a model carries exactly their
 * text; other templates are rendered by `@huggingface/jinja`, loaded on first use, within limits.
 *
 * @module
 */

import { LlmError } from "./error.ts";

/** One turn of a conversation, in the form of the OpenAI API. */
export interface ChatMessage {
  /** Who speaks. */
  readonly role: "system" | "user" | "assistant" | "tool";
  /** What is said; may be absent beside tool calls. */
  readonly content?: string | null;
  /** What an assistant thought before it answered. */
  readonly reasoning_content?: string | null;
  /** Functions that an assistant called. */
  readonly tool_calls?: readonly ToolCall[];
}

/** A call of a function, either bare or wrapped in "function". */
export interface ToolCall {
  /** Name and arguments, as the OpenAI API nests them. */
  readonly function?: { readonly name: string; readonly arguments: unknown };
  /** Name of a bare call. */
  readonly name?: string;
  /** Arguments of a bare call: a JSON text or an object. */
  readonly arguments?: unknown;
}

/** How a conversation is rendered. */
export interface ChatOptions {
  /** Let the model think before it answers; true unless set. Only models that know `<think>` have the switch. */
  readonly enableThinking?: boolean;
  /** Open the assistant's turn at the end; true unless set. */
  readonly addGenerationPrompt?: boolean;
  /** Functions that the model may call: JSON schemas as in the OpenAI API. */
  readonly tools?: readonly unknown[];
}

/** A run of a rendered prompt; only where `control` is set may control tokens be recognised. */
export interface TemplatePart {
  /** The text. */
  readonly text: string;
  /** Whether the template itself wrote it. */
  readonly control: boolean;
}

/** Renders a conversation. */
export type ChatTemplate = (messages: readonly ChatMessage[], options: ChatOptions) => TemplatePart[];

/** What a template needs to know besides its text. */
export interface TemplateContext {
  /** Where the text came from, for messages. */
  readonly file: string;
  /** Texts of all control tokens. */
  readonly controlTokens: readonly string[];
  /** Further variables of the template, such as eos_token. */
  readonly variables: Readonly<Record<string, string>>;
}

const MAX_TEMPLATE_CHARS = 256 * 1024;
const MAX_MESSAGES = 10_000;
const MAX_OUTPUT_CHARS = 16 * 1024 * 1024;
const MAX_RANGE = 100_000;

/** Templates written out below, by the SHA-256 of their Jinja text. */
const KNOWN: Readonly<Record<string, ChatTemplate>> = {
  "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": qwen3Template,
  "d05f0c25c9a3877edb1677b754d7eb2f9b6e10a2ccb825f2e08a5eb4029e372b": chatMlTemplate,
};

/** The template of a model, or `undefined` when it has none. */
export async function loadChatTemplate(
  source: string | undefined,
  context: TemplateContext,
): Promise<ChatTemplate | undefined> {
  if (source === undefined) return undefined;
  if (source.length > MAX_TEMPLATE_CHARS) {
    throw new LlmError(
      "template",
      `${context.file}: chat_template has ${source.length} characters, at most ${MAX_TEMPLATE_CHARS}`,
    );
  }
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(source))).toHex();
  return checked(KNOWN[hash] ?? await jinjaTemplate(source, context));
}

/** Holds every template to the same rules on its input and the size of its output. */
function checked(template: ChatTemplate): ChatTemplate {
  return (messages, options) => {
    checkMessages(messages);
    checkTools(options.tools);
    const parts = template(messages, options);
    const chars = parts.reduce((sum, part) => sum + part.text.length, 0);
    if (chars > MAX_OUTPUT_CHARS) {
      throw new LlmError("template", `The prompt has ${chars} characters, at most ${MAX_OUTPUT_CHARS}`);
    }
    return parts;
  };
}

const ROLES: readonly unknown[] = ["system", "user", "assistant", "tool"];

function checkMessages(messages: readonly ChatMessage[]): void {
  if (messages.length === 0) throw new LlmError("template", "The conversation has no messages");
  if (messages.length > MAX_MESSAGES) {
    throw new LlmError("template", `The conversation has ${messages.length} messages, at most ${MAX_MESSAGES}`);
  }
  messages.forEach((message, i) => {
    if (!ROLES.includes(message?.role)) {
      throw new LlmError(
        "template",
        `messages[${i}].role is ${JSON.stringify(message?.role)}, expected ${ROLES.join(", ")}`,
      );
    }
    if (typeof (message.content ?? "") !== "string") {
      throw new LlmError("template", `messages[${i}].content is not a string`);
    }
    const calls: unknown = message.tool_calls ?? [];
    if (!Array.isArray(calls) || !calls.every((call) => typeof (call?.function ?? call)?.name === "string")) {
      throw new LlmError("template", `messages[${i}].tool_calls is not a list of calls that have a name`);
    }
  });
}

function checkTools(tools: unknown): void {
  const isObject = (tool: unknown): boolean => typeof tool === "object" && tool !== null;
  if ((tools ?? undefined) === undefined || (Array.isArray(tools) && tools.every(isObject))) return;
  throw new LlmError("template", "tools is not a list of objects that describe a function each");
}

/** Collects parts. */
class Prompt {
  readonly parts: TemplatePart[] = [];

  /** Text of the template. */
  mark(text: string): this {
    this.parts.push({ text, control: true });
    return this;
  }

  /** Text of a message. */
  text(text: string): this {
    if (text !== "") this.parts.push({ text, control: false });
    return this;
  }
}

/** ChatML without tools: every turn alike, thoughts of assistant turns dropped, an empty thought when thinking is off. */
function chatMlTemplate(messages: readonly ChatMessage[], options: ChatOptions): TemplatePart[] {
  if (options.tools !== undefined && options.tools.length > 0) {
    throw new LlmError("template", "The model's chat template does not know tools");
  }
  const prompt = new Prompt();
  for (const { role, content } of messages) {
    const text = content ?? "";
    const said = role === "assistant" ? splitThinking(text).answer.replace(/^\n+/, "") : text;
    prompt.mark(`<|im_start|>${role}\n`).text(said).mark("<|im_end|>\n");
  }
  return openAssistant(prompt, options).parts;
}

/**
 * The template of Qwen3: tools in the system turn, thoughts kept only after the last question of the user, tool results
 * grouped into user turns.
 */
function qwen3Template(messages: readonly ChatMessage[], options: ChatOptions): TemplatePart[] {
  const prompt = new Prompt();
  const tools = options.tools ?? [];
  const system = messages[0].role === "system" ? messages[0].content ?? "" : undefined;
  if (tools.length > 0) writeTools(prompt, tools, system);
  else if (system !== undefined) prompt.mark("<|im_start|>system\n").text(system).mark("<|im_end|>\n");

  const isQuestion = ({ role, content }: ChatMessage): boolean =>
    role === "user" && !(content?.startsWith("<tool_response>") && content.endsWith("</tool_response>"));
  const found = messages.findLastIndex(isQuestion);
  const lastQuestion = found < 0 ? messages.length - 1 : found;

  messages.forEach((message, i) => {
    const { role, content } = message;
    if (role === "user" || (role === "system" && i > 0)) {
      prompt.mark(`<|im_start|>${role}\n`).text(content ?? "").mark("<|im_end|>\n");
    } else if (role === "assistant") {
      writeAssistant(prompt, message, i > lastQuestion, i === messages.length - 1);
    } else if (role === "tool") {
      if (messages[i - 1]?.role !== "tool") prompt.mark("<|im_start|>user");
      prompt.mark("\n<tool_response>\n").text(content ?? "").mark("\n</tool_response>");
      if (messages[i + 1]?.role !== "tool") prompt.mark("<|im_end|>\n");
    }
  });
  return openAssistant(prompt, options).parts;
}

function openAssistant(prompt: Prompt, options: ChatOptions): Prompt {
  if (options.addGenerationPrompt === false) return prompt;
  prompt.mark("<|im_start|>assistant\n");
  return options.enableThinking === false ? prompt.mark("<think>\n\n</think>\n\n") : prompt;
}

function writeTools(prompt: Prompt, tools: readonly unknown[], system: string | undefined): void {
  prompt.mark("<|im_start|>system\n");
  if (system !== undefined) prompt.text(`${system}\n\n`);
  prompt.text(
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
  );
  for (const tool of tools) prompt.text(`\n${pythonJson(tool)}`);
  prompt.mark(
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
      "<tool_call></tool_call> XML tags:\n<tool_call>\n" +
      '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n',
  );
}

function writeAssistant(prompt: Prompt, message: ChatMessage, afterQuestion: boolean, last: boolean): void {
  const written = message.content ?? "";
  const { thought, answer } = typeof message.reasoning_content === "string"
    ? { thought: message.reasoning_content, answer: written }
    : splitThinking(written);
  prompt.mark("<|im_start|>assistant\n");
  if (afterQuestion && (last || thought !== "")) {
    prompt.mark("<think>\n").text(trimNewlines(thought)).mark("\n</think>\n\n").text(answer.replace(/^\n+/, ""));
  } else {
    prompt.text(answer);
  }
  (message.tool_calls ?? []).forEach((entry, i) => {
    const call = entry.function ?? entry;
    if (i > 0 || answer !== "") prompt.mark("\n");
    prompt.mark('<tool_call>\n{"name": "').text(String(call.name)).mark('", "arguments": ');
    prompt.text(typeof call.arguments === "string" ? call.arguments : pythonJson(call.arguments)).mark(
      "}\n</tool_call>",
    );
  });
  prompt.mark("<|im_end|>\n");
}

/** What stands before and after `</think>`; without it everything is answer. */
function splitThinking(content: string): { thought: string; answer: string } {
  const pieces = content.split("</think>");
  if (pieces.length === 1) return { thought: "", answer: content };
  const thought = pieces[0].replace(/\n+$/, "").split("<think>").at(-1) ?? "";
  return { thought: thought.replace(/^\n+/, ""), answer: (pieces.at(-1) ?? "").replace(/^\n+/, "") };
}

function trimNewlines(text: string): string {
  return text.replace(/^\n+|\n+$/g, "");
}

/** JSON spaced as Python's json.dumps does it, which is what models saw. */
function pythonJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(pythonJson).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, v]) => v !== undefined);
    return `{${entries.map(([key, v]) => `${JSON.stringify(key)}: ${pythonJson(v)}`).join(", ")}}`;
  }
  return typeof value === "number" ? pythonNumber(value) : JSON.stringify(value) ?? "null";
}

/** A number as Python writes it: small fractions earlier with an exponent, of two digits at least. */
function pythonNumber(value: number): string {
  const [digits, exponent] = value.toExponential().split("e-");
  if (Number.isInteger(value) || !(Number(exponent) > 4)) return JSON.stringify(value);
  return `${digits}e-${exponent.padStart(2, "0")}`;
}

/**
 * Any other template, by Jinja. Message contents go in with their control tokens broken by a character that no text uses,
 * which is taken out again afterwards; assistant turns keep `<think>`, which templates look for.
 */
async function jinjaTemplate(source: string, context: TemplateContext): Promise<ChatTemplate> {
  const { Template } = await import("@huggingface/jinja").catch((cause) => {
    throw new LlmError("template", `The package npm:@huggingface/jinja could not be loaded: ${cause.message}`, {
      cause,
    });
  });
  const fail = (cause: unknown): never => {
    throw new LlmError("template", `${context.file}: chat_template: ${(cause as Error).message}`, { cause });
  };
  let template: InstanceType<typeof Template>;
  try {
    template = new Template(`{% set range = capped_range %}{{ "" }}${source}`);
  } catch (cause) {
    return fail(cause);
  }
  return (messages, options) => {
    const guard = new Guard(messages, context.controlTokens);
    const hasThinking = context.controlTokens.includes("<think>");
    try {
      const text = template.render({
        ...context.variables,
        capped_range: cappedRange(),
        messages: messages.map((message) => guard.message(message)),
        add_generation_prompt: options.addGenerationPrompt ?? true,
        enable_thinking: options.enableThinking ?? hasThinking,
        ...(options.tools === undefined ? {} : { tools: guard.value(options.tools) }),
      });
      return guard.parts(text);
    } catch (cause) {
      return fail(cause);
    }
  };
}

/** Breaks control tokens in contents with a noncharacter after their first character. */
class Guard {
  readonly #tokens: readonly string[];
  readonly #breaker: string;

  constructor(messages: readonly ChatMessage[], tokens: readonly string[]) {
    this.#tokens = tokens;
    const all = JSON.stringify(messages);
    const free = Array.from({ length: 32 }, (_, i) => String.fromCharCode(0xfdd0 + i)).find((c) => !all.includes(c));
    if (free === undefined) throw new LlmError("template", "The messages hold every Unicode noncharacter");
    this.#breaker = free;
  }

  message(message: ChatMessage): Record<string, unknown> {
    const keep = message.role === "assistant" ? ["<think>", "</think>"] : [];
    const rest = this.value(Object.fromEntries(Object.entries(message).filter(([key]) => key !== "content")));
    return { ...rest as Record<string, unknown>, content: this.#broken(message.content ?? "", keep) };
  }

  value(value: unknown): unknown {
    if (typeof value === "string") return this.#broken(value, []);
    if (Array.isArray(value)) return value.map((v) => this.value(v));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [this.#broken(key, []), this.value(v)]));
  }

  /** Cuts where a token was broken: encodeParts() joins the text but looks for control tokens in each part alone. */
  parts(text: string): TemplatePart[] {
    return text.split(this.#breaker).map((piece) => ({ text: piece, control: true }));
  }

  #broken(text: string, keep: readonly string[]): string {
    for (const token of this.#tokens) {
      if (!keep.includes(token)) text = text.replaceAll(token, token[0] + this.#breaker + token.slice(1));
    }
    return text;
  }
}

/** Jinja's range(), which would otherwise fill the memory for a template that asks for it; the limit counts all calls. */
function cappedRange(): (start: number, stop?: number, step?: number) => number[] {
  let total = 0;
  return (start, stop, step = 1) => {
    const [from, to] = typeof stop === "number" ? [start, stop] : [0, start];
    const length = Math.max(0, Math.ceil((to - from) / step));
    total += length;
    if (!(total <= MAX_RANGE)) throw new Error(`range() of ${total} items in all, at most ${MAX_RANGE}`);
    return Array.from({ length }, (_, i) => from + i * step);
  };
}
