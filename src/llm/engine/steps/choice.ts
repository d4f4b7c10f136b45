/**
 * How the tokens of a batch are chosen, each by its own settings. These are arrays on the device with a row for each sequence.
 *
 * A {@link ChoiceKind} says which settings a row may have at all: what none has costs nothing, and steps of one kind share a trace.
 *
 * @module
 */

import * as mx from "../../../array/mod.ts";
import type { Tensor } from "../../../array/mod.ts";
import { sampleRows } from "../../../array/fast/sample.ts";
import { choose, type DecodeScalars } from "../../decode/state.ts";
import type { LogitsProcessor, Sampler } from "../../sampling/options.ts";
import { countTokens, penalizeCounted, penalizeRepeated, placesOf } from "../../sampling/penalties.ts";
import type { LogitsSettings, SamplerSettings } from "../../sampling/settings.ts";

/** What a request says about the choice of its tokens. */
export interface ChoiceSettings extends SamplerSettings, LogitsSettings {
  /** Recent tokens that penalties look at. */
  readonly contextSize: number;
  /** How many of the most probable tokens are reported; undefined without log probabilities. */
  readonly logprobs: number | undefined;
}

/** Which settings the rows of a step may have. Sizes are powers of two, so that few kinds serve all. */
export interface ChoiceKind {
  /** Whether a row draws; otherwise all take their largest logit. */
  readonly draws: boolean;
  readonly topP: boolean;
  readonly topK: boolean;
  readonly penalties: boolean;
  /** Recent tokens that are kept for penalties and processors; 0 where none looks at them. */
  readonly recent: number;
  /** Tokens with a bias; 0 without any. */
  readonly bias: number;
  /** Most probable tokens that are reported; -1 without log probabilities. */
  readonly logprobs: number;
}

/** Rows of settings on the device, those that a kind has. */
export interface ChoiceArrays {
  /** float32 (B, 4): temperature, topP, minP, topK. */
  readonly settings: Tensor | undefined;
  /** float32 (B, 4): repetition, presence and frequency penalties, and how many recent tokens they look at. */
  readonly penalties: Tensor | undefined;
  /** int32 (B, n) and float32 (B, n): tokens, and what is added to their logits. */
  readonly biasIds: Tensor | undefined;
  readonly biasValues: Tensor | undefined;
}

/** The least power of two that is not below `n`. */
export function powerOfTwo(n: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, n)));
}

function hasPenalties({ repetitionPenalty, presencePenalty, frequencyPenalty }: ChoiceSettings): boolean {
  return repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
}

/** Numbers of most probable tokens that kinds report: a request takes the first ones of the next larger number. */
const LOGPROBS = [-1, 0, 5, 20];

/** The kind that serves all of some rows. Where further processors `look` at recent tokens, these are as many as the rows ask for. */
export function kindOf(all: readonly ChoiceSettings[], look: boolean = false): ChoiceKind {
  const most = (of: (settings: ChoiceSettings) => number): number => Math.max(0, ...all.map(of));
  const context = most((s) => look || hasPenalties(s) ? s.contextSize : 0);
  const bias = most((s) => s.bias.length);
  return {
    draws: all.some((s) => s.temperature > 0),
    topP: all.some((s) => s.temperature > 0 && s.topP > 0 && s.topP < 1),
    topK: all.some((s) => s.temperature > 0 && s.topK > 0),
    penalties: all.some(hasPenalties),
    recent: look || context === 0 ? context : powerOfTwo(context),
    bias: bias > 0 ? powerOfTwo(bias) : 0,
    logprobs: LOGPROBS.find((top) => top >= Math.max(-1, ...all.map((s) => s.logprobs ?? -1)))!,
  };
}

/** Whether steps of a kind serve rows that need another one. */
export function covers(kind: ChoiceKind, needed: ChoiceKind): boolean {
  return (kind.draws || !needed.draws) && (kind.topP || !needed.topP) && (kind.topK || !needed.topK) &&
    (kind.penalties || !needed.penalties) && kind.recent >= needed.recent && kind.bias >= needed.bias &&
    kind.logprobs >= needed.logprobs;
}

