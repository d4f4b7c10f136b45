/**
 * Heads that draft tokens: their logits beside a reference in float64, with and without a cache, and what conversion and fusing make of them.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { sumsOf } from "../../support/models/conversions.ts";
import {
  DRAFT_CASES,
  DRAFT_TOKENS,
  draftedHidden,
  keptDrafts,
  modelOf,
  writeWithHead,
} from "../../support/models/draft_heads.ts";
import { CHECKPOINTS, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

const [TOKENS, NEXT] = DRAFT_TOKENS.map((tokens) => mx.array([[...tokens]], mx.int32));

/** Loads a model with its draft head. */
async function loaded(dir: string, dtype: mx.Dtype = mx.float32): Promise<mx.lm.LanguageModel> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype, draftHead: true });
  mx.setDefaultDevice(DEVICE);
  return model;
}

/** The logits of both drafts: the second one takes the hidden states of the first. */
function drafts(model: mx.lm.LanguageModel): Float32Array[] {
  return mx.tidy(() => {
    const first = model.draft(draftedHidden(64), TOKENS);
    const again = model.draft(first.hidden, NEXT);
    return [first, again].map(({ logits }) => (logits.astype(mx.float32).toTypedArray() as Float32Array).slice());
  });
}

/** Runs a test with a folder that goes afterwards. */
async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const one of DRAFT_CASES) {
  Deno.test(`the draft head of ${one.model} gives the reference's logits`, () =>
    inFolder(async (dir) => {
      await writeWithHead(dir, one);
      using model = await loaded(dir);
      for (const [i, logits] of drafts(model).entries()) {
        const error = nmse(keptDrafts(logits), Float32Array.from(one.logits[i]));
        assert(error <= 1e-7, `NMSE ${error} of draft ${i}`);
      }
    }));
}

Deno.test("a draft with a cache gives the logits of one without", () =>
  inFolder(async (dir) => {
    await writeWithHead(dir, DRAFT_CASES[0]);
    using model = await loaded(dir);
    const [whole] = drafts(model);
    using cache = model.makeDraftCache();
    const parts = mx.tidy(() => {
      const hidden = draftedHidden(64);
      const part = (from: number, to: number): Float32Array => {
        const [h, t] = [hidden, TOKENS].map((all) => all.index(mx.Slice(null), mx.Slice(from, to)));
        return model.draft(h, t, cache).logits.toTypedArray() as Float32Array;
      };
      return [...part(0, 3), ...part(3, 4), ...part(4, 5)];
    });
    assertEquals(cache.offset, 5);
    assert(nmse(Float32Array.from(parts), whole) <= 1e-7); // keys and values may have 16 bits in a cache
  }));

Deno.test("hidden() gives what logits() takes, and draft() what follows from it", () =>
  inFolder(async (dir) => {
    await writeWithHead(dir, DRAFT_CASES[0]);
    using model = await loaded(dir);
    mx.tidy(() => {
      const tokens = mx.array([[...PROMPTS[1]]], mx.int32);
      const hidden = model.hidden(tokens);
      assertEquals(model.logits(hidden).tolist(), model.forward(tokens).tolist());
      assertEquals(hidden.tolist(), model.hiddenStates(tokens).at(-1)!.tolist());
      const next = mx.argmax(model.logits(hidden), -1).astype(mx.int32);
      assertEquals(model.draft(hidden, next).logits.shape, [1, tokens.size, 512]);
    });
  }));

Deno.test("a head stays in the file by default, and its memory is told", () =>
  inFolder(async (dir) => {
    const [one] = DRAFT_CASES;
    await writeWithHead(dir, one);
    const { model } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    const message = "The model has no head that drafts tokens: load it with draftHead: true";
    assertThrows(() => model.draft(draftedHidden(64), TOKENS), mx.lm.LlmError, message);
    assertThrows(() => model.makeDraftCache(), mx.lm.LlmError, message);
    const { draftHeadBytes, weightBytes, parameters } = await mx.lm.inspect(dir);
    assertEquals(draftHeadBytes, one.tensors.reduce((sum, [, , shape]) => sum + 2 * shape.reduce((a, b) => a * b), 0));
    await Deno.remove(`${dir}/mtp.safetensors`);
    const without = await mx.lm.inspect(dir);
    assertEquals([0, weightBytes, parameters], [without.draftHeadBytes, without.weightBytes, without.parameters]);
    const loading = mx.lm.load(dir, { device: DEVICE, draftHead: true });
    await assertRejects(() => loading, mx.lm.LlmError, "has no head that drafts tokens: it stores no mtp.fc.weight");
  }));

