/**
 * Trains a multilayer perceptron: which arm of a spiral does a point of the plane lie on?
 *
 *     deno run -A examples/train_mlp.ts
 *
 * The points are drawn here, so it needs no files and no network. It shows the parts of a training program: a class with layers, a loss,
 * an optimizer, a compiled step and epochs of shuffled batches. Points that it never trains on measure the result.
 *
 * @module
 */

import * as mx from "../mod.ts";

/** Layers with ReLU between them. */
class Mlp extends mx.nn.Module {
  layers: mx.nn.Linear[];

  constructor(sizes: readonly number[]) {
    super();
    this.layers = sizes.slice(1).map((size, i) => new mx.nn.Linear(sizes[i], size));
  }

  override forward(x: mx.Tensor): mx.Tensor {
    for (const layer of this.layers.slice(0, -1)) x = mx.nn.relu(layer.forward(x));
    return this.layers.at(-1)!.forward(x);
  }
}

const ARMS = 3;

/** Points (ARMS * count, 2) on the arms of a spiral, a little beside them, and the number of the arm of each. */
function spiral(count: number): [x: mx.Tensor, y: mx.Tensor] {
  const radius = mx.random.uniform(0.05, 1, [ARMS * count]);
  const arm = mx.remainder(mx.arange(ARMS * count), ARMS);
  const angle = mx.add(
    mx.add(mx.multiply(arm, 2 * Math.PI / ARMS), mx.multiply(radius, 4)),
    mx.multiply(mx.random.normal([ARMS * count]), 0.2),
  );
  const points = mx.stack([mx.multiply(radius, mx.cos(angle)), mx.multiply(radius, mx.sin(angle))], 1);
  return [points, arm.astype(mx.int32)];
}

/** The measurements of a training. */
export interface Trained {
  /** Mean cross entropy of points that were not trained on, before the training and after it. */
  readonly lossBefore: number;
  readonly loss: number;
  /** The part of those points whose arm is found. */
  readonly accuracy: number;
}

/** Trains; `report` gets the loss of each fifth epoch. */
export function train(epochs = 20, report: (epoch: number, loss: number) => void = () => {}): Trained {
  mx.random.seed(0);
  const [trainX, trainY] = spiral(400);
  const [testX, testY] = spiral(200);
  const model = new Mlp([2, 64, 64, ARMS]);
  const optimizer = new mx.optimizers.AdamW({ learningRate: 1e-2 });
  optimizer.init(model.trainableParameters());
  mx.eval(trainX, trainY, testX, testY, model.parameters());

  const loss = (x: mx.Tensor, y: mx.Tensor) => mx.mean(mx.nn.losses.crossEntropy(model.forward(x), y));
  const lossAndGradients = mx.nn.valueAndGrad(model, loss);
  const state = [model.state, optimizer.state];
  using step = mx.compile(
    (x: mx.Tensor, y: mx.Tensor) => {
      const [value, gradients] = lossAndGradients(x, y);
      optimizer.update(model, gradients);
      return value;
    },
    state,
    state,
  );

  const testLoss = () => Number(loss(testX, testY).item());
  const lossBefore = testLoss();
  const batchSize = 120;
  for (let epoch = 1; epoch <= epochs; epoch++) {
    const order = mx.random.permutation(trainX.shape[0]);
    let last = 0;
    for (let at = 0; at < trainX.shape[0]; at += batchSize) {
      const rows = order.index(mx.Slice(at, at + batchSize));
      last = Number(step(mx.take(trainX, rows, 0), mx.take(trainY, rows, 0)).item());
    }
    if (epoch % 5 === 0) report(epoch, last);
  }
  const found = mx.argmax(model.forward(testX), -1);
  const accuracy = mx.mean(mx.equal(found, testY)).item();
  return { lossBefore, loss: testLoss(), accuracy };
}

if (import.meta.main) {
  const { lossBefore, loss, accuracy } = train(
    20,
    (epoch, value) => console.log(`epoch ${epoch}: loss ${value.toFixed(4)}`),
  );
  console.log(
    `points not trained on: loss ${lossBefore.toFixed(4)} → ${loss.toFixed(4)}, ${(100 * accuracy).toFixed(1)} % right`,
  );
}
