/**
 * Updates in place, of evaluated arrays in every layout. They write the elements that they name and no others, whether
 * their base may be overwritten or shares addresses among its elements. The expected values are those of the same
 * update on plain numbers.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { overlaps, type Shape, sizeOf } from "../../../src/graph/shape.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Evaluated arrays of shape (3, 4), whatever memory they lie in. */
const LAYOUTS: Record<string, () => mx.Tensor> = {
  "row-major": () => mx.contiguous(line(12).reshape(3, 4)),
  transposed: () => line(12).reshape(4, 3).T,
  reversed: () => mx.flip(line(12).reshape(3, 4)),
  "every other element": () => line(24).reshape(3, 8).index("...", mx.Slice(null, null, 2)),
  "one value": () => mx.broadcastTo(mx.add(line(1), 1), [3, 4]),
  "one row": () => mx.broadcastTo(line(4), [3, 4]),
  "one column": () => mx.broadcastTo(line(3).reshape(3, 1), [3, 4]),
  windows: () => mx.asStrided(line(6), [3, 4], [1, 1]),
  "windows side by side": () => mx.asStrided(line(20), [3, 4], [5, 1]),
  "axes of one element": () =>
    mx.broadcastTo(mx.asStrided(line(12), [1, 3, 1, 4, 1], [0, 4, 7, 1, 0]), [1, 3, 1, 4, 1]),
};

function line(n: number): mx.Tensor {
  return mx.arange(n).astype(mx.float32);
}

/** The layout, evaluated; nothing else holds its memory. */
function evaluated(layout: string): { base: mx.Tensor; values: number[][] } {
  const made = LAYOUTS[layout]();
  mx.eval(made);
  const base = made.reshape(3, 4);
  mx.eval(base);
  if (base !== made) made.dispose();
  return { base, values: base.tolist() as number[][] };
}

type Update = readonly [
  name: string,
  run: (x: mx.Tensor) => mx.Tensor,
  expect: (value: number, row: number, column: number) => number,
];

const UPDATES: readonly Update[] = [
  ["an element", (x) => x.indexPut_([1, 2], 50), (v, i, j) => i === 1 && j === 2 ? 50 : v],
  ["a row", (x) => x.indexPut_(0, [50, 51, 52, 53]), (v, i, j) => i === 0 ? 50 + j : v],
  [
    "steps backwards",
    (x) => x.indexPut_([mx.Slice(), mx.Slice(null, null, -2)], [50, 51]),
    (v, _, j) => j === 3 ? 50 : j === 1 ? 51 : v,
  ],
  ["rows by array", (x) => x.indexPut_([[2, 0]], [[50], [51]]), (v, i) => i === 2 ? 50 : i === 0 ? 51 : v],
  ["columns by array", (x) => x.indexPut_([mx.Slice(), [3, 1]], 50), (v, _, j) => j % 2 === 1 ? 50 : v],
  [
    "a mask",
    (x) => x.indexPut_(mx.array([true, false, true]), 50),
    (v, i) => i !== 1 ? 50 : v,
  ],
  ["sums", (x) => x.at([0, 0, 2], 1).add(10), (v, i, j) => j !== 1 ? v : i === 0 ? v + 20 : i === 2 ? v + 10 : v],
  [
    "a slice that is donated",
    (x) => mx.sliceUpdate(x, [[50, 51]], mx.array([1, 2], mx.int32), [0, 1], { donate: true }),
    (v, i, j) => i === 1 && j > 1 ? 48 + j : v,
  ],
  [
    "a slice for each row that is donated",
    (x) => mx.sliceUpdate(x, mx.full([3, 2], 50), mx.array([[0], [1], [2]], mx.int32), [1], { donate: true }),
    (v, i, j) => j === i || j === i + 1 ? 50 : v,
  ],
  ["along an axis", (x) => mx.putAlongAxis(x, [[1], [0], [3]], 50, 1), (v, i, j) => j === [1, 0, 3][i] ? 50 : v],
];

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`updates write what they name in every layout on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const layout of Object.keys(LAYOUTS)) {
      for (const [name, run, expect] of UPDATES) {
        mx.tidy(() => {
          const { base, values } = evaluated(layout);
          const once = values.map((row, i) => row.map((v, j) => expect(v, i, j)));
          const result = run(base);
          mx.eval(result);
          assertEquals(result.tolist(), once, `${name}, ${layout}`);
          // The result is a base like others, and now surely written in place.
          result.indexPut_([0, mx.Slice(1)], 70);
          mx.eval(result);
          result.indexPut_([2, 0], 80);
          const twice = once.map((row, i) => row.map((v, j) => i === 0 && j > 0 ? 70 : i === 2 && j === 0 ? 80 : v));
          assertEquals(result.tolist(), twice, `${name}, then others, ${layout}`);
        });
      }
    }
  });

  Deno.test(`an array that is assigned to is written in place where that is right on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const x = mx.zeros([1 << 20]);
      mx.eval(x);
      x.indexPut_(mx.Slice(), 1);
      mx.eval(x);
      x.indexPut_(0, 2);
      mx.eval(x);
      const first = (): unknown => x.index(mx.Slice(0, 3)).tolist();
      const start = mx.tidy(first); // a view that lives on would keep the old values
      assertEquals(start, [2, 1, 1]);
      const before = mx.getActiveMemory();
      mx.resetPeakMemory();
      x.indexPut_(1, 3);
      mx.eval(x);
      assert(mx.getPeakMemory() - before < 1 << 20, "a base that may be overwritten is not copied");
      assertEquals(mx.tidy(first), [2, 3, 1]);
    });
  });

  Deno.test(`one of several results keeps its memory while another op reads it on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const w = mx.random.normal([4, 64], mx.float32, 0, 1, mx.random.key(3));
      const values = (evaluated: boolean): unknown => {
        const [codes, scales, biases] = mx.quantize(w, 32, 4);
        // Made of the scales through a view, and of their shape, before dequantize() reads them.
        const sizes = mx.abs(mx.add(mx.expandDims(scales, -1), 1));
        if (evaluated) mx.eval(sizes);
        const dense = mx.dequantize(codes, scales, biases, 32, 4).reshape([4, 2, 32]);
        return mx.subtract(dense, sizes).tolist();
      };
      assertEquals(values(false), values(true));
    });
  });

  Deno.test(`a compiled function keeps the values that its other arguments read on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      using update = mx.compile((a: mx.Tensor, b: mx.Tensor) => [
        mx.sliceUpdate(a, [9], [1], [0], { donate: true }),
        mx.add(b, 1),
      ]);
      const x = mx.array([1, 2, 3]);
      mx.eval(x);
      // One array under two names: a view of the same shape is the array itself.
      assertEquals(update(x, x.reshape(3)).map((t) => t.tolist()), [[1, 9, 3], [2, 3, 4]]);
      assertEquals(x.tolist(), [1, 2, 3]);
      const wide = mx.broadcastTo(mx.array(3), [3]);
      mx.eval(wide);
      assertEquals(update(wide, x).map((t) => t.tolist()), [[3, 9, 3], [2, 3, 4]]);
    });
  });
}

