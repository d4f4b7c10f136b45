/** The kernels between the products of a prompt, which need no matrices, against float64 loops. */

import { assert, assertEquals } from "@std/assert";
import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(23);
const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);
const values = (dtype: Dtype, n: number, scale = 1): number[] => unpack(dtype, pack(dtype, random(n, scale)));
const limitOf = (dtype: Dtype): number => dtype === float32 ? 1e-12 : dtype === float16 ? 1e-6 : 2e-5;

// ---- add_norm -------------------------------------------------------------------------------------------------------

interface NormCase {
  readonly rows: number;
  readonly cols: number;
  readonly threads: number;
  readonly splits?: number;
  readonly scale?: number;
  readonly x?: Dtype;
  readonly parts?: Dtype;
  readonly weight?: Dtype;
  readonly total?: Dtype;
  readonly out?: Dtype;
  /** Whether parts are what the chosen experts of each row gave. */
  readonly chosen?: boolean;
  /** Other parts, and the dtype of a score of each row. */
  readonly beside?: number;
  readonly score?: Dtype;
  /** The dtype of a bias. */
  readonly bias?: Dtype;
  /** Size of the weights. */
  readonly size?: number;
}

kernelTest("add_norm() adds parts to a residual and normalises it", (backend) => {
  const cases: readonly NormCase[] = [
    { rows: 1, cols: 4, threads: 32 },
    { rows: 37, cols: 1024, threads: 256, splits: 4 },
    { rows: 5, cols: 1000, threads: 64, splits: 3, scale: 16, parts: float16 },
    { rows: 6, cols: 256, threads: 64, splits: 2, scale: 0.22, parts: float16 },
    { rows: 3, cols: 2560, threads: 256, splits: 1, x: bfloat16, parts: float16, weight: bfloat16 },
    { rows: 9, cols: 132, threads: 128, splits: 2, x: float16, weight: float16, total: float16, out: float32 },
    { rows: 7, cols: 64, threads: 64, x: bfloat16, total: bfloat16, out: bfloat16 },
    { rows: 4, cols: 128, threads: 64, splits: 1, size: 1e6 }, // beyond float16
    { rows: 5, cols: 136, threads: 64, splits: 6, scale: 0.5, parts: bfloat16, chosen: true },
    { rows: 3, cols: 64, threads: 64, splits: 1, parts: float32, chosen: true, beside: 1 },
    { rows: 5, cols: 72, threads: 64, splits: 2, chosen: true, beside: 3, score: bfloat16 },
    { rows: 5, cols: 72, threads: 64, splits: 9, scale: 0.5, parts: float16, bias: bfloat16 },
  ];
  for (const c of cases) {
    const { rows, cols, threads, splits = 0, scale = 1, size = 1, x: xType = float32, weight: wType = float32 } = c;
    const {
      chosen = false,
      beside = 0,
      score: scoreType = float32,
      parts: pType = float32,
      total: totalType = float32,
      out: outType = float16,
    } = c;
    const what = JSON.stringify({
      ...c,
      x: xType.name,
      parts: pType.name,
      score: scoreType.name,
      bias: c.bias?.name,
      weight: wType.name,
      total: totalType.name,
      out: outType.name,
    });
    const x = values(xType, rows * cols, 3);
    const parts = values(pType, splits * rows * cols, 2);
    const weight = values(wType, cols, size);
    const choice = Float32Array.from(random(2 * rows * splits)); // the numbers of experts are not read
    const [others, scores] = [values(float16, beside * rows * cols), values(scoreType, rows, 2)];
    const bias = values(c.bias ?? float32, c.bias ? cols : 0);
    const share = (row: number): number => 2.5 / (c.score ? 1 + Math.exp(-scores[row]) : 1);
    const eps = 1e-3;
    const total = pack(totalType, new Array(rows * cols).fill(0));
    const out = pack(outType, new Array(rows * cols).fill(0));
    const run = (buffers: Record<string, ArrayBufferView>): void =>
      runKernel(backend, "add_norm", {
        spec: {
          THREADS: threads,
          COLS: cols,
          DTYPE_X: xType.code,
          DTYPE_PARTS: pType.code,
          DTYPE_WEIGHT: wType.code,
          DTYPE_TOTAL: totalType.code,
          DTYPE_OUT: outType.code,
          CHOSEN: chosen ? 1 : 0,
          DTYPE_SCORE: scoreType.code,
          DTYPE_BIAS: (c.bias ?? float32).code,
        },
        push: { rows, splits, scale, eps, beside, beside_scale: 2.5 },
        buffers: {
          x: pack(xType, x),
          ...(splits > 0 ? { parts: pack(pType, parts) } : {}),
          ...(chosen ? { choice } : {}),
          ...(beside > 0 ? { beside: pack(float16, others) } : {}),
          ...(c.bias ? { bias: pack(c.bias, bias) } : {}),
          ...(c.score ? { score: pack(scoreType, scores) } : {}),
          ...buffers,
        },
        grid: [Math.min(rows, 3), Math.ceil(rows / 3), 1],
      });
    run({ weight: pack(wType, weight), total, out });
    const sums = x.map((v, i) => {
      const [row, column] = [Math.floor(i / cols), i % cols];
      for (let s = 0; s < splits; s++) {
        v += chosen
          ? scale * choice[(2 * row + 1) * splits + s] * parts[(row * splits + s) * cols + column]
          : scale * parts[s * rows * cols + i];
      }
      if (c.bias) v += scale * bias[column];
      for (let s = 0; s < beside; s++) v += share(row) * others[s * rows * cols + i];
      return v;
    });
    const expected = sums.map((v, i) => {
      const row = sums.slice(Math.floor(i / cols) * cols, (Math.floor(i / cols) + 1) * cols);
      const factor = 1 / Math.sqrt(row.reduce((sum, y) => sum + y * y, 0) / cols + eps);
      const y = v * factor * weight[i % cols];
      return outType === float16 ? Math.min(65504, Math.max(-65504, y)) : y;
    });
    assertClose(unpack(totalType, total), sums, limitOf(totalType), `total of ${what}`);
    assertClose(unpack(outType, out), expected, limitOf(outType), `norm of ${what}`);
    if (size > 1) assert(expected.some((y) => y === 65504), "the case reaches the limit");
    // Each result by itself.
    const [alone, only] = [total, out].map((array) =>
      pack(array === total ? totalType : outType, new Array(array.length).fill(0))
    );
    run({ total: alone });
    run({ weight: pack(wType, weight), out: only });
    assertEquals(alone, total);
    assertEquals(only, out);
  }
}, ["add_norm"]);

