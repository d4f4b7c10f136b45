/**
 * The modules and losses whose results tests/golden/arrays/nn.json has from MLX, under the names that tests/reference/nn.py gives them.
 */

import * as mx from "../../mod.ts";

type T = mx.Tensor;
const { nn } = mx;
const { losses } = nn;

/** A module, and how it is called; shapes of its inputs, integers below a number where `whole` says so. */
export interface GoldenCase {
  readonly make: () => mx.nn.Module;
  readonly shapes: readonly (readonly number[])[];
  readonly whole?: Readonly<Record<number, number>>;
  readonly evaluated?: boolean;
  // deno-lint-ignore no-explicit-any -- modules of all classes
  readonly call?: (module: any, ...inputs: any[]) => T | readonly T[];
}

/** The numbers that fill a tensor: (37 k + 29 seed) % 101 / 50 - 1. */
export function fill(seed: number, shape: readonly number[]): T {
  const size = shape.reduce((product, n) => product * n, 1);
  return mx.array(Array.from({ length: size }, (_, k) => (k * 37 + seed * 29) % 101 / 50 - 1)).reshape([...shape]);
}

/** The seed of a parameter: of its name without underscores, in small letters. */
export function seedOf(name: string): number {
  return Array.from(name.toLowerCase()).reduce((sum, char) => sum + char.charCodeAt(0), 0) % 101;
}

/** All parameters of a module by name. */
export function named(tree: unknown, prefix = ""): [string, T][] {
  if (tree instanceof mx.Tensor) return [[prefix, tree]];
  return Object.entries(tree as object).flatMap(([key, part]) => named(part, prefix === "" ? key : `${prefix}.${key}`));
}

/** Gives a module the weights that the golden values are of. */
export function filled<M extends mx.nn.Module>(module: M): M {
  const weights = named(module.parameters()).map(([name, { shape }]): [string, T] => {
    const half = mx.multiply(fill(seedOf(name), shape), 0.5);
    return [name, name.endsWith("runningVar") ? mx.add(mx.abs(half), 0.5) : half];
  });
  return module.loadWeights(weights);
}

function quantized(
  layer: mx.nn.Linear | mx.nn.Embedding,
  groupSize?: number,
  bits?: number,
  mode?: mx.nn.QuantizationMode,
  quantizeInput?: boolean,
): mx.nn.Module {
  return filled(layer as mx.nn.Linear).toQuantized(groupSize, bits, mode, quantizeInput);
}

/** Layers in the modes of small floats. */
function smallFloats(): Record<string, GoldenCase> {
  const entries = (["mxfp4", "mxfp8", "nvfp4"] as const).flatMap((mode): [string, GoldenCase][] => {
    const how = [undefined, undefined, mode] as const;
    return [
      [`QuantizedLinear of ${mode}`, { make: () => quantized(new nn.Linear(64, 32), ...how), shapes: [[2, 64]] }],
      [`QuantizedEmbedding of ${mode}`, {
        make: () => quantized(new nn.Embedding(5, 64), ...how),
        shapes: [[2, 3]],
        whole: { 0: 5 },
      }],
      ...(mode === "mxfp4" ? [] : [
        [`QQLinear of ${mode}`, { make: () => new nn.QQLinear(64, 32, ...how), shapes: [[2, 3, 64]] }],
        [`QQLinear of ${mode} evaluated`, {
          make: () => quantized(new nn.Linear(64, 32, false), ...how, true).eval(),
          shapes: [[2, 64]],
          evaluated: true,
        }],
      ] as [string, GoldenCase][]),
    ];
  });
  return Object.fromEntries(entries);
}

function loss(fn: (...inputs: T[]) => T): () => mx.nn.Module {
  return () =>
    new class extends nn.Module {
      override forward(...inputs: T[]): T {
        return fn(...inputs);
      }
    }();
}

const A = [3, 4];
const last = -1;

