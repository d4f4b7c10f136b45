/**
 * quantize, dequantize, quantized_matvec and quantized_matmul on every device, one dispatch each, against float64 loops.
 */

import { assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import { MODE_SYMMETRIC } from "../../src/backend/kernels.ts";
import { type HostArray, int32 } from "../../src/graph/dtype.ts";
import { tileColumns, tileRows, type TileShape } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { isDrawn } from "../support/draw_cases.ts";
import { kernelTest as test, runKernel } from "../support/devices/harness.ts";
import { quantizeGroup } from "../support/oracles/oracle.ts";
import { BF16, check, F16, F32, folded, type How, next, random, rounded } from "../support/oracles/product_values.ts";
import { SMALL_TILE, tiled, tileHows, type Type, vector, VECTOR_HOWS } from "../support/oracles/product_values.ts";

const BITS = [1, 2, 3, 4, 5, 6, 8] as const;
const GROUPS = [32, 64, 128] as const;

/** Codes as MLX packs them: each row a bitstream, lowest bits first. A row's bits fill whole bytes. */
function packCodes(codes: ArrayLike<number>, bits: number): Uint8Array {
  const bytes = new Uint8Array(codes.length * bits / 8);
  for (let i = 0; i < codes.length * bits; i++) {
    bytes[i >> 3] |= ((codes[Math.floor(i / bits)] >> (i % bits)) & 1) << (i & 7);
  }
  return bytes;
}

interface Quantized {
  readonly words: Uint8Array;
  readonly scales: HostArray;
  readonly biases: HostArray;
  /** scale * code + bias, not rounded. */
  readonly values: Float64Array;
  readonly codes: Uint8Array;
}

function randomQuantized(count: number, bits: number, group: number, type: Type): Quantized {
  const codes = Uint8Array.from({ length: count }, () => Math.floor(next() * (1 << bits)));
  const scale = 2 / (1 << bits);
  const scales = type.pack(random(count / group, scale));
  const biases = type.pack(random(count / group));
  const s = type.values(scales);
  const b = type.values(biases);
  const values = Float64Array.from(codes, (c, i) => s[Math.floor(i / group)] * c + b[Math.floor(i / group)]);
  return { words: packCodes(codes, bits), scales, biases, values, codes };
}

test("quantize() gives MLX's codes, scales and biases", (backend) => {
  for (const type of [F32, BF16, F16]) {
    for (const bits of BITS) {
      for (const group of GROUPS) {
        const [rows, cols] = [3, 256];
        const w = type.pack(random(rows * cols));
        const values = type.values(w);
        values.fill(0, 0, group); // a group of zeros and one of a constant
        values.fill(0.75, group, 2 * group);
        const held = type.pack(values);
        const groups = Array.from(
          { length: rows * cols / group },
          (_, g) => quantizeGroup(type.values(held).subarray(g * group, (g + 1) * group), bits),
        );
        const codes = new Uint8Array(rows * cols * bits / 8);
        const scales = type.pack(new Float64Array(groups.length));
        const biases = type.pack(new Float64Array(groups.length));
        runKernel(backend, "quantize", {
          spec: { BITS: bits, GROUP: group, DTYPE: type.code },
          push: { rows, cols },
          buffers: { w: held, codes, scales, biases },
          items: groups.length,
        });
        const what = `${type.name}, ${bits} bits, groups of ${group} on ${backend.name}`;
        assertEquals(type.values(scales), rounded(type, groups.map((g) => g.scale)), `scales of ${what}`);
        assertEquals(type.values(biases), rounded(type, groups.map((g) => g.bias)), `biases of ${what}`);
        assertEquals(codes, packCodes(groups.flatMap((g) => g.codes), bits), `codes of ${what}`);
      }
    }
  }
});

test("quantize() gives the words that MLX gave for linspace(-1, 2, 32)", (backend) => {
  const w = BF16.pack(Float64Array.from({ length: 32 }, (_, i) => -1 + 3 * i / 31));
  const codes = new Uint32Array(4);
  const scales = new Uint16Array(1);
  const biases = new Uint16Array(1);
  runKernel(backend, "quantize", {
    spec: { BITS: 4, GROUP: 32, DTYPE: BF16.code },
    push: { rows: 1, cols: 32 },
    buffers: { w, codes, scales, biases },
  });
  assertEquals([...codes.subarray(0, 2)], [3437096703, 2291772091]);
  assertEquals([...BF16.values(scales), ...BF16.values(biases)], [-0.2001953125, 2]);
});

/** codes * s + b, each step rounded to a type. */
function dequantized(
  type: Type,
  codes: ArrayLike<number>,
  s: ArrayLike<number>,
  b: ArrayLike<number>,
  group: number,
): Float64Array {
  const products = rounded(type, Float64Array.from(codes, (c, i) => s[Math.floor(i / group)] * c));
  return rounded(type, products.map((v, i) => v + b[Math.floor(i / group)]));
}

test("dequantize() rounds each step to the dtype of the scales", (backend) => {
  for (const type of [F32, BF16, F16]) {
    for (const out of [type, F32]) {
      for (const bits of BITS) {
        for (const group of GROUPS) {
          if (!isDrawn(backend.name, ["dequantize", type.name, out.name, bits, group], 7)) continue;
          const [rows, cols] = [3, 128];
          const q = randomQuantized(rows * cols, bits, group, type);
          const sums = dequantized(type, q.codes, type.values(q.scales), type.values(q.biases), group);
          check(
            backend,
            "dequantize",
            {
              spec: {
                BITS: bits,
                GROUP: group,
                DTYPE_SCALES: type.code,
                DTYPE_OUT: out.code,
                DTYPE_STORED: type.code,
              },
              push: { rows, cols },
              buffers: { codes: q.words, scales: q.scales, biases: q.biases },
              items: rows * cols / 8,
            },
            out,
            rounded(out, sums),
            `${type.name} to ${out.name}, ${bits} bits, groups of ${group}`,
            0,
          );
        }
      }
    }
  }
});

test("dequantize() of rows at indices counts negative ones from the end, clamps others and rounds what is stored", (backend) => {
  const [table, cols, group, bits] = [5, 64, 32, 4];
  const q = randomQuantized(table * cols, bits, group, BF16);
  const [s, b] = [q.scales, q.biases].map((words) => rounded(F16, BF16.values(words)));
  const sums = dequantized(F16, q.codes, s, b, group);
  const indices = Int32Array.of(3, 0, -1, 3, 99, -99, 2);
  const rows = [3, 0, 4, 3, 4, 0, 2];
  check(
    backend,
    "dequantize",
    {
      spec: {
        BITS: bits,
        GROUP: group,
        DTYPE_SCALES: F16.code,
        DTYPE_OUT: F32.code,
        DTYPE_STORED: BF16.code,
        DTYPE_INDEX: int32.code,
      },
      push: { rows: rows.length, cols, table },
      buffers: { codes: q.words, scales: q.scales, biases: q.biases, indices },
      items: rows.length * cols / 8,
    },
    F32,
    Float64Array.from(rows.flatMap((row) => [...sums.subarray(row * cols, (row + 1) * cols)])),
    "rows at indices",
    0,
  );
});

interface QuantizedCase {
  readonly batch?: number;
  readonly wBatch?: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly group: number;
  readonly types?: readonly [Type, Type, Type];
  readonly transpose?: boolean;
}

function quantizedProduct(
  backend: Backend,
  kernel: "quantized_matvec" | "quantized_matmul",
  c: QuantizedCase,
  how: How,
): void {
  const { batch = 1, wBatch = 1, m, n, k, bits, group, types = [F32, F32, F32], transpose = true } = c;
  if (!isDrawn(backend.name, [kernel, c, how, types.map(({ name }) => name)], 7)) return;
  const [X, S, Out] = types;
  const x = X.pack(random(batch * m * k));
  const xv = X.values(x);
  const w = randomQuantized(wBatch * n * k, bits, group, S);
  const expected = new Float64Array(batch * m * n);
  for (let i = 0; i < batch * m; i++) {
    const base = wBatch === 1 ? 0 : Math.floor(i / m) * n * k;
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let t = 0; t < k; t++) sum += xv[i * k + t] * w.values[base + (transpose ? j * k + t : t * n + j)];
      expected[i * n + j] = sum;
    }
  }
  const few = kernel === "quantized_matvec";
  const { spec: cutting, workgroups, splits } = few ? vector(how, batch, n) : tiled(how, batch, m, n);
  const spec = {
    ...cutting,
    BITS: bits,
    GROUP: group,
    DTYPE_X: X.code,
    DTYPE_SCALES: S.code,
    DTYPE_OUT: Out.code,
  };
  check(
    backend,
    kernel,
    {
      spec: few ? spec : { ...spec, TRANSPOSE: transpose ? 1 : 0 },
      push: { batch, m, n, k, w_batch: wBatch },
      buffers: { x, w: w.words, scales: w.scales, biases: w.biases },
      grid: folded(workgroups),
    },
    Out,
    expected,
    JSON.stringify({ ...c, types: types.map((t) => t.name), ...how }),
    Out.bound,
    splits,
  );
}

