/**
 * Measures the parts of a prefill: `deno run -A scripts/bench/prefill.ts [--model=qwen3-8b] [--layers=4] [--bits=8] [--group=64]
 * [--peak=TFLOPS] [--tokens=512,2048] [--search] [--products]`.
 *
 * Prints the time of each matrix kernel by the device's timestamps over the shapes of a model. The default is Qwen3-0.6B: layers of 4-bit
 * weights, read in turns so that none stays in a cache. Then prints the time of so many whole layers as the model runs them, with the time
 * of each kernel in them. `--peak` adds the share of a known ceiling; `--search` times all kernels and splits and not only those that
 * lowering takes. `--products` times nothing else.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import type { Backend } from "../../src/backend/backend.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import { bfloat16, type Dtype, float16, int32 } from "../../src/graph/dtype.ts";
import { entryOf } from "../../src/graph/options.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import {
  type AttentionKernel,
  attentionKernel,
  ATTENTIONS,
  emitMatrixAttention,
} from "../../src/schedule/ops/matmul/coopmat_attention.ts";
import {
  type ProductKernel,
  productKernel,
  type ProductKind,
  PRODUCTS,
} from "../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { matrixMap } from "../../src/schedule/ops/matmul/coopmat.ts";
import { SHAPES as MODELS } from "../synthetic/config.ts";
import { Bench, HALVES, REPEATS, warmUp } from "./plan.ts";
import { timeMatrixProduct } from "./product_times.ts";

const flag = (name: string): string | undefined => Deno.args.find((a) => a.startsWith(`--${name}`))?.split("=")[1];
const SHAPE = entryOf(MODELS, flag("model") ?? "qwen3-0.6b");
if (!SHAPE) throw new Error(`--model is one of ${Object.keys(MODELS).join(", ")}`);
const { hidden: HIDDEN, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM, intermediate: WIDE } = SHAPE;
const LAYERS = Number(flag("layers") ?? SHAPE.layers);
const GROUP = Number(flag("group") ?? 128);
const BITS = Number(flag("bits") ?? 4);

/** Weights (n, k) of one layer, projections of the same input as one. */
const SHAPES = [
  { name: "q k v", n: (HEADS + 2 * KV_HEADS) * HEAD_DIM, k: HIDDEN, kind: "heads" },
  { name: "o", n: HIDDEN, k: HEADS * HEAD_DIM, kind: "parts" },
  { name: "gate up", n: 2 * WIDE, k: HIDDEN, kind: "gated" },
  { name: "down", n: HIDDEN, k: WIDE, kind: "parts" },
] as const;

const PEAK = Number(flag("peak") ?? 0);
const TOKENS = (flag("tokens") ?? "64,128,512,1024,2048").split(",").map(Number);
const SEARCH = Deno.args.includes("--search");

function line(name: string, us: number, flops: number, more = ""): void {
  const rate = flops / us / 1e6;
  const share = PEAK ? ` ${(100 * rate / PEAK).toFixed(0).padStart(4)} %` : "";
  console.log(
    `${name.padEnd(44)} ${us.toFixed(2).padStart(9)} us ${rate.toFixed(1).padStart(7)} TFLOP/s${share} ${more}`,
  );
}

function benchProduct(
  backend: Backend,
  { name, n, k, kind }: (typeof SHAPES)[number],
  m: number,
  choice: ProductKernel,
): void {
  const matrix = { kind, n, k, bits: BITS, groupSize: GROUP, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM };
  const us = timeMatrixProduct(backend, matrix, m, choice, LAYERS);
  line(`${name} ${n}x${k}, ${m} rows, ${choice.kernel.slice(8)}, split ${choice.splits}`, us, 2 * m * n * k);
}

/** The kernels that lowering takes, or every kernel with every split. */
function choices(backend: Backend, kind: ProductKind, m: number, n: number, k: number): ProductKernel[] {
  if (!SEARCH) return [productKernel(backend, kind, BITS, m, n, k)!];
  return PRODUCTS[kind][BITS].flatMap(({ rows, columns = 128, threads = 128, kernel }) => {
    const [down, wide] = [Math.ceil(m / rows), Math.ceil(n / columns)];
    const splits = kind === "parts" ? [1, 2, 3, 4, 6, 8].filter((s) => down * wide * s <= 2048) : [1];
    return splits.map((s) => ({ kernel, splits: s, threads, workgroups: [down, wide, s] }));
  });
}

