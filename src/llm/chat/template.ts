/**
 * Conversations to prompts.
 *
 * A model's chat template renders to parts: the text of the template's author, and the text of messages. Strings of messages stay
 * marked through everything that a template does with them (jinja/text.ts). Only the author's text can become control tokens (see
 * tokenizer.ts). So a message that contains `<|im_end|>` cannot end its turn.
 *
 * @module
 */

import { opening } from "./begun.ts";
import { type ChatMessage, checkMessages, formsOf, READS_TEXT } from "./messages.ts";
import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { fromUser } from "../jinja/input.ts";
import { type InputSize, TemplateFault } from "../jinja/limits.ts";
import { compileTemplate, type Template } from "../jinja/template.ts";
import { Str } from "../jinja/text.ts";
import { Dict, List, type Value } from "../jinja/values.ts";

/** How a conversation is rendered. */
export interface ChatOptions {
  /** Let the model think before it answers; true unless set. Only models that know `<think>` have the switch. */
  readonly enableThinking?: boolean;
  /** Open the assistant's turn at the end; true unless set. */
  readonly addGenerationPrompt?: boolean;
  /** Text that the answer goes on from, in the assistant's turn; no control tokens. A thought that the prompt opens ends before it. */
  readonly begun?: string;
  /** Functions that the model may call: JSON schemas as in the OpenAI API. */
  readonly tools?: readonly unknown[];
  /**
   * Further variables of the template, as JSON values: `{ reasoning_effort: "low" }`. Their texts are a user's: no control tokens. What the
   * other options say has no place here.
   */
  readonly chatTemplateKwargs?: Readonly<Record<string, unknown>>;
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

/** File of the template of conversations with tools, in a model directory. */
export const TOOL_TEMPLATE = "additional_chat_templates/tool_use.jinja";

/** A template of a model. Of those with a name, "default" and "tool_use" count. */
export interface TemplateSource {
  /** Its purpose. */
  readonly name: string;
  /** The template. */
  readonly text: string;
  /** Where the text came from, for messages. */
  readonly file: string;
}

/** Tokens and settings of templates besides their text. */
export interface TemplateContext {
  /** Texts of all control tokens. */
  readonly controlTokens: readonly string[];
  /** Further variables of the template, such as eos_token. */
  readonly variables: Readonly<Record<string, string>>;
}

const MAX_TEMPLATE_CHARS = 256 * 1024;

/** Variables that are not given by name, and where their values come from. */
const GIVEN_ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ["messages", "the conversation"],
  ["tools", "the option tools"],
  ["enable_thinking", "the option enableThinking"],
  ["add_generation_prompt", "the option addGenerationPrompt"],
]);

/**
 * The chat template of a model, or `undefined` when it has none. Conversations with tools take the template "tool_use", if there is one, and
 * others "default". Rejects with an {@link LlmError} that names file and line where a template is wrong or uses what is not supported.
 */
export function loadChatTemplate(
  sources: readonly TemplateSource[],
  { controlTokens, variables }: TemplateContext,
): Promise<ChatTemplate | undefined> {
  return Promise.resolve().then(() => {
    if (sources.length === 0) return undefined;
    const compiled = (wanted: string): Compiled | undefined => {
      const found = sources.find(({ name }) => name === wanted);
      return found && { file: found.file, template: compile(found), readsText: READS_TEXT.test(found.text) };
    };
    const [plain, withTools] = [compiled("default"), compiled("tool_use")];
    const defaults = {
      ...Object.fromEntries(Object.entries(variables).map(([name, text]) => [name, Str.template(text)])),
      ...(controlTokens.includes("<think>") ? { enable_thinking: true } : {}),
    };
    return (messages, options) => {
      checkMessages(messages);
      const used = (options.tools && withTools) ?? plain;
      if (used === undefined) {
        const names = sources.map(({ name }) => quoted(name)).join(", ");
        throw new LlmError("template", `${sources[0].file} has the chat templates ${names}, and none is "default"`);
      }
      checkTools(options.tools, used.template);
      checkKwargs(options.chatTemplateKwargs);
      const parts = faultsIn(
        used.file,
        () => render(used.template, defaults, formsOf(messages, used.readsText), options),
      );
      if (options.begun === undefined) return parts;
      const prompt = parts.map(({ text }) => text).join("");
      const opened = opening(prompt, (token) => controlTokens.includes(token));
      return [...parts, { text: opened, control: true }, { text: options.begun, control: false }];
    };
  });
}

