/**
 * mx.lm.tuner against mlx_lm.tuner (tests/reference/tuner.py). Adapted layers are compared with their draws, results,
 * gradients and fused forms. Batches and their order, the masked loss, and whole trainings of the embedded model
 * follow.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice, testDevices } from "../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { tuner } = mx.lm;

interface Numbers {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

interface LayerCase {
  readonly name: "LoRALinear" | "DoRALinear" | "LoRAEmbedding" | "DoRAEmbedding";
  readonly bits: number;
  readonly bias: boolean;
  readonly fresh: Readonly<Record<string, Numbers>>;
  readonly out: Numbers;
  readonly grads: Readonly<Record<string, Numbers>>;
  readonly fused: Numbers;
  readonly as_linear?: Numbers;
}

interface Golden {
  readonly layers: readonly LayerCase[];
  readonly batches: readonly {
    readonly batchSize: number;
    readonly maxSeqLength: number;
    readonly seed: number;
    readonly tokens: readonly (readonly (readonly number[])[])[];
    readonly lengths: readonly (readonly (readonly number[])[])[];
  }[];
  readonly loss: readonly { readonly loss: number; readonly tokens: number }[];
  /** Weights of the table after a training in which three batches make one step. */
  readonly accumulated: Numbers;
  /** Tokens of a text that ends with the last token, and of the same text without it. */
  readonly ended: readonly (readonly number[])[];
  readonly texts: readonly string[];
  readonly adapter: { readonly loss: number; readonly without: number };
  readonly training: Readonly<
    Record<"lora" | "dora", {
      readonly tokens: readonly (readonly number[])[];
      readonly losses: readonly number[];
      readonly valid: readonly (readonly [number, number])[];
      readonly names: readonly string[];
    }>
  >;
}

const GOLDEN: Golden = JSON.parse(Deno.readTextFileSync(new URL("../golden/models/tuner.json", import.meta.url)));

/** Rounding of float32 over some dozen sums, as a part of the largest element. */
const TOLERANCE = 2e-5;

/** The numbers that tuner.py makes too. */
function fill(seed: number, shape: readonly number[]): mx.Tensor {
  const size = shape.reduce((product, n) => product * n, 1);
  return mx.sin(mx.add(mx.multiply(mx.arange(size, mx.float32), 0.7), seed)).reshape([...shape]);
}

function close(what: string, x: mx.Tensor, expected: Numbers): void {
  assertEquals([...x.shape], [...expected.shape], `shape of ${what}`);
  const values = Array.from(x.astype(mx.float32).toTypedArray() as Float32Array);
  const bound = TOLERANCE * Math.max(0.05, ...expected.values.map(Math.abs));
  const at = values.findIndex((v, i) => !(Math.abs(v - expected.values[i]) <= bound));
  if (at >= 0) throw new Error(`${what}: ${values[at]} at ${at}, not ${expected.values[at]}`);
}

function adapted({ name, bits, bias }: LayerCase): mx.nn.Module {
  const options = { r: 4, scale: 3 };
  if (name.endsWith("Embedding")) {
    const dense = new mx.nn.Embedding({ weight: fill(1, [6, 64]) });
    const base = bits === 0 ? dense : dense.toQuantized(32, bits);
    mx.random.seed(5);
    return name === "LoRAEmbedding"
      ? tuner.LoRAEmbedding.fromBase(base, options)
      : tuner.DoRAEmbedding.fromBase(base as mx.nn.Embedding, options);
  }
  const weight = mx.multiply(fill(1, [32, 64]), 0.1);
  const dense = new mx.nn.Linear({ weight, ...(bias && { bias: fill(2, [32]) }) });
  const base = bits === 0 ? dense : dense.toQuantized(32, bits);
  mx.random.seed(5);
  return tuner[name as "LoRALinear" | "DoRALinear"].fromBase(base, options);
}

type Layer = mx.nn.Module & {
  lora_b: mx.Tensor;
  m?: mx.Tensor;
  asLinear(x: mx.Tensor): mx.Tensor;
  fuse(dequantize: boolean): mx.nn.Module;
};

