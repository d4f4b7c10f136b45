/**
 * Texts as vectors: the last hidden states of a model, pooled over the tokens of each text.
 *
 * Texts of similar lengths go through the model together, padded at their ends. Attention is causal, so no token sees the padding behind
 * it and each text gets what it would get alone; pooling then leaves the padding out.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { checkSignal } from "./abort.ts";
import { checkModel, checkOptions } from "./arguments.ts";
import { promptRows } from "./decode_state.ts";
import { LlmError } from "./error.ts";
import { checkCount, encodeText } from "./generate.ts";
import { checkHiddenStates, type WithHiddenStates } from "./hidden_states.ts";
import type { LanguageModel } from "./models/mod.ts";
import type { Tokenizer } from "./tokenizer/tokenizer.ts";

/** Options of {@link embed}. */
export interface EmbedOptions {
  /** Which tokens make the vector: the last one (default), the mean of all, or the first one. */
  readonly pooling?: "last" | "mean" | "cls";
  /** Gives vectors the length 1, so that their products are cosines. Default true. */
  readonly normalize?: boolean;
  /** What is looked for, in one sentence: the text becomes "Instruct: …\nQuery:…", as models of Qwen3-Embedding have queries. */
  readonly instruction?: string;
  /** Features that are kept, the first ones, before normalisation: for models trained so. All unless given. */
  readonly dimensions?: number;
  /** Most texts that go through the model together. Default 32. */
  readonly batchSize?: number;
  /** Called as texts are done. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Ends it between two batches: its reason is thrown. */
  readonly signal?: AbortSignal;
}

const OPTIONS = {
  batchSize: true,
  dimensions: true,
  instruction: true,
  normalize: true,
  onProgress: true,
  pooling: true,
  signal: true,
} as const satisfies Record<keyof EmbedOptions, true>;

/** Most tokens that go through the model together, unless one text has more. */
const TOGETHER = 2048;

/** The last hidden states (B, T, H) and the numbers of tokens (B,) of padded texts → (B, H). */
const POOLINGS = {
  last: (hidden, lengths) => rowsAt(hidden, mx.subtract(lengths, 1)),
  mean: (hidden, lengths) => {
    const [B, T] = hidden.shape;
    const inside = mx.less(mx.arange(0, T, 1, mx.int32).reshape([1, T]), lengths.reshape([B, 1]));
    const kept = mx.where(inside.reshape([B, T, 1]), hidden, 0);
    return mx.divide(mx.sum(kept, 1), lengths.astype(mx.float32).reshape([B, 1]));
  },
  cls: (hidden, lengths) => rowsAt(hidden, mx.zeros(lengths.shape, mx.int32)),
} as const satisfies Record<NonNullable<EmbedOptions["pooling"]>, (hidden: Tensor, lengths: Tensor) => Tensor>;

/** Row `at` (B,) of each text of (B, T, H). */
function rowsAt(hidden: Tensor, at: Tensor): Tensor {
  const [B, T, H] = hidden.shape;
  const first = mx.multiply(mx.arange(0, B, 1, mx.int32), T);
  return mx.take(hidden.reshape([B * T, H]), mx.add(first, at), 0);
}

/**
 * The embeddings of texts: float32 (N, H), in their order. Each text gets the special tokens that its tokenizer adds:
 * those of Qwen3-Embedding end it with `<|endoftext|>`, whose hidden state `pooling: "last"` takes. An `instruction` is for queries only.
 *
 * Throws an {@link LlmError} for options out of range, no texts, and texts without tokens or longer than the context.
 *
 * @example
 * ```ts ignore
 * const { model, tokenizer } = await mx.lm.load("Qwen/Qwen3-Embedding-0.6B");
 * const documents = await mx.lm.embed(model, tokenizer, texts);
 * const instruction = "Given a web search query, retrieve relevant passages that answer the query";
 * const query = await mx.lm.embed(model, tokenizer, ["What is the capital of China?"], { instruction });
 * const similarity = mx.matmul(query, documents.T); // (1, N)
 * ```
 */