Deno.test("an array that was donated is refused, its values are not", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const x = mx.array([1, 2, 3]);
    mx.eval(x);
    const y = mx.sliceUpdate(x, [9], [1], [0], { donate: true });
    mx.eval(y);
    assertThrows(() => x.tolist(), mx.ArrayError, "donated");
    assertEquals(y.tolist(), [1, 9, 3]);
  });
});

Deno.test("overlaps() finds every shared address, and none where dimensions step over each other", () => {
  const next = generator(11);
  const pick = (n: number): number => Math.floor(next() * n);
  let [shared, apart] = [0, 0];
  for (let n = 0; n < 4000; n++) {
    const shape: Shape = Array.from({ length: 1 + pick(3) }, () => 1 + pick(4));
    const strides = shape.map(() => pick(14) - 3);
    let found = [0];
    shape.forEach((size, d) => {
      found = found.flatMap((at) => Array.from({ length: size }, (_, i) => at + i * strides[d]));
    });
    const twice = new Set(found).size < found.length;
    if (twice) assert(overlaps(shape, strides), `(${shape}) by (${strides})`);
    twice ? shared++ : apart++;
    // Slices, transposes and reversals of a row-major array never overlap.
    const order = shape.map((_, i) => i).sort(() => next() - 0.5);
    const row = shape.map((_, d) => sizeOf(shape.slice(d + 1)) * 2 ** (shape.length - d) * (next() < 0.3 ? -1 : 1));
    assert(!overlaps(order.map((d) => shape[d]), order.map((d) => row[d])), `(${shape}) by (${row})`);
  }
  assert(shared > 500 && apart > 500, `${shared} with shared addresses, ${apart} without`);
  assert(!overlaps([3, 1, 2], [2, 0, 1]) && !overlaps([0, 4], [0, 0]) && !overlaps([], []));
});

/** Functions of one array that reuse the memory of their input if no other array holds it. */
const UNARY = [
  ...[
    "abs",
    "negative",
    "sign",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
  ],
  ...["sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"],
  ...["erf", "erfinv", "sigmoid", "floor", "ceil", "round", "degrees", "radians"],
] as const satisfies readonly (keyof typeof mx)[];

for (const device of testDevices()) {
  Deno.test(`functions that take the place of their input give what they give beside it, ${device}`, () => {
    mx.withDevice(device, () => {
      const values = [
        0,
        -0,
        1e-30,
        0.3,
        -0.7,
        1,
        -2.5,
        90,
        1e5,
        1e8,
        -1e9,
        1e10,
        1e20,
        -1e30,
        3e38,
        Infinity,
        -Infinity,
        NaN,
      ];
      for (const name of UNARY) {
        for (const count of [values.length, 700]) {
          const data = Float32Array.from({ length: count }, (_, i) => values[i % values.length]);
          const kept = mx.array(data);
          mx.eval(kept);
          const beside = mx[name](kept).toTypedArray();
          const given = mx.array(data);
          mx.eval(given);
          const inPlace = mx[name](given);
          given.dispose();
          assertEquals(inPlace.toTypedArray(), beside, name);
        }
      }
    });
  });
}
