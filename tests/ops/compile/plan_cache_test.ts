/**
 * Graphs like one that was evaluated before reuse its cached Plan. They compute with their own values and constants,
 * and overwrite nothing that another array still reads. The expected values are those of plain numbers.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";

mx.devices(); // opens the Vulkan library outside of any test

function evaluated(...values: number[]): mx.Tensor {
  const x = mx.array(values);
  mx.eval(x);
  return x;
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  const test = (name: string, fn: () => void): void =>
    Deno.test(`${name} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(fn);
    });

  test("a remembered Plan computes with the arrays that it is given", () => {
    for (let i = 0; i < 5; i++) {
      const a = evaluated(i, 2, 3), b = mx.array([10, 20 * i, 30]); // one evaluated, one uploaded on the way
      assertEquals(mx.subtract(mx.multiply(a, b), a).tolist(), [9 * i, 40 * i - 2, 87]);
      assertEquals(mx.sum(mx.add(a, a)).item(), 2 * i + 10);
    }
  });

  test("constants are told apart, also 0 and -0", () => {
    const x = evaluated(1, 2);
    for (const c of [0, -0, 0, 1, -0, NaN, Infinity, NaN]) {
      const y = mx.divide(1, mx.multiply(x, c));
      const expected = 1 / c;
      assertEquals(y.tolist(), [expected, expected / 2]);
    }
  });

  test("views are told apart by where they begin, their strides and whose memory they lie in", () => {
    for (let round = 0; round < 2; round++) {
      const base = evaluated(0, 1, 2, 3, 4, 5, 6, 7);
      for (let from = 0; from < 4; from++) {
        const view = base.index(mx.Slice(from, from + 4));
        const backwards = mx.flip(view);
        mx.eval(view, backwards);
        assertEquals(mx.add(view, view).tolist(), [0, 2, 4, 6].map((v) => v + 2 * from));
        assertEquals(mx.add(view, backwards).tolist(), Array(4).fill(3 + 2 * from));
        assertEquals(mx.add(view, evaluated(1, 1, 1, 1)).tolist(), [1, 2, 3, 4].map((v) => v + from));
        assertEquals(mx.add(view, base.index(mx.Slice(4, 8))).tolist(), [4, 6, 8, 10].map((v) => v + from));
      }
      assertEquals(base.tolist(), [0, 1, 2, 3, 4, 5, 6, 7]);
      const other = evaluated(10, 20, 30, 40, 50, 60, 70, 80);
      const halves = [base, other].map((x) => [x.index(mx.Slice(0, 4)), x.index(mx.Slice(4, 8))]);
      mx.eval(halves);
      const [[a, b], [c, d]] = halves;
      assertEquals(mx.add(mx.add(a, b), c).tolist(), [14, 26, 38, 50]);
      assertEquals(mx.add(mx.add(a, d), c).tolist(), [60, 81, 102, 123]);
    }
  });

  test("what an array still shows is not overwritten, though the Plan of a forgotten one was", () => {
    for (let round = 0; round < 4; round++) {
      // The leaf goes with the graph: its memory may become that of the result.
      const y = mx.tidy(() => mx.add(mx.multiply(evaluated(1, 2, 3, 4), 2), round));
      assertEquals(y.tolist(), [2, 4, 6, 8].map((v) => v + round));
      const kept = evaluated(1, 2, 3, 4);
      assertEquals(mx.add(mx.multiply(kept, 2), round).tolist(), [2, 4, 6, 8].map((v) => v + round));
      assertEquals(kept.tolist(), [1, 2, 3, 4]);
      // A view of it stays.
      const [view, z] = mx.tidy(() => {
        const x = evaluated(1, 2, 3, 4);
        const tail = x.index(mx.Slice(1, 4));
        mx.eval(tail);
        return [tail, mx.add(mx.multiply(x, 2), round)];
      });
      assertEquals(z.tolist(), [2, 4, 6, 8].map((v) => v + round));
      assertEquals(view.tolist(), [2, 3, 4]);
      // Nodes between them are evaluated later.
      const middle = mx.multiply(kept, 3), last = mx.add(middle, 1);
      mx.eval(last);
      if (round % 2) middle.dispose();
      else assertEquals(middle.tolist(), [3, 6, 9, 12]);
      assertEquals(last.tolist(), [4, 7, 10, 13]);
    }
  });

  test("dtypes, shapes, attributes and outputs are told apart", () => {
    for (let round = 0; round < 2; round++) {
      const x = evaluated(1, 2, 3, 4, 5, 6);
      assertEquals(mx.sum(x.reshape(2, 3), 0).tolist(), [5, 7, 9]);
      assertEquals(mx.sum(x.reshape(2, 3), 1).tolist(), [6, 15]);
      assertEquals(mx.sum(x.reshape(3, 2), 1).tolist(), [3, 7, 11]);
      assertEquals(mx.transpose(x.reshape(2, 3)).tolist(), [[1, 4], [2, 5], [3, 6]]);
      assertEquals(mx.add(x.astype(mx.int32), 1).dtype, mx.int32);
      assertEquals(mx.add(x.astype(mx.float16), 1).tolist(), [2, 3, 4, 5, 6, 7]);
      const s = mx.add(x, 1), t = mx.multiply(s, 2);
      if (round) mx.eval(s, t);
      else mx.eval(t, s);
      assertEquals([s.tolist(), t.tolist()], [[2, 3, 4, 5, 6, 7], [4, 6, 8, 10, 12, 14]]);
      assertEquals(mx.cumsum(x).tolist(), [1, 3, 6, 10, 15, 21]);
      assertEquals(mx.cumsum(x, 0, { reverse: true }).tolist(), [21, 20, 18, 15, 11, 6]);
    }
  });

  Deno.test(`profiles of remembered Plans tell the same, fused and not, on ${device}`, async () => {
    mx.setDefaultDevice(device);
    using x = mx.ones([4]);
    mx.eval(x);
    const calls = async (fuse: boolean): Promise<number[]> => {
      using _options = withOptions({ fuse });
      const { kernels } = await mx.profile(() => mx.tidy(() => mx.eval(mx.sqrt(mx.add(mx.multiply(x, 3), 1)))));
      return kernels.map((kernel) => kernel.calls);
    };
    const all = [await calls(true), await calls(false), await calls(true), await calls(false)];
    const [fused, apart] = all.map((counts) => counts.reduce((a, b) => a + b));
    assert(fused < apart);
    assertEquals(all.slice(2), all.slice(0, 2));
  });

  test("graphs far deeper than the stack are evaluated", () => {
    mx.tidy(() => {
      let x = mx.array([0.5]);
      for (let i = 0; i < 20_000; i++) x = mx.negative(x);
      assertEquals(x.tolist(), [0.5]);
    });
  });

  test("hundreds of different graphs leave no more behind than their results", () => {
    const before = getBackend().liveObjects();
    mx.tidy(() => {
      for (let i = 1; i <= 300; i++) assertEquals(mx.sum(mx.add(mx.ones([i]), i)).item(), i + i * i);
    });
    assertEquals(getBackend().liveObjects(), before);
  });
}
