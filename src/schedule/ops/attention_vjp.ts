/**
 * Rules of the gradients of attention: statistics of each query row, then a kernel for queries and one for keys and values.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { float32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { broadcastStrides, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { MASK_MODES } from "./matmul/attention.ts";
import type { Inputs, Rule } from "./rule.ts";

/** Most threads of a workgroup, which lie as lines of 16 over a tile. */
const THREADS = 256;
/** Largest head dimension of which a thread keeps its part of a large tile, and the memory that this takes. */
const LARGE_TILE = { dim: 128, sharedBytes: 32768 } as const;

/** The kernel of a gradient if there is one for the sizes. */
export function vjpKernel(name: KernelName): (node: Node) => KernelName | undefined {
  return ({ inputs: [q, , v] }) => {
    const dims = [q.shape[3], v.shape[3]];
    return dims.every((d) => d >= 1 && d <= 256) ? name : undefined;
  };
}

/** Rows and columns of a tile. */
function tileOf(backend: Backend, dims: readonly number[]): number {
  const { threads, sharedBytes } = backend.limits;
  const large = Math.max(...dims) <= LARGE_TILE.dim && sharedBytes >= LARGE_TILE.sharedBytes && threads >= THREADS;
  return large ? 64 : 32;
}

/** Dispatches a kernel over tiles of rows: `count` rows of `groups` heads. `own` are the third, sixth and further buffers. */
function emit(
  l: Lowering,
  kernel: KernelName,
  node: Node,
  [q, k, third, cotangent, ...rest]: Inputs,
  own: readonly Value[],
  rows: { readonly groups: number; readonly count: number },
): void {
  const { scale, mask: mode, hasLengths } = attrsOf(node, "attentionStats");
  const lengths = hasLengths ? l.contiguous(rest[rest.length - 1]) : undefined;
  const mask = mode === "bool" || mode === "add" ? rest[0] : undefined;
  const [batch, heads, qLen, dim] = q.shape;
  const [, kvHeads, kvLen] = k.shape;
  const vDim = cotangent.shape[3];
  const tile = tileOf(l.backend, [dim, vDim]);
  const dense = l.contiguous(q, true);
  const [keys, values] = [k, third].map((x) => l.rows(x));
  l.emit(kernel, [dense, keys, values, mask, lengths, l.contiguous(cotangent, true), ...own], {
    threads: Math.min(THREADS, 2 ** Math.floor(Math.log2(l.backend.limits.threads))),
    spec: {
      HEAD_DIM: dim,
      V_DIM: vDim,
      DTYPE_Q: q.dtype.code,
      DTYPE_KV: k.dtype.code,
      DTYPE_C: cotangent.dtype.code,
      MASK_MODE: MASK_MODES[mode],
      DTYPE_MASK: (mask?.dtype ?? float32).code,
      HAS_LENGTHS: lengths === undefined ? 0 : sizeOf(lengths.shape) === 1 ? 1 : 2,
      TILE: tile,
    },
    push: {
      batch,
      heads,
      kv_heads: kvHeads,
      q_len: qLen,
      kv_len: kvLen,
      scale,
      k_strides: keys.strides.slice(0, 3),
      v_strides: values.strides.slice(0, 3),
      mask_strides: mask ? broadcastStrides(mask.shape, mask.strides, [batch, heads, qLen, kvLen]) : [],
    },
    workgroups: batch * rows.groups * Math.ceil(rows.count / tile),
  });
}

/** The log of the sum of each row's exponentials, and the dot product of its result and cotangent. */
export const attentionStats: Rule = (l, node, [q, k, y, ...rest]) => {
  const out = l.temporary(node.shape, node.dtype);
  const rows = { groups: q.shape[1], count: q.shape[2] };
  emit(l, "attention_stats", node, [q, k, l.contiguous(y, true), ...rest], [out], rows);
  return out;
};

/** The gradient of the queries. */
export const attentionQueryVjp: Rule = (l, node, [q, k, v, cotangent, stats, ...rest]) => {
  const out = l.temporary(node.shape, node.dtype);
  const rows = { groups: q.shape[1], count: q.shape[2] };
  emit(l, "attention_vjp_queries", node, [q, k, v, cotangent, ...rest], [l.contiguous(stats, true), out], rows);
  return out;
};

/** The gradients of keys and values. */
export const attentionKeyVjp: Rule = (l, node, [q, k, v, cotangent, stats, ...rest]) => {
  const out = l.temporary(node.shape, node.dtype);
  const rows = { groups: k.shape[1], count: k.shape[2] };
  emit(l, "attention_vjp_keys", node, [q, k, v, cotangent, ...rest], [l.contiguous(stats, true), out], rows);
  return out;
};
