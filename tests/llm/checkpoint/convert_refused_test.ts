/**
 * Models that cannot be converted are refused in one line that says what to do, before anything is written.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { statfsSync } from "node:fs";
import { join } from "node:path";
import * as mx from "../../../mod.ts";
import { editConfig, LAYER_BYTES, listed, withModel, writeZeros } from "../../support/models/conversions.ts";
import { anyDevice } from "../../support/devices/devices.ts";

const DEVICE = anyDevice();

/** Rewrites the header of a model's weights, which must keep its length. */
function editHeader(model: string, from: string, to: string): void {
  assertEquals(from.length, to.length);
  const path = join(model, "model.safetensors");
  const bytes = Deno.readFileSync(path);
  const end = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const header = new TextDecoder().decode(bytes.subarray(8, end));
  assert(header.includes(from));
  bytes.set(new TextEncoder().encode(header.replace(from, to)), 8);
  Deno.writeFileSync(path, bytes);
}

interface Refusal {
  readonly code: mx.lm.LlmErrorCode;
  readonly message: RegExp;
  /** A change of the model before, or beside it. */
  readonly spoil?: (model: string, folder: string) => void;
  readonly options?: mx.lm.ConvertOptions;
  /** Where to, in the folder of the model. */
  readonly out?: string;
}

const REFUSED: Readonly<Record<string, Refusal>> = {
  "a model of another family": {
    code: "config",
    message:
      /model_type "mystery" is not known: known are gemma, .* more, see docs\/models\.md\. To ask for it, describe the model at https:/,
    spoil: (model) => editConfig(model, { model_type: "mystery" }),
  },
  "a model that is quantized already": {
    code: "option",
    message:
      /is quantized already, to 3 bits in groups of 32\. Quantize the dense model that it was made from, or make it dense/,
    spoil: (model) => editConfig(model, { quantization: { bits: 3, group_size: 32 } }),
    options: { quantize: true },
  },
  "a shard that is not there": {
    code: "weights",
    message: /model lacks model-00002-of-00002\.safetensors: download the model again$/,
    spoil: (model) =>
      Deno.renameSync(join(model, "model.safetensors"), join(model, "model-00001-of-00002.safetensors")),
  },
  "tensors that are missing": {
    code: "weights",
    message: /tensors are missing: model\.layers\.1\./,
    spoil: (model) => editConfig(model, { num_hidden_layers: 2 }),
  },
  "weights of whole numbers": {
    code: "weights",
    message:
      /1 tensor does not fit config\.json: "model\.layers\.0\.input_layernorm\.weight" is int16 \(64\), expected float/,
    spoil: (model) =>
      editHeader(model, 'input_layernorm.weight":{"dtype":"BF16"', 'input_layernorm.weight":{"dtype":"I16" '),
  },
  "a shape that is not the model's": {
    code: "weights",
    message: /does not fit config\.json/,
    spoil: (model) => editConfig(model, { vocab_size: 4095 }),
  },
  "weights that are cut off": {
    code: "weights",
    message: /it is cut off/,
    spoil: (model) => Deno.truncateSync(join(model, "model.safetensors"), 100_000),
  },
  "a config.json that is no JSON": {
    code: "config",
    message: /config\.json is not valid JSON/,
    spoil: (model) => Deno.writeTextFileSync(join(model, "config.json"), "{"),
  },
  "a generation_config.json that is no JSON": {
    code: "config",
    message: /generation_config\.json is not valid JSON/,
    spoil: (model) => Deno.writeTextFileSync(join(model, "generation_config.json"), "{"),
  },
  "a folder without a model": {
    code: "config",
    message: /config\.json does not exist/,
    spoil: (model) => Deno.removeSync(join(model, "config.json")),
  },
  "an output that exists": {
    code: "output",
    message: /out exists already: remove it or choose another name$/,
    spoil: (_, folder) => {
      Deno.mkdirSync(join(folder, "out"));
      Deno.writeTextFileSync(join(folder, "out", "mine"), "");
    },
  },
  "an output that is a file": {
    code: "output",
    message: /out exists already: remove it/,
    spoil: (_, folder) => Deno.writeTextFileSync(join(folder, "out"), ""),
  },
  "an output in a file": {
    code: "output",
    message: /out cannot be written: .*file is no folder$/,
    out: "file/out",
    spoil: (_, folder) => Deno.writeTextFileSync(join(folder, "file"), ""),
  },
  "the model's own folder as output": { code: "output", message: /model exists already/, out: "model" },
  "both directions at once": {
    code: "option",
    message: /takes quantize or dequantize, not both$/,
    options: { quantize: true, dequantize: true },
  },
  "bits without quantization": {
    code: "option",
    message: /got qBits without quantize: true$/,
    options: { qBits: 4 },
  },
  "7 bits": {
    code: "option",
    message: /expected qBits 1, 2, 3, 4, 5, 6, 8: found 7$/,
    options: { quantize: true, qBits: 7 },
  },
  "groups of 48": {
    code: "option",
    message: /expected qGroupSize 32, 64, 128: found 48$/,
    options: { quantize: true, qGroupSize: 48 },
  },
  "a mode that is not there": {
    code: "option",
    message: /expected qMode affine, mxfp4, mxfp8, nvfp4: found "fp4"$/,
    options: { quantize: true, qMode: "fp4" as "mxfp4" },
  },
  "a width that a mode has not": {
    code: "option",
    message: /expected qBits 4 in mode mxfp4: found 8$/,
    options: { quantize: true, qMode: "mxfp4", qBits: 8 },
  },
  "a recipe in a mode that has none": {
    code: "option",
    message: /has mixed recipes for mode affine only: found nvfp4$/,
    options: { quantize: true, qMode: "nvfp4", quantPredicate: "mixed_3_6" },
  },
  "a recipe that is not there": {
    code: "option",
    message: /expected quantPredicate mixed_2_6, .* or a function: found "mixed_1_2"$/,
    options: { quantize: true, quantPredicate: "mixed_1_2" as mx.lm.QuantRecipe },
  },
  "a predicate that says nothing": {
    code: "option",
    message: /^quantPredicate\("model\.embed_tokens"\) gave undefined, expected true, false or { groupSize, bits }$/,
    options: { quantize: true, quantPredicate: (() => undefined) as unknown as mx.lm.QuantPredicate },
  },
  "a predicate whose groups do not fit": {
    code: "option",
    message: /^quantPredicate gave "model\.embed_tokens" groups of 128, which do not divide its 64 columns$/,
    options: { quantize: true, quantPredicate: () => ({ bits: 4, groupSize: 128 }) },
  },
  "a dtype that is no float": {
    code: "option",
    message: /expected dtype float16, bfloat16, float32: found int32$/,
    options: { dtype: mx.int32 },
  },
  "an option that is not there": {
    code: "option",
    message: /bits.*did you mean "?qBits/,
    options: { quantize: true, bits: 4 } as mx.lm.ConvertOptions,
  },
};

