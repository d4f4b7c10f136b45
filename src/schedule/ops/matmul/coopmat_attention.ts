/**
 * Attention of many queries on cooperative matrices: the choice of a kernel, and its dispatch. The answers that the driver must give about
 * its matrices is asked in coopmat.ts.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { type Dtype, float16, float32 } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import type { Node, OpAttrs } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { tuningOf } from "../../tuning/choose.ts";
import { FLOATS, matrixMap, runsOn } from "./coopmat.ts";

/** A kernel, the rows (query, head of a group) and keys that one of its workgroups takes at once, and its threads. */
export interface AttentionKernel {
  readonly kernel: KernelName;
  readonly rows: number;
  readonly keys: number;
  readonly threads: number;
}

/**
 * Attention by the most features of a head: smaller ones are padded. Which rows suit how many queries and keys is in the device's record. Where
 * a device has no kernel of so many rows, the next smaller one serves.
 */
export const ATTENTIONS: Readonly<Record<number, readonly AttentionKernel[]>> = {
  64: [
    { rows: 32, keys: 32, threads: 128, kernel: "coopmat_attention_64x32" },
    { rows: 64, keys: 64, threads: 256, kernel: "coopmat_attention_64x64" },
    { rows: 128, keys: 64, threads: 256, kernel: "coopmat_attention_64x128" },
  ],
  128: [
    { rows: 32, keys: 32, threads: 128, kernel: "coopmat_attention_128x32" },
    { rows: 64, keys: 64, threads: 256, kernel: "coopmat_attention_128x64" },
    { rows: 128, keys: 64, threads: 256, kernel: "coopmat_attention_128x128" },
  ],
  256: [
    { rows: 32, keys: 32, threads: 128, kernel: "coopmat_attention_256x32" },
    { rows: 64, keys: 32, threads: 256, kernel: "coopmat_attention_256x64" },
  ],
};

/** Features of a head come in eights, and padding them to more than twice as many is not worth it. */
function kernelsOf(dim: number): readonly AttentionKernel[] {
  const width = Object.keys(ATTENTIONS).map(Number).find((most) => dim <= most && most <= 2 * dim);
  return width === undefined || dim % 8 !== 0 ? [] : ATTENTIONS[width];
}

/** The kernel for `queries` of heads of `dim` features over a cache with room for `keys`; undefined if there is none. */
export function attentionKernel(
  backend: Backend,
  dim: number,
  queries: number,
  keys: number,
): AttentionKernel | undefined {
  const { minQueries, rows } = tuningOf(backend).attention;
  if (queries < minQueries) return undefined;
  const suits = rows.find(({ maxQueries, maxKeys, maxFeatures }) =>
    queries <= maxQueries && keys <= maxKeys && dim <= maxFeatures
  );
  return kernelsOf(dim).findLast((kernel) =>
    suits !== undefined && kernel.rows <= suits.rows && runsOn(backend, kernel)
  );
}

/** What an attention may have besides queries, keys and values. */
export interface AttentionExtras {
  /** int32: keys that count, one number for all or one for each batch row. */
  readonly lengths: Value | undefined;
  /** One more score for each query head, (H,), which has no value. */
  readonly sinks: Value | undefined;
}

/** Operands of {@link emitMatrixAttention}. */
export interface MatrixAttention {
  /** (B, H, T, D) */
  readonly q: Value;
  /** (B, Hkv, rows, D), maybe in blocks or pages. */
  readonly keys: Value;
  readonly values: Value;
  /** int32: keys that count, one number for all or one for each batch row; default all rows. */
  readonly lengths?: Value;
  /** Query i sees the first i + 1 + keys - T. */
  readonly causal: boolean;
  /** How many of those a query sees, the last ones; default all. */
  readonly window?: number;
  /** One more score for each query head, (H,), which has no value. */
  readonly sinks?: Value;
  readonly scale: number;
  /** Of the result. */
  readonly dtype: Dtype;
}

/** Whether every run of features begins where the kernel can load it: at a multiple of its bytes, at most 16. */
function aligned({ dtype, offset, strides, blocks }: Value): boolean {
  if (blocks && (blocks.size < 4 || blocks.size & (blocks.size - 1))) return false;
  const run = Math.min(16, (blocks?.size ?? 16) * dtype.bytes);
  const places = [offset, ...strides.slice(0, 3), blocks?.stride ?? 0];
  return places.every((elements) => elements * dtype.bytes % run === 0);
}

/** Whether a kernel reads keys and values in their pages: what it takes at once is of one page. */
function readsPages(kernel: AttentionKernel, keys: Value, values: Value): boolean {
  const [one, other] = [keys.pages, values.pages];
  if (!one || !other || one.size % kernel.keys !== 0) return false;
  return one.table.slot === other.table.slot && one.table.offset === other.table.offset && aligned(keys) &&
    aligned(values);
}

/** How many workgroups share the keys of a tile, of which there are `tiles`. */
function splitsOf(backend: Backend, tiles: number, keys: number): number {
  const { targetWorkgroups, minKeys } = tuningOf(backend).attention;
  return Math.max(1, Math.min(Math.floor(targetWorkgroups / tiles), Math.floor(keys / minKeys)));
}

/** As how many queries those of an attention count: few ones of many sequences as the least that is worth matrices. */
function queriesOf(backend: Backend, { q, keys }: MatrixAttention): number {
  const { minQueries, grouped: { minRows, minKeyHeads } } = tuningOf(backend).attention;
  const [batch, heads, queries] = q.shape;
  const kvHeads = keys.shape[1];
  const grouped = queries * heads / kvHeads >= minRows && batch * kvHeads >= minKeyHeads;
  return grouped && q.dtype.bytes === 2 && keys.dtype.bytes <= 2 ? Math.max(queries, minQueries) : queries;
}