kernelTest("add_norm() keeps rows within float16, and NaN and infinities as NaN", (backend) => {
  const [rows, cols] = [5, 72];
  const run = (x: Float32Array, weight: Float32Array): number[] => {
    const out = pack(float16, new Array(rows * cols).fill(0));
    runKernel(backend, "add_norm", {
      spec: {
        THREADS: 64,
        COLS: cols,
        DTYPE_X: float32.code,
        DTYPE_PARTS: float32.code,
        DTYPE_WEIGHT: float32.code,
        DTYPE_TOTAL: float32.code,
        DTYPE_OUT: float16.code,
      },
      push: { rows, splits: 0, scale: 1, eps: 1e-3, beside: 0, beside_scale: 0 },
      buffers: { x, weight, out },
      grid: rows,
    });
    return unpack(float16, out);
  };
  const x = Float32Array.from(random(rows * cols));
  const weight = Float32Array.from(random(cols));
  const before = run(x, weight);
  // A weight beyond the range is no number's neighbour's matter, in none of the places of a four.
  for (let place = 0; place < 4; place++) {
    for (const [value, kept] of [[1e9, undefined], [-1e9, undefined], [NaN, NaN], [Infinity, NaN]] as const) {
      const at = 20 + place;
      const found = run(x, weight.with(at, value));
      const expected = before.map((v, i) => i % cols !== at ? v : kept ?? (Math.sign(x[i]) * Math.sign(value) * 65504));
      assertEquals(found, expected, `${value} at place ${place}`);
    }
  }
  const lost = run(x.with(2 * cols + 9, NaN), weight);
  assertEquals(lost, before.map((v, i) => Math.floor(i / cols) === 2 ? NaN : v), "a row that holds NaN");
}, ["add_norm"]);

// ---- rope_table -------------------------------------------------------------------------------------------------------

kernelTest("rope_table() holds the turns of every position", (backend) => {
  // The last two: pairs that are not rotated, and the factor of those that are.
  for (
    const [seq, dims, offset, base, scale, plain, factor] of [
      [5, 8, 0, 1e4, 1, 0, 1],
      [33, 128, 40000, 1e6, 0.25, 0, 1],
      [1, 64, 7, 5e5, 1, 0, 1],
      [3, 48, 100, 1e4, 1, 8, 1.25],
    ]
  ) {
    const pairs = dims / 2 + plain;
    for (const scalar of [false, true]) {
      for (const freqs of [undefined, Float32Array.from({ length: dims / 2 }, (_, i) => 1.5 ** i)]) {
        const out = new Float32Array(2 * seq * pairs);
        const start = scalar ? 12345 : offset;
        runKernel(backend, "rope_table", {
          spec: { OFFSET_MODE: scalar ? 1 : 0, HAS_FREQS: freqs ? 1 : 0 },
          push: { rows: seq, seq, pairs, rope_dims: dims, offset: start, scale, factor, log2_base: Math.log2(base) },
          buffers: { ...(scalar ? { offset: Int32Array.of(offset) } : {}), ...(freqs ? { freqs } : {}), out },
          items: seq * pairs,
        });
        for (let t = 0; t < seq; t++) {
          for (let i = 0; i < pairs; i++) {
            const turns = i < dims / 2;
            const angle = turns ? (t + offset) * scale * (freqs ? 1 / freqs[i] : base ** (-2 * i / dims)) : 0;
            const size = turns ? factor : 1;
            const at = (t * pairs + i) * 2;
            const error = Math.hypot(out[at] - size * Math.cos(angle), out[at + 1] - size * Math.sin(angle));
            // The base comes as a logarithm in float32.
            assert(error < 1e-4, `position ${t + offset}, pair ${i} of ${dims}: ${error}`);
          }
        }
      }
    }
  }
  // Rows of several sequences, each at a position of its own.
  const [positions, seq, dims] = [[3, 0, 5000], 2, 64];
  const out = new Float32Array(positions.length * seq * dims);
  runKernel(backend, "rope_table", {
    spec: { OFFSET_MODE: 2, HAS_FREQS: 0 },
    push: {
      rows: positions.length * seq,
      seq,
      pairs: dims / 2,
      rope_dims: dims,
      offset: 12345,
      scale: 1,
      factor: 1,
      log2_base: Math.log2(1e6),
    },
    buffers: { offset: Int32Array.from(positions), out },
    items: positions.length * seq * dims / 2,
  });
  for (let at = 0; at < out.length / 2; at++) {
    const [row, i] = [Math.floor(at / (dims / 2)), at % (dims / 2)];
    const angle = (positions[Math.floor(row / seq)] + row % seq) * 1e6 ** (-2 * i / dims);
    const error = Math.hypot(out[2 * at] - Math.cos(angle), out[2 * at + 1] - Math.sin(angle));
    assert(error < 1e-4, `row ${row}, pair ${i}: ${error}`);
  }
}, ["rope_table"]);
