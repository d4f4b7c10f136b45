/**
 * Small synthetic models and caches of a prompt that mlx-lm saved with them, golden/models/prompt_caches/*.safetensors.
 * golden/models/prompt_caches/after.json has the logits and tokens that follow those caches (see reference/prompt_cache.ts).
 */

import { fileURLToPath } from "node:url";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";

/** The model. */
export const SHAPE: ModelShape = {
  family: "qwen3",
  hidden: 64,
  intermediate: 128,
  layers: 2,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  tied: true,
  vocab: 4096,
};
/** Its format: its weights are exact in float32, in which the references were computed. */
const FORMAT: ModelFormat = { bits: 16, seed: 31 };

/** The prompt that the cache holds. */
export const PROMPT: readonly number[] = Array.from({ length: 40 }, (_, i) => (i * 97 + 11) % 4000);
/** The token after it. */
export const NEXT = 5;

/** Layers of which the first has a window, for {@link CACHE_CASES}. */
const WINDOWED: Partial<ModelShape> = {
  family: "llama",
  config: { layer_types: ["sliding_attention", "full_attention"], sliding_window: 16 },
};
/** Tokens that are fed one by one after the prompt. */
const STEPS: readonly number[] = Array.from({ length: 7 }, (_, i) => (i * 53 + 3) % 4000);

/** What a cache of a file is made with. */
export interface CacheCase {
  /** The name of its file. */
  readonly name: string;
  /** The model, where it is another than {@link SHAPE}. */
  readonly shape?: Partial<ModelShape>;
  /** Tokens that are fed one by one after {@link PROMPT}. */
  readonly steps: readonly number[];
  /** Bits of keys and values and features of a group. */
  readonly bits?: 4 | 8;
  readonly group?: 32;
  /** Positions that tokens see in all layers. */
  readonly size?: number;
}

/** Caches that mlx-lm saved, of each class with keys and values. */
export const CACHE_CASES = [
  { name: "plain", steps: [] },
  // The prompt leaves the ring longer than the window; steps cut it and turn it.
  { name: "long_ring", shape: WINDOWED, steps: [] },
  { name: "ring", shape: WINDOWED, steps: STEPS },
  { name: "8bit", steps: STEPS, bits: 8, group: 32 },
  { name: "4bit", steps: STEPS, bits: 4, group: 32 },
  { name: "kept", steps: STEPS, size: 24 },
  { name: "kept_llama", shape: { family: "llama" }, steps: STEPS, size: 41 },
  { name: "kept_begin", steps: STEPS, size: 64 },
] as const satisfies readonly CacheCase[];

/** What mlx-lm gives after {@link NEXT} follows such a cache. */
export interface CacheGolden {
  /** One logit in 64. */
  readonly logits: readonly number[];
  /** The tokens that it then chooses. */
  readonly tokens: readonly number[];
}

/** The cache of a case as mlx-lm saved it. */
export function cacheFile(name: string): string {
  return fileURLToPath(new URL(`../../golden/models/prompt_caches/${name}.safetensors`, import.meta.url));
}

/** The file of {@link CacheGolden}, by the names of {@link CACHE_CASES}. */
export const CACHE_GOLDEN: string = fileURLToPath(
  new URL("../../golden/models/prompt_caches/after.json", import.meta.url),
);

/** The model, or one like it, in a new folder that goes at disposal. */
export async function smallModel(
  shape: Partial<ModelShape> = {},
  format: ModelFormat = FORMAT,
): Promise<{ readonly dir: string } & Disposable> {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, { ...SHAPE, ...shape }, format);
  return { dir: `${folder}/model`, [Symbol.dispose]: () => Deno.removeSync(folder, { recursive: true }) };
}
