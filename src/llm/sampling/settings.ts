/**
 * The options of sampling with their defaults, checked: what `makeSampler` and an engine's rows read them from.
 *
 * @module
 */

import { checkNumber } from "../arguments.ts";
import { optionError } from "../error.ts";
import type { LogitsOptions, SamplerOptions } from "./options.ts";

/** How a token is chosen from logits. */
export interface SamplerSettings {
  /** 0 takes the largest logit. */
  readonly temperature: number;
  readonly topP: number;
  readonly minP: number;
  readonly topK: number;
}

/** How logits change before that. */
export interface LogitsSettings {
  /** Token ids and what is added to their logits, each id once. */
  readonly bias: readonly (readonly [id: number, value: number])[];
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
}

/** Reads options of {@link SamplerSettings}. Throws an {@link LlmError} that names an option out of range. */
export function samplerSettings(options: Pick<SamplerOptions, "temp" | "topP" | "minP" | "topK">): SamplerSettings {
  const { temp = 0, topP = 1, topK = 0, minP = 0 } = options;
  checkNumber("temp", temp, temp >= 0 && temp <= 100, "a number from 0 to 100");
  checkNumber("topP", topP, topP >= 0 && topP <= 1, "a number from 0 to 1");
  checkNumber("topK", topK, Number.isSafeInteger(topK) && topK >= 0, "an integer of at least 0");
  checkNumber("minP", minP, minP >= 0 && minP <= 1, "a number from 0 to 1");
  return { temperature: temp, topP, minP, topK };
}

/** Reads options of {@link LogitsSettings}. Throws an {@link LlmError} that names an option out of range. */
export function logitsSettings(options: LogitsOptions): LogitsSettings {
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {} } = options;
  const isPenalty = repetitionPenalty > 0 && Number.isFinite(repetitionPenalty);
  checkNumber("repetitionPenalty", repetitionPenalty, isPenalty, "a number above 0");
  checkNumber("presencePenalty", presencePenalty, Number.isFinite(presencePenalty), "a number");
  checkNumber("frequencyPenalty", frequencyPenalty, Number.isFinite(frequencyPenalty), "a number");
  if (typeof logitBias !== "object" || logitBias === null) {
    throw optionError("logitBias", logitBias, "an object of numbers by token id");
  }
  // Of names of one token, such as 7 and "07", the last one counts.
  const bias = [...new Map(Object.entries(logitBias).map(([id, value]) => [Number(id), value]))];
  for (const [id, value] of bias) {
    checkNumber("logitBias has a token that", id, Number.isSafeInteger(id) && id >= 0, "the id of a token");
    checkNumber(`logitBias[${id}]`, value, value < Infinity, "a number or -Infinity");
  }
  return { bias, repetitionPenalty, presencePenalty, frequencyPenalty };
}
