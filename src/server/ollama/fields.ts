/**
 * The bodies of ollama's API: their fields, and the conversation that they become. Fields and options are those that its
 * clients for JavaScript and Python send.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import { type ConversationCall, schemaFormat, thinksWith } from "../conversation.ts";
import { quoted } from "../../graph/error.ts";
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
  whole,
} from "../fields.ts";
import { TOOLS } from "../openai/chat_fields.ts";
import { SAMPLING, type SamplingFields } from "../sampling.ts";

/** Tokens that a repetition penalty looks at where `repeat_last_n` does not say. */
const REPEAT_LAST_N = 64;
/** More tokens than any context has. */
const WHOLE_CONTEXT = 2 ** 31 - 1;

/** Milliseconds of the units of a duration. */
const UNITS: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, "µs": 1e-3, ms: 1, s: 1e3, m: 6e4, h: 3.6e6 };

/** A duration in milliseconds: a number of seconds, or a text such as "1h30m". A negative one has no end. */
const DURATION: Kind<number> = {
  read: (value, at) => {
    const ms = typeof value === "number" ? 1000 * value : typeof value === "string" ? durationOf(value) : NaN;
    if (!Number.isNaN(ms)) return ms < 0 ? Infinity : ms;
    const what = `${at} is ${quoted(value)}`;
    throw fieldError(at, `${what}, expected seconds or a duration such as "5m"`, "invalid_type");
  },
};

