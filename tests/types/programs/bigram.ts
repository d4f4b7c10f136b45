/** A language model of letters: embeddings, a transformer's parts, and sampling. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const text = "hello world, hello mlx, hello vulkan. ".repeat(2);
const letters = [...new Set(text)].sort();
const encode = (s: string) => mx.array([...s].map((c) => letters.indexOf(c)), mx.int32);
const decode = (ids: number[]) => ids.map((id) => letters[id]).join("");

class Block extends mx.nn.Module {
  norm: mx.nn.RMSNorm;
  up: mx.nn.Linear;
  down: mx.nn.Linear;

  constructor(dims: number) {
    super();
    this.norm = new mx.nn.RMSNorm(dims);
    this.up = new mx.nn.Linear(dims, 2 * dims);
    this.down = new mx.nn.Linear(2 * dims, dims);
  }

  override forward(x: mx.Tensor) {
    const h = mx.nn.silu(this.up.forward(this.norm.forward(x)));
    return x.add(this.down.forward(h));
  }
}

class Bigram extends mx.nn.Module {
  embedding = new mx.nn.Embedding(letters.length, 16);
  blocks = [new Block(16), new Block(16)];
  head = new mx.nn.Linear(16, letters.length, false);

  override forward(ids: mx.Tensor) {
    let h = this.embedding.forward(ids);
    for (const block of this.blocks) h = block.forward(h);
    return this.head.forward(h);
  }
}

mx.random.seed(0);
const model = new Bigram();
const ids = encode(text);
const [inputs, targets] = [ids.index(mx.Slice(0, -1)), ids.index(mx.Slice(1))];
const loss = () => mx.nn.losses.crossEntropy(model.forward(inputs), targets, null, -1, 0, "mean");
const lossAndGrad = mx.nn.valueAndGrad(model, loss);
const optimizer = new mx.optimizers.AdamW(0.02);
const first = loss().item();
let last = first;
for (let i = 0; i < 40; i++) {
  const [value, grads] = lossAndGrad();
  optimizer.update(model, grads);
  mx.eval(model.parameters(), optimizer.state);
  last = value.item();
}
assert(last < first / 3, `${first.toFixed(2)} → ${last.toFixed(2)}`);

let id = encode("h");
const written: number[] = [];
for (let i = 0; i < 3; i++) {
  id = mx.argmax(model.forward(id), -1).astype(mx.int32);
  written.push(id.item());
}
assertEquals(decode(written).length, 3);
assertEquals(decode([...encode("hello").tolist()]), "hello");
