/** Optimizers of plain trees of arrays, schedules of learning rates, and clipped gradients. */

import { assert, assertAlmostEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const goal = mx.array([1, -2, 3]);
const loss = (p: { x: mx.Tensor }) => mx.sum(mx.square(p.x.subtract(goal)));

function minimize(optimizer: mx.optimizers.Optimizer, steps: number) {
  const lossAndGrad = mx.valueAndGrad(loss);
  let parameters = { x: mx.zeros([3]) };
  let value = loss(parameters);
  for (let i = 0; i < steps; i++) {
    const [now, grads] = lossAndGrad(parameters);
    const [clipped] = mx.optimizers.clipGradNorm(grads, 10);
    parameters = optimizer.applyGradients(clipped, parameters);
    value = now;
    mx.eval(parameters, optimizer.state);
  }
  return { parameters, value: value.item() };
}

const optimizers = {
  sgd: new mx.optimizers.SGD(0.1, { momentum: 0.5 }),
  adam: new mx.optimizers.Adam(mx.optimizers.cosineDecay(0.5, 100)),
  adamw: new mx.optimizers.AdamW(0.3, { betas: [0.8, 0.9], weightDecay: 0 }),
  rmsprop: new mx.optimizers.RMSprop(mx.optimizers.exponentialDecay(0.3, 0.95)),
};
for (const [name, optimizer] of Object.entries(optimizers)) {
  const { parameters, value } = minimize(optimizer, 100);
  assert(value < 0.01, `${name}: ${value.toFixed(4)}`);
  assertAlmostEquals(parameters.x.index(2).item(), 3, 0.1);
}
