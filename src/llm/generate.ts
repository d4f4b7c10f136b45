/**
 * The generation loop: prompt in, tokens out, text on top.
 *
 * {@link generateStep} yields ids: it has decode.ts read the prompt in chunks and run its loop. {@link streamGenerate} turns ids
 * into text and decides when to stop.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../array/mod.ts";
import { type AnswerFormat, AnswerParser, type AnswerParts, opensThought } from "./answer/parser.ts";
import type { ParsedToolCall } from "./answer/tool_calls.ts";
import { interruptibleStream } from "../notebook/interrupt.ts";
import { checkSignal, untilAborted } from "./abort.ts";
import { checkIds, checkModel, checkOptions } from "./arguments.ts";
import type { ChatMessage, ChatOptions } from "./chat_template.ts";
import { type DecodedToken, GenerationSession, untilIdle } from "./decode.ts";
import { StopStrings, type StreamDecoder } from "./tokenizer/detokenizer.ts";
import type { DecodeOptions } from "./decode_state.ts";
import { LlmError } from "./error.ts";
import {
  GENERATE_OPTIONS,
  type GenerateOptions,
  type LogitsOptions,
  type LogitsProcessor,
  STEP_OPTIONS,
  type StepOptions,
} from "./generate_options.ts";
import { KvCache } from "./kv_cache.ts";
import { checkLogprobs, type Logprobs } from "./logprobs_log.ts";
import type { LanguageModel } from "./models/mod.ts";
import { makeLogitsProcessors, makeSampler, repetitionContext } from "./sampler.ts";
import { Constraint } from "./structured/constraint.ts";
import { grammarOf } from "./structured/response_format.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** A prompt: text (control tokens in it count), token ids, or a conversation. */
export type Prompt = string | readonly number[] | readonly ChatMessage[];

/** One generated token. */
export interface GenerationResponse {
  /** Text that became certain with this token; may be empty. Of an answer in a conversation, without thoughts and calls. */
  readonly text: string;
  /** What the model thinks before it answers in a conversation, without `<think>` and `</think>`. */
  readonly reasoning: string;
  /** Functions that the model calls, where the option `tools` offers some: each comes when its call is whole. */
  readonly toolCalls: readonly ParsedToolCall[];
  /** All of it as the model wrote it, with the marks of thoughts and calls; only an EOS token or a stop string is left out. */
  readonly raw: string;
  /** The token. */
  readonly token: number;
  /** Log probabilities, where {@link GenerateOptions.logprobs} asks for them. */
  readonly logprobs?: Logprobs;
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Those of them that the cache held already; see {@link GenerateOptions.cachePrompt}. */
  readonly cachedTokens: number;
  /** Prompt tokens that were read per second, the first generated token included in the time. */
  readonly promptTps: number;
  /** Tokens generated so far. */
  readonly generationTokens: number;
  /** Tokens per second after the first one. */
  readonly generationTps: number;
  /** Highest use of device memory so far in GB. */
  readonly peakMemory: number;
  /** Set on the last response: "stop" at an EOS token or stop string, "length" at a limit, "abort" by the signal. */
  readonly finishReason: "stop" | "length" | "abort" | null;
}

/** Milliseconds after which other tasks get their turn. */
const TURN_MS = 2;
/** Most tokens of a forward pass that may be aborted, on a device that is slow. */
const MOST_ABORTABLE = 512;
/** Most tokens to come that a cache makes room for when it takes a prompt: growing means a copy and another trace. */
const ROOM = 256;
/** Tokens at the end of a prompt that tell whether it begins a thought. */
const PROMPT_END = 16;

/** Caches that a generation writes to. */
const busy = new WeakSet<KvCache>();
/** When the device will be done with a cache whose prompt was aborted. */
const closing = new WeakMap<KvCache, Promise<unknown>>();

/** Resolves when no aborted prompt is written to a cache any more. Throws an {@link LlmError} where a generation goes on. */
export async function untilFree(cache: KvCache): Promise<void> {
  await closing.get(cache);
  checkFree(cache);
}

function checkFree(cache: KvCache): void {
  if (busy.has(cache)) throw new LlmError("option", "The cache serves another generation: give each one its own");
}

/**
 * Yields the ids that follow a prompt, without end but for `maxTokens`. Afterwards the cache holds the prompt and all
 * yielded tokens but the last. Throws the signal's reason when it is aborted before the first token.
 */
export async function* generateStep(
  prompt: readonly number[],
  model: LanguageModel,
  options: StepOptions,
): AsyncGenerator<number, void, void> {
  checkOptions("generateStep", options, STEP_OPTIONS);
  for await (const tokens of generateTokens(prompt, model, options)) {
    for (const { token } of tokens) yield token;
  }
}