/**
 * Emits attention on matrices, by the kernel that suits queries and keys unless one is given; undefined if they do not serve. The result
 * (B, H, T, D) lies in memory as (B, T, H, D), as the projection after it reads it.
 */
export function emitMatrixAttention(
  l: Lowering,
  a: MatrixAttention,
  choice: AttentionKernel | undefined = attentionKernel(
    l.backend,
    a.q.shape[3],
    queriesOf(l.backend, a),
    a.keys.shape[2],
  ),
): Value | undefined {
  const [batch, heads, queries, dim] = a.q.shape;
  const [, kvHeads, rows, kDim] = a.keys.shape;
  const known = [a.q, a].every(({ dtype }) => FLOATS.has(dtype)) && a.keys.dtype === a.values.dtype &&
    [a.keys, a.values].every(({ dtype, pages }) => FLOATS.has(dtype) || (pages && isCoded(dtype)));
  if (!choice || !known || rows === 0 || kDim !== dim || a.values.shape[3] !== dim) return undefined;
  if (!runsOn(l.backend, choice) || !matrixMap(l.backend).attention) return undefined;
  const inPages = readsPages(choice, a.keys, a.values);
  const readable = (x: Value): Value => {
    const row = x.pages && !inPages ? l.plain(x) : x;
    return aligned(row) ? row : l.contiguous(row, true);
  };
  const [q, keys, values] = [a.q, a.keys, a.values].map(readable);
  const strides = [queries * heads * dim, dim, heads * dim, 1];
  const out: Value = { ...l.temporary([batch, queries, heads, dim], a.dtype), shape: a.q.shape, strides };
  const tiles = Math.ceil(queries * heads / kvHeads / choice.rows);
  // Sinks count where parts are merged, so there are parts then.
  const splits = Math.max(a.sinks ? 2 : 1, splitsOf(l.backend, kvHeads * tiles * batch, rows));
  const [parts, stats] = splits > 1
    ? [dim, 2].map((width) => l.temporary([splits, batch, queries, heads, width], float32))
    : [];
  const asBytes = ({ blocks: _, pages: __, ...value }: Value): Value => value;
  const { pages } = keys;
  const buffers = [q, asBytes(keys), asBytes(values), a.lengths, parts ?? out, stats, pages?.table];
  l.emit(choice.kernel, buffers, {
    spec: {
      DTYPE_Q: q.dtype.code,
      DTYPE_KV: keys.dtype.code,
      DTYPE_OUT: (parts ?? out).dtype.code,
      CAUSAL: a.causal ? 1 : 0,
      HAS_LENGTHS: a.lengths === undefined ? 0 : sizeOf(a.lengths.shape) === 1 ? 1 : 2,
      K_BLOCK: keys.blocks?.size ?? dim,
      V_BLOCK: values.blocks?.size ?? dim,
      GROUP: heads / kvHeads,
      SPLITS: splits,
      PAGE: pages?.size ?? 0,
      WINDOW: a.window ?? 0,
      FEATURES: dim,
    },
    threads: choice.threads,
    push: {
      q_len: queries,
      kv_len: rows,
      scale: a.scale,
      q_strides: q.strides.slice(0, 3),
      k_strides: keys.strides.slice(0, 3),
      v_strides: values.strides.slice(0, 3),
      out_strides: strides.slice(0, 3),
      k_block_stride: keys.blocks?.stride ?? 0,
      v_block_stride: values.blocks?.stride ?? 0,
      pages: pages?.pool.shape[0] ?? 0,
    },
    workgroups: [kvHeads, tiles, splits * batch],
  });
  if (parts) mergeParts(l, parts, stats, out, a.sinks);
  return out;
}

/**
 * Adds up what workgroups made of parts of the keys, float32 (splits, …, heads, D). `stats` has the largest score and the sum of weights
 * of each row. Sinks (heads,) are scores that have no value.
 */
export function mergeParts(l: Lowering, parts: Value, stats: Value, out: Value, sinks?: Value): void {
  const [splits] = parts.shape;
  const dim = parts.shape[parts.shape.length - 1];
  const rows = sizeOf(parts.shape) / splits / dim;
  l.emit("attention_merge", [parts, stats, out, sinks], {
    spec: {
      SPLITS: splits,
      DIM: dim,
      DTYPE_OUT: out.dtype.code,
      SINKS: sinks ? sizeOf(sinks.shape) : 0,
      DTYPE_SINKS: (sinks?.dtype ?? float32).code,
    },
    push: { rows },
    workgroups: l.groups(rows * dim / 4),
  });
}

/** The shape and dtype of {@link emitMatrixAttention} for an attention node over `inputs` (q, keys, values, …). */
export function matrixAttention(
  l: Lowering,
  node: Node,
  { scale, mask, window }: OpAttrs["attention"],
  inputs: readonly Value[],
  { lengths, sinks }: AttentionExtras,
): Value | undefined {
  if (mask !== "causal" && mask !== "none") return undefined;
  const [q, keys, values] = inputs.map((x) => x.pages ? x : l.rows(x));
  const dtype = l.asHalf.has(node) ? float16 : node.dtype;
  return emitMatrixAttention(l, { q, keys, values, lengths, causal: mask === "causal", window, sinks, scale, dtype });
}
