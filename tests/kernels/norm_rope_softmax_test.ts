/** Kernels softmax, rms_norm, layer_norm and rope on every device, against plain float64 loops and MLX's values. */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import * as K from "../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, bound, pack, random, unpack } from "../support/oracles/kernel_values.ts";

// ---- softmax ----------------------------------------------------------------------------------------------------------

kernelTest("softmax normalises contiguous rows", (backend) => {
  for (const [input, output] of [[float32, float32], [float16, float16], [bfloat16, bfloat16], [bfloat16, float32]]) {
    for (const [rows, cols] of [[1, 1], [3, 5], [2, 600], [1, 4099]]) {
      const values = random(input, rows * cols, cols).map((v) => v * 8);
      const out = pack(output, new Float64Array(rows * cols));
      runKernel(backend, "softmax", {
        spec: { DTYPE_IN: input.code, DTYPE_OUT: output.code },
        push: { rows, cols },
        buffers: { in: pack(input, values), out },
        grid: rows,
      });
      const expected = Array.from({ length: rows }, (_, r) => {
        const row = values.slice(r * cols, r * cols + cols);
        const weights = row.map((v) => Math.exp(v - Math.max(...row)));
        const total = weights.reduce((a, b) => a + b, 0);
        return weights.map((w) => w / total);
      }).flat();
      assertClose(
        unpack(output, out),
        expected,
        bound(output),
        `softmax ${input.name} ${rows}x${cols} on ${backend.name}`,
      );
    }
  }
});

kernelTest("softmax of rows without a finite maximum is NaN", (backend) => {
  const inf = Infinity;
  const out = new Float32Array(9);
  runKernel(backend, "softmax", {
    spec: { DTYPE_IN: float32.code, DTYPE_OUT: float32.code },
    push: { rows: 3, cols: 3 },
    buffers: { in: Float32Array.of(-inf, -inf, -inf, 0, -inf, 0, NaN, 1, 2), out },
    grid: 3,
  });
  assertEquals([...out], [NaN, NaN, NaN, 0.5, 0, 0.5, NaN, NaN, NaN]);
});

// ---- rms_norm ---------------------------------------------------------------------------------------------------------

kernelTest("rms_norm divides by the root mean square and scales", (backend) => {
  const eps = 1e-6;
  for (const [input, output] of [[float32, float32], [bfloat16, bfloat16], [float16, float16], [float16, float32]]) {
    for (const [rows, cols] of [[1, 1], [5, 7], [2, 128], [1, 1030]]) {
      for (const hasWeight of [true, false]) {
        const x = random(input, rows * cols, cols);
        const weight = random(output, cols, 3);
        const out = pack(output, new Float64Array(rows * cols));
        runKernel(backend, "rms_norm", {
          spec: {
            DTYPE_X: input.code,
            DTYPE_WEIGHT: output.code,
            DTYPE_OUT: output.code,
            HAS_WEIGHT: Number(hasWeight),
          },
          push: { rows, cols, eps },
          buffers: { x: pack(input, x), ...(hasWeight ? { weight: pack(output, weight) } : {}), out },
          grid: rows,
        });
        const expected = x.map((v, i) => {
          const row = x.slice(i - i % cols, i - i % cols + cols);
          const y = v / Math.sqrt(row.reduce((a, b) => a + b * b, 0) / cols + eps);
          return hasWeight ? unpack(output, pack(output, [y]))[0] * weight[i % cols] : y;
        });
        const what = `rms_norm ${input.name} to ${output.name} ${rows}x${cols} on ${backend.name}`;
        assertClose(unpack(output, out), expected, bound(output), what);
      }
    }
  }
});

kernelTest("rms_norm multiplies in the dtype of its output, as the composite does", (backend) => {
  const cols = 600;
  const x = random(float32, cols, 5);
  const weight = random(float32, cols, 6);
  for (const output of [bfloat16, float16]) {
    const out = pack(output, new Float64Array(cols));
    runKernel(backend, "rms_norm", {
      spec: { DTYPE_X: float32.code, DTYPE_WEIGHT: float32.code, DTYPE_OUT: output.code, HAS_WEIGHT: 1 },
      push: { rows: 1, cols, eps: 0 },
      buffers: { x: pack(float32, x), weight: pack(float32, weight), out },
      grid: 1,
    });
    const rounded = (v: number): number => unpack(output, pack(output, [v]))[0];
    const rms = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / cols);
    const expected = x.map((v, i) => rounded(rounded(v / rms) * rounded(weight[i])));
    const others = unpack(output, out).filter((v, i) => v !== expected[i]).length;
    assert(others < cols / 50, `${others} of ${cols} elements differ`); // those whose quotient lies between two numbers
  }
});

