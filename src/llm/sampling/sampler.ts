/**
 * Chooses the next token from logits, as mlx-lm does. Bias and penalties change the logits, then top-p, min-p and top-k filter their
 * probabilities. One draw at the given temperature follows.
 *
 * Randomness is MLX's: a key is split once per token, so equal seeds give equal draws on every device.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { keyOf } from "../../array/random/keys.ts";
import type { Tensor } from "../../array/mod.ts";
import { checkNumber, checkOptions } from "../arguments.ts";
import {
  CHOICE_OPTIONS,
  type LogitsOptions,
  type LogitsProcessor,
  type Sampler,
  type SamplerOptions,
} from "./options.ts";
import { countTokens, penalizeCounted, penalizeRepeated } from "./penalties.ts";
import { logitsSettings, samplerSettings } from "./settings.ts";

/**
 * Makes a sampler. Throws an {@link LlmError} that names an option out of range.
 *
 * @example
 * ```ts ignore
 * const sampler = makeSampler({ temp: 0.6, topP: 0.95, topK: 20, seed: 7 });
 * const [state, key] = mx.split(mx.random.split(mx.array([...sampler.key], mx.uint32)), 2);
 * const token = sampler(logits, key).item();
 * ```
 */
export function makeSampler(options: SamplerOptions = {}): Sampler {
  checkOptions("makeSampler", options, CHOICE_OPTIONS);
  const { temperature, topP, topK, minP } = samplerSettings(options);
  if (temperature === 0) {
    const largest = (logits: Tensor, _key?: Tensor, mask?: Tensor): Tensor =>
      mx.fast.sample(logits, { temperature: 0, mask });
    return Object.assign(largest, { key: undefined, graph: "largest", takesMask: true });
  }
  const { seed } = options;
  checkNumber(
    "seed",
    seed ?? 0,
    seed === undefined || (Number.isSafeInteger(seed) && seed >= 0),
    "an integer from 0 to 2^53 - 1",
  );
  const sample = (logits: Tensor, key: Tensor, mask?: Tensor): Tensor =>
    mx.fast.sample(logits, { temperature, topP, topK, minP, key, mask });
  return Object.assign(sample, {
    key: keyOf(seed ?? crypto.getRandomValues(new Uint32Array(1))[0]),
    graph: `sample ${[temperature, topP, topK, minP]}`,
    takesMask: true,
  });
}

/** The processors that the options ask for, in the order in which they run: bias, repetition, presence, frequency. */
export function makeLogitsProcessors(options: LogitsOptions = {}): LogitsProcessor[] {
  checkOptions("makeLogitsProcessors", options, CHOICE_OPTIONS);
  const { bias, repetitionPenalty, presencePenalty, frequencyPenalty } = logitsSettings(options);
  const processors: LogitsProcessor[] = [];
  if (bias.length > 0) {
    processors.push(Object.assign((_: Tensor, logits: Tensor) => addBias(logits, bias), { graph: `bias ${bias}` }));
  }
  if (repetitionPenalty !== 1) {
    processors.push(onRecent(`penalty ${repetitionPenalty}`, (seen) => penalizeRepeated(seen, repetitionPenalty)));
  }
  if (presencePenalty !== 0) {
    processors.push(onRecent(`presence ${presencePenalty}`, (seen) => mx.subtract(seen, presencePenalty)));
  }
  if (frequencyPenalty !== 0) processors.push(onCounted(frequencyPenalty));
  return processors;
}

/** Number of recent tokens that the processors look at, at most the `context` of the model. */
export function repetitionContext(options: Pick<SamplerOptions, "repetitionContextSize">, context: number): number {
  const { repetitionContextSize: size = 20 } = options;
  checkNumber("repetitionContextSize", size, Number.isSafeInteger(size) && size >= 1, "a positive integer");
  return Math.min(size, context);
}

/** A processor that changes the logits of recent tokens. */
function onRecent(graph: string, change: (seen: Tensor) => Tensor): LogitsProcessor {
  const process = (tokens: Tensor, logits: Tensor): Tensor => {
    const recent = tokens.shape[tokens.ndim - 1];
    const indices = mx.broadcastTo(tokens.reshape([-1, recent]), [logits.shape[0], recent]);
    return mx.putAlongAxis(logits, indices, change(mx.takeAlongAxis(logits, indices, -1)), -1);
  };
  return Object.assign(process, { graph });
}

/** A processor that lowers the logits of recent tokens by a penalty for every time that they occur. */
function onCounted(penalty: number): LogitsProcessor {
  const process = (tokens: Tensor, logits: Tensor, weights: Tensor = mx.array(1)): Tensor => {
    const [rows, vocabulary] = logits.shape;
    const recent = [rows, tokens.shape[tokens.ndim - 1]];
    const counts = countTokens(mx.broadcastTo(tokens, recent), mx.broadcastTo(weights, recent), vocabulary);
    return penalizeCounted(logits, counts, penalty);
  };
  return Object.assign(process, { graph: `frequency ${penalty}`, counts: true });
}

function addBias(logits: Tensor, bias: readonly (readonly [number, number])[]): Tensor {
  const [rows, vocabulary] = logits.shape;
  for (const [id] of bias) checkNumber("logitBias has a token that", id, id < vocabulary, `an id below ${vocabulary}`);
  const indices = mx.broadcastTo(mx.array(bias.map(([id]) => id), mx.int32), [rows, bias.length]);
  const values = mx.array(bias.map(([, value]) => value), logits.dtype);
  return mx.putAlongAxis(logits, indices, mx.add(mx.takeAlongAxis(logits, indices, -1), values), -1);
}
