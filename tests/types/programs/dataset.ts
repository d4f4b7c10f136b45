/** A loop over shuffled batches of a dataset, with a validation loss and early stopping. */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";

interface Batch {
  x: mx.Tensor;
  y: mx.Tensor;
}

function* batches(x: mx.Tensor, y: mx.Tensor, size: number): Generator<Batch> {
  const order = mx.random.permutation(x.shape[0]);
  for (let start = 0; start < x.shape[0]; start += size) {
    const ids = order.index(mx.Slice(start, start + size));
    yield { x: x.index(ids), y: mx.take(y, ids, 0) };
  }
}

mx.random.seed(0);
const x = mx.random.uniform(-1, 1, [128, 2]);
const y = mx.prod(x, 1, true);
const [trainX, validX] = mx.split(x, [96]);
const [trainY, validY] = mx.split(y, [96]);

const model = new mx.nn.Sequential(new mx.nn.Linear(2, 16), new mx.nn.Tanh(), new mx.nn.Linear(16, 1));
const lossOf = ({ x, y }: Batch) => mx.nn.losses.mseLoss(model.forward(x), y);
const lossAndGrad = mx.nn.valueAndGrad(model, lossOf);
const optimizer = new mx.optimizers.Adam(0.03);

let best = Infinity;
for (let epoch = 0; epoch < 40; epoch++) {
  let total = 0;
  for (const batch of batches(trainX, trainY, 32)) {
    const [loss, grads] = lossAndGrad(batch);
    optimizer.update(model, grads);
    mx.eval(model, optimizer.state);
    total += loss.item() * batch.x.shape[0];
  }
  const valid = lossOf({ x: validX, y: validY }).item();
  if (valid < best) best = valid;
  if (total / 96 < 0.001) break;
}
assert(best < 0.02, best.toFixed(4));