const MIXED: readonly (readonly [Type, Type, Type])[] = [[F32, F32, F32], [F32, BF16, F32], [BF16, BF16, BF16], [
  F16,
  F16,
  F16,
]];

test("quantized_matvec() matches plain loops for every width and group", (backend) => {
  for (const bits of BITS) {
    for (const group of GROUPS) {
      for (const how of group === 64 && bits === 4 ? VECTOR_HOWS : VECTOR_HOWS.slice(0, 1)) {
        quantizedProduct(backend, "quantized_matvec", { m: 1, n: 37, k: 384, bits, group }, how);
        quantizedProduct(backend, "quantized_matvec", { m: 5, n: 9, k: 128, bits, group }, how);
      }
    }
  }
});

test("quantized_matvec() takes mixed dtypes, rows and batches", (backend) => {
  const kernel = "quantized_matvec";
  for (const how of VECTOR_HOWS) {
    for (const types of MIXED) {
      for (const bits of how.rows ? [4] : [4, 8]) {
        quantizedProduct(backend, kernel, { m: 1, n: 33, k: 256, bits, group: 64, types }, how);
        quantizedProduct(backend, kernel, { m: 8, n: 18, k: 1056, bits, group: 32, types }, how);
      }
    }
    for (const m of [0, 1, 3]) {
      for (const wBatch of [1, 3]) {
        quantizedProduct(backend, kernel, { batch: 3, wBatch, m, n: 7, k: 64, bits: 4, group: 32 }, how);
      }
    }
  }
});

