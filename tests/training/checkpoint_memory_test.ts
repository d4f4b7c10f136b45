/**
 * Memory of a step through a deep model. Memory that is kept for the derivative grows with the depth. With checkpoint() around
 * segments of √depth layers it grows with the square root of the depth. Held to in activations, of which a layer has
 * two.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

const WIDTH = 8, ROWS = 2048;
const ACTIVATION = 4 * WIDTH * ROWS;

type Layers = readonly mx.AnyTensor[];

function layers(h: mx.AnyTensor, weights: Layers): mx.AnyTensor {
  return weights.reduce((h, w) => mx.tanh(mx.matmul(h, w)), h);
}

/** Peak memory of a step, in activations, and the loss with the sums of gradients. */
function step(
  depth: number,
  segment: (h: mx.AnyTensor, weights: Layers) => mx.AnyTensor,
  compiled: boolean,
): { peak: number; numbers: number[] } {
  const weights = Array.from(
    { length: depth },
    (_, i) => mx.multiply(mx.random.normal([WIDTH, WIDTH], mx.float32, 0, 1, mx.random.key(i)), 0.5),
  );
  const x = mx.random.normal([ROWS, WIDTH], mx.float32, 0, 1, mx.random.key(depth));
  mx.eval(weights, x);
  const size = Math.sqrt(depth);
  const loss = (weights: mx.AnyTensor[], x: mx.AnyTensor): mx.AnyTensor => {
    let h = x;
    for (let i = 0; i < depth; i += size) h = segment(h, weights.slice(i, i + size));
    return mx.mean(mx.square(h));
  };
  const plain = (weights: mx.AnyTensor[], x: mx.AnyTensor): mx.AnyTensor[] => {
    const [value, gradients] = mx.valueAndGrad(loss)(weights, x);
    return [value, ...gradients as mx.AnyTensor[]];
  };
  using fn = compiled ? mx.compile(plain) : Object.assign(plain, { [Symbol.dispose]: () => {} });
  const before = mx.getActiveMemory();
  mx.resetPeakMemory();
  return mx.tidy(() => {
    const found = fn(weights, x);
    mx.eval(found);
    const peak = (mx.getPeakMemory() - before) / ACTIVATION;
    const numbers = found.map((array) => mx.sum(mx.abs(array)).item() as number);
    mx.dispose(weights, x);
    return { peak, numbers };
  });
}

for (const device of testDevices()) {
  for (const compiled of [false, true]) {
    const what = `a ${compiled ? "compiled " : ""}step`;
    Deno.test(`memory of ${what} with checkpoint() grows with the root of the depth on ${device}`, () => {
      mx.setDefaultDevice(device);
      // What ops take while they run: 9 activations on an H200.
      const scratch = mx.deviceInfo(device).type === "discrete" ? 12 : 4;
      const found = [16, 64, 256].map((depth) => {
        const without = step(depth, layers, compiled), within = step(depth, mx.checkpoint(layers), compiled);
        assertEquals(within.numbers, without.numbers); // the same sums in the same order
        return { depth, without: without.peak, within: within.peak };
      });
      for (const { depth, without, within } of found) {
        const text = `${JSON.stringify(found)}`;
        // One activation of each layer is kept without; with it those between segments and those of a segment.
        assert(without > depth && without < 1.2 * depth + 8, text);
        assert(within < 3 * Math.sqrt(depth) + scratch, text);
      }
      // Sixteen times as deep: four times the memory, not sixteen.
      assert(found[2].within < 5 * found[0].within, JSON.stringify(found));
      assert(found[2].without > 12 * found[0].without, JSON.stringify(found));
    });
  }
}