Deno.test("convert() refuses what cannot be, and writes nothing", async (t) => {
  for (const [name, { code, message, spoil, options = {}, out = "out" }] of Object.entries(REFUSED)) {
    await t.step(name, () =>
      withModel(async (folder, model) => {
        spoil?.(model, folder);
        const before = [listed(folder), listed(model)];
        const error = await assertRejects(
          () => mx.lm.convert(model, join(folder, out), { ...options, device: DEVICE }),
          mx.lm.LlmError,
        );
        assert(message.test(error.message), error.message);
        assert(!error.message.includes("\n"));
        assertEquals([error.code, listed(folder), listed(model)], [code, ...before]);
      }));
  }
});

Deno.test({
  name: "convert() refuses a model that the disk has no room for",
  ignore: Deno.build.os === "windows", // where zeros take room
  fn: () =>
    withModel(async (folder, model) => {
      const { bavail, bsize } = statfsSync(folder);
      writeZeros(model, Math.ceil(bavail * bsize / LAYER_BYTES) + 1);
      const out = join(folder, "out");
      const error = await assertRejects(
        () => mx.lm.convert(model, out, { dtype: mx.float32, device: DEVICE }),
        mx.lm.LlmError,
      );
      assert(/out needs [\d.]+ GB and its disk has [\d.]+ GB free: /.test(error.message), error.message);
      assertEquals([error.code, listed(folder)], ["output", ["model"]]);
    }),
});
