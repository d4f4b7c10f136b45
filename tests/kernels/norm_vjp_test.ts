/** Kernels norm_vjp and norm_weight_vjp on every device, against plain float64 loops. */

import { bfloat16, type Dtype, float16, float32 } from "../../src/graph/dtype.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { assertClose, bound, pack, random, unpack } from "../support/oracles/kernel_values.ts";

const EPS = 1e-5;
/** Of x, of the weight and of the cotangent. */
const TYPES: readonly (readonly [Dtype, Dtype, Dtype])[] = [
  [float32, float32, float32],
  [float16, float16, float16],
  [bfloat16, float32, float32],
];
const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length;

/** A row after its norm, and 1 / sqrt(mean of squares + eps). */
function normal(row: readonly number[], centered: boolean): { n: number[]; scale: number } {
  const shift = centered ? mean(row) : 0;
  const scale = 1 / Math.sqrt(mean(row.map((v) => (v - shift) ** 2)) + EPS);
  return { n: row.map((v) => (v - shift) * scale), scale };
}

const rowsOf = (x: readonly number[], cols: number): number[][] =>
  Array.from({ length: x.length / cols }, (_, r) => x.slice(r * cols, r * cols + cols));

kernelTest("norm_vjp is the gradient of rows behind their norm", (backend) => {
  for (const [X, W, C] of TYPES) {
    // Rows of one, of odd sizes, and longer than what a workgroup keeps in registers.
    for (const [rows, cols] of [[1, 1], [3, 5], [5, 64], [2, 1032], [1, 1031]]) {
      for (const centered of [false, true]) {
        for (const hasWeight of [false, true]) {
          const x = random(X, rows * cols, cols);
          const c = random(C, rows * cols, cols + 1);
          const weight = random(W, cols, cols + 2);
          const out = pack(X, new Float64Array(rows * cols));
          runKernel(backend, "norm_vjp", {
            spec: {
              DTYPE_X: X.code,
              DTYPE_WEIGHT: W.code,
              DTYPE_C: C.code,
              HAS_WEIGHT: Number(hasWeight),
              CENTERED: Number(centered),
            },
            push: { rows, cols, eps: EPS },
            buffers: { x: pack(X, x), ...(hasWeight && { weight: pack(W, weight) }), cotangent: pack(C, c), out },
            grid: rows,
          });
          const cotangents = rowsOf(c, cols);
          const expected = rowsOf(x, cols).flatMap((row, r) => {
            const { n, scale } = normal(row, centered);
            const g = cotangents[r].map((v, i) => hasWeight ? v * weight[i] : v);
            const along = mean(g.map((v, i) => v * n[i]));
            const shift = centered ? mean(g) : 0;
            return g.map((v, i) => scale * (v - shift - n[i] * along));
          });
          // A row of one loses all digits: what is left of it is 0.
          const found = unpack(X, out);
          const what = `norm_vjp ${X.name} ${rows}x${cols}, ${centered ? "centred" : "not centred"} on ${backend.name}`;
          if (cols === 1) assertClose(found.map((v) => v + 1), expected.map((v) => v + 1), 1e-5, what);
          else assertClose(found, expected, bound(X), what);
        }
      }
    }
  }
});

kernelTest("norm_weight_vjp sums over the rows of each part", (backend) => {
  for (const [X, , C] of TYPES) {
    for (const [rows, cols, parts] of [[1, 1, 1], [7, 5, 1], [37, 130, 3], [40, 33, 17], [3, 1100, 2]]) {
      for (const centered of [false, true]) {
        const x = random(X, rows * cols, cols);
        const c = random(C, rows * cols, cols + 1);
        const out = new Float32Array(parts * cols);
        runKernel(backend, "norm_weight_vjp", {
          spec: { DTYPE_X: X.code, DTYPE_C: C.code, DTYPE_OUT: float32.code, CENTERED: Number(centered) },
          push: { rows, cols, parts, eps: EPS },
          buffers: { x: pack(X, x), cotangent: pack(C, c), out },
          grid: parts * Math.ceil(cols / (16 * 64)),
        });
        const each = Math.ceil(rows / parts);
        const cotangents = rowsOf(c, cols);
        const products = rowsOf(x, cols).map((row, r) => normal(row, centered).n.map((v, i) => v * cotangents[r][i]));
        const expected = Array.from({ length: parts * cols }, (_, at) => {
          const part = products.slice(Math.floor(at / cols) * each, Math.floor(at / cols) * each + each);
          return part.reduce((total, row) => total + row[at % cols], 0);
        });
        const what = `norm_weight_vjp ${X.name} ${rows}x${cols} in ${parts} on ${backend.name}`;
        assertClose([...out], expected, 1e-7, what);
      }
    }
  }
});