/** The cases by name. */
export const GOLDEN_CASES: Record<string, GoldenCase> = {
  "Linear": { make: () => new nn.Linear(4, 3), shapes: [[2, 5, 4]] },
  "Linear without bias": { make: () => new nn.Linear(4, 3, false), shapes: [[4]] },
  "Identity": { make: () => new nn.Identity(3, { key: 1 }), shapes: [[2, 3]] },
  "Bilinear": { make: () => new nn.Bilinear(3, 2, 4), shapes: [[2, 3, 3], [2, 3, 2]] },
  "Bilinear without bias": { make: () => new nn.Bilinear(3, 2, 1, false), shapes: [[5, 3], [5, 2]] },
  "Embedding": { make: () => new nn.Embedding(7, 3), shapes: [[2, 5]], whole: { 0: 7 } },
  "Embedding as head": {
    make: () => new nn.Embedding(7, 3),
    shapes: [[2, 3]],
    call: (m: mx.nn.Embedding, x) => m.asLinear(x),
  },
  "Conv1d": { make: () => new nn.Conv1d(4, 6, 3, 2, 1, 1, 2), shapes: [[2, 7, 4]] },
  "Conv1d dilated": { make: () => new nn.Conv1d(2, 3, 2, 1, 0, 2, 1, false), shapes: [[1, 6, 2]] },
  "Conv2d": { make: () => new nn.Conv2d(2, 3, [2, 3], [1, 2], [1, 0]), shapes: [[2, 4, 5, 2]] },
  "Conv2d groups": { make: () => new nn.Conv2d(4, 2, 3, 1, 1, 1, 2), shapes: [[1, 3, 3, 4]] },
  "Conv3d": { make: () => new nn.Conv3d(2, 2, 2, 1, 1), shapes: [[1, 2, 3, 2, 2]] },
  "ConvTranspose1d": { make: () => new nn.ConvTranspose1d(3, 2, 3, 2, 1, 1, 1), shapes: [[2, 4, 3]] },
  "ConvTranspose2d": {
    make: () => new nn.ConvTranspose2d(2, 3, [2, 3], 2, 0, 1, 0, false),
    shapes: [[1, 3, 2, 2]],
  },
  "ConvTranspose3d": { make: () => new nn.ConvTranspose3d(2, 1, 2, 2), shapes: [[1, 2, 2, 1, 2]] },
  "Dropout of nothing": { make: () => new nn.Dropout(0), shapes: [[2, 3]] },
  "Dropout evaluated": { make: () => new nn.Dropout(0.25), shapes: [[2, 3]], evaluated: true },
  "Dropout2d evaluated": { make: () => new nn.Dropout2d(), shapes: [[2, 3, 1]], evaluated: true },
  "Dropout3d evaluated": { make: () => new nn.Dropout3d(), shapes: [[2, 3, 1, 1]], evaluated: true },
  "LayerNorm": { make: () => new nn.LayerNorm(5), shapes: [[3, 5]] },
  "LayerNorm without bias": { make: () => new nn.LayerNorm(5, 1e-5, true, false), shapes: [[2, 2, 5]] },
  "LayerNorm not affine": { make: () => new nn.LayerNorm(5, 1e-3, false), shapes: [[2, 5]] },
  "RMSNorm": { make: () => new nn.RMSNorm(6, 1e-6), shapes: [[2, 6]] },
  "InstanceNorm": { make: () => new nn.InstanceNorm(3), shapes: [[2, 4, 3]] },
  "InstanceNorm affine": { make: () => new nn.InstanceNorm(3, 1e-5, true), shapes: [[2, 3, 2, 3]] },
  "GroupNorm": { make: () => new nn.GroupNorm(2, 4), shapes: [[2, 3, 4]] },
  "GroupNorm like PyTorch": { make: () => new nn.GroupNorm(2, 4, 1e-5, true, true), shapes: [[2, 3, 2, 4]] },
  "GroupNorm not affine": { make: () => new nn.GroupNorm(3, 6, 1e-5, false), shapes: [[2, 5, 6]] },
  "BatchNorm": { make: () => new nn.BatchNorm(3), shapes: [[4, 3]] },
  "BatchNorm of images": { make: () => new nn.BatchNorm(2, 1e-5, 0.3), shapes: [[2, 3, 2, 2]] },
  "BatchNorm evaluated": { make: () => new nn.BatchNorm(3), shapes: [[4, 3]], evaluated: true },
  "BatchNorm untracked": {
    make: () => new nn.BatchNorm(3, 1e-5, 0.1, false, false),
    shapes: [[2, 4, 3]],
    evaluated: true,
  },
  "MaxPool1d": { make: () => new nn.MaxPool1d(2), shapes: [[2, 6, 3]] },
  "MaxPool1d overlapping": { make: () => new nn.MaxPool1d(3, 2, 1), shapes: [[1, 7, 2]] },
  "MaxPool2d": { make: () => new nn.MaxPool2d([2, 3], [1, 2], 1), shapes: [[1, 4, 5, 2]] },
  "MaxPool3d": { make: () => new nn.MaxPool3d(2, 1), shapes: [[1, 3, 2, 3, 2]] },
  "AvgPool1d": { make: () => new nn.AvgPool1d(3, 2), shapes: [[1, 8, 2]] },
  "AvgPool2d": { make: () => new nn.AvgPool2d(2), shapes: [[1, 4, 4, 2]] },
  "AvgPool2d padded": { make: () => new nn.AvgPool2d(3, [2, 1], [1, 0]), shapes: [[1, 5, 4, 1]] },
  "AvgPool3d": { make: () => new nn.AvgPool3d([1, 2, 2], 1), shapes: [[1, 2, 3, 3, 1]] },
  "RoPE": { make: () => new nn.RoPE(4), shapes: [[1, 2, 3, 6]], call: (m: mx.nn.RoPE, x) => m.forward(x, 2) },
  "RoPE traditional": { make: () => new nn.RoPE(4, true, 100, 0.5), shapes: [[2, 3, 4]] },
  "SinusoidalPositionalEncoding": { make: () => new nn.SinusoidalPositionalEncoding(8), shapes: [[3, 2]] },
  "Sinusoidal in turns": {
    make: () => new nn.SinusoidalPositionalEncoding(6, 0.01, 2, 1, true, true),
    shapes: [[4]],
  },
  "Sinusoidal of two": { make: () => new nn.SinusoidalPositionalEncoding(2), shapes: [[4]] },
  "ALiBi": { make: () => new nn.ALiBi(), shapes: [[1, 4, 3, 3]] },
  "ALiBi of six heads": {
    make: () => new nn.ALiBi(),
    shapes: [[2, 6, 2, 4], [2, 4]],
    call: (m: mx.nn.ALiBi, x, mask) => m.forward(x, 2, mask),
  },
  "RNN": { make: () => new nn.RNN(3, 4), shapes: [[2, 3, 3]] },
  "RNN with state": { make: () => new nn.RNN(3, 4, false, nn.relu), shapes: [[2, 3, 3], [2, 4]] },
  "RNN of one sequence": { make: () => new nn.RNN(3, 2), shapes: [[3, 3]] },
  "GRU": { make: () => new nn.GRU(3, 4), shapes: [[2, 3, 3]] },
  "GRU with state": { make: () => new nn.GRU(3, 4), shapes: [[2, 2, 3], [2, 4]] },
  "GRU without bias": { make: () => new nn.GRU(3, 2, false), shapes: [[2, 3, 3]] },
  "LSTM": { make: () => new nn.LSTM(3, 4), shapes: [[2, 3, 3]] },
  "LSTM with state": { make: () => new nn.LSTM(3, 2, false), shapes: [[2, 2, 3], [2, 2], [2, 2]] },
  "MultiHeadAttention": {
    make: () => new nn.MultiHeadAttention(8, 2),
    shapes: [[2, 3, 8], [2, 4, 8]],
    call: (m: mx.nn.MultiHeadAttention, q, k) => m.forward(q, k, k),
  },
  "MultiHeadAttention of sizes": {
    make: () => new nn.MultiHeadAttention(8, 4, 3, 5, 6, 4, 2, true),
    shapes: [[1, 3, 3], [1, 3, 5], [1, 3, 6]],
    call: (m: mx.nn.MultiHeadAttention, q, k, v) =>
      m.forward(q, k, v, nn.MultiHeadAttention.createAdditiveCausalMask(3)),
  },
  "TransformerEncoderLayer": { make: () => new nn.TransformerEncoderLayer(4, 2), shapes: [[1, 3, 4]] },
  "TransformerEncoder norm last": {
    make: () => new nn.TransformerEncoder(2, 4, 1, 6, 0, nn.gelu, false),
    shapes: [[2, 3, 4]],
    call: (m: mx.nn.TransformerEncoder, x) => m.forward(x, "causal"),
  },
  "TransformerEncoder checkpointed": {
    make: () => new nn.TransformerEncoder(2, 4, 2, 4, 0, nn.relu, true, true),
    shapes: [[1, 3, 4]],
  },
  "TransformerDecoder": {
    make: () => new nn.TransformerDecoder(2, 4, 2, 5),
    shapes: [[1, 3, 4], [1, 2, 4]],
    call: (m: mx.nn.TransformerDecoder, x, memory) => m.forward(x, memory, "causal"),
  },
  "TransformerDecoder norm last": {
    make: () => new nn.TransformerDecoder(1, 4, 2, 5, 0, nn.relu, false),
    shapes: [[1, 3, 4], [1, 2, 4]],
  },
  "Transformer": {
    make: () => new nn.Transformer(4, 2, 1, 1, 6),
    shapes: [[1, 3, 4], [1, 2, 4]],
    call: (m: mx.nn.Transformer, s, t) => m.forward(s, t, null, "causal"),
  },
  "Upsample nearest in three axes": { make: () => new nn.Upsample([2, 1, 3]), shapes: [[1, 2, 2, 1, 2]] },
  "Sequential": {
    make: () => new nn.Sequential(new nn.Linear(3, 4), nn.relu, new nn.Sequential(new nn.Linear(4, 2), new nn.Tanh())),
    shapes: [[2, 3]],
  },
  ...smallFloats(),
  "QuantizedLinear": { make: () => quantized(new nn.Linear(64, 3)), shapes: [[2, 64]] },
  "QuantizedLinear of 8 bits": { make: () => quantized(new nn.Linear(64, 2, false), 32, 8), shapes: [[1, 64]] },
  "QuantizedEmbedding": { make: () => quantized(new nn.Embedding(5, 64), 64, 4), shapes: [[2, 3]], whole: { 0: 5 } },
  "QuantizedEmbedding as head": {
    make: () => quantized(new nn.Embedding(5, 64), 32, 3),
    shapes: [[2, 64]],
    call: (m: mx.nn.QuantizedEmbedding, x) => m.asLinear(x),
  },
  "Step": { make: () => new nn.Step(0.5), shapes: [A] },

  ...Object.fromEntries((["none", "mean", "sum"] as const).map((reduction) => [`crossEntropy ${reduction}`, {
    make: loss((x, y) => losses.crossEntropy(x, y, null, last, 0, reduction)),
    shapes: [A, [3]],
    whole: { 1: 4 },
  }])),
  "crossEntropy weighted": {
    make: loss((x, y, w) => losses.crossEntropy(x, y, w, last, 0.1)),
    shapes: [A, [3], [3]],
    whole: { 1: 4 },
  },
  "crossEntropy of probabilities": {
    make: loss((x, y) => losses.crossEntropy(x, mx.softmax(y, 0), null, 0, 0.2)),
    shapes: [A, A],
  },
  "crossEntropy along an axis": {
    make: loss((x, y) => losses.crossEntropy(x, y, null, 1)),
    shapes: [[2, 3, 2], [2, 2]],
    whole: { 1: 3 },
  },
  "binaryCrossEntropy": { make: loss((x, y) => losses.binaryCrossEntropy(x, mx.abs(y))), shapes: [A, A] },
  "binaryCrossEntropy of probabilities": {
    make: loss((x, y, w) => losses.binaryCrossEntropy(mx.sigmoid(x), mx.abs(y), w, false, "none")),
    shapes: [A, A, A],
  },
  "l1Loss": { make: loss((x, y) => losses.l1Loss(x, y)), shapes: [A, A] },
  "mseLoss": { make: loss((x, y) => losses.mseLoss(x, y)), shapes: [A, A] },
  "mseLoss sum": { make: loss((x, y) => losses.mseLoss(x, y, "sum")), shapes: [A, A] },
  "nllLoss": { make: loss((x, y) => losses.nllLoss(x, y)), shapes: [A, [3]], whole: { 1: 4 } },
  "nllLoss along an axis": {
    make: loss((x, y) => losses.nllLoss(x, y, 0, "mean")),
    shapes: [A, [4]],
    whole: { 1: 3 },
  },
  "gaussianNllLoss": {
    make: loss((x, y, v) => losses.gaussianNllLoss(x, y, mx.add(mx.abs(v), 0.1))),
    shapes: [A, A, A],
  },
  "gaussianNllLoss full": {
    make: loss((x, y, v) => losses.gaussianNllLoss(x, y, v, true, 0.3, "none")),
    shapes: [A, A, A],
  },
  "klDivLoss": { make: loss((x, y) => losses.klDivLoss(x, y)), shapes: [A, A] },
  "klDivLoss mean": { make: loss((x, y) => losses.klDivLoss(x, y, 0, "mean")), shapes: [A, A] },
  "smoothL1Loss": { make: loss((x, y) => losses.smoothL1Loss(x, y)), shapes: [A, A] },
  "smoothL1Loss beta": { make: loss((x, y) => losses.smoothL1Loss(x, y, 0.5, "sum")), shapes: [A, A] },
  "tripletLoss": { make: loss((x, y, z) => losses.tripletLoss(x, y, z)), shapes: [A, A, A] },
  "tripletLoss of p 3": {
    make: loss((x, y, z) => losses.tripletLoss(x, y, z, 0, 3, 0.5, 1e-3, "mean")),
    shapes: [A, A, A],
  },
  "hingeLoss": { make: loss((x, y) => losses.hingeLoss(x, mx.sign(y))), shapes: [A, A] },
  "huberLoss": { make: loss((x, y) => losses.huberLoss(x, y, 0.7)), shapes: [A, A] },
  "logCoshLoss": { make: loss((x, y) => losses.logCoshLoss(mx.multiply(x, 3), y, "mean")), shapes: [A, A] },
  "cosineSimilarityLoss": { make: loss((x, y) => losses.cosineSimilarityLoss(x, y)), shapes: [A, A] },
  "cosineSimilarityLoss along an axis": {
    make: loss((x, y) => losses.cosineSimilarityLoss(x, y, 0, 1e-3, "sum")),
    shapes: [A, A],
  },
  "marginRankingLoss": {
    make: loss((x, y, z) => losses.marginRankingLoss(x, y, mx.sign(z), 0.25)),
    shapes: [A, A, A],
  },
};

