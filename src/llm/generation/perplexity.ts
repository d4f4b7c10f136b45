/**
 * Perplexity: how well a model predicts a text, as exp of the mean negative log-likelihood of its tokens.
 *
 * The text is cut into windows. With a `stride` as long as the window, windows follow each other, as in `mlx_lm.perplexity`. With a
 * shorter one they overlap, and a window counts only the tokens that no earlier window scored, as in Hugging Face's sliding window.
 * The first token of a window has no token before it and never counts.
 *
 * A few windows are one step on the device. Their tokens go through all layers at once. The head and the log-sum-exp over the
 * vocabulary then take a few rows at a time, so only these logits are held. The step is traced once for all windows of a size. The
 * last window is padded; causal attention keeps the padding from earlier tokens.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, readMappedFloats } from "../../array/compile/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted } from "../../graph/error.ts";
import { interruptible } from "../host.ts";
import { checkSignal } from "../abort.ts";
import { checkModel, checkNumber, checkOptions, type OptionKind } from "../arguments.ts";
import { LlmError } from "../error.ts";
import type { Cache } from "../kv/cache.ts";
import { CodedPass } from "../kv/coded_pass.ts";
import { type CacheOptions, checkCacheOptions } from "../kv/make_cache.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";

/** Options of {@link perplexity}. */
export interface PerplexityOptions {
  /** Tokens of a window, at least 2. Default 512, or the model's context where that is shorter. */
  readonly context?: number;
  /** Tokens from the begin of one window to that of the next, at most `context`; default `context`. */
  readonly stride?: number;
  /** Leave out a last window that the text does not fill, as mlx-lm does. Default false. */
  readonly dropLast?: boolean;
  /** Windows that go through the model together; default as many as have 2048 tokens, one on the CPU. */
  readonly batchSize?: number;
  /** 8 has attention see keys and values as a cache with 8 bits gives them back, see {@link CacheOptions}. Default: as they are. */
  readonly kvBits?: CacheOptions["kvBits"];
  /** Called as tokens are scored. */
  readonly onProgress?: (tokensDone: number, tokensTotal: number) => void;
  /** Ends the work. */
  readonly signal?: AbortSignal;
}

const PERPLEXITY_OPTIONS = {
  context: "number",
  stride: "number",
  dropLast: "boolean",
  batchSize: "number",
  kvBits: "number",
  onProgress: "function",
  signal: true,
} as const satisfies Record<keyof PerplexityOptions, OptionKind>;

/** What {@link perplexity} found. */
export interface Perplexity {
  /** exp(nll) */
  readonly perplexity: number;
  /** Standard error of the perplexity, by the delta method: perplexity times that of the mean. NaN for a single token. */
  readonly standardError: number;
  /** Mean negative log-likelihood of a token, in nats. */
  readonly nll: number;
  /** Tokens that were scored. */
  readonly tokens: number;
  /** Seconds that it took. */
  readonly seconds: number;
}

/** Tokens of windows that go through the model together on a GPU. */
const TOGETHER = 2048;
/** Most logits that are there at once, and what rows of them are a multiple of. */
const MAX_LOGITS = 2 ** 24;
const TILE = 16;

/** A window of the text: tokens `from` to `to`, of which those from `scored` on count. */
interface Window {
  readonly from: number;
  readonly to: number;
  readonly scored: number;
}

/**
 * The perplexity of a text, or of token ids. Probabilities are computed in float32.
 *
 * Throws an {@link LlmError} for options out of range and for texts of fewer tokens than a window needs. An abort throws the
 * signal's reason.
 *
 * @example
 * ```ts ignore
 * const { perplexity, standardError } = await mx.lm.perplexity(model, tokenizer, await Deno.readTextFile("wiki.test.raw"));
 * ```
 */
