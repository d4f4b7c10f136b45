/**
 * Experts that a checkpoint stores one by one, as Hugging Face does, are those of mlx-lm's stacks. The converter writes the bytes that
 * mlx-lm writes of the stacked form, and what is missing or differs is named.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { dequantizeLayers } from "../../../src/llm/tuner/layers.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { sumsOf } from "../../support/models/conversions.ts";
import {
  changeTensors,
  checkpointOf,
  logitsOf,
  promptLogits,
  type Tensors,
  unstacked,
} from "../../support/models/changed_checkpoints.ts";
import { writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

/** Hugging Face's names of matrices, by mlx-lm's. */
const NAMES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "Mixtral, bfloat16": { gate_proj: "w1", down_proj: "w2", up_proj: "w3" },
  "Qwen2-MoE, 4 bits": {},
  "Qwen3-MoE with a dense layer, bfloat16": {},
};

for (const [name, names] of Object.entries(NAMES)) {
  Deno.test(`experts that are stored one by one are those of the stacks: ${name}`, async () => {
    const folder = await Deno.makeTempDir();
    const dir = `${folder}/model`;
    const checkpoint = checkpointOf(name);
    await writeCheckpoint(dir, checkpoint);
    const expected = await logitsOf(dir);
    changeTensors(dir, (tensors) => unstacked(tensors, names));
    assertEquals(await logitsOf(dir), expected);
    if (checkpoint.converted !== null) {
      await mx.lm.convert(dir, `${folder}/converted`, { quantize: true, device: DEVICE });
      const sums = sumsOf(`${folder}/converted`);
      for (const [file, sum] of Object.entries(checkpoint.converted)) assertEquals([file, sums[file]], [file, sum]);
    }
    await Deno.remove(folder, { recursive: true });
  });
}

Deno.test("experts that are missing, or differ from the first, are named", async () => {
  const folder = await Deno.makeTempDir();
  const checkpoint = checkpointOf("Mixtral, bfloat16");
  const last = "model.layers.2.block_sparse_moe.experts.5.w2.weight";
  const cases: readonly (readonly [change: (tensors: Tensors) => void, message: string])[] = [
    [(tensors) => delete tensors[last], `1 tensor is missing: ${last}`],
    [
      (tensors) => tensors[last] = mx.zeros([64, 64], mx.bfloat16),
      `"${last}" has another shape or dtype than "model.layers.2.block_sparse_moe.experts.0.w2.weight"`,
    ],
    [
      (tensors) => tensors[last] = mx.zeros([64, 128]),
      `"${last}" has another shape or dtype than "model.layers.2.block_sparse_moe.experts.0.w2.weight"`,
    ],
    [
      (tensors) => tensors[last.replace(".5.", ".6.")] = tensors[last],
      `1 tensor is not part of the model: "${last.replace(".5.", ".6.")}"`,
    ],
  ];
  for (const [i, [change, message]] of cases.entries()) {
    const dir = `${folder}/${i}`;
    await writeCheckpoint(dir, checkpoint);
    changeTensors(dir, (stored) => {
      const tensors = unstacked(stored, NAMES[checkpoint.name]);
      change(tensors);
      return tensors;
    });
    await assertRejects(() => mx.lm.load(dir, { device: DEVICE }), mx.lm.LlmError, message);
    await assertRejects(() => mx.lm.convert(dir, `${dir}-out`, { device: DEVICE }), mx.lm.LlmError, message);
  }
  await Deno.remove(folder, { recursive: true });
});

Deno.test("mx.nn.quantize() quantizes experts as the converter does", async () => {
  const folder = await Deno.makeTempDir();
  const dir = `${folder}/model`;
  await writeCheckpoint(dir, checkpointOf("Mixtral, bfloat16"));
  await mx.lm.convert(dir, `${dir}-4bit`, { quantize: true, device: DEVICE });
  const { model } = await mx.lm.load(dir, { device: DEVICE });
  using _ = model;
  mx.withDevice(DEVICE, () => {
    mx.nn.quantize(model, 64, 4);
    mx.tidy(() => {
      const expected = mx.loadSafetensors(`${dir}-4bit/model.safetensors`);
      const { gate_proj, down_proj } = model.parameters().model.layers[1].block_sparse_moe.switch_mlp;
      for (const [name, matrix] of Object.entries({ gate_proj, down_proj })) {
        for (const part of ["weight", "scales", "biases"]) {
          const path = `model.layers.1.block_sparse_moe.switch_mlp.${name}.${part}`;
          assertEquals([path, mx.arrayEqual(matrix[part], expected[path]).item()], [path, true]);
        }
      }
    });
  });
  await Deno.remove(folder, { recursive: true });
});

Deno.test("dequantizeLayers() makes experts dense, which compute the same", () =>
  withExactCpu(async () => {
    const folder = await Deno.makeTempDir();
    const dir = `${folder}/model`;
    // bfloat16 holds what codes of mxfp4 stand for, and rounds the affine ones of routers.
    await writeCheckpoint(dir, checkpointOf("Qwen3-MoE, mxfp4"));
    const expected = await logitsOf(dir);
    const { model } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    mx.withDevice(DEVICE, () => dequantizeLayers(model));
    const error = nmse(promptLogits(model), expected);
    assert(error <= 1e-4, `NMSE ${error}`);
    assert(Object.values(mx.utils.treeFlatten(model.parameters())).every(([path]) => !path.endsWith("scales")));
    await Deno.remove(folder, { recursive: true });
  }));
