/** A small network of convolutions: layers keep the number of axes. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

class Cnn extends mx.nn.Module {
  conv1 = new mx.nn.Conv2d(1, 4, 3, 1, 1);
  conv2 = new mx.nn.Conv2d(4, 8, 3, 1, 1);
  pool = new mx.nn.MaxPool2d(2, 2);
  dropout = new mx.nn.Dropout(0.2);
  fc = new mx.nn.Linear(8 * 2 * 2, 3);

  override forward(x: mx.Tensor<"float32", 4>) {
    let h = mx.nn.relu(this.conv1.forward(x));
    h = this.pool.forward(h);
    h = this.pool.forward(mx.nn.relu(this.conv2.forward(h)));
    return this.fc.forward(this.dropout.forward(h.reshape(x.shape[0], -1)));
  }
}

mx.random.seed(0);
const model = new Cnn();
const images = mx.random.normal([2, 8, 8, 1]);
model.eval();
const logits = model.forward(images);
const scores: number[][] = logits.tolist();
assertEquals([scores.length, scores[0].length], [2, 3]);
const classes: number[] = mx.argmax(logits, -1).tolist();
assertEquals(classes.length, 2);

const layer = new mx.nn.Linear(8, 5);
let features = mx.random.normal([2, 8]);
features = mx.nn.gelu(new mx.nn.Linear(8, 8).forward(features));
const out: number[][] = layer.forward(features).tolist();
assertEquals(out[1].length, 5);
const loss = mx.nn.losses.crossEntropy(logits, mx.array(classes, mx.int32), null, -1, 0, "mean");
assertEquals(loss.item().toFixed(4).length, 6);
const each: number[] = mx.nn.losses.crossEntropy(logits, mx.array([0, 2], mx.int32)).tolist();
assertEquals(each.length, 2);
