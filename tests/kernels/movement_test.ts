/**
 * The kernels that move elements (copy, arange, gather, scatter) at Plan level, against plain loops.
 */

import { assertEquals } from "@std/assert";
import {
  DTYPE_BF16,
  DTYPE_BOOL,
  DTYPE_F16,
  DTYPE_F32,
  DTYPE_I16,
  DTYPE_I32,
  DTYPE_I8,
  DTYPE_U16,
  DTYPE_U32,
  DTYPE_U8,
  OP_ASSIGN,
  OP_MAX,
  OP_MIN,
  OP_PROD,
  OP_SUM,
} from "../../src/backend/kernels.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { unravel } from "../support/oracles/oracle.ts";

type Bits = Uint8Array | Uint16Array | Uint32Array;
const WIDTHS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array } as const;

/** Different values in every element, as far as the width allows. */
function numbered(bytes: 1 | 2 | 4, length: number): Bits {
  return new WIDTHS[bytes](length).map((_, i) => (i * 2654435761) >>> (32 - 8 * bytes));
}

kernelTest("copy permutes, reverses, repeats and interleaves", (backend) => {
  // Sizes of a contiguous shape; how in and out walk it.
  const shapes = [[2, 3, 4, 5, 6], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1000], [1, 1, 1, 65, 33], [1, 2, 1, 3, 17], [
    1,
    1,
    0,
    2,
    3,
  ]];
  for (const shape of shapes) {
    const count = shape.reduce((n, d) => n * d, 1);
    const dense: number[] = shape.map((_, d) => shape.slice(d + 1).reduce((n, s) => n * s, 1));
    const transposed: number[] = shape.map((_, d) => shape.slice(0, d).reduce((n, s) => n * s, 1));
    const walks: { inStrides: number[]; inStart: number; outStrides: number[] }[] = [
      { inStrides: dense, inStart: 0, outStrides: dense },
      { inStrides: transposed, inStart: 0, outStrides: dense },
      { inStrides: dense, inStart: 0, outStrides: transposed },
      { inStrides: dense.map((s) => -s), inStart: Math.max(0, count - 1), outStrides: dense },
      { inStrides: [0, 0, 0, 0, 1], inStart: 0, outStrides: dense },
      { inStrides: dense.map((s) => s * 2), inStart: 1, outStrides: dense.map((s) => s * 3) },
    ];
    for (const bytes of [1, 2, 4] as const) {
      for (const { inStrides, inStart, outStrides } of walks) {
        const input = numbered(bytes, Math.max(1, count) * 2);
        const out = numbered(bytes, Math.max(1, count) * 3).fill(9);
        const expected = out.slice();
        for (let i = 0; i < count; i++) {
          const at = unravel(shape, i);
          const place = (strides: number[]): number => at.reduce((n, x, d) => n + x * strides[d], 0);
          expected[place(outStrides)] = input[inStart + place(inStrides)];
        }
        runKernel(backend, "copy", {
          spec: { ELEMENT_BYTES: bytes },
          push: { count, shape, in_strides: inStrides, out_strides: outStrides },
          buffers: { in: input, out },
          offsets: { in: inStart * bytes },
          items: count,
        });
        assertEquals(out, expected, `${bytes} bytes, shape ${shape}, strides ${inStrides} to ${outStrides}`);
      }
    }
  }
});