export async function perplexity(
  model: LanguageModel,
  tokenizer: Tokenizer,
  text: string | readonly number[],
  options: PerplexityOptions = {},
): Promise<Perplexity> {
  return await interruptible(options, (heeding) => measure(model, tokenizer, text, heeding));
}

async function measure(
  model: LanguageModel,
  tokenizer: Tokenizer,
  text: string | readonly number[],
  options: PerplexityOptions,
): Promise<Perplexity> {
  checkModel("perplexity", model, tokenizer);
  checkOptions("perplexity", options, PERPLEXITY_OPTIONS);
  const most = model.config.maxPositionEmbeddings;
  const { context = Math.min(512, most), dropLast = false, onProgress, signal } = options;
  const { stride = context } = options;
  checkRange("context", context, 2, most);
  checkRange("stride", stride, 1, context);
  const together = decodingModel(model).device.tiled ? Math.max(1, Math.floor(TOGETHER / context)) : 1;
  const { batchSize = together } = options;
  checkRange("batchSize", batchSize, 1, Number.MAX_SAFE_INTEGER);
  checkSignal(signal);
  const { kvBits } = options;
  checkCacheOptions(decodingModel(model).poolSizes(), { kvBits });
  const ids = tokensOf(model, tokenizer, text);
  const list = windows(ids.length, { context, stride, dropLast });
  const total = list.reduce((sum, { to, scored }) => sum + to - scored, 0);
  if (total === 0) {
    const least = dropLast ? context : 2;
    throw new LlmError("context", `The text has ${ids.length} tokens, at least ${least} are needed`);
  }
  const started = performance.now();
  let tokens = 0;
  let mean = 0;
  let squares = 0; // of distances from the mean, by Welford's update
  onProgress?.(0, total);
  signal?.throwIfAborted();
  for (const batch of batches(list, batchSize)) {
    for (const nll of await score(model, ids, batch, Math.min(context, ids.length), { kvBits, signal })) {
      const distance = nll - mean;
      mean += distance / ++tokens;
      squares += distance * (nll - mean);
    }
    onProgress?.(tokens, total);
    await yieldToEventLoop(); // other tasks get their turn
    signal?.throwIfAborted();
  }
  const perplexity = Math.exp(mean);
  return {
    perplexity,
    standardError: perplexity * Math.sqrt(squares / (tokens - 1) / tokens),
    nll: mean,
    tokens,
    seconds: (performance.now() - started) / 1000,
  };
}

/** The windows over `count` tokens, each with something to score. */
function windows(
  count: number,
  { context, stride, dropLast }: { readonly context: number; readonly stride: number; readonly dropLast: boolean },
): Window[] {
  const found: Window[] = [];
  let scored = 0;
  for (let from = 0; scored < count; from += stride) {
    const to = Math.min(from + context, count);
    if (dropLast && to - from < context) break;
    const window = { from, to, scored: Math.max(scored, from + 1) };
    if (window.to > window.scored) found.push(window);
    scored = to;
  }
  return found;
}

/** Windows in batches of those whose scored tokens begin alike. */
function* batches(windows: readonly Window[], size: number): Generator<readonly Window[], void, void> {
  for (let at = 0; at < windows.length;) {
    const alike = windows.slice(at, at + size).findIndex((window) => skipped(window) !== skipped(windows[at]));
    const batch = windows.slice(at, alike < 0 ? at + size : at + alike);
    yield batch;
    at += batch.length;
  }
}

/** Tokens of a window before those that count. */
function skipped({ from, scored }: Window): number {
  return scored - from;
}

/** What a step reads and writes: B windows of T tokens, of which the last R of each are scored. */
interface State {
  /** int32 (B * T,): the tokens. */
  readonly ids: Tensor;
  /** int32 (B * R,): those that are scored. */
  readonly targets: Tensor;
  /** float32 (B * R,): their log probabilities. */
  readonly logprobs: Tensor;
}

