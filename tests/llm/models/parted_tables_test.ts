/**
 * Tables of vectors that are larger than an array may be. In parts they give the bits of whole ones, in each format and in GGUF; other
 * matrices are refused. Limits are lowered for that. A file with the table of Gemma 4 E2B in 16 bits has holes in its place.
 */

import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { attrsOf } from "../../../src/graph/node.ts";
import { storedBytes, storedTensors } from "../../../src/array/files/stored.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { readTensors } from "../../../src/llm/checkpoint/directory.ts";
import { arrayLimits, partRows, partsOfRows } from "../../../src/llm/checkpoint/row_parts.ts";
import { Weights } from "../../../src/llm/checkpoint/weights.ts";
import type { ModelConfig } from "../../../src/llm/config/model.ts";
import { copyOfTable } from "../../../src/llm/layers/stored.ts";
import { PartedTable } from "../../../src/llm/layers/parted_table.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { GGUF_MODELS, ggufBytes } from "../../support/models/gguf_models.ts";
import { PROMPTS } from "../../support/models/mlx_lm_families.ts";
import { smallPublished } from "../../../scripts/synthetic/small_published.ts";

const DEVICES = testDevices();
for (const device of DEVICES) mx.withDevice(device, () => mx.eval(mx.zeros([1]))); // opened outside of the tests, which count resources

/** What a model computes: the logits of a prompt, the tokens after it, and the names of its tables. */
interface Computed {
  readonly logits: Float32Array;
  readonly tokens: readonly number[];
  readonly tables: readonly string[];
}

const TABLE = /embed_tokens\w*\.(?:parts\.\d+\.)?weight$/;

/** Does some work on a device whose buffers hold no more than `bytes`. */
async function within<T>(device: string, bytes: number, work: () => Promise<T>): Promise<T> {
  const backend = mx.withDevice(device, getBackend);
  const { limits } = backend;
  Object.assign(backend, { limits: { ...limits, maxBufferBytes: Math.min(bytes, limits.maxBufferBytes) } });
  try {
    return await work();
  } finally {
    Object.assign(backend, { limits });
  }
}

/** Loads a model, on a device whose buffers hold no more than `bytes`, and computes with it. */
async function compute(path: string, device: string, bytes: number = Infinity): Promise<Computed> {
  const { model, tokenizer } = await within(device, bytes, () => mx.lm.load(path, { device })); // caches need none of it
  using _ = model;
  const prompt = PROMPTS[0].slice(0, 9);
  using out = mx.withDevice(
    device,
    () => mx.tidy(() => model.forward(mx.array([prompt], mx.int32)).astype(mx.float32)),
  );
  const logits = (out.toTypedArray() as Float32Array).slice();
  const tokens: number[] = [];
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { temp: 0, maxTokens: 6 })) {
    tokens.push(token);
  }
  const tables = namedLeaves(model.parameters()).map(([name]) => name).filter((name) => TABLE.test(name));
  return { logits, tokens, tables };
}

/** Writes a safetensors file with a hole in place of its arrays, which takes no room. Gives where they begin. */
async function writeHoles(file: string, header: unknown, bytes: number): Promise<number> {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(BigUint64Array.of(BigInt(json.length)).buffer);
  await Deno.writeFile(file, new Uint8Array([...length, ...json]));
  await Deno.truncate(file, 8 + json.length + bytes);
  return 8 + json.length;
}

const names = (path: string, parts: number): string[] =>
  Array.from({ length: parts }, (_, i) => `model.${path}.parts.${i}.weight`);

/** Of the small model: 4,096 rows of 256 columns for four layers, and of 128 columns. */
const BYTES = { layers: 4096 * 256, embedding: 4096 * 128 } as const;

/** Models in GGUF, the largest array for them, and the table that is in two parts then. */
const GGUF = [
  ["Gemma 4 with keys and values that layers share, BF16", 200_000, "embed_tokens_per_layer"],
  ["Gemma 3, Q4_0", 12_000, "embed_tokens"],
] as const;

