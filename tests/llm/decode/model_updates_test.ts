/**
 * Loaded models as modules. Parameters have the names of the checkpoint. The next generation computes with arrays
 * that replace them, as a model does that is loaded with those arrays.
 */

import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { join } from "node:path";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { putModule } from "../../support/models/module_trees.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

type Model = mx.lm.LanguageModel;

/** Sizes that suit the fused kernels. */
const SHAPE = {
  hidden: 256,
  intermediate: 384,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  tied: true,
  vocab: 4096,
} satisfies ModelShape;

const rope_scaling = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 64,
};

const [{ ids: PROMPT, greedy: GREEDY }] = GOLDEN;
const COUNT = 12;

/** The tokens that generation takes after a prompt. */
async function continuation({ model, tokenizer }: mx.lm.Loaded, prompt: readonly number[] = PROMPT): Promise<number[]> {
  const tokens: number[] = [];
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: COUNT, stop: [] })) {
    tokens.push(token);
  }
  return tokens;
}

/** The same of whole forward passes without a cache. */
function plain(model: Model, prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) {
    const next = mx.tidy(() => mx.argmax(model.forward(mx.array([tokens], mx.int32)).index(0, -1)).item());
    tokens.push(Number(next));
  }
  return tokens.slice(prompt.length);
}

/** A model loaded from a folder like `folder` but with the parameters that `model` has now. */
async function reloaded(
  model: Model,
  folder: string | URL,
  device: string,
  config: (text: string) => string = (text) => text,
): Promise<mx.lm.Loaded> {
  const copy = await Deno.makeTempDir();
  try {
    const at = folder instanceof URL ? folder.pathname : folder;
    for (const name of ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]) {
      const text = await Deno.readTextFile(join(at, name)).catch(() => undefined);
      if (text !== undefined) await Deno.writeTextFile(join(copy, name), name === "config.json" ? config(text) : text);
    }
    model.saveWeights(join(copy, "model.safetensors"));
    return await mx.lm.load(copy, { device });
  } finally {
    await Deno.remove(copy, { recursive: true });
  }
}

/** A linear map with a low-rank term beside it, as LoRA has it. */
class LowRank extends mx.nn.Module {
  linear: mx.nn.Module;
  a: mx.Tensor;
  b: mx.Tensor;

  constructor(linear: mx.nn.QuantizedLinear, rank: number) {
    super();
    const [outputs, words] = linear.weight.shape;
    this.linear = linear;
    const drawn = (seed: number, shape: number[]): mx.Tensor =>
      mx.tidy(() => mx.random.normal(shape, null, null, 0.2, mx.random.key(seed)));
    this.a = drawn(1, [words * 32 / linear.bits, rank]);
    this.b = drawn(2, [rank, outputs]);
  }

  override forward(x: mx.Tensor): mx.Tensor {
    return mx.add(this.linear.forward(x), mx.matmul(mx.matmul(x, this.a), this.b));
  }
}

Deno.test("parameters have the names and shapes of the checkpoint", async () => {
  const device = DEVICES[0];
  const { model } = await mx.lm.load(TINY_DIR, { device });
  const stored = mx.load(new URL("model.safetensors", TINY_DIR).pathname) as Record<string, mx.Tensor>;
  const found = namedLeaves(model.parameters()) as [string, mx.Tensor][];
  const shapes = (named: [string, mx.Tensor][]): string[] =>
    named.map(([name, { shape }]) => `${name} ${shape}`).sort();
  assertEquals(shapes(found), shapes(Object.entries(stored)));
  const trained = namedLeaves(model.trainableParameters()).map(([name]) => name);
  assertEquals(trained, found.map(([name]) => name).filter((name) => /norm\.weight$/.test(name)));
  assertEquals(namedLeaves(model.freeze().trainableParameters()), []);
  mx.dispose(stored);
  model[Symbol.dispose]();
});

