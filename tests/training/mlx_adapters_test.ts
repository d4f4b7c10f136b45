/**
 * Adapters that mlx-lm wrote for checkpoints of its families give its logits and its gradients. They are of linear layers, of experts, and of
 * models whose text is a part. Their dropout is above 0, and a loaded model drops nothing. What a training writes has mlx-lm's names.
 */

import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { gunzipSync } from "node:zlib";
import * as mx from "../../mod.ts";
import { dequantizeLayers } from "../../src/llm/tuner/layers.ts";
import { anyDevice } from "../support/devices/devices.ts";
import { withExactCpu } from "../support/devices/exact.ts";
import {
  CHECKPOINTS,
  keptLogits,
  PROMPTS,
  tensorOf,
  type TensorRow,
  writeCheckpoint,
} from "../support/models/mlx_lm_families.ts";
import { nmse } from "../support/oracles/oracle.ts";

const { tuner } = mx.lm;

interface Golden {
  /** How many of the first prompt's tokens are read. */
  readonly tokens: number;
  readonly adapters: readonly {
    readonly checkpoint: string;
    /** adapter_config.json */
    readonly config: { readonly fine_tune_type: string };
    readonly tensors: readonly TensorRow[];
    readonly logits: readonly number[];
    /** Lengths, by name. */
    readonly gradients: Readonly<Record<string, number>>;
  }[];
}

const LIMIT = 1e-7;
const GRADIENT_LIMIT = 1e-3;
/** Where matrices become bfloat16 in the place of codes without scales of a dtype. */
const BFLOAT16_LIMIT = 1e-2;
const GOLDEN: Golden = JSON.parse(new TextDecoder().decode(
  gunzipSync(Deno.readFileSync(new URL("../golden/models/mlx_adapters.json.gz", import.meta.url))),
));
const IDS = PROMPTS[0].slice(0, GOLDEN.tokens);

async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function logitsOf(model: mx.lm.LanguageModel): number[] {
  using out = mx.tidy(() => model.forward(mx.array([IDS], mx.int32)).astype(mx.float32));
  return keptLogits(out.toTypedArray() as Float32Array, 0, model.config.vocabSize);
}

/** Lengths of gradients, by names here. */
function gradientsOf(model: mx.lm.LanguageModel): Record<string, number> {
  const loss = (tokens: mx.Tensor): mx.Tensor =>
    mx.nn.losses.crossEntropy(
      model.forward(tokens.index(mx.Slice(null), mx.Slice(0, -1))),
      tokens.index(mx.Slice(null), mx.Slice(1)),
      null,
      -1,
      0,
      "mean",
    );
  return mx.tidy(() => {
    const [, gradients] = mx.nn.valueAndGrad(model, loss)(mx.array([IDS], mx.int32));
    const all = mx.utils.treeFlatten(gradients, "", null, {}) as Record<string, mx.Tensor>;
    return Object.fromEntries(Object.entries(all).map(([name, x]) => [name, Number(mx.linalg.norm(x).item())]));
  });
}

const CASES = anyDevice() === "wasm" ? GOLDEN.adapters : []; // on the exact CPU

for (const { checkpoint, config, tensors, logits, gradients } of CASES) {
  Deno.test(`mlx-lm's ${config.fine_tune_type} adapters of ${checkpoint} give its logits and gradients`, () =>
    inFolder((folder) =>
      withExactCpu(async () => {
        mx.setDefaultDevice("wasm");
        mx.random.seed(0); // the state of a device that was closed is gone
        await writeCheckpoint(folder, CHECKPOINTS.find(({ name }) => name === checkpoint)!);
        const adapterPath = `${folder}/adapters`;
        await Deno.mkdir(adapterPath);
        await Deno.writeTextFile(`${adapterPath}/adapter_config.json`, JSON.stringify(config));
        mx.tidy(() => {
          const made = tensors.map((row, i) => [row[0], tensorOf(row, i)] as const);
          mx.saveSafetensors(`${adapterPath}/adapters.safetensors`, Object.fromEntries(made));
        });
        const { model } = await mx.lm.load(folder, { device: "wasm", dtype: mx.float32, adapterPath });
        using _ = model;
        const error = nmse(logitsOf(model), logits);
        assert(error <= LIMIT, `NMSE ${error}`);

        const found = gradientsOf(model);
        const own = (name: string): string => name.replace(/^language_model\./, "");
        assertEquals(Object.keys(found).sort(), Object.keys(gradients).map(own).sort());
        for (const [name, expected] of Object.entries(gradients)) {
          const length = found[own(name)];
          assert(
            Math.abs(length - expected) <= GRADIENT_LIMIT * expected,
            `${name} is ${length}, expected ${expected}`,
          );
        }

        await tuner.train(model, new mx.optimizers.SGD({ learningRate: 0 }), [{ tokens: IDS, offset: 0 }], {
          args: { batchSize: 1, iters: 1, adapterFile: `${folder}/written.safetensors` },
        });
        const written = mx.loadSafetensors(`${folder}/written.safetensors`);
        assertEquals(Object.keys(written).sort(), tensors.map(([name]) => name).sort());
        const trained = nmse(logitsOf(model), logits);
        assert(trained <= LIMIT, `after a training, whose dropout ends with it, NMSE ${trained}`);

        model.setDtype(mx.float32);
        tuner.fuseLayers(model, true);
        const fused = nmse(logitsOf(model), logits);
        assert(fused <= (checkpoint.endsWith("mxfp4") ? BFLOAT16_LIMIT : LIMIT), `fused, NMSE ${fused}`);
      })
    ));
}

