/**
 * The basis of products on cooperative matrices: element maps, weights in fragment order, rows in float16, sums of splits, and
 * layouts that are made once. The packing is tested everywhere with a map of one known driver.
 */

import { assert, assertEquals } from "@std/assert";
import { bfloat16, float16, float32, uint32 } from "../../src/graph/dtype.ts";
import { contiguousStrides } from "../../src/graph/shape.ts";
import { Lowering } from "../../src/schedule/plan/context.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import { isNarrowKnown, matrixMap, PAIRS, readMap } from "../../src/schedule/ops/matmul/coopmat.ts";
import { type Layout, prepare, runPrepared } from "../../src/schedule/plan/weight_layouts.ts";
import { Storage } from "../../src/schedule/plan/storage.ts";
import { interleave, knownAnswer, quantized, repack } from "../support/oracles/quantized_fragments.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(11);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);
const THREADS = 64;

// ---- element maps ---------------------------------------------------------------------------------------------------

Deno.test("readMap() takes the element maps that the kernels are written for, and no others", () => {
  const known = knownAnswer();
  const { weights, attention, pairs } = readMap(known);
  assertEquals([weights, attention, pairs], [PAIRS, true, true]);
  const change = (f: (words: Uint32Array) => void): ReturnType<typeof readMap> => {
    const words = known.slice();
    f(words);
    return readMap(words);
  };
  assertEquals(change((w) => w[0] = 64).weights, undefined); // lanes
  assertEquals(change((w) => w[2] = 16).weights, undefined); // elements of B
  // Two elements of B swapped over a column: the product's form is gone, attention's is not.
  const crossed = change((w) => [w[4 + 256], w[4 + 260]] = [w[4 + 260], w[4 + 256]]);
  assertEquals([crossed.weights, crossed.attention], [undefined, true]);
  assertEquals(change((w) => w[4 + 257] = w[4 + 256]).weights, undefined); // one element twice
  // Four neighbours that do not share a column of B: lanes 1 and 5 swapped.
  const parted = change((w) => {
    const lane = (i: number): Uint32Array => w.subarray(4 + 256 + 8 * i, 4 + 256 + 8 * (i + 1));
    const one = lane(1).slice();
    lane(1).set(lane(5));
    lane(5).set(one);
  });
  assertEquals([parted.weights, parted.attention], [undefined, true]);
  // A in another order than sums.
  const turned = change((w) => [w[4], w[5]] = [w[5], w[4]]);
  assertEquals([turned.attention, turned.pairs], [false, false]);
  // Both in another order, which only the kernels of several sequences mind.
  const both = change((w) => [4, 516].forEach((at) => [w[at], w[at + 1]] = [w[at + 1], w[at]]));
  assertEquals([both.weights?.length, both.pairs], [256, false]);
});

Deno.test("isNarrowKnown() takes the element map that the kernels of several sequences are written for, and no other", () => {
  const known = Uint32Array.from({ length: 4 + 256 + 128 + 128 }, (_, i) => [32, 8, 4, 4][i]);
  for (let lane = 0; lane < 32; lane++) {
    const [row, c] = [lane >> 2, 2 * (lane & 3)];
    const a = [0, 8].flatMap((down) => [0, 1, 8, 9].map((along) => (row + down) * 16 + c + along));
    known.set(a, 4 + 8 * lane);
    known.set([0, 1, 8, 9].map((along) => (c + along) * 8 + row), 260 + 4 * lane);
    known.set([0, 8].flatMap((down) => [0, 1].map((column) => (row + down) * 8 + c + column)), 388 + 4 * lane);
  }
  assert(isNarrowKnown(known));
  for (const at of [0, 1, 2, 3, 4, 260, 388, 515]) {
    const other = known.slice();
    other[at] ^= 1;
    assert(!isNarrowKnown(other), `word ${at}`);
  }
});

kernelTest("coopmat_map() tells where every element of a matrix is", (backend) => {
  const map = matrixMap(backend);
  for (const words of map.weights ? [map.weights] : []) assertEquals(new Set(words).size, 256);
}, ["coopmat_map"]);

// ---- quantized weights ----------------------------------------------------------------------------------------------

