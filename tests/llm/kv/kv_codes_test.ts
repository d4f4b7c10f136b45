/**
 * Keys and values in 8 bits: the kernels and the definition in primitives give the codes that a search over all exponents finds. Attention over
 * codes is attention over the numbers that they stand for.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { appendPages, copyPages, gatherPages } from "../../../src/array/fast/pages.ts";
import { decodeKv, encodeKv } from "../../../src/array/fast/kv_codes.ts";
import { compositeOf } from "../../../src/array/fast/fused.ts";
import { nodeOf, wrap } from "../../../src/array/tensor/tensor.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { numbersOf, wordOf, wordsOf } from "../../support/oracles/kv_codes.ts";

const [PAGES, HEADS, PAGE, COLUMNS] = [9, 2, 32, 3];

const rounded = (numbers: readonly number[]): number[] => wordsOf(numbers).flatMap(numbersOf);
const values = (array: mx.Tensor): number[] => [...array.astype(mx.float32).toTypedArray()] as number[];
const words = (bytes: mx.Tensor): number[] => [...mx.view(bytes, mx.uint32).toTypedArray()] as number[];

/** Words that were worked out by hand. */
const BY_HAND: readonly (readonly [four: readonly number[], word: number])[] = [
  [[0, -0, 0, 0], 0],
  [[1, 0, 0, 0], 0x5000_0020], // 32 steps of 2^-5
  [[0, 0, 0, -1], 0x5c00_0000], // -32 is 96 of 128, at bit 21
  [[63 / 1024, 1 / 1024, -1 / 1024, 0.5 / 1024], 0x001f_c0bf], // the finest steps: 63, 1, 127, and a tie to 0
  [[63, 0.5, 1.5, 2.5], 0xa040_803f], // ties to 0, 2 and 2
  [[63.49, 0, 0, 0], 0xa000_003f],
  [[63.5, 0, 0, 0], 0xb000_0020], // 64 has no code: the next exponent has 32
  [[2016, -2016, 0, 0], 0xf000_20bf],
  [[65504, -1e30, 16, 48], 0xf040_20bf], // too large, and two ties: 0.5 and 1.5 steps of 32
  [[Infinity, -Infinity, 0, 0], 0xf000_20bf],
  [[NaN, 1, 0, 0], 0x5000_1000],
  [[1e-40, -1e-40, 0, 0], 0],
];

