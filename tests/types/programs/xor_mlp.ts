/** XOR by a small network: a custom module, its gradients, and Adam. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

class Mlp extends mx.nn.Module {
  layers: mx.nn.Linear[];

  constructor(sizes: number[]) {
    super();
    this.layers = sizes.slice(1).map((size, i) => new mx.nn.Linear(sizes[i], size));
  }

  override forward(x: mx.Tensor): mx.Tensor {
    for (const layer of this.layers.slice(0, -1)) x = mx.tanh(layer.forward(x));
    return this.layers[this.layers.length - 1].forward(x);
  }
}

mx.random.seed(3);
const x = mx.array([[0, 0], [0, 1], [1, 0], [1, 1]]);
const y = mx.array([0, 1, 1, 0], mx.int32);
const model = new Mlp([2, 8, 2]);
const optimizer = new mx.optimizers.Adam(0.1);
const lossAndGrad = mx.nn.valueAndGrad(
  model,
  (x: mx.Tensor, y: mx.Tensor) => mx.nn.losses.crossEntropy(model.forward(x), y, null, -1, 0, "mean"),
);

const lines: string[] = [];
for (let step = 0; step <= 60; step++) {
  const [loss, grads] = lossAndGrad(x, y);
  optimizer.update(model, grads);
  mx.eval(model.parameters(), optimizer.state);
  if (step % 20 === 0) lines.push(`step ${step}: loss ${loss.item().toFixed(4)}`);
}

assertEquals(mx.argmax(model.forward(x), -1).tolist(), [0, 1, 1, 0]);
assertEquals(lines.length, 4);
assert(Number(lines[3].split(" ")[3]) < 0.05, lines[3]);
