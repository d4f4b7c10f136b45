/**
 * Small checkpoints as mlx-lm writes them, with its logits and tokens. golden/models/mlx_lm_families.json.gz has their configs and
 * tensors, whose values are drawn here as reference/mlx_lm_families.py draws them.
 */

import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";

/** A tensor of a checkpoint, whose values are uniform in a range. */
export type TensorRow = readonly [
  name: string,
  dtype: "float32" | "bfloat16" | "uint32" | "uint8",
  shape: readonly number[],
  low: number,
  high: number,
];

/** A checkpoint, and what mlx-lm computes with it in float32. */
export interface FamilyCheckpoint {
  readonly name: string;
  /** Its config.json, as mlx-lm writes it. */
  readonly config: string;
  readonly tensors: readonly TensorRow[];
  /** The tokens of greedy decoding, after each prompt. */
  readonly greedy: readonly (readonly number[])[];
  /** The mean cross entropy of the first prompt, and lengths of its gradients by name of parameter; null where it is quantized. */
  readonly gradients: { readonly loss: number; readonly lengths: Readonly<Record<string, number>> } | null;
  /** The SHA-256 of the files that `mlx_lm.convert` makes of it in 4 bits, by name; null where it is quantized already. */
  readonly converted: Readonly<Record<string, string>> | null;
}

interface Golden {
  readonly prompts: readonly (readonly number[])[];
  readonly steps: readonly number[];
  readonly every: number;
  readonly models: readonly FamilyCheckpoint[];
}

const file = (name: string): Uint8Array<ArrayBuffer> =>
  Deno.readFileSync(new URL(`../../golden/models/${name}`, import.meta.url));
const golden: Golden = JSON.parse(new TextDecoder().decode(gunzipSync(file("mlx_lm_families.json.gz"))));
const LLAMA = new URL("../../golden/tokenizers/llama_tokenizer.json", import.meta.url);

/** The checkpoints. */
export const CHECKPOINTS: readonly FamilyCheckpoint[] = golden.models;
/** Two prompts; the first one is longer than every window. */
export const PROMPTS: Golden["prompts"] = golden.prompts;
/** Tokens that follow the first prompt one by one. */
export const STEPS: readonly number[] = golden.steps;

/** Writes a checkpoint, and a tokenizer of as many tokens. */
export async function writeCheckpoint(dir: string, { config, tensors }: FamilyCheckpoint): Promise<void> {
  await Deno.mkdir(dir, { recursive: true });
  mx.tidy(() => {
    const made = tensors.map((row, i) => [row[0], tensorOf(row, i)] as const);
    mx.saveSafetensors(`${dir}/model.safetensors`, Object.fromEntries(made), { format: "mlx" });
  });
  const { tokenizer } = JSON.parse(await Deno.readTextFile(LLAMA));
  await Deno.writeTextFile(`${dir}/tokenizer.json`, JSON.stringify(tokenizer));
  await Deno.writeTextFile(`${dir}/config.json`, config);
}

/** The logits that are kept of rows that begin at position `first`. */
export function keptLogits(logits: Float32Array, first: number, vocabulary: number): number[] {
  const { every } = golden;
  const rows = Array.from({ length: logits.length / vocabulary }, (_, row) => {
    const from = row * vocabulary;
    return Array.from(logits.subarray(from, from + vocabulary)).filter((_, i) => i % every === (first + row) % every);
  });
  return rows.flat();
}

/** mlx-lm's logits of a checkpoint: of the first prompt and the steps. */
export function expectedLogits(index: number): Float32Array {
  const all = new Float32Array(file("mlx_lm_families.f32").buffer);
  const each = all.length / CHECKPOINTS.length;
  return all.subarray(index * each, (index + 1) * each);
}

/** Tensor number `row` of a checkpoint. */
export function tensorOf([, dtype, shape, low, high]: TensorRow, row: number): mx.Tensor {
  const words = new Uint32Array(shape.reduce((product, size) => product * size, 1));
  for (let i = 0; i < words.length; i++) words[i] = hash((Math.imul(i, 2654435761) + Math.imul(row, 0x9e3779b9)) >>> 0);
  if (dtype === "uint32") return mx.array(words).reshape([...shape]);
  const values = Float32Array.from(words, (word) => low + (high - low) * ((word >>> 8) / 2 ** 24));
  return mx.array(values).reshape([...shape]).astype(mx[dtype]);
}

/** A word whose bits all depend on those of another. */
export function hash(word: number): number {
  let x = word;
  for (const [shift, factor] of [[16, 0x85ebca6b], [13, 0xc2b2ae35]]) x = Math.imul(x ^ (x >>> shift), factor) >>> 0;
  return (x ^ (x >>> 16)) >>> 0;
}
