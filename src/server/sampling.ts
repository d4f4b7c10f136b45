/**
 * Fields of requests that say how tokens are chosen, which several endpoints share, and the options that they become.
 *
 * @module
 */

import { quoted } from "../graph/error.ts";
import type { lm } from "../../mod.ts";
import { fieldError } from "./errors.ts";
import { list, mapped, number, type ReadFields, record, text, textOr, whole } from "./fields.ts";

/** Most stop strings of a request. */
const MAX_STOPS = 64;

const STOP = mapped(textOr(list(text, { max: MAX_STOPS })), (stop) => typeof stop === "string" ? [stop] : stop);

/** OpenAI's map of token ids, as texts, to what is added to their logits. */
const LOGIT_BIAS = mapped(record(number(-100, 100)), (bias, at) => {
  for (const id of Object.keys(bias)) {
    if (!/^\d{1,9}$/.test(id)) {
      throw fieldError(`${at}.${id}`, `${at} has the name ${quoted(id)}, expected token ids`);
    }
  }
  return Object.fromEntries(Object.entries(bias).map(([id, value]) => [Number(id), value]));
});

/** Fields that are the same in chat completions and completions. Those that OpenAI does not have are vLLM's and mlx-lm's. */
export const SAMPLING = {
  temperature: number(0, 100),
  top_p: number(0, 1),
  top_k: whole(-1),
  min_p: number(0, 1),
  seed: whole(Number.MIN_SAFE_INTEGER),
  stop: STOP,
  logit_bias: LOGIT_BIAS,
  presence_penalty: number(-100, 100),
  frequency_penalty: number(-100, 100),
  repetition_penalty: number(0.01, 100),
  repetition_context_size: whole(1),
} as const;

/** Values of {@link SAMPLING}. */
export type SamplingFields = Partial<ReadFields<typeof SAMPLING>>;

/** OpenAI's default temperature, for models that suggest none. */
const TEMPERATURE = 1;

/** The options of choice `i` of a request: its fields, and for missing ones what the model suggests. */
export function samplingOptions(
  fields: SamplingFields,
  suggested: lm.GenerationConfig,
  i: number = 0,
): Partial<lm.EngineRequest> {
  const topK = fields.top_k ?? suggested.topK;
  return {
    temp: fields.temperature ?? suggested.temperature ?? TEMPERATURE,
    topP: fields.top_p ?? suggested.topP ?? 1,
    topK: topK === undefined || topK < 0 ? 0 : topK,
    minP: fields.min_p ?? suggested.minP ?? 0,
    // A negative seed asks for any, as in llama.cpp.
    ...(fields.seed !== undefined && fields.seed >= 0 && { seed: (fields.seed + i) % Number.MAX_SAFE_INTEGER }),
    ...(fields.stop && { stop: fields.stop.filter((text) => text !== "") }),
    ...(fields.logit_bias && { logitBias: fields.logit_bias }),
    ...(fields.presence_penalty && { presencePenalty: fields.presence_penalty }),
    ...(fields.frequency_penalty && { frequencyPenalty: fields.frequency_penalty }),
    ...(fields.repetition_penalty !== undefined && { repetitionPenalty: fields.repetition_penalty }),
    ...(fields.repetition_context_size !== undefined && { repetitionContextSize: fields.repetition_context_size }),
  };
}