/** The values of a row of {@link ChoiceArrays.settings}. */
export function settingsRow({ temperature, topP, minP, topK }: ChoiceSettings): Float32Array {
  return Float32Array.of(temperature, topP, minP, topK);
}

/** The values of a row of {@link ChoiceArrays.penalties}. */
export function penaltiesRow(settings: ChoiceSettings): Float32Array {
  const { repetitionPenalty, presencePenalty, frequencyPenalty, contextSize } = settings;
  return Float32Array.of(repetitionPenalty, presencePenalty, frequencyPenalty, contextSize);
}

/** Chooses the tokens after `now.position` as {@link choose} does, with the settings of each row; further processors come last. */
export function chooseRows(
  kind: ChoiceKind,
  now: DecodeScalars & ChoiceArrays,
  logits: Tensor,
  own: readonly LogitsProcessor[] = [],
  mask?: Tensor,
): DecodeScalars {
  const { settings, penalties, biasIds, biasValues } = now;
  const { topP, topK } = kind;
  const sampler: Sampler = Object.assign(
    (x: Tensor, key: Tensor, allowed?: Tensor) =>
      settings
        ? sampleRows(x, settings, { key, topP, topK, mask: allowed })
        : mx.fast.sample(x, { temperature: 0, mask: allowed }),
    { key: undefined, graph: "rows", takesMask: true },
  );
  const { position } = now;
  const processors: LogitsProcessor[] = [];
  if (biasIds) processors.push((_, x) => addBias(x, biasIds, biasValues!));
  if (penalties) processors.push((recent, x) => penalize(x, recent, penalties, position));
  for (const process of own) {
    const weightsOf = (recent: Tensor): Tensor | undefined =>
      process.counts ? filled(agesOf(recent, position), position) : undefined;
    processors.push((recent, x) => process(recent, x, weightsOf(recent)));
  }
  const logprobs = kind.logprobs < 0 ? undefined : kind.logprobs;
  return choose({ sampler, processors, contextSize: kind.recent, logprobs }, now, logits, mx.add(position, 1), mask);
}

/** Logits with a bias added to those of some tokens; unused places add 0 to the first one. */
function addBias(logits: Tensor, ids: Tensor, values: Tensor): Tensor {
  const at = placesOf(ids, logits.shape[1]);
  return logits.reshape(-1).at(at).add(values.astype(logits.dtype).reshape(-1)).reshape(logits.shape) as Tensor;
}

/** How many tokens each place of `recent` (B, C) is before the last one, whose position is `last` (B,). */
function agesOf(recent: Tensor, last: Tensor): Tensor {
  const [rows, size] = recent.shape;
  return mx.remainder(mx.subtract(last.reshape(rows, 1), mx.arange(size).reshape(1, size)), size);
}

/** float32 (B, C): 1 at the places that a token has reached, 0 at the others. */
function filled(ages: Tensor, last: Tensor): Tensor {
  return mx.lessEqual(ages, last.reshape(-1, 1)).astype(mx.float32);
}

/**
 * Logits after penalties. `recent` (B, C) has the last tokens by position modulo C; `last` (B,) is the position of the last one. A row looks
 * at as many of them as its penalties say.
 */
function penalize(logits: Tensor, recent: Tensor, penalties: Tensor, last: Tensor): Tensor {
  const [repetition, presence, frequency, context] = mx.split(penalties, 4, 1);
  const ages = agesOf(recent, last);
  const weights = mx.multiply(mx.less(ages, context), filled(ages, last));
  const counts = countTokens(recent, weights, logits.shape[1]);
  const repeated = penalizeRepeated(logits, repetition.astype(logits.dtype));
  const present = mx.where(mx.greater(counts, 0), mx.subtract(repeated, presence.astype(logits.dtype)), logits);
  return penalizeCounted(present, counts, frequency);
}