for (const device of DEVICES) {
  Deno.test(`generation uses the weights that a model has now on ${device}`, async () => {
    mx.setDefaultDevice(device);
    using _options = withOptions({ regions: "on" }); // the fused kernels also where the device is no real GPU
    const backend = mx.withDevice(device, getBackend);
    const before = backend.liveObjects();
    const loaded = await mx.lm.load(TINY_DIR, { device });
    const { model } = loaded;
    const first = await continuation(loaded);
    assertEquals(first, GREEDY.slice(0, COUNT));

    // Another norm, which lies lazily where the loaded one lay.
    const { weight: norm } = model.parameters().model.norm;
    const other = mx.tidy(() => {
      const scale = mx.random.uniform(0, 2, [...norm.shape], mx.float32, mx.random.key(7));
      return mx.multiply(norm, scale).astype(norm.dtype);
    });
    model.update({ model: { norm: { weight: other } } });
    assertEquals(model.makeCache().fused, device !== "wasm");
    const scaled = await continuation(loaded);
    assertNotEquals(scaled, first);
    const second = await reloaded(model, TINY_DIR, device);
    assertEquals(await continuation(second), scaled);
    second.model[Symbol.dispose]();

    // Another quantized matrix.
    const { gate_proj, up_proj } = model.children().model.layers[3].mlp;
    model.updateModules({ model: { layers: [{}, {}, {}, { mlp: { gate_proj: up_proj, up_proj: gate_proj } }] } });
    model.update({ model: { norm: { weight: norm } } });
    const swapped = await continuation(loaded);
    const third = await reloaded(model, TINY_DIR, device);
    assertEquals(await continuation(third), swapped);
    third.model[Symbol.dispose]();

    // Back again.
    model.updateModules({ model: { layers: [{}, {}, {}, { mlp: { gate_proj, up_proj } }] } });
    assertEquals(await continuation(loaded), first);
    await model.traces.idle();
    model[Symbol.dispose]();
    mx.dispose(other);
    assertEquals(model.traces.size, 0);
    assertEquals(backend.liveObjects(), before);
  });

  Deno.test(`a model with low-rank terms generates what its forward pass says on ${device}`, async () => {
    mx.setDefaultDevice(device);
    using _options = withOptions({ regions: "on" }); // the fused kernels also where the device is no real GPU
    const backend = mx.withDevice(device, getBackend);
    const before = backend.liveObjects();
    const loaded = await mx.lm.load(TINY_DIR, { device });
    const { model } = loaded;
    const first = await continuation(loaded);
    assertEquals(model.makeCache().fused, device !== "wasm");
    for (const name of ["model.layers.2.self_attn.q_proj", "model.layers.5.mlp.down_proj"]) {
      const module = model.namedModules().find(([at]) => at === name)![1];
      putModule(model, name, new LowRank(module as mx.nn.QuantizedLinear, 4));
    }
    assert(!model.makeCache().fused);
    const adapted = await continuation(loaded);
    assertNotEquals(adapted, first);
    assertEquals(adapted.slice(0, 4), plain(model, PROMPT, 4));
    await model.traces.idle();
    model[Symbol.dispose]();
    assertEquals(backend.liveObjects(), before);
  });

  Deno.test(`a model that was quantized as a module is one of those files on ${device}`, async () => {
    mx.setDefaultDevice(device);
    using _options = withOptions({ regions: "on" }); // the fused kernels also where the device is no real GPU
    const backend = mx.withDevice(device, getBackend);
    const before = backend.liveObjects();
    const folder = await Deno.makeTempDir();
    const shape: ModelShape = { ...SHAPE, family: "llama", config: { rope_scaling } };
    await writeModel(`${folder}/model`, shape, { bits: 16, seed: 5 });
    const loaded = await mx.lm.load(`${folder}/model`, { device });
    const { model } = loaded;
    const prompt = [5, 90, 1000, 31, 7];
    await continuation(loaded, prompt);
    mx.nn.quantize(model, 64, 4);
    const quantized = await continuation(loaded, prompt);
    const other = await reloaded(
      model,
      `${folder}/model`,
      device,
      (text) => JSON.stringify({ ...JSON.parse(text), quantization: { group_size: 64, bits: 4 } }),
    );
    assertEquals(await continuation(other, prompt), quantized);
    assertEquals(model.makeCache().fused, other.model.makeCache().fused);
    for (const { model } of [loaded, other]) {
      await model.traces.idle();
      model[Symbol.dispose]();
    }
    assertEquals(backend.liveObjects(), before);
    await Deno.remove(folder, { recursive: true });
  });
}

Deno.test("loading draws nothing", async () => {
  const key = mx.random.state[0].tolist();
  const { model } = await mx.lm.load(TINY_DIR, { device: DEVICES[0] });
  assertEquals(mx.random.state[0].tolist(), key);
  model[Symbol.dispose]();
});