/** Rows of a cache for so many tokens. */
function capacity(tokens: number): number {
  return Math.ceil(tokens / 256) * 256;
}

/** Attention of a chunk over a cache in blocks, as a prompt runs it after `prefix` tokens. */
function benchAttention(
  backend: Backend,
  tokens: number,
  prefix: number,
  dtype: Dtype,
  kernel: AttentionKernel = attentionKernel(backend, HEAD_DIM, tokens, capacity(tokens + prefix))!,
): void {
  using bench = new Bench(backend);
  const { l } = bench;
  const rows = capacity(tokens + prefix);
  const q = bench.array([1, tokens, HEADS, HEAD_DIM], float16, HALVES);
  const lengths = bench.array([1], int32, tokens + prefix);
  const cached = (size: number): Value => {
    const layers = bench.array([LAYERS, KV_HEADS, HEAD_DIM / size, rows, size], dtype, HALVES);
    const strides = [0, HEAD_DIM * rows, size, 1];
    return { ...layers, shape: [1, KV_HEADS, rows, HEAD_DIM], strides, blocks: { size, stride: rows * size } };
  };
  const [keys, values] = [cached(4), cached(8)];
  const layer = (v: Value, i: number): Value => ({ ...v, offset: i * KV_HEADS * HEAD_DIM * rows });
  for (let i = 0; i < LAYERS; i++) {
    emitMatrixAttention(l, {
      q: { ...q, shape: [1, HEADS, tokens, HEAD_DIM], strides: [0, HEAD_DIM, HEADS * HEAD_DIM, 1] },
      keys: layer(keys, i),
      values: layer(values, i),
      lengths,
      causal: true,
      scale: HEAD_DIM ** -0.5,
      dtype: float16,
    }, kernel);
  }
  const [us] = bench.time(1);
  const pairs = tokens * (tokens + 1) / 2 + tokens * prefix;
  line(
    `attention, ${tokens} tokens after ${prefix}, ${dtype.name}, ${kernel.rows} rows`,
    us,
    4 * pairs * HEADS * HEAD_DIM,
  );
}

// ---- whole layers -----------------------------------------------------------------------------------------------------

interface Linear {
  readonly w: mx.Tensor;
  readonly scales: mx.Tensor;
  readonly biases: mx.Tensor;
}

function randomLinear(n: number, k: number, dtype: Dtype, seed: number): Linear {
  const w = mx.random.bits([n, k / 8], mx.random.key(seed));
  const scales = mx.multiply(mx.ones([n, k / GROUP], dtype), 0.1 / Math.sqrt(k));
  return { w, scales, biases: mx.multiply(scales, -7.5) };
}

/** One layer of Qwen3 in array code, as src/llm/models/qwen3.ts writes it. */
function layer(x: mx.Tensor, weights: readonly Linear[], norm: mx.Tensor, headNorm: mx.Tensor): mx.Tensor {
  const [, T] = x.shape;
  const project = (y: mx.Tensor, { w, scales, biases }: Linear): mx.Tensor =>
    mx.quantizedMatmul(y, w, scales, biases, true, GROUP, 4);
  const split = (y: mx.Tensor, n: number): mx.Tensor => mx.reshape(y, [1, T, n, HEAD_DIM]);
  const turned = (y: mx.Tensor): mx.Tensor =>
    mx.fast.rope(mx.transpose(mx.fast.rmsNorm(y, headNorm, 1e-6), [0, 2, 1, 3]), HEAD_DIM, { base: 1e6 });
  const [wq, wk, wv, wo, gate, up, down] = weights;
  const h = mx.fast.rmsNorm(x, norm, 1e-6);
  const q = turned(split(project(h, wq), HEADS));
  const k = turned(split(project(h, wk), KV_HEADS));
  const v = mx.transpose(split(project(h, wv), KV_HEADS), [0, 2, 1, 3]);
  const y = mx.fast.scaledDotProductAttention(q, k, v, { scale: HEAD_DIM ** -0.5, mask: "causal" });
  const r = mx.add(x, project(mx.reshape(mx.transpose(y, [0, 2, 1, 3]), [1, T, HEADS * HEAD_DIM]), wo));
  const g = mx.fast.rmsNorm(r, norm, 1e-6);
  return mx.add(r, project(mx.multiply(mx.nn.silu(project(g, gate)), project(g, up)), down));
}

