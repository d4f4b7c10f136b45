/** Where the words of codes lie for the matrix kernels of several sequences, against the rows that a lane multiplies. */

import { assertEquals } from "@std/assert";
import { uint32 } from "../src/graph/dtype.ts";
import { gateUpFragments, headFragments, qkvFragments } from "../src/schedule/batch_layouts.ts";
import { Lowering } from "../src/schedule/lowering.ts";
import type { Layout } from "../src/schedule/prepared.ts";
import type { Backend } from "../src/backend/backend.ts";
import { kernelTest } from "./harness.ts";

/** A lane's row of a matrix: which source, and its row there; undefined where there is none. */
type RowOf = (block: number, task: number, r: number) => readonly [source: number, row: number] | undefined;

/** Runs a layout on matrices of `rows` rows of `columns` words, all words different, and compares it with {@link RowOf}. */
function check(backend: Backend, layout: Layout, rows: readonly number[], columns: number, rowOf: RowOf): void {
  const l = new Lowering(backend, () => false, false);
  const sources = rows.map((n) => l.temporary([n, columns], uint32));
  const [{ shape }] = layout.results;
  const out = l.temporary(shape, uint32);
  layout.emit(l, sources, [out], () => out);
  const plan = backend.compile(l.builder.finish(sources.length + 1, (slot) => slot));
  const sizes = [...rows.map((n) => n * columns), shape[0]];
  const slots = sizes.map((n) => ({ buffer: backend.alloc(4 * n), byteOffset: 0 }));
  const found = new Uint32Array(shape[0]);
  try {
    sizes.forEach((n, which) => {
      const words = Uint32Array.from({ length: n }, (_, i) => which < rows.length ? (which + 1) << 24 | i : 0);
      backend.write(slots[which].buffer, 0, new Uint8Array(words.buffer));
    });
    backend.wait(backend.run(plan, slots));
    backend.read(slots[rows.length].buffer, 0, new Uint8Array(found.buffer));
  } finally {
    backend.release(plan);
    for (const { buffer } of slots) backend.free(buffer);
  }
  const expected = found.map((_, i) => {
    const [word, lane, warp, block] = [i & 3, i >> 2 & 31, i >> 7 & 15, i >> 11];
    const chunk = warp + 16 * (word >> 1);
    const row = rowOf(block, lane >> 3, (lane >> 2 & 1) + 2 * (word & 1));
    if (!row || chunk * 4 >= columns) return 0;
    return (row[0] + 1) << 24 | (row[1] * columns + chunk * 4 + (lane & 3));
  });
  assertEquals(found, expected);
}

kernelTest("fragments of q, k and v hold four rows of a task", (backend) => {
  for (const [hidden, kvHeads, per, headDim] of [[1024, 2, 2, 32], [256, 1, 3, 16], [640, 1, 1, 32]]) {
    const [slices, blocks] = [headDim / 8, Math.ceil((per + 2) / 2)];
    const sizes = { hidden, heads: kvHeads * per, kvHeads, headDim, intermediate: 32, groupSize: 32, bits: 4 };
    const rows = [kvHeads * per * headDim, kvHeads * headDim, kvHeads * headDim];
    check(backend, qkvFragments(sizes), rows, hidden / 8, (block, lane, r) => {
      const [workgroup, task] = [Math.floor(block / blocks), block % blocks * 4 + lane];
      const [head, slice, type, half] = [Math.floor(workgroup / slices), workgroup % slices, task >> 1, task & 1];
      if (type > per + 1) return undefined;
      if (type > per) return [2, head * headDim + 8 * slice + 4 * half + r];
      const feature = headDim / 2 * (r & 1) + 4 * slice + 2 * half + (r >> 1);
      return type < per ? [0, (head * per + type) * headDim + feature] : [1, head * headDim + feature];
    });
  }
}, ["copy"]);

kernelTest("fragments of gate and up hold two features of a task", (backend) => {
  const sizes = { hidden: 512, heads: 2, kvHeads: 1, headDim: 32, intermediate: 40, groupSize: 32, bits: 4 };
  check(backend, gateUpFragments(sizes), [40, 40], 64, (block, lane, r) => [r & 1, 8 * block + 2 * lane + (r >> 1)]);
}, ["copy"]);

kernelTest("fragments of a head hold four rows of a task", (backend) => {
  check(backend, headFragments(39, 1024), [39], 128, (block, lane, r) => {
    const row = 16 * block + 4 * lane + r;
    return row < 39 ? [0, row] : undefined;
  });
}, ["copy"]);