for (const device of DEVICES) {
  const isCpu = device === "wasm";
  for (const bits of isCpu ? [4, 8, 16] : [4]) { // elsewhere one goes for all: software Vulkan takes half a minute for each
    Deno.test(`tables in parts give the bits of whole ones, ${bits} bits on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const path = `${folder}/model`;
      await writePublished(path, smallPublished("gemma-4-e2b"), { groupSize: 32, bits });
      const whole = await compute(path, device);
      assertEquals(whole.tables, ["model.embed_tokens.weight", "model.embed_tokens_per_layer.weight"]);
      const layers = await compute(path, device, BYTES.layers * bits / 8 * 0.9);
      const both = await compute(path, device, BYTES.embedding * bits / 8 * 0.7);
      await Deno.remove(folder, { recursive: true });
      assertEquals(layers.tables, ["model.embed_tokens.weight", ...names("embed_tokens_per_layer", 2)]);
      assertEquals(both.tables, [...names("embed_tokens", 2), ...names("embed_tokens_per_layer", 3)]);
      for (const { logits, tokens } of [layers, both]) {
        assertEquals(tokens, whole.tokens);
        assertEquals(logits, whole.logits);
      }
    });
  }

  for (const [name, bytes, table] of isCpu ? GGUF : []) { // the same arrays, only made otherwise
    Deno.test(`tables in parts of the GGUF file of ${name} give the bits of whole ones on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const path = `${folder}/model.gguf`;
      await Deno.writeFile(path, ggufBytes(GGUF_MODELS.find((model) => model.name === name)!));
      const whole = await compute(path, device);
      const parted = await compute(path, device, bytes);
      await Deno.remove(folder, { recursive: true });
      assertEquals(parted.tables.filter((name) => name.includes("parts")), names(table, 2));
      assertEquals(parted.tokens, whole.tokens);
      assertEquals(parted.logits, whole.logits);
    });
  }
}

Deno.test("a matrix that is no table is refused where it is larger than an array may be", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/model`;
  await writePublished(path, smallPublished("gemma-4-e2b"), { groupSize: 32 });
  await assertRejects(
    () => compute(path, DEVICES[0], 4096),
    mx.lm.LlmError,
    "are larger than an array may be on the device, take a more strongly quantized model or another device: " +
      '"model.layers.0.self_attn.q_proj.weight"',
  );
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a head in parts is refused, and not taken for a tied one, where config.json does not say which", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/model`;
  await writePublished(path, smallPublished("qwen3-30b-a3b"), { groupSize: 32, bits: 16 });
  const { tie_word_embeddings: _, ...config } = JSON.parse(await Deno.readTextFile(`${path}/config.json`));
  await Deno.writeTextFile(`${path}/config.json`, JSON.stringify(config));
  await assertRejects(
    () => compute(path, DEVICES[0], config.vocab_size * config.hidden_size * 2 * 0.9),
    mx.lm.LlmError,
    'another device: "lm_head.weight"',
  );
  await Deno.remove(folder, { recursive: true });
});