function durationOf(given: string): number {
  const [, sign, rest] = /^([+-]?)(.*)$/s.exec(given)!;
  if (/^\d+$/.test(rest)) return Number(given) * 1000;
  if (!/^(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+$/.test(rest)) return NaN;
  const parts = Array.from(rest.matchAll(/([\d.]+)([a-zµ]+)/g), ([, count, unit]) => Number(count) * UNITS[unit]);
  return (sign === "-" ? -1 : 1) * parts.reduce((sum, part) => sum + part, 0);
}

const IMAGES = mapped(list(any), (images, at) => {
  if (images.length > 0) throw fieldError(at, `${at} has images, and models read text only`, "unsupported_parameter");
});

/** How tokens are chosen. Options of the machine, such as num_gpu, are ignored as all unknown ones are. */
const OPTIONS = object({
  num_predict: whole(Number.MIN_SAFE_INTEGER),
  temperature: SAMPLING.temperature,
  top_k: SAMPLING.top_k,
  top_p: SAMPLING.top_p,
  min_p: SAMPLING.min_p,
  seed: SAMPLING.seed,
  stop: SAMPLING.stop,
  repeat_penalty: SAMPLING.repetition_penalty,
  repeat_last_n: whole(-1),
  presence_penalty: SAMPLING.presence_penalty,
  frequency_penalty: SAMPLING.frequency_penalty,
});

const NO_OPTIONS = OPTIONS.read({}, "options");

/** "json", a JSON schema, or no form at all. */
const FORMAT: Kind<lm.ResponseFormat | undefined> = mapped(textOr(anyObject), (format, at) => {
  if (typeof format !== "string") return schemaFormat(format, undefined);
  if (format === "") return undefined;
  if (format === "json") return { type: "json_object" };
  throw fieldError(at, `${at} is ${quoted(format)}, expected "json" or a JSON schema`);
});

/** Whether the model thinks, or how much. */
const THINK: Kind<boolean | "low" | "medium" | "high"> = {
  read: (value, at) => typeof value === "boolean" ? value : oneOf("low", "medium", "high").read(value, at),
};

/** Fields that answers of both endpoints have. */
const ANSWER = {
  model: text,
  options: OPTIONS,
  format: FORMAT,
  stream: boolean,
  keep_alive: DURATION,
  think: THINK,
  logprobs: boolean,
  top_logprobs: whole(0, 20),
} as const;

const MESSAGE = object({
  role: required(oneOf("system", "user", "assistant", "tool")),
  content: text,
  thinking: text,
  images: IMAGES,
  tool_calls: list(object({ id: text, function: required(object({ name: required(text), arguments: anyObject })) })),
  tool_name: text,
  tool_call_id: text,
});

const CHAT_FIELDS = { ...ANSWER, messages: list(MESSAGE), tools: TOOLS } as const;

const GENERATE_FIELDS = {
  ...ANSWER,
  prompt: text,
  system: text,
  raw: boolean,
  images: IMAGES,
  suffix: mapped(text, (suffix, at) => {
    if (suffix !== "") throw fieldError(at, "suffix is not supported: models continue a text, and fill no gap in it");
  }),
  template: mapped(text, (template, at) => {
    if (template !== "") throw fieldError(at, "template is not supported: raw takes a prompt without a template");
  }),
  context: refused("/api/chat takes the messages of a conversation"),
} as const;

/** The body of /api/chat. */
export const CHAT: Kind<ReadFields<typeof CHAT_FIELDS>> = object(CHAT_FIELDS);
/** The body of /api/generate. */
export const GENERATE: Kind<ReadFields<typeof GENERATE_FIELDS>> = object(GENERATE_FIELDS);

const EMBED_FIELDS = {
  model: text,
  input: required(textOr(list(text, { max: 2048 }))),
  dimensions: whole(1),
  keep_alive: DURATION,
} as const;

/** The body of /api/embed. */
export const EMBED: Kind<ReadFields<typeof EMBED_FIELDS>> = object(EMBED_FIELDS);

const EMBEDDINGS_FIELDS = { model: text, prompt: text, keep_alive: DURATION } as const;

/** The body of /api/embeddings, which is older. */
export const EMBEDDINGS: Kind<ReadFields<typeof EMBEDDINGS_FIELDS>> = object(EMBEDDINGS_FIELDS);

const MODEL_FIELDS = { model: text, name: text, stream: boolean } as const;

/** A body that names a model, by either name of the field. */
export const MODEL: Kind<ReadFields<typeof MODEL_FIELDS>> = object(MODEL_FIELDS);

type Answer = Read<typeof CHAT> | Read<typeof GENERATE>;

/** What a body of /api/chat asks for. */
export function chatCall(body: Read<typeof CHAT>): ConversationCall {
  return { messages: (body.messages ?? []).map(messageOf), tools: body.tools, ...answerOptions(body) };
}

/** What a body of /api/generate asks for: its prompt is the message of a user. */
export function generateCall(body: Read<typeof GENERATE>): ConversationCall {
  const { system = "", prompt = "" } = body;
  const messages: lm.ChatMessage[] = [{ role: "user", content: prompt }];
  if (system !== "") messages.unshift({ role: "system", content: system });
  return { messages, ...answerOptions(body) };
}

function messageOf(message: Read<typeof MESSAGE>, i: number): lm.ChatMessage {
  const { role, content = "", thinking, tool_calls: calls, tool_name: name, tool_call_id: callId } = message;
  return {
    role,
    content,
    ...(thinking !== undefined && thinking !== "" && { reasoning_content: thinking }),
    ...(calls !== undefined && calls.length > 0 && {
      tool_calls: calls.map(({ id = `call_${i}`, function: { name, arguments: given = {} } }) => ({
        id,
        type: "function" as const,
        function: { name, arguments: given },
      })),
    }),
    ...(name !== undefined && { name }),
    ...(callId !== undefined && { tool_call_id: callId }),
  };
}

function answerOptions(body: Answer): Omit<ConversationCall, "messages" | "tools"> {
  const { options = NO_OPTIONS, format, think, logprobs = false, top_logprobs: top = 0 } = body;
  const { num_predict: most = -1 } = options;
  const effort = typeof think === "string" ? think : undefined;
  return {
    responseFormat: format,
    formatField: "format",
    enableThinking: typeof think === "boolean" ? think : thinksWith(effort),
    templateVariables: effort === undefined ? undefined : { reasoning_effort: effort },
    maxTokens: most > 0 ? most : undefined, // none and negative ones: as many as the context has room for
    logprobs: logprobs ? top : undefined,
    sampling: samplingOf(options),
  };
}

/** Options by the names that the other APIs give them. All penalties look at `repeat_last_n` tokens. */
function samplingOf(options: Read<typeof OPTIONS>): SamplingFields {
  const { temperature, top_k, top_p, min_p, seed, stop, repeat_last_n: last = REPEAT_LAST_N } = options;
  const { repeat_penalty: repetition_penalty, presence_penalty, frequency_penalty } = options;
  const same = { temperature, top_k, top_p, min_p, seed, stop };
  if (last === 0) return same;
  const repetition_context_size = last < 0 ? WHOLE_CONTEXT : last;
  return { ...same, repetition_penalty, presence_penalty, frequency_penalty, repetition_context_size };
}
