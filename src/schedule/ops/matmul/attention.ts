/**
 * Rules of attention: softmax of scaled scores over keys and values, by the first kernel that takes the operands.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import * as k from "../../../backend/kernels.ts";
import { float32 } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import { attrsOf, type Node, type OpAttrs } from "../../../graph/node.ts";
import { broadcastStrides, contiguousStrides, type Shape, sizeOf } from "../../../graph/shape.ts";
import type { Lowering } from "../../plan/context.ts";
import { type Pages, type Value, view } from "../../plan/value.ts";
import { tuningOf } from "../../tuning/choose.ts";
import { type AttentionExtras, matrixAttention, mergeParts } from "./coopmat_attention.ts";
import { pagedAttention } from "./paged_attention.ts";

/** Codes of masks. */
export const MASK_MODES = { none: k.MASK_NONE, causal: k.MASK_CAUSAL, bool: k.MASK_BOOL, add: k.MASK_ADD } as const;
/** Queries that one workgroup of the kernel serves. */
const QUERIES = 8;
/** Numbers that a part of the keys leaves beside its outputs. */
const STATS = 2;
/** Fewest numbers of values in a part: fewer are not worth another dispatch. */
const MIN_SPLIT_VALUES = 2 ** 14;

/** Positions of a page are a multiple of those that the kernels of attention take at once. */
const PAGE_UNIT = 32;

/** The pages that keys and values are in, where one table tells those of both and a kernel reads them there. */
function sharedPages(
  backend: Backend,
  mode: keyof typeof MASK_MODES,
  [, keys, values]: readonly Value[],
): Pages | undefined {
  const { pages } = keys;
  if (!pages || !values.pages || pages.size % PAGE_UNIT !== 0) return undefined;
  if (![keys, values].every((x) => !x.blocks || readsBlocks(backend, x))) return undefined;
  if (mode !== "none" && mode !== "causal") return undefined;
  const [one, other] = [pages.table, values.pages.table];
  return one.slot === other.slot && one.offset === other.offset ? pages : undefined;
}

/** Whether the kernel of attention reads features in blocks: on GPUs, four at once. */
function readsBlocks(backend: Backend, { dtype, offset, strides, blocks }: Value): boolean {
  const isGpu = !backend.has("packed_matvec");
  const aligned = [offset, ...strides.slice(0, 3), blocks!.stride].every((n) => n % 4 === 0);
  return isGpu && aligned && blocks!.size % 4 === 0 && (dtype.kind === "float" || isCoded(dtype));
}

/** Softmax of scaled scores over keys and values, by the first kernel that takes the operands. */
export function attention(l: Lowering, node: Node, inputs: readonly Value[]): Value {
  const attrs = attrsOf(node, "attention");
  const lengths = attrs.hasLengths ? l.contiguous(inputs[inputs.length - 1]) : undefined;
  const paged = sizeOf(node.shape) > 0 ? pagedAttention(l, node, inputs, lengths) : undefined;
  return paged ?? emitAttention(l, node, attrs, inputs, { lengths, sinks: undefined });
}

/** Scaled dot-product attention of heads that have one more score each, which has no value. The last input has them. */
export function sinkAttention(l: Lowering, node: Node, inputs: readonly Value[]): Value {
  const attrs = attrsOf(node, "sinkAttention");
  const sinks = l.contiguous(inputs[inputs.length - 1]);
  const lengths = attrs.hasLengths ? l.contiguous(inputs[inputs.length - 2]) : undefined;
  return emitAttention(l, node, attrs, inputs.slice(0, -1), { lengths, sinks });
}