kernelTest("copy moves 16 bytes at once, to places of that size", (backend) => {
  const shape = [1, 1, 3, 5, 7];
  const count = 105;
  const input = numbered(4, 4 * 2 * count);
  // A transposed walk with gaps, and rows that are contiguous in input and output.
  for (const [inStrides, outStrides] of [[[0, 0, 2, 6, 30], [0, 0, 35, 7, 1]], [[0, 0, 70, 14, 1], [0, 0, 35, 7, 1]]]) {
    for (const start of [0, 1]) {
      const out = new Uint32Array(4 * (count + 1)).fill(9);
      const expected = out.slice();
      for (let i = 0; i < count; i++) {
        const at = unravel(shape, i);
        const place = (strides: number[]): number => 4 * at.reduce((n, x, d) => n + x * strides[d], 0);
        expected.set(input.subarray(place(inStrides), place(inStrides) + 4), place(outStrides) + 4 * start);
      }
      runKernel(backend, "copy", {
        spec: { ELEMENT_BYTES: 16, DYNAMIC: 1 },
        push: {
          count,
          shape,
          in_strides: inStrides,
          out_strides: outStrides,
          start_strides: [1],
          start_limits: [1],
          starts: 1,
        },
        buffers: { in: input, start: Int32Array.of(start), out },
        items: count,
      });
      assertEquals(out, expected, `strides ${inStrides} from ${start}`);
    }
  }
});

kernelTest("copy_transposed turns tiles around, whole ones and their rests", (backend) => {
  // (shape, strides of the input): the fourth dimension is the one whose elements are neighbours there.
  const cases = [
    { shape: [1, 1, 1, 64, 64], inStrides: [0, 0, 0, 1, 64] },
    { shape: [1, 1, 1, 65, 131], inStrides: [0, 0, 0, 1, 65] },
    { shape: [2, 1, 3, 17, 16], inStrides: [900, 0, 290, 1, 17] },
    { shape: [1, 2, 2, 40, 70], inStrides: [0, 2, 1, 4, 160] }, // no neighbours at all
    { shape: [1, 1, 2, 33, 1], inStrides: [0, 0, 33, 1, 0] },
    { shape: [1, 1, 0, 33, 40], inStrides: [0, 0, 33, 1, 33] },
  ];
  for (const { shape, inStrides } of cases) {
    const count = shape.reduce((n, d) => n * d, 1);
    const outStrides = [0, 1, 2, 3].map((d) => shape.slice(d + 1).reduce((n, s) => n * s, 1)).concat(1);
    for (const bytes of [1, 2, 4, 8] as const) {
      const words = bytes === 8 ? 2 : 1;
      const width = bytes === 8 ? 4 : bytes;
      for (const tile of bytes === 8 ? [16, 32] : [32, 64]) {
        const input = numbered(width, words * 4 * Math.max(1, count));
        const out = numbered(width, words * Math.max(1, count)).fill(9);
        const expected = out.slice();
        for (let i = 0; i < count; i++) {
          const from = unravel(shape, i).reduce((n, x, d) => n + x * inStrides[d], 0);
          for (let w = 0; w < words; w++) expected[words * i + w] = input[words * from + w];
        }
        const [down, across] = shape.slice(3).map((n) => Math.ceil(n / tile));
        runKernel(backend, "copy_transposed", {
          spec: { ELEMENT_BYTES: bytes, TILE: tile },
          push: { count, shape, in_strides: inStrides, out_strides: outStrides },
          buffers: { in: input, out },
          grid: Math.max(1, shape[0] * shape[1] * shape[2] * down * across),
        });
        assertEquals(out, expected, `${bytes} bytes, tile ${tile}, shape ${shape}, strides ${inStrides}`);
      }
    }
  }
}, ["copy_transposed"]);

