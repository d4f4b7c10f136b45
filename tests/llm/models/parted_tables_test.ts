/**
 * Tables of vectors that are larger than an array may be. In parts they give the bits of whole ones, in each format and in GGUF; other
 * matrices are refused. Limits are lowered for that. A file with the table of Gemma 4 E2B in 16 bits has holes in its place.
 */

import { assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { attrsOf } from "../../../src/graph/node.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { readTensors } from "../../../src/llm/checkpoint/directory.ts";
import { arrayLimits, partRows, partsOfRows } from "../../../src/llm/checkpoint/row_parts.ts";
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

/** Loads a model, on a device whose buffers hold no more than `bytes`, and computes with it. */
async function compute(path: string, device: string, bytes: number = Infinity): Promise<Computed> {
  const backend = mx.withDevice(device, getBackend);
  const { limits } = backend;
  Object.assign(backend, { limits: { ...limits, maxBufferBytes: Math.min(bytes, limits.maxBufferBytes) } });
  try {
    const { model, tokenizer } = await mx.lm.load(path, { device });
    Object.assign(backend, { limits }); // caches and intermediates need none of it
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
  } finally {
    Object.assign(backend, { limits });
  }
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

Deno.test("the table of Gemma 4 E2B in 16 bits has more elements than an array, and is read in two parts", async () => {
  const folder = await Deno.makeTempDir();
  const [rows, columns] = [262144, 35 * 256];
  const name = "model.embed_tokens_per_layer";
  const header = {
    [`${name}.weight`]: { dtype: "BF16", shape: [rows, columns], data_offsets: [0, rows * columns * 2] },
  };
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = `${folder}/model.safetensors`;
  await Deno.writeFile(
    file,
    new Uint8Array([...new Uint8Array(BigUint64Array.of(BigInt(json.length)).buffer), ...json]),
  );
  const start = 8 + json.length;
  await Deno.truncate(file, start + rows * columns * 2); // a hole: it takes no room
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
