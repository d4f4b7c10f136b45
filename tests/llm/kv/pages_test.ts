/**
 * Keys and values in pages: they are where the table says and are read back from there. Attention over them is attention over
 * the same positions in a row.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { appendPages, copyPages, gatherPages } from "../../../src/array/fast/pages.ts";
import { compositeOf } from "../../../src/array/fast/fused.ts";
import { nodeOf, wrap } from "../../../src/array/tensor/tensor.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { testDevices } from "../../support/devices/devices.ts";

const [PAGES, HEADS, PAGE, COLUMNS] = [9, 2, 32, 3];

interface Case {
  readonly what: string;
  readonly dtype: mx.Dtype;
  readonly headDim: number;
  readonly block: number;
  readonly count: number;
  /** Of each sequence. */
  readonly starts: readonly number[];
  readonly tables: readonly (readonly number[])[];
  /** Positions are the second to last axis of the memory, too, or heads are. */
  readonly turned?: boolean;
}

const CASES: readonly Case[] = [
  {
    what: "a token each",
    dtype: mx.float16,
    headDim: 64,
    block: 64,
    count: 1,
    starts: [40, 0],
    tables: [[3, 8, 0], [5, 0, 0]],
  },
  { what: "across pages", dtype: mx.float32, headDim: 8, block: 8, count: 40, starts: [30], tables: [[7, 2, 4]] },
  {
    what: "in blocks",
    dtype: mx.bfloat16,
    headDim: 16,
    block: 4,
    count: 5,
    starts: [31, 62],
    tables: [[1, 2, 0], [3, 4, 5]],
  },
  {
    what: "odd sizes",
    dtype: mx.float16,
    headDim: 6,
    block: 3,
    count: 3,
    starts: [0, 94],
    tables: [[8, 0, 0], [1, 2, 3]],
  },
  {
    what: "outside of the table",
    dtype: mx.float32,
    headDim: 4,
    block: 4,
    count: 8,
    starts: [92, -4],
    tables: [[1, 2, 3], [4, 5, 6]],
  },
  {
    what: "heads before positions",
    dtype: mx.float16,
    headDim: 32,
    block: 8,
    count: 7,
    starts: [3],
    tables: [[2, 6, 1]],
    turned: true,
  },
];

const ATTENTIONS = [
  { queries: 1, mask: null, dtype: mx.float16, blocks: [64, 64] },
  { queries: 1, mask: null, dtype: mx.float16, blocks: [4, 8] },
  { queries: 1, mask: null, dtype: mx.bfloat16, blocks: [4, 8] },
  { queries: 3, mask: "causal", dtype: mx.float32, blocks: [64, 64] },
  { queries: 3, mask: "causal", dtype: mx.float32, blocks: [16, 4] },
  { queries: 40, mask: "causal", dtype: mx.float16, blocks: [64, 64] },
  { queries: 40, mask: "causal", dtype: mx.float16, blocks: [4, 8] },
] as const;

/** Numbers that every dtype holds exactly. */
function numbers(count: number, seed: number): number[] {
  return Array.from({ length: count }, (_, i) => ((i * 7 + seed * 13) % 251) - 125);
}

/** The pool after the positions were written, by the definition. */
function written(c: Case, pool: readonly number[], update: readonly number[]): number[] {
  const out = [...pool];
  for (const [b, start] of c.starts.entries()) {
    for (let h = 0; h < HEADS; h++) {
      for (let t = 0; t < c.count; t++) {
        const p = start + t;
        if (p < 0 || p >= COLUMNS * PAGE) continue;
        const page = c.tables[b][Math.floor(p / PAGE)];
        for (let d = 0; d < c.headDim; d++) {
          const line = (page * HEADS + h) * (c.headDim / c.block) + Math.floor(d / c.block);
          out[(line * PAGE + p % PAGE) * c.block + d % c.block] =
            update[((b * HEADS + h) * c.count + t) * c.headDim + d];
        }
      }
    }
  }
  return out;
}

/** The positions that a sequence sees, by the definition. */
function seen(c: Case, pool: readonly number[]): number[] {
  return c.tables.flatMap((table) =>
    Array.from(
      { length: HEADS },
      (_, h) =>
        Array.from({ length: COLUMNS * PAGE }, (_, p) =>
          Array.from({ length: c.headDim }, (_, d) => {
            const line = (table[Math.floor(p / PAGE)] * HEADS + h) * (c.headDim / c.block) + Math.floor(d / c.block);
            return pool[(line * PAGE + p % PAGE) * c.block + d % c.block];
          })),
    ).flat(2)
  );
}

const values = (array: mx.Tensor): number[] => [...array.astype(mx.float32).toTypedArray()] as number[];

