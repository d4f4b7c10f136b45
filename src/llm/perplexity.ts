/**
 * Perplexity: how well a model foretells a text, as exp of the mean negative log-likelihood of its tokens.
 *
 * The text is cut into windows. With `stride` as long as the window they follow each other, which is what `mlx_lm.perplexity` measures;
 * with a shorter one they overlap, and of each only the tokens count that no window before it has scored, as in Hugging Face's
 * sliding window. The first token of a window has nothing in front of it and never counts.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { quoted } from "../graph/error.ts";
import { interruptible } from "../notebook/interrupt.ts";
import { checkSignal } from "./abort.ts";
import { checkModel, checkOptions } from "./arguments.ts";
import { LlmError } from "./error.ts";
import type { LanguageModel } from "./models/mod.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** Options of {@link perplexity}. */
export interface PerplexityOptions {
  /** Tokens of a window, at least 2. Default 512, or the model's context where that is shorter. */
  readonly context?: number;
  /** Tokens from the begin of one window to that of the next, at most `context`, which it is unless given. */
  readonly stride?: number;
  /** Leave out a last window that the text does not fill, as mlx-lm does. Default false. */
  readonly dropLast?: boolean;
  /** Called as tokens are scored. */
  readonly onProgress?: (tokensDone: number, tokensTotal: number) => void;
  /** Ends the work. */
  readonly signal?: AbortSignal;
}

const PERPLEXITY_OPTIONS = {
  context: true,
  stride: true,
  dropLast: true,
  onProgress: true,
  signal: true,
} as const satisfies Record<keyof PerplexityOptions, true>;

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

/** Most tokens whose logits are there at once: 128 of them take 78 MB for a vocabulary of 151,936. */
const LOGITS_TOKENS = 128;

/** A window of the text: tokens `from` to `to`, of which those from `scored` on count. */
interface Window {
  readonly from: number;
  readonly to: number;
  readonly scored: number;
}

/**
 * The perplexity of a text, or of token ids. Probabilities are computed in float32.
 *
 * Throws an {@link LlmError} for options out of range and for texts of fewer tokens than a window needs, and the signal's reason when
 * it is aborted.
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
  checkSignal(signal);
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
  for (const window of list) {
    for await (const nlls of score(model, ids, window, signal)) {
      for (const nll of nlls) {
        const distance = nll - mean;
        mean += distance / ++tokens;
        squares += distance * (nll - mean);
      }
      onProgress?.(tokens, total);
    }
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

/** Negative log-likelihoods of the tokens of a window that count, piece by piece. */
async function* score(
  model: LanguageModel,
  ids: readonly number[],
  { from, to, scored }: Window,
  signal: AbortSignal | undefined,
): AsyncGenerator<Float32Array, void, void> {
  using cache = model.makeCache();
  cache.reserve(to - from);
  // Token i is foretold by the logits of the one in front of it.
  for (let at = from; at < to - 1;) {
    signal?.throwIfAborted();
    const end = Math.min(at + LOGITS_TOKENS, to - 1);
    const first = Math.max(at, scored - 1); // whose logits count
    using nll = mx.tidy(() => {
      const rows = mx.arange(Math.min(first, end - 1) - at, end - at, 1, mx.int32);
      const logits = model.forward(mx.array([ids.slice(at, end)], mx.int32), cache, rows).astype(mx.float32);
      const next = mx.array([ids.slice(Math.min(first, end - 1) + 1, end + 1)], mx.int32);
      const chosen = mx.takeAlongAxis(logits, mx.expandDims(next, -1), -1).squeeze(-1);
      return mx.subtract(mx.logsumexp(logits, -1), chosen).reshape(-1) as Tensor<"float32", 1>;
    });
    await mx.asyncEval(nll, ...cache.state);
    if (first < end) yield nll.toTypedArray();
    at = end;
  }
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
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw new LlmError("option", `${name} is ${value}, expected a whole number from ${least} to ${most}`);
}
