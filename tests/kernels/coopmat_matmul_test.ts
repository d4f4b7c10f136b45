/**
 * Products of many rows with quantized weights on cooperative matrices, and emulated without them, against float64 loops. On a device without
 * cooperative matrices the tests of the former are ignored by name.
 */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { EMULATED_PRODUCTS, PRODUCTS } from "../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { interleave, quantized, repack, type Weights } from "../support/oracles/quantized_fragments.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { neededBy, weightsMap } from "../support/devices/matrices.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { erf, generator } from "../support/oracles/oracle.ts";

const next = generator(12);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);
const THREADS = 64;

interface ProductCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly group?: number;
  readonly splits?: number;
  /** float16 x goes in as it is, others through half_rows. */
  readonly x?: Dtype;
  readonly out?: Dtype;
  readonly scale?: number;
}

interface ProductRow {
  readonly kernel: KernelName;
  readonly rows: number;
  /** 128 where absent. */
  readonly columns?: number;
  /** 128 where absent. */
  readonly threads?: number;
  readonly bits: number;
}

/** All kernels that leave parts or gated columns. */
function rowsOf(kind: "parts" | "gated"): readonly ProductRow[] {
  return [PRODUCTS, EMULATED_PRODUCTS].flatMap((table) =>
    Object.entries(table[kind]).flatMap(([bits, rows]) => rows.map((row) => ({ ...row, bits: Number(bits) })))
  );
}

function product(
  backend: Backend,
  { kernel, rows, columns = 128, threads = 128, bits }: ProductRow,
  c: ProductCase,
): void {
  const { m, n, k, group = 64, splits = 1, x: dtype = float16, out: outDtype = float16, scale = 1 } = c;
  const what = `${kernel} ${JSON.stringify({ ...c, x: dtype.name, out: outDtype.name })}`;
  const w = quantized(n, k, bits, group);
  const { codes, scales_biases } = repack(backend, w, weightsMap(backend, kernel), float16);
  const x = unpack(dtype, pack(dtype, random(m * k, scale)));
  let half = new Uint16Array(pack(float16, x).buffer);
  const powers = new Float32Array(Math.ceil(m / 16));
  if (dtype !== float16) {
    half = new Uint16Array(m * k);
    runKernel(backend, "half_rows", {
      spec: { THREADS, DTYPE_X: dtype.code, BLOCK: 16, TERMS: 1, DTYPE_OUT: float16.code },
      push: { rows: m, cols: k },
      buffers: { x: pack(dtype, x), out: half, powers },
      grid: Math.ceil(m / 16),
    });
  }
  const out = pack(outDtype, new Array(splits * m * n).fill(0));
  runKernel(backend, kernel, {
    spec: {
      THREADS: threads,
      N: n,
      K: k,
      GROUP: group,
      SCALED: dtype === float16 ? 0 : 1,
      DTYPE_OUT: outDtype.code,
    },
    push: { m, scale: 1 },
    buffers: { x: half, ...(dtype === float16 ? {} : { powers }), codes, scales_biases, out },
    grid: [Math.ceil(m / rows), Math.ceil(n / columns), splits],
  });
  const expected = new Float64Array(m * n);
  const row = new Float64Array(k);
  for (let j = 0; j < n; j++) {
    for (let t = 0; t < k; t++) {
      const g = Math.floor((j * k + t) / group);
      row[t] = w.scales[g] * w.codes[j * k + t] + w.biases[g];
    }
    for (let i = 0; i < m; i++) {
      let sum = 0;
      for (let t = 0; t < k; t++) sum += x[i * k + t] * row[t];
      expected[i * n + j] = sum;
    }
  }
  const found = new Float64Array(m * n);
  unpack(outDtype, out).forEach((v, i) => found[i % (m * n)] += v);
  assertClose(found, expected, outDtype === bfloat16 ? 2e-5 : 2e-6, what);
}