kernelTest("copy shifts each of several parts by starts of its own", (backend) => {
  // Three rows of (2, 3) into rows of (4, 5), and out of them.
  const blocks = numbered(4, 18);
  const arrays = numbered(4, 60);
  const starts = [[0, 0], [2, 1], [9, -3]];
  const common = {
    count: 18,
    shape: [1, 1, 3, 2, 3],
    start_strides: [5, 1],
    start_limits: [2, 2],
    starts: 2,
    start_rows: 3,
  };
  const [written, expectedWritten] = [arrays.slice(), arrays.slice()];
  const [read, expectedRead] = [new Uint32Array(18), new Uint32Array(18)];
  for (let at = 0; at < 18; at++) {
    const [row, i, j] = [Math.floor(at / 6), Math.floor(at / 3) % 2, at % 3];
    const [down, right] = starts[row].map((start) => Math.min(2, Math.max(0, start)));
    const place = row * 20 + (down + i) * 5 + right + j;
    expectedWritten[place] = blocks[at];
    expectedRead[at] = arrays[place];
  }
  const start = Int32Array.from(starts.flat());
  const [inside, outside] = [[0, 0, 6, 3, 1], [0, 0, 20, 5, 1]];
  runKernel(backend, "copy", {
    spec: { ELEMENT_BYTES: 4, DYNAMIC: 1 },
    push: { ...common, in_strides: inside, out_strides: outside },
    buffers: { in: blocks, start, out: written },
    items: 18,
  });
  assertEquals(written, expectedWritten);
  runKernel(backend, "copy", {
    spec: { ELEMENT_BYTES: 4, DYNAMIC: 2 },
    push: { ...common, in_strides: outside, out_strides: inside },
    buffers: { in: arrays, start, out: read },
    items: 18,
  });
  assertEquals(read, expectedRead);
  // One number of each row, so that the rows are the last dimension.
  const column = Uint32Array.of(7, 8, 9), ring = new Uint32Array(12), expectedRing = ring.slice();
  [1, 3, 2].forEach((at, row) => expectedRing[row * 4 + at] = column[row]);
  runKernel(backend, "copy", {
    spec: { ELEMENT_BYTES: 4, DYNAMIC: 1 },
    push: {
      count: 3,
      shape: [1, 1, 1, 1, 3],
      in_strides: [0, 0, 0, 0, 1],
      out_strides: [0, 0, 0, 0, 4],
      start_strides: [1],
      start_limits: [3],
      starts: 1,
      start_rows: 3,
    },
    buffers: { in: column, start: Int32Array.of(1, 3, 2), out: ring },
    items: 3,
  });
  assertEquals(ring, expectedRing);
});

kernelTest("copy shifts by start offsets and clamps them", (backend) => {
  // A (2, 3) block into a (6, 8) array and out of it.
  const block = numbered(2, 6);
  const array = numbered(2, 48);
  for (const start of [[0, 0], [1, 2], [4, 5], [9, 99], [-1, -7]]) {
    const [row, col] = [Math.min(4, Math.max(0, start[0])), Math.min(5, Math.max(0, start[1]))];
    const common = { count: 6, shape: [1, 1, 1, 2, 3], start_strides: [8, 1], start_limits: [4, 5], starts: 2 };
    const written = array.slice();
    const expectedWritten = array.slice();
    const expectedRead = block.slice();
    for (let i = 0; i < 2; i++) {
      for (let j = 0; j < 3; j++) {
        expectedWritten[(row + i) * 8 + col + j] = block[i * 3 + j];
        expectedRead[i * 3 + j] = array[(row + i) * 8 + col + j];
      }
    }
    runKernel(backend, "copy", {
      spec: { ELEMENT_BYTES: 2, DYNAMIC: 1 },
      push: { ...common, in_strides: [0, 0, 0, 3, 1], out_strides: [0, 0, 0, 8, 1] },
      buffers: { in: block, start: Int32Array.from(start), out: written },
      items: 6,
    });
    assertEquals(written, expectedWritten, `write at ${start}`);
    const read = new Uint16Array(6);
    runKernel(backend, "copy", {
      spec: { ELEMENT_BYTES: 2, DYNAMIC: 2 },
      push: { ...common, in_strides: [0, 0, 0, 8, 1], out_strides: [0, 0, 0, 3, 1] },
      buffers: { in: array, start: Int32Array.from(start), out: read },
      items: 6,
    });
    assertEquals(read, expectedRead, `read at ${start}`);
  }
});