kernelTest("coopmat_repack() puts every code, scale and bias where its lane reads it", (backend) => {
  const { weights: map } = readMap(knownAnswer());
  for (
    const [n, k, bits, group] of [[40, 96, 4, 32], [130, 64, 4, 64], [16, 256, 8, 128], [24, 160, 8, 32], [
      40,
      96,
      8,
      16,
    ]]
  ) {
    const w = quantized(n, k, bits, group);
    const { codes, scales_biases } = repack(backend, w, map!, float32);
    const [steps, columns] = [Math.ceil(k / 64), Math.ceil(n / 128) * 128];
    const groups = steps * 64 / group;
    for (let block = 0; block < columns / 16; block++) {
      for (let lane = 0; lane < 32; lane++) {
        for (let depth = 0; depth < steps * 4; depth++) {
          for (let e = 0; e < 8; e++) {
            const at = map![lane * 8 + e];
            const [column, row] = [block * 16 + at % 16, depth * 16 + (at >> 4)];
            const expected = column < n && row < k ? w.codes[column * k + row] : 0;
            const lanes = (block * steps + (depth >> 2)) * 32 * bits + lane * 4;
            const found = bits === 4
              ? codes[lanes + depth % 4] >> ((e >> 1) * 4 + (e & 1) * 16) & 15
              : codes[lanes + (depth >> 1 & 1) * 128 + (depth & 1) * 2 + (e >> 2)] >>
                  ((e >> 1 & 1) * 8 + (e & 1) * 16) & 255;
            assertEquals(found, expected, `code ${e} of lane ${lane}, block ${block}, depth ${depth}`);
          }
        }
        for (let g = 0; g < groups; g++) {
          for (let half = 0; half < 2; half++) {
            const column = block * 16 + map![lane * 8 + half * 4] % 16;
            const real = column < n && g < k / group;
            const pair = real ? [w.scales, w.biases].map((list) => list[column * (k / group) + g]) : [0, 0];
            const word = scales_biases[((block * groups + g) * 8 + (lane >> 2)) * 2 + half];
            assertEquals(unpack(float16, Uint16Array.of(word & 0xffff, word >>> 16) as never), pair);
          }
        }
      }
    }
  }
}, ["coopmat_repack"]);

kernelTest("coopmat_repack() repeats scales of larger groups, and makes biases of symmetric codes", (backend) => {
  const { weights: map } = readMap(knownAnswer());
  for (const [n, k, bits, group] of [[40, 128, 4, 32], [24, 128, 8, 64], [40, 96, 8, 16]]) {
    const w = quantized(n, k, bits, group);
    const repeated = (list: readonly number[]): number[] => list.flatMap((x) => Array<number>(group / 16).fill(x));
    const small = { ...w, group: 16, scales: repeated(w.scales), biases: repeated(w.biases) };
    assertEquals(repack(backend, w, map!, float16, 16), repack(backend, small, map!, float16));
    const biases = small.scales.map((scale) => -(2 ** (bits - 1)) * scale);
    const expected = repack(backend, { ...small, biases }, map!, float16);
    assertEquals(repack(backend, w, map!, float16, 16, true), expected);
  }
}, ["coopmat_repack"]);

kernelTest("coopmat_repack() puts two matrices in turns", (backend) => {
  const { weights: map } = readMap(knownAnswer());
  for (const [n, k, bits, group] of [[64, 96, 4, 32], [64, 128, 8, 64]]) {
    const both = [0, 1].map(() => quantized(n, k, bits, group));
    const found = interleave(backend, both[0], both[1], map!);
    const single = both.map((w) => repack(backend, w, map!, float16));
    for (const part of ["codes", "scales_biases"] as const) {
      const each = found[part].length / (2 * n / 16);
      for (let block = 0; block < 2 * n / 16; block++) {
        const at = (block >> 1) * each;
        const expected = single[block % 2][part].subarray(at, at + each);
        assertEquals(found[part].subarray(block * each, (block + 1) * each), expected, `${part} of block ${block}`);
      }
    }
  }
}, ["coopmat_repack"]);

// ---- rows to float16, sums of splits ----------------------------------------------------------------------------------

