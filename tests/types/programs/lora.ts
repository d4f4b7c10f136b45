/** LoRA by hand: a frozen layer, and two small matrices that are trained in its place. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

class LoraLinear extends mx.nn.Module {
  linear: mx.nn.Linear;
  loraA: mx.Tensor;
  loraB: mx.Tensor;

  constructor(linear: mx.nn.Linear, rank = 2, readonly scale = 2) {
    super();
    const [outputs, inputs] = linear.weight.shape;
    this.linear = linear;
    this.linear.freeze();
    this.loraA = mx.random.uniform(-0.5, 0.5, [inputs, rank]);
    this.loraB = mx.zeros([rank, outputs]);
  }

  override forward(x: mx.Tensor) {
    const update = x.matmul(this.loraA).matmul(this.loraB);
    return this.linear.forward(x).add(update.multiply(this.scale));
  }
}

mx.random.seed(0);
const model = new LoraLinear(new mx.nn.Linear(4, 3));
const x = mx.random.normal([32, 4]);
const target = model.linear.forward(x).add(mx.sum(x, 1, true));
const before = model.linear.weight.tolist();

const lossAndGrad = mx.nn.valueAndGrad(model, (x: mx.Tensor) => mx.nn.losses.mseLoss(model.forward(x), target));
const optimizer = new mx.optimizers.AdamW(0.05, { weightDecay: 0 });
let loss = mx.array(0);
for (let i = 0; i < 80; i++) {
  const [value, grads] = lossAndGrad(x);
  optimizer.update(model, grads);
  loss = value;
}

const names = mx.utils.treeFlatten(model.trainableParameters()).map(([name]) => name);
assertEquals(names, ["loraA", "loraB"]);
assert(loss.item() < 1e-2, loss.item().toFixed(4));
assertEquals(model.linear.weight.tolist(), before);
