/**
 * The part of a linear layer for this process, dense or quantized.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { quoted } from "../../graph/error.ts";
import { Linear } from "../linear.ts";
import type { Module } from "../module.ts";
import { QuantizedLinear } from "../quantized.ts";
import { predicateOf, type Sharding, type ShardOptions } from "./shard.ts";
import { AllToShardedLinear, ShardedToAllLinear } from "./sharded_linear.ts";
import { QuantizedAllToShardedLinear, QuantizedShardedToAllLinear } from "./sharded_quantized.ts";

/** A layer that {@link shardLinear} makes. */
export type ShardedLinear =
  | AllToShardedLinear
  | ShardedToAllLinear
  | QuantizedAllToShardedLinear
  | QuantizedShardedToAllLinear;

/**
 * A linear layer of which this process has a part, and which exchanges what the other parts need. The given layer stays as it is.
 *
 * - "all-to-sharded": all processes have the input, and each a part of the outputs.
 * - "sharded-to-all": each process has a part of the inputs, and all have the result, a sum over processes.
 *
 * Throws a ValueError if the layer cannot be divided equally, or is no linear one.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const up = mx.nn.shardLinear(new mx.nn.Linear(64, 256), "all-to-sharded");
 * const down = mx.nn.shardLinear(new mx.nn.Linear(256, 64), "sharded-to-all");
 * down.forward(mx.nn.relu(up.forward(mx.ones([1, 64])))).shape; // [1, 64] on all processes
 * ```
 */
export function shardLinear(module: Module, sharding: Sharding, options: ShardOptions = {}): ShardedLinear {
  predicateOf(sharding); // refuses another word
  const isOut = sharding === "all-to-sharded";
  if (module instanceof QuantizedLinear) {
    const Sharded = isOut ? QuantizedAllToShardedLinear : QuantizedShardedToAllLinear;
    return Sharded.fromQuantizedLinear(module, options);
  }
  if (module instanceof Linear) return (isOut ? AllToShardedLinear : ShardedToAllLinear).fromLinear(module, options);
  throw new mx.ValueError(`shardLinear() expected a linear layer: found ${quoted(module.constructor.name)}`);
}
