/**
 * The interface of a model for generation.
 *
 * @module
 */

import { TracedSteps } from "../../array/compile/loop.ts";
import type { DeviceFacts } from "../../array/devices/device_of.ts";
import type * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Module } from "../../nn/mod.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import type { Cache, KvCache } from "../kv/cache.ts";
import type { CacheOptions } from "../kv/make_cache.ts";
import type { KvPoolSizes } from "../kv/paged.ts";

/** Steps of a model that were traced. */
export interface Traces extends Disposable {
  /** How many there are. */
  readonly size: number;
  /** How many were made so far, also those that are gone. */
  readonly made: number;
  /** Resolves when nothing is compiled or tested in the background any more. */
  idle(): Promise<void>;
}

/**
 * A model as {@link load} gives it: a module of `mx.nn` whose parameters have the names that the checkpoint gives them.
 * A replaced parameter or module counts from the next generation on.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
 * const loss = (tokens: mx.Tensor, next: mx.Tensor) =>
 *   mx.nn.losses.crossEntropy(model.forward(tokens), next, null, -1, 0, "mean");
 * const [value, grads] = mx.nn.valueAndGrad(model, loss)(mx.array([[1, 2, 3]], mx.int32), mx.array([[2, 3, 4]], mx.int32));
 * mx.eval(value, grads);
 * grads.model.norm.weight.shape; // [256]
 * model[Symbol.dispose]();
 * ```
 */
export interface LanguageModel extends Module, Disposable {
  /** The fields of config.json. */
  readonly config: ModelConfig;
  /** Steps of this model that were traced; generation keeps its own here. They go with the model. */
  readonly traces: Traces;
  /**
   * Token ids (B, T) → logits (B, T, V). With `rows` (int32 (n,), counted from 0), only those rows of the T: (B, n, V). Each token
   * attends to the tokens before it. With a cache, the tokens follow those that it holds.
   */
  forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor;
  /**
   * Token ids (B, T) → hidden states (B, T, H) as transformers gives them. These are the embedding's, those after each layer but the
   * last, and those after the last norm. Arrays are lazy: an array that is not read is not computed. With a cache, the tokens follow those
   * that it holds.
   */
  hiddenStates(tokens: Tensor, cache?: Cache): Tensor[];
  /** Token ids (B, T) → the last of the hidden states, (B, T, H) or (B, n, H), as `forward` turns them into logits. */
  hidden(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor;
  /** The last of the hidden states (…, H) → logits (…, V). */
  logits(hidden: Tensor): Tensor;
  /**
   * Drafts the tokens after `tokens` (B, T) with the head of `load(…, { draftHead: true })`, multi-token prediction. `hidden` (B, T, H) has
   * the last hidden state before each of them: `tokens` are what came of it. The result's hidden states take that place in the next draft.
   * With a cache of {@link LanguageModel.makeDraftCache}, the rows follow those that it holds.
   *
   * Throws an {@link LlmError} if the model has no such head.
   *
   * @example
   * ```ts ignore
   * import * as mx from "@vkmx/vkmx";
   *
   * const { model } = await mx.lm.load("Qwen/Qwen3.5-4B", { draftHead: true });
   * const prompt = mx.array([[9707, 11, 1879]], mx.int32);
   * const hidden = model.hidden(prompt);
   * const next = mx.argmax(model.logits(hidden), -1).astype(mx.int32); // the token after each of the prompt's
   * const { logits } = model.draft(hidden, next); // of the token after that
   * ```
   */
  draft(hidden: Tensor, tokens: Tensor, cache?: Cache): Draft;
  /** An empty cache of the draft head for `batch` sequences; default 1. It is no part of the model's own. */
  makeDraftCache(batch?: number): KvCache;
  /**
   * An empty cache. A number is that of its sequences. Throws an {@link LlmError} for options that caches of the model cannot have.
   *
   * @example
   * ```ts ignore
   * using small = model.makeCache({ kvBits: 8, maxKvSize: 4096 });
   * ```
   */
  makeCache(options?: CacheOptions | number): KvCache;
  /**
   * Leaves this process its part of the model: some heads, and a part of the feed-forward features, of each layer. All processes of the group
   * (default all) call it, and then make the same calls of the model in the same order. In a group of one nothing happens. `mx.lm.shardedLoad` does
   * it before the weights are read.
   *
   * Throws an {@link LlmError} if processes cannot divide the heads or the features, or if the model has layers of another kind.
   *
   * @example
   * ```ts
   * import * as mx from "@vkmx/vkmx";
   *
   * const { model } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
   * model.shard(); // mpirun -n 2 deno run -A program.ts
   * model.forward(mx.array([[1, 2, 3]], mx.int32)).shape; // [1, 3, V] on all processes
   * ```
   */
  shard(group?: mx.distributed.Group): void;
}

/** What the draft head makes of tokens. */
export interface Draft {
  /** (B, T, H): the hidden states for a further draft. */
  readonly hidden: Tensor;
  /** (B, T, V) */
  readonly logits: Tensor;
}

/** The arrays of a model by the parts that a device has as a whole. */
export interface ModelSections {
  /** The embedding. */
  readonly first: readonly Tensor[];
  readonly layers: readonly (readonly Tensor[])[];
  /** Of each layer, those of the experts from which a router chooses. */
  readonly experts: readonly (readonly Tensor[])[];
  /** The last norm and the head. */
  readonly last: readonly Tensor[];
  /** Of each layer, the earlier one whose keys and values it reads. */
  readonly sharesWith: readonly (number | undefined)[];
}

/** The further fields of a model that generation needs. */
export interface DecodingModel extends LanguageModel {
  readonly traces: TracedSteps;
  /** The device of the parameters. */
  readonly device: DeviceFacts;
  /** The processes that have parts of the model; undefined where this one has all of it. All submit the same steps. */
  readonly group: mx.distributed.Group | undefined;
  /** The device of each layer, where they are on several. The embedding is with the first layer, norm and head with the last one. */
  readonly placement: readonly string[] | undefined;
  /** The parts that a device has as a whole. */
  readonly sections: ModelSections;
  /** Puts each layer on a device, before the weights are read. */
  place(devices: readonly string[]): void;
  /** Whether attention reads pages where they are, so that one pass may read the prompts of many sequences. */
  readonly attendsInPages: boolean;
  /**
   * Sizes of a pool of pages for many sequences, but for how many there are. With `drafts` it has room for the head that drafts. Throws an
   * {@link LlmError} if the model has none then.
   */
  poolSizes(drafts?: boolean): Omit<KvPoolSizes, "pages">;
}

/** The model, as generation needs it. Throws an {@link LlmError} for one that is none of ours. */
export function decodingModel(model: LanguageModel): DecodingModel {
  if (model.traces instanceof TracedSteps) return model as DecodingModel;
  throw new LlmError("option", "expected the model that load() returns: found another object");
}
