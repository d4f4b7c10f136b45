/**
 * Attention of one query of each sequence over keys and values in pages: the step of decoding, whose time is that of reading them.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { float16, float32 } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import { FUSED_LAYOUT } from "../../../graph/kv_layout.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";
import { tuningOf } from "../../tuning/choose.ts";
import { FLOATS, matrixMap } from "./coopmat.ts";
import { mergeParts } from "./coopmat_attention.ts";

const THREADS = 128;
/** Most query heads of a key head, whose sums a thread has in registers. */
const MAX_GROUP = 8;
const MAX_DIM = 256;
/** Threads for two positions, and places in which outputs are merged: SPREAD and PLACES of the kernel. */
const SPREAD = 2;
const PLACES = 4;
/** Groups of eight features that a team's threads have at once, at most: BESIDE of the kernel. */
const BESIDE = { few: 8, many: 16 } as const;

/** Positions of a page are a multiple of these: as many threads as places share each group of eight features. */
const pageUnit = (dim: number): number => PLACES * (dim / 8 <= BESIDE.few ? BESIDE.few : BESIDE.many);

/** Bytes of shared memory that a workgroup takes for queries, weights, shares of scores and the largest of subgroups. */
function sharedBytes(group: number, dim: number): number {
  return group * (PLACES * dim + 2 * THREADS / SPREAD + 2 * THREADS + THREADS / 4) * 4;
}

/** Whether positions are in pages as decoding has them, `block` features together, each run of them at a multiple of its bytes. */
function isInPages({ pages, blocks, strides, shape, offset, dtype }: Value, block: number): boolean {
  if (!pages || blocks?.size !== block || blocks.stride !== block * pages.size) return false;
  const [, heads, , dim] = shape;
  const expected = [heads * dim * pages.size, dim * pages.size, block];
  const known = FLOATS.has(dtype) || isCoded(dtype);
  return known && offset * dtype.bytes % 16 === 0 && expected.every((stride, i) => strides[i] === stride);
}

/** Whether the kernel takes these operands on this device. */
function isSupported(backend: Backend, q: Value, keys: Value, values: Value, lengths: Value): boolean {
  const [batch, heads, queries, dim] = q.shape;
  const group = heads / keys.shape[1];
  const { maxThreads, sharedBytes: shared } = backend.limits;
  const fits = queries === 1 && dim % 32 === 0 && dim <= MAX_DIM && group <= MAX_GROUP && values.shape[3] === dim;
  if (!fits || sizeOf(lengths.shape) !== batch || backend.has("packed_matvec")) return false;
  if (maxThreads < THREADS || shared < sharedBytes(group, dim) || keys.dtype !== values.dtype) return false;
  if (!FLOATS.has(q.dtype) || !isInPages(keys, FUSED_LAYOUT.keys) || !isInPages(values, FUSED_LAYOUT.values)) {
    return false;
  }
  const [one, other] = [keys.pages!, values.pages!];
  return one.table.slot === other.table.slot && one.table.offset === other.table.offset &&
    THREADS % (SPREAD * one.size / 2) === 0 && one.size % pageUnit(dim) === 0;
}

/** Most features of a head on matrix units: registers hold keys and values of 16 positions, and outputs. */
const MAX_MATRIX_DIM = 128;

/** The kernel for keys of sequences: on matrix units where queries, keys and values have at most 16 bits, and several heads share them. */
function kernelFor(backend: Backend, q: Value, keys: Value): KernelName {
  const [batch, heads, , dim] = q.shape;
  const [, kvHeads] = keys.shape;
  const { minHeads, minKeyHeads } = tuningOf(backend).pagedAttention.onMatrices;
  const isHalf = q.dtype.bytes === 2 && keys.dtype.bytes <= 2 && dim <= MAX_MATRIX_DIM;
  const isFaster = heads / kvHeads >= minHeads && batch * kvHeads >= minKeyHeads;
  return isHalf && isFaster && matrixMap(backend).pairs && backend.has("coopmat_paged_attention")
    ? "coopmat_paged_attention"
    : "paged_attention";
}

/** Positions of a part: enough workgroups to fill the device although sequences have unlike lengths. A power of two. */
function partOf(backend: Backend, heads: number, positions: number): number {
  const { targetWorkgroups, minPositions } = tuningOf(backend).pagedAttention;
  const part = Math.max(minPositions, heads * positions / targetWorkgroups);
  return 2 ** Math.ceil(Math.log2(part));
}

/** How many workgroups share the heads of a key head: more while there are few workgroups, which compute then rather than read. */
function sharingOf(backend: Backend, workgroups: number, group: number): number {
  const { minWorkgroups } = tuningOf(backend).pagedAttention;
  let sharing = 1;
  while (sharing * workgroups < minWorkgroups && group % (2 * sharing) === 0) sharing *= 2;
  return sharing;
}

/** Emits the attention of a node over `inputs` (q, keys, values, …); undefined where the kernel does not take them. */
export function pagedAttention(
  l: Lowering,
  node: Node,
  [qValue, keys, values]: readonly Value[],
  lengths: Value | undefined,
): Value | undefined {
  const { scale, mask, window = 0 } = attrsOf(node, "attention");
  if ((mask !== "none" && mask !== "causal") || lengths === undefined) return undefined;
  const row = l.rows(qValue);
  const q = [row.offset, ...row.strides.slice(0, 2)].every((n) => n % 4 === 0) ? row : l.contiguous(row, true);
  if (!isSupported(l.backend, q, keys, values, lengths)) return undefined;
  const [batch, heads, , dim] = q.shape;
  const [, kvHeads, positions] = keys.shape;
  const { table, size: page, pool } = keys.pages!;
  const part = partOf(l.backend, batch * kvHeads, positions);
  const splits = Math.ceil(positions / part);
  const kernel = kernelFor(l.backend, q, keys);
  const sharing = kernel === "paged_attention" ? sharingOf(l.backend, batch * kvHeads * splits, heads / kvHeads) : 1;
  const out = l.temporary(node.shape, l.asHalf.has(node) ? float16 : node.dtype);
  const [parts, stats] = splits > 1 ? [dim, 2].map((width) => l.temporary([splits, batch, heads, width], float32)) : [];
  const asBytes = ({ blocks: _, pages: __, ...value }: Value): Value => value;
  l.emit(kernel, [q, asBytes(keys), asBytes(values), l.contiguous(table), lengths, parts ?? out, stats], {
    spec: {
      HEAD_DIM: dim,
      DTYPE_Q: q.dtype.code,
      DTYPE_KV: keys.dtype.code,
      DTYPE_OUT: (parts ?? out).dtype.code,
      GROUP: heads / kvHeads / sharing,
      KV_HEADS: kvHeads,
      PAGE: page,
      SPLITS: Math.min(splits, 2), // one pipeline serves any number of several
      WINDOW: window,
      SHARING: sharing,
    },
    threads: THREADS,
    push: { capacity: positions + page, pages: pool.shape[0], part, scale, q_strides: q.strides.slice(0, 2) },
    workgroups: [kvHeads * sharing, splits, batch],
  });
  if (parts) mergeParts(l, parts, stats, out);
  return out;
}