/** Attention by the kernel that suits its sizes. */
function emitAttention(
  l: Lowering,
  node: Node,
  attrs: OpAttrs["attention"],
  inputs: readonly Value[],
  extras: AttentionExtras,
): Value {
  const { scale, mask: mode, window = 0 } = attrs;
  const { lengths, sinks } = extras;
  const onMatrices = sizeOf(node.shape) > 0 ? matrixAttention(l, node, attrs, inputs, extras) : undefined;
  if (onMatrices) return onMatrices;
  const pages = sharedPages(l.backend, mode, inputs);
  const blockOf = ({ blocks }: Value): number => pages ? blocks?.size ?? 0 : 0;
  const readable = (x: Value): Value => {
    if (x.pages && pages) return { ...x, pages: undefined, blocks: undefined };
    return l.rows(x.pages || x.blocks ? l.plain(x) : x);
  };
  const [q, kk, v] = inputs.slice(0, 3).map(readable);
  if (kk.dtype !== v.dtype) throw new Error(`attention over ${kk.dtype.name} keys and ${v.dtype.name} values`);
  const mask = mode === "bool" || mode === "add" ? inputs[3] : undefined;
  const out = l.temporary(node.shape, node.dtype);
  const [batch, heads, qLen, vDim] = node.shape;
  if (sizeOf(node.shape) === 0) return out;
  const rows = batch * heads;
  const { splits, keys } = splitOf(l.backend, node.shape, kk.shape[2], window, mask === undefined);
  const parts = splits > 0 ? l.temporary([splits * rows * (vDim + STATS)], float32) : undefined;
  l.emit("attention", [q, kk, v, pages ? l.contiguous(pages.table) : mask, lengths, parts ?? out, sinks], {
    spec: {
      HEAD_DIM: q.shape[3],
      V_DIM: vDim,
      DTYPE_Q: q.dtype.code,
      DTYPE_KV: kk.dtype.code,
      DTYPE_OUT: (parts ?? out).dtype.code,
      MASK_MODE: MASK_MODES[mode],
      DTYPE_MASK: (mask?.dtype ?? float32).code,
      HAS_LENGTHS: lengths === undefined ? 0 : sizeOf(lengths.shape) === 1 ? 1 : 2,
      PAGE: pages?.size ?? 0,
      K_BLOCK: blockOf(inputs[1]),
      V_BLOCK: blockOf(inputs[2]),
      WINDOW: window,
      GROUP: heads / kk.shape[1],
      HAS_SINKS: sinks ? 1 : 0,
      DTYPE_SINKS: (sinks?.dtype ?? float32).code,
      SPLITS: splits,
      SPLIT_KEYS: keys,
    },
    push: {
      batch,
      heads,
      q_len: qLen,
      kv_len: kk.shape[2],
      scale,
      q_strides: q.strides.slice(0, 3),
      k_strides: kk.strides.slice(0, 3),
      v_strides: v.strides.slice(0, 3),
      mask_strides: mask ? broadcastStrides(mask.shape, mask.strides, [batch, heads, qLen, kk.shape[2]]) : [],
    },
    workgroups: Math.max(1, splits) * rows * Math.ceil(qLen / QUERIES),
  });
  if (parts) {
    const outputs = view(parts, [splits, rows, vDim], contiguousStrides([splits, rows, vDim]));
    const stats = view(parts, [splits, rows, STATS], contiguousStrides([splits, rows, STATS]));
    mergeParts(l, outputs, { ...stats, offset: parts.offset + splits * rows * vDim }, out, sinks);
  }
  return out;
}

const NO_SPLIT = { splits: 0, keys: 0 } as const;

/** Into how many parts the keys of one query are cut, and of how many keys: as many workgroups as the device wants. */
function splitOf(
  backend: Backend,
  [batch, heads, queries, dim]: Shape,
  keys: number,
  window: number,
  isPlain: boolean,
): { readonly splits: number; readonly keys: number } {
  if (queries !== 1 || !isPlain || dim % 4 !== 0 || !backend.has("attention_merge")) return NO_SPLIT;
  const { targetWorkgroups } = tuningOf(backend).pagedAttention;
  const wanted = Math.max(MIN_SPLIT_VALUES / dim, batch * heads * keys / targetWorkgroups);
  const part = 2 ** Math.ceil(Math.log2(wanted));
  const seen = window === 0 ? keys : Math.min(keys, window);
  return seen > part ? { splits: Math.ceil(keys / part), keys: part } : NO_SPLIT;
}
