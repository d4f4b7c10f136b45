/** Types of arrays before a program runs, and the same facts when it runs. `deno check` of this file is half of the test. */

import { assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { anyDevice } from "./support/devices/devices.ts";

mx.setDefaultDevice(anyDevice());

/** A name that is not one of several. */
type Single<N extends string, All = N> = N extends unknown ? ([All] extends [N] ? N : never) : never;

/** Compiles only where the type of an array says one dtype and one number of axes, and it is these: `any` is none of them. */
function known<N extends mx.DtypeName, R extends number>(
  array: mx.Tensor<N, R>,
  dtype: mx.DtypeName extends N ? never : NoInfer<Single<N>>,
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

Deno.test("axes are known of what joins, cuts, sums by letters and of layers", () => {
  const x = mx.ones([2, 3]), v = mx.ones([3]), i = mx.ones([3], mx.int32);
  known(mx.concatenate([x, x], 1), "float32", 2);
  known(mx.concatenate([x, x], null), "float32", 1);
  known(mx.split(x, 2)[0], "float32", 2);
  known(x.flatten(), "float32", 1);
  known(mx.squeeze(mx.ones([1, 3]), 0), "float32", 1);
  known(mx.expandDims(v, [0, 1]), "float32", 3);
  known(mx.pad(x, 1), "float32", 2);
  known(mx.repeat(x, 2), "float32", 1);
  known(mx.tile(v, [2, 2]), "float32", 2);
  known(mx.cumsum(x), "float32", 1);
  known(mx.cumsum(x, 0), "float32", 2);
  known(mx.max(mx.ones([2, 3, 4]), [0, 2]), "float32", 1);
  known(mx.einsum("ij,kj->ik", x, x), "float32", 2);
  known(mx.einsum("i j -> ", x), "float32", 0);
  known(mx.addmm(mx.ones([2]), x, x.T), "float32", 2);
  known(x.index([0, 1]), "float32", 2);
  known(x.index([0, 1], 0), "float32", 1);
  known(x.index([0, 1], [0, 1]), "float32", 1);
  known(x.index(mx.zeros([2, 2], mx.int32)), "float32", 3);
  known(mx.nn.losses.crossEntropy(x, mx.array([0, 1], mx.int32)), "float32", 1);
  known(mx.nn.losses.crossEntropy(x, mx.array([0, 1], mx.int32), null, -1, 0, "mean"), "float32", 0);
  known(mx.nn.losses.mseLoss(x, x), "float32", 0);
  known(mx.median(x, 0), "float32", 1);
  known(mx.linspace(0, 1, 3), "float32", 1);
  known(mx.fast.rmsNorm(x, v, 1e-5), "float32", 2);
  const matrix: number[][] = new mx.nn.Linear(3, 2).forward(x).tolist();
  const vectors: number[][] = new mx.nn.Embedding(4, 2).forward(i).tolist();
  assertEquals([matrix.length, vectors.length], [2, 3]);
});

Deno.test("dtypes meet in types as they do in MLX", () => {
  const ones = <N extends mx.DtypeName>(dtype: mx.Dtype<N>) => mx.ones([1], dtype);
  known(mx.add(ones(mx.int8), ones(mx.uint8)), "int16", 1);
  known(mx.add(ones(mx.uint16), ones(mx.int8)), "int32", 1);
  known(mx.add(ones(mx.int32), ones(mx.uint32)), "int64", 1);
  known(mx.add(ones(mx.uint64), ones(mx.int8)), "float32", 1);
  known(mx.add(ones(mx.float16), ones(mx.bfloat16)), "float32", 1);
  known(mx.add(ones(mx.int64), ones(mx.float16)), "float16", 1);
  known(mx.add(ones(mx.bool), ones(mx.uint8)), "uint8", 1);
  known(mx.add(ones(mx.complex64), ones(mx.float16)), "complex64", 1);
  known(mx.add(ones(mx.int32), 1), "int32", 1);
  known(mx.add(ones(mx.int32), 0.5), "float32", 1);
  known(mx.add(ones(mx.bool), 1), "int32", 1);
  known(mx.add(ones(mx.uint8), true), "uint8", 1);
  known(mx.add(ones(mx.bfloat16), 0.5), "bfloat16", 1);
  known(mx.add(1, 2), "float32", 0);
  known(mx.array([ones(mx.int8), ones(mx.int8)]), "int8", 2);
});

Deno.test("transforms have the types of the arguments of a call", () => {
  const loss = (w: mx.Tensor, b: mx.Tensor) => mx.sum(w.multiply(b));
  const w = mx.ones([2, 3]), b = mx.array(1);
  known(mx.grad(loss)(w, b), "float32", 2);
  const [, [dw, db]] = mx.valueAndGrad(loss, [0, 1])(w, b);
  known(dw, "float32", 2);
  known(db, "float32", 0);
  const total = (v: mx.Tensor<"float32", 1>) => v.sum();
  known(mx.vmap(total)(w), "float32", 1);
  known(mx.vmap(total, 1)(w), "float32", 1);
  known(
    mx.vmap((v: mx.Tensor<"float32", 1>, k: mx.Tensor<"float32", 1>) => v.add(k), [0, null])(w, mx.ones([3])),
    "float32",
    2,
  );
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
  const values: number[] = x.tolist();
  let known = mx.zeros([2]);
  known = x;
  const typed = (shape: number[], dtype: mx.Dtype): mx.Tensor => mx.random.normal(shape, dtype);
  assertEquals([mx.array(x.tolist()).tolist(), known.tolist()], [values, values]);
  assertEquals(typed([2, 1], mx.float16).shape, [2, 1]);
});
