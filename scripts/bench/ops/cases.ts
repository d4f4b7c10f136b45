/**
 * Measurements of `deno task bench:ops`: one row a call, with the same call in MLX and in numpy if it is compared.
 *
 * A row has its size on the CPU, on a GPU or both. It gives its inputs, its work (bytes that must move, floating-point operations or keys)
 * and the call for a size. So one table serves all devices and scales. A call of a function that the library lacks throws a
 * {@link MissingFunction}, which the table of results shows.
 *
 * @module
 */

import * as mx from "../../../mod.ts";

/** The library has no such function. */
export class MissingFunction extends Error {
  override readonly name = "MissingFunction";
}

/** A random input: floats or integers in [low, high). Inputs are called a, b, c, … in Python. */
export interface Input {
  readonly shape: readonly number[];
  readonly dtype: "float32" | "float16" | "bfloat16" | "int32" | "bool";
  readonly low: number;
  readonly high: number;
}

/** The least work of a call; "none" has only a time. */
export type Work = { readonly unit: "bytes" | "flops" | "keys"; readonly amount: number } | { readonly unit: "none" };

/** A row of the table. */
export interface OpCase {
  readonly name: string;
  /** Its size on the CPU: elements, or the longest side where `power` says so. */
  readonly cpu?: number;
  /** Its size on a GPU. */
  readonly gpu?: number;
  /** How work grows with the size: a scale of 1/8 makes a size of power 3 half as long. Default 1. */
  readonly power?: 2 | 3;
  readonly inputs: (n: number) => readonly Input[];
  readonly work: (n: number) => Work;
  readonly call: (x: readonly mx.Tensor[], n: number) => mx.Tensor | readonly mx.Tensor[];
  /** The same in Python, with n for the size; absent in rows for GPUs. */
  readonly mlx?: string;
  /** Absent where numpy has no counterpart of a few calls. */
  readonly numpy?: string;
}

const NONE: Work = { unit: "none" };
const bytes = (amount: number): Work => ({ unit: "bytes", amount });
const flops = (amount: number): Work => ({ unit: "flops", amount });
const keys = (amount: number): Work => ({ unit: "keys", amount });

const floats = (...shape: number[]): Input => ({ shape, dtype: "float32", low: 0.1, high: 1 });
const halves = (...shape: number[]): Input => ({ shape, dtype: "float16", low: -0.1, high: 0.1 });
const brainFloats = (...shape: number[]): Input => ({ shape, dtype: "bfloat16", low: -0.1, high: 0.1 });
const indices = (count: number, high: number): Input => ({ shape: [count], dtype: "int32", low: 0, high });
const bools = (...shape: number[]): Input => ({ shape, dtype: "bool", low: 0, high: 2 });

/** A function by its path, such as "fft.fft". */
function named(path: string): (...args: unknown[]) => mx.Tensor {
  const found = path.split(".").reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], mx);
  if (typeof found !== "function") throw new MissingFunction(`there is no mx.${path}`);
  return found as (...args: unknown[]) => mx.Tensor;
}

const M = 1 << 20;
/** Elements of a row in calls that work along rows of a large array. */
const ROW = 4096;
const rowsOf = (n: number): [rows: number, width: number] => {
  const width = Math.min(ROW, n);
  return [Math.max(1, Math.floor(n / width)), width];
};
/** Heads and their size in attention. */
const HEADS = 16, HEAD = 128;

