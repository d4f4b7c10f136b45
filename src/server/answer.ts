/**
 * Answers as all APIs need them: parts of text, thoughts and calls as they come. The last part says why the answer ended and what it used.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { exactJson } from "../graph/exact_json.ts";
import { type ConversationCall, engineRequest, formatFieldOf } from "./conversation.ts";
import { formatError } from "./errors.ts";
import type { Metrics } from "./metrics.ts";
import type { Served } from "./served.ts";

/** A call of a function that the model makes. */
export interface AnswerCall {
  /** What the result of the call names it by. */
  readonly id: string;
  readonly name: string;
  /** Arguments as a JSON text. */
  readonly arguments: string;
  /** The call as it was parsed. */
  readonly parsed: lm.ParsedToolCall;
}

/** Tokens of a prompt and of its answer. */
export interface Usage {
  readonly promptTokens: number;
  /** Those of the prompt that were not read again. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Those of the answer that are thoughts. */
  readonly reasoningTokens: number;
  /** Tokens that were drafted, and those of them that the answer has. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
}

/** How an answer ended. */
export interface AnswerEnd {
  readonly reason: "stop" | "length" | "tool_calls";
  /** The stop string that ended it. */
  readonly stopString?: string;
  readonly usage: Usage;
}

/** What came with one token. */
export interface AnswerPart {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly AnswerCall[];
  /** Tokens of the prompt, and those of them that were not read again. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** The token; undefined of an EOS token, which belongs to no answer. */
  readonly token: number | undefined;
  readonly logprobs?: lm.Logprobs;
  /** Only of the last part. */
  readonly end?: AnswerEnd;
}

/** Tokens at the end of an answer within which its stop string is looked for. */
const STOP_TOKENS = 256;

/** Choice `i` of the answer to a conversation. Throws the reason of the signal if the client goes. */
export async function* answerParts(
  call: ConversationCall,
  served: Served,
  metrics: Metrics,
  signal: AbortSignal,
  i = 0,
): AsyncGenerator<AnswerPart, void, void> {
  const { parallelToolCalls = true } = call;
  const maxCalls = parallelToolCalls ? Infinity : 1;
  let [calls, thoughts] = [0, 0];
  let thinking = true;
  const tokens = (): AsyncGenerator<TokenPart, void, void> =>
    tokenParts(engineRequest(call, served, signal, i), served, metrics);
  for await (const part of namingFormat(call, tokens)) {
    const { response, token, end } = part;
    if (response.text !== "" || response.toolCalls.length > 0) thinking = false;
    if (thinking && (thoughts > 0 || response.reasoning !== "")) thoughts = response.generationTokens;
    const made = response.toolCalls.slice(0, maxCalls - calls).map((parsed): AnswerCall => ({
      id: newId("call_"),
      name: parsed.function.name,
      arguments: exactJson(parsed.function.arguments),
      parsed,
    }));
    calls += made.length;
    yield {
      text: response.text,
      reasoning: response.reasoning,
      calls: made,
      promptTokens: response.promptTokens,
      cachedTokens: response.cachedTokens,
      token,
      ...(response.logprobs && { logprobs: response.logprobs }),
      ...(end && {
        end: {
          ...end,
          reason: calls > 0 && end.reason === "stop" ? "tool_calls" as const : end.reason,
          usage: { ...end.usage, reasoningTokens: thoughts },
        },
      }),
    };
  }
}

/** What comes of a call; an error of the answer's form names the field of the body that the form comes from. */
export async function* namingFormat<T>(
  call: ConversationCall,
  parts: () => AsyncGenerator<T, void, void>,
): AsyncGenerator<T, void, void> {
  try {
    yield* parts();
  } catch (error) {
    throw formatError(error, formatFieldOf(call));
  }
}

/** A token of an answer without parts. */
export interface TokenPart {
  readonly response: lm.EngineResponse;
  /** Undefined of an EOS token. */
  readonly token: number | undefined;
  readonly end?: AnswerEnd;
}

/** The tokens that answer any prompt, measured. */
export async function* tokenParts(
  request: lm.EngineRequest,
  { engine, tokenizer }: Served,
  metrics: Metrics,
): AsyncGenerator<TokenPart, void, void> {
  const started = performance.now();
  let first = started;
  const last: number[] = [];
  for await (const response of engine.add(request)) {
    const { token, finishReason, generationTokens: count, promptTokens, cachedTokens } = response;
    const { draftedTokens = 0, acceptedTokens = 0 } = response;
    if (count === 1) {
      first = performance.now();
      metrics.observe("time_to_first_token", first - started);
    }
    if (last.push(token) > 2 * STOP_TOKENS) last.splice(0, STOP_TOKENS);
    const isEos = tokenizer.eosTokenIds.has(token);
    if (finishReason === "abort") throw request.signal?.reason;
    if (finishReason !== null && count > 1) {
      metrics.observe("time_per_output_token", (performance.now() - first) / (count - 1));
    }
    const found = finishReason === "stop" && !isEos ? stopIn(tokenizer.decode(last), request.stop) : undefined;
    yield {
      response,
      token: isEos ? undefined : token,
      ...(finishReason !== null && {
        end: {
          reason: finishReason,
          ...(found !== undefined && { stopString: found }),
          usage: {
            promptTokens,
            cachedTokens,
            completionTokens: count,
            reasoningTokens: 0,
            draftedTokens,
            acceptedTokens,
          },
        },
      }),
    };
  }
}

/** The stop string that a text has first. */
function stopIn(text: string, stop: lm.EngineRequest["stop"] = []): string | undefined {
  const found = [stop].flat().filter((one) => text.includes(one));
  return found.sort((a, b) => text.lastIndexOf(a) - text.lastIndexOf(b))[0];
}

/** A new id: a prefix that says what of, and 32 hexadecimal digits. */
export function newId(prefix: string): string {
  return prefix + crypto.randomUUID().replaceAll("-", "");
}

/** Seconds since 1970, as the APIs date things. */
export function nowInSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

/** Values of several sources as they come, with the number of their source. The end of the iteration closes all. */
export async function* merged<T>(
  sources: readonly AsyncGenerator<T, void, void>[],
): AsyncGenerator<{ readonly index: number; readonly value: T }, void, void> {
  const next = async (index: number): Promise<{ index: number; result: IteratorResult<T, void> }> => ({
    index,
    result: await sources[index].next(),
  });
  const pending = new Map(sources.map((_, index) => [index, next(index)]));
  try {
    while (pending.size > 0) {
      const { index, result } = await Promise.race(pending.values());
      if (result.done) pending.delete(index);
      else {
        pending.set(index, next(index));
        yield { index, value: result.value };
      }
    }
  } finally {
    // An answer whose token is awaited ends when that has come; its error would be that of a client that went.
    await Promise.allSettled([...pending.values(), ...sources.map((source) => source.return())]);
  }
}
