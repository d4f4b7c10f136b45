/**
 * Convolutions and gathered products that are larger than the blocks and tiles of their kernels. They are exact: sums
 * of small whole numbers have no rounding, in whatever order. And what they refuse.
 */

import { assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { numbersOf } from "../../support/oracles/compare.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator, size } from "../../support/oracles/oracle.ts";

const numbers = (x: mx.Tensor): number[] => Array.from(numbersOf(x));

/** Whole numbers from -2 to 2. */
function wholes(count: number, seed: number): Float32Array {
  const next = generator(seed);
  return Float32Array.from({ length: count }, () => Math.floor(5 * next()) - 2);
}

/** conv2d of images (n, h, w, c) with stride 1 and the same padding everywhere, an output at a time. */
function convolved(
  x: Float32Array,
  w: Float32Array,
  [n, height, width, c]: readonly number[],
  [filters, rows, columns, depth]: readonly number[],
  pad: number,
  flip: boolean,
): number[] {
  const [high, wide] = [height + 2 * pad - rows + 1, width + 2 * pad - columns + 1];
  const groups = c / depth;
  const out: number[] = [];
  for (let at = 0; at < n * high * wide; at++) {
    const [image, y0, x0] = [Math.floor(at / high / wide), Math.floor(at / wide) % high - pad, at % wide - pad];
    for (let f = 0; f < filters; f++) {
      const first = Math.floor(f / (filters / groups)) * depth;
      let total = 0;
      for (let r = 0; r < rows; r++) {
        for (let q = 0; q < columns; q++) {
          const [y, z] = [y0 + r, x0 + q];
          if (y < 0 || y >= height || z < 0 || z >= width) continue;
          const tap = flip ? (rows - 1 - r) * columns + columns - 1 - q : r * columns + q;
          const [pixel, weight] = [((image * height + y) * width + z) * c + first, (f * rows * columns + tap) * depth];
          for (let k = 0; k < depth; k++) total += x[pixel + k] * w[weight + k];
        }
      }
      out.push(total + 0); // no -0
    }
  }
  return out;
}

const CASES = [
  { what: "more rows, filters and depths than a block", x: [2, 13, 17, 40], w: [200, 3, 3, 40], pad: 0, flip: false },
  { what: "channels that are no multiple of 8, flipped", x: [1, 15, 13, 37], w: [130, 3, 3, 37], pad: 1, flip: true },
  { what: "groups of a tile each", x: [2, 9, 9, 96], w: [96, 3, 3, 48], pad: 1, flip: false },
  { what: "depthwise with more taps than are kept", x: [1, 12, 11, 40], w: [40, 9, 9, 1], pad: 4, flip: true },
] as const;

for (const device of testDevices()) {
  for (const { what, x, w, pad, flip } of CASES) {
    Deno.test(`conv2d of ${what} is exact on ${device}`, () => {
      const [values, weights] = [x, w].map((shape, i) => wholes(size(shape), i + 1));
      const found = mx.withDevice(device, () => {
        const [a, b] = [mx.array(values).reshape(...x), mx.array(weights).reshape(...w)];
        return mx.add(mx.convGeneral(a, b, 1, pad, 1, 1, x[3] / w[3], flip), 0).toTypedArray();
      });
      assertEquals(Array.from(found), convolved(values, weights, x, w, pad, flip));
    });
  }

  Deno.test(`products of more than a block are exact on ${device}`, () => {
    const [m, k, n] = [301, 523, 203];
    const [left, right] = [wholes(2 * m * k, 3), wholes(2 * k * n, 4)];
    const product = (i: number, j: number, from: number, to: number): number[] => {
      const out: number[] = [];
      for (let r = 0; r < m; r++) {
        for (let c = 0; c < n; c++) {
          let total = 0;
          for (let t = from; t < to; t++) total += left[(i * m + r) * k + t] * right[(j * k + t) * n + c];
          out.push(total + 0);
        }
      }
      return out;
    };
    mx.withDevice(device, () => {
      const [a, b] = [mx.array(left).reshape(2, m, k), mx.array(right).reshape(2, k, n)];
      const swapped = (t: mx.Tensor): mx.Tensor => mx.swapaxes(mx.contiguous(mx.swapaxes(t, 1, 2)), 1, 2);
      const chosen = mx.gatherMm(swapped(a), b, null, mx.array([1, 0], mx.uint32));
      assertEquals(numbers(mx.add(chosen, 0)), [...product(0, 1, 0, k), ...product(1, 0, 0, k)]);
      const segments = mx.array([[7, 400], [400, 523]], mx.uint32);
      const parts = mx.segmentedMm(a.index(0), swapped(b).index(1), segments);
      assertEquals(numbers(mx.add(parts, 0)), [...product(0, 1, 7, 400), ...product(0, 1, 400, k)]);
      assertEquals(numbers(mx.add(mx.matmul(swapped(a), swapped(b)), 0)), [
        ...product(0, 0, 0, k),
        ...product(1, 1, 0, k),
      ]);
    });
  });
}

Deno.test("convolutions and gathered products say what they refuse", () => {
  const [x, w] = [mx.zeros([2, 5, 5, 4]), mx.zeros([6, 3, 3, 4])];
  const refused: readonly (readonly [() => unknown, string])[] = [
    [() => mx.conv2d(mx.zeros([2, 5, 4]), w), "conv2d() expected an input (N, …, C) with 2 spatial axes"],
    [() => mx.conv2d(x, mx.zeros([6, 3, 4])), "conv2d() expected weights (O, …, C) with as many axes"],
    [() => mx.conv2d(x, mx.zeros([6, 3, 3, 3])), "expected the last axis of the weights to be the input's channels"],
    [() => mx.conv2d(x, w, 1, 0, 1, 4), "conv2d() cannot cut the channels"],
    [() => mx.conv2d(x, w, 0), "conv2d() expected stride to be positive"],
    [() => mx.conv2d(x, w, [1]), "conv2d() expected stride to be a number or a list of 2: found 1 numbers"],
    [() => mx.conv2d(x, mx.zeros([6, 7, 3, 4])), "expected an input that is no smaller than the weights along axis 1"],
    [() => mx.conv2d(mx.zeros([1, 5, 5, 4], mx.int32), w), "conv2d() takes float arrays only: found int32"],
    [() => mx.convolve([1, 2], [1], "some" as "same"), 'convolve() expected mode to be "full", "same" or "valid"'],
    [
      () => mx.gatherMm(mx.zeros([2, 3, 3]), mx.zeros([2, 3, 3]), mx.array([0.5])),
      "gatherMm() expected integer indices",
    ],
    [() => mx.segmentedMm(mx.zeros([2, 3]), mx.zeros([3, 2]), mx.zeros([3], mx.uint32)), "expected segments of shape"],
    [() => mx.blockMaskedMm(mx.zeros([2, 3]), mx.zeros([3, 2]), 16), "expected blockSize to be one of 32, 64"],
    [
      () => mx.blockMaskedMm(mx.zeros([2, 3]), mx.zeros([3, 2]), 32, mx.ones([2, 1])),
      "expected maskOut of shape (1, 1)",
    ],
  ];
  for (const [run, message] of refused) assertThrows(run, Error, message);
});