Deno.test("load() says that a family has no draft head, and draft() which shapes it takes", () =>
  inFolder(async (folder) => {
    await writeCheckpoint(`${folder}/other`, CHECKPOINTS.find(({ name }) => name.startsWith("SmolLM3"))!);
    const loading = mx.lm.load(`${folder}/other`, { device: DEVICE, draftHead: true });
    await assertRejects(() => loading, mx.lm.LlmError, 'models of type "smollm3" have none here');
    await writeWithHead(`${folder}/own`, DRAFT_CASES[0]);
    using model = await loaded(`${folder}/own`);
    const expected = "draft() expected hidden states of shape (1, 5, 64), found (1, 5, 32)";
    assertThrows(() => model.draft(draftedHidden(32), TOKENS), mx.ShapeError, expected);
  }));

for (const one of DRAFT_CASES) {
  Deno.test(`conversion of ${one.model} keeps the head, and mlx-lm's bytes of the rest`, () =>
    inFolder(async (folder) => {
      await writeWithHead(`${folder}/dense`, one);
      const [first] = await (async () => {
        using model = await loaded(`${folder}/dense`);
        return drafts(model);
      })();
      const out = `${folder}/quantized`;
      const { files } = await mx.lm.convert(`${folder}/dense`, out, { quantize: true, qBits: 8, device: DEVICE });
      assert(files.includes("mtp.safetensors"));
      using model = await loaded(out);
      const fc = (model as unknown as { mtp: { fc: mx.nn.QuantizedLinear } }).mtp.fc;
      assertEquals([fc.bits, fc.groupSize], [8, 64]);
      const error = nmse(drafts(model)[0], first);
      assert(error > 1e-9 && error < 1e-3, `NMSE ${error} with 8 bits`);
      await mx.lm.convert(`${folder}/dense`, `${folder}/four`, { quantize: true, device: DEVICE });
      const sums = sumsOf(`${folder}/four`);
      for (const [file, sum] of Object.entries(modelOf(one).converted!)) assertEquals([file, sums[file]], [file, sum]);
      await mx.lm.convert(out, `${folder}/again`, { dequantize: true, device: DEVICE });
      using dense = await loaded(`${folder}/again`);
      assert(nmse(drafts(dense)[0], first) < 1e-3);
    }));
}

Deno.test("fusing adapters keeps the head", () =>
  inFolder(async (folder) => {
    const dir = `${folder}/model`;
    await writeWithHead(dir, DRAFT_CASES[1]);
    const config = { fineTuneType: "lora", numLayers: 2, loraParameters: { rank: 4, scale: 10, dropout: 0 } } as const;
    let expected: Float32Array;
    {
      using model = await loaded(dir, mx.bfloat16);
      [expected] = drafts(model);
      mx.lm.tuner.prepareModel(model, config);
      mx.lm.tuner.saveAdapterConfig(model, `${folder}/adapters`, config);
      const trained = mx.utils.treeFlatten(model.trainableParameters(), "", null, {}) as Record<string, mx.Tensor>;
      assert(Object.keys(trained).every((name) => !name.startsWith("mtp.")));
      mx.saveSafetensors(`${folder}/adapters/adapters.safetensors`, trained);
    }
    await mx.lm.tuner.fuse(dir, `${folder}/adapters`, `${folder}/fused`, { device: DEVICE });
    const index = JSON.parse(await Deno.readTextFile(`${folder}/fused/model.safetensors.index.json`));
    assert(Object.keys(index.weight_map).every((name) => !name.includes("mtp.")));
    using model = await loaded(`${folder}/fused`, mx.bfloat16);
    assertEquals(drafts(model)[0], expected);
  }));
