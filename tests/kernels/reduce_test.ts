/** Kernels reduce and scan on every device, against plain float64 loops. */

import { assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import * as K from "../../src/backend/kernels.ts";
import type { Dtype } from "../../src/graph/dtype.ts";
import * as dtypes from "../../src/graph/dtype.ts";
import { drawCases, drawSome, isDrawn } from "../support/draw_cases.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, bound, pack, random, unpack } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const { bool, uint8, uint16, uint32, int8, int16, int32, float16, bfloat16, float32 } = dtypes;

const logsumexp = (row: number[]): number => {
  const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
  return Number.isFinite(most) ? most + Math.log(row.reduce((a, b) => a + Math.exp(b - most), 0)) : most;
};

/** Position of the value that `beats` all before it; NaN beats every number. */
const argBest = (row: number[], beats: (a: number, b: number) => boolean): number => {
  let best = 0;
  row.forEach((v, i) => {
    if (!Number.isNaN(row[best]) && (Number.isNaN(v) || beats(v, row[best]))) best = i;
  });
  return best;
};

const FOLDS = {
  sum: [K.OP_SUM, (row: number[]) => row.reduce((a, b) => a + b, 0)],
  prod: [K.OP_PROD, (row: number[]) => row.reduce((a, b) => a * b, 1)],
  min: [K.OP_MIN, (row: number[]) => row.reduce((a, b) => Math.min(a, b), Infinity)],
  max: [K.OP_MAX, (row: number[]) => row.reduce((a, b) => Math.max(a, b), -Infinity)],
  all: [K.OP_ALL, (row: number[]) => Number(row.every((v) => v !== 0))],
  any: [K.OP_ANY, (row: number[]) => Number(row.some((v) => v !== 0))],
  argmin: [K.OP_ARGMIN, (row: number[]) => argBest(row, (a, b) => a < b)],
  argmax: [K.OP_ARGMAX, (row: number[]) => argBest(row, (a, b) => a > b)],
  logsumexp: [K.OP_LOGSUMEXP, logsumexp],
} as const satisfies Record<string, readonly [number, (row: number[]) => number]>;
type Fold = keyof typeof FOLDS;

/** The dtype that a fold of `dtype` gives. */
function foldedDtype(fold: Fold, dtype: Dtype): Dtype {
  if (fold === "all" || fold === "any") return bool;
  if (fold === "argmin" || fold === "argmax") return uint32;
  if ((fold !== "sum" && fold !== "prod") || dtype.kind === "float") return dtype;
  return dtype.kind === "uint" ? uint32 : int32;
}

interface Layout {
  readonly outer: readonly [shape: readonly number[], strides: readonly number[]];
  readonly inner: readonly [shape: readonly number[], strides: readonly number[]];
  /** First element. */
  readonly start?: number;
}

/** Runs reduce over a layout of `values`; the oracle reads the same elements one by one. */
function checkReduce(backend: Backend, fold: Fold, dtype: Dtype, values: number[], layout: Layout, threads = 64): void {
  const [code, f] = FOLDS[fold];
  const [outerShape, outerStrides] = [[1, 1, 1, ...layout.outer[0]].slice(-3), [0, 0, 0, ...layout.outer[1]].slice(-3)];
  const [innerShape, innerStrides] = [[1, 1, ...layout.inner[0]].slice(-2), [0, 0, ...layout.inner[1]].slice(-2)];
  const start = layout.start ?? 0;
  const groups: number[][] = [];
  for (let a = 0; a < outerShape[0]; a++) {
    for (let b = 0; b < outerShape[1]; b++) {
      for (let c = 0; c < outerShape[2]; c++) {
        const base = start + a * outerStrides[0] + b * outerStrides[1] + c * outerStrides[2];
        const row: number[] = [];
        for (let y = 0; y < innerShape[0]; y++) {
          for (let x = 0; x < innerShape[1]; x++) row.push(values[base + y * innerStrides[0] + x * innerStrides[1]]);
        }
        groups.push(row);
      }
    }
  }
  const outDtype = foldedDtype(fold, dtype);
  const out = pack(outDtype, new Float64Array(groups.length));
  runKernel(backend, "reduce", {
    spec: { THREADS: threads, DTYPE_IN: dtype.code, DTYPE_OUT: outDtype.code, OP: code },
    push: {
      rows: groups.length,
      cols: innerShape[0] * innerShape[1],
      outer_shape: outerShape,
      outer_strides: outerStrides,
      inner_shape: innerShape,
      inner_strides: innerStrides,
    },
    buffers: { in: pack(dtype, values.length ? values : [0]), out },
    offsets: { in: start * dtype.bytes },
    grid: groups.length,
  });
  const what = `reduce ${fold} of ${dtype.name} ${JSON.stringify(layout)} on ${backend.name}`;
  const actual = unpack(outDtype, out);
  // The exact value, as the output dtype holds it: integers wrap, 16-bit floats round.
  const exact = groups.map(f);
  const expected = outDtype === float32 ? exact : unpack(outDtype, pack(outDtype, exact));
  if (outDtype.kind === "float") assertClose(actual, expected, bound(outDtype), what);
  else assertEquals(actual, expected, what);
}

const matrix = (rows: number, cols: number): Layout => ({ outer: [[rows], [cols]], inner: [[cols], [1]] });

/** Every pair of two lists: on software Vulkan each is a pipeline, so a draw has every item of both lists and few pairs. */
function drawPairs<A, B extends Dtype>(
  { name }: Backend,
  what: string,
  first: readonly A[],
  second: readonly B[],
): readonly (readonly [A, B])[] {
  const pairs = first.flatMap((a) => second.map((b) => [a, b] as const));
  return drawCases(name, what, pairs, ([a, b]) => [String(a), b.name]);
}

const DTYPES = [bool, uint8, uint16, uint32, int8, int16, int32, float16, bfloat16, float32] as const;

kernelTest("reduce folds rows of every dtype", (backend) => {
  for (const [fold, dtype] of drawPairs(backend, "reduce", Object.keys(FOLDS) as Fold[], DTYPES)) {
    if (fold === "logsumexp" && dtype.kind !== "float") continue;
    for (const [rows, cols] of [[1, 1], [3, 7], [2, 257], [1, 1500]]) {
      if (fold === "prod" && cols > 7) continue; // no exact oracle
      checkReduce(backend, fold, dtype, random(dtype, rows * cols, rows + cols), matrix(rows, cols));
    }
  }
});

kernelTest("reduce reads strided, broadcast and reversed views", (backend) => {
  const values = random(float32, 24 * 35, 5);
  const layouts: Layout[] = [
    { outer: [[35], [1]], inner: [[24], [35]] }, // columns
    { outer: [[2, 3], [420, 1]], inner: [[4, 5], [105, 3]] },
    { outer: [[4, 1, 3], [24, 0, 8]], inner: [[2, 4], [4, 1]] },
    { outer: [[3], [1]], inner: [[7, 1], [35, 99]] }, // the stride of a dimension of size 1 says nothing
    { outer: [[3], [0]], inner: [[50], [0]] }, // broadcast
    { outer: [[4], [-35]], inner: [[35], [-1]], start: 34 + 3 * 35 },
  ];
  for (const layout of layouts) {
    for (const fold of ["sum", "max", "argmin", "logsumexp"] as const) {
      checkReduce(backend, fold, float32, values, layout);
    }
  }
});

kernelTest("reduce finds the first of the largest and smallest in long rows", (backend) => {
  const dtypes = [float32, bfloat16, float16, int32, uint16];
  for (const dtype of drawSome(backend.name, "long rows", dtypes, 2)) {
    for (const cols of [5000, 5002]) {
      const values = random(dtype, 2 * cols, cols);
      for (const at of [4321, 4995, cols - 1, cols + 4096, cols + 4099]) values[at] = dtype === uint16 ? 65000 : 30000; // ties
      for (const at of [7, 4097, cols + 3, cols + 8]) values[at] = dtype === uint16 ? 0 : -30000;
      for (const fold of ["argmin", "argmax"] as const) {
        for (const threads of [64, 256]) checkReduce(backend, fold, dtype, values, matrix(2, cols), threads);
      }
      const nan = dtype.kind === "float" ? [NaN] : [];
      values.splice(4500, nan.length, ...nan);
      checkReduce(backend, "argmax", dtype, values, matrix(1, cols), 1024);
    }
  }
});

kernelTest("reduce does not care about the workgroup size", (backend) => {
  const values = random(float32, 3 * 1000, 6);
  const all = ([32, 96, 256, 1024] as const).flatMap((threads) =>
    (["sum", "min", "argmax"] as const).map((fold) => ({ threads, fold }))
  );
  const drawn = drawCases(backend.name, "workgroups", all, ({ threads, fold }) => [`${threads}`, fold]);
  for (const { threads, fold } of drawn) checkReduce(backend, fold, float32, values, matrix(3, 1000), threads);
});

kernelTest("reduce folds rows of a grid folded in y", (backend) => {
  const values = random(float32, 12 * 5, 7);
  const out = new Float32Array(12);
  runKernel(backend, "reduce", {
    spec: { DTYPE_IN: float32.code, DTYPE_OUT: float32.code, OP: K.OP_SUM },
    push: {
      rows: 12,
      cols: 5,
      outer_shape: [1, 1, 12],
      outer_strides: [0, 0, 5],
      inner_shape: [1, 5],
      inner_strides: [0, 1],
    },
    buffers: { in: Float32Array.from(values), out },
    grid: [5, 3, 1],
  });
  assertClose(out, Array.from({ length: 12 }, (_, r) => FOLDS.sum[1](values.slice(5 * r, 5 * r + 5))), 1e-7, "sum");
});

kernelTest("reduce gives the identity of an empty axis", (backend) => {
  const empty: Layout = { outer: [[2], [0]], inner: [[0], [1]] };
  for (const fold of ["sum", "prod", "min", "max", "all", "any", "logsumexp"] as const) {
    checkReduce(backend, fold, float32, [], empty);
  }
  for (
    const [fold, dtype, expected] of [["min", int8, 127], ["max", int16, -32768], ["min", uint16, 65535], [
      "max",
      uint32,
      0,
    ], ["min", bool, 1]] as const
  ) {
    const out = pack(dtype, [0, 0]);
    runKernel(backend, "reduce", {
      spec: { DTYPE_IN: dtype.code, DTYPE_OUT: dtype.code, OP: FOLDS[fold][0] },
      push: { rows: 2, cols: 0, outer_shape: [1, 1, 2], inner_shape: [1, 0] },
      buffers: { in: pack(dtype, [0]), out },
      grid: 2,
    });
    assertEquals(unpack(dtype, out), [expected, expected], `${fold} of ${dtype.name}`);
  }
});

kernelTest("reduce carries NaN, infinities and signed zeros as MLX does", (backend) => {
  const [nan, inf] = [NaN, Infinity];
  const rows = [
    [1, nan, 3, nan, -2],
    [nan, nan, nan, nan, nan],
    [-inf, -inf, -inf, -inf, -inf],
    [inf, 1, -inf, inf, 2],
    [0, -0, 0, -0, 0],
    [2, 5, 5, 2, 5],
  ];
  // Rows whose NaN are in each place of a vector of four.
  const long = new Array(4 * 1200).fill(1);
  for (const row of [0, 1, 2, 3]) long[1200 * row + 700 + row] = long[1200 * row + 900 + row] = nan;
  const folds = ["min", "max", "argmin", "argmax", "logsumexp", "all"] as const;
  for (const [fold, dtype] of drawPairs(backend, "NaN", folds, [float32, float16, bfloat16])) {
    checkReduce(backend, fold, dtype, rows.flat(), matrix(6, 5));
    if (dtype === float32) checkReduce(backend, fold, float32, long, matrix(4, 1200));
  }
});

kernelTest("reduce sums a million float32", (backend) => {
  for (const make of [() => 0.1, generator(8)]) {
    const values = Array.from({ length: 1_000_000 }, () => Math.fround(make()));
    checkReduce(backend, "sum", float32, values, matrix(1, values.length), 256);
    checkReduce(backend, "logsumexp", float32, values, matrix(1, values.length), 256);
    checkReduce(backend, "argmax", float32, values, matrix(1, values.length), 256);
  }
});

kernelTest("reduce finds extremes of parts, then of their pairs", (backend) => {
  const [rows, parts, part] = [2, 5, 36];
  for (
    const [fold, dtype] of [["argmax", float32], ["argmin", int8], ["argmax", bool], ["argmin", bfloat16]] as const
  ) {
    const values = random(dtype, rows * parts * part, 31);
    if (dtype === float32) values[3 * part + 7] = values[parts * part + 4 * part] = NaN; // one in each row
    const pairs = new Uint32Array(2 * rows * parts);
    const spec = { DTYPE_IN: dtype.code, DTYPE_OUT: uint32.code, OP: FOLDS[fold][0] };
    runKernel(backend, "reduce", {
      spec: { ...spec, PAIRS: K.PAIRS_WRITTEN },
      push: {
        rows: rows * parts,
        cols: part,
        outer_shape: [1, parts, rows],
        outer_strides: [0, part, parts * part],
        inner_shape: [1, part],
        inner_strides: [0, 1],
      },
      buffers: { in: pack(dtype, values), out: pairs },
      grid: rows * parts,
    });
    const out = new Uint32Array(rows);
    runKernel(backend, "reduce", {
      spec: { ...spec, PAIRS: K.PAIRS_READ },
      push: {
        rows,
        cols: parts,
        outer_shape: [1, 1, rows],
        outer_strides: [0, 0, 1],
        inner_shape: [1, parts],
        inner_strides: [0, rows],
        part,
      },
      buffers: { in: pairs, out },
      grid: rows,
    });
    const expected = [0, 1].map((r) => FOLDS[fold][1](values.slice(r * parts * part, (r + 1) * parts * part)));
    assertEquals([...out], expected, `${fold} of ${dtype.name} on ${backend.name}`);
  }
}, ["reduce_columns"]); // on GPUs

kernelTest("reduce_columns folds rows, in parts and from any layout", (backend) => {
  const layouts = [
    // batches, rows, columns, parts, LANES, THREADS, first element
    [1, 1, 1, 1, 1, 32, 0],
    [1, 7, 4, 1, 1, 32, 0],
    [2, 33, 9, 1, 2, 64, 0],
    [1, 130, 129, 3, 32, 64, 0],
    [3, 64, 128, 4, 32, 256, 0],
    [1, 500, 3, 5, 1, 64, 0],
    [2, 65, 260, 2, 16, 64, 1], // misaligned
    [1, 0, 5, 1, 2, 64, 0],
  ] as const;
  const cases = [["sum", float32], ["max", bfloat16], ["min", int8], ["all", float16], ["any", bool], [
    "sum",
    uint16,
  ]] as const;
  for (const layout of layouts) {
    const [batches, rows, columns, parts, lanes, threads, start] = layout;
    for (const [fold, dtype] of drawSome(backend.name, `columns ${layout}`, cases, 1)) {
      const [rowStride, batchStride] = [columns + 4 * (columns % 2), rows * (columns + 4) + 8];
      const values = random(dtype, start + batches * batchStride + 4, rows);
      const outDtype = foldedDtype(fold, dtype);
      const out = pack(outDtype, new Float64Array(parts * batches * columns));
      runKernel(backend, "reduce_columns", {
        spec: { THREADS: threads, DTYPE_IN: dtype.code, DTYPE_OUT: outDtype.code, OP: FOLDS[fold][0], LANES: lanes },
        push: { batches, rows, columns, parts, batch_stride: batchStride, row_stride: rowStride },
        buffers: { in: pack(dtype, values), out },
        offsets: { in: start * dtype.bytes },
        grid: parts * batches * Math.ceil(columns / (4 * lanes)),
      });
      const each = Math.ceil(rows / parts);
      const expected = Array.from({ length: parts * batches * columns }, (_, at) => {
        const [part, batch, column] = [
          Math.floor(at / columns / batches),
          Math.floor(at / columns) % batches,
          at % columns,
        ];
        const mine = Array.from(
          { length: Math.max(0, Math.min(each, rows - part * each)) },
          (_, r) => values[start + batch * batchStride + (part * each + r) * rowStride + column],
        );
        const exact = FOLDS[fold][1](mine);
        return outDtype.kind === "float" ? exact : clampTo(outDtype, exact);
      });
      const what = `${fold} of ${dtype.name} (${batches}, ${rows}, ${columns}) in ${parts} on ${backend.name}`;
      if (outDtype.kind !== "float") {
        assertEquals(unpack(outDtype, out), unpack(outDtype, pack(outDtype, expected)), what);
      } else assertClose(unpack(outDtype, out), expected, bound(outDtype), what);
    }
  }
}, ["reduce_columns"]);

// ---- scan -------------------------------------------------------------------------------------------------------------

const SCANS = {
  sum: [K.OP_SUM, 0, (a: number, b: number) => a + b],
  prod: [K.OP_PROD, 1, (a: number, b: number) => a * b],
  min: [K.OP_MIN, Infinity, Math.min],
  max: [K.OP_MAX, -Infinity, Math.max],
  logsumexp: [K.OP_LOGSUMEXP, -Infinity, (a: number, b: number) => logsumexp([a, b])],
} as const satisfies Record<string, readonly [number, number, (a: number, b: number) => number]>;

function checkScan(
  backend: Backend,
  fold: keyof typeof SCANS,
  dtype: Dtype,
  rows: number[][],
  reverse: boolean,
  exclusive: boolean,
  { threads = 64, tiles = 1, spins = 0 }: { threads?: number; tiles?: number; spins?: number } = {},
): Uint8Array {
  const [code, neutral, f] = SCANS[fold];
  const cols = rows[0].length;
  const outDtype = foldedDtype(fold, dtype);
  const out = pack(outDtype, new Float64Array(rows.length * cols));
  const published: Record<string, Uint32Array> = tiles > 1 ? { tiles: new Uint32Array(4 * tiles * rows.length) } : {};
  runKernel(backend, "scan", {
    spec: {
      THREADS: threads,
      TILED: Number(tiles > 1),
      SPINS: spins,
      DTYPE_IN: dtype.code,
      DTYPE_OUT: outDtype.code,
      OP: code,
      REVERSE: Number(reverse),
      EXCLUSIVE: Number(exclusive),
    },
    push: { rows: rows.length, cols, tiles },
    buffers: { in: pack(dtype, rows.flat()), out, ...published },
    grid: rows.length * tiles,
  });
  const scan = (row: number[]): number[] => {
    let folded: number = neutral;
    return row.map((v) => {
      const before = folded;
      folded = f(folded, v);
      return exclusive ? before : folded;
    });
  };
  const expected = rows.map((row) => (reverse ? scan(row.toReversed()).toReversed() : scan(row))).flat();
  const what =
    `scan ${fold} of ${dtype.name} (${rows.length}, ${cols}) tiles ${tiles} spins ${spins} reverse ${reverse} exclusive ${exclusive} on ${backend.name}`;
  if (outDtype.kind === "float") assertClose(unpack(outDtype, out), expected, bound(outDtype), what);
  else {assertEquals(
      unpack(outDtype, out),
      unpack(outDtype, pack(outDtype, expected.map((v) => clampTo(outDtype, v)))),
      what,
    );}
  return new Uint8Array(out.buffer, out.byteOffset, out.byteLength);
}

/** The limit of an integer dtype in place of an infinity. */
function clampTo(dtype: Dtype, v: number): number {
  if (Number.isFinite(v)) return v;
  const range = 2 ** (8 * dtype.bytes);
  if (dtype.kind === "int") return v > 0 ? range / 2 - 1 : -range / 2;
  return v > 0 ? range - 1 : 0;
}

const SCANNED = {
  sum: [float32, int32, uint8, bool, int16],
  max: [float32, bfloat16, int8, uint32],
  min: [float32, bfloat16, int8, uint32],
  logsumexp: [float32],
  prod: [float32, int32],
} as const satisfies Record<keyof typeof SCANS, readonly Dtype[]>;

kernelTest("scan folds forwards and backwards", (backend) => {
  const all = (Object.keys(SCANNED) as (keyof typeof SCANNED)[]).flatMap((fold) =>
    SCANNED[fold].flatMap((dtype) =>
      [false, true].flatMap((reverse) => [false, true].map((exclusive) => ({ fold, dtype, reverse, exclusive })))
    )
  );
  // A scan compiles for two seconds, so dtypes and folds take turns.
  const turnOf = (name: string): string[] => isDrawn(backend.name, ["scan", name], 2) ? [name] : [];
  const drawn = drawCases(
    backend.name,
    "scan",
    all,
    ({ fold, dtype, reverse, exclusive }) => [`${reverse} ${exclusive}`, ...turnOf(fold), ...turnOf(dtype.name)],
  );
  for (const [rows, cols] of [[1, 1], [3, 9], [2, 513], [1, 2500]]) {
    const table = (dtype: Dtype): number[][] => {
      const values = random(dtype, rows * cols, cols);
      return Array.from({ length: rows }, (_, r) => values.slice(r * cols, r * cols + cols));
    };
    for (const { fold, dtype, reverse, exclusive } of drawn) {
      if (fold === "prod" && dtype === int32 && cols >= 10) continue; // beyond int32
      const rowsOf = (): number[][] => {
        if (fold !== "prod") return table(dtype);
        return table(dtype).map((row) => row.map((v) => dtype === int32 ? v % 4 : Math.fround(1 + v / 400)));
      };
      checkScan(backend, fold, dtype, rowsOf(), reverse, exclusive);
    }
  }
});

kernelTest(
  "scan gives the same bits by one workgroup a row and by one a tile, whether or not those help each other",
  (backend) => {
    const threads = 32, tile = 4 * K.SCAN_QUADS * threads;
    const forms = [[false, false], [true, false], [false, true], [true, true]] as const;
    const cases = [
      ...forms.map(([reverse, exclusive]) => ["sum", float32, reverse, exclusive] as const),
      ["sum", int8, true, true],
      ["sum", float16, true, false],
      ["max", bfloat16, false, true],
      ["min", int16, true, false],
      ["logsumexp", float32, false, false],
      ["prod", float32, true, false],
    ] as const;
    const drawn = drawSome(backend.name, "tiles", cases, 1);
    for (const [rows, cols] of [[1, tile + 1], [3, 2 * tile - 1], [2, 41 * tile + 6], [1, 150 * tile - 4]]) {
      for (const [fold, dtype, reverse, exclusive] of cols > 50 * tile ? drawn.slice(0, 1) : drawn) {
        const table = Array.from({ length: rows }, (_, r) => {
          const values = random(dtype, cols, cols + r);
          if (fold === "prod") return values.map((v) => Math.fround(1 + v / 40_000));
          return dtype === float16 ? values.map((v) => Math.abs(v) / 4) : values;
        });
        const tiles = Math.ceil(cols / tile);
        const walked = checkScan(backend, fold, dtype, table, reverse, exclusive, { threads });
        for (const spins of [0, 1000]) {
          const form = { threads, tiles, spins };
          assertEquals(
            checkScan(backend, fold, dtype, table, reverse, exclusive, form),
            walked,
            `${fold} ${cols} ${spins}`,
          );
        }
      }
    }
  },
);

kernelTest("scan carries NaN and infinities", (backend) => {
  const inf = Infinity;
  checkScan(backend, "max", float32, [[1, NaN, 3, 2], [-inf, 2, inf, 1]], false, false);
  checkScan(backend, "logsumexp", float32, [[-inf, -inf, 1, inf, 2]], false, false);
  checkScan(backend, "logsumexp", float32, [[-inf, -inf, 1, inf, 2]], true, true);
});