for (const row of rowsOf("parts")) {
  const needs = neededBy(row.kernel);
  kernelTest(`${row.kernel}() takes any number of rows`, (backend) => {
    for (const m of [1, 7, 63, 64, 65, 129, 256]) {
      product(backend, row, { m, n: 256, k: 128 });
      product(backend, row, { m, n: 128, k: 192, out: float32 });
    }
    product(backend, row, { m: 2047, n: 128, k: 128 });
  }, needs);
  kernelTest(`${row.kernel}() takes sizes that its tiles do not divide`, (backend) => {
    product(backend, row, { m: 65, n: 1, k: 64 });
    for (const m of [1, 65, 128]) {
      for (const n of [40, 132, 200]) product(backend, row, { m, n, k: 64 });
      product(backend, row, { m, n: 200, k: 96, group: 32, out: float32 });
      product(backend, row, { m, n: 136, k: 32, group: 32 });
      product(backend, row, { m, n: 144, k: 160, group: 32, out: bfloat16 });
    }
    for (const group of [16, 32, 64, 128]) product(backend, row, { m: 70, n: 256, k: 640, group });
  }, needs);
  kernelTest(`${row.kernel}() splits the depth and takes scaled rows`, (backend) => {
    for (const splits of [2, 3, 4]) {
      for (const m of [5, 64, 130]) product(backend, row, { m, n: 136, k: 448, splits, out: float32 });
      for (const out of [float32, float16]) product(backend, row, { m: 128, n: 256, k: 1024, group: 128, splits, out });
    }
    for (const x of [float32, bfloat16]) {
      for (const scale of [1, 1e6, 1e-6]) {
        for (const out of [float32, x]) product(backend, row, { m: 77, n: 160, k: 128, x, out, scale });
      }
      product(backend, row, { m: 128, n: 128, k: 512, x, out: float32, splits: 2 });
    }
  }, needs);
}

/** Numbers in float16 that a row of x may hold one of, and what then becomes of the row. */
const LOST: readonly (readonly [row: number, x: number])[] = [[3, NaN], [40, Infinity], [66, -Infinity]];
/** A row whose results are beyond float16. */
const BEYOND = 100;

/** x (m, k) of float16 with rows that are lost, and one beyond its range. */
function withLost(m: number, k: number): number[] {
  const x = random(m * k);
  for (let t = 0; t < k; t++) if (BEYOND < m) x[BEYOND * k + t] *= 60000;
  for (const [row, value] of LOST) if (row < m) x[row * k + 7] = value;
  return unpack(float16, pack(float16, x));
}

/** Compares rows (m, n) that withLost() gave; `expected` is beyond the range of float16 where the results were. */
function assertLost(found: readonly number[], expected: Float64Array, n: number, limit: number, what: string): void {
  const lost = new Set(LOST.map(([row]) => row));
  const [rows, rest] = [found, expected].map((values) => {
    const at = Array.from(values, (value, i) => [value, Math.floor(i / n)]);
    return at.filter(([, row]) => !lost.has(row));
  });
  for (const row of lost) {
    const values = found.slice(row * n, (row + 1) * n);
    assert(values.every(Number.isNaN), `${what}: row ${row} is not all NaN: ${values}`);
  }
  const clamped = rest.map(([v]) => Math.min(65504, Math.max(-65504, v)));
  assertEquals(clamped.some((v) => Math.abs(v) === 65504), found.length / n > BEYOND, what);
  // Those beyond would drown the others.
  for (const beyond of [true, false]) {
    const of = (values: readonly number[]): number[] => values.filter((_, i) => rest[i][1] === BEYOND === beyond);
    const [actual, wanted] = [of(rows.map(([v]) => v)), of(clamped)];
    if (wanted.length > 0) assertClose(actual, wanted, limit, `${what}, ${beyond ? "the row beyond" : "other rows"}`);
  }
}

for (const row of rowsOf("parts")) {
  kernelTest(`${row.kernel}() keeps float16 results within its range, and NaN and infinities as NaN`, (backend) => {
    // Whole tiles, edges of rows and of columns: each stores in its own way.
    for (const [m, n] of [[128, 128], [128, 256], [127, 128], [70, 256], [128, 200]]) {
      const k = 128;
      const w = quantized(n, k, row.bits, 64);
      const x = withLost(m, k);
      const out = pack(float16, new Array(m * n).fill(0));
      runKernel(backend, row.kernel, {
        spec: { THREADS: row.threads ?? 128, N: n, K: k, GROUP: 64, SCALED: 0, DTYPE_OUT: float16.code },
        push: { m, scale: 1 },
        buffers: { x: pack(float16, x), ...repack(backend, w, weightsMap(backend, row.kernel), float16), out },
        grid: [Math.ceil(m / row.rows), Math.ceil(n / (row.columns ?? 128)), 1],
      });
      const expected = Float64Array.from({ length: m * n }, (_, at) => dot(x, w, k, Math.floor(at / n), at % n));
      assertLost(unpack(float16, out), expected, n, 2e-6, `${row.kernel} of ${m} rows, ${n} columns`);
    }
  }, neededBy(row.kernel));
}

