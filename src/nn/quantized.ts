/**
 * Layers whose matrices are quantized, and the quantization of models.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Dtype, RankOf, Tensor, TensorLike, Up } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { formatOf, type SmallFloatMode } from "../array/quantized/quantized.ts";
import { checkOptions } from "../graph/options.ts";
import { type CodeMode, QUANTIZATION_MODES, type QuantizationMode } from "../graph/quantization.ts";
import type { LinearArrays, QuantizedArrays } from "./arrays.ts";
import { Module } from "./module.ts";
import { pythonBool } from "./print.ts";
import { isBranch, mapBranch } from "./tree.ts";

/** Quantizes a matrix, or each of a stack; default group size and bits are those of the mode. */
export function quantized(
  op: string,
  matrix: Tensor,
  givenGroupSize?: number,
  givenBits?: number,
  givenMode?: QuantizationMode,
): QuantizedArrays {
  const { groupSize, bits, mode } = formatOf(op, givenGroupSize, givenBits, givenMode, QUANTIZATION_MODES);
  const [weight, scales, biases] = mx.quantize(matrix, groupSize, bits, mode);
  return { weight, scales, biases, groupSize, bits, mode };
}

/** A module with a quantized matrix, which is frozen. */
export abstract class QuantizedMatrix extends Module {
  /** Codes, several to a word: (rows, columns * bits / 32), uint32. */
  weight: Tensor;
  /** (rows, columns / groupSize) */
  scales: Tensor;
  /** (rows, columns / groupSize); not there unless the mode has them. */
  biases?: Tensor;
  /** Columns that share a scale. */
  readonly groupSize: number;
  /** Bits of a code. */
  readonly bits: number;
  /** How codes are read. */
  readonly mode: CodeMode;

  /** Takes a quantized matrix. */
  constructor({ weight, scales, biases, groupSize, bits, mode = "affine" }: QuantizedArrays) {
    super();
    this.groupSize = groupSize;
    this.bits = bits;
    this.mode = mode;
    this.weight = weight;
    this.scales = scales;
    if (biases) this.biases = biases;
    this.freeze();
  }

  /** A matrix whose codes cannot be trained stays as it is, scales and biases too unless they are named. */
  protected override keepFrozen(keys: readonly string[] | undefined): void {
    if (keys === undefined) this.freeze({ recurse: false, keys: ["weight", "scales", "biases"] });
  }

  /** Length of a row. */
  protected get columns(): number {
    return this.weight.shape[1] * 32 / this.bits;
  }

  /** x @ matrix.T */
  protected project(x: Tensor): Tensor {
    const { weight, scales, biases = null, groupSize, bits, mode } = this;
    return mx.quantizedMatmul(x, weight, scales, biases, true, groupSize, bits, mode);
  }

  /** The settings as MLX prints them. */
  protected settings(): string {
    return `group_size=${this.groupSize}, bits=${this.bits}, mode=${this.mode}`;
  }
}

/** {@link Linear} with a quantized matrix, which is frozen, as is the bias unless it is given. */
export class QuantizedLinear extends QuantizedMatrix {
  /** (outputDims,); not there without a bias. */
  bias?: Tensor;

  /** Takes the sizes of the last axis before and after, whether there is a bias, and the quantization; default affine, 64 columns, 4 bits. */
  constructor(
    inputDims: number,
    outputDims: number,
    bias?: boolean,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  );
  /** Takes a quantized matrix, and a bias (outputDims,) if there is one. */
  constructor(arrays: QuantizedArrays & { readonly bias?: Tensor });
  constructor(
    given: number | QuantizedArrays & { readonly bias?: Tensor },
    outputDims: number = 0,
    bias: boolean = true,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  ) {
    const drawn = (inputDims: number): Tensor => {
      const scale = Math.sqrt(1 / inputDims);
      return mx.random.uniform(-scale, scale, [outputDims, inputDims]);
    };
    super(typeof given === "number" ? quantized("QuantizedLinear", drawn(given), groupSize, bits, mode) : given);
    if (typeof given !== "number") {
      if (given.bias) this.bias = given.bias;
    } else {
      if (bias) this.bias = mx.zeros([outputDims]);
      this.freeze();
    }
  }

  /** A layer with the weights of another, quantized, and its bias. */
  static fromLinear(
    { weight, bias }: LinearArrays,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  ): QuantizedLinear {
    return new QuantizedLinear({ ...quantized("QuantizedLinear", weight, groupSize, bits, mode), bias });
  }

