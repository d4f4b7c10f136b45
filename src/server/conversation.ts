/**
 * A conversation that a model is to continue, as all APIs of conversations describe it, and the request for the engine.
 *
 * @module
 */

import { quoted } from "../graph/error.ts";
import { lm } from "../../mod.ts";
import { ApiError, fieldError } from "./errors.ts";
import { predicted, type Prediction } from "./prediction.ts";
import type { Served } from "./served.ts";
import { type SamplingFields, samplingOptions } from "./sampling.ts";

/** A function that the model may call, in the form of OpenAI's chat completions. */
export interface FunctionTool {
  readonly type: "function";
  readonly function: {
    readonly name: string;
    readonly description?: string | undefined;
    /** A JSON schema of its arguments. */
    readonly parameters?: unknown;
  };
}

/** Whether the model may call functions: as it likes, at least one, the one of a name, or none. */
export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/** A choice that leaves the model some of the tools. */
export interface AllowedTools {
  readonly mode: "auto" | "required";
  readonly names: readonly string[];
}

/** The tools of a conversation and the choice among them: where a choice allows some, the others are left out. */
export function offered(
  tools: readonly FunctionTool[] = [],
  choice: ToolChoice | AllowedTools | undefined,
): Pick<ConversationCall, "tools" | "toolChoice"> {
  if (typeof choice !== "object" || !("names" in choice)) return { tools, toolChoice: choice };
  const unknown = choice.names.find((name) => !tools.some((tool) => tool.function.name === name));
  if (unknown !== undefined) {
    throw fieldError(
      "tool_choice",
      `tool_choice allows ${quoted(unknown)}, which is not among tools: list it there or leave it out`,
    );
  }
  return { tools: tools.filter((tool) => choice.names.includes(tool.function.name)), toolChoice: choice.mode };
}

const FORMAT_FIELD = "response_format";

/** A conversation with what its answer is to be like. */
export interface ConversationCall {
  readonly messages: readonly lm.ChatMessage[];
  /** The text that the answer goes on from, in the turn of the assistant. Default none. */
  readonly begun?: string | undefined;
  readonly tools?: readonly FunctionTool[] | undefined;
  /** Default "auto". */
  readonly toolChoice?: ToolChoice | undefined;
  /** Whether the answer may have several calls. Default true. */
  readonly parallelToolCalls?: boolean | undefined;
  readonly responseFormat?: lm.ResponseFormat | undefined;
  /** The field of the body that it comes from. Default "response_format". */
  readonly formatField?: string | undefined;
  /** Default true, where the model has the switch. */
  readonly enableThinking?: boolean | undefined;
  /** Further variables of the chat template. */
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
  /** Default as many as the context has room for. */
  readonly maxTokens?: number | undefined;
  /** The text that the answer is expected to have. */
  readonly prediction?: Prediction | undefined;
  /** Top tokens to report beside each token. */
  readonly logprobs?: number | undefined;
  readonly sampling: SamplingFields;
}

/** The form of an answer that is JSON of a schema. */
export function schemaFormat(schema: unknown, strict: boolean | undefined): lm.ResponseFormat {
  return { type: "json_schema", schema: schema as lm.JsonSchema, ...(strict !== undefined && { strict }) };
}

/** Efforts of reasoning; the first ones switch thinking off. */
export const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh"] as const;
const WITHOUT_THOUGHT: readonly string[] = ["none", "minimal"];

/** Whether an effort of reasoning lets the model think; undefined leaves that to the model. */
export function thinksWith(effort: typeof EFFORTS[number] | undefined): boolean | undefined {
  return effort === undefined ? undefined : !WITHOUT_THOUGHT.includes(effort);
}

/** What the chat template of a conversation gets besides its messages. */
export function chatOptionsOf(
  { tools = [], toolChoice, enableThinking, templateVariables, begun }: Pick<
    ConversationCall,
    "tools" | "toolChoice" | "enableThinking" | "templateVariables" | "begun"
  >,
): Pick<lm.ChatOptions, "tools" | "enableThinking" | "chatTemplateKwargs" | "begun"> {
  return {
    ...(tools.length > 0 && toolChoice !== "none" && { tools }),
    ...(enableThinking !== undefined && { enableThinking }),
    ...(begun !== undefined && { begun }),
    ...(templateVariables && Object.keys(templateVariables).length > 0 && { chatTemplateKwargs: templateVariables }),
  };
}

/** The tokens of a conversation's prompt. */
export function promptIds(call: ConversationCall, tokenizer: lm.Tokenizer): number[] {
  return tokenizer.encodeChat(call.messages, chatOptionsOf(call));
}

/** Whether the answer has to call a function. */
function demandsCall(choice: ToolChoice | undefined): choice is Exclude<ToolChoice, "auto" | "none"> {
  return choice !== undefined && choice !== "auto" && choice !== "none";
}

/** The field of the body that the form of an answer comes from: that of calls is made of tools. */
export function formatFieldOf(call: ConversationCall): string {
  return demandsCall(call.toolChoice) ? "tools" : call.formatField ?? FORMAT_FIELD;
}

/** Functions one of which the answer has to call; undefined if it need not. Throws where there are none, or the answer has another form. */
export function demandedTools(
  { tools = [], toolChoice, responseFormat, formatField = FORMAT_FIELD }: ConversationCall,
): readonly FunctionTool[] | undefined {
  if (!demandsCall(toolChoice)) return undefined;
  if ((responseFormat?.type ?? "text") !== "text") {
    throw fieldError("tool_choice", `tool_choice demands a call, and ${formatField} an answer: give one`);
  }
  const demanded = toolChoice === "required" ? tools : tools.filter((tool) => tool.function.name === toolChoice.name);
  if (demanded.length > 0) return demanded;
  const what = toolChoice === "required" ? "tools are empty" : `tools have no ${quoted(toolChoice.name)}`;
  throw fieldError("tool_choice", `tool_choice demands a call, and ${what}`);
}

/** The request for choice `i` of an answer. */
export function engineRequest(call: ConversationCall, served: Served, signal: AbortSignal, i = 0): lm.EngineRequest {
  const {
    toolChoice,
    parallelToolCalls = true,
    responseFormat,
    maxTokens,
    logprobs,
    prediction,
    sampling,
  } = call;
  if (!served.tokenizer.hasChatTemplate) {
    throw new ApiError(400, `${served.id} has no chat template: ask /v1/completions`, { param: "model" });
  }
  const demanded = demandedTools(call);
  const parallel = toolChoice === "required" && parallelToolCalls;
  const format = demanded ? lm.requireToolCalls(served.tokenizer, demanded, { parallel }) : responseFormat;
  return {
    prompt: call.messages,
    maxTokens: maxTokens ?? Number.MAX_SAFE_INTEGER, // the context ends it
    ...samplingOptions(sampling, served.generationConfig, i),
    ...chatOptionsOf(call),
    ...(format && { responseFormat: format }),
    ...(logprobs !== undefined && { logprobs }),
    ...predicted(prediction, served),
    signal,
  };
}