function checkLayer(c: LayerCase): void {
  const layer = adapted(c) as Layer;
  layer.freeze().unfreeze({ keys: ["lora_a", "lora_b", "m"], recurse: false });
  const named = (tree: unknown) => mx.utils.treeFlatten(tree, "", null, {}) as Record<string, mx.Tensor>;
  const fresh = named(layer.trainableParameters());
  assertEquals(Object.keys(fresh).sort(), Object.keys(c.fresh).sort());
  for (const [name, numbers] of Object.entries(c.fresh)) close(`fresh ${name}`, fresh[name], numbers);
  layer.lora_b = mx.multiply(fill(3, layer.lora_b.shape), 0.1);
  if (layer.m) layer.m = mx.multiply(layer.m, 1.25);
  const table = c.name.endsWith("Embedding");
  const x = table ? mx.array([[0, 5], [3, 3]], mx.int32) : fill(4, [2, 3, 64]);
  close("result", layer.forward(x), c.out);
  const total = (x: mx.Tensor): mx.Tensor => {
    const y = layer.forward(x);
    return mx.sum(mx.multiply(y, fill(6, y.shape)));
  };
  const gradients = named(mx.nn.valueAndGrad(layer, total)(x)[1]);
  assertEquals(Object.keys(gradients).sort(), Object.keys(c.grads).sort());
  for (const [name, numbers] of Object.entries(c.grads)) close(`gradient of ${name}`, gradients[name], numbers);
  const fused = layer.fuse(true);
  assertEquals(fused.constructor, table ? mx.nn.Embedding : mx.nn.Linear);
  close("result of the fused layer", fused.forward(x), c.fused);
  if (c.as_linear) close("asLinear", layer.asLinear(fill(4, [2, 64])), c.as_linear);
  if (c.bits === 0) return;
  const quantized = layer.fuse(false);
  assertEquals(quantized.constructor, table ? mx.nn.QuantizedEmbedding : mx.nn.QuantizedLinear);
}

for (const device of testDevices()) {
  for (const c of GOLDEN.layers) {
    Deno.test(`${device}: ${c.name}${c.bits ? ` of ${c.bits} bits` : ""}${c.bias ? " with a bias" : ""} is mlx-lm's`, () => {
      mx.withDevice(device, () => mx.tidy(() => checkLayer(c)));
    });
  }
}

/** The set of tuner.py. */
const LENGTHS = [3, 40, 9, 31, 32, 33, 64, 70, 5, 12, 2];
const OFFSETS = [0, 7, 2, 0, 30, 1, 0, 66, 4, 0, 1];
const SET = LENGTHS.map((length, i) => ({
  tokens: Array.from({ length }, (_, j) => (7 * i + j) % 50 + 1),
  offset: OFFSETS[i],
}));

Deno.test("batches and their order are mlx-lm's, over several rounds", () => {
  mx.setDefaultDevice(anyDevice());
  for (const { batchSize, maxSeqLength, seed, tokens, lengths } of GOLDEN.batches) {
    const batches = tuner.iterateBatches(SET, batchSize, { maxSeqLength, seed, loop: true });
    const found = Array.from({ length: tokens.length }, () => batches.next().value as mx.lm.tuner.Batch);
    assertEquals(found.map(([ids]) => ids.tolist()), tokens as unknown[]);
    assertEquals(found.map(([, ends]) => ends.tolist()), lengths as unknown[]);
  }
  assertThrows(() => tuner.iterateBatches(SET.slice(0, 2), 3).next(), mx.ValueError, "at least batchSize=3 examples");
});

/** Logits of a token: a row of a table. */
class Table extends mx.nn.Module {
  weight = mx.multiply(fill(8, [51, 51]), 2);

  override forward(x: mx.Tensor): mx.Tensor {
    return mx.take(this.weight, x, 0);
  }
}

