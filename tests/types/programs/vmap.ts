/** Functions of single examples as functions of batches: of vectors, pairs, with shared weights, and per-example gradients. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const norm = (v: mx.Tensor<"float32", 1>) => v.square().sum().sqrt();
const norms = mx.vmap(norm)(mx.array([[3, 4], [6, 8], [5, 12]]));
assertEquals(norms.tolist(), [5, 10, 13]);

const dot = (a: mx.Tensor<"float32", 1>, b: mx.Tensor<"float32", 1>) => mx.sum(a.multiply(b));
const batch = mx.array([[1, 2], [3, 4]]);
const dots: number[] = mx.vmap(dot, [0, null])(batch, mx.array([1, 1])).tolist();
assertEquals(dots, [3, 7]);

const table = mx.vmap(mx.vmap(dot, [null, 0]), [0, null])(batch, mx.array([[1, 0], [0, 1], [1, 1]]));
assertEquals(table.tolist(), [[1, 2, 3], [3, 4, 7]]);

const columns = mx.vmap(norm, 1)(mx.array([[3, 5], [4, 12]]));
assertEquals(columns.tolist(), [5, 13]);

const loss = (w: mx.Tensor, x: mx.Tensor, y: mx.Tensor) => mx.square(mx.sum(w.multiply(x)).subtract(y));
const perExample = mx.vmap(mx.grad(loss), [null, 0, 0]);
const grads = perExample(mx.array([1, 1]), batch, mx.array([0, 0]));
assertEquals(grads.tolist(), [[6, 12], [42, 56]]);
