/**
 * A small synthetic model and the cache of a prompt that mlx-lm saved with it,
 * golden/models/mlx_prompt_cache.safetensors. golden/models/mlx_prompt_cache.json has the logits that the model gives
 * after that cache (see reference/prompt_cache.ts).
 */

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

/** Logits of {@link NEXT} after the prompt: one in 64. */
export const LOGITS: URL = new URL("../../golden/models/mlx_prompt_cache.json", import.meta.url);
/** The cache of the prompt as mlx-lm saved it. */
export const CACHE: URL = new URL("../../golden/models/mlx_prompt_cache.safetensors", import.meta.url);

/** The model, or one like it, in a new folder that goes at disposal. */
export async function smallModel(
  shape: Partial<ModelShape> = {},
  format: ModelFormat = FORMAT,
): Promise<{ readonly dir: string } & Disposable> {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, { ...SHAPE, ...shape }, format);
  return { dir: `${folder}/model`, [Symbol.dispose]: () => Deno.removeSync(folder, { recursive: true }) };
}
