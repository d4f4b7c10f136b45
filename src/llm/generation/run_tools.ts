/**
 * Conversations in which the model calls functions of the program. Each call is made and its result goes back, until the model answers
 * without one.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { exactJson } from "../../graph/exact_json.ts";
import { checkNumber } from "../arguments.ts";
import type { ParsedToolCall } from "../answer/tool_calls.ts";
import type { ChatMessage } from "../chat/messages.ts";
import { LlmError } from "../error.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { GenerateOptions } from "../sampling/options.ts";
import type { JsonSchema } from "../structured/json/schema.ts";
import { requireToolCalls } from "../structured/tool_calls.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { complete, type Completion } from "./complete.ts";
import { misfit, type SchemaValue } from "./tool_arguments.ts";

/** A function that a model may call. {@link tool} makes one whose arguments have the types of its schema. */
export interface Tool<Arguments = never> {
  /** Its name for the model. */
  readonly name: string;
  /** Tells the model what it does. */
  readonly description?: string;
  /** A JSON schema of its arguments, an object. Default none. */
  readonly parameters?: JsonSchema;
  /** Makes a call. The model gets a text as it is, and anything else as JSON. The message of an error becomes the result. */
  readonly run: (given: Arguments, call: { readonly signal?: AbortSignal }) => unknown;
}

/** A function as chat templates and the OpenAI API describe it. */
export interface FunctionDescription {
  /** The only kind. */
  readonly type: "function";
  /** What the model reads. */
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: JsonSchema };
}

/** A call that was made, and what came of it. */
export interface ToolRun {
  /** The function. */
  readonly name: string;
  /** Arguments as the model wrote them. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** What the model got. */
  readonly result: string;
  /** Whether the function gave it; false if it threw, was not allowed, or could not be called so. */
  readonly ok: boolean;
}

/** Options of {@link runTools}: those of an answer, and some of the rounds. */
export interface RunToolsOptions extends Omit<GenerateOptions, "tools" | "begun"> {
  /** Most answers of the model. Default 8. */
  readonly maxRounds?: number;
  /** Whether the first answer has to be a call. Default "auto". */
  readonly toolChoice?: "auto" | "required";
  /** Asked before each call; false refuses it, and the model gets that as the result. */
  readonly allow?: (call: ParsedToolCall["function"]) => boolean | Promise<boolean>;
  /** Called after each call. */
  readonly onCall?: (run: ToolRun) => void;
}

/** What {@link runTools} ends with. */
export interface ToolsCompletion extends Completion {
  /** The conversation with all calls, their results and the last answer. */
  readonly messages: readonly ChatMessage[];
  /** All calls in their order. */
  readonly runs: readonly ToolRun[];
}

const MAX_ROUNDS = 8;

/** Options of {@link toolRounds}: those of {@link RunToolsOptions} that are not about an answer. */
export type ToolRoundsOptions = {
  readonly [K in "maxRounds" | "allow" | "onCall" | "signal"]?: RunToolsOptions[K] | undefined;
};

/**
 * A function for {@link runTools} whose arguments have the types of its schema.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const weather = mx.lm.tool({
 *   name: "weather",
 *   description: "Tells the weather of a city",
 *   parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
 *   run: ({ city }) => `sunny in ${city}`, // city is a string
 * });
 * ```
 */
export function tool<const S extends JsonSchema>(
  definition: Omit<Tool, "parameters" | "run"> & {
    readonly parameters?: S;
    readonly run: (given: SchemaValue<S>, call: { readonly signal?: AbortSignal }) => unknown;
  },
): Tool {
  return definition as unknown as Tool;
}

/**
 * Answers a conversation with functions that the model may call. Calls of an answer are made one after the other. Each round reads only
 * what is new. Arguments that do not fit the types of the schema and unknown names are results for the model too: it may try again.
 *
 * Ends with the first answer without a call, at `maxRounds`, or with an answer that its limit or the signal cuts off. `toolCalls` of the
 * result has the calls of the last answer, which were not made. Throws as `complete` does, and the signal's reason between calls.
 *
 * @example
 * ```ts ignore
 * const { text, messages } = await mx.lm.runTools(model, tokenizer, [{ role: "user", content: "Weather in Paris?" }], [weather]);
 * ```
 */
