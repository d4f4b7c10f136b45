/** Comparisons, conditions and dtypes. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const x = mx.array([[-1, 2, -3], [4, -5, 6]]);
let positive = x.greater(0);
positive = positive.logicalAnd(x.less(5));
assertEquals(positive.tolist(), [[false, true, false], [true, false, false]]);
const relu: number[][] = mx.where(mx.greater(x, 0), x, 0).tolist();
assertEquals(relu, x.maximum(0).tolist());
const clipped: number[][] = mx.clip(x, -2, 2).tolist();
assertEquals(clipped, [[-1, 2, -2], [2, -2, 2]]);

const count: number = positive.sum().item();
assertEquals(count, 2);
const share: number = mx.mean(positive).item();
assert(Math.abs(share - 1 / 3) < 1e-6);
if (mx.any(mx.isnan(x)).item()) throw new Error("not a number");
const all: boolean = mx.all(x.equal(x)).item();
assert(all);

let ids = x.argmax(1);
ids = ids.add(1);
assertEquals(ids.tolist(), [2, 3]);
const bits: number[] = ids.bitwiseAnd(2).tolist();
assertEquals(bits, [2, 2]);
const half = x.astype(mx.float16).multiply(0.5);
assertEquals(`${half.dtype} of ${x.dtype}, ${positive.dtype}`, "float16 of float32, bool");
const signs: number[][] = mx.where(positive, 1, mx.where(x.less(0), -1, 0)).tolist();
assertEquals(signs, [[-1, 1, -1], [1, -1, 0]]);
