/** The choices of lowering on a device that runs nothing, for published models: kernels, splits of products, and forms of decoders. */

import { type ModelShape, SHAPES } from "../../../scripts/synthetic/synthetic.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import { bfloat16, type Dtype, float16, float32, uint32 } from "../../../src/graph/dtype.ts";
import { makeNode, type Node } from "../../../src/graph/node.ts";
import { DENSE } from "../../../src/graph/quantization.ts";
import { contiguousStrides, type Shape } from "../../../src/graph/shape.ts";
import { batchedUnsupportedReason } from "../../../src/schedule/decoder/emit_batched.ts";
import { stepUnsupportedReason } from "../../../src/schedule/decoder/open_prompt.ts";
import { gemvUnsupportedReason, gemvWalkOf } from "../../../src/schedule/decoder/emit_gemv.ts";
import { type LayerFormats, layerFormats } from "../../../src/schedule/decoder/formats.ts";
import type { DecoderSpec } from "../../../src/schedule/decoder/spec.ts";
import type { Matrix } from "../../../src/schedule/plan/pattern.ts";
import { emitMatrixAttention } from "../../../src/schedule/ops/matmul/coopmat_attention.ts";
import { productKernel, type ProductKind } from "../../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { matmul } from "../../../src/schedule/ops/matmul/matmul.ts";
import { quantizedMatmul } from "../../../src/schedule/ops/matmul/quantized_matmul.ts";
import { ALONG_AXES } from "../../../src/schedule/ops/reduce.ts";
import { Lowering } from "../../../src/schedule/plan/context.ts";
import { Storage } from "../../../src/schedule/plan/storage.ts";
import type { Value } from "../../../src/schedule/plan/value.ts";
import { dispatchesOf } from "./unrun_device.ts";

/** Models of which synthetic ones are made, but the smallest. */
const MODELS: Readonly<Record<string, ModelShape>> = Object.fromEntries(
  Object.entries(SHAPES).filter(([name]) => name !== "tiny"),
);
const ROWS = [1, 2, 3, 4, 8, 16, 17, 24, 32, 33, 64, 100, 128, 192, 256, 384, 512, 640, 1000, 1024, 2048, 4096];
const GROUP = 64;

/** The formats of the layers of a decoder with matrices of one format, and of its head. */
export function uniformFormats(bits: number, groupSize: number): { formats: LayerFormats; head: Matrix } {
  const scales = bits === DENSE.bits ? undefined : {};
  const head = { codes: {}, scales, biases: scales, bits, groupSize } as unknown as Matrix;
  return { formats: layerFormats({ q: head, k: head, v: head, o: head, gate: head, up: head, down: head }), head };
}

/** The dispatches of a lowering, in order: kernels, workgroups, threads, and the constants that cut the work. */
function toText(l: Lowering): string {
  return dispatchesOf(l.builder.finish(l.slots.length, (slot) => slot)).map(({ kernel, spec, workgroups }) => {
    const { THREADS, SPLITS = 1, ROWS = 0, COLUMNS = 0, SIDE = 0, ROW_QUADS = 0, DEPTH = 0, UNROLL = 0, LANES = 0 } =
      spec;
    const cut = [THREADS, SPLITS, ROWS, COLUMNS, SIDE, ROW_QUADS, DEPTH, UNROLL, LANES].join("/").replace(
      /(\/0)+$/,
      "",
    );
    return `${kernel} ${workgroups.join("x")} ${cut}`;
  }).join(", ");
}

/** A leaf in memory of its own. */
function leaf(l: Lowering, backend: Backend, shape: Shape, dtype: Dtype): Value {
  const slot = l.storageSlot(new Storage(backend, shape.reduce((a, b) => a * b, dtype.bytes)));
  return { slot, offset: 0, strides: contiguousStrides(shape), shape, dtype };
}