for (const mode of ["nearest", "linear", "cubic"] as const) {
  const add = (name: string, make: () => mx.nn.Module, shape: readonly number[]): void => {
    GOLDEN_CASES[`Upsample ${mode}${name}`] = { make, shapes: [shape] };
  };
  add("", () => new nn.Upsample(2, mode), [1, 3, 4, 2]);
  add(" by fractions", () => new nn.Upsample([1.5, 0.6], mode), [1, 4, 5, 2]);
  add(" in one axis", () => new nn.Upsample([2.5], mode), [2, 5, 1]);
  if (mode === "nearest") continue;
  add(" of corners", () => new nn.Upsample([2, 1.75], mode, true), [1, 3, 4, 2]);
  add(" antialiased", () => new nn.Upsample([0.5, 1.5], mode, false, true), [1, 6, 4, 1]);
}

/** Activations as modules, with what their constructors take; the names have it too. */
const ACTIVATIONS: Readonly<Record<string, () => mx.nn.Module>> = {
  Sigmoid: () => new nn.Sigmoid(),
  Mish: () => new nn.Mish(),
  ReLU: () => new nn.ReLU(),
  ReLU2: () => new nn.ReLU2(),
  ReLU6: () => new nn.ReLU6(),
  Softmax: () => new nn.Softmax(),
  Softmin: () => new nn.Softmin(),
  LogSoftmax: () => new nn.LogSoftmax(),
  LogSigmoid: () => new nn.LogSigmoid(),
  Softplus: () => new nn.Softplus(),
  Softsign: () => new nn.Softsign(),
  SiLU: () => new nn.SiLU(),
  Tanh: () => new nn.Tanh(),
  Hardswish: () => new nn.Hardswish(),
  HardTanh: () => new nn.HardTanh(),
  SELU: () => new nn.SELU(),
  "LeakyReLU 0.2": () => new nn.LeakyReLU(0.2),
  "ELU 0.5": () => new nn.ELU(0.5),
  "CELU 2": () => new nn.CELU(2),
  "Softshrink 1": () => new nn.Softshrink(1),
  "HardShrink 1.5": () => new nn.HardShrink(1.5),
  "GLU 0": () => new nn.GLU(0),
  GELU: () => new nn.GELU(),
  "GELU tanh": () => new nn.GELU("tanh"),
  "GELU precise": () => new nn.GELU("precise"),
  "GELU fast": () => new nn.GELU("fast"),
  "PReLU 4": () => new nn.PReLU(4),
};

for (const [name, make] of Object.entries(ACTIVATIONS)) {
  const rows = /^(LeakyReLU|ELU|CELU|Softshrink|HardShrink|GLU|GELU|PReLU)\b/.test(name) ? 4 : 3;
  const call = (m: mx.nn.Module, x: T): T => m.forward(mx.multiply(x, 4));
  GOLDEN_CASES[name] = { make, shapes: [[rows, 4]], call };
}
