/**
 * Functions whose derivatives and batches are tested: a row for each op and way of using it, with shapes and ranges of its arguments.
 *
 * Arguments lie where the function is smooth: away from kinks, poles and ties.
 */

import * as mx from "../../mod.ts";

type T = mx.Tensor;

/** A function of arrays. */
export interface TransformCase {
  readonly name: string;
  readonly run: (...args: T[]) => T;
  /** Shapes of the arguments. */
  readonly shapes: readonly (readonly number[])[];
  /** Values lie in this range; default [-2, 2]. */
  readonly range?: readonly [number, number];
  /** Values are all different, and so far apart: no ties between them. */
  readonly distinct?: boolean;
  /** Without a derivative: only batches are tested. */
  readonly constant?: boolean;
}

const any = (f: unknown): T => f as T;

function unary(names: readonly string[], range?: readonly [number, number]): TransformCase[] {
  return names.map((name) => ({
    name,
    run: (x) => (mx as unknown as Record<string, (x: T) => T>)[name](x),
    shapes: [[3, 4]],
    range,
  }));
}

function binary(names: readonly string[], range?: readonly [number, number]): TransformCase[] {
  return names.flatMap((name) =>
    [[[3, 4], [3, 4]], [[3, 4], [4]], [[1, 4], [3, 1]], [[], [2, 3]]].map((shapes) => ({
      name,
      run: (a: T, b: T) => (mx as unknown as Record<string, (a: T, b: T) => T>)[name](a, b),
      shapes,
      range,
      distinct: true,
    }))
  );
}

/** The gradient of argument `i` of a function for a cotangent. */
const back = (f: (...args: T[]) => unknown, i: number, cotangent: T, ...args: T[]): T =>
  mx.vjp(f as (...args: unknown[]) => unknown, args, [cotangent])[1][i];

/** Whole numbers below n. */
const whole = (x: T, n: number): T => mx.remainder(mx.round(mx.multiply(x, 7)), n).astype(mx.uint32) as T;
const index = (...values: number[]): T => mx.array(values, mx.int32);