/** Options of a step, and what its tokens may be. */
type ConstrainedOptions = StepOptions & Pick<DecodeOptions, "constraint">;

/** The same in the lists that the device computes them in: every `await` costs more than reading a token. */
async function* generateTokens(
  prompt: readonly number[],
  model: LanguageModel,
  options: ConstrainedOptions,
): AsyncGenerator<Iterable<DecodedToken>, void, void> {
  const { cache, onPrompt } = options;
  const known = cache.tokens.length === cache.offset;
  const held = known ? [...cache.tokens, ...prompt] : [];
  try {
    using session = await openPrompt(prompt, model, options);
    let reading = true;
    for await (const tokens of inTurns(session.tokens())) {
      if (reading) onPrompt?.(prompt.length, prompt.length);
      reading = false;
      yield noted(tokens, held);
    }
  } finally {
    if (known) cache.remember(held);
  }
}

/** The same tokens; each one that is read goes to the end of `held`. */
function* noted(tokens: Iterable<DecodedToken>, held: number[]): Generator<DecodedToken, void, void> {
  for (const decoded of tokens) {
    held.push(decoded.token);
    yield decoded;
  }
}

/** Rows that a cache should have for a prompt and what comes behind it. */
export function roomFor(prompt: readonly number[], maxTokens: number): number {
  return prompt.length + Math.min(maxTokens, ROOM);
}

/** A session that has read its prompt but for a last chunk. Throws the signal's reason when it is aborted meanwhile. */
export async function openPrompt(
  prompt: readonly number[],
  model: LanguageModel,
  options: ConstrainedOptions,
): Promise<GenerationSession> {
  const { cache, maxTokens, prefillStepSize, signal, onPrompt } = options;
  signal?.throwIfAborted();
  if (signal) await untilIdle(model, signal); // before memory is taken
  cache.reserve(prompt.length, roomFor(prompt, maxTokens));
  const session = new GenerationSession(model, cache, prompt, maxTokens, options);
  try {
    // Dispatches over many rows take long on slow devices, which cannot stop in the middle of one.
    const { drops, concurrent } = model.traces;
    const count = Math.min(prefillStepSize, signal && !drops && !concurrent ? MOST_ABORTABLE : Infinity);
    while (session.unread > count) {
      await session.read(count);
      await setImmediate();
      onPrompt?.(prompt.length - session.unread, prompt.length);
      signal?.throwIfAborted();
    }
  } catch (error) {
    session[Symbol.dispose]();
    throw error;
  }
  return session;
}

/** The same values; timers, signals and other tasks get their turn between them. */
export async function* inTurns<T>(values: AsyncIterable<T>): AsyncGenerator<T, void, void> {
  let turn = performance.now();
  for await (const value of values) {
    yield value; // first: waiting for it gave them theirs
    if (performance.now() - turn > TURN_MS) {
      await setImmediate();
      turn = performance.now();
    }
  }
}

/**
 * Generates text and yields one response for every token; the last one has a `finishReason`. The text of an EOS token or a
 * stop string is left out.
 *
 * Throws an {@link LlmError} for options out of range and for prompts that are empty or longer than the context, before any
 * work; and the signal's reason when it is aborted before the first token. An interrupt of the notebook's cell ends it, with an error.
 *
 * @example
 * ```ts ignore
 * for await (const { text } of mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { temp: 0.6, seed: 1 })) {
 *   Deno.stdout.writeSync(new TextEncoder().encode(text));
 * }
 * ```
 *
 * @example A conversation, of which each turn reads only what is new
 * ```ts ignore
 * using cache = model.makeCache();
 * for await (const question of questions) {
 *   messages.push({ role: "user", content: question });
 *   const answer = await mx.lm.generate(model, tokenizer, messages, { cache, cachePrompt: true });
 *   messages.push({ role: "assistant", content: answer });
 * }
 * ```
 */
export function streamGenerate(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: GenerateOptions = {},
): AsyncGenerator<GenerationResponse, void, void> {
  return interruptibleStream(options, (heeding) => generateResponses(model, tokenizer, prompt, heeding));
}