test("quantized_matvec() copes with one large value in a group", (backend) => {
  const k = 128;
  const x = Float32Array.from(random(k));
  x[5] = 1000;
  const w = randomQuantized(4 * k, 4, 64, F32);
  const expected = Float64Array.from({ length: 4 }, (_, j) => x.reduce((s, v, t) => s + v * w.values[j * k + t], 0));
  check(
    backend,
    "quantized_matvec",
    {
      spec: { BITS: 4, GROUP: 64, DTYPE_X: F32.code, DTYPE_SCALES: F32.code, DTYPE_OUT: F32.code, ROWS: 1, COLUMNS: 4 },
      push: { batch: 1, m: 1, n: 4, k, w_batch: 1 },
      buffers: { x, w: w.words, scales: w.scales, biases: w.biases },
      grid: 1,
    },
    F32,
    expected,
    "outlier",
  );
});

test("quantized_matmul() matches plain loops for every width and group, both ways", (backend) => {
  const kernel = "quantized_matmul";
  for (const bits of BITS) {
    for (const group of GROUPS) {
      quantizedProduct(backend, kernel, { m: 9, n: 70, k: 128, bits, group }, SMALL_TILE);
      if (group !== 64) continue;
      quantizedProduct(backend, kernel, { m: 9, n: 128, k: 45, bits, group, transpose: false }, SMALL_TILE);
    }
  }
});

test("quantized_matmul() takes mixed dtypes, odd rows and batches", (backend) => {
  const kernel = "quantized_matmul";
  for (const how of tileHows(backend)) {
    for (const transpose of how === SMALL_TILE ? [true, false] : [true]) {
      for (const types of how === SMALL_TILE ? MIXED : [MIXED[2]]) {
        const sizes = { m: 67, n: 160, k: 96, bits: 4, group: 32 };
        quantizedProduct(backend, kernel, { ...sizes, types, transpose }, how);
      }
    }
  }
  for (const transpose of [true, false]) {
    for (const m of [0, 1, 33]) {
      for (const wBatch of [1, 2]) {
        const sizes = { batch: 2, wBatch, m, n: 64, k: 64, bits: 8, group: 64 };
        quantizedProduct(backend, kernel, { ...sizes, transpose }, SMALL_TILE);
      }
    }
  }
});