kernelTest("arange counts and fills in every dtype", (backend) => {
  const bits = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0];
  const cases: [number, ArrayBufferView & { length: number }, number, number, (i: number) => number][] = [
    [
      DTYPE_F32,
      new Float32Array(1001),
      bits(-3.5),
      bits(0.1),
      (i) => Math.fround(-3.5 + Math.fround(i * Math.fround(0.1))),
    ],
    [DTYPE_F32, new Float32Array(5), bits(Infinity), 0, () => Infinity],
    [DTYPE_F16, new Float16Array(700), bits(1), bits(0.5), (i) => 1 + i * 0.5],
    [DTYPE_BF16, new Uint16Array(9), bits(1), bits(1), (i) => bits(1 + i) >>> 16],
    [DTYPE_I32, new Int32Array(7), -3, 2, (i) => -3 + 2 * i],
    [DTYPE_I16, new Int16Array(7), 5, -4, (i) => 5 - 4 * i],
    [DTYPE_I8, new Int8Array(7), 100, 10, (i) => (100 + 10 * i) << 24 >> 24],
    [DTYPE_U32, new Uint32Array(7), 4294967290, 2, (i) => (4294967290 + 2 * i) >>> 0],
    [DTYPE_U16, new Uint16Array(7), 65530, 3, (i) => (65530 + 3 * i) & 0xffff],
    [DTYPE_U8, new Uint8Array(7), 7, 0, () => 7],
    [DTYPE_BOOL, new Uint8Array(7), 5, 0, () => 1],
    [DTYPE_F32, new Float32Array(0), 0, 0, () => 0],
  ];
  for (const [dtype, out, start, step, wanted] of cases) {
    runKernel(backend, "arange", {
      spec: { DTYPE_OUT: dtype },
      push: { count: out.length, start, step },
      buffers: { out },
      items: out.length,
    });
    const expected = Array.from({ length: out.length }, (_, i) => wanted(i));
    assertEquals(Array.from(out as unknown as ArrayLike<number>), expected, `dtype ${dtype}`);
  }
});

/** The element of an axis that an index means. */
function resolve(index: number, axis: number): number {
  return Math.min(axis - 1, Math.max(0, index < 0 ? index + axis : index));
}

const INDEX_ARRAYS: [
  number,
  (n: number[]) => Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array,
][] = [
  [DTYPE_I32, (n) => Int32Array.from(n)],
  [DTYPE_U32, (n) => Uint32Array.from(n)],
  [DTYPE_I8, (n) => Int8Array.from(n)],
  [DTYPE_U8, (n) => Uint8Array.from(n)],
  [DTYPE_I16, (n) => Int16Array.from(n)],
  [DTYPE_U16, (n) => Uint16Array.from(n)],
];
// (outer, axis, inner, n)
const GATHERS = [[1, 1, 1, 1], [1, 7, 1, 300], [3, 5, 4, 9], [2, 4, 33, 3], [4, 6, 1, 5], [2, 3, 4, 0], [0, 3, 4, 2]];

kernelTest("gather takes rows and single elements, clamps and counts from the end", (backend) => {
  for (const [outer, axis, inner, n] of GATHERS) {
    for (const along of [0, 1]) {
      for (const [dtype, make] of INDEX_ARRAYS) {
        for (const bytes of [1, 2, 4] as const) {
          const input = numbered(bytes, Math.max(1, outer * axis * inner));
          const count = outer * n * inner;
          const indices = make(
            Array.from({ length: Math.max(1, along ? count : n) }, (_, i) => (i * 7) % (axis + 4) - 2),
          );
          const out = new WIDTHS[bytes](count);
          const expected = out.map((_, i) => {
            const k = along ? i : Math.floor(i / inner) % n;
            const o = Math.floor(i / (n * inner));
            return input[(o * axis + resolve(indices[k], axis)) * inner + i % inner];
          });
          runKernel(backend, "gather", {
            spec: { ELEMENT_BYTES: bytes, DTYPE_INDEX: dtype, ALONG: along },
            push: { outer, axis, inner, n },
            buffers: { in: input, indices, out },
            items: count,
          });
          assertEquals(out, expected, `(${outer}, ${axis}, ${inner}) by ${n}, along ${along}, index dtype ${dtype}`);
        }
      }
    }
  }
});