async function* generateResponses(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: GenerateOptions,
): AsyncGenerator<GenerationResponse, void, void> {
  checkModel("generate", model, tokenizer);
  checkOptions("generate", options, GENERATE_OPTIONS);
  const { signal } = options;
  if (options.cache) await untilFree(options.cache);
  const grammar = grammarOf(options.responseFormat);
  using constraint = await Constraint.open(tokenizer, model.config.vocabSize, grammar, signal);
  const { ids, cached, offset, stopChecker, settings } = requestOf(model, tokenizer, prompt, options);
  constraint?.begin(ids, typeof prompt !== "string" && options.enableThinking !== false);
  const unread = ids.slice(cached);
  const cache = options.cache ?? model.makeCache();
  checkFree(cache);
  busy.add(cache);
  cache.trim(cache.offset - offset);
  const started = performance.now();
  let first = 0;
  let count = 0;
  const steps = generateTokens(unread, model, { ...settings, cache, constraint });
  try {
    for await (const tokens of untilAborted(steps, signal)) {
      const peakMemory = mx.getPeakMemory() / 1e9;
      for (const { token, logprobs } of tokens) {
        const now = performance.now();
        if (++count === 1) first = now;
        const parts = stopChecker.push(token);
        yield {
          ...parts,
          token,
          ...(logprobs && { logprobs }),
          promptTokens: ids.length,
          cachedTokens: cached,
          promptTps: perSecond(unread.length, first - started),
          generationTokens: count,
          generationTps: perSecond(count - 1, now - first),
          peakMemory,
        };
        if (parts.finishReason !== null) return;
      }
    }
  } finally {
    const closed = steps.return().finally(() => {
      busy.delete(cache);
      if (cache !== options.cache) cache.dispose();
    });
    // What the device still computes of an aborted prompt keeps its memory until it is done, but nobody waits for that.
    if (count === 0 && signal?.aborted) closing.set(cache, closed.catch(() => {}));
    else await closed;
  }
}

/** What a prompt and options come to. */
interface GenerationRequest {
  /** The tokens of the prompt. */
  readonly ids: readonly number[];
  /** How many of them the cache holds, and how many tokens it keeps. */
  readonly cached: number;
  readonly offset: number;
  readonly stopChecker: StopChecker;
  readonly settings: Omit<StepOptions, "cache">;
}

/** Checks everything that can be wrong before any work is done. */
function requestOf(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: GenerateOptions,
): GenerationRequest {
  const { cache, cachePrompt, maxTokens = 256, prefillStepSize = 2048, stop = [], signal } = options;
  checkCount("maxTokens", maxTokens);
  checkCount("prefillStepSize", prefillStepSize);
  checkLogprobs(options.logprobs);
  if (cache) checkCache(model, cache);
  const sampler = options.sampler ?? makeSampler(options);
  const processors = processorsOf(options);
  const contextSize = repetitionContext(options, model.config.maxPositionEmbeddings);
  const ids = encodePrompt(model, tokenizer, prompt, options);
  const cached = cachePrompt ? commonTokens(cache?.tokens ?? [], ids) : 0;
  const offset = cachePrompt ? cached : cache?.offset ?? 0;
  const limit = tokensFor(model, ids.length - cached, offset, maxTokens);
  const format = answerFormat(tokenizer, prompt, ids, options);
  const stopChecker = new StopChecker(tokenizer, { stop, limit, signal, format });
  const settings = { ...options, maxTokens: limit, sampler, processors, contextSize, prefillStepSize };
  return { ids, cached, offset, stopChecker, settings };
}

/** All processors that options ask for, in the order in which they run. */
export function processorsOf(options: LogitsOptions & Pick<GenerateOptions, "logitsProcessors">): LogitsProcessor[] {
  const { logitsProcessors: own = [] } = options;
  if (!Array.isArray(own)) throw new LlmError("option", `logitsProcessors is ${own}, expected a list of functions`);
  return [...makeLogitsProcessors(options), ...own];
}

/** What a {@link StopChecker} looks for. */
interface StopOptions extends Pick<GenerateOptions, "signal"> {
  readonly stop: string | readonly string[];
  /** Most tokens. */
  readonly limit: number;
  /** The parts of the answer. */
  readonly format: AnswerFormat;
}

/** The parts that the answer to a prompt has: what follows a text or ids is only text. */
export function answerFormat(
  tokenizer: Tokenizer,
  prompt: Prompt,
  ids: readonly number[],
  { tools = [] }: Pick<GenerateOptions, "tools">,
): AnswerFormat {
  if (typeof prompt === "string" || !isConversation(prompt)) return { reasoning: false, thinking: false, tools: [] };
  return { reasoning: true, thinking: opensThought(tokenizer.decode(ids.slice(-PROMPT_END))), tools: tools ?? [] };
}

/** The text of a sequence as its tokens come, and why it ends when it does. */
export class StopChecker {
  readonly #tokenizer: Tokenizer;
  readonly #decoder: StreamDecoder;
  readonly #stops: StopStrings;
  readonly #parser: AnswerParser;
  readonly #limit: number;
  readonly #signal: AbortSignal | undefined;
  #count = 0;