/** Fours of numbers of all sizes, most of them no codes. */
function fours(count: number, seed: number): number[] {
  let state = seed;
  const next = (): number => (state = (state * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  return Array.from({ length: count }, () => {
    const size = 2 ** (next() * 24 - 13);
    return Array.from({ length: 4 }, () => (2 * next() - 1) * size * (next() < 0.2 ? 20 : 1));
  }).flat();
}

interface Case {
  readonly what: string;
  readonly dtype: mx.Dtype;
  readonly headDim: number;
  readonly block: number;
  readonly count: number;
  readonly starts: readonly number[];
  readonly tables: readonly (readonly number[])[];
  /** Features do not begin at multiples of four of the memory. */
  readonly cut?: true;
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
    what: "in blocks of two words, outside of the table",
    dtype: mx.float32,
    headDim: 24,
    block: 8,
    count: 8,
    starts: [92, -4],
    tables: [[1, 2, 3], [4, 5, 6]],
  },
  { what: "cut", dtype: mx.float16, headDim: 12, block: 12, count: 3, starts: [63], tables: [[8, 0, 1]], cut: true },
];

/** Where four features of a position are in a pool, in words. */
function wordAt(c: Case, page: number, h: number, p: number, d: number): number {
  const line = (page * HEADS + h) * (c.headDim / c.block) + Math.floor(d / c.block);
  return ((line * PAGE + p % PAGE) * c.block + d % c.block) / 4;
}

/** The pool after the positions were written. */
function written(c: Case, pool: readonly number[], update: readonly number[]): number[] {
  const out = [...pool];
  for (const [b, start] of c.starts.entries()) {
    for (let h = 0; h < HEADS; h++) {
      for (let t = 0; t < c.count; t++) {
        const p = start + t;
        if (p < 0 || p >= COLUMNS * PAGE) continue;
        for (let d = 0; d < c.headDim; d += 4) {
          const at = ((b * HEADS + h) * c.count + t) * c.headDim + d;
          out[wordAt(c, c.tables[b][Math.floor(p / PAGE)], h, p, d)] = wordOf(update.slice(at, at + 4));
        }
      }
    }
  }
  return out;
}

/** The numbers that each sequence sees. */
function seen(c: Case, pool: readonly number[]): number[] {
  const found: number[] = [];
  for (const table of c.tables) {
    for (let h = 0; h < HEADS; h++) {
      for (let p = 0; p < COLUMNS * PAGE; p++) {
        for (let d = 0; d < c.headDim; d += 4) {
          found.push(...numbersOf(pool[wordAt(c, table[Math.floor(p / PAGE)], h, p, d)]));
        }
      }
    }
  }
  return found;
}

/** Codes of any sizes. */
function anyWords(count: number): number[] {
  return Array.from({ length: count }, (_, i) => wordOf(fours(1, i + 1)));
}

for (const device of testDevices()) {
  /** The words and the numbers of floats, appended to a page by the kernel. */
  const byKernel = (numbers: readonly number[], dtype: mx.Dtype): { words: number[]; back: number[] } => {
    const headDim = 4;
    const count = numbers.length / headDim;
    const columns = Math.ceil(count / PAGE);
    const table = mx.array([Array.from({ length: columns }, (_, i) => i)], mx.int32);
    const pool = mx.zeros([columns, 1, 1, PAGE, headDim], mx.uint8);
    const rows = mx.array([...numbers], dtype).reshape(1, 1, count, headDim);
    const appended = appendPages(pool, rows, table, mx.array([0], mx.int32));
    return {
      words: words(appended.reshape(-1)).slice(0, count),
      back: values(gatherPages(appended, table, dtype)).slice(0, numbers.length),
    };
  };

  Deno.test(`codes of keys and values are those worked out by hand on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const numbers = BY_HAND.flatMap(([four]) => four);
      const expected = BY_HAND.map(([, word]) => word);
      assertEquals(BY_HAND.map(([four]) => wordOf(four)), expected);
      assertEquals(byKernel(numbers, mx.float32).words, expected);
      assertEquals(words(encodeKv(mx.array(numbers, mx.float32))), expected);
    });
  });

  Deno.test(`codes of numbers of all sizes, and back, on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const numbers = values(mx.array(fours(2000, 7), mx.float32));
      const expected = wordsOf(numbers);
      const kernel = byKernel(numbers, mx.float32);
      assertEquals(kernel.words, expected);
      assertEquals(kernel.back, rounded(numbers));
      const codes = encodeKv(mx.array(numbers, mx.float32));
      assertEquals(words(codes), expected);
      assertEquals(values(decodeKv(codes, mx.float32)), rounded(numbers));
      // Half a step is at most 1/63.5 of the largest of four, within the range.
      for (let i = 0; i < expected.length; i++) {
        const four = numbers.slice(4 * i, 4 * i + 4);
        const most = Math.max(...four.map(Math.abs));
        if (most > 2016) continue;
        const limit = Math.max(most / 63.5, 2 ** -11);
        four.forEach((x, d) => assert(Math.abs(kernel.back[4 * i + d] - x) <= limit, `${four}`));
      }
    });
  });

  Deno.test(`codes of normally distributed numbers are off by a hundredth of their deviation on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      for (const deviation of [0.1, 1, 100]) {
        const numbers = values(mx.random.normal([40000], mx.float32, 0, deviation, mx.random.key(5)));
        const squares = byKernel(numbers, mx.float32).back.map((x, i) => (x - numbers[i]) ** 2);
        const error = Math.sqrt(squares.reduce((a, b) => a + b) / squares.length) / deviation;
        assert(Math.abs(error - 0.0105) < 2e-4, `${error}`);
      }
    });
  });

  Deno.test(`large biases of two features of a head cost a seventh of the others' deviation on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const numbers = values(mx.random.normal([40000], mx.float32, 0, 1, mx.random.key(6)))
        .map((x, i) => Math.fround(x + (i % 128 === 5 || i % 128 === 69 ? 100 : 0)));
      const squares = byKernel(numbers, mx.float32).back.map((x, i) => (x - numbers[i]) ** 2);
      const error = Math.sqrt(squares.reduce((a, b) => a + b) / squares.length);
      assert(Math.abs(error - 0.144) < 0.004, `${error}`);
    });
  });

  Deno.test(`every code is its own in float16, bfloat16 and float32 on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const all = Array.from({ length: 16 * 127 }, (_, i) => [Math.floor(i / 127), i % 127 - 63]);
      const numbers = all.flatMap(([e, m]) => [m, 63, -m, -32].map((x) => x * 2 ** (e - 10)));
      for (const dtype of [mx.float16, mx.bfloat16, mx.float32]) {
        assertEquals(byKernel(numbers, dtype).back.map((x) => x + 0), numbers.map((x) => x + 0), dtype.name);
        assertEquals(
          values(decodeKv(encodeKv(mx.array(numbers, dtype)), dtype)),
          numbers.map((x) => x + 0),
          dtype.name,
        );
      }
    });
  });

  for (const c of CASES) {
    Deno.test(`positions as codes in pages: ${c.what} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const shape = [PAGES, HEADS, c.headDim / c.block, PAGE, c.block];
        const pool = anyWords(shape.reduce((a, b) => a * b) / 4);
        const given = fours(c.starts.length * HEADS * c.count * c.headDim / 4, 3);
        const table = mx.array(c.tables as number[][], mx.int32);
        const start = mx.array([...c.starts], mx.int32);
        const rows = mx.array(given, c.dtype).reshape(c.starts.length, HEADS, c.count, c.headDim);
        const update = values(rows);
        const wide = c.cut && mx.concatenate([mx.zeros([...rows.shape.slice(0, 3), 1], c.dtype), rows], 3);
        if (wide) mx.eval(wide);
        const positions = wide ? wide.index("...", mx.Slice(1, null)) : rows;
        mx.eval(table, start);
        const base = (): mx.Tensor => mx.view(mx.array(pool, mx.uint32), mx.uint8).reshape(shape);

        const fused = appendPages(base(), positions, table, start);
        const node = nodeOf(appendPages(base(), positions, table, start));
        const composite = wrap(compositeOf("appendPages")!(node)) as mx.Tensor;
        const expected = written(c, pool, update);
        assertEquals(words(fused.reshape(-1)), expected);
        assertEquals(words(composite.reshape(-1)), expected);

        const read = gatherPages(fused, table, c.dtype);
        const readComposite = wrap(
          compositeOf("gatherPages")!(nodeOf(gatherPages(fused, table, c.dtype))),
        ) as mx.Tensor;
        assertEquals([read.shape, read.dtype], [[c.starts.length, HEADS, COLUMNS * PAGE, c.headDim], c.dtype]);
        assertEquals(values(read), seen(c, expected));
        assertEquals(values(readComposite), seen(c, expected));

        const copied = copyPages(fused, mx.array([3], mx.int32), mx.array([0], mx.int32));
        const size = pool.length / PAGES;
        assertEquals(words(copied.reshape(-1)).slice(0, size), expected.slice(3 * size, 4 * size));
      });
    });
  }

  for (
    const [queries, mask, dtype, headDim, blocks] of [
      [1, null, mx.float16, 64, [64, 64]],
      [1, null, mx.float16, 64, [4, 8]],
      [1, null, mx.bfloat16, 20, [20, 20]],
      [1, null, mx.float32, 128, [4, 8]],
      [3, "causal", mx.float32, 64, [16, 4]],
      [3, "add", mx.float32, 64, [64, 64]],
      [40, "causal", mx.float16, 64, [64, 64]],
      [40, "causal", mx.float16, 64, [4, 8]],
      [9, "causal", mx.bfloat16, 12, [4, 12]],
    ] as const
  ) {
    const what = `${queries} queries of ${headDim} features of ${dtype.name} in blocks of ${blocks.join(" and ")}`;
    Deno.test(`attention over codes: ${what}, ${mask ?? "no"} mask on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const table = mx.array([[4, 1, 7], [2, 8, 0], [5, 5, 5]], mx.int32);
        const lengths = mx.array([96, 41, 0], mx.int32);
        const [a, b, d, e] = mx.split(mx.random.split(mx.random.key(3), 4), 4).map((k) => k.reshape(2));
        const pools = [a, b].map((k, i) => {
          const shape = [PAGES, HEADS, headDim / blocks[i], PAGE, blocks[i]];
          return encodeKv(mx.random.normal(shape, mx.float32, 0, 1, k));
        });
        const q = mx.random.normal([3, 2 * HEADS, queries, headDim], mx.float32, 0, 1, d).astype(dtype);
        mx.eval(...pools, q);
        const [k, v] = pools.map((pool) => gatherPages(pool, table, dtype));
        const [kRow, vRow] = pools.map((pool, i) => {
          const numbers = words(pool.reshape(-1)).flatMap(numbersOf);
          const pages = mx.take(mx.array(numbers, dtype).reshape(pool.shape), table, 0)
            .reshape(3, 3, HEADS, headDim / blocks[i], PAGE, blocks[i]);
          return mx.array(values(pages.transpose(0, 2, 1, 4, 3, 5)), dtype).reshape(3, HEADS, 3 * PAGE, headDim);
        });
        const added = mx.random.normal([queries, 3 * PAGE], mx.float32, 0, 1, e).astype(dtype);
        const options = { scale: 0.125, mask: mask === "add" ? added : mask, lengths };
        const coded = values(mx.fast.scaledDotProductAttention(q, k, v, options));
        const row = values(mx.fast.scaledDotProductAttention(q, kRow, vRow, options));
        const worst = Math.max(...coded.map((x, i) => Math.abs(x - row[i])));
        assert(worst <= (dtype === mx.bfloat16 ? 1e-2 : dtype === mx.float16 ? 2e-3 : 2e-5), `${worst}`);
        assert(coded.some((x) => Math.abs(x) > 0.01));
      });
    });
  }

  Deno.test(`attention reads codes in their pages on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const block = device === "wasm" ? [64, 64] : [4, 8]; // pools on the CPU have whole heads
    const { kernels } = await mx.profile(() =>
      mx.tidy(() => {
        const pools = block.map((size) => mx.zeros([PAGES, HEADS, 64 / size, PAGE, size], mx.uint8));
        const table = mx.array([[4, 1, 7]], mx.int32);
        mx.eval(...pools, table);
        const [k, v] = pools.map((pool) => gatherPages(pool, table, mx.float16));
        mx.eval(mx.fast.scaledDotProductAttention(mx.zeros([1, HEADS, 1, 64], mx.float16), k, v, { scale: 1 }));
      }), { timed: false, device });
    assert(!kernels.some(({ kernel }) => kernel.startsWith("gather")), kernels.map(({ kernel }) => kernel).join(" "));
  });
}

Deno.test("a pool of codes has blocks of fours", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const pool = mx.zeros([2, 1, 1, PAGE, 6], mx.uint8);
    const positions = mx.zeros([1, 1, 1, 6]);
    const [table, start] = [mx.zeros([1, 1], mx.int32), mx.zeros([1], mx.int32)];
    assertThrows(() => appendPages(pool, positions, table, start), mx.ShapeError, "sizes do not fit");
  });
});
