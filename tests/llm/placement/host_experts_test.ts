/**
 * Models whose experts are in host memory give the bits of those on the device: prompts, steps and batches, of all formats of experts.
 * Counters say what is where, and nothing is left. On software Vulkan both are one memory, and the buffers have the other kind.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { type OptionChanges, withOptions } from "../../../scripts/support/options.ts";
import type { BufferKind } from "../../../src/backend/backend.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { changeTensors, checkpointOf, unstacked } from "../../support/models/changed_checkpoints.ts";
import { GGUF_MODELS, ggufBytes } from "../../support/models/gguf_models.ts";
import { PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const OTHER = "wasm-threads=1";
for (const name of [...testDevices(), OTHER]) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** How a model gets onto the disk, below a folder: its path. And what the scheduler may do. */
type Case = readonly [write: (folder: string) => Promise<string>, options?: OptionChanges];

/** A checkpoint of mlx-lm, changed. */
const checkpoint = (name: string, change?: (dir: string) => void) => async (folder: string): Promise<string> => {
  await writeCheckpoint(`${folder}/model`, checkpointOf(name));
  change?.(`${folder}/model`);
  return `${folder}/model`;
};

const CASES: Readonly<Record<string, Case>> = {
  "codes of 4 bits": [checkpoint("Qwen3-MoE with a dense layer, 4 bits")],
  "mxfp4 and biases": [checkpoint("gpt-oss, mxfp4")],
  "dense experts that are stored one by one": [
    checkpoint(
      "Mixtral, bfloat16",
      (dir) => changeTensors(dir, (tensors) => unstacked(tensors, { gate_proj: "w1", down_proj: "w2", up_proj: "w3" })),
    ),
  ],
  "a GGUF file": [async (folder) => {
    const model = GGUF_MODELS.find(({ name }) => name === "GLM-4.7-Flash, Q8_0 and Q4_0")!;
    await Deno.writeFile(`${folder}/model.gguf`, ggufBytes(model));
    return `${folder}/model.gguf`;
  }],
  "fused kernels": [async (folder) => {
    await writePublished(`${folder}/model`, FUSED, { groupSize: 64, seed: 3 });
    return `${folder}/model`;
  }, { regions: "on", gemv: "on", launchMode: "barriers" }],
};

const FUSED = {
  model_type: "qwen3_moe",
  hidden_size: 512,
  intermediate_size: 512,
  moe_intermediate_size: 256,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 128,
  num_experts: 8,
  num_experts_per_tok: 2,
  decoder_sparse_step: 1,
  mlp_only_layers: [],
  norm_topk_prob: true,
  max_position_embeddings: 4096,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000,
  tie_word_embeddings: false,
  vocab_size: 4099,
};

/** What a model computes: a prompt's last logits, the tokens after it, and those of two sequences together. */
async function compute({ model, tokenizer }: mx.lm.Loaded): Promise<unknown> {
  const options = { maxTokens: 4, temp: 0 };
  const logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)).index(0, -1).tolist());
  const tokens: number[] = [];
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, PROMPTS[0], options)) tokens.push(token);
  const { texts } = await mx.lm.batchGenerate(model, tokenizer, [PROMPTS[0], PROMPTS[1]], options);
  return { logits, tokens, texts };
}

/** Bytes of the experts of each layer that has some, and of all weights. */
function bytesOf(model: mx.lm.LanguageModel): { readonly layers: readonly number[]; readonly all: number } {
  const layers = new Map<string, number>();
  for (const [name, { nbytes }] of mx.utils.treeFlatten(model.parameters()) as [string, mx.Tensor][]) {
    const [, layer] = /layers\.(\d+)\..*\.(?:switch_mlp|switch_glu|experts)\.(?:gate|up|down)_proj\./.exec(name) ?? [];
    if (layer !== undefined) layers.set(layer, (layers.get(layer) ?? 0) + nbytes);
  }
  const { first, layers: blocks, last } = decodingModel(model).sections;
  const all = [...new Set([first, blocks.flat(), last].flat())].reduce((sum, { nbytes }) => sum + nbytes, 0);
  return { layers: [...layers.values()], all };
}