/** Row i of x (m, k) times column j. */
function dot(x: readonly number[], w: Weights, k: number, i: number, j: number): number {
  let sum = 0;
  for (let t = 0; t < k; t++) {
    const g = Math.floor((j * k + t) / w.group);
    sum += x[i * k + t] * (w.scales[g] * w.codes[j * k + t] + w.biases[g]);
  }
  return sum;
}

/** Activations of a gate in the order of their codes in shaders/include/activation.glsl. */
const ACTIVATIONS: readonly ((x: number) => number)[] = [
  (x) => x / (1 + Math.exp(-x)),
  (x) => x / 2 * (1 + erf(x / Math.SQRT2)),
  (x) => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
];

interface GatedCase {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly group: number;
  /** Power of two for the result. */
  readonly scale?: number;
  /** Size of x. */
  readonly size?: number;
  readonly activation?: number;
  /** Whether x has rows that are lost, and one whose results are beyond float16. */
  readonly lost?: boolean;
}

function gated(backend: Backend, { kernel, rows, columns = 128, threads = 128, bits }: ProductRow, c: GatedCase): void {
  const { m, n, k, group, scale = 1 / 16, size = 1, activation = 0, lost = false } = c;
  const [gate, up] = [0, 1].map(() => quantized(n, k, bits, group));
  const { codes, scales_biases } = interleave(backend, gate, up, weightsMap(backend, kernel));
  const x = lost ? withLost(m, k) : unpack(float16, pack(float16, random(m * k, size)));
  const out = pack(float16, new Array(m * n).fill(0));
  runKernel(backend, kernel, {
    spec: {
      THREADS: threads,
      N: 2 * n,
      K: k,
      GROUP: group,
      SCALED: 0,
      DTYPE_OUT: float16.code,
      ACTIVATION: activation,
    },
    push: { m, scale },
    buffers: { x: pack(float16, x), codes, scales_biases, out },
    grid: [Math.ceil(m / rows), Math.ceil(2 * n / columns), 1],
  });
  const expected = Float64Array.from({ length: m * n }, (_, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    return ACTIVATIONS[activation](dot(x, gate, k, i, j)) * dot(x, up, k, i, j) * scale;
  });
  const what = `${kernel} ${JSON.stringify(c)}`;
  if (lost) return assertLost(unpack(float16, out), expected, n, 5e-6, what);
  const clamped = expected.map((v) => Math.min(65504, Math.max(-65504, v)));
  assertClose(unpack(float16, out), clamped, 5e-6, what);
}

for (const row of rowsOf("gated")) {
  const { kernel } = row;
  kernelTest(`${kernel}() takes any number of rows, and stays within float16`, (backend) => {
    for (const m of [1, 33, 64, 127, 129, 256]) gated(backend, row, { m, n: 64, k: 128, group: 64 });
    for (const group of [16, 32, 128]) gated(backend, row, { m: 70, n: 192, k: 256, group });
    gated(backend, row, { m: 128, n: 128, k: 96, group: 32, scale: 1 });
    for (const m of [40, 128]) gated(backend, row, { m, n: 64, k: 128, group: 64, size: 1000 });
  }, neededBy(kernel));
  kernelTest(`${kernel}() takes every activation`, (backend) => {
    for (const activation of ACTIVATIONS.keys()) {
      for (const m of [37, 128]) {
        for (const size of [0.1, 1, 30]) {
          gated(backend, row, { m, n: 64, k: 64, group: 64, scale: 1, size, activation });
        }
      }
    }
  }, neededBy(kernel));
  kernelTest(`${kernel}() keeps results within float16, and NaN and infinities as NaN`, (backend) => {
    for (const activation of ACTIVATIONS.keys()) {
      for (const m of [127, 128]) {
        gated(backend, row, { m, n: 64, k: 64, group: 64, scale: 1, lost: true, activation });
      }
    }
  }, neededBy(kernel));
}
