/**
 * How well a model predicts a text: its perplexity, as mlx-lm measures it or with a sliding window.
 *
 * The text is cut into windows of `context` tokens. A window is one step of several on the device: its tokens go through all layers at
 * once, then the head and the log-sum-exp over the vocabulary over a few rows at a time, so that no more of the logits is ever held. The
 * step is traced once for all windows of a size; the last one is padded, which nothing in front of the padding sees.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { DeviceLoop, peekFloats, poke, visible } from "../array/loop.ts";
import { checkSignal } from "./abort.ts";
import { checkIds, checkModel, checkOptions } from "./arguments.ts";
import { LlmError } from "./error.ts";
import { checkCount, encodeText } from "./generate.ts";
import { checkHiddenStates, type WithHiddenStates } from "./hidden_states.ts";
import type { LanguageModel } from "./models/mod.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** Options of {@link perplexity}. */
export interface PerplexityOptions {
  /** Tokens of a window. Default 512, or the model's context where that is shorter. */
  readonly context?: number;
  /**
   * Tokens from the begin of a window to that of the next, at most `context`. Without it windows do not overlap and what is left behind
   * the last whole one is passed over.
   */
  readonly stride?: number;
  /** Windows that go through the model together. As many as have 2048 tokens unless given, one on the CPU. */
  readonly batchSize?: number;
  /** Called as tokens are done, of all that will be scored. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Ends it: its reason is thrown. */
  readonly signal?: AbortSignal;
}

/** What {@link perplexity} finds. */
export interface Perplexity {
  /** exp(nll) */
  readonly perplexity: number;
  /** Standard error of the perplexity: the perplexity times the standard deviation of the losses over √tokens. */
  readonly stderr: number;
  /** Mean negative log likelihood of a token, natural logarithm. */
  readonly nll: number;
  /** Tokens that were scored. */
  readonly tokens: number;
  /** How long it took. */
  readonly seconds: number;
}

const OPTIONS = {
  batchSize: true,
  context: true,
  onProgress: true,
  signal: true,
  stride: true,
} as const satisfies Record<keyof PerplexityOptions, true>;

const CONTEXT = 512;
/** Tokens of windows that go through the model together on a GPU. */
const TOGETHER = 2048;
/** Most logits that are there at a time, and what rows of them are a multiple of. */
const MOST_LOGITS = 2 ** 24;
const TILE = 16;

/** Some tokens of a text, of which those from `from` on are scored. */
interface Window {
  readonly begin: number;
  readonly end: number;
  /** At least 1, counted from `begin`: the first token has nothing in front of it. */
  readonly from: number;
}

/**
 * The perplexity of a text, or of token ids: exp of the mean negative log likelihood, in float32 on the device.
 *
 * Without `stride` it is that of `mlx_lm.perplexity`: windows of `context` tokens that do not overlap, every token of each scored but its
 * first, a rest that fills no window passed over. A text shorter than `context` is one window. With `stride`, windows begin every `stride`
 * tokens and each token is scored once, in the first window that it is in: all but the first of the text, with at least
 * `context` - `stride` tokens in front where those are there; where the two are equal, the first of each window is not. That is the strided evaluation of transformers' documentation.
 *
 * A text gets the special tokens that its tokenizer adds, once. Throws an {@link LlmError} for options out of range and fewer than two
 * tokens, and with code "logits" where logits have NaN or infinity in them.
 *
 * @example
 * ```ts ignore
 * const text = await Deno.readTextFile("wiki.test.raw");
 * const { perplexity, stderr } = await mx.lm.perplexity(model, tokenizer, text, { context: 2048, stride: 512 });
 * ```
 */
export async function perplexity(
  model: LanguageModel,
  tokenizer: Tokenizer,
  text: string | readonly number[],
  options: PerplexityOptions = {},
): Promise<Perplexity> {
  checkModel("perplexity", model, tokenizer);
  checkHiddenStates("perplexity", model);
  checkOptions("perplexity", options, OPTIONS);
  const { onProgress, signal } = options;
  checkSignal(signal);
  const most = model.config.maxPositionEmbeddings;
  const context = within("context", options.context ?? Math.min(CONTEXT, most), 2, most);
  if (options.stride !== undefined) within("stride", options.stride, 1, context);
  checkCount("batchSize", options.batchSize ?? 1);
  if (typeof text !== "string" && !Array.isArray(text)) {
    throw new LlmError("option", "perplexity() expected a text or a list of token ids");
  }
  const ids = checkIds(model, typeof text === "string" ? encodeText(tokenizer, text) : [...text], "The text");
  if (ids.length < 2) {
    throw new LlmError("context", `The text has ${ids.length} tokens: at least 2 are needed`);
  }
  const started = performance.now();
  const windows = windowsOf(ids.length, context, options.stride);
  const total = windows.reduce((sum, { begin, end, from }) => sum + end - begin - from, 0);
  const together = model.traces.tiled ? Math.max(1, Math.floor(TOGETHER / context)) : 1;
  const losses = new Float64Array(total);
  let done = 0;
  for (const batch of batches(windows, options.batchSize ?? together)) {
    signal?.throwIfAborted();
    for (const loss of await score(model, ids, batch, Math.min(context, ids.length), signal)) losses[done++] = loss;
    onProgress?.(done, total);
    await setImmediate(); // other tasks get their turn
  }
  return { ...summary(losses), tokens: total, seconds: (performance.now() - started) / 1000 };
}

