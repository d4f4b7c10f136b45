/**
 * Embeddings: one vector for a text, made of the hidden states of its tokens.
 *
 * Texts of similar lengths go through the model together, padded at their ends. Attention is causal, so padding changes nothing
 * before it. A long text goes layer by layer, so that other work of the device and the event loop get their turns.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";
import { interruptible } from "../host.ts";
import { checkSignal } from "../abort.ts";
import { checkModel, checkOptions, type OptionKind } from "../arguments.ts";
import { LlmError, optionError } from "../error.ts";
import { checkCount } from "./request.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** What the vector of a text is made of: the state of its last token, of its first, or the mean of all. */
export type Pooling = "last" | "cls" | "mean";

/** Options of {@link embed}. */
export interface EmbedOptions {
  /** Which states count. Default "last", as for models that embed with a decoder. */
  readonly pooling?: Pooling;
  /** Whether vectors get length 1, so that their product is the cosine. Default true. */
  readonly normalize?: boolean;
  /**
   * What is looked for, in one sentence: each text becomes "Instruct: …\nQuery:…", the form that Qwen3-Embedding has for queries;
   * documents get none.
   */
  readonly instruction?: string;
  /** Most tokens of a text; longer texts are an error, or cut if `truncate` is set. Default the model's context. */
  readonly maxTokens?: number;
  /** Cut texts that are too long; what the tokenizer puts around them stays. Default false. */
  readonly truncate?: boolean;
  /** Most tokens that go through the model together. Default 4096. Of a longer text, only some layers are computed at a time. */
  readonly batchTokens?: number;
  /** Ends the work between two batches, or between layers of a long text. */
  readonly signal?: AbortSignal;
}

const EMBED_OPTIONS = {
  pooling: true,
  normalize: "boolean",
  instruction: "text",
  maxTokens: "number",
  truncate: "boolean",
  batchTokens: "number",
  signal: true,
} as const satisfies Record<keyof EmbedOptions, OptionKind>;

const POOLINGS: readonly string[] = ["last", "cls", "mean"] satisfies readonly Pooling[];

/** What makes lengths of 0 into ones that can be divided by. */
const MIN_LENGTH = 1e-12;

/**
 * One vector for each text: float32 (texts, hidden size), evaluated. Tokens that the tokenizer adds around a text count too. For
 * Qwen3-Embedding the vector is the state of the added end token (Zhang et al., "Qwen3 Embedding", 2025,
 * https://arxiv.org/abs/2506.05176). Some models are trained with an instruction: write it into the text, in the model's form.
 *
 * Throws an {@link LlmError} for texts that are empty or too long before any work, and the signal's reason when it is aborted.
 *
 * @example
 * ```ts ignore
 * const vectors = await mx.lm.embed(model, tokenizer, ["a cat", "a kitten", "a bridge"]);
 * console.log(mx.matmul(vectors, vectors.T).tolist()); // cosines
 * ```
 */
export async function embed(
  model: LanguageModel,
  tokenizer: Tokenizer,
  texts: readonly string[],
  options: EmbedOptions = {},
): Promise<Tensor<"float32", 2>> {
  return await interruptible(options, (heeding) => embedAll(model, tokenizer, texts, heeding));
}

async function embedAll(
  model: LanguageModel,
  tokenizer: Tokenizer,
  texts: readonly string[],
  options: EmbedOptions,
): Promise<Tensor<"float32", 2>> {
  checkModel("embed", model, tokenizer);
  checkOptions("embed", options, EMBED_OPTIONS);
  const { pooling = "last", normalize = true, batchTokens = 4096, signal } = options;
  if (!POOLINGS.includes(pooling)) {
    throw optionError("pooling", pooling, `one of ${POOLINGS.join(", ")}`);
  }
  checkCount("batchTokens", batchTokens);
  checkSignal(signal);
  const all = encode(model, tokenizer, texts, options);
  const vectors: Tensor[] = [];
  try {
    for (const group of batches(all.map((ids) => ids.length), batchTokens)) {
      signal?.throwIfAborted();
      const texts = group.map((i) => all[i]);
      using states = await lastStates(model, texts, batchTokens, signal);
      using pooled = mx.tidy(() => pool(states, texts.map((ids) => ids.length), pooling));
      await mx.asyncEval(pooled);
      await yieldToEventLoop();
      group.forEach((text, row) => vectors[text] = pooled.index(row));
    }
    const result = mx.tidy(() => {
      if (vectors.length === 0) return mx.zeros([0, 0]);
      const rows = mx.stack(vectors);
      if (!normalize) return rows;
      return mx.divide(rows, mx.maximum(mx.linalg.norm(rows, 2, -1, true), MIN_LENGTH));
    }) as Tensor<"float32", 2>;
    await mx.asyncEval(result);
    return result;
  } finally {
    mx.dispose(vectors.filter((vector) => vector !== undefined)); // an abort leaves gaps
  }
}