Deno.test("stacks of the makers' layout that are too large are named, and none is called missing", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/model`;
  await writePublished(path, smallPublished("qwen3.5-35b-a3b"), { groupSize: 32, bits: 16 });
  const file = `${path}/model.safetensors`;
  const stored = mx.loadSafetensors(file);
  const made = Object.fromEntries(
    Object.entries(stored).flatMap(([name, array]): [string, mx.Tensor][] => {
      if (name.includes("switch_mlp.up_proj")) return [];
      const joined = (): mx.Tensor => mx.concatenate([array, stored[name.replace("gate_proj", "up_proj")]], 1);
      return name.includes("switch_mlp.gate_proj")
        ? [[name.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj"), joined()]]
        : [[name.replace("switch_mlp.down_proj.weight", "experts.down_proj"), array]];
    }),
  );
  mx.saveSafetensors(`${path}/new`, made);
  const largest = Math.max(...Object.entries(made).map(([name, { nbytes }]) => name.endsWith("_up_proj") ? nbytes : 0));
  mx.dispose([...Object.values(stored), ...Object.values(made)]);
  await Deno.rename(`${path}/new`, file);
  const error = await assertRejects(() => compute(path, DEVICES[0], largest * 0.9), mx.lm.LlmError);
  assertStringIncludes(error.message, '"model.layers.0.mlp.experts.gate_up_proj"');
  assertEquals(/missing|not part|parts/.exec(error.message), null);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a fused model has its tables whole, and a table in parts takes no adapter", async () => {
  const folder = await Deno.makeTempDir();
  const [path, adapters, out] = ["model", "adapters", "out"].map((name) => `${folder}/${name}`);
  await writePublished(path, smallPublished("gemma-4-e2b"), { groupSize: 32, bits: 8 });
  const device = DEVICES[0];
  const adapted = { rank: 4, scale: 1, dropout: 0, keys: ["self_attn.q_proj"] };
  await within(device, BYTES.embedding * 0.7, async () => {
    const { model } = await mx.lm.load(path, { device });
    using _ = model;
    const keys = ["model.embed_tokens"];
    assertThrows(
      () => mx.lm.tuner.linearToLoraLayers(model, 1, { ...adapted, keys }),
      mx.ValueError,
      "it is larger than an array may be on the device: leave it out",
    );
    await Deno.mkdir(adapters);
    mx.lm.tuner.linearToLoraLayers(model, 1, adapted);
    const found = namedLeaves(model.parameters()).filter(([name]) => name.includes("lora_"));
    mx.saveSafetensors(`${adapters}/adapters.safetensors`, Object.fromEntries(found) as Record<string, mx.Tensor>);
    const config = { fine_tune_type: "lora", num_layers: 1, lora_parameters: adapted };
    await Deno.writeTextFile(`${adapters}/adapter_config.json`, JSON.stringify(config));
    await mx.lm.tuner.fuse(path, adapters, out, { device });
  });
  for (const { name, shape } of storedTensors(`${path}/model.safetensors`)) {
    const written = storedTensors(`${out}/model.safetensors`).find((one) => one.name === name);
    assertEquals([name, written?.shape], [name, shape]);
  }
  const [was, is] = [path, out].map((folder) => mx.loadSafetensors(`${folder}/model.safetensors`));
  for (const end of ["weight", "scales", "biases"]) {
    const name = `model.embed_tokens.${end}`;
    assertEquals(storedBytes(is[name]), storedBytes(was[name]));
  }
  mx.dispose([...Object.values(was), ...Object.values(is)]);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a table in parts takes ids of each dtype, and negative ones from its end", () => {
  const rows = [128, 128, 44];
  const whole = mx.arange(300).reshape(300, 1);
  const parts = mx.split(whole, [128, 256]).map((weight) => new mx.nn.Embedding({ weight }));
  const table = new PartedTable(parts, rows);
  for (const dtype of [mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64]) {
    assertEquals(table.forward(mx.array([0, 3, 127], dtype)).tolist(), [[0], [3], [127]], dtype.name);
  }
  assertEquals(table.forward(mx.array([-1, -300, 255, 256, -45], mx.int32)).tolist(), [[299], [0], [255], [256], [
    255,
  ]]);
  assertEquals(table.forward(mx.array([200], mx.uint8)).tolist(), [[200]]);
  // So does its copy for another device, which is the head there.
  using weights = new Weights("folder", {} as ModelConfig, new Map(), mx.float32);
  const copy = copyOfTable(weights, table);
  assertEquals(copy.forward(mx.array([0, 130, 299], mx.int32)).tolist(), [[0], [130], [299]]);
  assertEquals(copy.asLinear(mx.array([[2]], mx.float32)).tolist(), [Array.from({ length: 300 }, (_, i) => 2 * i)]);
  assertEquals(weights.tensors.length, 3);
});

Deno.test("stored arrays and stacks of experts that no array can be are named with their file", async () => {
  const folder = await Deno.makeTempDir();
  const shape = [1, 2 ** 31];
  const header = { "a.weight": { dtype: "U8", shape, data_offsets: [0, 2 ** 31] } };
  await writeHoles(`${folder}/model.safetensors`, header, 2 ** 31);
  const error = assertThrows(() => readTensors(folder, ["model.safetensors"]), mx.lm.LlmError);
  assertStringIncludes(error.message, 'model.safetensors: "a.weight" is larger than an array may be');
  await Deno.remove(folder, { recursive: true });
  const from = [0, 1, 2].map((i) => `experts.${i}.weight`);
  const stored = new Map(from.map((name) => [name, mx.zeros([2 ** 15, 2 ** 15], mx.float16)]));
  using weights = new Weights("folder", {} as ModelConfig, stored, mx.float32);
  weights.stack({ from, to: "experts.weight" });
  weights.take("experts.weight", [3, 2 ** 15, 2 ** 15], "float");
  assertThrows(() => weights.finish(), mx.lm.LlmError, '"experts.weight"');
});

Deno.test("the table of Gemma 4 E2B in 16 bits has more elements than an array, and is read in two parts", async () => {
  const folder = await Deno.makeTempDir();
  const [rows, columns] = [262144, 35 * 256];
  const name = "model.embed_tokens_per_layer";
  const header = {
    [`${name}.weight`]: { dtype: "BF16", shape: [rows, columns], data_offsets: [0, rows * columns * 2] },
  };
  const start = await writeHoles(`${folder}/model.safetensors`, header, rows * columns * 2);
  const parts = readTensors(folder, ["model.safetensors"]);
  const half = rows / 2;
  assertEquals([...parts.keys()], [0, 1].map((i) => `${name}.parts.${i}.weight`));
  const places = parts.values().map((part) => [...part.shape, attrsOf(nodeOf(part), "file").byteOffset]);
  assertEquals([...places], [[half, columns, start], [half, columns, start + half * columns * 2]]);
  mx.dispose([...parts.values()]);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("parts are as large as they may be, equal, and of whole tiles", () => {
  const most = arrayLimits(1000);
  const rowsOf = (count: number, columns: number): number | undefined =>
    partRows({ shape: [count, columns], elementBytes: 2 }, most);
  assertEquals([rowsOf(50, 10), rowsOf(51, 10), rowsOf(100, 10), rowsOf(0, 10)], [undefined, 32, 48, undefined]);
  assertEquals([rowsOf(3, 250), rowsOf(2, 501), rowsOf(2, 250)], [2, undefined, undefined]);
  assertEquals(partsOfRows(100, 48), [{ first: 0, rows: 48 }, { first: 48, rows: 48 }, { first: 96, rows: 4 }]);
});
