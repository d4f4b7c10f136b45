/**
 * Linear maps of which each process of a group computes a part, as in MLX. After a layer that divides outputs comes one that divides inputs.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { scoped } from "../../array/tensor/scope.ts";
import type { LinearArrays } from "../arrays.ts";
import { Module, type ModuleTree } from "../module.ts";
import { pythonBool } from "../print.ts";
import { partSize, predicateOf, type Sharding, type ShardOptions, shardParameters, sumGradients } from "./shard.ts";

type Group = mx.distributed.Group;

/** A linear map of which this process has a part. */
abstract class PartOfLinear extends Module {
  /** This process's part of (outputDims, inputDims). */
  weight: Tensor;
  /** The bias, or this process's part of it; not there without one. */
  bias?: Tensor;
  readonly #group: Group;

  /** Takes the arrays of this process. */
  constructor({ weight, bias }: LinearArrays, group: Group) {
    super();
    this.#group = group;
    this.weight = weight;
    if (bias) this.bias = bias;
  }

  /** The processes. */
  get group(): Group {
    return this.#group;
  }

  /** The settings of the whole layer as MLX prints them. */
  protected settings(inputs: number, outputs: number): string {
    return `input_dims=${inputs}, output_dims=${outputs}, bias=${pythonBool(this.bias !== undefined)}`;
  }
}

/** Arrays of a part of a layer, drawn within 1 / sqrt(inputDims) of the whole one. */
function drawn(inputDims: number, inputs: number, outputs: number, bias: boolean): LinearArrays {
  const scale = Math.sqrt(1 / inputDims);
  const weight = mx.random.uniform(-scale, scale, [outputs, inputs]);
  return bias ? { weight, bias: mx.random.uniform(-scale, scale, [outputs]) } : { weight };
}

function partsOf(layer: LinearArrays, sharding: Sharding, { segments, group }: ShardOptions): ModuleTree {
  const { weight, bias } = layer;
  return shardParameters(bias ? { weight, bias } : { weight }, predicateOf(sharding, segments), group);
}

/**
 * A linear map with a part of the outputs on each process. All have the same x; the gradients of x are summed over processes.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = mx.nn.AllToShardedLinear.fromLinear(new mx.nn.Linear(4, 8));
 * layer.forward(mx.ones([3, 4])).shape; // [3, 8 / processes]
 * ```
 */
export class AllToShardedLinear extends PartOfLinear {
  /** Takes the sizes of the whole map, and whether there is a bias. Throws a ValueError if processes cannot divide the outputs. */
  constructor(inputDims: number, outputDims: number, bias: boolean = true, group: Group = mx.distributed.init()) {
    const part = partSize("AllToShardedLinear", "outputs", outputDims, group);
    super(drawn(inputDims, inputDims, part, bias), group);
  }

  /** The part of a layer that is whole. */
  static fromLinear(layer: LinearArrays, options: ShardOptions = {}): AllToShardedLinear {
    const [outputs, inputs] = layer.weight.shape;
    const made = new AllToShardedLinear(inputs, outputs, layer.bias !== undefined, options.group);
    return made.update(partsOf(layer, "all-to-sharded", options));
  }

  /** x (…, inputDims) → (…, outputDims / processes) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { weight, bias, group } = this;
    return scoped((): Tensor => {
      const shared = sumGradients(x, group);
      return bias ? mx.addmm(bias, shared, weight.T) : mx.matmul(shared, weight.T);
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const [outputs, inputs] = this.weight.shape;
    return this.settings(inputs, outputs * this.group.size());
  }
}

/**
 * A linear map with a part of the inputs on each process, whose results are summed: all have the same one. The bias is whole.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.ShardedToAllLinear(8, 4);
 * layer.forward(mx.ones([3, 8 / layer.group.size()])).shape; // [3, 4]
 * ```
 */
export class ShardedToAllLinear extends PartOfLinear {
  /** Takes the sizes of the whole map, and whether there is a bias. Throws a ValueError if processes cannot divide the inputs. */
  constructor(inputDims: number, outputDims: number, bias: boolean = true, group: Group = mx.distributed.init()) {
    const part = partSize("ShardedToAllLinear", "inputs", inputDims, group);
    super(drawn(inputDims, part, outputDims, bias), group);
  }

  /** The part of a layer that is whole. */
  static fromLinear(layer: LinearArrays, options: ShardOptions = {}): ShardedToAllLinear {
    const [outputs, inputs] = layer.weight.shape;
    const made = new ShardedToAllLinear(inputs, outputs, layer.bias !== undefined, options.group);
    return made.update(partsOf(layer, "sharded-to-all", options));
  }

  /** x (…, inputDims / processes) → (…, outputDims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { weight, bias, group } = this;
    return scoped((): Tensor => {
      const y = mx.distributed.allSum(mx.matmul(x, weight.T), { group });
      return bias ? mx.add(y, bias) : y;
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const [outputs, inputs] = this.weight.shape;
    return this.settings(inputs * this.group.size(), outputs);
  }
}