async function benchLayers(dtype: Dtype): Promise<void> {
  const sizes = [
    [HEADS * HEAD_DIM, HIDDEN],
    [KV_HEADS * HEAD_DIM, HIDDEN],
    [KV_HEADS * HEAD_DIM, HIDDEN],
    [
      HIDDEN,
      HEADS * HEAD_DIM,
    ],
    [WIDE, HIDDEN],
    [WIDE, HIDDEN],
    [HIDDEN, WIDE],
  ];
  const layers = Array.from(
    { length: LAYERS },
    (_, i) => sizes.map(([n, k], j) => randomLinear(n, k, dtype, 7 * i + j)),
  );
  const [norm, headNorm] = [mx.ones([HIDDEN], dtype), mx.ones([HEAD_DIM], dtype)];
  mx.eval(norm, headNorm, ...layers.flat().flatMap(({ w, scales, biases }) => [w, scales, biases]));
  for (const tokens of TOKENS) {
    const x = mx.random.normal([1, tokens, HIDDEN], dtype, 0, 1, mx.random.key(1));
    mx.eval(x);
    using run = mx.compile((input: mx.Tensor) =>
      layers.reduce((y, weights) => layer(y, weights, norm, headNorm), input)
    );
    const ready = (): void => void run(x).index(0, 0, 0).item();
    warmUp(ready);
    const start = performance.now();
    for (let i = 0; i < REPEATS - 1; i++) run(x);
    ready();
    const ms = (performance.now() - start) / REPEATS;
    console.log(
      `${LAYERS} layers, ${dtype.name}, ${tokens} tokens: ${ms.toFixed(2)} ms, ${Math.round(tokens / ms * 1000)} tok/s`,
    );
    const { kernels } = await mx.profile(() => {
      for (let i = 0; i < 3; i++) ready();
    });
    for (const { kernel, calls, nanoseconds } of mx.sumKernels(kernels, ["kernel"])) {
      const us = nanoseconds / 3000 / LAYERS;
      if (us > 0.05) {
        console.log(
          `    ${kernel.padEnd(28)} ${(calls / 3 / LAYERS).toFixed(1).padStart(6)} a layer ${
            us.toFixed(2).padStart(9)
          } us`,
        );
      }
    }
  }
}

if (import.meta.main) {
  const backend = getBackend();
  const map = matrixMap(backend);
  console.log(
    `${backend.name}: ${backend.description}; matrices: products ${map.weights ? "yes" : "no"}, attention ${
      map.attention ? "yes" : "no"
    }`,
  );
  if (map.weights) {
    for (const shape of SHAPES) {
      for (const m of TOKENS) {
        for (const choice of choices(backend, shape.kind, m, shape.n, shape.k)) benchProduct(backend, shape, m, choice);
      }
    }
  }
  const isWhole = !Deno.args.includes("--products");
  if (map.attention && isWhole) {
    for (const tokens of TOKENS) {
      for (const dtype of [float16, bfloat16]) benchAttention(backend, tokens, 0, dtype);
      benchAttention(backend, tokens, 2048, bfloat16);
      const others = SEARCH
        ? ATTENTIONS[HEAD_DIM].filter(({ rows }) =>
          rows !== attentionKernel(backend, HEAD_DIM, tokens, capacity(tokens))!.rows
        )
        : [];
      for (const kernel of others) benchAttention(backend, tokens, 0, bfloat16, kernel);
    }
  }
  if (isWhole) { for (const dtype of [mx.float16, mx.bfloat16]) await benchLayers(dtype); }
  closeDevices();
}
