/**
 * Fine-tuning of the embedded model with LoRA, and of its dense form in full, to a loss that is stated here. The
 * adapters hold what was learned; without them it is gone.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { tuner } = mx.lm;

const PROMPT = "What is the capital of France?";
const ANSWER = "Arr, it be Paris.";
const CHAT = [{ prompt: PROMPT, completion: ANSWER }];

interface Case {
  readonly kind: "lora" | "full";
  readonly numLayers: number;
  readonly learningRate: number;
}

const CASES: readonly Case[] = [
  { kind: "lora", numLayers: 4, learningRate: 1e-3 },
  { kind: "full", numLayers: 2, learningRate: 5e-4 },
];

async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await work(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const device of testDevices()) {
  // On a software GPU a step takes many seconds: it runs the first of them.
  const [steps, most] = device === "wasm" ? [16, 0.45] : [4, 3];
  for (const { kind, numLayers, learningRate } of CASES) {
    Deno.test(`${device}: ${kind} fine-tuning of tiny-qwen3 learns an answer`, () =>
      inFolder(async (folder) => {
        mx.setDefaultDevice(device);
        // Quantized matrices are not trained: in full, a dense model is.
        const dense = `${folder}/dense`;
        if (kind === "full") await mx.lm.convert(mx.lm.EMBEDDED_MODEL, dense, { dequantize: true, device });
        const from = kind === "full" ? dense : mx.lm.EMBEDDED_MODEL;
        const { model, tokenizer } = await mx.lm.load(from, { device });
        using _ = model;
        const set = tuner.createDataset(CHAT, tokenizer, { maskPrompt: true });
        mx.random.seed(0);
        const config = {
          fineTuneType: kind,
          numLayers,
          ...(kind === "lora" && { loraParameters: { rank: 8, scale: 10, dropout: 0 } }),
        };
        tuner.prepareModel(model, config);
        tuner.saveAdapterConfig(model, folder, config);
        const before = await tuner.evaluate(model, set, 1);
        const { train } = await tuner.train(model, new mx.optimizers.Adam({ learningRate }), set, {
          args: { batchSize: 1, iters: steps, stepsPerReport: 1, adapterFile: `${folder}/adapters.safetensors` },
        });
        assert(before > 5, `the loss before is ${before}`);
        assert(Math.abs(train[0][1] - before) < 0.02 * before, `the first step loses ${train[0][1]}, not ${before}`);
        assert(train.at(-1)![1] < most, `losses are ${train.map(([, loss]) => loss)}`);

        // In a fresh model, with the adapters and without.
        const fresh = await mx.lm.load(from, { device, adapterPath: folder });
        using adapted = fresh.model;
        const after = await tuner.evaluate(adapted, set, 1);
        assert(after < most, `with what was saved, the loss is ${after}`);
        if (device !== "wasm") return;
        const answer = await mx.lm.generate(adapted, tokenizer, [{ role: "user", content: PROMPT }], {
          temp: 0,
          maxTokens: 24,
        });
        assertEquals(answer.trim(), ANSWER);
        if (kind === "full") return;
        tuner.fuseLayers(adapted, true);
        const fused = await tuner.evaluate(adapted, set, 1);
        assert(Math.abs(fused - after) < 0.05, `fused, the loss is ${fused}, not ${after}`);
        tuner.removeLoraLayers(model);
        const without = await tuner.evaluate(model, set, 1);
        assert(Math.abs(without - before) < 1e-4 * before, `without adapters, the loss is ${without}, not ${before}`);
      }));
  }
}

Deno.test("adapters of another model, and configs that are none, are refused by name", () =>
  inFolder(async (folder) => {
    const { model } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
    using _ = model;
    const refused = (config: unknown, message: string, code: mx.lm.LlmErrorCode = "config") => {
      Deno.writeTextFileSync(`${folder}/adapter_config.json`, JSON.stringify(config));
      const error = assertThrows(() => tuner.loadAdapters(model, folder), mx.lm.LlmError, message);
      assertEquals(error.code, code);
    };
    const lora = { num_layers: 1, lora_parameters: { rank: 2, scale: 1, dropout: 0 } };
    assertThrows(() => tuner.loadAdapters(model, `${folder}/none`), mx.lm.LlmError, "does not exist");
    refused([], "num_layers is undefined, expected a whole number");
    refused({ ...lora, fine_tune_type: "qlora" }, 'fine_tune_type is "qlora", expected lora, dora, full');
    refused({ num_layers: 1, lora_parameters: { rank: 2 } }, "lora_parameters.scale is undefined, expected a number");
    refused({ ...lora, num_layers: 9 }, "9 layers were asked for: the model has 8", "option");
    mx.saveSafetensors(`${folder}/adapters.safetensors`, { "model.layers.7.mlp.none.lora_a": mx.ones([2]) });
    refused(lora, 'has "model.layers.7.mlp.none.lora_a", which is no parameter', "weights");
  }));
