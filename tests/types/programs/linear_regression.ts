/** Linear regression by gradient descent: weights that are reassigned at each step. */

import { assertAlmostEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(0);
const truth = mx.array([2, -3, 0.5]);
const x = mx.random.normal([64, 3]);
const y = x.matmul(truth).add(1);

function loss(w: mx.Tensor, b: mx.Tensor): mx.Tensor {
  return mx.mean(mx.square(mx.subtract(mx.add(mx.matmul(x, w), b), y)));
}

const step = mx.valueAndGrad(loss, [0, 1]);
let w = mx.zeros([3]);
let b = mx.array(0);
let last = mx.array(Infinity);
for (let i = 0; i < 200; i++) {
  const [value, [dw, db]] = step(w, b);
  w = w.subtract(dw.multiply(0.1));
  b = mx.subtract(b, mx.multiply(db, 0.1));
  last = value;
  mx.eval(w, b, last);
}

const [w0, w1, w2] = w.tolist();
assertAlmostEquals(w0, 2, 1e-4);
assertAlmostEquals(w1, -3, 1e-4);
assertAlmostEquals(w2, 0.5, 1e-4);
assertAlmostEquals(b.item(), 1, 1e-4);
assertAlmostEquals(Number(last.item().toFixed(4)), 0);
