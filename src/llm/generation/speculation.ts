/**
 * What the option `speculation` comes to for one answer.
 *
 * @module
 */

import { LlmError } from "../error.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import type { StepOptions } from "../sampling/options.ts";
import type { Drafter } from "../speculation/drafter.ts";
import { NgramDrafter } from "../speculation/ngrams.ts";
import { checkSpeculation, isDraftModel, Speculation } from "../speculation/speculation.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { checkSameTokens, ModelDrafter } from "./model_drafter.ts";

/** The drafts of an answer, and what they hold. */
export interface AnswerDrafts extends Disposable {
  readonly drafts: Speculation;
}

/**
 * What drafts the tokens after a prompt, if they are drafted. Throws an {@link LlmError} if they come from a model of another vocabulary than that
 * of `tokenizer`.
 */
export function speculationOf(
  { speculation, cache, sampler, processors, contextSize }: Omit<StepOptions, "maxTokens" | "prefillStepSize">,
  prompt: readonly number[],
  model: LanguageModel,
  tokenizer?: Tokenizer,
): AnswerDrafts | undefined {
  if (!speculation) return undefined;
  checkSpeculation(speculation);
  if (decodingModel(model).group) {
    const why = "how much is drafted depends on time, in which processes with parts of a model differ";
    throw new LlmError("option", `speculation takes a whole model: ${why}. Leave the option out`);
  }
  const { drafter = "ngrams" } = speculation;
  if (isDraftModel(drafter) && tokenizer) checkSameTokens(tokenizer, drafter.tokenizer);
  const owned = isDraftModel(drafter)
    ? new ModelDrafter(drafter.model, { sampler, processors, contextSize })
    : undefined;
  const used = owned ?? (drafter === "ngrams" ? new NgramDrafter() : drafter as Drafter);
  const drafts = new Speculation(used, speculation, {
    vocabulary: model.config.vocabSize,
    ...(tokenizer && { ends: tokenizer.eosTokenIds }),
    bounded: owned === undefined,
  });
  drafts.extend([...cache.tokens, ...prompt]);
  return { drafts, [Symbol.dispose]: () => owned?.[Symbol.dispose]() };
}
