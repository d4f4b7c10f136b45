/**
 * Batches of examples: of similar lengths together, filled up with zeros, in an order that a seed decides. They are those of mlx-lm.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Dataset } from "./datasets.ts";
import { NumpyRandom } from "./numpy_random.ts";

/** Lengths are filled up to one more than a multiple of this, so that few shapes occur. */
const PAD_TO = 32;

/** Token ids (B, T), and of each example where the loss begins and ends (B, 2), both int32. */
export type Batch = readonly [tokens: Tensor, lengths: Tensor];

/** Where a sequence of batches stands. */
export interface BatchesState {
  /** The order of this round. */
  readonly order: Uint32Array;
  /** How many batches of it were given. */
  readonly at: number;
}

/** An endless sequence of batches of a set; each round has each of them once. */
export class Batches {
  readonly #dataset: Dataset;
  readonly #groups: readonly (readonly number[])[];
  readonly #maxSeqLength: number;
  readonly #random: NumpyRandom;
  #order: Uint32Array = new Uint32Array(0);
  #at = 0;

  /**
   * Orders come from `random`. With a group, process r of n has rows r, r + n, r + 2n, … of each batch. Throws a ValueError if the set does not
   * fill a batch, or if a batch cannot be divided so.
   */
  constructor(
    dataset: Dataset,
    batchSize: number,
    maxSeqLength: number,
    random: NumpyRandom,
    group?: mx.distributed.Group,
  ) {
    const [rank, processes] = [group?.rank() ?? 0, group?.size() ?? 1];
    if (batchSize % processes !== 0) {
      throw new mx.ValueError(
        `The batch size must be a multiple of the ${processes} processes, which share each batch: found ${batchSize}`,
      );
    }
    if (dataset.length < batchSize) {
      throw new mx.ValueError(
        `The data set must have at least batchSize=${batchSize} examples: it has ${dataset.length}`,
      );
    }
    const length = (i: number): number => dataset[i].tokens.length;
    const sorted = Array.from(dataset, (_, i) => i).sort((a, b) => length(a) - length(b));
    this.#dataset = dataset;
    this.#maxSeqLength = maxSeqLength;
    this.#random = random;
    this.#groups = Array.from(
      { length: Math.floor(sorted.length / batchSize) },
      (_, i) => sorted.slice(i * batchSize, (i + 1) * batchSize).filter((_, row) => row % processes === rank),
    );
  }

  /** Batches of a round. */
  get count(): number {
    return this.#groups.length;
  }

  /** Where it stands. */
  get state(): BatchesState {
    return { order: this.#order, at: this.#at };
  }

  set state({ order, at }: BatchesState) {
    this.#order = order;
    this.#at = at;
  }

  /** The next batch; a round that is over is followed by one in another order. */
  next(): Batch {
    if (this.#at === this.#order.length) {
      this.#order = this.#random.permutation(this.count);
      this.#at = 0;
    }
    return this.#batch(this.#groups[this.#order[this.#at++]]);
  }

  #batch(group: readonly number[]): Batch {
    const examples = group.map((i) => this.#dataset[i]);
    const longest = Math.max(...examples.map(({ tokens }) => tokens.length));
    const width = Math.min(1 + PAD_TO * Math.ceil(longest / PAD_TO), this.#maxSeqLength);
    const ids = new Int32Array(group.length * width);
    const lengths = new Int32Array(group.length * 2);
    examples.forEach(({ tokens, offset }, row) => {
      const kept = tokens.slice(0, this.#maxSeqLength);
      ids.set(kept, row * width);
      lengths.set([offset, kept.length], 2 * row);
    });
    return [mx.array(ids).reshape(group.length, width), mx.array(lengths).reshape(group.length, 2)];
  }
}

/** How {@link iterateBatches} goes through a set. */
export interface IterateBatchesOptions {
  /** Most tokens of an example, whose rest is left out; default 2048. */
  readonly maxSeqLength?: number;
  /** Whether batches repeat without end; default false. */
  readonly loop?: boolean;
  /** Seed of the order; default 0. */
  readonly seed?: number;
  /** The processes that share each batch: each has its rows of it. Default this process alone. */
  readonly group?: mx.distributed.Group;
}

/**
 * The batches of a set in random order: token ids (B, T), and where the loss of each example begins and ends (B, 2).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const set = [{ tokens: [1, 2, 3], offset: 0 }, { tokens: [4, 5], offset: 1 }];
 * const [[tokens, lengths]] = mx.lm.tuner.iterateBatches(set, 2);
 * tokens.shape; // [2, 33]
 * lengths.tolist(); // [[1, 2], [0, 3]]
 * ```
 */
export function* iterateBatches(
  dataset: Dataset,
  batchSize: number,
  { maxSeqLength = 2048, loop = false, seed = 0, group }: IterateBatchesOptions = {},
): Generator<Batch> {
  const batches = new Batches(dataset, batchSize, maxSeqLength, new NumpyRandom(seed), group);
  for (let i = 0; loop || i < batches.count; i++) yield batches.next();
}