for (const device of testDevices()) {
  for (const c of CASES) {
    Deno.test(`positions in pages: ${c.what} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const shape = [PAGES, HEADS, c.headDim / c.block, PAGE, c.block];
        const pool = numbers(shape.reduce((a, b) => a * b), 1);
        const update = numbers(c.starts.length * HEADS * c.count * c.headDim, 2);
        const table = mx.array(c.tables as number[][], mx.int32);
        const start = mx.array([...c.starts], mx.int32);
        const rows = mx.array(update, c.dtype).reshape(c.starts.length, HEADS, c.count, c.headDim);
        // The same positions, whose memory has heads before positions.
        const positions = c.turned ? mx.contiguous(rows.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) : rows;
        mx.eval(positions, table, start);
        const base = (): mx.Tensor => mx.array(pool, c.dtype).reshape(shape);

        const fused = appendPages(base(), positions, table, start);
        const node = nodeOf(appendPages(base(), positions, table, start));
        const composite = wrap(compositeOf("appendPages")!(node)) as mx.Tensor;
        const expected = written(c, pool, update);
        assertEquals(values(fused), expected);
        assertEquals(values(composite), expected);

        const read = gatherPages(fused, table);
        const readComposite = wrap(compositeOf("gatherPages")!(nodeOf(gatherPages(fused, table)))) as mx.Tensor;
        assertEquals(read.shape, [c.starts.length, HEADS, COLUMNS * PAGE, c.headDim]);
        assertEquals(values(read), seen(c, expected));
        assertEquals(values(readComposite), seen(c, expected));
      });
    });
  }

  for (const [dtype, headDim, block] of [[mx.float16, 16, 4], [mx.float32, 8, 8], [mx.bfloat16, 3, 3]] as const) {
    Deno.test(`pages of ${dtype.name} are copied in place, ${headDim} features in blocks of ${block} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const shape = [5, HEADS, headDim / block, PAGE - 1, block];
      const size = shape.slice(1).reduce((a, b) => a * b);
      const pool = numbers(5 * size, 1);
      const state = {
        pool: mx.array(pool, dtype).reshape(shape),
        from: mx.array([3, 0, 1], mx.int32),
        to: mx.array([0, 4, 1], mx.int32),
      };
      mx.eval(state.pool, state.from, state.to);
      const { kernels } = await mx.profile(async () => {
        using loop = new DeviceLoop(state, (now) => ({ ...now, pool: copyPages(now.pool, now.from, now.to) }));
        loop.run();
        await loop.done();
      }, { timed: false, device });
      const expected = [3, 1, 2, 3, 0].flatMap((page) => pool.slice(page * size, (page + 1) * size));
      assertEquals(values(state.pool), expected);
      assertEquals(kernels.map(({ kernel }) => kernel).sort(), ["gather", "scatter"]); // and no copy of the pool
      mx.tidy(() => {
        const node = nodeOf(copyPages(mx.array(pool, dtype).reshape(shape), state.from, state.to));
        assertEquals(values(wrap(compositeOf("copyPages")!(node)) as mx.Tensor), expected);
      });
      mx.dispose([state.pool, state.from, state.to]);
    });
  }

  for (const c of ATTENTIONS) {
    const { queries, mask, dtype, blocks } = c;
    const what = `${queries} queries over pages of ${dtype.name} in blocks of ${blocks.join(" and ")}`;
    Deno.test(`attention of ${what} is attention over positions in a row on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const headDim = 64;
        const table = mx.array([[4, 1, 7], [2, 8, 0], [5, 5, 5]], mx.int32);
        const lengths = mx.array([96, 41, 0], mx.int32);
        const key = mx.random.key(3);
        const [a, b, d] = mx.split(mx.random.split(key, 3), 3).map((k) => k.reshape(2));
        const pools = [a, b].map((k, i) => {
          const shape = [PAGES, HEADS, headDim / blocks[i], PAGE, blocks[i]];
          return mx.random.normal(shape, mx.float32, 0, 1, k).astype(dtype);
        });
        const q = mx.random.normal([3, 2 * HEADS, queries, headDim], mx.float32, 0, 1, d).astype(dtype);
        mx.eval(...pools, q);
        const [k, v] = pools.map((pool) => gatherPages(pool, table));
        const [kRow, vRow] = pools.map((pool, i) => {
          const pages = mx.take(pool, table, 0).reshape(3, 3, HEADS, headDim / blocks[i], PAGE, blocks[i]);
          return mx.array(values(pages.transpose(0, 2, 1, 4, 3, 5)), dtype).reshape(3, HEADS, 3 * PAGE, headDim);
        });
        const options = { scale: 0.125, mask, lengths };
        const paged = values(mx.fast.scaledDotProductAttention(q, k, v, options));
        const row = values(mx.fast.scaledDotProductAttention(q, kRow, vRow, options));
        const worst = Math.max(...paged.map((x, i) => Math.abs(x - row[i])));
        assert(worst <= 2e-3, `${worst}`);
        assert(paged.some((x) => Math.abs(x) > 0.01));
      });
    });
  }

  Deno.test(`one query reads pages in place on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const { kernels } = await mx.profile(() =>
      mx.tidy(() => {
        const [keys, values] = [4, 8].map((block) => mx.zeros([PAGES, HEADS, 64 / block, PAGE, block], mx.float16));
        const table = mx.array([[4, 1, 7]], mx.int32);
        mx.eval(keys, values, table);
        const [k, v] = [keys, values].map((pool) => gatherPages(pool, table));
        mx.eval(mx.fast.scaledDotProductAttention(mx.zeros([1, HEADS, 1, 64], mx.float16), k, v, { scale: 1 }));
      }), { timed: false, device });
    const joins = kernels.some(({ kernel }) => kernel === "gather");
    assertEquals(joins, device === "wasm"); // whose kernel knows no blocks: pools on the CPU have none
  });
}
