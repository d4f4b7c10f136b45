/**
 * Models that tests share: the embedded tiny-qwen3 with its references, and the files of the published Qwen3 tokenizer.
 */

import { qwen3Tokenizer } from "../../../scripts/synthetic/qwen3_tokenizer.ts";
import type { TokenizerSource } from "../../../src/llm/tokenizer/tokenizer.ts";

/** The embedded model. */
export const TINY_DIR: URL = new URL("../../../examples/models/tiny-qwen3/", import.meta.url);

/** A prompt and its greedy continuation by the reference implementation in float32. */
export interface Golden {
  readonly prompt: string;
  readonly ids: readonly number[];
  readonly greedy: readonly number[];
  readonly text: string;
}

/** The references of the embedded model. */
export const GOLDEN: readonly Golden[] = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/models/tiny-qwen3.json", import.meta.url)),
);

/** Logits of all prompt positions, (positions, vocabulary) float32, of the prompt of each {@link GOLDEN}. */
export function goldenLogits(i: number): Float32Array {
  const bytes = Deno.readFileSync(new URL("../../golden/models/tiny-qwen3-logits.f16", import.meta.url));
  const VOCAB = 4096;
  const start = GOLDEN.slice(0, i).reduce((rows, { ids }) => rows + ids.length, 0) * VOCAB;
  return Float32Array.from(new Float16Array(bytes.buffer, start * 2, GOLDEN[i].ids.length * VOCAB));
}

/** Files of the embedded model's tokenizer. */
export function tinySource(): TokenizerSource {
  const read = (name: string): string => Deno.readTextFileSync(new URL(name, TINY_DIR));
  return {
    tokenizer: Deno.readFileSync(new URL("tokenizer.json", TINY_DIR)),
    config: read("tokenizer_config.json"),
    dir: "tiny-qwen3",
    vocabSize: 4096,
    eosTokenIds: [4091, 4089],
  };
}

/** Files of the published Qwen3 tokenizer. */
export async function qwen3Source(): Promise<TokenizerSource> {
  const { tokenizer, config } = await qwen3Tokenizer();
  return {
    tokenizer: new TextEncoder().encode(JSON.stringify(tokenizer)),
    config: JSON.stringify(config),
    dir: "qwen3",
    vocabSize: 151936,
    eosTokenIds: [151645, 151643],
  };
}