// ---- layer_norm -------------------------------------------------------------------------------------------------------

kernelTest("layer_norm subtracts means and divides by deviations, with or without a weight and a bias", (backend) => {
  const [rows, cols, eps] = [3, 70, 1e-5];
  const [x, weight, bias] = [rows * cols, cols, cols].map((n, seed) => random(float32, n, seed));
  for (const [hasWeight, hasBias] of [[true, true], [false, true], [true, false], [false, false]]) {
    const out = new Float32Array(rows * cols);
    runKernel(backend, "layer_norm", {
      spec: {
        DTYPE_X: float32.code,
        DTYPE_WEIGHT: float32.code,
        DTYPE_BIAS: float32.code,
        DTYPE_OUT: float32.code,
        HAS_WEIGHT: Number(hasWeight),
        HAS_BIAS: Number(hasBias),
      },
      push: { rows, cols, eps },
      buffers: {
        x: pack(float32, x),
        ...(hasWeight ? { weight: pack(float32, weight) } : {}),
        ...(hasBias ? { bias: pack(float32, bias) } : {}),
        out,
      },
      grid: rows,
    });
    const expected = x.map((v, i) => {
      const row = x.slice(i - i % cols, i - i % cols + cols);
      const mean = row.reduce((a, b) => a + b, 0) / cols;
      const variance = row.reduce((a, b) => a + (b - mean) ** 2, 0) / cols;
      const y = (v - mean) / Math.sqrt(variance + eps);
      return y * (hasWeight ? weight[i % cols] : 1) + (hasBias ? bias[i % cols] : 0);
    });
    const what = `layer_norm, weight ${hasWeight}, bias ${hasBias}, on ${backend.name}`;
    assertClose(unpack(float32, out), expected, bound(float32), what);
  }
}, ["layer_norm"]);

// ---- rope -------------------------------------------------------------------------------------------------------------

interface Rope {
  readonly shape: readonly [batch: number, heads: number, seq: number, dims: number];
  readonly ropeDims: number;
  readonly base?: number;
  readonly freqs?: readonly number[];
  readonly traditional?: boolean;
  readonly scale?: number;
  /** One for all, or one a batch row. */
  readonly offset: number | readonly number[];
  /** Where the offset lies. */
  readonly mode?: number;
  readonly dtype?: Dtype;
  /** x in memory is (batch, seq, heads, dims). */
  readonly swapped?: boolean;
}

function runRope(backend: Backend, x: number[], r: Rope): number[] {
  const [batch, heads, seq, dims] = r.shape;
  const dtype = r.dtype ?? float32;
  const out = pack(dtype, new Float64Array(x.length));
  const offsets = typeof r.offset === "number" ? [r.offset] : r.offset;
  const mode = r.mode ?? K.OFFSET_PUSH;
  runKernel(backend, "rope", {
    spec: {
      DTYPE: dtype.code,
      TRADITIONAL: Number(r.traditional ?? false),
      OFFSET_MODE: mode,
      HAS_FREQS: Number(r.freqs !== undefined),
    },
    push: {
      batch,
      heads,
      seq,
      dims,
      rope_dims: r.ropeDims,
      x_strides: r.swapped ? [seq * heads * dims, dims, heads * dims] : [heads * seq * dims, seq * dims, dims],
      offset: mode === K.OFFSET_PUSH ? offsets[0] : 0,
      scale: r.scale ?? 1,
      log2_base: Math.log2(r.base ?? 1),
    },
    buffers: {
      x: pack(dtype, x),
      ...(mode === K.OFFSET_PUSH ? {} : { offset: Int32Array.from(offsets) }),
      ...(r.freqs ? { freqs: Float32Array.from(r.freqs) } : {}),
      out,
    },
    items: batch * heads * seq * (dims - r.ropeDims / 2),
  });
  return unpack(dtype, out);
}

