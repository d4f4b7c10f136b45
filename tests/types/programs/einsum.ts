/** Products by letters: the letters after the arrow say how many axes there are. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const a = mx.array([[1, 2], [3, 4]]);
const b = mx.array([[1, 0], [1, 1]]);

const product: number[][] = mx.einsum("ij,jk->ik", a, b).tolist();
assertEquals(product, mx.matmul(a, b).tolist());
const transposed: number[][] = mx.einsum("ij->ji", a).tolist();
assertEquals(transposed, a.T.tolist());
const trace: number = mx.einsum("ii->", a).item();
assertEquals(trace, 5);
const diagonal: number[] = mx.einsum("ii->i", a).tolist();
assertEquals(diagonal, [1, 4]);
const outer: number[][] = mx.einsum("i,j->ij", mx.array([1, 2]), mx.array([3, 4])).tolist();
assertEquals(outer, [[3, 4], [6, 8]]);

mx.random.seed(0);
const q = mx.random.normal([2, 3, 4, 8]);
const k = mx.random.normal([2, 3, 5, 8]);
let scores = mx.einsum("bhqd,bhkd->bhqk", q, k);
scores = scores.multiply(1 / Math.sqrt(8));
assertEquals(scores.shape, [2, 3, 4, 5]);
assert(mx.allclose(scores, q.matmul(k.swapaxes(2, 3)).divide(Math.sqrt(8)), 1e-4, 1e-5).item());
const batched = mx.einsum("...ij,...jk->...ik", q, k.swapaxes(-1, -2));
assertEquals(batched.shape, [2, 3, 4, 5]);
