/**
 * Tensor parallelism: each process of a group has some heads and a part of the feed-forward features of every layer (arXiv 1909.08053).
 *
 * @module
 */

import type * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { type Sharding, shardLinear, type ShardOptions } from "../../nn/mod.ts";
import { QuantizedMatrix } from "../../nn/quantized.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { LlmError } from "../error.ts";
import type { Weights } from "../checkpoint/weights.ts";
import type { Layer } from "./stored.ts";

/** The processes that have parts of a model, the owner of its arrays, and what is done when all parts were made. */
export interface Sharder {
  readonly group: mx.distributed.Group;
  readonly weights: Weights;
  readonly changes: (() => void)[];
}

/** The arrays of a layer. */
function arraysOf(layer: Layer): Tensor[] {
  return Object.values(layer.parameters()) as Tensor[];
}

/** Makes the part of a linear layer, which `put` takes when all parts were made. The whole layer is freed then. */
export function shardLayer(
  { group, weights, changes }: Sharder,
  layer: Layer,
  sharding: Sharding,
  put: (part: Layer) => void,
  segments?: ShardOptions["segments"],
): void {
  const part = shardLinear(layer, sharding, { group, segments });
  if (!layer.training) part.eval();
  changes.push(() => {
    put(part);
    weights.exchange(arraysOf(layer), arraysOf(part), part instanceof QuantizedMatrix ? part : undefined);
  });
}

/** What of a config cannot be divided, or is not: its name, and what messages say of it. */
const UNDIVIDED = [
  ["experts", "experts"],
  ["expertsBeside", "experts"],
  ["latent", "latent attention"],
  ["shortConv", "convolutions"],
  ["deltaNet", "recurrent layers"],
  ["qkNormWhole", "a norm over all heads"],
  ["layerInputs", "vectors of tokens for each layer"],
] as const satisfies readonly (readonly [name: keyof DecoderConfig, what: string])[];

/**
 * The config of a process's part: its heads and its features, of all layers. Throws an {@link LlmError} if processes cannot divide them
 * equally.
 */
export function partOfConfig(config: DecoderConfig, processes: number): DecoderConfig {
  const found = UNDIVIDED.find(([name]) => config[name] !== undefined && config[name] !== false);
  if (found) {
    throw new LlmError("option", `shard() takes models of attention and dense layers: this one has ${found[1]}`);
  }
  const part = (size: number, what: string): number => {
    if (size % processes === 0) return size / processes;
    throw new LlmError(
      "option",
      `${processes} processes cannot divide the ${size} ${what} of the model: use ${divisors(size, processes)}`,
    );
  };
  const { heads, kvHeads, intermediateSize, intermediateSizes, layerAttention } = config;
  return {
    ...config,
    heads: part(heads, "query heads"),
    kvHeads: part(kvHeads, "key/value heads"),
    intermediateSize: part(intermediateSize, "feed-forward features"),
    ...(intermediateSizes &&
      { intermediateSizes: intermediateSizes.map((size) => part(size, "feed-forward features")) }),
    ...(layerAttention && {
      layerAttention: layerAttention.map((layer) => ({
        ...layer,
        ...(layer.kvHeads !== undefined && { kvHeads: part(layer.kvHeads, "key/value heads") }),
      })),
    }),
  };
}

/** The numbers of processes below `most` that divide a size, as words. */
function divisors(size: number, most: number): string {
  const found = Array.from({ length: most - 1 }, (_, i) => i + 1).filter((count) => size % count === 0);
  return found.length === 1 ? `${found[0]}` : `${found.slice(0, -1).join(", ")} or ${found.at(-1)}`;
}