export async function runTools(
  model: LanguageModel,
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  tools: readonly Tool[],
  options: RunToolsOptions = {},
): Promise<ToolsCompletion> {
  const { maxRounds, toolChoice = "auto", allow, onCall, ...generation } = options;
  using own = generation.cache ? undefined : model.makeCache();
  const offered = describeTools(tools);
  const common = {
    ...generation,
    cache: generation.cache ?? own!,
    cachePrompt: true,
    ...(offered.length > 0 && { tools: offered }),
  };
  const answer = (conversation: readonly ChatMessage[], round: number): Promise<Completion> => {
    const required = round === 1 && toolChoice === "required";
    const responseFormat = required ? requireToolCalls(tokenizer, offered, { parallel: false }) : undefined;
    return complete(model, tokenizer, conversation, { ...common, ...(responseFormat && { responseFormat }) });
  };
  return await toolRounds(answer, messages, tools, { maxRounds, allow, onCall, signal: generation.signal });
}

/** Functions as chat templates and the OpenAI API describe them. */
export function describeTools(tools: readonly Tool[]): readonly FunctionDescription[] {
  return tools.map(({ name, description, parameters = { type: "object", properties: {} } }) => ({
    type: "function",
    function: { name, ...(description !== undefined && { description }), parameters },
  }));
}

/**
 * The rounds of {@link runTools}, whatever gives the answers: an engine, or a stream that is shown as it comes. `answer` gets the
 * conversation so far and the number of the round, from 1. Throws what it throws, and the signal's reason between calls.
 *
 * @example
 * ```ts ignore
 * const { text } = await mx.lm.toolRounds((conversation) => mx.lm.complete(model, tokenizer, conversation, { tools: offered }), messages, tools);
 * ```
 */
export async function toolRounds<A extends Pick<Completion, "text" | "reasoning" | "toolCalls" | "finishReason">>(
  answer: (conversation: readonly ChatMessage[], round: number) => Promise<A>,
  messages: readonly ChatMessage[],
  tools: readonly Tool[],
  { maxRounds = MAX_ROUNDS, allow, onCall, signal }: ToolRoundsOptions = {},
): Promise<A & Pick<ToolsCompletion, "messages" | "runs">> {
  checkNumber("maxRounds", maxRounds, Number.isSafeInteger(maxRounds) && maxRounds >= 1, "a positive integer");
  const byName = new Map(tools.map((one) => [one.name, one]));
  if (byName.size < tools.length) throw new LlmError("option", "runTools() expected tools of different names");
  const conversation = [...messages];
  const runs: ToolRun[] = [];
  for (let round = 1;; round++) {
    const given = await answer(conversation, round);
    const calls = given.toolCalls.map((call, i) => ({ ...call, id: call.id ?? `call_${runs.length + i}` }));
    conversation.push({
      role: "assistant",
      content: given.text,
      ...(given.reasoning !== "" && { reasoning_content: given.reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map((call) => ({ type: "function" as const, ...call })) }),
    });
    const ended = calls.length === 0 || given.finishReason !== "stop" || round === maxRounds;
    if (ended) return { ...given, messages: conversation, runs };
    for (const call of calls) {
      signal?.throwIfAborted();
      const run = await runCall(byName, call.function, allow, signal);
      runs.push(run);
      conversation.push({ role: "tool", name: run.name, tool_call_id: call.id, content: run.result });
      onCall?.(run);
    }
  }
}

/** Makes a call; what is wrong becomes its result, but for an abort. */
async function runCall(
  tools: ReadonlyMap<string, Tool>,
  call: ParsedToolCall["function"],
  allow: RunToolsOptions["allow"],
  signal: AbortSignal | undefined,
): Promise<ToolRun> {
  const { name, arguments: given } = call;
  const refused = (message: string): ToolRun => ({ ...call, result: exactJson({ error: message }), ok: false });
  const found = tools.get(name);
  if (!found) return refused(`there is no function ${quoted(name)}, only ${[...tools.keys()].join(", ")}`);
  const wrong = misfit(found.parameters, given, "arguments");
  if (wrong !== undefined) return refused(wrong);
  if (allow && !await allow(call)) {
    signal?.throwIfAborted(); // a question that was stopped is no refusal to go on with
    return refused("the user did not allow this call");
  }
  try {
    const result = await found.run(given as never, { ...(signal && { signal }) });
    return { ...call, result: typeof result === "string" ? result : exactJson(result), ok: true };
  } catch (error) {
    signal?.throwIfAborted();
    return refused(error instanceof Error ? error.message : String(error));
  }
}
