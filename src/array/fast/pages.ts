/**
 * Caches of keys and values in pages, beside their definitions in primitives. Sequences of any lengths share a pool, and a table tells which
 * pages hold the positions of each. src/graph/kv_layout.ts has the layout.
 *
 * @module
 */

import { type Dtype, int32 } from "../../graph/dtype.ts";
import { ShapeError } from "../../graph/error.ts";
import { CODED_FEATURES, isCoded } from "../../graph/kv_codes.ts";
import { bufferSizes, toPositions } from "../../graph/kv_layout.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import * as op from "../ops/binary.ts";
import { arange, zeros } from "../ops/creation.ts";
import { take, takeAlongAxis } from "../ops/gather.ts";
import { concatenate, split } from "../ops/join.ts";
import { astype, reshape, transpose } from "../ops/movement.ts";
import { makeNode } from "../../graph/node.ts";
import { nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { defineFused } from "./fused.ts";
import { decodeKv, encodeKv } from "./kv_codes.ts";

/**
 * The pool (pages, H, D / block, PAGE, block) with positions (B, H, T, D) written in place. Position p = start[b] + t of sequence b goes to
 * page table[b, p / PAGE]. `table` is int32 (B, P), and `start` int32 (B,). Positions outside of the table are left out.
 * Entries that name no page count as the nearest one. No two sequences may write into one page. A pool of uint8 gets the codes of
 * src/graph/kv_codes.ts; its blocks are multiples of 4.
 */
export function appendPages(pool: Tensor, positions: Tensor, table: Tensor, start: Tensor): Tensor {
  const { heads, headDim, block } = bufferSizes(pool.shape);
  const [batch, ...rest] = positions.shape;
  const coded = isCoded(pool.dtype);
  const fits = rest[0] === heads && rest[2] === headDim && table.shape[0] === batch &&
    sameShape(start.shape, [batch]) && !(coded && block % CODED_FEATURES !== 0);
  if (!fits) throw pagesError("appendPages", { pool, positions, table, start });
  const inputs = [pool, coded ? positions : astype(positions, pool.dtype), table, start].map(nodeOf);
  return appendNode(inputs, pool.shape, pool.dtype, { donate: true }) as Tensor;
}

/**
 * The pool with page from[i] copied to page to[i], in place. Both are int32 (n,). No page may be named twice by `to`, but a page may be
 * copied to itself. All pages are read before any is written.
 */
export function copyPages(pool: Tensor, from: Tensor, to: Tensor): Tensor {
  if (from.ndim !== 1 || !sameShape(from.shape, to.shape)) throw pagesError("copyPages", { pool, from, to });
  return copyNode([pool, from, to].map(nodeOf), pool.shape, pool.dtype, { donate: true }) as Tensor;
}

/** The positions (B, H, P * PAGE, D) of the pages of each sequence, by a table int32 (B, P). Codes become floats of `dtype`. */
export function gatherPages(pool: Tensor, table: Tensor, dtype: Dtype = pool.dtype): Tensor {
  const { heads, headDim, positions } = bufferSizes(pool.shape);
  const [batch, columns] = table.shape;
  const shape = [batch, heads, columns * positions, headDim];
  return gatherNode([pool, table].map(nodeOf), shape, isCoded(pool.dtype) ? dtype : pool.dtype, {}) as Tensor;
}

function pagesError(name: string, arrays: Readonly<Record<string, Tensor>>): ShapeError {
  const shapes = Object.entries(arrays).map(([of, { shape }]) => `${of} ${formatShape(shape)}`);
  return new ShapeError(`${name}() sizes do not fit: found ${shapes.join(", ")}`);
}

const copyNode = defineFused("copyPages", (_, pool, from, to) => {
  const inputs = [pool, to, take(pool, from, 0)].map(nodeOf);
  return wrap(makeNode("scatter", inputs, pool.shape, pool.dtype, { axis: 0, fn: "assign", donate: false })) as Tensor;
});

const gatherNode = defineFused("gatherPages", ({ dtype }, pool, table) => {
  const { heads, headDim, positions, block } = bufferSizes(pool.shape);
  const [batch, columns] = table.shape;
  const pages = reshape(take(pool, reshape(table, [-1]), 0), [
    batch,
    columns,
    heads,
    headDim / block,
    positions,
    block,
  ]);
  const all = reshape(transpose(pages, [0, 2, 1, 4, 3, 5]), [batch, heads, columns * positions, headDim]);
  return isCoded(pool.dtype) ? decodeKv(all, dtype) : all;
});

const appendNode = defineFused("appendPages", (_, pool, given, table, start) => {
  const update = isCoded(pool.dtype) ? encodeKv(given) : given;
  const { batch: pages, heads, headDim, positions: page, block } = bufferSizes(pool.shape);
  const [batch, , count] = update.shape;
  const columns = table.shape[1];
  const position = op.add(reshape(start, [batch, 1]), reshape(arange(0, count, 1, int32), [1, count]));
  const column = op.floorDivide(position, page);
  const named = takeAlongAxis(table, op.clip(column, 0, columns - 1), 1);
  const inside = op.logicalAnd(op.greaterEqual(column, 0), op.less(column, columns));
  const place = op.add(
    op.multiply(op.clip(named, 0, pages - 1), page),
    op.subtract(position, op.multiply(column, page)),
  );
  const row = reshape(op.where(inside, place, pages * page), [-1]); // the last row takes what is left out
  const size = heads * headDim;
  const { axes, shape } = toPositions(pool.shape);
  const rows = reshape(transpose(reshape(transpose(pool, [...axes]), shape), [0, 2, 1, 3]), [pages * page, size]);
  const updates = reshape(transpose(update, [0, 2, 1, 3]), [batch * count, size]);
  const all = concatenate([rows, zeros([1, size], pool.dtype)], 0);
  const written = makeNode("scatter", [all, row, updates].map(nodeOf), all.shape, pool.dtype, {
    axis: 0,
    fn: "assign",
    donate: false,
  });
  const [kept] = split(wrap(written), [pages * page], 0);
  const back = transpose(reshape(kept, [pages, page, heads, headDim / block, block]), [0, 2, 3, 1, 4]);
  return reshape(back, pool.shape);
});