/** One input of n float32 numbers, of which `moved` are read and written for each. */
const linear = (moved: number, inputs = 1): Pick<OpCase, "inputs" | "work"> => ({
  inputs: (n) => Array.from({ length: inputs }, () => floats(n)),
  work: (n) => bytes(4 * n * moved),
});
/** The same as a square matrix, whose side is the size. */
const square = (moved: number, inputs = 1): Pick<OpCase, "inputs" | "work" | "power"> => ({
  power: 2,
  inputs: (n) => Array.from({ length: inputs }, () => floats(n, n)),
  work: (n) => bytes(4 * n * n * moved),
});
/** The same as rows of {@link ROW} elements. */
const byRows = (moved: number): Pick<OpCase, "inputs" | "work"> => ({
  inputs: (n) => [floats(...rowsOf(n))],
  work: (n) => bytes(4 * n * moved),
});
/** Products of square matrices, whose side is the size. */
const product = (input: (...shape: number[]) => Input): Pick<OpCase, "inputs" | "work" | "power" | "call"> => ({
  power: 3,
  inputs: (n) => [input(n, n), input(n, n)],
  work: (n) => flops(2 * n ** 3),
  call: ([a, b]) => mx.matmul(a, b),
});
/** An elementwise function of one argument. */
const unary = (name: "exp" | "log" | "sin" | "tanh" | "erf", numpy = `np.${name}(a)`): OpCase => ({
  name,
  cpu: M,
  ...linear(2),
  call: ([a]) => mx[name](a),
  mlx: `mx.${name}(a)`,
  ...(numpy !== "" && { numpy }),
});
/** Sums and extremes of a square matrix. */
const reduction = (name: string, axis: 0 | 1 | undefined, numpy: string): OpCase => ({
  name: `${name}${axis === undefined ? "" : ` axis ${axis}`}`,
  cpu: 1024,
  gpu: 8192,
  ...square(1),
  call: ([a]) => named(name)(a, ...(axis === undefined ? [] : [axis])),
  mlx: `mx.${name}(a${axis === undefined ? "" : `, axis=${axis}`})`,
  numpy,
});

