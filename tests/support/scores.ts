/**
 * A small synthetic model and what prompt caches, hidden states, embeddings and perplexity are tried with. The references by mlx-lm are in
 * golden/mlx_scores.json and golden/mlx_prompt_cache.safetensors (see reference/scores.ts).
 */

import { type ModelFormat, type ModelShape, writeModel } from "../../scripts/synthetic.ts";
import { Tokenizer } from "../../src/llm/tokenizer/tokenizer.ts";
import { tinySource } from "./models.ts";

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
export const FORMAT: ModelFormat = { bits: 16, seed: 31 };

const ids = (count: number, step: number): number[] => Array.from({ length: count }, (_, i) => (i * step + 11) % 4000);

/** Texts of different lengths. */
export const TEXTS: readonly string[] = [
  "Once upon a time, there was a little girl named Nina who lived near the library.",
  "A red fox",
  "The door opened, and there stood a quiet boy.",
];

/** What is computed; the reference takes the texts as the embedded model's tokenizer has them. */
export const CASES = {
  prompt: ids(40, 97),
  next: 5,
  hidden: ids(12, 71),
  embed: [
    { pooling: "last", normalize: true },
    { pooling: "mean", normalize: true },
    { pooling: "mean", normalize: false },
    { pooling: "cls", normalize: true },
  ],
  text: ids(150, 263),
  perplexity: [
    { context: 16 },
    { context: 150 },
    { context: 16, stride: 16 },
    { context: 32, stride: 8 },
    { context: 32, stride: 1 },
  ],
} as const;

/** What the reference found. */
export interface Scores {
  /** (tokens, hidden) of the embeddings and of each layer. */
  readonly hidden: readonly (readonly number[])[];
  /** (texts, hidden) of each case. */
  readonly embeddings: readonly (readonly number[])[];
  /** Perplexity, its standard error and the number of tokens of each case. */
  readonly perplexity: readonly (readonly [number, number, number])[];
  /** Logits of `next` behind the prompt: one in 64. */
  readonly logits: readonly number[];
}

/** Where the references are. */
export const SCORES: URL = new URL("../golden/mlx_scores.json", import.meta.url);
/** The cache of the prompt as mlx-lm saved it. */
export const CACHE: URL = new URL("../golden/mlx_prompt_cache.safetensors", import.meta.url);

/** The model in a new folder that goes at disposal. */
export async function scoreModel(
  shape: Partial<ModelShape> = {},
  format: ModelFormat = FORMAT,
): Promise<{ readonly dir: string } & Disposable> {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, { ...SHAPE, ...shape }, format);
  return { dir: `${folder}/model`, [Symbol.dispose]: () => Deno.removeSync(folder, { recursive: true }) };
}

/** {@link TEXTS} as ids. */
export async function textIds(): Promise<number[][]> {
  const tokenizer = await Tokenizer.load(tinySource());
  return TEXTS.map((text) => tokenizer.encode(text));
}