export async function embed(
  model: LanguageModel,
  tokenizer: Tokenizer,
  texts: readonly string[],
  options: EmbedOptions = {},
): Promise<Tensor> {
  checkModel("embed", model, tokenizer);
  checkHiddenStates("embed", model);
  checkOptions("embed", options, OPTIONS);
  const { pooling = "last", instruction, batchSize = 32, onProgress, signal } = options;
  checkCount("batchSize", batchSize);
  checkSignal(signal);
  if (!Object.hasOwn(POOLINGS, pooling)) {
    throw new LlmError("option", `pooling is ${pooling}, expected one of ${Object.keys(POOLINGS).join(", ")}`);
  }
  if (!Array.isArray(texts) || texts.length === 0 || !texts.every((text) => typeof text === "string")) {
    throw new LlmError("option", "embed() expected a list of texts");
  }
  const prefix = instruction === undefined ? "" : `Instruct: ${instruction}\nQuery:`;
  const { maxPositionEmbeddings: most } = model.config;
  const all = texts.map((text, i) => {
    const ids = encodeText(tokenizer, prefix + text);
    if (ids.length > 0 && ids.length <= most) return ids;
    const fix = ids.length === 0 ? "leave it out" : `the model's context holds ${most}, shorten it`;
    throw new LlmError("context", `Text ${i} has ${ids.length} tokens: ${fix}`);
  });
  // Texts of similar lengths have little padding between them.
  const order = all.map((_, i) => i).sort((a, b) => all[a].length - all[b].length);
  const rows: Float32Array[] = [];
  let done = 0;
  while (done < order.length) {
    signal?.throwIfAborted();
    const batch = take(order, done, batchSize, (i) => all[i].length);
    const values = pooled(model, batch.map((i) => all[i]), options);
    const width = values.length / batch.length;
    batch.forEach((i, at) => rows[i] = values.subarray(at * width, (at + 1) * width));
    done += batch.length;
    onProgress?.(done, order.length);
    await setImmediate();
  }
  const joined = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, i) => joined.set(row, i * row.length));
  return mx.tidy(() => mx.array(joined, mx.float32).reshape([rows.length, -1]));
}

/** As many of the texts from `from` on, ordered by length, as go through the model together. */
function take(order: readonly number[], from: number, most: number, length: (i: number) => number): readonly number[] {
  let count = 1;
  while (
    count < most && from + count < order.length && (count + 1) * length(order[from + count]) <= TOGETHER
  ) count++;
  return order.slice(from, from + count);
}

/** The vectors of some texts, one behind the other. */
function pooled(model: WithHiddenStates, texts: readonly number[][], options: EmbedOptions): Float32Array {
  const { pooling = "last", normalize = true, dimensions } = options;
  const T = promptRows(Math.max(...texts.map((ids) => ids.length)), model.traces.tile);
  return mx.tidy(() =>
    mx.withDevice(model.traces.device, () => {
      const ids = mx.array(
        texts.map((list) => [...list, ...new Array<number>(T - list.length).fill(list[0])]),
        mx.int32,
      );
      const lengths = mx.array(texts.map((list) => list.length), mx.int32);
      const hidden = model.hiddenStates(ids).at(-1)!.astype(mx.float32);
      let vectors = POOLINGS[pooling](hidden, lengths);
      const [, H] = vectors.shape;
      if (dimensions !== undefined) {
        if (!Number.isInteger(dimensions) || dimensions < 1 || dimensions > H) {
          throw new LlmError("option", `dimensions is ${dimensions}, expected an integer from 1 to ${H}`);
        }
        vectors = vectors.index("...", mx.Slice(0, dimensions));
      }
      if (normalize) {
        const norm = mx.sqrt(mx.sum(mx.square(vectors), -1, true));
        vectors = mx.divide(vectors, mx.maximum(norm, 1e-12));
      }
      return vectors.toTypedArray() as Float32Array;
    })
  );
}
