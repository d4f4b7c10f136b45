/**
 * Checkpoints whose tensors a test changes, what a loaded one computes, and caches of one that go on from a file.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice } from "../devices/devices.ts";
import { CHECKPOINTS, type FamilyCheckpoint, PROMPTS } from "./mlx_lm_families.ts";

/** Tensors by name. */
export type Tensors = Record<string, mx.Tensor>;

/** The checkpoint of a name. */
export function checkpointOf(name: string): FamilyCheckpoint {
  return CHECKPOINTS.find((one) => one.name === name)!;
}

/** Writes the tensors of a checkpoint anew, as `make` gives them. */
export function changeTensors(dir: string, make: (tensors: Tensors) => Readonly<Tensors>): void {
  const path = `${dir}/model.safetensors`;
  mx.withDevice(anyDevice(), () =>
    mx.tidy(() => {
      const tensors: Tensors = { ...mx.loadSafetensors(path) };
      mx.eval(...Object.values(tensors)); // before their file is written over
      mx.saveSafetensors(path, { ...make(tensors) }, { format: "pt" });
    }));
}

/** Takes a tensor out of others. */
export function take(tensors: Tensors, name: string): mx.Tensor {
  const tensor = tensors[name];
  delete tensors[name];
  return tensor;
}

/** Tensors with every expert by itself, as makers store them; `names` are those of the matrices, where they differ. */
export function unstacked(tensors: Tensors, names: Readonly<Record<string, string>>): Tensors {
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

/** Logits of the first prompt, of a model in float32. */
export async function logitsOf(dir: string): Promise<Float32Array> {
  const { model } = await mx.lm.load(dir, { device: anyDevice(), dtype: mx.float32 });
  using _ = model;
  return promptLogits(model);
}

/** Logits of the first prompt. */
export function promptLogits(model: mx.lm.LanguageModel): Float32Array {
  return mx.withDevice(anyDevice(), () => {
    using logits = mx.tidy(() => model.forward(mx.array([[...PROMPTS[0]]], mx.int32)));
    return Float32Array.from(logits.toTypedArray() as Float32Array);
  });
}

/** Checks that a cache which a file has held gives the tokens of one that was never away. `check` sees the cache after a prompt. */
export async function checkCacheFile(dir: string, check: (cache: mx.lm.KvCache) => void): Promise<void> {
  const { model, tokenizer } = await mx.lm.load(dir, { device: anyDevice(), dtype: mx.float32 });
  using _ = model;
  const options = { temp: 0, maxTokens: 4 };
  using cache = model.makeCache();
  await mx.lm.generate(model, tokenizer, [...PROMPTS[0]], { ...options, cache });
  check(cache);
  await mx.lm.savePromptCache(`${dir}/cache.safetensors`, cache);
  const { cache: loaded } = await mx.lm.loadPromptCache(`${dir}/cache.safetensors`, model);
  using held = loaded;
  const next = [5, 9, 12];
  const expected = await mx.lm.generate(model, tokenizer, next, { ...options, cache });
  assertEquals(await mx.lm.generate(model, tokenizer, next, { ...options, cache: held }), expected);
}

/** Rows of two arrays in turn, along the second axis. */
function inTurn(a: mx.Tensor, b: mx.Tensor): mx.Tensor {
  const [experts, rows, ...rest] = a.shape;
  return mx.stack([a, b], 2).reshape([experts, 2 * rows, ...rest]);
}

/** Codes as bytes in blocks of 32: (experts, rows, blocks, 16). */
function blocks(words: mx.Tensor): mx.Tensor {
  const [experts, rows] = words.shape;
  return words.view(mx.uint8).reshape(experts, rows, -1, 16);
}

/** Tensors of gpt-oss with the experts in the makers' layout. */
export function gptOssAsMade(tensors: Tensors): Tensors {
  const made: Tensors = {};
  for (let layer = 0; tensors[`model.layers.${layer}.mlp.router.weight`] !== undefined; layer++) {
    const path = `model.layers.${layer}.mlp.experts`;
    const part = (name: string): mx.Tensor => take(tensors, `${path}.${name}`);
    made[`${path}.gate_up_proj_blocks`] = blocks(inTurn(part("gate_proj.weight"), part("up_proj.weight")));
    made[`${path}.gate_up_proj_scales`] = inTurn(part("gate_proj.scales"), part("up_proj.scales"));
    made[`${path}.gate_up_proj_bias`] = inTurn(part("gate_proj.bias"), part("up_proj.bias"));
    made[`${path}.down_proj_blocks`] = blocks(part("down_proj.weight"));
    made[`${path}.down_proj_scales`] = part("down_proj.scales");
    made[`${path}.down_proj_bias`] = part("down_proj.bias");
  }
  return { ...tensors, ...made };
}
