/**
 * Quantized linear maps of which each process of a group computes a part, as in MLX. They are frozen.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { scoped } from "../../array/tensor/scope.ts";
import type { QuantizationMode } from "../../graph/quantization.ts";
import type { QuantizedArrays } from "../arrays.ts";
import { pythonBool } from "../print.ts";
import { quantized, QuantizedMatrix } from "../quantized.ts";
import { partSize, predicateOf, type Sharding, type ShardOptions, shardParameters, sumGradients } from "./shard.ts";

type Group = mx.distributed.Group;

/** A quantized matrix, and a bias if there is one. */
type Arrays = QuantizedArrays & { readonly bias?: Tensor };

/** Those of a part, and the processes; default all. */
type PartArrays = Arrays & { readonly group?: Group | undefined };

/** A quantized linear map of which this process has a part. */
abstract class PartOfQuantizedLinear extends QuantizedMatrix {
  /** The bias, or this process's part of it; not there without one. */
  bias?: Tensor;
  readonly #group: Group;

  /** Takes the arrays of this process. */
  constructor(arrays: PartArrays) {
    super(arrays);
    this.#group = arrays.group ?? mx.distributed.init();
    if (arrays.bias) this.bias = arrays.bias;
    this.freeze();
  }

  /** The processes. */
  get group(): Group {
    return this.#group;
  }

  /** The settings of the whole layer as MLX prints them. */
  protected sizes(inputs: number, outputs: number): string {
    const sizes = `input_dims=${inputs}, output_dims=${outputs}`;
    return `${sizes}, bias=${pythonBool(this.bias !== undefined)}, ${this.settings()}`;
  }
}

/** The sizes and the quantization of a map. */
interface Sizes {
  readonly inputDims: number;
  readonly inputs: number;
  readonly outputs: number;
  readonly bias: boolean;
  readonly groupSize: number | undefined;
  readonly bits: number | undefined;
  readonly mode: QuantizationMode | undefined;
}

/** A drawn matrix of a part, quantized. */
function drawn(layer: string, { inputDims, inputs, outputs, bias, groupSize, bits, mode }: Sizes): Arrays {
  const scale = Math.sqrt(1 / inputDims);
  const matrix = quantized(layer, mx.random.uniform(-scale, scale, [outputs, inputs]), groupSize, bits, mode);
  return bias ? { ...matrix, bias: mx.zeros([outputs]) } : matrix;
}

function partsOf(layer: Arrays, sharding: Sharding, { segments, group }: ShardOptions): PartArrays {
  const { weight, scales, biases, bias, groupSize, bits, mode = "affine" } = layer;
  const arrays = { weight, scales, ...(biases && { biases }), ...(bias && { bias }) };
  const parts = shardParameters(arrays, predicateOf(sharding, segments), group) as typeof arrays;
  return { ...parts, groupSize, bits, mode, group };
}

/** {@link AllToShardedLinear} with a quantized matrix, which is frozen, as is the bias. */
export class QuantizedAllToShardedLinear extends PartOfQuantizedLinear {
  /** Takes the sizes of the whole map, whether there is a bias, and the quantization. Throws a ValueError if processes cannot divide the outputs. */
  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    group?: Group,
  );
  /** Takes the arrays of this process. */
  constructor(arrays: PartArrays);
  constructor(
    given: number | PartArrays,
    outputDims: number = 0,
    bias: boolean = true,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    group: Group = mx.distributed.init(),
  ) {
    const draw = (inputDims: number): PartArrays => {
      const inputs = inputDims;
      const outputs = partSize("QuantizedAllToShardedLinear", "outputs", outputDims, group);
      return {
        ...drawn("QuantizedAllToShardedLinear", { inputDims, inputs, outputs, bias, groupSize, bits, mode }),
        group,
      };
    };
    super(typeof given === "number" ? draw(given) : given);
  }

  /** The part of a layer that is whole. Throws a ValueError if processes cannot divide its matrix, or the groups of its rows. */
  static fromQuantizedLinear(layer: Arrays, options: ShardOptions = {}): QuantizedAllToShardedLinear {
    return new QuantizedAllToShardedLinear(partsOf(layer, "all-to-sharded", options));
  }

  /** x (…, inputDims) → (…, outputDims / processes) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return scoped((): Tensor => {
      const y = this.project(sumGradients(x, this.group));
      return this.bias ? mx.add(y, this.bias) : y;
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.sizes(this.columns, this.weight.shape[0] * this.group.size());
  }
}

/** {@link ShardedToAllLinear} with a quantized matrix, which is frozen, as is the bias. */
export class QuantizedShardedToAllLinear extends PartOfQuantizedLinear {
  /** Takes the sizes of the whole map, whether there is a bias, and the quantization. Throws a ValueError if processes cannot divide the inputs. */
  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    group?: Group,
  );
  /** Takes the arrays of this process. */
  constructor(arrays: PartArrays);
  constructor(
    given: number | PartArrays,
    outputDims: number = 0,
    bias: boolean = true,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
    group: Group = mx.distributed.init(),
  ) {
    const draw = (inputDims: number): PartArrays => {
      const inputs = partSize("QuantizedShardedToAllLinear", "inputs", inputDims, group);
      const outputs = outputDims;
      return {
        ...drawn("QuantizedShardedToAllLinear", { inputDims, inputs, outputs, bias, groupSize, bits, mode }),
        group,
      };
    };
    super(typeof given === "number" ? draw(given) : given);
  }

  /** The part of a layer that is whole. Throws a ValueError if processes cannot divide its matrix, or the groups of its rows. */
  static fromQuantizedLinear(layer: Arrays, options: ShardOptions = {}): QuantizedShardedToAllLinear {
    return new QuantizedShardedToAllLinear(partsOf(layer, "sharded-to-all", options));
  }

  /** x (…, inputDims / processes) → (…, outputDims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return scoped((): Tensor => {
      const y = mx.distributed.allSum(this.project(x), { group: this.group });
      return this.bias ? mx.add(y, this.bias) : y;
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.sizes(this.columns * this.group.size(), this.weight.shape[0]);
  }
}