function lowered(backend: Backend, emit: (l: Lowering, value: (shape: Shape, dtype: Dtype) => Value) => void): string {
  const l = new Lowering(backend, () => false, false);
  emit(l, (shape, dtype) => leaf(l, backend, shape, dtype));
  return toText(l);
}

/** Weights (n, k) of a layer. */
function projections(s: ModelShape): readonly (readonly [ProductKind, number, number])[] {
  return [
    ["heads", (s.heads + 2 * s.kvHeads) * s.headDim, s.hidden],
    ["parts", s.hidden, s.heads * s.headDim],
    ["gated", 2 * s.intermediate, s.hidden],
    ["parts", s.hidden, s.intermediate],
  ];
}

/** Kernels and splits of quantized products on matrix units. */
function quantizedProducts(backend: Backend, s: ModelShape): Record<string, unknown> {
  return Object.fromEntries([4, 8].flatMap((bits) =>
    projections(s).map(([kind, n, k]) => [
      `${kind} ${n}x${k} of ${bits} bits`,
      ROWS.map((m) => {
        const { kernel, splits, threads, workgroups } = productKernel(backend, kind, bits, m, n, k) ?? {};
        return [m, kernel?.replace("coopmat_", ""), splits, threads, workgroups?.join("x")].join(" ");
      }),
    ])
  ));
}

/** Norms before parts alone. */
export const PLAIN_NORMS = { postNorm: false, normOffset: 0 } as const;

/**
 * Kernels for a decoder of so many sequences, or a chunk, by launch mode: the batched kernels, the gemv kernels or the prefill GEMMs.
 */
function decoders(backend: Backend, s: ModelShape): Record<string, unknown> {
  const { hidden, intermediate, heads, kvHeads, headDim } = s;
  const features = PLAIN_NORMS;
  const decoder = (bits: number, sequences: number, capacity: number, count?: number): DecoderSpec => {
    const sizes = { hidden, intermediate, heads, kvHeads, headDim };
    const { formats, head } = uniformFormats(bits, GROUP);
    const layer = { keys: { dtype: float16 }, values: { dtype: float16 }, formats };
    const layers = Array.from({ length: s.layers }, () => layer);
    const x = { dtype: float16 };
    const chunk = count && { count };
    const cache = { kind: "contiguous", capacity };
    return {
      sizes,
      layers,
      out: { head },
      x,
      features,
      position: { shape: [sequences] },
      cache,
      chunk,
    } as unknown as DecoderSpec;
  };
  return Object.fromEntries([4, 8, 16].map((bits) => {
    const counts = Array.from({ length: 17 }, (_, i) => i + 1);
    const serves = (reason: string | undefined): number => reason === undefined ? 1 : 0;
    return [`${bits} bits`, {
      rows: (["persistent", "barriers"] as const).map((f) =>
        serves(gemvUnsupportedReason(backend, decoder(bits, 1, 256), f))
      ),
      walks: [256, 257, 1024, 2048, 8192].map((rows) => {
        const { parts, unroll } = gemvWalkOf(backend, decoder(bits, 1, rows), rows);
        return `${parts}/${unroll}`;
      }),
      batch: (["persistent", "barriers"] as const).map((f) =>
        counts.map((n) => serves(batchedUnsupportedReason(backend, decoder(bits, n, 256), f))).join("")
      ),
      chunks: [256, 4096, 4097].map((capacity) =>
        counts.map((n) => serves(batchedUnsupportedReason(backend, decoder(bits, 1, capacity, n), "persistent"))).join(
          "",
        )
      ),
      products: counts.map((n) => serves(stepUnsupportedReason(backend, decoder(bits, n, 256)))).join(""),
    }];
  }));
}