Deno.test({
  name: "adapters beside experts in mxfp4, whose scales have no derivative, have the gradients of dense experts",
  ignore: CASES.length === 0,
  fn: () =>
    inFolder((folder) =>
      withExactCpu(async () => {
        mx.setDefaultDevice("wasm");
        mx.random.seed(0);
        await writeCheckpoint(folder, CHECKPOINTS.find(({ name }) => name === "Qwen3-MoE, mxfp4")!);
        const { model } = await mx.lm.load(folder, { device: "wasm", dtype: mx.float32 });
        using _ = model;
        const loraParameters = { rank: 2, scale: 4, dropout: 0, keys: ["self_attn.q_proj"] };
        tuner.prepareModel(model, { fineTuneType: "lora", numLayers: -1, loraParameters });
        await tuner.train(model, new mx.optimizers.SGD({ learningRate: 0.1 }), [{ tokens: IDS, offset: 0 }], {
          args: { batchSize: 1, iters: 1, adapterFile: null },
        });
        const found = gradientsOf(model);
        dequantizeLayers(model);
        const expected = gradientsOf(model); // also of what is dense now
        assert(Object.keys(found).length > 0);
        for (const [name, length] of Object.entries(found)) {
          const dense = expected[name];
          assert(dense > 0 && Math.abs(length - dense) <= BFLOAT16_LIMIT * dense, `${name} is ${length}, not ${dense}`);
        }
      })
    ),
});

Deno.test("keys outside of blocks have mlx-lm's names in files, and are found by them and by those here", () =>
  inFolder(async (folder) => {
    mx.setDefaultDevice(anyDevice());
    mx.random.seed(0); // as above
    await writeCheckpoint(folder, CHECKPOINTS.find(({ name }) => name === "Qwen3.5, bfloat16")!);
    const { model } = await mx.lm.load(folder);
    using _ = model;
    const ours = { rank: 2, scale: 1, dropout: 0, keys: ["model.embed_tokens", "self_attn.q_proj"] };
    const config = { fineTuneType: "lora", numLayers: 1, loraParameters: ours } as const;
    const named = (): string[] => mx.utils.treeFlatten(model.trainableParameters()).map(([name]) => name);
    tuner.prepareModel(model, config);
    const names = named();
    assert(names.includes("model.embed_tokens.lora_a"), `${names}`);
    tuner.saveAdapterConfig(model, `${folder}/adapters`, config);
    const { lora_parameters: stored } = JSON.parse(await Deno.readTextFile(`${folder}/adapters/adapter_config.json`));
    // linear_to_lora_layers() of mlx-lm adapts the embedding by this name, and nothing by "model.embed_tokens".
    assertEquals(stored.keys, ["language_model.model.embed_tokens", "self_attn.q_proj"]);
    tuner.removeLoraLayers(model);
    tuner.prepareModel(model, tuner.readAdapterConfig(`${folder}/adapters`));
    assertEquals(named(), names);
  }));

Deno.test("a model in training drops inputs of adapters, and one that is not answers as before", async () => {
  mx.setDefaultDevice(anyDevice());
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
  using _ = model;
  mx.random.seed(1);
  tuner.linearToLoraLayers(model, 2, { rank: 4, scale: 10, dropout: 0.9 });
  const all = Object.entries(mx.utils.treeFlatten(model.parameters(), "", null, {}) as Record<string, mx.Tensor>);
  const drawn = all.filter(([name]) => name.endsWith("lora_b"))
    .map(([name, { shape }]) => [name, mx.multiply(mx.random.normal(shape), 0.1)] as [string, mx.Tensor]);
  model.update(mx.utils.treeUnflatten(drawn) as mx.nn.ModuleTree);
  const answer = (): Promise<string> => mx.lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 4, temp: 0 });
  const loaded = await answer(); // a loaded model is not in training, and layers that are put in neither
  model.train();
  const dropped = await answer(); // its steps are traced with dropout
  model.eval();
  const whole = await answer();
  assertNotEquals(dropped, whole);
  assertEquals(loaded, whole);
  tuner.fuseLayers(model, true); // layers that cannot drop
  assertEquals(await answer(), whole);
});
