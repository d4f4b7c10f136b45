/**
 * Single ops as training uses them, against loops in float64. It needs gradients of tables at many indices, of
 * products that a batch shares, and of halves that are added up in float32. Experts whose codes are frozen have them too.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { expertSum } from "../../src/array/quantized/experts.ts";
import { testDevices } from "../support/devices/devices.ts";
import { assertClose } from "../support/oracles/kernel_values.ts";
import { generator } from "../support/oracles/oracle.ts";

const next = generator(31);
const random = (n: number): number[] => Array.from({ length: n }, () => next() * 2 - 1);

for (const device of testDevices()) {
  const test = (name: string, body: () => void): void =>
    Deno.test(`${name}, on ${device}`, () => mx.withDevice(device, () => mx.tidy(body)));

  test("the gradient of a table adds up what its rows were read for, also by indices from the end", () => {
    for (const [rows, columns, count] of [[5, 3, 700], [300, 8, 129], [70_000, 1, 300], [4, 33, 127]]) {
      const indices = Array.from({ length: count }, () => Math.floor(next() * 2 * rows) - rows);
      const weights = random(count * columns);
      const gradient = mx.grad((table: mx.Tensor) =>
        mx.sum(mx.multiply(mx.take(table, mx.array(indices, mx.int32), 0), mx.array(weights).reshape([count, columns])))
      )(mx.zeros([rows, columns]));
      const expected = new Float64Array(rows * columns);
      indices.forEach((index, k) => {
        for (let j = 0; j < columns; j++) {
          expected[(index < 0 ? index + rows : index) * columns + j] += Math.fround(weights[k * columns + j]);
        }
      });
      assertClose(gradient.flatten().tolist() as number[], expected, 1e-12, `${rows} x ${columns} by ${count}`);
    }
  });

  test("the gradient of a matrix that a batch shares is one product of all rows", () => {
    for (const [lead, m, k, n] of [[[3], 4, 5, 6], [[2, 3], 1, 7, 2], [[1], 9, 3, 4]] as const) {
      const batch = lead.reduce((all: number, d) => all * d, 1);
      const [a, c] = [random(batch * m * k), random(batch * m * n)];
      const of = (b: mx.Tensor): mx.Tensor =>
        mx.sum(mx.multiply(mx.matmul(mx.array(a).reshape([...lead, m, k]), b), mx.array(c).reshape([...lead, m, n])));
      const expected = new Float64Array(k * n);
      for (let r = 0; r < batch * m; r++) {
        for (let i = 0; i < k; i++) {
          for (let j = 0; j < n; j++) expected[i * n + j] += Math.fround(a[r * k + i]) * Math.fround(c[r * n + j]);
        }
      }
      // A matrix, one with axes of 1 in front, and one that is a view.
      const shapes = [[k, n], [...lead.map(() => 1), k, n]];
      for (const shape of shapes) {
        const gradient = mx.grad(of)(mx.zeros(shape));
        assertEquals(gradient.shape, shape);
        assertClose(gradient.flatten().tolist() as number[], expected, 1e-12, `${lead} by ${m}, ${k}, ${n}`);
      }
      const turned = mx.grad((b: mx.Tensor) => of(b.T))(mx.zeros([n, k]));
      assertClose(turned.T.flatten().tolist() as number[], expected, 1e-12, "a transposed one");
    }
  });

  test("a biased product of halves has gradients of halves, sums in float32", () => {
    for (const dtype of [mx.float16, mx.bfloat16]) {
      const [m, k, n] = [40, 24, 16];
      const half = (values: number[], shape: number[]): mx.Tensor => mx.array(values).reshape(shape).astype(dtype);
      const [x, w, b, c] = [
        half(random(m * k), [m, k]),
        half(random(n * k), [n, k]),
        half(random(n), [n]),
        half(random(m * n), [m, n]),
      ];
      const found = mx.grad(
        (x: mx.Tensor, w: mx.Tensor, b: mx.Tensor) => mx.sum(mx.multiply(mx.addmm(b, x, w.T), c).astype(mx.float32)),
        [0, 1, 2],
      )(x, w, b) as mx.Tensor[];
      assertEquals(found.map((g) => g.dtype.name), [dtype.name, dtype.name, dtype.name]);
      const read = (t: mx.Tensor): number[] => t.astype(mx.float32).flatten().tolist() as number[];
      const [xs, ws, cs] = [x, w, c].map(read);
      const dx = new Float64Array(m * k), dw = new Float64Array(n * k), db = new Float64Array(n);
      for (let r = 0; r < m; r++) {
        for (let j = 0; j < n; j++) {
          db[j] += cs[r * n + j];
          for (let i = 0; i < k; i++) {
            dx[r * k + i] += cs[r * n + j] * ws[j * k + i];
            dw[j * k + i] += cs[r * n + j] * xs[r * k + i];
          }
        }
      }
      const limit = dtype === mx.float16 ? 1e-6 : 1e-4; // one rounding
      [dx, dw, db].forEach((expected, i) => assertClose(read(found[i]), expected, limit, `${dtype.name}, input ${i}`));
    }
  });

  test("a fused op whose codes and scales are frozen has derivatives of its rows", () => {
    const [rows, chosen, experts, outputs, inputs] = [3, 2, 4, 5, 32];
    const dense = mx.array(random(experts * outputs * inputs)).reshape([experts, outputs, inputs]);
    const format = { mode: "mxfp4", bits: 4, groupSize: 32 } as const;
    const [weight, scales] = mx.quantize(dense, 32, 4, "mxfp4");
    const numbers = mx.dequantize(weight, scales, null, 32, 4, { mode: "mxfp4", dtype: mx.float32 }).toTypedArray();
    const numbersOf = [[2, 0], [1, 3], [3, 2]];
    const weights = numbersOf.map((row) => row.map(() => Math.fround(next())));
    const choice = mx.array(numbersOf.flatMap((row, r) => [...row, ...weights[r]])).reshape([rows, 2 * chosen]);
    const [x, direction] = [0, 1].map(() => random(rows * chosen * inputs).map(Math.fround));
    const c = random(rows * outputs).map(Math.fround);
    const tensorOf = (values: number[]): mx.Tensor => mx.array(values).reshape([rows, chosen, inputs]);
    const gradient = new Float64Array(rows * chosen * inputs);
    const tangent = new Float64Array(rows * outputs);
    for (let r = 0; r < rows; r++) {
      for (let j = 0; j < chosen; j++) {
        for (let h = 0; h < outputs; h++) {
          for (let n = 0; n < inputs; n++) {
            const at = (r * chosen + j) * inputs + n;
            const w = weights[r][j] * Number(numbers[(numbersOf[r][j] * outputs + h) * inputs + n]);
            gradient[at] += c[r * outputs + h] * w;
            tangent[r * outputs + h] += direction[at] * w;
          }
        }
      }
    }
    const of = (own: mx.Tensor): mx.Tensor => expertSum(own, choice, { weight, scales, format });
    const loss = (own: mx.Tensor): mx.Tensor => mx.sum(mx.multiply(of(own), mx.array(c).reshape([rows, outputs])));
    const found = mx.grad(loss)(tensorOf(x));
    assertClose(found.flatten().tolist() as number[], gradient, 1e-11, "gradient");
    const [, [along]] = mx.jvp(of, [tensorOf(x)], [tensorOf(direction)]);
    assertClose(along.flatten().tolist() as number[], tangent, 1e-11, "tangent");
  });

  test("casts there and back are left out, and widening ones read through", () => {
    const x = mx.array(random(3000)).reshape([30, 100]).astype(mx.float16);
    const wide = x.astype(mx.float32);
    const y = mx.add(mx.sum(wide, 0), mx.max(wide, 0));
    const values = x.astype(mx.float32).tolist() as number[][];
    const expected = values[0].map((_, j) =>
      values.reduce((sum, row) => sum + row[j], 0) + Math.max(...values.map((row) => row[j]))
    );
    assertClose(y.tolist() as number[], expected, 1e-12, "sums and maxima of halves");
    // A result that is also asked for itself is float32.
    const [kept, total] = mx.tidy(() => {
      const copy = x.astype(mx.float32);
      const total = mx.sum(mx.square(copy));
      mx.eval(copy, total);
      return [copy, total];
    });
    assert(kept.dtype === mx.float32 && total.dtype === mx.float32);
    assertEquals(kept.tolist(), values);
    assertEquals(mx.arrayEqual(kept.astype(mx.float16), x).item(), true);
    assertEquals(mx.arrayEqual(x.astype(mx.float32).astype(mx.float16), x).item(), true);
    // Not there and back: float16 does not hold what bfloat16 does.
    const large = mx.array([1e30]).astype(mx.bfloat16);
    assertEquals(large.astype(mx.float32).astype(mx.float16).item(), Infinity);
  });
}

for (const device of testDevices()) {
  Deno.test(`sums over axes of one element copy, on ${device}`, async () => {
    const [x, sums] = mx.withDevice(device, () => {
      const x = mx.transpose(mx.array(random(24)).reshape([4, 1, 6, 1]), [2, 1, 3, 0]);
      return [x, [mx.sum(x, 1), mx.max(x, [1, 2], true), mx.prod(x, 2)]] as const;
    });
    const { kernels } = await mx.profile(() => mx.eval(...sums), { timed: false });
    assertEquals(kernels.filter(({ kernel }) => kernel.startsWith("reduce")), []);
    sums.forEach((sum) => assertEquals(sum.flatten().tolist(), x.flatten().tolist()));
    mx.dispose(x, sums);
  });
}