kernelTest("gather takes four elements at once, and rows of 16 bytes", (backend) => {
  for (const [dtype, make] of INDEX_ARRAYS.slice(0, 2)) {
    for (const n of [1, 4, 7, 300]) {
      const input = numbered(4, 50) as Uint32Array;
      const indices = make(Array.from({ length: n }, (_, i) => (i * 7) % 54 - 2));
      const out = new Uint32Array(n);
      runKernel(backend, "gather", {
        spec: { ELEMENT_BYTES: 4, DTYPE_INDEX: dtype, FOURS: 1 },
        push: { outer: 1, axis: 50, inner: 1, n },
        buffers: { in: input, indices, out },
        items: n,
      });
      assertEquals(out, out.map((_, i) => input[resolve(indices[i], 50)]), `${n} of index dtype ${dtype}`);
    }
  }
  if (backend.limits.subgroup === 1) return; // the CPU copies rows as they are
  const [outer, axis, inner, n] = [2, 5, 3, 4];
  const input = numbered(4, 4 * outer * axis * inner) as Uint32Array;
  const indices = Int32Array.of(3, -1, 0, 9);
  const out = new Uint32Array(4 * outer * n * inner);
  runKernel(backend, "gather", {
    spec: { ELEMENT_BYTES: 16, DTYPE_INDEX: DTYPE_I32 },
    push: { outer, axis, inner, n },
    buffers: { in: input, indices, out },
    items: outer * n * inner,
  });
  const row = 4 * inner;
  const expected = out.map((_, i) => {
    const [o, k] = [Math.floor(i / row / n), Math.floor(i / row) % n];
    return input[(o * axis + resolve(indices[k], axis)) * row + i % row];
  });
  assertEquals(out, expected, "rows of 16 bytes");
});

kernelTest("scatter combines in the order of the updates", (backend) => {
  const ops: [number, (a: number, b: number) => number][] = [
    [OP_ASSIGN, (_, b) => b],
    [OP_SUM, (a, b) => a + b],
    [OP_PROD, (a, b) => a * b],
    [OP_MIN, Math.min],
    [OP_MAX, Math.max],
  ];
  const arrays = [
    [DTYPE_F32, Float32Array],
    [DTYPE_F16, Float16Array],
    [DTYPE_I32, Int32Array],
    [DTYPE_I8, Int8Array],
    [DTYPE_U32, Uint32Array],
    [DTYPE_U16, Uint16Array],
    [DTYPE_U8, Uint8Array],
  ] as const;
  for (const [outer, axis, inner, n] of GATHERS) {
    for (const along of [0, 1]) {
      for (const [op, combine] of ops) {
        for (const [dtype, Values] of arrays) {
          const count = outer * n * inner;
          const low = dtype === DTYPE_U32 ? 0 : 3; // so that no product leaves the whole numbers of float64
          const out = new Values(outer * axis * inner).map((_: number, i: number) => i % 5 - 2);
          const updates = new Values(Math.max(1, count)).map((_: number, i: number) => i % 7 - low);
          const indices = Int16Array.from(
            { length: Math.max(1, along ? count : n) },
            (_, i) => (i * 5) % (axis + 3) - 1,
          );
          const expected = out.slice();
          for (let o = 0; o < outer; o++) {
            for (let k = 0; k < n; k++) {
              for (let j = 0; j < inner; j++) {
                const from = (o * n + k) * inner + j;
                const to = (o * axis + resolve(indices[along ? from : k], axis)) * inner + j;
                expected[to] = combine(expected[to], updates[from]);
              }
            }
          }
          runKernel(backend, "scatter", {
            spec: { DTYPE: dtype, DTYPE_INDEX: DTYPE_I16, ALONG: along, OP: op },
            push: { outer, axis, inner, n },
            buffers: { updates, indices, out },
            items: outer * inner,
          });
          assertEquals(
            out,
            expected,
            `(${outer}, ${axis}, ${inner}) by ${n}, along ${along}, op ${op}, dtype ${dtype}`,
          );
        }
      }
    }
  }
});

