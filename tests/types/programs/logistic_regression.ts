/** Logistic regression without layers: two clouds of points, told apart by a line. */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(1);
const n = 50;
const points = mx.concatenate([mx.random.normal([n, 2]).subtract(2), mx.random.normal([n, 2]).add(2)]);
const labels = mx.concatenate([mx.zeros([n]), mx.ones([n])]);

const parameters = { w: mx.zeros([2]), b: mx.array(0) };
type Parameters = typeof parameters;

const predict = ({ w, b }: Parameters, x: mx.Tensor) => mx.sigmoid(x.matmul(w).add(b));
const loss = (p: Parameters, x: mx.Tensor, y: mx.Tensor) =>
  mx.nn.losses.binaryCrossEntropy(predict(p, x), y, null, false, "mean");

const lossAndGrad = mx.valueAndGrad(loss);
let current: Parameters = parameters;
const history: number[] = [];
for (let epoch = 0; epoch < 30; epoch++) {
  const [value, grads] = lossAndGrad(current, points, labels);
  current = mx.utils.treeMap((p, g) => p.subtract(g.multiply(0.5)), current, [grads]);
  history.push(value.item());
}

const right = mx.equal(mx.greater(predict(current, points), 0.5), labels);
const accuracy: number = mx.mean(right).item();
assert(accuracy > 0.95, `accuracy ${accuracy.toFixed(2)}`);
assert(history[29] < history[0] / 2);
