/**
 * Rules of caches of keys and values in pages: writing positions into a pool, reading them through tables, copying pages.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { CODED_FEATURES, isCoded } from "../../graph/kv_codes.ts";
import { bufferSizes } from "../../graph/kv_layout.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { writable } from "./indexing.ts";
import { REDUCE_OPS } from "./reduce.ts";
import type { Inputs } from "./rule.ts";

/** What copies of whole pages move at once. */
const WORD = uint32;
/** Bytes that a thread moves at most at once. */
const MAX_BYTES = 16;

/** As many elements as can move at once: each run of them begins at a multiple of its bytes. */
function unitOf({ dtype, offset, strides }: Value, block: number, poolOffset: number): number {
  let unit = MAX_BYTES / dtype.bytes;
  while ([block, offset, poolOffset, ...strides.slice(0, 3)].some((elements) => elements % unit !== 0)) unit /= 2;
  return unit;
}

/** Positions (B, H, T, D) written into the pages that a table names. */
export function appendPages(l: Lowering, node: Node, [base, update, table, start]: Inputs): Value {
  const pool = writable(l, node, base, attrsOf(node, "appendPages").donate);
  if (sizeOf(update.shape) === 0) return pool;
  const [batch, heads, count, headDim] = update.shape;
  const { batch: pages, block, positions } = bufferSizes(pool.shape);
  const rows = l.rows(update);
  const coded = isCoded(pool.dtype);
  const unit = coded ? CODED_FEATURES : unitOf(rows, block, pool.offset);
  const from = rows.strides.slice(0, 3);
  l.emit(coded ? "append_codes" : "append_pages", [rows, l.contiguous(table), l.contiguous(start), pool], {
    spec: { ...(coded ? { DTYPE: rows.dtype.code } : { ELEMENT_BYTES: unit * pool.dtype.bytes }), PAGE: positions },
    push: {
      batch,
      heads,
      count,
      units: headDim / unit,
      block: block / unit,
      pages,
      columns: table.shape[1],
      strides: coded ? from : from.map((stride) => stride / unit),
    },
    workgroups: l.groups(batch * heads * count * headDim / unit),
  });
  return pool;
}

/** Pages copied to others of the pool: all are read before any is written. */
export function copyPages(l: Lowering, node: Node, [base, from, to]: Inputs): Value {
  const pool = writable(l, node, base, attrsOf(node, "copyPages").donate);
  const n = sizeOf(from.shape);
  if (n === 0) return pool;
  const [pages, ...page] = pool.shape;
  const bytes = sizeOf(page) * pool.dtype.bytes;
  const isWords = bytes % WORD.bytes === 0 && pool.offset * pool.dtype.bytes % WORD.bytes === 0;
  const dtype = isWords ? WORD : pool.dtype;
  const inner = bytes / dtype.bytes;
  const copies = l.temporary([n, inner], dtype);
  const push = { outer: 1, axis: pages, inner, n };
  l.emit("gather", [pool, l.contiguous(from), copies], {
    spec: { ELEMENT_BYTES: dtype.bytes, DTYPE_INDEX: from.dtype.code, ALONG: 0, FOURS: 0 },
    push,
    workgroups: l.groups(n * inner),
  });
  l.emit("scatter", [copies, l.contiguous(to), pool], {
    spec: { DTYPE: dtype.code, DTYPE_INDEX: to.dtype.code, ALONG: 0, OP: REDUCE_OPS.assign },
    push,
    workgroups: l.groups(inner),
  });
  return pool;
}

/** The positions of pages in place: no kernel runs for those that read them there. */
export function gatherPages(l: Lowering, node: Node, [pool, table]: Inputs): Value {
  const whole = l.contiguous(pool);
  const { headDim, block, positions } = bufferSizes(whole.shape);
  const [page, head, ofBlock, position] = whole.strides;
  return {
    ...whole,
    shape: node.shape,
    strides: [page, head, position, 1],
    ...(block < headDim && { blocks: { size: block, stride: ofBlock } }),
    pages: { size: positions, table: l.contiguous(table), pool: whole, dtype: node.dtype },
  };
}
