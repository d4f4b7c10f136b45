/**
 * Layers of models that learn: MLX's `mlx.nn` in camelCase. Layers are classes, called by their `forward`.
 *
 * @module
 */

export * from "../array/fast/nn.ts";
export { type FreezeOptions, Module, type ModuleFilter, type ModuleTree } from "./module.ts";
export type { CodeMode, QuantizationMode } from "../graph/quantization.ts";
export type { LinearArrays, QuantizedArrays } from "./arrays.ts";
export type { NamedWeights } from "./weights.ts";
export { checkpoint, valueAndGrad } from "./value_and_grad.ts";
export { averageGradients, type AverageGradientsOptions, clipGradNormSharded } from "./distributed/gradients.ts";
export {
  type Segments,
  type Sharding,
  type ShardingPredicate,
  shardInplace,
  type ShardOptions,
} from "./distributed/shard.ts";
export { AllToShardedLinear, ShardedToAllLinear } from "./distributed/sharded_linear.ts";
export { QuantizedAllToShardedLinear, QuantizedShardedToAllLinear } from "./distributed/sharded_quantized.ts";
export { type ShardedLinear, shardLinear } from "./distributed/shard_linear.ts";
export {
  type Activation,
  CELU,
  ELU,
  GELU,
  type GeluApproximation,
  GLU,
  HardShrink,
  Hardswish,
  HardTanh,
  LeakyReLU,
  LogSigmoid,
  LogSoftmax,
  Mish,
  PReLU,
  ReLU,
  ReLU2,
  ReLU6,
  SELU,
  Sigmoid,
  SiLU,
  Softmax,
  Softmin,
  Softplus,
  Softshrink,
  Softsign,
  Step,
  Tanh,
} from "./activations.ts";
export { type Layer, Sequential } from "./containers.ts";
export { Conv1d, Conv2d, Conv3d, type Convolution, type GroupedConvolution } from "./convolution.ts";
export {
  ConvTranspose1d,
  ConvTranspose2d,
  ConvTranspose3d,
  type TransposedConvolution,
} from "./convolution_transpose.ts";
export { Dropout, Dropout2d, Dropout3d, type DropoutBase } from "./dropout.ts";
export { Embedding } from "./embedding.ts";
export { Bilinear, Identity, Linear } from "./linear.ts";
export { BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm } from "./normalization.ts";
export { AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d, type Pool } from "./pooling.ts";
export { ALiBi, RoPE, SinusoidalPositionalEncoding } from "./positional_encoding.ts";
export {
  type ModuleQuantization,
  QQLinear,
  quantize,
  QuantizedEmbedding,
  QuantizedLinear,
  type QuantizedMatrix,
  type QuantizeOptions,
} from "./quantized.ts";
export { GRU, LSTM, RNN } from "./recurrent.ts";
export {
  type ActivationFunction,
  type AttentionMask,
  MultiHeadAttention,
  Transformer,
  TransformerDecoder,
  TransformerDecoderLayer,
  TransformerEncoder,
  TransformerEncoderLayer,
} from "./transformer.ts";
export { Upsample, type UpsampleMode } from "./upsample.ts";
export * as init from "./init.ts";
export * as losses from "./losses.ts";
