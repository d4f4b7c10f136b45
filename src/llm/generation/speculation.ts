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

/** Throws an {@link LlmError} unless the head of a model can draft over a cache, which may be a ring. */
function checkHead(model: LanguageModel, isRing: boolean): void {
  model.makeDraftCache().dispose(); // throws where the model has no head
  if (!isRing) return;
  throw new LlmError("option", 'speculation.drafter "mtp" keeps all positions: leave maxKvSize out');
}

/** The drafts of an answer, and what they hold. */
export interface AnswerDrafts extends Disposable {
  readonly drafts: Speculation;
}

/** The options of an answer that drafts follow. */
type AnswerOptions = Pick<StepOptions, "speculation" | "sampler" | "processors" | "contextSize">;

/**
 * What drafts the tokens of an answer, if they are drafted. It has to be given the tokens before the answer. Throws an {@link LlmError} if they come from a model of another vocabulary than that
 * of `tokenizer`.
 */
export function speculationOf(
  { speculation, sampler, processors, contextSize }: AnswerOptions,
  isRing: boolean,
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
  if (drafter === "mtp") checkHead(model, isRing);
  const used = owned ?? (drafter === "ngrams" ? new NgramDrafter() : drafter as Drafter | "mtp");
  const drafts = new Speculation(used, speculation, {
    vocabulary: model.config.vocabSize,
    ...(tokenizer && { ends: tokenizer.eosTokenIds }),
    bounded: typeof used === "object" && !owned && drafter !== "ngrams",
  });
  return { drafts, [Symbol.dispose]: () => owned?.[Symbol.dispose]() };
}
