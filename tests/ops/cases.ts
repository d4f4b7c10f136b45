/**
 * THE case table: every op with its inputs, its oracle and its tolerance, run on every device by ops_test.ts.
 *
 * A row names the op, the inputs (shape, dtype, range), how to call it and the same thing in float64 (oracle.ts). Some rows are
 * written out; a family draws rows of its op, each from a seed of its own.
 */
import type { Case } from "./cases/case.ts";
import type { Drawn, Family } from "./cases/family.ts";
import { aliases } from "./cases/aliases.ts";
import { Draw } from "./cases/draw.ts";
import { elementwise } from "./cases/elementwise.ts";
import { movement } from "./cases/movement.ts";
import { fused, products } from "./cases/products.ts";
import { reductions } from "./cases/reductions.ts";
import { drawnArithmetic } from "./cases/drawn_arithmetic.ts";
import { drawnConvolutions } from "./cases/drawn_convolutions.ts";
import { drawnCreation } from "./cases/drawn_creation.ts";
import { drawnFunctions } from "./cases/drawn_functions.ts";
import { drawnFused } from "./cases/drawn_fused.ts";
import { drawnIndexing } from "./cases/drawn_indexing.ts";
import { drawnLinalg } from "./cases/drawn_linalg.ts";
import { drawnMovement } from "./cases/drawn_movement.ts";
import { drawnProducts } from "./cases/drawn_products.ts";
import { drawnQuantized } from "./cases/drawn_quantized.ts";
import { drawnRandom } from "./cases/drawn_random.ts";
import { drawnReductions } from "./cases/drawn_reductions.ts";

/** Rows that a family draws for each op. */
export const CASES_PER_OP: number = Math.max(40, Number(Deno.env.get("VKMX_CASES") ?? 0));

function* writtenRows(): Generator<Case> {
  yield* elementwise();
  yield* reductions();
  yield* movement();
  yield* products();
  yield* fused();
}

const WRITTEN = Map.groupBy([...writtenRows()], (c) => c.op);

/** Those of {@link GENERATED} but for second names. */
const FIRST_NAMES: ReadonlyMap<string, Family> = new Map(
  [
    drawnArithmetic,
    drawnConvolutions,
    drawnCreation,
    drawnFunctions,
    drawnFused,
    drawnIndexing,
    drawnLinalg,
    drawnMovement,
    drawnProducts,
    drawnQuantized,
    drawnRandom,
    drawnReductions,
  ].flatMap((families) => Object.entries(families())),
);

/**
 * The families by op: the exported function, after "fast.", "Tensor." and the like where it is not one of `mx` itself.
 */
export const GENERATED: ReadonlyMap<string, Family> = new Map([
  ...FIRST_NAMES,
  ...Object.entries(aliases(FIRST_NAMES)),
]);