/** Throws unless an option is an integer of a range. */
function within(name: string, value: number, low: number, high: number): number {
  if (Number.isInteger(value) && value >= low && value <= high) return value;
  throw new LlmError("option", `${name} is ${value}, expected an integer from ${low} to ${high}`);
}

/** The windows of a text of `count` tokens. */
function windowsOf(count: number, context: number, stride: number | undefined): Window[] {
  const length = Math.min(context, count);
  if (stride === undefined) {
    const whole = Math.floor(count / length);
    return Array.from({ length: whole }, (_, i) => ({ begin: i * length, end: (i + 1) * length, from: 1 }));
  }
  const number = 1 + Math.ceil((count - length) / stride);
  const all = Array.from({ length: number }, (_, i) => ({
    begin: i * stride,
    end: Math.min(count, i * stride + length),
    from: i === 0 ? 1 : Math.max(1, length - stride),
  }));
  return all.filter(({ begin, end, from }) => begin + from < end); // one token that is left has nothing in front of it
}

/** Windows in batches of equal sizes whose scored tokens begin alike. */
function* batches(windows: readonly Window[], size: number): Generator<readonly Window[], void, void> {
  for (let at = 0; at < windows.length;) {
    const alike = windows.slice(at, at + size).findIndex(({ from }) => from !== windows[at].from);
    const batch = windows.slice(at, alike < 0 ? at + size : at + alike);
    yield batch;
    at += batch.length;
  }
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

/** The losses of the tokens of some windows, which are padded to `length`. */
async function score(
  model: WithHiddenStates,
  ids: readonly number[],
  windows: readonly Window[],
  length: number,
  signal: AbortSignal | undefined,
): Promise<number[]> {
  const [{ from }] = windows;
  const scored = length - from;
  const tokens = new Int32Array(windows.length * length).fill(ids[0]);
  const targets = new Int32Array(windows.length * scored).fill(ids[0]);
  windows.forEach(({ begin, end }, i) => {
    tokens.set(ids.slice(begin, end), i * length);
    targets.set(ids.slice(begin + from, end), i * scored);
  });
  const state: State = {
    ids: visible(tokens),
    targets: visible(targets),
    logprobs: visible(new Float32Array(targets.length)),
  };
  try {
    const name = `perplexity ${windows.length} ${from}`;
    const traced = model.traces.trace(name, state, (now: State) => step(model, now, windows.length, from));
    if (!traced.ready) await model.traces.prepare(traced);
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
    const found = peekFloats(state.logprobs);
    return windows.flatMap(({ begin, end }, i) =>
      Array.from(found.subarray(i * scored, i * scored + end - begin - from), (logprob, at) => {
        if (Number.isFinite(logprob)) return -logprob;
        const position = begin + from + at;
        throw new LlmError(
          "logits",
          `The logits behind ${position} tokens of the text give token ${ids[position]} no finite probability`,
        );
      })
    );
  } finally {
    mx.dispose(state);
  }
}

/** Scores the windows of a state. */
function step(model: WithHiddenStates, now: State, windows: number, from: number): State {
  const hidden = model.hiddenStates(now.ids.reshape([windows, -1])).at(-1)!;
  const [, length, width] = hidden.shape;
  // What a row gives is compared with the token behind it; the last one has none.
  const rows = hidden.index(mx.Slice(null), mx.Slice(from - 1, length - 1)).reshape([-1, width]);
  const most = Math.max(TILE, Math.floor(MOST_LOGITS / model.config.vocabSize / TILE) * TILE);
  const parts: Tensor[] = [];
  for (let at = 0; at < rows.shape[0]; at += most) {
    const range = mx.Slice(at, Math.min(at + most, rows.shape[0]));
    parts.push(mx.fast.logprobs(model.logits(rows.index(range)), now.targets.index(range), 0).reshape([-1]));
  }
  return { ...now, logprobs: parts.length > 1 ? mx.concatenate(parts, 0) : parts[0] };
}

/** The mean of losses and what follows from it, in float64. */
function summary(losses: Float64Array): Pick<Perplexity, "perplexity" | "stderr" | "nll"> {
  const count = losses.length;
  const nll = losses.reduce((sum, loss) => sum + loss, 0) / count;
  const variance = losses.reduce((sum, loss) => sum + (loss - nll) ** 2, 0) / Math.max(1, count - 1);
  const perplexity = Math.exp(nll);
  return { perplexity, stderr: perplexity * Math.sqrt(variance / count), nll };
}
