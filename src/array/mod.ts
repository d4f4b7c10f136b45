/**
 * The arrays: everything of `mx` but language models.
 *
 * @module
 */

import "./methods.ts";

export {
  bfloat16,
  bool,
  type Complex,
  complex,
  complex64,
  type Dtype,
  type DtypeKind,
  type DtypeName,
  float16,
  float32,
  float64,
  int16,
  int32,
  int64,
  int8,
  uint16,
  uint32,
  uint64,
  uint8,
} from "../graph/dtype.ts";
export {
  ArrayError,
  type ArrayErrorCode,
  DtypeError,
  IndexError,
  KernelError,
  ShapeError,
  ValueError,
} from "../graph/error.ts";
export type { CodeMode, QuantizationMode } from "../graph/quantization.ts";
export type { Shape } from "../graph/shape.ts";
export type { NestedList, Scalar, TensorLike, TypedArray } from "./tensor/convert.ts";
export { type AnyTensor, At, type Axis, type Index, type OperatorMethods, Tensor } from "./tensor/tensor.ts";
export type { HostValues, NestedValue } from "./tensor/values.ts";
export type {
  Along,
  CountLetters,
  DiagRank,
  Down,
  EinsumRank,
  Expanded,
  Flattened,
  FloatName,
  FloatOf,
  HostArrayOf,
  Indexed,
  InexactName,
  IsAny,
  Item,
  Larger,
  ListName,
  Lists,
  Meeting,
  NameOf,
  Nested,
  NestedValues,
  NumberName,
  PlainListName,
  ProductRank,
  Promoted,
  PromotedNames,
  RankOf,
  RankOfShape,
  RankOfSizes,
  RealOf,
  Reduced,
  ScalarsName,
  Shift,
  ShiftDown,
  ShiftOf,
  ShiftUp,
  Single,
  Squeezed,
  SumOf,
  Taken,
  Takers,
  Typed,
  TypedName,
  Up,
  Weak,
} from "./tensor/types.ts";
export type { Arithmetic, Clipped, Comparison, Floating, NameWith, Product, Quotient, Same } from "./tensor/results.ts";
export { dispose, tidy } from "./tensor/scope.ts";
export { compile, type Compiled, disableCompile, enableCompile } from "./compile/compile.ts";
export { depends } from "./compile/depends.ts";
export * from "./transforms/mod.ts";
export { asyncEval, evaluate as eval } from "./compile/evaluate.ts";
export { exportToDot, type TextSink } from "./exported/export_graph.ts";
export {
  arange,
  array,
  asarray,
  type AsarrayOptions,
  empty,
  emptyLike,
  eye,
  full,
  fullLike,
  identity,
  linspace,
  meshgrid,
  type MeshgridOptions,
  ones,
  onesLike,
  tri,
  tril,
  triu,
  zeros,
  zerosLike,
} from "./ops/creation.ts";
export * from "./ops/unary.ts";
export * from "./ops/binary.ts";
export * from "./ops/comparison.ts";
export * from "./ops/complex.ts";
export * from "./ops/type_info.ts";
export { view } from "./ops/view.ts";
export {
  asStrided,
  astype,
  atleast1d,
  atleast2d,
  atleast3d,
  broadcastArrays,
  broadcastShapes,
  broadcastTo,
  contiguous,
  diag,
  diagonal,
  expandDims,
  flatten,
  flip,
  matrixTranspose,
  moveaxis,
  permuteDims,
  squeeze,
  swapaxes,
  transpose,
  unflatten,
} from "./ops/movement.ts";
export { reshape } from "./ops/reshape.ts";
export { getPrintoptions, type PrintOptions, printoptions, setPrintoptions } from "./tensor/print.ts";
export { Slice } from "./tensor/slice.ts";
export * from "./ops/gather.ts";
export * from "./ops/join.ts";
export * from "./ops/pad.ts";
export * from "./ops/windows.ts";
export * from "./aliases.ts";
export * from "./ops/reduce.ts";
export * from "./ops/sequences.ts";
export * from "./ops/sort.ts";
export { unique } from "./ops/unique.ts";
export { getArrayBufferSize } from "./devices/buffer_size.ts";
export { norm as matrixNorm, type NormOrder } from "./linalg/norm.ts";
export * from "./signal/conv.ts";
export { blockMaskedMm, gatherMm, type GatherMmOptions, segmentedMm } from "./linalg/matrix_products.ts";
export * from "./linalg/products.ts";
export {
  dequantize,
  type DequantizeOptions,
  quantize,
  quantizedMatmul,
  type QuantizeOptions,
  type SmallFloatMode,
} from "./quantized/quantized.ts";
export { gatherQmm, gatherQqmm, qqmm } from "./quantized/products.ts";
export * from "./ops/fp8.ts";
export { hadamardTransform } from "./linalg/hadamard.ts";
export { einsum } from "./linalg/einsum.ts";
export { einsumPath } from "./linalg/einsum_path.ts";
export * from "./files/io.ts";
export * from "./exported/mod.ts";
export * as fast from "./fast/fast.ts";
export * as fft from "./signal/fft_and_stft.ts";
export * as linalg from "./linalg/linalg.ts";
export * as optimizers from "./optimizers/mod.ts";
export * as random from "./random/random.ts";
export * as utils from "./tensor/utils.ts";

export * as cuda from "./devices/cuda.ts";
export * as distributed from "./distributed/mod.ts";
export * as metal from "./devices/metal.ts";

export {
  clearStreams,
  cpu,
  defaultStream,
  Device,
  deviceCount,
  type DeviceFacts,
  deviceInfo,
  type DeviceLike,
  DeviceType,
  gpu,
  isAvailable,
  newStream,
  newThreadLocalStream,
  newThreadUnsafeStream,
  setDefaultDevice,
  setDefaultStream,
  Stream,
  stream,
  type StreamScope,
  synchronize,
  withDevice,
} from "../schedule/streams.ts";
export {
  clearCache,
  closeDevices,
  defaultDevice,
  type DeviceInfo,
  type DeviceMemory,
  deviceMemory,
  devices,
  getActiveMemory,
  getCacheMemory,
  getMemoryLimit,
  getPeakMemory,
  type MissingKernels,
  openAhead,
  prepareDevices,
  resetPeakMemory,
  RuntimeError,
  type RuntimeErrorCode,
  setCacheLimit,
  setMemoryLimit,
  setWiredLimit,
} from "../schedule/device_info.ts";
export { setFusion } from "../schedule/plan/options.ts";
export {
  describeProfile,
  type KernelTime,
  type Profile,
  profile,
  type ProfileOptions,
  sumKernels,
} from "../schedule/plan/profile.ts";
export type { PipelineCode } from "../schedule/plan/profile_code.ts";

/** The ratio of a circle's circumference to its diameter. */
export const pi: number = Math.PI;
/** The base of natural logarithms. */
export const e: number = Math.E;
/** Euler's constant, the limit of 1 + 1/2 + … + 1/n - log(n). */
export const eulerGamma: number = 0.5772156649015329;
/** Infinity. */
export const inf: number = Infinity;
/** Not a number. */
export const nan: number = NaN;
/** A new axis in an index. */
export const newaxis: null = null;
