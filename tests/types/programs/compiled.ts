/** A compiled training step with state, and a compiled function of one array. */

import { assert, assertAlmostEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const gelu = mx.compile((x: mx.Tensor) => x.multiply(0.5).multiply(mx.erf(x.divide(Math.SQRT2)).add(1)));
const [low, high]: number[] = gelu(mx.array([-1, 1])).tolist();
assertAlmostEquals(low, -0.1586552, 1e-5);
assertAlmostEquals(high, 0.8413447, 1e-5);

mx.random.seed(0);
const model = new mx.nn.Linear(3, 1);
const optimizer = new mx.optimizers.SGD(0.1);
const lossAndGrad = mx.nn.valueAndGrad(
  model,
  (x: mx.Tensor, y: mx.Tensor) => mx.nn.losses.mseLoss(model.forward(x), y),
);
const state = [model.state, optimizer.state];
const step = mx.compile(
  (x: mx.Tensor, y: mx.Tensor) => {
    const [loss, grads] = lossAndGrad(x, y);
    optimizer.update(model, grads);
    return loss;
  },
  state,
  state,
);

const x = mx.random.normal([32, 3]);
const y = mx.sum(x, 1, true);
const losses: number[] = [];
for (let i = 0; i < 50; i++) {
  const loss = step(x, y);
  mx.eval(state);
  losses.push(loss.item());
}
assert(losses[49] < losses[0] / 100, losses.map((loss) => loss.toFixed(3)).join(" "));
gelu[Symbol.dispose]();
step[Symbol.dispose]();
