/**
 * Checkpoints of recurrent families as their makers store them give the logits of mlx-lm's layout. Where all of it can be converted, the
 * bytes are those that mlx-lm writes.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { sumsOf } from "../../support/models/conversions.ts";
import { CHECKPOINTS, PROMPTS, writeCheckpoint } from "../../support/models/mlx_lm_families.ts";

const DEVICE = anyDevice();
mx.deviceMemory(DEVICE); // opens it outside of the tests, which count resources

type Tensors = Readonly<Record<string, mx.Tensor>>;

/** Stacks of experts one by one, by the makers' names of matrices. */
function unstacked(tensors: Tensors, names: Readonly<Record<string, string>>): Tensors {
  return Object.fromEntries(
    Object.entries(tensors).flatMap(([name, tensor]) => {
      const [, path, matrix, part] = /^(.*)\.switch_mlp\.(.*)\.(.*)$/.exec(name) ?? [];
      if (path === undefined) return [[name, tensor]];
      return Array.from(
        { length: tensor.shape[0] },
        (_, i) => [`${path}.experts.${i}.${names[matrix] ?? matrix}.${part}`, mx.contiguous(tensor.index(i))],
      );
    }),
  );
}

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

const LFM2_NAMES: Readonly<Record<string, string>> = { gate_proj: "w1", down_proj: "w2", up_proj: "w3" };

/** The makers' layout of a checkpoint, from mlx-lm's. */
const LAYOUTS: Readonly<Record<string, (tensors: Tensors) => Tensors>> = {
  "LFM2, bfloat16": (tensors) => withConvolutions(tensors, "conv.conv.weight"),
  "LFM2-MoE, bfloat16": (tensors) =>
    renamed(
      unstacked(withConvolutions(tensors, "conv.conv.weight"), LFM2_NAMES),
      (name) =>
        name.replace(/\w+_proj(?=\.weight$)/, (matrix) => name.includes("feed_forward") ? LFM2_NAMES[matrix] : matrix),
    ),
};

async function logitsOf(dir: string): Promise<number[]> {
  const { model } = await mx.lm.load(dir, { device: DEVICE, dtype: mx.float32 });
  using _ = model;
  mx.setDefaultDevice(DEVICE);
  using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
  return [...logits.toTypedArray() as Float32Array];
}

for (const [name, layout] of Object.entries(LAYOUTS)) {
  Deno.test(`the makers' layout of ${name} gives the logits and the bytes of mlx-lm's`, async () => {
    const folder = await Deno.makeTempDir();
    const dir = `${folder}/model`;
    const checkpoint = CHECKPOINTS.find((one) => one.name === name)!;
    await writeCheckpoint(dir, checkpoint);
    const expected = await logitsOf(dir);
    mx.withDevice(DEVICE, () =>
      mx.tidy(() => {
        const stored = mx.loadSafetensors(`${dir}/model.safetensors`);
        mx.eval(...Object.values(stored));
        mx.saveSafetensors(`${dir}/model.safetensors`, layout(stored as Tensors), { format: "pt" });
      }));
    assertEquals(await logitsOf(dir), expected);
    await mx.lm.convert(dir, `${folder}/converted`, { quantize: true, device: DEVICE });
    const sums = sumsOf(`${folder}/converted`);
    for (const [file, sum] of Object.entries(checkpoint.converted!)) assertEquals([file, sums[file]], [file, sum]);
    await Deno.remove(folder, { recursive: true });
  });
}
