/**
 * Gradients of a loss of the embedded model, against those of mlx-lm's model (reference/model_gradients.py): quantized, and with its
 * matrices made dense.
 */

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { leavesOf } from "../../../src/array/tensor/tree.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { makeDense, putModule } from "../../support/models/module_trees.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import GOLDEN from "../../golden/models/model_gradients.json" with { type: "json" };

mx.devices(); // opens the library outside of the tests, which count resources

type T = mx.Tensor;

/** A summary of a gradient: its length, and its product with a pattern. */
type Summary = readonly number[];

/** Normalised mean squared error of float32 sums in another order. */
const NMSE = 1e-7;

/** The pattern of the reference. */
function fill(shape: readonly number[]): T {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Float32Array.from({ length: count }, (_, k) => (k * 37) % 101 / 50 - 1);
  return mx.array(values).reshape([...shape]);
}

function summary(gradient: T): Summary {
  return mx.tidy(() => {
    const length = mx.sqrt(mx.sum(mx.square(gradient)));
    return [length, mx.sum(mx.multiply(gradient, fill(gradient.shape)))].map((x) => Number(x.item()));
  });
}

/** Holds sums to those of the reference, as parts of a gradient's length and of the pattern's. */
function assertSummary(found: T, [length, product]: Summary, name: string): void {
  const [foundLength, foundProduct] = summary(found);
  assertAlmostEquals(foundLength, length, 3e-4 * length, `length of the gradient of ${name}`);
  const most = length * Math.sqrt(found.size / 3); // the pattern's numbers lie evenly between -1 and 1
  assertAlmostEquals(foundProduct, product, 3e-4 * most, `product of the gradient of ${name}`);
}

/** The loss of each token of the reference but the first, of what `model` makes of those in front. */
function lossOf(model: mx.lm.LanguageModel): () => T {
  return () => {
    const tokens = mx.array(GOLDEN.tokens, mx.int32);
    const [given, next] = [tokens.index("...", mx.Slice(null, -1)), tokens.index("...", mx.Slice(1))];
    return mx.nn.losses.crossEntropy(model.forward(given), next, null, -1, 0, "mean");
  };
}

/** A model with float32 parameters; what it is asked for goes with it. */
async function withModel(device: string, body: (model: mx.lm.LanguageModel) => void): Promise<void> {
  const { model } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device });
  const used = mx.withDevice(device, () => mx.getActiveMemory());
  mx.withDevice(device, () => mx.tidy(() => body(model)));
  model[Symbol.dispose]();
  assert(mx.withDevice(device, () => mx.getActiveMemory()) < used, "the weights are freed");
}

/** An embedding whose vectors for the tokens in question are a parameter; the head is that of a table. */
class Given extends mx.nn.Module {
  vectors: T;
  readonly #table: mx.nn.QuantizedEmbedding;

  constructor(table: mx.nn.QuantizedEmbedding, tokens: T) {
    super();
    this.#table = table;
    this.vectors = table.forward(tokens);
  }

  override forward(): T {
    return this.vectors;
  }

  asLinear(x: T): T {
    return this.#table.asLinear(x);
  }
}

for (const device of testDevices()) {
  Deno.test(`gradients through a quantized model are those of mlx-lm on ${device}`, () =>
    withModel(device, (model) => {
      model.setDtype(mx.float32);
      const [value, grads] = mx.nn.valueAndGrad(model, lossOf(model))();
      mx.eval(value, grads);
      const { loss, gradients, vectors } = GOLDEN.quantized;
      assertAlmostEquals(Number(value.item()), loss, 1e-4);
      const found = namedLeaves(grads) as [string, T][];
      assertEquals(found.map(([name]) => name).sort(), Object.keys(gradients).sort());
      for (const [name, gradient] of found) {
        const expected = gradients[name as keyof typeof gradients];
        assert(nmse(gradient.toTypedArray() as Float32Array, expected) < NMSE, `gradient of ${name}`);
      }

      const table = model.children().model.embed_tokens as mx.nn.QuantizedEmbedding;
      const tokens = mx.array(GOLDEN.tokens.map((row) => row.slice(0, -1)), mx.int32);
      putModule(model, "model.embed_tokens", new Given(table, tokens));
      const [, ofVectors] = mx.nn.valueAndGrad(model, lossOf(model))();
      assertSummary(ofVectors.model.embed_tokens.vectors, vectors, "the vectors of the tokens");
    }));

  Deno.test(`gradients of every parameter of a dense model are those of mlx-lm on ${device}`, () =>
    withModel(device, (model) => {
      model.setDtype(mx.float32);
      makeDense(model);
      const [value, grads] = mx.nn.valueAndGrad(model, lossOf(model))();
      mx.eval(value, grads);
      const { loss, gradients } = GOLDEN.dense;
      assertAlmostEquals(Number(value.item()), loss, 1e-4);
      const found = namedLeaves(grads) as [string, T][];
      assertEquals(found.map(([name]) => name), Object.keys(gradients));
      for (const [name, gradient] of found) assertSummary(gradient, gradients[name as keyof typeof gradients], name);
      assert(leavesOf(model.parameters()).every((x) => (x as T).dtype === mx.float32));
    }));
}