  /** Ends at an EOS token, a stop string, after `limit` tokens, or when the signal is aborted. */
  constructor(tokenizer: Tokenizer, { stop, limit, signal, format }: StopOptions) {
    this.#tokenizer = tokenizer;
    this.#decoder = tokenizer.decoder();
    this.#stops = new StopStrings(checkTexts("stop", typeof stop === "string" ? [stop] : stop));
    this.#parser = new AnswerParser(format);
    this.#limit = limit;
    checkSignal(signal);
    this.#signal = signal;
  }

  /** Tokens so far. */
  get count(): number {
    return this.#count;
  }

  /** Takes the next token. */
  push(token: number): AnswerParts & Pick<GenerationResponse, "raw" | "finishReason"> {
    const full = ++this.#count === this.#limit;
    const eos = this.#tokenizer.eosTokenIds.has(token);
    const ended = eos || full || this.#signal?.aborted === true;
    const decoded = (eos ? "" : this.#decoder.push(token)) + (ended ? this.#decoder.finish() : "");
    let raw = this.#stops.push(decoded);
    if (ended) raw += this.#stops.finish();
    const finishReason = eos || this.#stops.found ? "stop" : full ? "length" : ended ? "abort" : null;
    return { ...this.#parser.push(raw, finishReason !== null), raw, finishReason };
  }
}

/** Most tokens to generate behind a prompt of `count` that follows `offset` others. Throws where the context has no room for it. */
export function tokensFor(model: LanguageModel, count: number, offset: number, maxTokens: number): number {
  const room = model.config.maxPositionEmbeddings - offset - count;
  if (room < 0) {
    throw new LlmError(
      "context",
      `The prompt has ${count} tokens and the context has room for ${room + count}: shorten the prompt`,
    );
  }
  return Math.min(maxTokens, room + 1); // the last token need not be fed back
}

/** The tokens of a prompt. */
export function encodePrompt(
  model: LanguageModel,
  tokenizer: Tokenizer,
  prompt: Prompt,
  options: ChatOptions,
): number[] {
  if (typeof prompt !== "string" && typeof prompt?.[Symbol.iterator] !== "function") {
    throw new LlmError("option", "The prompt is neither a text nor a list of token ids or messages");
  }
  const ids = typeof prompt === "string"
    ? encodeText(tokenizer, prompt)
    : isConversation(prompt)
    ? tokenizer.encodeChat(prompt, options)
    : [...prompt];
  if (ids.length === 0) throw new LlmError("context", "The prompt is empty");
  return checkIds(model, ids, "The prompt", "token ids or messages");
}

/** The ids of a text with those around it, as mlx-lm reads prompts: a text that begins with its first token gets none. */
function encodeText(tokenizer: Tokenizer, text: string): number[] {
  const { bosToken } = tokenizer;
  return tokenizer.encode(text, { addSpecialTokens: !bosToken || !text.startsWith(bosToken) });
}

/** How many of the tokens held begin a prompt; its last one has to be read in any case. */
function commonTokens(held: readonly number[], ids: readonly number[]): number {
  const most = Math.min(held.length, ids.length - 1);
  let count = 0;
  while (count < most && held[count] === ids[count]) count++;
  return count;
}

function isConversation(prompt: readonly number[] | readonly ChatMessage[]): prompt is readonly ChatMessage[] {
  return typeof prompt[0] === "object";
}

/** `count` per second; 0 where no time passed. */
export function perSecond(count: number, milliseconds: number): number {
  return milliseconds > 0 ? count * 1000 / milliseconds : 0;
}

/** Throws unless a cache is one that the model makes for one sequence. */
function checkCache(model: LanguageModel, cache: KvCache): void {
  if (cache instanceof KvCache && cache.isLike(model.makeCache())) return;
  throw new LlmError("option", "The cache is not one of this model for one sequence: make it with model.makeCache()");
}

/** Throws unless an option is a list of texts. */
function checkTexts(name: string, texts: readonly string[]): readonly string[] {
  if (Array.isArray(texts) && texts.every((text) => typeof text === "string")) return texts;
  throw new LlmError("option", `${name} is ${texts}, expected a text or a list of texts`);
}

/** Throws unless a count is a positive integer, or without end. */
export function checkCount(name: string, value: number): void {
  if (value !== Infinity && !(Number.isSafeInteger(value) && value >= 1)) {
    throw new LlmError("option", `${name} is ${value}, expected a positive integer`);
  }
}
