/** Every op of the case table on every device, with fusion and without, against float64 oracles. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { cases } from "./cases.ts";
import type { Case, Input } from "./cases/case.ts";
import { testDevices } from "./devices.ts";
import { bfloat16, type Dense, generator, nmse, size } from "./oracle.ts";

/** Random numbers of an input as the dtype holds them, and the array that shows them in the wanted layout. */
function make(input: Input, next: () => number): { tensor: mx.Tensor; dense: Dense } {
  const { shape, dtype, low = -4, high = 4 } = input;
  const whole = !dtype.startsWith("float") && dtype !== "bfloat16";
  const values = Float64Array.from({ length: size(shape) }, () => {
    const v = low + (high - low) * next();
    return whole ? Math.floor(v) : v;
  });
  // Rounded to the dtype by plain JavaScript, so that the oracle starts from what the array holds.
  const rounded = values.map((v) =>
    dtype === "float16"
      ? Math.f16round(v)
      : dtype === "bfloat16"
      ? bfloat16(v)
      : dtype === "float32"
      ? Math.fround(v)
      : v
  );
  const dense = { shape, data: rounded };
  const flat = (data: ArrayLike<number>, of: readonly number[]): mx.Tensor =>
    mx.reshape(mx.array(Float32Array.from(data)).astype(mx[dtype]), [...of]);
  const rank = shape.length;
  if (input.layout === "transposed" && rank >= 2) {
    const swapped = [...shape.slice(0, -2), shape[rank - 1], shape[rank - 2]];
    const data = new Float64Array(rounded.length);
    const [r, c] = [shape[rank - 2], shape[rank - 1]];
    rounded.forEach((v, i) => data[Math.floor(i / (r * c)) * r * c + (i % c) * r + Math.floor(i / c) % r] = v);
    const stored = flat(data, swapped);
    mx.eval(stored);
    return { tensor: mx.swapaxes(stored, -1, -2), dense };
  }
  if (input.layout === "strided") {
    const data = new Float64Array(rounded.length * 2).fill(99);
    rounded.forEach((v, i) => data[2 * i] = v);
    const stored = flat(data, [...shape.slice(0, -1), shape[rank - 1] * 2]);
    mx.eval(stored);
    return { tensor: stored.index("...", mx.Slice(null, null, 2)), dense };
  }
  if (input.layout === "reversed") {
    const stored = flat(rounded.toReversed(), shape);
    mx.eval(stored);
    return { tensor: stored.index(...shape.map(() => mx.Slice(null, null, -1))), dense };
  }
  return { tensor: flat(rounded, shape), dense };
}

function check(c: Case, seed: number): void {
  const next = generator(seed);
  mx.tidy(() => {
    const inputs = c.inputs.map((input) => make(input, next));
    const result = c.run(mx, inputs.map((i) => i.tensor));
    const expected = c.oracle(inputs.map((i) => i.dense));
    assertEquals(result.shape, [...expected.shape], `${c.op} ${c.what}: shape`);
    const error = nmse(result.toTypedArray(), expected.data);
    assert(error <= c.tolerance, `${c.op} ${c.what}: NMSE ${error.toExponential(2)} > ${c.tolerance.toExponential(0)}`);
  });
}

const byOp = Map.groupBy([...cases()], (c) => c.op);

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1]))); // opened outside the tests, which count resources
  for (const [op, list] of byOp) {
    Deno.test(`${op}() agrees with its oracle on ${device}`, () => {
      mx.setDefaultDevice(device);
      const failures: string[] = [];
      list.forEach((c, i) => {
        for (const fuse of [true, false]) {
          mx.setFusion(fuse);
          try {
            check(c, i + 1);
          } catch (error) {
            failures.push(`${fuse ? "" : "(not fused) "}${c.op} ${c.what}: ${(error as Error).message}`);
          } finally {
            mx.setFusion(true);
          }
        }
      });
      assertEquals(failures, []);
    });
  }
}
