/**
 * Prompts and tokens as vkmx's benchmarks time them.
 *
 * @module
 */

import * as mx from "../../../mod.ts";

/** `count` token ids spread over the vocabulary of a model. */
export function promptOf({ config }: mx.lm.LanguageModel, count: number): number[] {
  return Array.from({ length: count }, (_, i) => (i * 7919 + 13) % config.vocabSize);
}

/**
 * Generates `count` tokens after a prompt, greedily without a sampler, and gives the time of each, in milliseconds of the clock.
 */
export async function timeTokens(
  model: mx.lm.LanguageModel,
  cache: mx.lm.KvCache,
  prompt: readonly number[],
  count: number,
  sampler: mx.lm.Sampler = mx.lm.makeSampler(),
): Promise<readonly number[]> {
  const settings = { cache, maxTokens: count, sampler, processors: [], contextSize: 0, prefillStepSize: 2048 };
  const times: number[] = [];
  for await (const _ of mx.lm.generateStep(prompt, model, settings)) times.push(performance.now());
  return times;
}
