/**
 * Attention of many queries on cooperative matrices: which kernel serves, and its dispatch. What the driver must answer about
 * its matrices is asked in matrices.ts.
 *
 * @module
 */

import type { KernelName } from "../backend/kernels.ts";
import { attrsOf, type Node } from "../graph/node.ts";
import type { Lowering, Value } from "./lowering.ts";
import { FLOATS, LANES, matrixMap } from "./matrices.ts";

/** Attention by size of a head, and by queries: the first one whose `upTo` is not passed. */
const ATTENTIONS: Readonly<Record<number, readonly { upTo: number; subgroups: number; kernel: KernelName }[]>> = {
  64: [
    { upTo: 1023, subgroups: 4, kernel: "coopmat_attention_64x4" },
    { upTo: Infinity, subgroups: 8, kernel: "coopmat_attention_64x8" },
  ],
  128: [
    { upTo: 1023, subgroups: 4, kernel: "coopmat_attention_128x4" },
    { upTo: Infinity, subgroups: 8, kernel: "coopmat_attention_128x8" },
  ],
};
/** Queries from which on attention is worth whole matrices. */
const LEAST_QUERIES = 16;

/** What serves `queries` of heads of `dim` features; undefined where no kernel does. */
export function attentionKernel(
  dim: number,
  queries: number,
): { readonly kernel: KernelName; readonly subgroups: number } | undefined {
  return queries >= LEAST_QUERIES ? ATTENTIONS[dim]?.find(({ upTo }) => queries <= upTo) : undefined;
}

/** Whether every row of (B, H, T, D) begins at a multiple of 16 bytes. */
function rowsAligned({ dtype, offset, strides }: Value): boolean {
  return [offset, ...strides.slice(0, 3)].every((elements) => elements * dtype.bytes % 16 === 0);
}

/**
 * Attention of q (B, H, T, D) on matrices; undefined where they do not serve. The result lies in memory as (B, T, H, D), as the
 * projection behind it reads it.
 */
export function matrixAttention(l: Lowering, node: Node, q: Value, k: Value, v: Value): Value | undefined {
  const { scale, mask, hasLengths } = attrsOf(node, "attention");
  const [batch, heads, qLen, dim] = node.shape;
  const [, kvHeads, kvLen, kDim] = k.shape;
  const row = kDim === dim ? attentionKernel(dim, qLen) : undefined;
  const causal = mask === "causal";
  if (!row || hasLengths || !(causal ? kvLen >= qLen : mask === "none" && kvLen > 0)) return undefined;
  const values = [q, k, v];
  if (k.dtype !== v.dtype || ![...values, node].every(({ dtype }) => FLOATS.has(dtype))) return undefined;
  if (!l.backend.has(row.kernel) || !matrixMap(l.backend).attention) return undefined;
  const aligned = values.map((x) => rowsAligned(x) ? x : l.contiguous(x, true));
  const out: Value = {
    ...l.temporary([batch, qLen, heads, dim], node.dtype),
    shape: node.shape,
    strides: [qLen * heads * dim, dim, heads * dim, 1],
  };
  const [qs, ks, vs, os] = [...aligned, out].map(({ strides }) => strides.slice(0, 3));
  const tiles = Math.ceil(qLen * heads / kvHeads / (16 * row.subgroups));
  l.emit(row.kernel, [...aligned, out], {
    spec: { DTYPE_Q: q.dtype.code, DTYPE_KV: k.dtype.code, DTYPE_OUT: node.dtype.code, CAUSAL: causal ? 1 : 0 },
    threads: LANES * row.subgroups,
    push: {
      batch,
      heads,
      kv_heads: kvHeads,
      q_len: qLen,
      kv_len: kvLen,
      scale,
      q_strides: qs,
      k_strides: ks,
      v_strides: vs,
      out_strides: os,
    },
    workgroups: batch * kvHeads * tiles,
  });
  return out;
}
