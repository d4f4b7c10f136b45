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
  sampler?: mx.lm.Sampler,
): Promise<readonly number[]> {
  const times: number[] = [];
  const tokens = stepsOf(model, cache, prompt, count, { ...(sampler && { sampler }) });
  for await (const _ of tokens) times.push(performance.now());
  return times;
}

/** Generates `count` tokens after a prompt, greedily without a sampler. */
export function stepsOf(
  model: mx.lm.LanguageModel,
  cache: mx.lm.KvCache,
  prompt: readonly number[],
  count: number,
  options: Partial<Pick<mx.lm.StepOptions, "sampler" | "speculation">> = {},
): AsyncGenerator<number, void, void> {
  const sampler = mx.lm.makeSampler();
  const settings = { cache, maxTokens: count, sampler, processors: [], contextSize: 0, prefillStepSize: 2048 };
  return mx.lm.generateStep(prompt, model, { ...settings, ...options });
}