/** All rows. */
export const OP_CASES: readonly OpCase[] = [
  { name: "add", cpu: M, gpu: 64 * M, ...linear(3, 2), call: ([a, b]) => mx.add(a, b), mlx: "a + b", numpy: "a + b" },
  { name: "multiply by scalar", cpu: M, ...linear(2), call: ([a]) => mx.multiply(a, 2), mlx: "a * 2", numpy: "a * 2" },
  {
    name: "copy",
    gpu: 64 * M,
    ...linear(2),
    call: ([a]) => mx.add(a, 0),
  },
  {
    name: "chain of five",
    cpu: M,
    gpu: 64 * M,
    ...linear(3, 2),
    call: ([a, b]) => mx.sqrt(mx.add(mx.square(mx.subtract(mx.multiply(a, b), 0.5)), 1)),
    mlx: "mx.sqrt(mx.square(a * b - 0.5) + 1)",
    numpy: "np.sqrt(np.square(a * b - np.float32(0.5)) + np.float32(1))",
  },
  unary("exp"),
  unary("log"),
  unary("sin"),
  unary("tanh"),
  unary("erf", ""),
  {
    name: "divide",
    cpu: M,
    ...linear(3, 2),
    call: ([a, b]) => mx.divide(a, b),
    mlx: "a / b",
    numpy: "a / b",
  },
  { name: "power", cpu: M, ...linear(3, 2), call: ([a, b]) => mx.power(a, b), mlx: "mx.power(a, b)", numpy: "a ** b" },
  {
    name: "where",
    cpu: M,
    gpu: 64 * M,
    inputs: (n) => [bools(n), floats(n), floats(n)],
    work: (n) => bytes(13 * n),
    call: ([c, a, b]) => mx.where(c, a, b),
    mlx: "mx.where(a, b, c)",
    numpy: "np.where(a, b, c)",
  },
  {
    name: "broadcast add",
    cpu: 1024,
    power: 2,
    inputs: (n) => [floats(n, n), floats(n)],
    work: (n) => bytes(8 * n * n),
    call: ([a, b]) => mx.add(a, b),
    mlx: "a + b",
    numpy: "a + b",
  },
  {
    name: "cast to float16",
    cpu: M,
    ...linear(1.5),
    call: ([a]) => mx.astype(a, mx.float16),
    mlx: "a.astype(mx.float16)",
    numpy: "a.astype(np.float16)",
  },
  reduction("sum", undefined, "a.sum()"),
  reduction("sum", 0, "a.sum(axis=0)"),
  reduction("sum", 1, "a.sum(axis=1)"),
  reduction("max", 1, "a.max(axis=1)"),
  reduction("argmax", undefined, "a.argmax()"),
  { ...reduction("mean", 1, "a.mean(axis=1)"), gpu: undefined },
  { ...reduction("var", 1, "a.var(axis=1)"), gpu: undefined },
  {
    name: "softmax",
    cpu: M,
    gpu: 64 * M,
    ...byRows(2),
    call: ([a]) => mx.softmax(a, -1),
    mlx: "mx.softmax(a, axis=-1)",
    numpy: "(lambda e: e / e.sum(axis=-1, keepdims=True))(np.exp(a - a.max(axis=-1, keepdims=True)))",
  },
  {
    name: "logsumexp",
    cpu: M,
    ...byRows(1),
    call: ([a]) => mx.logsumexp(a, -1),
    mlx: "mx.logsumexp(a, axis=-1)",
    numpy: "np.log(np.exp(a - a.max(axis=-1, keepdims=True)).sum(axis=-1))",
  },
  {
    name: "rmsNorm",
    cpu: M,
    gpu: 64 * M,
    inputs: (n) => [floats(...rowsOf(n)), floats(rowsOf(n)[1])],
    work: (n) => bytes(8 * n),
    call: ([a, w]) => mx.fast.rmsNorm(a, w, 1e-5),
    mlx: "mx.fast.rms_norm(a, b, 1e-5)",
    numpy: "a * (1 / np.sqrt(np.square(a).mean(axis=-1, keepdims=True) + np.float32(1e-5))) * b",
  },
  {
    name: "layerNorm",
    cpu: M,
    gpu: 64 * M,
    inputs: (n) => [floats(...rowsOf(n)), floats(rowsOf(n)[1]), floats(rowsOf(n)[1])],
    work: (n) => bytes(8 * n),
    call: ([a, w, b]) => mx.fast.layerNorm(a, w, b, 1e-5),
    mlx: "mx.fast.layer_norm(a, b, c, 1e-5)",
    numpy: "(a - a.mean(axis=-1, keepdims=True)) / np.sqrt(a.var(axis=-1, keepdims=True) + np.float32(1e-5)) * b + c",
  },
  {
    name: "transposed copy",
    cpu: 1024,
    gpu: 8192,
    ...square(2),
    call: ([a]) => named("contiguous")(mx.transpose(a)),
    mlx: "mx.contiguous(a.T)",
    numpy: "np.ascontiguousarray(a.T)",
  },
  {
    name: "concatenate",
    cpu: M,
    ...linear(4, 2),
    call: ([a, b]) => mx.concatenate([a, b]),
    mlx: "mx.concatenate([a, b])",
    numpy: "np.concatenate([a, b])",
  },
  {
    name: "take",
    cpu: M,
    gpu: 16 * M,
    inputs: (n) => [floats(n), indices(n, n)],
    work: (n) => bytes(12 * n),
    call: ([a, i]) => mx.take(a, i),
    mlx: "mx.take(a, b)",
    numpy: "np.take(a, b)",
  },
  {
    name: "take rows",
    cpu: M,
    inputs: (n) => [floats(Math.max(1, n >> 8), 256), indices(Math.max(1, n >> 8), Math.max(1, n >> 8))],
    work: (n) => bytes(8 * n),
    call: ([a, i]) => mx.take(a, i, 0),
    mlx: "mx.take(a, b, axis=0)",
    numpy: "np.take(a, b, axis=0)",
  },
  {
    name: "sort",
    cpu: M,
    gpu: 16 * M,
    inputs: (n) => [floats(n)],
    work: keys,
    call: ([a]) => mx.sort(a),
    mlx: "mx.sort(a)",
    numpy: "np.sort(a)",
  },
  {
    name: "argsort of rows",
    cpu: M,
    inputs: (n) => [floats(...rowsOf(n))],
    work: keys,
    call: ([a]) => mx.argsort(a, -1),
    mlx: "mx.argsort(a, axis=-1)",
    numpy: "np.argsort(a, axis=-1)",
  },
  {
    name: "cumsum",
    cpu: M,
    gpu: 64 * M,
    ...linear(2),
    call: ([a]) => mx.cumsum(a),
    mlx: "mx.cumsum(a)",
    numpy: "np.cumsum(a)",
  },
  {
    name: "cumsum of rows",
    cpu: M,
    gpu: 64 * M,
    ...byRows(2),
    call: ([a]) => mx.cumsum(a, 1),
    mlx: "mx.cumsum(a, axis=1)",
    numpy: "np.cumsum(a, axis=1)",
  },
  {
    name: "random normal",
    cpu: M,
    gpu: 64 * M,
    inputs: () => [],
    work: (n) => bytes(4 * n),
    call: (_, n) => mx.random.normal([n]),
    mlx: "mx.random.normal((n,))",
    numpy: "np.random.default_rng().standard_normal(n, dtype=np.float32)",
  },
  {
    name: "random uniform",
    cpu: M,
    inputs: () => [],
    work: (n) => bytes(4 * n),
    call: (_, n) => mx.random.uniform(0, 1, [n]),
    mlx: "mx.random.uniform(shape=(n,))",
    numpy: "np.random.default_rng().random(n, dtype=np.float32)",
  },
  { name: "matmul", cpu: 512, gpu: 4096, ...product(floats), mlx: "a @ b", numpy: "a @ b" },
  { name: "matmul float16", gpu: 8192, ...product(halves) },
  { name: "matmul bfloat16", gpu: 8192, ...product(brainFloats) },
  {
    name: "matvec",
    cpu: 1024,
    gpu: 8192,
    power: 2,
    inputs: (n) => [floats(n, n), floats(n)],
    work: (n) => bytes(4 * n * n),
    call: ([a, b]) => mx.matmul(a, b),
    mlx: "a @ b",
    numpy: "a @ b",
  },
  {
    name: "batched matmul",
    cpu: 128,
    power: 3,
    inputs: (n) => [floats(32, n, n), floats(32, n, n)],
    work: (n) => flops(64 * n ** 3),
    call: ([a, b]) => mx.matmul(a, b),
    mlx: "a @ b",
    numpy: "a @ b",
  },
  {
    name: "causal attention",
    cpu: 256,
    gpu: 4096,
    power: 2,
    inputs: (n) => Array.from({ length: 3 }, () => halves(1, HEADS, n, HEAD)),
    work: (n) => flops(2 * HEADS * HEAD * n * n), // half of the two products
    call: ([q, k, v]) => mx.fast.scaledDotProductAttention(q, k, v, { scale: HEAD ** -0.5, mask: "causal" }),
    mlx: `mx.fast.scaled_dot_product_attention(a, b, c, scale=${HEAD}**-0.5, mask="causal")`,
  },
  {
    name: "attention",
    cpu: 256,
    power: 2,
    inputs: (n) => Array.from({ length: 3 }, () => floats(1, 8, n, 64)),
    work: (n) => flops(4 * 8 * 64 * n * n),
    call: ([q, k, v]) => mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.125 }),
    mlx: "mx.fast.scaled_dot_product_attention(a, b, c, scale=0.125)",
    numpy: "(lambda e: (e / e.sum(axis=-1, keepdims=True)) @ c)" +
      "((lambda s: np.exp(s - s.max(axis=-1, keepdims=True)))(a @ b.swapaxes(-1, -2) * np.float32(0.125)))",
  },
  {
    name: "conv2d",
    cpu: 64,
    power: 2,
    inputs: (n) => [floats(1, n, n, 32), floats(32, 3, 3, 32)],
    work: (n) => flops(2 * n * n * 32 * 32 * 9),
    call: ([a, w]) => named("conv2d")(a, w, 1, 1),
    mlx: "mx.conv2d(a, b, stride=1, padding=1)",
  },
  {
    name: "conv2d float16, 256 channels",
    gpu: 256,
    power: 2,
    inputs: (n) => [halves(4, n, n, 256), halves(256, 3, 3, 256)],
    work: (n) => flops(2 * 4 * n * n * 256 * 256 * 9),
    call: ([a, w]) => named("conv2d")(a, w, 1, 1),
  },
  {
    name: "fft",
    cpu: M,
    gpu: 16 * M,
    inputs: (n) => [floats(n)],
    work: (n) => bytes(12 * n), // float32 read, complex64 written: one pass
    call: ([a]) => named("fft.fft")(a),
    mlx: "mx.fft.fft(a)",
    numpy: "np.fft.fft(a)",
  },
  {
    name: "tiny add",
    cpu: 16,
    gpu: 16,
    inputs: (n) => [floats(n), floats(n)],
    work: () => NONE,
    call: ([a, b]) => mx.add(a, b),
    mlx: "a + b",
    numpy: "a + b",
  },
  {
    name: "ten chained tiny adds",
    cpu: 16,
    gpu: 16,
    inputs: (n) => [floats(n), floats(n)],
    work: () => NONE,
    call: ([a, b]) => {
      let sum = a;
      for (let i = 0; i < 10; i++) sum = mx.add(sum, b);
      return sum;
    },
    mlx: `a${" + b".repeat(10)}`,
    numpy: `a${" + b".repeat(10)}`,
  },
];

/** The size of a case on a device of a kind at a scale; undefined if it is not measured there. */
export function sizeOf(c: OpCase, kind: "cpu" | "gpu", scale: number): number | undefined {
  const full = c[kind];
  if (full === undefined) return undefined;
  if (c.power === undefined) return Math.max(1, Math.round(full * scale));
  return Math.max(8, 8 * Math.round(full * scale ** (1 / c.power) / 8));
}
