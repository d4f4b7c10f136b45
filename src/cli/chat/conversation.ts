/**
 * A conversation, and the file that keeps it: messages, the system message, the model's name and how tokens are chosen.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import { FileError, readFile, writeWhole } from "../../../ffi/file.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { exactJson } from "../../graph/exact_json.ts";

/** How answers are made: names of `GenerateOptions`. */
export type ChatSettings = Pick<
  lm.GenerateOptions,
  | "maxTokens"
  | "temp"
  | "topP"
  | "topK"
  | "minP"
  | "repetitionPenalty"
  | "presencePenalty"
  | "frequencyPenalty"
  | "stop"
  | "seed"
  | "enableThinking"
>;

/** A conversation as it is kept. */
export interface Saved {
  readonly model: string;
  readonly system: string | undefined;
  readonly options: ChatSettings;
  readonly messages: readonly lm.ChatMessage[];
}

const FORMAT = "vkmx chat";
const VERSION = 1;
const MAX_BYTES = 64 * 2 ** 20;

interface FieldKind {
  readonly called: string;
  readonly fits: (value: unknown) => boolean;
}

const NUMBER: FieldKind = { called: "a number", fits: (value) => typeof value === "number" };
const SWITCH: FieldKind = { called: "true or false", fits: (value) => typeof value === "boolean" };
const TEXTS: FieldKind = {
  called: "a list of texts",
  fits: (value) => Array.isArray(value) && value.every((text) => typeof text === "string"),
};

/** Types that options may have. Generation checks the ranges of numbers. */
const OPTIONS: Readonly<Record<keyof ChatSettings, FieldKind>> = {
  maxTokens: NUMBER,
  temp: NUMBER,
  topP: NUMBER,
  topK: NUMBER,
  minP: NUMBER,
  repetitionPenalty: NUMBER,
  presencePenalty: NUMBER,
  frequencyPenalty: NUMBER,
  stop: TEXTS,
  seed: NUMBER,
  enableThinking: SWITCH,
};
/** Roles in a file's messages; the system message stands by itself. */
const ROLES: readonly unknown[] = ["user", "assistant", "tool"];

/** Writes a conversation, whole or not at all. Throws an Error that names the file. */
export function save(path: string, saved: Saved): void {
  const options = Object.entries(saved.options).filter(([name, value]) => isOption(name) && value !== undefined);
  const { model, system = null, messages } = saved;
  const value = { format: FORMAT, version: VERSION, model, system, options: Object.fromEntries(options), messages };
  try {
    writeWhole(path, [new TextEncoder().encode(`${exactJson(value, 2)}\n`)]);
  } catch (cause) {
    throw new Error(`${shownPath(path)} cannot be written: ${(cause as Error).message}`, { cause });
  }
}

/** Reads a conversation. Throws an Error that names the file and what is wrong with it. */
export function load(path: string): Saved {
  const fail = (what: string, cause?: unknown): never => {
    throw new Error(`${shownPath(path)} ${what}`, { cause });
  };
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(readFile(path, MAX_BYTES)));
  } catch (cause) {
    if (cause instanceof FileError) fail(cause.message, cause);
    fail("is no JSON: /load reads what /save wrote", cause);
  }
  if (!isRecord(value) || value.format !== FORMAT) return fail("is no conversation: /load reads what /save wrote");
  if (value.version !== VERSION) return fail(`has version ${quoted(value.version)}, expected ${VERSION}`);
  const { model, system, options, messages } = value;
  if (typeof model !== "string") return fail(`has the model ${quoted(model)}, expected a name`);
  if (system !== null && typeof system !== "string") {
    return fail(`has the system message ${quoted(system)}, expected a text`);
  }
  if (!isRecord(options)) return fail(`has the options ${quoted(options)}, expected an object`);
  for (const [name, option] of Object.entries(options)) {
    if (!isOption(name)) fail(`has the option ${quoted(name)}: known are ${Object.keys(OPTIONS).join(", ")}`);
    else if (!OPTIONS[name].fits(option)) fail(`has ${name} ${quoted(option)}, expected ${OPTIONS[name].called}`);
  }
  if (!Array.isArray(messages)) return fail(`has the messages ${quoted(messages)}, expected a list`);
  const read = messages.map((message: unknown, i): lm.ChatMessage => {
    if (!isRecord(message) || !ROLES.includes(message.role)) {
      return fail(`has a messages[${i}] that is of no user, assistant or tool`);
    }
    const { role, content, reasoning_content: reasoning, tool_calls: calls, name, tool_call_id: id } = message;
    if (typeof content !== "string") return fail(`has a messages[${i}] without a text`);
    if (reasoning !== undefined && typeof reasoning !== "string") {
      return fail(`has thoughts in messages[${i}] that are no text`);
    }
    if (calls !== undefined && !(Array.isArray(calls) && calls.every(isCall))) {
      return fail(`has calls in messages[${i}] without an id, a name and arguments`);
    }
    return {
      role: role as "user" | "assistant" | "tool",
      content,
      ...(typeof name === "string" && { name }),
      ...(typeof id === "string" && { tool_call_id: id }),
      ...(reasoning !== undefined && { reasoning_content: reasoning }),
      ...(calls !== undefined && { tool_calls: calls as readonly lm.ToolCall[] }),
    };
  });
  return { model, system: system ?? undefined, options: options as ChatSettings, messages: read };
}

function isCall(call: unknown): boolean {
  if (!isRecord(call) || typeof call.id !== "string" || !isRecord(call.function)) return false;
  return typeof call.function.name === "string" && isRecord(call.function.arguments);
}

function isOption(name: string): name is keyof ChatSettings {
  return Object.hasOwn(OPTIONS, name);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
