/**
 * Checkpoints of recurrent families as their makers store them give the logits of mlx-lm's layout. Where all of it can be converted, the
 * bytes are those that mlx-lm writes.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { sumsOf } from "../../support/models/conversions.ts";
import {
  changeTensors,
  checkpointOf,
  logitsOf,
  type Tensors,
  unstacked,
} from "../../support/models/changed_checkpoints.ts";
import { DRAFT_CASES, DRAFT_TOKENS, draftedHidden, headTensors, keptDrafts } from "../../support/models/draft_heads.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

/** Tensors with the last two axes of convolutions exchanged. */
function withConvolutions(tensors: Tensors, end: string): Tensors {
  const swapped = (tensor: mx.Tensor): mx.Tensor => mx.contiguous(tensor.transpose(0, 2, 1));
  return Object.fromEntries(
    Object.entries(tensors).map(([name, tensor]) => [name, name.endsWith(end) ? swapped(tensor) : tensor]),
  );
}

/** Tensors by other names. */
function renamed(tensors: Tensors, rename: (name: string) => string): Tensors {
  return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [rename(name), tensor]));
}

/** The norms whose weights Qwen stores without 1. */
const WITHOUT_ONE =
  /(input_layernorm|post_attention_layernorm|model\.norm|q_norm|k_norm|mtp\.norm|pre_fc_norm_\w+)\.weight$/;

/** Qwen's layout: norms without 1, convolutions with other axes, and a head that drafts tokens. */
function ofQwen(tensors: Tensors, name: string): Tensors {
  const head = headTensors(DRAFT_CASES.find(({ model }) => model === name)!);
  const whole = { ...withConvolutions(tensors, "conv1d.weight"), ...head };
  const norms = Object.entries(whole).filter(([name]) => WITHOUT_ONE.test(name));
  const without = norms.map(([name, tensor]) => [name, mx.subtract(tensor, 1)]);
  return { ...whole, ...Object.fromEntries(without) };
}

/** Tensors of a text part by Hugging Face's names, with one of the vision part. */
function besideVision(tensors: Tensors): Tensors {
  const named = renamed(tensors, (name) => name.replace(/^language_model\.model\./, "model.language_model."));
  return {
    ...renamed(named, (name) => name.replace(/^language_model\./, "")),
    "model.visual.patch.weight": mx.ones([4]),
  };
}

/** Stacks of experts with gate and up in one tensor, as Qwen3.5 has them. */
function withJoinedExperts(tensors: Tensors): Tensors {
  const joined: Record<string, mx.Tensor> = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    const [, path, matrix] = /^(.*)\.switch_mlp\.(\w+)\.weight$/.exec(name) ?? [];
    if (path === undefined) joined[name] = tensor;
    else if (matrix === "down_proj") joined[`${path}.experts.down_proj`] = tensor;
    else if (matrix === "gate_proj") {
      const up = tensors[`${path}.switch_mlp.up_proj.weight`];
      joined[`${path}.experts.gate_up_proj`] = mx.concatenate([tensor, up], 1);
    }
  }
  return joined;
}

const LFM2_NAMES: Readonly<Record<string, string>> = { gate_proj: "w1", down_proj: "w2", up_proj: "w3" };

/** The makers' layout of a checkpoint, from mlx-lm's. */
const LAYOUTS: Readonly<Record<string, (tensors: Tensors, name: string) => Tensors>> = {
  "LFM2, bfloat16": (tensors) => withConvolutions(tensors, "conv.conv.weight"),
  "LFM2-MoE, bfloat16": (tensors) =>
    renamed(
      unstacked(withConvolutions(tensors, "conv.conv.weight"), LFM2_NAMES),
      (name) =>
        name.replace(/\w+_proj(?=\.weight$)/, (matrix) => name.includes("feed_forward") ? LFM2_NAMES[matrix] : matrix),
    ),
  "Qwen3.5, bfloat16": (tensors, name) => besideVision(ofQwen(tensors, name)),
  "Qwen3-Next, bfloat16": (tensors, name) => unstacked(ofQwen(tensors, name), {}),
  "Qwen3.5-MoE, bfloat16": (tensors, name) => besideVision(withJoinedExperts(ofQwen(tensors, name))),
};

/** Checkpoints whose layout is loaded but not converted. */
const LOADED = ["Qwen3.5-MoE, bfloat16"];

/** The kept logits of the first draft. */
async function draftedOf(dir: string): Promise<Float32Array> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype: mx.float32, draftHead: true });
  using _ = model;
  return mx.withDevice(DEVICE, () => {
    const tokens = mx.array([[...DRAFT_TOKENS[0]]], mx.int32);
    using logits = mx.tidy(() => model.draft(draftedHidden(64), tokens).logits);
    return keptDrafts(logits.toTypedArray() as Float32Array);
  });
}

for (const [name, layout] of Object.entries(LAYOUTS)) {
  const what = LOADED.includes(name) ? "logits" : "logits and the bytes";
  Deno.test(`the makers' layout of ${name} gives the ${what} of mlx-lm's`, async () => {
    const folder = await Deno.makeTempDir();
    const dir = `${folder}/model`;
    const checkpoint = checkpointOf(name);
    await writeCheckpoint(dir, checkpoint);
    const expected = await logitsOf(dir);
    changeTensors(dir, (tensors) => layout(tensors, name));
    // Weights of norms without 1 have more digits than with it, in bfloat16.
    assert(nmse(await logitsOf(dir), expected) <= 1e-12);
    const head = DRAFT_CASES.find(({ model }) => model === name);
    if (head) assert(nmse(await draftedOf(dir), Float32Array.from(head.logits[0])) <= 1e-7);
    if (LOADED.includes(name)) {
      const converted = mx.lm.convert(dir, `${folder}/converted`, { quantize: true, device: DEVICE });
      await assertRejects(() => converted, mx.lm.LlmError, "makers' layout, which is loaded but not converted");
      await Deno.remove(folder, { recursive: true });
      return;
    }
    await mx.lm.convert(dir, `${folder}/converted`, { quantize: true, device: DEVICE });
    const sums = sumsOf(`${folder}/converted`);
    for (const [file, sum] of Object.entries(checkpoint.converted!)) assertEquals([file, sums[file]], [file, sum]);
    await Deno.remove(folder, { recursive: true });
  });
}
