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
import { CHECKPOINTS, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

/** Hugging Face's names of matrices, by mlx-lm's. */
const NAMES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "Mixtral, bfloat16": { gate_proj: "w1", down_proj: "w2", up_proj: "w3" },
  "Qwen2-MoE, 4 bits": {},
  "Qwen3-MoE with a dense layer, bfloat16": {},
};

/** Writes the tensors of a checkpoint anew, every expert by itself; `change` may alter them. */
function unstack(dir: string, names: Readonly<Record<string, string>>, change?: (tensors: Tensors) => void): void {
  mx.withDevice(DEVICE, () =>
    mx.tidy(() => {
      const stored: Tensors = { ...mx.loadSafetensors(`${dir}/model.safetensors`) };
      mx.eval(...Object.values(stored));
      const tensors: Tensors = {};
      for (const [name, tensor] of Object.entries(stored)) {
        const [, path, matrix, part] = /^(.*)\.switch_mlp\.(.*)\.(.*)$/.exec(name) ?? [];
        if (path === undefined) tensors[name] = tensor;
        else {
          for (let expert = 0; expert < tensor.shape[0]; expert++) {
            tensors[`${path}.experts.${expert}.${names[matrix] ?? matrix}.${part}`] = mx.contiguous(
              tensor.index(expert),
            );
          }
        }
      }
      change?.(tensors);
      mx.saveSafetensors(`${dir}/model.safetensors`, tensors, { format: "pt" });
    }));
}

type Tensors = Record<string, mx.Tensor>;

async function logitsOf(dir: string): Promise<number[]> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype: mx.float32 });
  using _ = model;
  mx.setDefaultDevice(DEVICE);
  using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
  return [...logits.toTypedArray() as Float32Array];
}

for (const [name, names] of Object.entries(NAMES)) {
  Deno.test(`experts that are stored one by one are those of the stacks: ${name}`, async () => {
    const folder = await Deno.makeTempDir();
    const dir = `${folder}/model`;
    const checkpoint = CHECKPOINTS.find((one) => one.name === name)!;
    await writeCheckpoint(dir, checkpoint);
    const expected = await logitsOf(dir);
    unstack(dir, names);
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
  const checkpoint = CHECKPOINTS.find((one) => one.name === "Mixtral, bfloat16")!;
  const last = "model.layers.2.block_sparse_moe.experts.5.w2.weight";
  const cases: readonly (readonly [change: (tensors: Tensors) => void, message: string])[] = [
    [(tensors) => delete tensors[last], `1 tensors are missing: ${last}`],
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
      `1 tensors are not part of the model: "${last.replace(".5.", ".6.")}"`,
    ],
  ];
  for (const [i, [change, message]] of cases.entries()) {
    const dir = `${folder}/${i}`;
    await writeCheckpoint(dir, checkpoint);
    unstack(dir, NAMES[checkpoint.name], change);
    await assertRejects(() => mx.lm.load(dir, { device: DEVICE }), mx.lm.LlmError, message);
    await assertRejects(() => mx.lm.convert(dir, `${dir}-out`, { device: DEVICE }), mx.lm.LlmError, message);
  }
  await Deno.remove(folder, { recursive: true });
});

Deno.test("mx.nn.quantize() quantizes experts as the converter does", async () => {
  const folder = await Deno.makeTempDir();
  const dir = `${folder}/model`;
  await writeCheckpoint(dir, CHECKPOINTS.find((one) => one.name === "Mixtral, bfloat16")!);
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
    await writeCheckpoint(dir, CHECKPOINTS.find((one) => one.name === "Qwen3-MoE, mxfp4")!);
    const expected = await logitsOf(dir);
    const { model } = await mx.lm.load(dir, { device: DEVICE });
    using _ = model;
    mx.withDevice(DEVICE, () => dequantizeLayers(model));
    using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
    const error = nmse(logits.toTypedArray() as Float32Array, expected);
    assert(error <= 1e-4, `NMSE ${error}`);
    assert(Object.values(mx.utils.treeFlatten(model.parameters())).every(([path]) => !path.endsWith("scales")));
    await Deno.remove(folder, { recursive: true });
  }));