kernelTest("half_rows() keeps values that float16 alone could not hold", (backend) => {
  for (const dtype of [float32, bfloat16]) {
    for (const [rows, cols, scale] of [[1, 8, 1], [16, 64, 1e20], [37, 40, 1e-20], [50, 8, 0]]) {
      const x = unpack(dtype, pack(dtype, random(rows * cols, scale)));
      const out = new Uint16Array(rows * cols);
      const powers = new Float32Array(Math.ceil(rows / 16));
      runKernel(backend, "half_rows", {
        spec: { THREADS, DTYPE_X: dtype.code, BLOCK: 16, TERMS: 1, DTYPE_OUT: float16.code },
        push: { rows, cols },
        buffers: { x: pack(dtype, x), out, powers },
        grid: [2, Math.ceil(rows / 32), 1],
      });
      const halves = unpack(float16, out as never).map((v, i) => v * powers[Math.floor(i / cols / 16)]);
      assertClose(halves, x, 1e-6, `${dtype.name} ${rows} x ${cols} of ${scale}`);
      assert(powers.every((p) => Number.isInteger(Math.log2(p))), "powers of two");
    }
  }
}, ["half_rows"]);

kernelTest("half_rows() takes floats apart into terms that add up to them", (backend) => {
  const most = 3.4028234663852886e38;
  for (const [dtype, terms, digits] of [[float16, 2, 2 ** -21], [bfloat16, 3, 0]] as const) {
    for (const [rows, cols] of [[1, 8], [37, 40], [5, 520]]) {
      // Neighbouring rows lie far apart, and so do the numbers of a row, within what products of float32 tell from 0.
      const x = Float32Array.from(
        random(rows * cols, 1),
        (v, i) => v * 10 ** (Math.floor(i / cols) % 7 * 9 - 27) * 10 ** -(i % 4),
      );
      if (rows > 1) x.set([most, -most], 0);
      if (rows > 1) x.set([Infinity, -Infinity, NaN], cols);
      const out = new Uint16Array(terms * rows * cols);
      const powers = new Float32Array(rows);
      runKernel(backend, "half_rows", {
        spec: { THREADS, DTYPE_X: float32.code, BLOCK: 1, TERMS: terms, DTYPE_OUT: dtype.code },
        push: { rows, cols },
        buffers: { x, out, ...(dtype === float16 ? { powers } : {}) },
        grid: [2, Math.ceil(rows / 2), 1],
      });
      const parts = unpack(dtype, out as never);
      x.forEach((v, i) => {
        const row = Math.floor(i / cols);
        const power = dtype === float16 ? powers[row] : 1;
        const sum = Array.from({ length: terms }, (_, t) => parts[t * rows * cols + i] * power).reduce((a, b) => a + b);
        const what = `${dtype.name} ${rows} x ${cols}: ${sum} for ${v}`;
        if (!Number.isFinite(v)) return assert(Object.is(sum, v), what);
        if (rows > 1 && row === 1) return; // beside infinity
        const largest = x.subarray(row * cols, (row + 1) * cols).reduce((m, y) => Math.max(m, Math.abs(y)), 0);
        assert(Math.abs(sum - v) <= digits * (Math.abs(v) + 2 ** -16 * largest), what);
      });
    }
  }
}, ["half_rows"]);

kernelTest("sum_splits() adds the parts", (backend) => {
  for (const dtype of [float32, float16, bfloat16]) {
    for (const [count, splits, columns] of [[1, 2, 1], [1000, 3, 8], [4096, 4, 512], [1003, 3, 17]]) {
      for (const scaled of [false, true]) {
        const parts = Float32Array.from(random(count * splits));
        const out = pack(dtype, new Array(count).fill(0));
        const powers = Float32Array.from({ length: Math.ceil(count / columns) }, (_, row) => 2 ** (row % 5 - 2));
        runKernel(backend, "sum_splits", {
          spec: { THREADS, SPLITS: splits, DTYPE_OUT: dtype.code },
          push: { count, columns },
          buffers: { parts, out, ...(scaled ? { powers } : {}) },
          items: Math.ceil(count / 4),
        });
        const sum = (i: number): number =>
          Array.from({ length: splits }, (_, s) => parts[s * count + i]).reduce((a, b) => a + b) *
          (scaled ? powers[Math.floor(i / columns)] : 1);
        assertClose(
          unpack(dtype, out),
          Array.from({ length: count }, (_, i) => sum(i)),
          1e-5,
          `${dtype.name} ${count}`,
        );
      }
    }
  }
}, ["sum_splits"]);