kernelTest("scatter_keys are the places that indices mean", (backend) => {
  for (const [axis, dtype, Keys] of [[7, DTYPE_U16, Uint16Array], [300, DTYPE_U32, Uint32Array]] as const) {
    const indices = Int16Array.from({ length: 333 }, (_, i) => (i * 37) % (2 * axis) - axis - 2);
    const keys = new Keys(indices.length);
    runKernel(backend, "scatter_keys", {
      spec: { DTYPE_INDEX: DTYPE_I16, DTYPE_KEY: dtype },
      push: { outer: 1, axis, inner: 1, n: indices.length },
      buffers: { indices, keys },
      items: indices.length,
    });
    assertEquals(Array.from(keys), Array.from(indices, (index) => resolve(index, axis)), `axis of ${axis}`);
  }
}, ["scatter_keys"]);

kernelTest("scatter_sorted combines equal keys in the order of the updates", (backend) => {
  const ops: [number, (a: number, b: number) => number][] = [
    [OP_ASSIGN, (_, b) => b],
    [OP_SUM, (a, b) => a + b],
    [OP_PROD, (a, b) => a * b],
    [OP_MIN, Math.min],
    [OP_MAX, Math.max],
  ];
  const arrays = [[DTYPE_F32, Float32Array], [DTYPE_F16, Float16Array], [DTYPE_I32, Int32Array], [
    DTYPE_U8,
    Uint8Array,
  ]] as const;
  for (const [outer, axis, inner, n] of [[1, 5, 3, 200], [2, 40, 1, 37], [1, 1, 70, 90], [3, 9, 2, 1]]) {
    for (const [op, combine] of ops) {
      for (const [dtype, Values] of arrays) {
        const out = new Values(outer * axis * inner).map((_: number, i: number) => i % 5 + 1);
        // Factors of 1 but for a few, so that no product leaves the numbers of the dtype.
        const updates = new Values(outer * n * inner).map((_: number, i: number) =>
          op === OP_PROD ? Number(i % 97 === 0) + 1 : i % 7
        );
        const keys = Uint16Array.from({ length: n }, (_, k) => (k * k * 5 + k) % axis);
        const order = Uint32Array.from(keys.keys()).toSorted((a, b) => keys[a] - keys[b]);
        const expected = out.slice();
        for (let i = 0; i < updates.length; i++) {
          const [o, k, j] = [Math.floor(i / inner / n), Math.floor(i / inner) % n, i % inner];
          const to = (o * axis + keys[k]) * inner + j;
          expected[to] = combine(expected[to], updates[i]);
        }
        runKernel(backend, "scatter_sorted", {
          spec: { DTYPE: dtype, DTYPE_KEY: DTYPE_U16, OP: op },
          push: { outer, axis, inner, n },
          buffers: { updates, keys, order, out },
          items: outer * n * inner,
        });
        assertEquals(out, expected, `(${outer}, ${axis}, ${inner}) by ${n}, op ${op}, dtype ${dtype}`);
      }
    }
  }
}, ["scatter_sorted"]);

kernelTest("scatter keeps bool 0 or 1 and lets NaN through min and max", (backend) => {
  const run = (dtype: number, op: number, out: ArrayBufferView, updates: ArrayBufferView, n: number): void =>
    runKernel(backend, "scatter", {
      spec: { DTYPE: dtype, DTYPE_INDEX: DTYPE_U8, OP: op },
      push: { outer: 1, axis: 3, inner: 1, n },
      buffers: { updates, indices: Uint8Array.of(0, 1, 2, 0).subarray(0, n), out },
      items: 1,
    });
  const flags = Uint8Array.of(1, 0, 0);
  run(DTYPE_BOOL, OP_SUM, flags, Uint8Array.of(1, 1, 0, 1), 4);
  assertEquals(Array.from(flags), [1, 1, 0]);
  for (const op of [OP_MIN, OP_MAX]) {
    const values = Float32Array.of(1, NaN, 3);
    run(DTYPE_F32, op, values, Float32Array.of(NaN, 2, 3), 3);
    assertEquals(Array.from(values), [NaN, NaN, 3]);
  }
});
