/**
 * The usage of tokens in the shape of chat completions and completions.
 *
 * @module
 */

import type { Usage } from "../answer.ts";

/** OpenAI's form of the usage of all choices: their prompt counts once. */
export function usageOf(usages: readonly Usage[]): Record<string, unknown> {
  const sum = (key: keyof Usage): number => usages.reduce((total, usage) => total + usage[key], 0);
  const { promptTokens = 0, cachedTokens = 0 } = usages[0] ?? {};
  const completion = sum("completionTokens");
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completion,
    total_tokens: promptTokens + completion,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: {
      reasoning_tokens: sum("reasoningTokens"),
      accepted_prediction_tokens: sum("acceptedTokens"),
      rejected_prediction_tokens: sum("draftedTokens") - sum("acceptedTokens"),
    },
  };
}