/** The table. */
export const CASES: readonly TransformCase[] = [
  ...unary([
    "negative",
    "square",
    "exp",
    "expm1",
    "sin",
    "cos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "erf",
    "sigmoid",
  ]),
  ...unary(["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p", "abs"], [0.3, 3]),
  ...unary(["tan", "arcsin", "arccos", "arctanh", "erfinv"], [-0.8, 0.8]),
  ...unary(["arccosh"], [1.5, 3]),
  ...binary(["add", "subtract", "multiply", "maximum", "minimum", "logaddexp", "arctan2"]),
  ...binary(["divide", "power"], [0.5, 2]),
  { name: "remainder", run: (a) => any(mx.remainder(a, 0.7)), shapes: [[5]], range: [0.75, 1.35] },
  {
    name: "where",
    run: (a, b) => any(mx.where(mx.greater(a, b), mx.square(a), b)),
    shapes: [[3, 4], [4]],
    distinct: true,
  },
  { name: "clip", run: (x) => any(mx.clip(x, -0.51, 0.52)), shapes: [[9]], distinct: true },
  { name: "astype", run: (x) => any(mx.astype(mx.astype(x, mx.float32), mx.float32)), shapes: [[3]] },
  // Movement.
  { name: "reshape", run: (x) => any(mx.sin(mx.reshape(x, [4, 3]))), shapes: [[3, 4]] },
  { name: "transpose", run: (x) => any(mx.sin(mx.transpose(x, [2, 0, 1]))), shapes: [[2, 3, 4]] },
  { name: "slice", run: (x) => any(mx.exp(x.index(mx.Slice(1, null, 2), mx.Slice(null, null, -1)))), shapes: [[5, 4]] },
  { name: "broadcastTo", run: (x) => any(mx.sin(mx.broadcastTo(x, [2, 3, 4]))), shapes: [[3, 1]] },
  { name: "asStrided", run: (x) => any(mx.sin(mx.asStrided(x, [3, 2], [1, 2], 1))), shapes: [[8]] },
  { name: "contiguous", run: (x) => any(mx.exp(mx.contiguous(mx.transpose(x)))), shapes: [[2, 3]] },
  { name: "concatenate", run: (a, b) => any(mx.sin(mx.concatenate([a, b, a], 1))), shapes: [[2, 3], [2, 1]] },
  { name: "stack", run: (a, b) => any(mx.exp(mx.stack([a, b], 1))), shapes: [[2, 3], [2, 3]] },
  { name: "pad", run: (x) => any(mx.sin(mx.pad(x, [[1, 2], [0, 1]], "constant", 0.5))), shapes: [[2, 3]] },
  { name: "pad at edges", run: (x) => any(mx.sin(mx.pad(x, 1, "edge"))), shapes: [[2, 3]] },
  { name: "repeat and roll", run: (x) => any(mx.exp(mx.roll(mx.repeat(x, 2, 1), 1, 0))), shapes: [[2, 3]] },
  { name: "diag", run: (x) => any(mx.exp(mx.diag(x, 1))), shapes: [[3]] },
  { name: "diagonal and tril", run: (x) => any(mx.add(mx.diagonal(mx.tril(mx.exp(x))), 1)), shapes: [[3, 3]] },
  { name: "Tensor.indexPut_", run: (x, v) => any(put(x, v)), shapes: [[4, 3], [2, 3]] },
  { name: "depends", run: (x, y) => any(mx.depends([mx.sin(x)], [mx.exp(y)])[0]), shapes: [[2, 3], [4]] },
  // Indexing.
  { name: "take", run: (x) => any(mx.sin(mx.take(x, mx.array([[0, 2], [2, 1]], mx.int32), 1))), shapes: [[2, 3]] },
  {
    name: "takeAlongAxis",
    run: (x) => any(mx.exp(mx.takeAlongAxis(x, mx.array([[1], [0]], mx.int32), 1))),
    shapes: [[2, 3]],
  },
  {
    name: "putAlongAxis",
    run: (x, v) => any(mx.sin(mx.putAlongAxis(x, mx.array([[1], [0]], mx.int32), v, 1))),
    shapes: [[2, 3], [2, 1]],
  },
  { name: "at.add", run: (x, v) => any(mx.sin(x.at([2, 0, 2]).add(v))), shapes: [[3, 2], [3, 2]] },
  {
    name: "at.multiply",
    run: (x, v) => any(mx.sin(x.at([2, 0]).multiply(v))),
    shapes: [[3, 2], [2, 2]],
    range: [0.5, 2],
  },
  { name: "at.maximum", run: (x, v) => any(mx.sin(x.at([2, 0]).maximum(v))), shapes: [[3, 2], [2, 2]], distinct: true },
  { name: "mx.slice", run: (x) => any(mx.exp(mx.slice(x, index(1), [1], [2, 2]))), shapes: [[2, 4]] },
  { name: "mx.sliceUpdate", run: (x, v) => any(mx.exp(mx.sliceUpdate(x, v, index(1), [1]))), shapes: [[2, 4], [2, 2]] },
  // Reductions.
  { name: "sum", run: (x) => any(mx.sin(mx.sum(x, [0, 2]))), shapes: [[2, 3, 2]] },
  { name: "mean", run: (x) => any(mx.sin(mx.mean(x, 1, true))), shapes: [[2, 3]] },
  { name: "prod", run: (x) => any(mx.prod(x, [0, 2])), shapes: [[2, 3, 2]] },
  { name: "prod with a zero", run: (x) => any(mx.prod(mx.multiply(x, mx.array([1, 0, 1])), 1)), shapes: [[2, 3]] },
  { name: "max", run: (x) => any(mx.max(x, 1)), shapes: [[3, 4]], distinct: true },
  { name: "min", run: (x) => any(mx.min(x)), shapes: [[3, 4]], distinct: true },
  { name: "logsumexp", run: (x) => any(mx.logsumexp(x, [0, 1])), shapes: [[2, 3, 2]] },
  { name: "variance", run: (x) => any(mx.variance(x, 1)), shapes: [[2, 5]] },
  { name: "softmax", run: (x) => any(mx.square(mx.softmax(x, 0))), shapes: [[3, 2]] },
  { name: "cumsum", run: (x) => any(mx.sin(mx.cumsum(x, 1, { reverse: true, inclusive: false }))), shapes: [[2, 4]] },
  { name: "cumprod", run: (x) => any(mx.cumprod(x, 1)), shapes: [[2, 4]] },
  { name: "cumprod back", run: (x) => any(mx.cumprod(x, 0, { reverse: true, inclusive: false })), shapes: [[4, 2]] },
  {
    name: "cumprod of zeros",
    run: (x) => any(mx.cumprod(mx.multiply(x, mx.array([1, 0, 1, 1])), 1)),
    shapes: [[2, 4]],
  },
  { name: "cummax", run: (x) => any(mx.cummax(x, 1)), shapes: [[2, 5]], distinct: true },
  { name: "cummin back", run: (x) => any(mx.cummin(x, 1, { reverse: true })), shapes: [[2, 5]], distinct: true },
  { name: "logcumsumexp", run: (x) => any(mx.logcumsumexp(x, 1)), shapes: [[2, 5]] },
  { name: "sort", run: (x) => any(mx.sin(mx.sort(x, 0))), shapes: [[5, 2]], distinct: true },
  { name: "topk", run: (x) => any(mx.sum(mx.square(mx.topk(x, 2, 1)))), shapes: [[2, 5]], distinct: true },
  { name: "median", run: (x) => any(mx.median(x, 1)), shapes: [[2, 5]], distinct: true },
  // Products.
  { name: "matmul", run: (a, b) => any(mx.matmul(a, b)), shapes: [[2, 3], [3, 4]] },
  { name: "matmul of batches", run: (a, b) => any(mx.matmul(a, b)), shapes: [[2, 1, 2, 3], [3, 3, 2]] },
  { name: "matmul of a vector", run: (a, b) => any(mx.matmul(a, b)), shapes: [[3], [2, 3, 2]] },
  { name: "addmm", run: (c, a, b) => any(mx.addmm(c, a, b, 0.5, 2)), shapes: [[2, 4], [2, 3], [3, 4]] },
  { name: "einsum", run: (a, b) => any(mx.einsum("bij,bjk->ik", a, b)), shapes: [[2, 3, 2], [2, 2, 3]] },
  { name: "tensordot", run: (a, b) => any(mx.tensordot(a, b, 1)), shapes: [[2, 3], [3, 2]] },
  {
    name: "gatherMm",
    run: (a, b) => any(mx.gatherMm(a, b, index(1, 0, 1), index(0, 0, 1))),
    shapes: [[2, 2, 3], [2, 3, 2]],
  },
  {
    name: "segmentedMm",
    run: (a, b) => any(mx.segmentedMm(a, b, mx.array([[0, 2], [1, 4]], mx.uint32))),
    shapes: [[2, 4], [4, 3]],
  },
  { name: "conv1d", run: (x, w) => any(mx.conv1d(x, w, 2, 1)), shapes: [[2, 6, 2], [3, 3, 2]] },
  { name: "conv2d", run: (x, w) => any(mx.conv2d(x, w, [1, 2], [2, 0], [1, 2])), shapes: [[1, 4, 6, 2], [2, 2, 2, 2]] },
  { name: "conv2d of groups", run: (x, w) => any(mx.conv2d(x, w, 1, 1, 1, 2)), shapes: [[2, 3, 3, 4], [4, 2, 2, 2]] },
  { name: "convTranspose1d", run: (x, w) => any(mx.convTranspose1d(x, w, 2, 1)), shapes: [[1, 4, 2], [3, 3, 2]] },
  {
    name: "convGeneral",
    run: (x, w) => any(mx.convGeneral(x, w, 3, [[2], [1]], 1, 2, 1, true)),
    shapes: [[1, 5, 2], [2, 3, 2]],
  },
  { name: "quantizedMatmul", run: (x) => any(mx.quantizedMatmul(x, ...quantized(), true, 32)), shapes: [[3, 32]] },
  {
    name: "quantizedMatmul by scales and biases",
    run: (x, s, b) => any(mx.quantizedMatmul(x, quantized()[0], s, b, true, 32)),
    shapes: [[3, 32], [4, 1], [4, 1]],
  },
  {
    name: "gatherQmm",
    run: (x, s, b) => any(mx.gatherQmm(x, stackOfCodes(), s, b, index(1, 0, 1), index(0, 1, 1), true, 32)),
    shapes: [[2, 3, 32], [2, 4, 1], [2, 4, 1]],
  },
  // Batches of what chooses, starts or weighs; no derivative with respect to it is asked for.
  {
    name: "mx.slice at",
    run: (x, i) => any(mx.slice(x, whole(i, 3), [1, 0], [2, 1, 3])),
    shapes: [[3, 4, 3], [2]],
    constant: true,
  },
  {
    name: "mx.sliceUpdate at",
    run: (x, v, i) => any(mx.sliceUpdate(x, v, whole(i, 3), [1])),
    shapes: [[2, 4], [2, 2], [1]],
    constant: true,
  },
  {
    name: "conv2d of groups and dilations",
    run: (x, w) => any(mx.convGeneral(x, w, 2, [[1, 0], [0, 2]], 1, [2, 1], 2, true)),
    shapes: [[2, 3, 3, 4], [4, 2, 2, 2]],
  },
  {
    name: "gatherMm at",
    run: (a, b, i, j) => any(mx.gatherMm(a, b, whole(i, 2), whole(j, 2))),
    shapes: [[2, 2, 3], [2, 3, 2], [3], [3]],
    constant: true,
  },
  {
    name: "quantizedMatmul of a stack",
    run: (x, s, b) => any(mx.quantizedMatmul(x, stackOfCodes(), s, b, true, 32)),
    shapes: [[2, 3, 32], [2, 4, 1], [2, 4, 1]],
  },
  {
    name: "gatherQmm at",
    run: (x, s, i) => any(mx.gatherQmm(x, stackOfCodes(), s, s, whole(i, 2), index(0, 1, 1), true, 32)),
    shapes: [[2, 3, 32], [2, 4, 1], [3]],
    constant: true,
  },
  // Fused.
  { name: "fast.rmsNorm", run: (x, w) => any(mx.fast.rmsNorm(x, w, 1e-3)), shapes: [[2, 3, 8], [8]] },
  { name: "fast.layerNorm", run: (x, w, b) => any(mx.fast.layerNorm(x, w, b, 1e-3)), shapes: [[2, 8], [8], [8]] },
  {
    name: "fast.rope",
    run: (x) => any(mx.sin(mx.fast.rope(x, 4, { base: 10000, offset: 3 }))),
    shapes: [[1, 2, 3, 6]],
  },
  {
    name: "fast.scaledDotProductAttention",
    run: (q, k, v) => any(mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.5, mask: "causal" })),
    shapes: [[1, 2, 3, 4], [1, 1, 3, 4], [1, 1, 3, 4]],
  },
  {
    name: "fast.scaledDotProductAttention of masked keys",
    run: (q, k, v) =>
      any(
        mx.fast.scaledDotProductAttention(q, k, v, {
          scale: 0.5,
          mask: mx.array([[true, false, true], [true, true, false]]),
        }),
      ),
    shapes: [[2, 2, 2, 3], [2, 2, 3, 3], [2, 2, 3, 5]],
  },
  {
    name: "fast.scaledDotProductAttention with a window",
    run: (q, k, v) => any(mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.5, mask: "causal", window: 2 })),
    shapes: [[1, 2, 4, 4], [1, 1, 5, 4], [1, 1, 5, 4]],
  },
  {
    name: "fast.scaledDotProductAttention by its mask",
    run: (q, m) => any(mx.fast.scaledDotProductAttention(q, q, q, { scale: 0.5, mask: m })),
    shapes: [[1, 2, 3, 4], [3, 3]],
  },
  {
    name: "fast.rope by its wavelengths",
    run: (x, freqs) => any(mx.fast.rope(x, 4, { freqs, traditional: true, scale: 0.5 })),
    shapes: [[2, 1, 3, 4], [2]],
    range: [0.5, 2],
  },
  // Their gradients, which are fused ops too.
  {
    name: "fast.rmsNorm without weight, its gradient",
    run: (x, c) => back((x) => mx.fast.rmsNorm(x, null, 1e-3), 0, c, x),
    shapes: [[3, 5], [3, 5]],
  },
  ...[0, 1].map((i): TransformCase => ({
    name: `fast.rmsNorm, gradient ${i}`,
    run: (x, w, c) => back((x, w) => mx.fast.rmsNorm(x, w, 1e-2), i, c, x, w),
    shapes: [[2, 3, 8], [8], [2, 3, 8]],
  })),
  ...[0, 1, 2].map((i): TransformCase => ({
    name: `fast.layerNorm, gradient ${i}`,
    run: (x, w, b, c) => back((x, w, b) => mx.fast.layerNorm(x, w, b, 1e-2), i, c, x, w, b),
    shapes: [[3, 8], [8], [8], [3, 8]],
  })),
  {
    name: "fast.rope, its gradient",
    run: (x, c) => back((x) => mx.sin(mx.fast.rope(x, 4, { offset: 3 })), 0, c, x),
    shapes: [[1, 2, 3, 6], [1, 2, 3, 6]],
  },
  ...[0, 1, 2].map((i): TransformCase => ({
    name: `fast.scaledDotProductAttention, gradient ${i}`,
    run: (q, k, v, c) =>
      back((q, k, v) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.5, mask: "causal" }), i, c, q, k, v),
    shapes: [[1, 2, 2, 3], [1, 1, 3, 3], [1, 1, 3, 2], [1, 2, 2, 2]],
  })),
  { name: "nn.gelu", run: (x) => any(mx.nn.gelu(x)), shapes: [[3, 4]] },
  { name: "nn.silu", run: (x) => any(mx.nn.silu(x)), shapes: [[3, 4]] },
  // Transforms of complex numbers, by their parts.
  { name: "fft", run: (x) => any(mx.abs(mx.fft.fft(x))), shapes: [[2, 5]] },
  { name: "rfft", run: (x) => any(mx.abs(mx.fft.rfft(x))), shapes: [[2, 6]] },
  { name: "irfft", run: (x) => any(mx.fft.irfft(mx.multiply(x, mx.complex(0.5, 1)), 6)), shapes: [[2, 4]] },
  { name: "irfft of odd size", run: (x) => any(mx.fft.irfft(mx.multiply(x, mx.complex(0.5, 1)), 5)), shapes: [[3]] },
  { name: "hadamardTransform", run: (x) => any(mx.sin(mx.hadamardTransform(x))), shapes: [[2, 4]] },
  {
    name: "complex functions",
    run: (x, y) => any(mx.real(mx.divide(mx.exp(mx.add(x, mx.multiply(y, mx.complex(0, 1)))), mx.complex(1, 2)))),
    shapes: [[3], [3]],
  },
  {
    name: "parts of complex numbers",
    run: (x, y) => any(mx.imag(mx.conj(mx.multiply(mx.add(x, mx.multiply(y, mx.complex(0, 1))), mx.complex(2, 1))))),
    shapes: [[3], [3]],
  },
  // No derivatives.
  { name: "argsort", run: (x) => any(mx.argsort(x, 1)), shapes: [[2, 4]], distinct: true, constant: true },
  { name: "argmax", run: (x) => any(mx.argmax(x, 1)), shapes: [[2, 4]], distinct: true, constant: true },
  { name: "floor", run: (x) => any(mx.floor(x)), shapes: [[4]], constant: true },
  { name: "view", run: (x) => any(mx.view(x, mx.int32)), shapes: [[2, 3]], constant: true },
  { name: "quantize", run: (x) => any(mx.quantize(x, 32)[1]), shapes: [[2, 32]], constant: true },
  { name: "dequantize", run: (x) => any(mx.dequantize(...mx.quantize(x, 32), 32)), shapes: [[2, 32]], constant: true },
  {
    name: "linalg.inv",
    run: (x) => any(mx.linalg.inv(mx.add(x, mx.multiply(mx.eye(3), 4)))),
    shapes: [[3, 3]],
    constant: true,
  },
];

function put(x: T, v: T): T {
  const copy = mx.multiply(x, 2) as T;
  copy.indexPut_([mx.Slice(1, 3)], v);
  return copy;
}

function stackOfCodes(): T {
  const [codes] = quantized();
  return mx.stack([codes, mx.flip(codes)]) as T;
}

function quantized(): [T, T, T] {
  return mx.quantize(mx.random.normal([4, 32], mx.float32, 0, 1, mx.random.key(3)), 32) as [T, T, T];
}