  /** x (…, inputDims) → (…, outputDims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return scoped((): Tensor => {
      const y = this.project(x);
      return this.bias ? mx.add(y, this.bias) : y;
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const sizes = `input_dims=${this.columns}, output_dims=${this.weight.shape[0]}`;
    return `${sizes}, bias=${pythonBool(this.bias !== undefined)}, ${this.settings()}`;
  }
}

/** {@link Embedding} with a quantized table, which is frozen. */
export class QuantizedEmbedding extends QuantizedMatrix {
  /** Number of vectors. */
  readonly numEmbeddings: number;
  /** Size of a vector. */
  readonly dims: number;

  /** Takes the number of vectors, their size, and the quantization: 64 columns and 4 bits. */
  constructor(numEmbeddings: number, dims: number, groupSize?: number, bits?: number, mode?: QuantizationMode);
  /** Takes a quantized table. */
  constructor(arrays: QuantizedArrays);
  constructor(
    given: number | QuantizedArrays,
    dims: number = 0,
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  ) {
    const drawn = (count: number): Tensor => mx.random.normal([count, dims], null, null, Math.sqrt(1 / dims));
    super(typeof given === "number" ? quantized("QuantizedEmbedding", drawn(given), groupSize, bits, mode) : given);
    this.numEmbeddings = this.weight.shape[0];
    this.dims = this.columns;
  }

  /** A table of the vectors of another, quantized. */
  static fromEmbedding(
    embedding: { readonly weight: Tensor },
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  ): QuantizedEmbedding {
    return new QuantizedEmbedding(quantized("QuantizedEmbedding", embedding.weight, groupSize, bits, mode));
  }

  /**
   * Integers x (…) → vectors (…, dims); only those are dequantized. The default dtype is that of the scales, and bfloat16 for small
   * floats.
   */
  override forward<X extends TensorLike>(x: X, dtype?: Dtype): Tensor<any, Up<RankOf<X>>>;
  override forward(x: TensorLike, dtype?: Dtype): Tensor {
    const { weight, scales, biases, groupSize, bits, mode } = this;
    return scoped((): Tensor => {
      const rows = mx.take(weight, x, 0);
      if (biases === undefined) {
        return mx.dequantize(rows, mx.take(scales, x, 0), null, groupSize, bits, { mode, dtype });
      }
      const [s, b] = [scales, biases].map((table) => mx.take(table, x, 0).astype(dtype ?? table.dtype));
      return mx.dequantize(rows, s, b, groupSize, bits);
    });
  }

  /** x (…, dims) → (…, numEmbeddings): products with all vectors. */
  asLinear(x: Tensor): Tensor {
    return this.project(x);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.numEmbeddings}, ${this.dims}, ${this.settings()}`;
  }
}

/**
 * x @ weight.T with both factors quantized, x on the way, for modes nvfp4 and mxfp8. While the module is trained, weights are floats
 * that are rounded on the way, and gradients treat rounding as the identity. `eval()` quantizes the weights; `train()` dequantizes
 * them, rounded as they are. There is no bias. Codes of a file are loaded after `eval()`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.QQLinear(64, 32).eval();
 * layer.forward(mx.ones([2, 64])).shape; // [2, 32]
 * Object.keys(layer.parameters()); // ["weight", "scales"]
 * ```
 */
export class QQLinear extends Module {
  /** (outputDims, inputDims), or codes of it if it is quantized: (outputDims, inputDims * bits / 32), uint32. */
  weight: Tensor;
  /** (outputDims, inputDims / groupSize), uint8; there where the weight is quantized. */
  scales?: Tensor;
  /** Columns that share a scale. */
  readonly groupSize: number;
  /** Bits of a code. */
  readonly bits: number;
  /** How x and the weights are quantized. */
  readonly mode: SmallFloatMode;

  /** Takes the sizes of the last axis before and after, and the quantization; default nvfp4. */
  constructor(
    inputDims: number,
    outputDims: number,
    groupSize?: number,
    bits?: number,
    mode: QuantizationMode = "nvfp4",
  ) {
    super();
    const chosen = formatOf("QQLinear", groupSize, bits, mode, QUANTIZATION_MODES);
    if (chosen.mode !== "nvfp4" && chosen.mode !== "mxfp8") {
      throw new mx.ValueError(`QQLinear() expected mode to be nvfp4 or mxfp8: found ${chosen.mode}`);
    }
    this.groupSize = chosen.groupSize;
    this.bits = chosen.bits;
    this.mode = chosen.mode;
    const scale = Math.sqrt(1 / inputDims);
    this.weight = mx.random.uniform(-scale, scale, [outputDims, inputDims]);
  }