for (const device of testDevices()) {
  Deno.test(`${device}: the masked loss is mlx-lm's`, () => {
    mx.withDevice(device, () => {
      const table = new Table();
      const batches = [...tuner.iterateBatches(SET, 3, { maxSeqLength: 50, seed: 1 })];
      assertEquals(batches.length, GOLDEN.loss.length);
      batches.forEach((batch, i) => {
        const [loss, tokens] = tuner.defaultLoss(table, ...batch);
        assertEquals(tokens.item(), GOLDEN.loss[i].tokens);
        const error = Math.abs(Number(loss.item()) - GOLDEN.loss[i].loss);
        assert(error < 1e-5, `batch ${i}: ${loss.item()}, not ${GOLDEN.loss[i].loss}`);
      });
    });
  });

  Deno.test(`${device}: three batches make one step by the mean of their gradients`, async () => {
    mx.setDefaultDevice(device);
    const table = new Table();
    const before = mx.multiply(fill(8, [51, 51]), 2);
    // Plain descent, whose step follows the size of the gradients: Adam's does not.
    await tuner.train(table, new mx.optimizers.SGD({ learningRate: 8 }), SET, {
      args: { batchSize: 2, iters: 6, maxSeqLength: 36, gradAccumulationSteps: 3, adapterFile: null },
    });
    close("the trained table", table.weight, GOLDEN.accumulated);
    const moved = mx.max(mx.abs(mx.subtract(table.weight, before))).item() as number;
    assert(moved > 0.1, `weights moved by ${moved}: the test shows nothing`);
  });

  for (const [kind, golden] of Object.entries(GOLDEN.training)) {
    // DoRA makes every matrix dense in each step, which a software GPU takes long for.
    if (kind === "dora" && device !== anyDevice()) continue;
    Deno.test(`${device}: a training with ${kind} loses what mlx-lm's does`, async () => {
      mx.setDefaultDevice(device);
      const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device });
      using _ = model;
      const set = tuner.createDataset(GOLDEN.texts.map((text) => ({ text })), tokenizer);
      assertEquals(set.map(({ tokens }) => [...tokens]), golden.tokens.map((ids) => [...ids]));
      mx.random.seed(0);
      model.freeze();
      tuner.linearToLoraLayers(model, 4, { rank: 4, scale: 10, dropout: 0 }, kind === "dora");
      const names = mx.utils.treeFlatten(model.trainableParameters()).map(([name]) => name).sort();
      assertEquals(names, [...golden.names]);
      // A software GPU takes 20 seconds a step.
      const ended = new AbortController();
      const steps = device === "wasm" ? 8 : 2;
      const found = await tuner.train(model, new mx.optimizers.Adam({ learningRate: 1e-3 }), set, {
        valDataset: set.slice(0, 4),
        signal: ended.signal,
        callback: { onStep: (i) => i === steps && ended.abort() },
        args: {
          batchSize: 2,
          iters: 8,
          stepsPerReport: 1,
          stepsPerEval: 4,
          valBatches: -1,
          maxSeqLength: 64,
          adapterFile: null,
        },
      });
      assertEquals(found.train.length, steps);
      const checks = (what: string, losses: readonly number[], expected: readonly number[], tolerance: number) =>
        losses.forEach((loss, i) =>
          assert(Math.abs(loss - expected[i]) < tolerance * expected[i], `${what} ${i}: ${losses}, not ${expected}`)
        );
      checks("loss", found.train.map(([, loss]) => loss), golden.losses, 2e-4);
      // Where no gradients are taken, kernels of quantized matrices round activations to 8 bits on some devices.
      checks("validation", found.valid.map(([, loss]) => loss), golden.valid.map(([, loss]) => loss), 3e-3);
      assertEquals(found.valid.map(([at]) => at), golden.valid.map(([at]) => at).filter((at) => at < steps));
    });
  }
}

Deno.test("a text that ends with the last token has it once", async () => {
  mx.setDefaultDevice(anyDevice());
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
  using _ = model;
  const [last] = tokenizer.eosTokenIds;
  const end = tokenizer.decode([last]);
  const set = tuner.createDataset([GOLDEN.texts[4] + end, GOLDEN.texts[4]].map((text) => ({ text })), tokenizer);
  assertEquals(set.map(({ tokens }) => [...tokens]), GOLDEN.ended.map((ids) => [...ids]));
});