/** Rules of products by the sizes of a model. */
function products(backend: Backend, s: ModelShape): Record<string, unknown> {
  const sizes = [[s.hidden, s.intermediate], [s.vocab, s.hidden]] as const;
  return Object.fromEntries(sizes.flatMap(([n, k]) => [
    ...[float16, float32].map((dtype) => [
      `quantized ${n}x${k} of ${dtype.name}`,
      ROWS.map((m) =>
        `${m}: ` + lowered(backend, (l, value) => {
          const format = { bits: 4, groupSize: GROUP, mode: "affine", transpose: true } as const;
          const node = makeNode("quantizedMatmul", [], [m, n], dtype, format);
          const affine = (): Value => value([n, k / GROUP], float16);
          quantizedMatmul(l, node, [value([m, k], dtype), value([n, k / 8], uint32), affine(), affine()]);
        })
      ),
    ]),
    ...[float16, bfloat16, float32].map((dtype) => [
      `dense ${n}x${k} of ${dtype.name}`,
      ROWS.map((m) =>
        `${m}: ` + lowered(backend, (l, value) => {
          const node = makeNode("matmul", [], [m, n], dtype, {});
          matmul(l, node, [value([m, k], dtype), value([k, n], dtype)]);
        })
      ),
    ]),
  ]));
}

/** Attention over caches of some lengths. */
function attentions(backend: Backend): Record<string, unknown> {
  const shapes = [
    [1, 16, 8, 128],
    [1, 32, 8, 128],
    [1, 32, 8, 64],
    [8, 32, 8, 128],
    [16, 16, 8, 128],
    [64, 14, 2, 64],
    [1, 16, 4, 256],
    [1, 32, 32, 96],
  ];
  return Object.fromEntries(shapes.map(([batch, heads, kvHeads, dim]) => [
    [batch, heads, kvHeads, dim].join(" "),
    [1, 2, 8, 15, 16, 64, 640, 641, 1152, 1153, 4096].flatMap((queries) =>
      [64, 384, 1024, 1025, 4096, 16384].filter((keys) => keys >= queries).map((keys) =>
        `${queries} ${keys}: ` + lowered(backend, (l, value) => {
          const cache = (): Value => value([batch, kvHeads, keys, dim], float16);
          const q = value([batch, heads, queries, dim], float16);
          emitMatrixAttention(l, { q, keys: cache(), values: cache(), causal: true, scale: 1, dtype: float16 });
        })
      )
    ),
  ]));
}

/** Gradients of weights, which are deep and small, and reductions of columns. */
function training(backend: Backend): Record<string, unknown> {
  const weights = [[768, 768], [768, 3072], [3072, 768], [1024, 4096], [128, 128], [64, 50304]] as const;
  const sums = [[1, 1024], [128, 64], [1024, 768], [8192, 3072], [100_000, 10], [3, 1_000_000]] as const;
  return {
    gradients: weights.flatMap(([m, n]) =>
      [256, 1024, 8192, 32768].map((k) =>
        `${m}x${n}x${k}: ` + lowered(backend, (l, value) => {
          const a: Value = { ...value([k, m], bfloat16), shape: [m, k], strides: [1, m] };
          matmul(l, makeNode("matmul", [], [m, n], bfloat16, {}), [a, value([k, n], bfloat16)]);
        })
      )
    ),
    reductions: sums.flatMap(([rows, columns]) =>
      [0, 1].map((axis) =>
        `${rows}x${columns} along ${axis}: ` + lowered(backend, (l, value) => {
          const x = value([rows, columns], float32);
          const node: Node = makeNode("reduce", [], [axis === 0 ? columns : rows], float32, {
            fn: "sum",
            axes: [axis],
          });
          ALONG_AXES.reduce(l, node, [x]);
        })
      )
    ),
  };
}

/** All of it. */
export function kernelChoices(backend: Backend): Record<string, unknown> {
  const models = Object.entries(MODELS).map(([name, s]) => [name, {
    "quantized products": quantizedProducts(backend, s),
    decoders: decoders(backend, s),
    products: products(backend, s),
  }]);
  return { ...Object.fromEntries(models), attention: attentions(backend), training: training(backend) };
}
