/**
 * The generation loop: prompt in, tokens out, text on top.
 *
 * {@link generateStep} yields ids: it has decode/session.ts read the prompt in chunks and run its loop. {@link streamGenerate} turns ids
 * into text, and ends where stop_checker.ts says.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../../array/mod.ts";
import { interruptibleStream } from "../host.ts";
import { untilAborted } from "../abort.ts";
import { checkModel, checkOptions } from "../arguments.ts";
import { GenerationSession } from "../decode/session.ts";
import type { DecodedToken } from "../decode/sequence.ts";
import type { DecodeOptions } from "../decode/state.ts";
import { untilIdle } from "../decode/submit.ts";
import { LlmError } from "../error.ts";
import { GENERATE_OPTIONS, type GenerateOptions, STEP_OPTIONS, type StepOptions } from "../sampling/options.ts";
import { requestsOf } from "./request.ts";
import { type GenerationResponse, perSecond } from "../sampling/response.ts";
import type { KvCache } from "../kv/cache.ts";
import type { CacheOptions } from "../kv/make_cache.ts";
import { type DecodingModel, decodingModel, type LanguageModel } from "../models/mod.ts";
import type { Prompt } from "./prompt.ts";
import { speculationOf } from "./speculation.ts";
import { Constraint } from "../structured/constraint.ts";
import { grammarOf } from "../structured/response_format.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** Milliseconds after which other tasks get their turn. */
const TURN_MS = 2;
/** Most tokens of a forward pass that may be aborted, on a device that is slow. */
const MAX_ABORTABLE = 512;
/** Most of one where layers are on several devices, which read parts of a prompt at the same time. */
const MAX_OVERLAPPED = 512;
/** Most tokens to come that a cache makes room for when it takes a prompt: growing means a copy and another trace. */
const ROOM = 256;
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
export function generateStep(
  prompt: readonly number[],
  model: LanguageModel,
  options: StepOptions,
): AsyncGenerator<number, void, void> {
  return interruptibleStream(options, async function* (heeding) {
    checkOptions("generateStep", heeding, STEP_OPTIONS);
    using speculation = speculationOf(heeding, heeding.cache.ring !== undefined, model);
    speculation?.drafts.extend([...heeding.cache.tokens, ...prompt]);
    for await (const tokens of generateTokens(prompt, model, { ...heeding, speculation: speculation?.drafts })) {
      for (const { token } of tokens) yield token;
    }
  });
}

/** Options of a step, what its tokens may be and what drafts them. */
type DecodingOptions = Omit<StepOptions, "speculation"> & Pick<DecodeOptions, "constraint" | "speculation">;

/** The same in the lists that the device computes them in: every `await` costs more than reading a token. */
async function* generateTokens(
  prompt: readonly number[],
  model: LanguageModel,
  options: DecodingOptions,
): AsyncGenerator<Iterable<DecodedToken>, void, void> {
  const { cache, onPrompt } = options;
  const known = cache.tokens.length === cache.offset;
  const held = known ? [...cache.tokens, ...prompt] : [];
  try {
    using session = await openPrompt(prompt, model, options);
    let reading = true;
    for await (const tokens of yieldToEventLoop(session.tokens())) {
      if (reading) onPrompt?.(prompt.length, prompt.length);
      reading = false;
      yield record(tokens, held);
    }
  } finally {
    if (known) cache.remember(held);
  }
}

/** The same tokens; each one that is read goes to the end of `held`. */
function* record(tokens: Iterable<DecodedToken>, held: number[]): Generator<DecodedToken, void, void> {
  for (const decoded of tokens) {
    held.push(decoded.token);
    yield decoded;
  }
}

/** Rows that a cache should have for a prompt and its answer. */
export function roomFor(prompt: readonly number[], maxTokens: number): number {
  return prompt.length + Math.min(maxTokens, ROOM);
}

/** Most tokens of a forward pass over a prompt. Passes take long on slow devices, of which some cannot stop in the middle of one. */
export function chunkLength(
  model: DecodingModel,
  { prefillStepSize, signal }: Pick<StepOptions, "prefillStepSize" | "signal">,
): number {
  const { device: { drops, concurrent }, placement } = model;
  const most = signal && !drops && !concurrent ? MAX_ABORTABLE : Infinity;
  return Math.min(prefillStepSize, most, placement ? MAX_OVERLAPPED : Infinity);
}