async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const device of testDevices().filter((name) => name !== "wasm")) {
  for (const [name, [write, changes = {}]] of Object.entries(CASES)) {
    Deno.test(`experts in host memory, ${name}: the same bits on ${device}`, () =>
      inFolder(async (folder) => {
        mx.setDefaultDevice(device);
        using _options = withOptions(changes);
        const path = await write(folder);
        const backend = getBackend(device);
        const [before, objects] = [backend.memory(), backend.liveObjects()];
        const whole = await mx.lm.load(path, { device });
        const wanted = await compute(whole);
        const { layers, all } = bytesOf(whole.model);
        assertEquals([whole.hostBytes, backend.memory().hostActive], [0, 0]);
        whole.model[Symbol.dispose]();

        const experts = layers.reduce((sum, bytes) => sum + bytes, 0);
        for (const count of [layers.length, 1]) {
          const kept = layers.slice(-count).reduce((sum, bytes) => sum + bytes, 0);
          const notes: string[] = [];
          const options = { device, weightBytes: all - kept, onNote: (line: string) => notes.push(line) };
          const loaded = await mx.lm.load(path, options);
          const told = notes.filter((line) => /: the experts of layers? [\d, to]+ stay in host memory, /.test(line));
          const isSlower = mx.deviceMemory(device).hostTotal > 0;
          assertEquals([loaded.hostBytes, told.length], [kept, isSlower ? 1 : 0], notes.join());
          assert(backend.memory().hostActive >= kept, `${backend.memory().hostActive} bytes`);
          if (count === layers.length) assertEquals(await compute(loaded), wanted);
          if (count === layers.length && changes.gemv) { // scales in the order of kernels are there too: a ninth of the weights
            assert(backend.memory().hostActive >= 1.1 * kept, `${backend.memory().hostActive} bytes, prepared`);
          }
          loaded.model[Symbol.dispose]();
        }
        const { active, hostActive } = backend.memory();
        assertEquals([active, hostActive, backend.liveObjects()], [before.active, 0, objects], "memory is left");
        await assertRejects(
          () => mx.lm.load(path, { device, weightBytes: all - experts - 1 }),
          mx.lm.LlmError,
          "of weights for",
        );
        assertEquals([backend.memory().active, backend.liveObjects()], [before.active, objects]);
      }));
  }
}

for (const device of testDevices().filter((name) => name !== "wasm")) {
  Deno.test(`what does not fit leaves experts in host memory, if there is such memory, on ${device}`, () =>
    inFolder(async (folder) => {
      const [write] = CASES["codes of 4 bits"];
      const path = await write(folder);
      const before = getBackend(device).memory().active;
      const whole = await mx.lm.load(path, { device });
      const { layers, all } = bytesOf(whole.model);
      whole.model[Symbol.dispose]();
      const options = { device, memoryBytes: all }; // none is left for a context
      const load = async (more: mx.lm.LoadOptions = {}): Promise<number> => {
        const { model, hostBytes } = await mx.lm.load(path, { ...options, ...more });
        model[Symbol.dispose]();
        return hostBytes;
      };
      if (mx.deviceMemory(device).hostTotal > 0) assert(layers.at(-1)! <= await load());
      else await assertRejects(() => load(), mx.lm.LlmError, "take a smaller");
      await assertRejects(() => load({ weightBytes: Infinity }), mx.lm.LlmError, "take a smaller");
      assertEquals(getBackend(device).memory().active, before);
    }));

  Deno.test(`a limit holds for each of several devices: ${device} and the CPU`, () =>
    inFolder(async (folder) => {
      const [write] = CASES["codes of 4 bits"];
      const path = await write(folder);
      const devices = [device, OTHER];
      const tokens: number[][] = [];
      let weightBytes = Infinity;
      for (const isLimited of [false, true]) {
        const { model, tokenizer, parts, hostBytes } = await mx.lm.load(path, { devices, weightBytes });
        const options = { maxTokens: 4, temp: 0 };
        const kinds = new Set<BufferKind | undefined>();
        const backend = getBackend(device), alloc = backend.alloc.bind(backend);
        Object.defineProperty(backend, "alloc", {
          configurable: true,
          value: (bytes: number, kind?: BufferKind) => (kinds.add(kind), alloc(bytes, kind)),
        });
        const found = await Array.fromAsync(mx.lm.streamGenerate(model, tokenizer, PROMPTS[0], options));
        Reflect.deleteProperty(backend, "alloc");
        for (const kind of ["readback", "visible"] as const) assert(kinds.has(kind), kind); // what each step exchanges
        tokens.push(found.map(({ token }) => token));
        assertEquals([parts.map((part) => part.hostBytes), hostBytes > 0], [[hostBytes, 0], isLimited]);
        weightBytes = parts[0].bytes - 1;
        model[Symbol.dispose]();
      }
      assertEquals(tokens[1], tokens[0]);
      assertEquals(getBackend(device).memory().hostActive, 0);
    }));
}

Deno.test("a limit of weights that is none is refused, and the CPU has none", () =>
  inFolder(async (folder) => {
    for (const weightBytes of [-1, NaN, "6e9" as unknown as number]) {
      await assertRejects(() => mx.lm.load(folder, { weightBytes }), mx.lm.LlmError, "weightBytes");
    }
    const [write] = CASES["codes of 4 bits"];
    const { model, hostBytes } = await mx.lm.load(await write(folder), { device: "wasm", weightBytes: 0 });
    assertEquals([hostBytes, mx.deviceMemory("wasm").hostTotal], [0, 0]);
    model[Symbol.dispose]();
  }));