/** Negative log-likelihoods of the tokens of some windows that count; shorter ones are filled up to `length` tokens. */
async function score(
  model: LanguageModel,
  ids: readonly number[],
  windows: readonly Window[],
  length: number,
  { kvBits, signal }: Pick<PerplexityOptions, "kvBits" | "signal">,
): Promise<number[]> {
  const skip = skipped(windows[0]);
  const count = length - skip;
  const tokens = new Int32Array(windows.length * length).fill(ids[0]);
  const targets = new Int32Array(windows.length * count).fill(ids[0]);
  windows.forEach(({ from, to, scored }, i) => {
    tokens.set(ids.slice(from, to), i * length);
    targets.set(ids.slice(scored, to), i * count);
  });
  const state: State = {
    ids: hostVisible(tokens),
    targets: hostVisible(targets),
    logprobs: hostVisible(new Float32Array(targets.length)),
  };
  try {
    const name = `perplexity ${windows.length} ${skip} ${kvBits}`;
    const decoding = decodingModel(model);
    const { traces } = decoding;
    const cacheOf = (): Cache | undefined => kvBits && new CodedPass(windows.length, decoding.poolSizes().states);
    const traced = traces.trace(name, state, (now: State) => step(model, now, cacheOf(), windows.length, skip));
    if (!traced.ready) await traces.prepare(traced);
    using loop = new DeviceLoop(state, traced);
    const ticket = loop.run();
    const drop = (): void => void loop.drop(ticket);
    signal?.addEventListener("abort", drop);
    try {
      await loop.done(ticket);
    } finally {
      signal?.removeEventListener("abort", drop);
    }
    signal?.throwIfAborted();
    const found = readMappedFloats(state.logprobs);
    return windows.flatMap(({ to, scored }, i) =>
      Array.from(found.subarray(i * count, i * count + to - scored), (logprob, at) => {
        if (Number.isFinite(logprob)) return -logprob;
        throw new LlmError(
          "logits",
          `The logits after ${scored + at} tokens of the text give token ${ids[scored + at]} no finite log probability`,
        );
      })
    );
  } finally {
    mx.dispose(state);
  }
}

/** Scores the windows of a state, of which the first `skip` tokens do not count. */
function step(model: LanguageModel, now: State, cache: Cache | undefined, windows: number, skip: number): State {
  const hidden = model.hiddenStates(now.ids.reshape([windows, -1]), cache).at(-1)!;
  const [, length, width] = hidden.shape;
  // Token i is predicted by the row of the token before it.
  const rows = hidden.index(mx.Slice(null), mx.Slice(skip - 1, length - 1)).reshape([-1, width]);
  const most = Math.max(TILE, Math.floor(MAX_LOGITS / model.config.vocabSize / TILE) * TILE);
  const parts: Tensor[] = [];
  for (let at = 0; at < rows.shape[0]; at += most) {
    const range = mx.Slice(at, Math.min(at + most, rows.shape[0]));
    parts.push(mx.fast.logprobs(model.logits(rows.index(range)), now.targets.index(range), 0).reshape([-1]));
  }
  return { ...now, logprobs: parts.length > 1 ? mx.concatenate(parts, 0) : parts[0] };
}

/** The ids of a text with those around it, or ids that were given. */
function tokensOf(model: LanguageModel, tokenizer: Tokenizer, text: string | readonly number[]): readonly number[] {
  if (typeof text === "string") return tokenizer.encode(text);
  const { vocabSize } = model.config;
  const isToken = (id: unknown): boolean => Number.isInteger(id) && Number(id) >= 0 && Number(id) < vocabSize;
  if (Array.isArray(text) && text.every(isToken)) return text;
  throw new LlmError("option", `perplexity() expected a text or token ids below ${vocabSize}: found ${quoted(text)}`);
}

function checkRange(name: string, value: number, least: number, most: number): void {
  const valid = Number.isSafeInteger(value) && value >= least && value <= most;
  checkNumber(name, value, valid, `a whole number from ${least} to ${most}`);
}