test("quantized_matmul() takes results of several tiles in both directions", (backend) => {
  for (const how of tileHows(backend)) {
    const m = tileRows(how as TileShape) + 3, columns = tileColumns(how as TileShape) + 32;
    const sizes = { m, bits: 4, group: 32, types: MIXED[2] };
    quantizedProduct(backend, "quantized_matmul", { ...sizes, n: columns + 5, k: 160 }, how);
    if (how !== SMALL_TILE) continue;
    quantizedProduct(backend, "quantized_matmul", { ...sizes, n: columns, k: 77, transpose: false }, how);
  }
});

/** Random codes of mode symmetric in groups of 16; `values` are scale * (code - 2^(bits - 1)). */
function randomSymmetric(count: number, bits: number, type: Type): Omit<Quantized, "biases"> {
  const codes = Uint8Array.from({ length: count }, () => Math.floor(next() * (1 << bits)));
  const scales = type.pack(random(count / 16, 2 / (1 << bits)));
  const s = type.values(scales);
  const values = Float64Array.from(codes, (c, i) => s[Math.floor(i / 16)] * (c - 2 ** (bits - 1)));
  return { words: packCodes(codes, bits), scales, values, codes };
}

test("dequantize() in mode symmetric rounds scale * (code - middle) once", (backend) => {
  for (const bits of [3, 6]) {
    for (const [stored, out] of [[F32, F32], [F16, F16], [F16, F32], [BF16, BF16]]) {
      const [rows, cols] = [3, 96];
      const q = randomSymmetric(rows * cols, bits, stored);
      const spec = { BITS: bits, GROUP: 16, MODE: MODE_SYMMETRIC, DTYPE_STORED: stored.code, DTYPE_OUT: out.code };
      check(
        backend,
        "dequantize",
        { spec, push: { rows, cols }, buffers: { codes: q.words, scales: q.scales }, items: rows * cols / 8 },
        out,
        rounded(out, rounded(F32, q.values)),
        `${stored.name} to ${out.name}, ${bits} bits`,
        0,
      );
    }
  }
});

test("products in mode symmetric match plain loops, in rows, tiles and transposed", (backend) => {
  const shapes = [
    { kernel: "quantized_matvec", m: 1, n: 37, k: 352 },
    { kernel: "quantized_matvec", m: 5, n: 130, k: 32 },
    { kernel: "quantized_matmul", m: 9, n: 70, k: 96 },
    { kernel: "quantized_matmul", m: 1, n: 3, k: 64 },
    { kernel: "quantized_matmul", m: 2, n: 160, k: 45, transpose: false },
    { kernel: "quantized_matmul", m: 9, n: 96, k: 7, transpose: false },
  ] as const;
  for (const bits of [3, 6]) {
    for (const [i, { kernel, m, n, k, ...rest }] of shapes.entries()) {
      for (const types of [MIXED[i % MIXED.length]]) {
        const transpose = !("transpose" in rest);
        const [X, S, Out] = types;
        if (!isDrawn(backend.name, [kernel, m, n, k, bits, types.map(({ name }) => name)], 7)) continue;
        const x = X.pack(random(m * k));
        const xv = X.values(x);
        const w = randomSymmetric(n * k, bits, S);
        const expected = new Float64Array(m * n);
        for (let i = 0; i < m; i++) {
          for (let j = 0; j < n; j++) {
            for (let t = 0; t < k; t++) {
              expected[i * n + j] += xv[i * k + t] * w.values[transpose ? j * k + t : t * n + j];
            }
          }
        }
        const few = kernel === "quantized_matvec";
        const how = few ? VECTOR_HOWS[0] : SMALL_TILE;
        const { spec, workgroups, splits } = few ? vector(how, 1, n) : tiled(how, 1, m, n);
        check(
          backend,
          kernel,
          {
            spec: {
              ...spec,
              BITS: bits,
              GROUP: 16,
              MODE: MODE_SYMMETRIC,
              DTYPE_X: X.code,
              DTYPE_SCALES: S.code,
              DTYPE_OUT: Out.code,
              ...(!few && { TRANSPOSE: transpose ? 1 : 0 }),
            },
            push: { batch: 1, m, n, k, w_batch: 1 },
            buffers: { x, w: w.words, scales: w.scales },
            grid: folded(workgroups),
          },
          Out,
          expected,
          `${kernel} of ${bits} bits, (${m}, ${k}) times ${n}, ${types.map(({ name }) => name)}`,
          Out.bound,
          splits,
        );
      }
    }
  }
});
