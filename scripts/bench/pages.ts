/**
 * Measures attention over pages: `deno run -A scripts/bench/pages.ts [--model=qwen3-8b] [--sequences=64,256] [--positions=192,830]`.
 *
 * Prints the time of a layer, with the merge of its parts, by the device's timestamps, in vector units and on matrix units. Then prints the rate at which keys and
 * values are read. Sequences have lengths from half of the positions to one and a half times as many, and pages in any order. Layers are
 * read in turns so that none stays in a cache.
 *
 * @module
 */

import type { Backend } from "../../src/backend/backend.ts";
import { closeDevices, getBackend } from "../../src/backend/devices.ts";
import { bfloat16, float16, int32 } from "../../src/graph/dtype.ts";
import { FUSED_LAYOUT, PAGE } from "../../src/graph/kv_layout.ts";
import { makeNode } from "../../src/graph/node.ts";
import { entryOf } from "../../src/graph/options.ts";
import { pagedAttention } from "../../src/schedule/ops/matmul/paged_attention.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import { tuningOf } from "../../src/schedule/tuning/choose.ts";
import type { Storage } from "../../src/schedule/plan/storage.ts";
import { SHAPES } from "../synthetic/config.ts";
import { withOptions } from "../support/options.ts";
import { Bench, HALVES } from "./plan.ts";

const LAYERS = 4;

const flag = (name: string): string | undefined => Deno.args.find((a) => a.startsWith(`--${name}=`))?.split("=")[1];
const listed = (name: string, otherwise: string): number[] => (flag(name) ?? otherwise).split(",").map(Number);

/** An int32 array of these values. */
function ints(bench: Bench, backend: Backend, values: Int32Array<ArrayBuffer>): Value {
  const array = bench.array([values.length], int32, 0);
  const source = bench.l.slots[array.slot] as { readonly storage: Storage };
  backend.write(source.storage.buffer, 0, new Uint8Array(values.buffer));
  return array;
}

function measure(backend: Backend, shape: (typeof SHAPES)[string], sequences: number, positions: number): string {
  using bench = new Bench(backend);
  const { heads, kvHeads, headDim } = shape;
  const columns = 2 ** Math.ceil(Math.log2(Math.max(4, 1.5 * positions / PAGE)));
  const lengths = Int32Array.from({ length: sequences }, (_, i) => Math.round(positions * (0.5 + (i * 37 % 64) / 63)));
  const used = [...lengths].map((length) => Math.ceil(length / PAGE));
  const pages = used.reduce((sum, count) => sum + count, 1);
  let page = 0;
  const table = Int32Array.from(
    { length: sequences * columns },
    (_, i) => i % columns < used[Math.floor(i / columns)] ? 1 + page++ * 7919 % (pages - 1) : 0,
  );
  const [tables, counts] = [ints(bench, backend, table), ints(bench, backend, lengths)];
  const q = bench.array([sequences, heads, headDim], float16, HALVES);
  const held = kvHeads * PAGE * headDim;
  const cached = (size: number): Value => bench.array([LAYERS, pages, kvHeads, headDim / size, PAGE, size], bfloat16);
  const [keys, values] = [cached(FUSED_LAYOUT.keys), cached(FUSED_LAYOUT.values)];
  const node = makeNode("attention", [], [sequences, heads, 1, headDim], float16, {
    scale: headDim ** -0.5,
    mask: "none",
    hasLengths: true,
  } as never);
  const inPages = (pool: Value, i: number, size: number): Value => ({
    ...pool,
    offset: i * pages * held,
    shape: [sequences, kvHeads, columns * PAGE, headDim],
    strides: [held, headDim * PAGE, size, 1],
    blocks: { size, stride: size * PAGE },
    pages: {
      size: PAGE,
      table: { ...tables, shape: [sequences, columns], strides: [columns, 1] },
      pool: { ...pool, shape: [pages, kvHeads, headDim / size, PAGE, size] },
      dtype: bfloat16,
    },
  });
  for (let i = 0; i < LAYERS; i++) {
    const query = { ...q, shape: [sequences, heads, 1, headDim], strides: [heads * headDim, headDim, headDim, 1] };
    const inputs = [query, inPages(keys, i, FUSED_LAYOUT.keys), inPages(values, i, FUSED_LAYOUT.values)];
    if (!pagedAttention(bench.l, node, inputs, counts)) throw new Error("no kernel takes these sizes");
  }
  const us = bench.time(bench.l.builder.dispatches / LAYERS).reduce((sum, part) => sum + part, 0);
  const bytes = lengths.reduce((sum, length) => sum + length, 0) * kvHeads * headDim * 4;
  return `${us.toFixed(1)} us a layer, ${(bytes / us / 1e6).toFixed(2)} TB/s`;
}

if (import.meta.main) {
  const backend = getBackend();
  const name = flag("model") ?? "qwen3-8b";
  const shape = entryOf(SHAPES, name);
  if (!shape) throw new Error(`--model is one of ${Object.keys(SHAPES).join(", ")}`);
  const tuning = tuningOf(backend);
  for (const sequences of listed("sequences", "64,256")) {
    for (const positions of listed("positions", "192,830")) {
      for (const [units, minHeads] of [["vector units", Infinity], ["matrix units", 0]] as const) {
        const onMatrices = { minHeads, minKeyHeads: 0 };
        using _options = withOptions({
          tuning: { ...tuning, pagedAttention: { ...tuning.pagedAttention, onMatrices } },
        });
        const figure = measure(backend, shape, sequences, positions);
        console.log(`${name}, ${sequences} sequences of ${positions}, ${units}: ${figure}`);
      }
    }
  }
  closeDevices();
}