/** Modules. */
const LAYERS = [
  ...["ALiBi", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm", "Bilinear", "CELU", "Conv1d", "Conv2d", "Conv3d"],
  ...["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Dropout2d", "Dropout3d", "ELU", "Embedding"],
  ...["GELU", "GLU", "GRU", "GroupNorm", "HardShrink", "HardTanh", "Hardswish", "Identity", "InstanceNorm", "LSTM"],
  ...["LayerNorm", "LeakyReLU", "Linear", "LogSigmoid", "LogSoftmax", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Mish"],
  ...[
    "MultiHeadAttention",
    "PReLU",
    "QQLinear",
    "QuantizedEmbedding",
    "QuantizedLinear",
    "RMSNorm",
    "RNN",
    "ReLU",
    "ReLU2",
  ],
  ...["ReLU6", "RoPE", "SELU", "Sequential", "SiLU", "Sigmoid", "SinusoidalPositionalEncoding", "Softmax", "Softmin"],
  ...["Softplus", "Softshrink", "Softsign", "Step", "Tanh", "Transformer", "TransformerDecoder", "Upsample"],
  ...["TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"],
  // Functions of which a module is a layer with settings.
  ...["glu", "prelu", "softmin", "step"],
];

/** Exported functions without rows, each with the reason. */
export const UNTESTED: ReadonlyMap<string, string> = new Map(
  ([
    ["makes or names no array", [
      ...[
        "ArrayError",
        "DtypeError",
        "IndexError",
        "KernelError",
        "RuntimeError",
        "ShapeError",
        "ValueError",
        "Slice",
        "At",
        "Tensor",
      ],
      ...["Tensor.constructor", "At.constructor", "Tensor.isDisposed", "random.seed", "complex"],
    ]],
    ["kernels of a program: custom_kernel_test.ts", ["fast.vulkanKernel"]],
    ["of 8-byte dtypes: elementwise_wide_test.ts", [
      ...["real", "imag", "conj", "conjugate", "view"],
    ]],
    ["about dtypes: elementwise_wide_test.ts", ["canCast", "finfo", "iinfo", "isdtype", "issubdtype", "resultType"]],
    ["says how arrays are printed: array_test.ts", ["getPrintoptions", "printoptions", "setPrintoptions"]],
    ["shows how far work is: notebook/display_test.ts", ["progress"]],
    ["every code and every float16 number, against MLX: ops/quantized/fp8_test.ts", ["toFp8", "fromFp8"]],
    ["evaluates or lets go: the random programs do so", [
      ...["eval", "asyncEval", "compile", "dispose", "tidy", "setFusion"],
    ]],
    ["about devices, memory or time: devices_test.ts, profile_test.ts", [
      ...["closeDevices", "defaultDevice", "describeProfile", "deviceInfo", "deviceMemory", "devices"],
      ...["getActiveMemory", "getPeakMemory", "openAhead", "prepareDevices", "profile", "resetPeakMemory"],
      ...["setDefaultDevice", "sumKernels", "withDevice", "Tensor.to"],
    ]],
    ["about streams, devices, memory and graphs: streams_test.ts", [
      ...[
        "Device",
        "Stream",
        "clearCache",
        "clearStreams",
        "defaultStream",
        "deviceCount",
        "exportToDot",
      ],
      ...["getCacheMemory", "isAvailable", "newStream", "newThreadLocalStream", "newThreadUnsafeStream"],
      ...["setCacheLimit", "setDefaultStream", "setMemoryLimit", "setWiredLimit", "stream", "synchronize"],
      ...["metal.isAvailable", "cuda.isAvailable", "metal.deviceInfo", "metal.clearCache", "metal.resetPeakMemory"],
      ...["getActiveMemory", "getCacheMemory", "getPeakMemory", "setCacheLimit", "setMemoryLimit", "setWiredLimit"]
        .map((name) => `metal.${name}`),
    ]],
    ["transforms: fft_test.ts", [
      ...["fft", "rfft"].flatMap((name) =>
        ["", "2", "n"].flatMap((axes) => [`fft.${name}${axes}`, `fft.i${name}${axes}`])
      ),
      ...["fft.fftfreq", "fft.rfftfreq", "fft.fftshift", "fft.ifftshift"],
    ]],
    ["of functions: transforms/transforms_test.ts", [
      ...["checkpoint", "customFunction", "grad", "jvp", "stopGradient", "valueAndGrad", "vjp", "vmap"],
    ]],
    ["eigenvalues and their vectors: eigen_test.ts", ["linalg.eig", "linalg.eigvals"]],
    ["tells an order of products: einsum_path_test.ts", ["einsumPath"]],
    ["of compiled functions: compile_state_test.ts", ["depends", "disableCompile", "enableCompile"]],
    ["stft_test.ts", ["fft.stft", "fft.istft"]],
    ["unique_test.ts", ["unique", "minmax", "matrixNorm", "getArrayBufferSize", "getMemoryLimit"]],
    ["fast_functions_test.ts", ["fast.crossEntropy", "fast.gatedDeltaUpdate"]],
    ["against MLX, with gradients: nn/golden_test.ts", [
      ...LAYERS.map((name) => `nn.${name}`),
    ]],
    ["of several processes: tests/distributed", [
      ...[
        "Group",
        "allGather",
        "allMax",
        "allMin",
        "allSum",
        "init",
        "isAvailable",
        "recv",
        "recvLike",
        "send",
        "sumScatter",
      ]
        .map((name) => `distributed.${name}`),
      ...["nn.averageGradients", "nn.clipGradNormSharded"],
    ]],
    ["of several processes: distributed/shard_test.ts", [
      ...["nn.AllToShardedLinear", "nn.ShardedToAllLinear", "nn.shardInplace", "nn.shardLinear"],
      ...["nn.QuantizedAllToShardedLinear", "nn.QuantizedShardedToAllLinear"],
    ]],
    ["of modules: nn/module_test.ts", ["nn.Module", "nn.checkpoint", "nn.quantize", "nn.valueAndGrad"]],
    ["those of mx: nn/golden_test.ts has them as modules", ["nn.sigmoid", "nn.softmax", "nn.tanh"]],
    ["files: io_test.ts", ["load", "loadSafetensors", "safetensorsMetadata", "save", "saveSafetensors"]],
    ["functions in files: export_test.ts", ["exportFunction", "exporter", "importFunction"]],
    ["files: array_files_test.ts", ["loadGguf", "loadNpy", "loadNpz", "saveGguf", "savez", "savezCompressed"]],
    ["the definition of a fused op: its rows run it without fusion", [
      ...["fast.attentionComposite", "fast.logprobsComposite", "fast.rmsNormComposite", "fast.ropeComposite"],
      "fast.sampleComposite",
    ]],
    ["tells what an array is or holds: array_test.ts", [
      ...[
        "shape",
        "dtype",
        "ndim",
        "size",
        "itemsize",
        "nbytes",
        "length",
        "item",
        "tolist",
        "toTypedArray",
        "toString",
      ]
        .map((name) => `Tensor.${name}`),
      "Tensor.toJSON",
    ]],
  ] as const).flatMap(([reason, names]) => names.map((name) => [name, reason] as const)),
);

/** All ops of the table. */
export const OPS: readonly string[] = [...new Set([...WRITTEN.keys(), ...GENERATED.keys()])];

function named(op: string, drawn: Drawn): Case {
  const inputs = drawn.inputs.map((i) => `${i.dtype} (${i.shape})${i.layout ? ` ${i.layout}` : ""}`).join(", ");
  return { ...drawn, op, what: `${drawn.what ?? ""} ${inputs}`.trim() };
}

/** The rows of an op; those that are drawn of all dtypes, or of few that differ from op to op. */
export function casesOf(op: string, allTypes: boolean): { written: readonly Case[]; generated: readonly Case[] } {
  const family = GENERATED.get(op);
  const number = Array.from(op).reduce((n, c) => (31 * n + c.charCodeAt(0)) >>> 0, 7);
  const generated = Array.from({ length: family ? CASES_PER_OP : 0 }, (_, i) => {
    const seed = (number + i * 7919) >>> 0;
    const drawn = family!(new Draw(seed, allTypes ? undefined : number));
    return named(op, { ...drawn, what: `${i}: ${drawn.what ?? ""}` });
  });
  return { written: WRITTEN.get(op) ?? [], generated };
}