function checkRope(backend: Backend, r: Rope): void {
  const [batch, heads, seq, dims] = r.shape;
  const x = random(r.dtype ?? float32, batch * heads * seq * dims, dims + seq);
  const expected: number[] = [];
  const half = r.ropeDims / 2;
  for (let b = 0; b < batch; b++) {
    const offset = typeof r.offset === "number" ? r.offset : r.offset[b];
    for (let h = 0; h < heads; h++) {
      for (let t = 0; t < seq; t++) {
        const from = (r.swapped ? (b * seq + t) * heads + h : (b * heads + h) * seq + t) * dims;
        const row = x.slice(from, from + dims);
        for (let i = 0; i < half; i++) {
          const frequency = r.freqs ? 1 / Math.fround(r.freqs[i]) : r.base! ** (-2 * i / r.ropeDims);
          const angle = (t + offset) * Math.fround(r.scale ?? 1) * frequency;
          const [p, q] = r.traditional ? [2 * i, 2 * i + 1] : [i, i + half];
          const [x1, x2] = [row[p], row[q]];
          row[p] = x1 * Math.cos(angle) - x2 * Math.sin(angle);
          row[q] = x1 * Math.sin(angle) + x2 * Math.cos(angle);
        }
        expected.push(...row);
      }
    }
  }
  assertClose(
    runRope(backend, x, r),
    expected,
    bound(r.dtype ?? float32),
    `rope ${JSON.stringify(r)} on ${backend.name}`,
  );
}

kernelTest("rope gives MLX's values", (backend) => {
  const golden = (r: Rope, n: number, expected: number[]): void =>
    assertClose(runRope(backend, Array.from({ length: n }, (_, i) => i), r), expected, 1e-10, JSON.stringify(r));
  golden({ shape: [1, 1, 2, 4], ropeDims: 4, base: 1e6, offset: 3 }, 8, [
    ...[-0.28224, 0.990996, -1.97998, 3.00299],
    ...[1.92624, 4.97196, -6.94907, 7.01994],
  ]);
  golden({ shape: [1, 1, 2, 6], ropeDims: 4, traditional: true, base: 10000, scale: 0.5, offset: 7 }, 12, [
    ...[0.3507832, -0.9364567, 1.8937966, 3.0681484, 4, 5],
    ...[1.3757558, -9.1163197, 7.6336966, 9.3127155, 10, 11],
  ]);
  golden({ shape: [1, 1, 2, 6], ropeDims: 6, freqs: [1, 3, 10], offset: 100 }, 12, [
    ...[1.519097, -4.101829, 1.0419624, 2.5869565, -0.4183281, -5.2833996],
    ...[1.2837968, -12.177324, 0.6312366, 10.740198, -0.8442526, -13.586815],
  ]);
});

kernelTest("rope stays exact at far positions", (backend) => {
  for (const offset of [0, 1023, 32767, 40953]) {
    checkRope(backend, { shape: [1, 2, 7, 128], ropeDims: 128, base: 1e6, offset });
    checkRope(backend, { shape: [1, 1, 7, 64], ropeDims: 64, base: 10000, offset, scale: 1.7 });
  }
});

kernelTest("rope takes partial, traditional, scaled and swapped inputs", (backend) => {
  for (const traditional of [false, true]) {
    checkRope(backend, { shape: [2, 3, 5, 17], ropeDims: 8, base: 10000, offset: 11, traditional });
    checkRope(backend, {
      shape: [1, 3, 4, 80],
      ropeDims: 80,
      base: 10000,
      offset: 0,
      scale: 0.25,
      traditional,
      swapped: true,
    });
    checkRope(backend, { shape: [1, 1, 3, 2], ropeDims: 2, base: 10000, offset: -9, scale: -1, traditional });
    for (const dtype of [float16, bfloat16]) {
      checkRope(backend, { shape: [1, 2, 3, 32], ropeDims: 16, base: 1e6, offset: 500, traditional, dtype });
    }
    const freqs = Array.from({ length: 8 }, (_, i) => 1.5 * 3 ** i);
    checkRope(backend, {
      shape: [2, 2, 3, 16],
      ropeDims: 16,
      freqs,
      offset: [900, 4],
      mode: K.OFFSET_BATCH,
      traditional,
    });
    checkRope(backend, {
      shape: [2, 1, 1, 16],
      ropeDims: 16,
      base: 500000,
      offset: 77,
      mode: K.OFFSET_SCALAR,
      traditional,
    });
  }
});
