/** What TypeScript knows of arrays before a program runs, and that it is so when it runs. `deno check` of this file is half of the test. */

import { assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { anyDevice } from "./support/devices.ts";

mx.setDefaultDevice(anyDevice());

/** A name that is not one of several. */
type Single<N extends string, All = N> = N extends unknown ? ([All] extends [N] ? N : never) : never;

/** Compiles only where the type of an array says one dtype and one number of axes, and it is these. */
function known<N extends mx.DtypeName, R extends number>(
  array: mx.Tensor<N, R>,
  dtype: NoInfer<Single<N>>,
  ndim: number extends R ? never : NoInfer<R>,
): void {
  assertEquals([array.dtype.name, array.ndim], [dtype, ndim]);
}

Deno.test("types say the dtype and the axes of results", () => {
  const x = mx.ones([2, 3]);
  const h = mx.zeros([3, 4], mx.float16);
  const i = mx.arange(4, null, null, mx.int32);
  known(x, "float32", 2);
  known(h, "float16", 2);
  known(i, "int32", 1);
  known(mx.array([[true], [false]]), "bool", 2);
  known(mx.array([[1, 2], [3, 4]]), "float32", 2);
  known(mx.array(1), "float32", 0);
  known(mx.array(Int16Array.of(1)), "int16", 1);
  known(mx.array([Uint8Array.of(1)]), "float32", 2);
  known(mx.array([[[true]]]), "bool", 3);
  known(mx.array([]), "float32", 1);
  known(mx.array([1, 2], mx.uint8), "uint8", 1);
  known(mx.array([i, i]), "int32", 2);
  known(mx.array([[i], [i]]), "int32", 3);
  known(mx.full([1, 2, 3], 4, mx.bfloat16), "bfloat16", 3);
  known(mx.zeros(5), "float32", 1);

  known(mx.exp(i), "float32", 1);
  known(mx.exp(h), "float16", 2);
  known(mx.abs(i), "int32", 1);
  known(x.add(1).multiply(2), "float32", 2);
  known(mx.add(x, mx.ones([4, 2, 3])), "float32", 3);
  known(mx.divide(i, i), "float32", 1);
  known(mx.greater(x, 1), "bool", 2);
  known(mx.isnan(x), "bool", 2);
  known(mx.where(mx.greater(x, 0), x, x), "float32", 2);

  known(x.sum(), "float32", 0);
  known(x.sum(0), "float32", 1);
  known(x.sum(0, true), "float32", 2);
  known(mx.sum(mx.array([true])), "int32", 0);
  known(mx.mean(i), "float32", 0);
  known(mx.argmax(x, -1), "uint32", 1);
  known(mx.all(mx.equal(x, x)), "bool", 0);

  known(x.reshape(1, 2, 3), "float32", 3);
  known(x.reshape([6]), "float32", 1);
  known(x.astype(mx.int8), "int8", 2);
  known(x.T, "float32", 2);
  known(mx.expandDims(x, 0), "float32", 3);
  known(mx.broadcastTo(i, [2, 4]), "int32", 2);
  known(mx.stack([x, x]), "float32", 3);
  known(mx.matmul(x, mx.ones([3])), "float32", 1);
  known(mx.matmul(x, x.T), "float32", 2);
  known(mx.take(x, [1, 0], 0), "float32", 2);
  known(mx.take(x, 1, 0), "float32", 1);

  known(x.index(0), "float32", 1);
  known(x.index(0, 1), "float32", 0);
  known(x.index(null, "...", mx.Slice(0, 1)), "float32", 3);
  const [row] = x;
  known(row, "float32", 1);

  known(mx.random.normal([2, 2]), "float32", 2);
  known(mx.random.randint(0, 9, [3], mx.uint8), "uint8", 1);
  known(mx.softmax(x, -1), "float32", 2);
  known(mx.nn.silu(h), "float16", 2);
  known(mx.linalg.norm(x), "float32", 0);
});

Deno.test("item(), tolist() and toTypedArray() are typed by dtype and axes", () => {
  const x = mx.array([[1, 2], [3, 4]]);
  const total: number = x.sum().item();
  const rows: number[][] = x.tolist();
  const first: number[] = x.index(0).tolist();
  const close: boolean = mx.allclose(x, rows).item();
  const large: boolean[][] = mx.greater(x, 2).tolist();
  const cube: number[][][] = mx.ones([1, 1, 1]).tolist();
  const bytes: Uint8Array = mx.array([1, 2], mx.uint8).toTypedArray();
  const floats: Float32Array = x.toTypedArray();
  assertEquals([total, rows, first, close], [10, [[1, 2], [3, 4]], [1, 2], true]);
  assertEquals([large, cube, [...bytes], [...floats]], [[[false, false], [true, true]], [[[1]]], [1, 2], [1, 2, 3, 4]]);
});

Deno.test("an array of which nothing is known takes any other, and what it gives can be an array again", () => {
  const any: mx.Tensor[] = [mx.array(1), mx.array([[true]]), mx.ones([1, 1, 1], mx.int8)];
  let x: mx.Tensor = mx.ones([2]);
  x = mx.add(x, any[0]);
  const values: mx.Scalar | mx.NestedValues<mx.Scalar> = x.tolist();
  const typed = (shape: number[], dtype: mx.Dtype): mx.Tensor => mx.random.normal(shape, dtype);
  assertEquals(mx.array(x.tolist()).tolist(), values);
  assertEquals(typed([2, 1], mx.float16).shape, [2, 1]);
});