/** A session that has read its prompt but for a last chunk. Throws the signal's reason when it is aborted meanwhile. */
async function openPrompt(
  prompt: readonly number[],
  model: LanguageModel,
  options: DecodingOptions,
): Promise<GenerationSession> {
  const { cache, maxTokens, signal, onPrompt } = options;
  signal?.throwIfAborted();
  if (signal) await untilIdle(model, signal); // before memory is taken
  cache.reserve(prompt.length, roomFor(prompt, maxTokens));
  const onRead = onPrompt && ((share: number, count: number): void => {
    onPrompt(prompt.length - session.unread - count + Math.floor(share * count), prompt.length);
  });
  const session = new GenerationSession(model, cache, prompt, maxTokens, { ...options, ...(onRead && { onRead }) });
  try {
    const count = Math.min(chunkLength(decodingModel(model), options), cache.maxPass);
    while (session.unread > count) {
      await session.read(count);
      await setImmediate();
      onPrompt?.(prompt.length - session.unread, prompt.length);
      signal?.throwIfAborted();
    }
  } catch (error) {
    await session.idle().catch(() => {}); // the caller gets the error that came first
    session[Symbol.dispose]();
    throw error;
  }
  return session;
}

/** The same values; timers, signals and other tasks get their turn between them. */
async function* yieldToEventLoop<T>(values: AsyncIterable<T>): AsyncGenerator<T, void, void> {
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
 * Throws an {@link LlmError} for options out of range and for prompts that are empty or longer than the context, before any work. An
 * abort before the first token throws the signal's reason. An interrupt of the notebook's cell ends it, with an error.
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

/** The options of a cache among those of a generation. */
function cacheOptions({ kvBits, maxKvSize }: GenerateOptions): CacheOptions {
  return { ...(kvBits !== undefined && { kvBits }), ...(maxKvSize !== undefined && { maxKvSize }) };
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
  if (options.cache) {
    const [own] = Object.keys(cacheOptions(options));
    if (own) {
      throw new LlmError("option", `${own} is of a cache that is made: give it to makeCache() instead of beside cache`);
    }
    await untilFree(options.cache);
  }
  const grammar = grammarOf(options.responseFormat);
  using constraint = await Constraint.open(tokenizer, model.config.vocabSize, grammar, signal);
  const [request] = requestsOf(model, tokenizer, [{ ...options, prompt }], options);
  const { ids, cached, offset, thinking, stopChecker, settings } = request;
  constraint?.begin(ids, thinking);
  const unread = ids.slice(cached);
  const isRing = (options.cache?.ring ?? options.maxKvSize) !== undefined;
  using speculation = speculationOf(settings, isRing, model, tokenizer);
  const drafts = speculation?.drafts;
  const cache = options.cache ?? model.makeCache(cacheOptions(options));
  checkFree(cache);
  cache.trim(cache.offset - offset); // no option is wrong
  drafts?.extend([...cache.tokens, ...unread]);
  busy.add(cache);
  const started = performance.now();
  let first = 0;
  let count = 0;
  const steps = generateTokens(unread, model, { ...settings, cache, constraint, speculation: drafts });
  try {
    for await (const tokens of untilAborted(steps, signal)) {
      const peakMemory = mx.getPeakMemory() / 1e9;
      for (const { token, logprobs } of tokens) {
        const now = performance.now();
        if (++count === 1) first = now;
        const parts = stopChecker.push(token);
        drafts?.take();
        yield {
          ...parts,
          token,
          ...(logprobs && { logprobs }),
          promptTokens: ids.length,
          cachedTokens: cached,
          promptTps: perSecond(unread.length, first - started),
          generationTokens: count,
          generationTps: perSecond(count - 1, now - first),
          ...(drafts && { draftedTokens: drafts.drafted, acceptedTokens: drafts.accepted }),
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
    // Memory that the device still uses for an aborted prompt lives until the device is done, but no caller waits for that.
    if (count === 0 && signal?.aborted) closing.set(cache, closed.catch(() => {}));
    else await closed;
  }
}