/** The tokens of texts, checked. */
function encode(
  model: LanguageModel,
  tokenizer: Tokenizer,
  texts: readonly string[],
  { maxTokens = model.config.maxPositionEmbeddings, truncate = false, instruction }: EmbedOptions,
): number[][] {
  if (!Array.isArray(texts)) throw new LlmError("option", "embed() expected a list of texts: wrap a single one in [ ]");
  checkCount("maxTokens", maxTokens);
  const prefix = instruction === undefined ? "" : `Instruct: ${instruction}\nQuery:`;
  const limit = Math.min(maxTokens, model.config.maxPositionEmbeddings);
  return texts.map((text, i) => {
    const ids = tokenizer.encode(prefix + text);
    if (ids.length === 0) throw new LlmError("context", `Text ${i} is empty`);
    if (ids.length <= limit) return ids;
    if (truncate) return cut(ids, tokenizer.encode(prefix + text, { addSpecialTokens: false }), limit);
    throw new LlmError("context", `Text ${i} has ${ids.length} tokens, at most ${limit}: shorten it or set truncate`);
  });
}

/** The first `limit` of a text's ids. They keep the ids that the tokenizer appends: the vector may come from the last one. */
function cut(ids: readonly number[], inner: readonly number[], limit: number): number[] {
  const around = ids.length - inner.length;
  let before = 0;
  while (before < around && inner.some((id, i) => ids[before + i] !== id)) before++;
  const behind = Math.min(around - before, limit);
  return [...ids.slice(0, limit - behind), ...ids.slice(ids.length - behind)];
}

/** Numbers of texts that go together, like lengths beside each other, in batches of at most `most` tokens or of one text. */
function batches(lengths: readonly number[], most: number): number[][] {
  const groups: number[][] = [];
  let group: number[] = [];
  for (const i of lengths.map((_, i) => i).sort((a, b) => lengths[b] - lengths[a])) {
    if (group.length > 0 && (group.length + 1) * lengths[group[0]] > most) {
      groups.push(group);
      group = [];
    }
    group.push(i);
  }
  if (group.length > 0) groups.push(group);
  return groups;
}

/**
 * The last hidden states of a batch, (B, T, H). Of more than `most` tokens, some layers are computed at a time: as much work as `most`
 * tokens in all layers.
 */
async function lastStates(
  model: LanguageModel,
  texts: readonly (readonly number[])[],
  most: number,
  signal?: AbortSignal,
): Promise<Tensor> {
  const longest = Math.max(...texts.map((ids) => ids.length));
  const filled = texts.map((ids) => [...ids, ...new Array<number>(longest - ids.length).fill(0)]);
  const states = mx.tidy(() => model.hiddenStates(mx.array(filled, mx.int32)));
  const last = states.length - 1;
  const layers = Math.max(1, Math.floor(states.length * most / (texts.length * longest)));
  const [turns, between] = [true, false].map((wanted) =>
    states.filter((_, i) => wanted === (i === last || i > 0 && i % layers === 0))
  );
  mx.dispose(between);
  try {
    for (let i = 0; i < turns.length - 1; i++) {
      await mx.asyncEval(turns[i]);
      turns[i - 1]?.[Symbol.dispose]();
      await yieldToEventLoop();
      signal?.throwIfAborted();
    }
    return turns.pop()!;
  } finally {
    mx.dispose(turns);
  }
}

/** The vectors of a batch, float32 (texts, hidden size), of its states (B, T, H) and the lengths of its texts. */
function pool(given: Tensor, counts: readonly number[], pooling: Pooling): Tensor {
  const states = given.astype(mx.float32);
  const lengths = mx.array(counts, mx.int32).reshape(-1, 1, 1);
  const [batch, longest, size] = states.shape;
  if (pooling === "mean") {
    const within = mx.less(mx.arange(longest, null, null, mx.int32).reshape(1, -1, 1), lengths);
    return mx.divide(mx.sum(mx.where(within, states, 0), 1), lengths.reshape(-1, 1));
  }
  if (pooling === "cls") return mx.take(states, 0, 1);
  const at = mx.broadcastTo(mx.subtract(lengths, 1), [batch, 1, size]);
  return mx.takeAlongAxis(states, at, 1).squeeze(1);
}
