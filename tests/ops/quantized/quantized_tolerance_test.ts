/**
 * Products with quantized matrices within the tolerance of MLX's own tests. It is 1e-3 for normal numbers in x and w,
 * whichever kernel a device takes for the number of rows. The expected products are those of the matrix that
 * `dequantize` gives, in float64.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

const TOLERANCE = 1e-3;
const COLUMNS = 512;
const OUTPUTS = 33;

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`quantizedMatmul() is within MLX's tolerance on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const bits of [1, 2, 3, 4, 5, 6, 8]) {
      for (const groupSize of bits === 4 ? [64, 128] : [bits === 8 ? 64 : 32]) {
        mx.tidy(() => {
          const w = mx.random.normal([OUTPUTS, COLUMNS], mx.float32, 0, 1, mx.random.key(bits));
          const parts = mx.quantize(w, groupSize, bits);
          mx.eval(parts);
          const matrix = mx.dequantize(...parts, groupSize, bits).toTypedArray() as Float32Array;
          for (const rows of bits === 4 ? [1, 3, 10, 16, 40] : [1, 10]) {
            const x = mx.random.normal([rows, COLUMNS], mx.float32, 0, 1, mx.random.key(rows));
            const found = mx.quantizedMatmul(x, ...parts, true, groupSize, bits).toTypedArray() as Float32Array;
            const worst = worstError(found, x.toTypedArray() as Float32Array, matrix);
            assert(worst < TOLERANCE, `${bits} bits in groups of ${groupSize}, ${rows} rows: ${worst}`);
          }
        });
      }
    }
  });

  Deno.test(`a row keeps its products whatever its size on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const w = mx.random.normal([OUTPUTS, COLUMNS], mx.float32, 0, 1, mx.random.key(1));
      const parts = mx.quantize(w, 64, 4);
      const x = mx.random.normal([1, COLUMNS], mx.float32, 0, 1, mx.random.key(2));
      const one = mx.quantizedMatmul(x, ...parts, true, 64, 4).toTypedArray() as Float32Array;
      const most = Math.max(...one.map(Math.abs));
      for (const size of [1e-20, 1e-6, 1e6, 1e20]) {
        const scaled = mx.quantizedMatmul(mx.multiply(x, size), ...parts, true, 64, 4).toTypedArray() as Float32Array;
        const worst = Math.max(...scaled.map((y, i) => Math.abs(y / size - one[i])));
        assert(worst < 1e-5 * most, `times ${size}: ${worst}`);
      }
    });
  });
}

/** The largest distance of x @ matrix.T from the products found. */
function worstError(found: Float32Array, x: Float32Array, matrix: Float32Array): number {
  let worst = 0;
  found.forEach((y, at) => {
    const [row, output] = [Math.floor(at / OUTPUTS) * COLUMNS, at % OUTPUTS * COLUMNS];
    let sum = 0;
    for (let k = 0; k < COLUMNS; k++) sum += x[row + k] * matrix[output + k];
    worst = Math.max(worst, Math.abs(y - sum));
  });
  return worst;
}