Deno.test("adapters that mlx-lm wrote are loaded, and the model loses what it does there", async () => {
  mx.setDefaultDevice(anyDevice());
  const adapterPath = new URL("../golden/mlx_adapter", import.meta.url).pathname;
  const lossOf = async (options: mx.lm.LoadOptions): Promise<number> => {
    const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, options);
    using _ = model;
    const set = GOLDEN.texts.map((text) => ({ tokens: tokenizer.encode(text), offset: 0 }));
    return await tuner.evaluate(model, set, 2);
  };
  const { loss, without } = GOLDEN.adapter;
  const [found, bare] = [await lossOf({ adapterPath }), await lossOf({})];
  assert(Math.abs(found - loss) < 5e-3 * loss, `${found}, not ${loss}`);
  assert(Math.abs(bare - without) < 5e-3 * without, `${bare}, not ${without}`);
  assert(Math.abs(loss - without) > 0.2 * without, "the adapter does nothing: the test shows nothing");
});

Deno.test("gradient checkpointing changes no loss, and layers are as before afterwards", async () => {
  mx.setDefaultDevice(anyDevice());
  const losses = async (gradCheckpoint: boolean): Promise<number[]> => {
    const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
    using _ = model;
    const set = tuner.createDataset(GOLDEN.texts.map((text) => ({ text })), tokenizer);
    mx.random.seed(0);
    model.freeze();
    tuner.linearToLoraLayers(model, 2, { rank: 4, scale: 10, dropout: 0 });
    const args = { batchSize: 2, iters: 3, stepsPerReport: 1, adapterFile: null, gradCheckpoint };
    const { train } = await tuner.train(model, new mx.optimizers.Adam({ learningRate: 1e-3 }), set, { args });
    assert(!Object.hasOwn(tuner.blocksOf(model)[0], "forward"));
    return train.map(([, loss]) => loss);
  };
  const [plain, checkpointed] = [await losses(false), await losses(true)];
  plain.forEach((loss, i) => assert(Math.abs(loss - checkpointed[i]) < 1e-4 * loss, `${checkpointed}, not ${plain}`));
});

class Pair extends mx.nn.Module {
  a = new mx.nn.Linear(4, 4);
  b = new mx.nn.Linear(4, 4);
}

/** A model of blocks, each with two linear layers, and a table. */
class Blocks extends mx.nn.Module {
  table = new mx.nn.Embedding(8, 4);
  layers = [new Pair(), new Pair(), new Pair()];
}

Deno.test("layers are adapted in the last blocks, by name, and given back", () => {
  const names = (model: mx.nn.Module) => mx.utils.treeFlatten(model.trainableParameters()).map(([name]) => name).sort();
  const adapted = (numLayers: number, keys?: string[], dora = false) => {
    const model = new Blocks();
    model.freeze();
    tuner.linearToLoraLayers(model, numLayers, { rank: 2, scale: 1, dropout: 0, ...(keys && { keys }) }, dora);
    return model;
  };
  const pair = (name: string) => [`${name}.lora_a`, `${name}.lora_b`];
  assertEquals(names(adapted(1)), ["layers.2.a", "layers.2.b"].flatMap(pair));
  assertEquals(names(adapted(-1)).length, 12);
  assertEquals(names(adapted(2, ["b"])), ["layers.1.b", "layers.2.b"].flatMap(pair));
  assertEquals(names(adapted(1, ["table", "a"], true)), [
    ...["lora_a", "lora_b", "m"].map((leaf) => `layers.2.a.${leaf}`),
    ...["lora_a", "lora_b", "m"].map((leaf) => `table.${leaf}`),
  ]);
  assertThrows(() => adapted(1, ["none"]), mx.ValueError, 'found no layer named "none"');
  assertThrows(
    () => tuner.linearToLoraLayers(new Table(), 1, { rank: 2, scale: 1, dropout: 0 }),
    mx.ValueError,
    "layers",
  );
  assertThrows(() => tuner.LoRALinear.fromBase(new mx.nn.Linear(2, 2), { r: 0 }), mx.ValueError, "rank of at least 1");

  const model = adapted(3);
  const bare = new mx.nn.Sequential(new mx.nn.Linear(4, 4), new mx.nn.Linear(4, 4)).freeze();
  tuner.linearToLoraLayers(bare, 1, { rank: 2, scale: 1, dropout: 0 });
  assertEquals(names(bare), pair("layers.1"));
  assertEquals(tuner.fuseLayers(model), 6);
  tuner.removeLoraLayers(bare);
  for (const one of [model, bare]) assert(one.modules().every((module) => !(module instanceof tuner.LoRALinear)));
});