/** A template that was compiled, and where it came from. */
interface Compiled {
  readonly file: string;
  readonly template: Template;
  /** Whether it writes contents as text, not as lists of parts. */
  readonly readsText: boolean;
}

function compile({ file, text }: TemplateSource): Template {
  if (text.length <= MAX_TEMPLATE_CHARS) return faultsIn(file, () => compileTemplate(text));
  throw new LlmError("template", `${file}: chat_template has ${text.length} characters, at most ${MAX_TEMPLATE_CHARS}`);
}

/** Errors of a template as those of its file. */
function faultsIn<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (!(cause instanceof TemplateFault)) throw cause;
    throw new LlmError("template", `${file}: chat_template: line ${cause.line}: ${cause.message}`);
  }
}

/** Renders the first of several forms of a conversation that the template takes. Throws the fault of the first one. */
function render(
  template: Template,
  defaults: Readonly<Record<string, Value>>,
  forms: readonly (readonly ChatMessage[])[],
  options: ChatOptions,
): TemplatePart[] {
  const attempt = (messages: readonly ChatMessage[]): TemplatePart[] => {
    const size: InputSize = { values: 0, chars: 0 };
    const { enableThinking, addGenerationPrompt = true, tools, chatTemplateKwargs: kwargs = {} } = options;
    return template.render({
      ...defaults,
      messages: new List(messages.map((message) => messageValue(message, size))),
      tools: fromUser(tools ?? null, size),
      documents: null,
      ...Object.fromEntries(Object.entries(kwargs).map(([name, value]) => [name, fromUser(value, size)])),
      add_generation_prompt: addGenerationPrompt,
      ...(enableThinking === undefined ? {} : { enable_thinking: enableThinking }),
    }, size);
  };
  let first: TemplateFault | undefined;
  for (const messages of forms) {
    try {
      return attempt(messages);
    } catch (fault) {
      if (!(fault instanceof TemplateFault)) throw fault;
      first ??= fault;
    }
  }
  throw first;
}

/** A message, of which the role is one of few words and may be a part of a control token. */
function messageValue(message: ChatMessage, size: InputSize): Value {
  const fields = Object.entries(message).filter(([, value]) => value !== undefined);
  return new Dict(fields.map(([name, value]) => [
    fromUser(name, size),
    name === "role" ? Str.template(String(value)) : fromUser(value, size),
  ]));
}

function checkKwargs(kwargs: unknown): void {
  if (kwargs === undefined) return;
  if (typeof kwargs !== "object" || kwargs === null || Array.isArray(kwargs)) {
    throw new LlmError("template", `chatTemplateKwargs is ${quoted(kwargs)}, expected an object`);
  }
  for (const name of Object.keys(kwargs)) {
    const source = GIVEN_ELSEWHERE.get(name);
    if (source === undefined) continue;
    throw new LlmError("template", `chatTemplateKwargs has ${quoted(name)}, which comes from ${source}`);
  }
}

function checkTools(tools: unknown, template: Template): void {
  const isObject = (tool: unknown): boolean => typeof tool === "object" && tool !== null;
  if ((tools ?? undefined) === undefined) return;
  if (!Array.isArray(tools) || !tools.every(isObject)) {
    throw new LlmError("template", "tools is not a list of objects that describe a function each");
  }
  if (tools.length > 0 && !template.names.has("tools")) {
    throw new LlmError("template", "The model's chat template does not know tools");
  }
}