// ---- prepared layouts -----------------------------------------------------------------------------------------------

/** Twice the sources in a row, told apart by key. */
function doubled(key: string, made: { count: number }): Layout {
  return {
    key,
    results: [{ shape: [8], dtype: float32 }],
    emit(l, [x], [out], upload) {
      made.count++;
      l.copy(x, { ...out, shape: [4], strides: [1] });
      l.copy(upload(Uint32Array.of(1, 2, 3, 4), uint32), {
        ...out,
        dtype: uint32,
        shape: [4],
        strides: [1],
        offset: 4,
      });
    },
  };
}

kernelTest("prepare() makes a layout once and drops it with its source", (backend) => {
  const active = backend.memory().active;
  const source = new Storage(backend, 16);
  backend.write(source.buffer, 0, new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer));
  const made = { count: 0 };
  const ask = (key: string): { l: Lowering; values: readonly Value[] | undefined } => {
    const l = new Lowering(backend, () => false, false);
    const x: Value = {
      slot: l.storageSlot(source),
      offset: 0,
      strides: contiguousStrides([4]),
      shape: [4],
      dtype: float32,
    };
    const values = prepare(l, [x], doubled(key, made));
    runPrepared(l);
    return { l, values };
  };
  const read = ({ l, values }: ReturnType<typeof ask>): { storage: Storage; numbers: number[] } => {
    const slot = l.slots[values![0].slot];
    assert(slot.kind === "storage");
    const bytes = new Uint8Array(32);
    backend.read(slot.storage.buffer, 0, bytes);
    return {
      storage: slot.storage,
      numbers: [...new Float32Array(bytes.buffer, 0, 4), ...new Uint32Array(bytes.buffer, 16)],
    };
  };
  const first = read(ask("a"));
  assertEquals(first.numbers, [1, 2, 3, 4, 1, 2, 3, 4]);
  assertEquals(read(ask("a")).storage === first.storage, true, "made once");
  assertEquals(read(ask("b")).storage === first.storage, false, "each key has its own");
  assertEquals(made.count, 2);

  backend.write(source.buffer, 0, new Uint8Array(Float32Array.of(5, 6, 7, 8).buffer));
  source.changed();
  assertEquals(first.storage.refs, 0, "dropped with the old content");
  assertEquals(read(ask("a")).numbers.slice(0, 4), [5, 6, 7, 8]);
  source.release();
  assertEquals(backend.memory().active, active, "freed with the source");
});

kernelTest("prepare() refuses intermediates and what would not fit", (backend) => {
  const l = new Lowering(backend, () => false, false);
  const made = { count: 0 };
  assertEquals(prepare(l, [l.temporary([4], float32)], doubled("a", made)), undefined);
  const source = new Storage(backend, 16);
  const x: Value = { slot: l.storageSlot(source), offset: 0, strides: [1], shape: [4], dtype: float32 };
  assertEquals(prepare(l, [{ ...x, strides: [0] }], doubled("a", made)), undefined);
  const huge: Layout = { ...doubled("a", made), results: [{ shape: [backend.memory().total / 2], dtype: float32 }] };
  assertEquals(prepare(l, [x], huge), undefined);
  assertEquals(made.count, 0);
  source.release();
});

kernelTest("the layouts of a lowering take their room one after another, and the device is asked once", (backend) => {
  const { memory } = backend;
  let asked = 0;
  backend.memory = () => {
    asked++;
    return { ...memory.call(backend), available: 100 };
  };
  const source = new Storage(backend, 16);
  try {
    const l = new Lowering(backend, () => false, false);
    const x: Value = { slot: l.storageSlot(source), offset: 0, strides: [1], shape: [4], dtype: float32 };
    const made = ["a", "b", "c"].map((key) => prepare(l, [x], doubled(key, { count: 0 })) !== undefined);
    runPrepared(l);
    assertEquals([made, asked], [[true, true, false], 1]); // 32 bytes each, where twice as many are free
  } finally {
    backend.memory = memory;
    source.release();
  }
});