  /** A layer with the weights of another, trained or not as that is. Throws a ValueError if it has a bias. */
  static fromLinear(
    linear: { readonly weight: Tensor; readonly bias?: Tensor; readonly training?: boolean },
    groupSize?: number,
    bits?: number,
    mode?: QuantizationMode,
  ): QQLinear {
    if (linear.bias) throw new mx.ValueError("QQLinear() takes no bias: found one of a linear layer");
    const [outputs, inputs] = linear.weight.shape;
    const made = new QQLinear(inputs, outputs, groupSize, bits, mode);
    made.weight = linear.weight;
    return made.train(linear.training ?? true);
  }

  /** Exchanges the weights for codes and scales. */
  quantize(): void {
    if (this.scales) return;
    const { groupSize, bits, mode } = this;
    [this.weight, this.scales] = mx.quantize(this.weight, groupSize, bits, mode);
  }

  /** Exchanges codes and scales for the weights that they stand for. */
  dequantize(): void {
    const { scales, groupSize, bits, mode } = this;
    if (!scales) return;
    this.weight = mx.dequantize(this.weight, scales, null, groupSize, bits, mode);
    delete this.scales;
  }

  /** Weights are floats where the module is trained. */
  protected override trainingChanged(): void {
    if (this.training) this.dequantize();
    else this.quantize();
  }

  /** x (…, inputDims) → (…, outputDims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { weight, scales, groupSize, bits, mode } = this;
    return mx.qqmm(x, weight, scales, groupSize, bits, mode);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const [outputs, columns] = this.weight.shape;
    const inputs = this.scales ? columns * 32 / this.bits : columns;
    return `input_dims=${inputs}, output_dims=${outputs}, group_size=${this.groupSize}, bits=${this.bits}, mode=${this.mode}`;
  }
}

/** How one module is quantized. */
export interface ModuleQuantization {
  /** Columns that share a scale; default that of the mode. */
  readonly groupSize?: number;
  /** Bits of a code; default that of the mode. */
  readonly bits?: number;
  /** How matrices are quantized. */
  readonly mode?: QuantizationMode;
  /** Whether the module's input is quantized as well; see {@link QQLinear}. */
  readonly quantizeInput?: boolean;
}

/** Options of {@link quantize}. */
export interface QuantizeOptions {
  /** How matrices are quantized; default "affine". */
  readonly mode?: QuantizationMode;
  /** Whether linear layers quantize their input as well, in modes nvfp4 and mxfp8; default false. */
  readonly quantizeInput?: boolean;
  /** Whether a module is quantized, by its name, or how; default all that can be. */
  readonly classPredicate?: (name: string, module: Module) => boolean | ModuleQuantization;
}

const QUANTIZE_OPTIONS = { mode: true, quantizeInput: true, classPredicate: true } as const satisfies Record<
  keyof QuantizeOptions,
  true
>;

/** A module that can be quantized. */
type Quantizable = Module & {
  toQuantized(groupSize?: number, bits?: number, mode?: QuantizationMode, quantizeInput?: boolean): Module;
};

function isQuantizable(module: Module): module is Quantizable {
  return "toQuantized" in module && typeof module.toQuantized === "function";
}

/**
 * Replaces the modules of a model that can be quantized, those with a method `toQuantized` such as {@link Linear} and
 * {@link Embedding}, by quantized ones. The size of their last axis must be divisible by `groupSize`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Sequential(new mx.nn.Linear(64, 64), mx.nn.relu, new mx.nn.Linear(64, 1));
 * mx.nn.quantize(model, 64, 8, { classPredicate: (name) => name !== "layers.2" });
 * model.layers[0] instanceof mx.nn.QuantizedLinear; // true
 * ```
 */
export function quantize(model: Module, groupSize?: number, bits?: number, options: QuantizeOptions = {}): void {
  checkOptions("quantize", options, QUANTIZE_OPTIONS);
  const { mode, quantizeInput, classPredicate = (_, module) => isQuantizable(module) } = options;
  const visit = (name: string, value: unknown): unknown => {
    if (isBranch(value)) return mapBranch(value, (key, part) => visit(name === "" ? key : `${name}.${key}`, part));
    if (!(value instanceof Module)) return value;
    const wanted = classPredicate(name, value);
    if (!wanted) return value;
    if (!isQuantizable(value)) {
      throw new mx.ValueError(`quantize() cannot quantize "${name}": ${value.constructor.name} has no toQuantized()`);
    }
    const how: ModuleQuantization = wanted === true ? { groupSize, bits, mode, quantizeInput } : wanted;
    return value.toQuantized(how.groupSize, how.bits, how.mode, how.quantizeInput);
  };
  model.updateModules(visit("", model.leafModules()) as Record<string, unknown>);
}
