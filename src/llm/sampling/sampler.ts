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
import { optionError } from "../error.ts";
import {
  CHOICE_OPTIONS,
  type LogitsOptions,
  type LogitsProcessor,
  type Sampler,
  type SamplerOptions,
} from "./options.ts";

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
  const { temp = 0, topP = 1, topK = 0, minP = 0 } = options;
  checkNumber("temp", temp, temp >= 0 && temp <= 100, "a number from 0 to 100");
  checkNumber("topP", topP, topP >= 0 && topP <= 1, "a number from 0 to 1");
  checkNumber("topK", topK, Number.isSafeInteger(topK) && topK >= 0, "an integer of at least 0");
  checkNumber("minP", minP, minP >= 0 && minP <= 1, "a number from 0 to 1");
  if (temp === 0) {
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
    mx.fast.sample(logits, { temperature: temp, topP, topK, minP, key, mask });
  return Object.assign(sample, {
    key: keyOf(seed ?? crypto.getRandomValues(new Uint32Array(1))[0]),
    graph: `sample ${[temp, topP, topK, minP]}`,
    takesMask: true,
  });
}

/** The processors that the options ask for, in the order in which they run: bias, repetition, presence, frequency. */
export function makeLogitsProcessors(options: LogitsOptions = {}): LogitsProcessor[] {
  checkOptions("makeLogitsProcessors", options, CHOICE_OPTIONS);
  const { repetitionPenalty: penalty = 1, presencePenalty: presence = 0, logitBias = {} } = options;
  const { frequencyPenalty: frequency = 0 } = options;
  checkNumber("repetitionPenalty", penalty, penalty > 0 && Number.isFinite(penalty), "a number above 0");
  checkNumber("presencePenalty", presence, Number.isFinite(presence), "a number");
  checkNumber("frequencyPenalty", frequency, Number.isFinite(frequency), "a number");
  if (typeof logitBias !== "object" || logitBias === null) {
    throw optionError("logitBias", logitBias, "an object of numbers by token id");
  }
  const bias = Object.entries(logitBias).map(([id, value]): readonly [number, number] => [Number(id), value]);
  for (const [id, value] of bias) {
    checkNumber("logitBias has a token that", id, Number.isSafeInteger(id) && id >= 0, "the id of a token");
    checkNumber(`logitBias[${id}]`, value, value < Infinity, "a number or -Infinity");
  }
  const processors: LogitsProcessor[] = [];
  if (bias.length > 0) {
    processors.push(Object.assign((_: Tensor, logits: Tensor) => addBias(logits, bias), { graph: `bias ${bias}` }));
  }
  if (penalty !== 1) {
    const lower = (seen: Tensor): Tensor =>
      mx.where(mx.less(seen, 0), mx.multiply(seen, penalty), mx.divide(seen, penalty));
    processors.push(onRecent(`penalty ${penalty}`, lower));
  }
  if (presence !== 0) processors.push(onRecent(`presence ${presence}`, (seen) => mx.subtract(seen, presence)));
  if (frequency !== 0) processors.push(onCounted(`frequency ${frequency}`, frequency));
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

/** A processor that lowers the logits of recent tokens by `each` for every time that they occur. */
function onCounted(graph: string, each: number): LogitsProcessor {
  const process = (tokens: Tensor, logits: Tensor, weights?: Tensor): Tensor => {
    const [rows, vocabulary] = logits.shape;
    const recent = [rows, tokens.shape[tokens.ndim - 1]];
    // Counted in a table of all tokens: comparing each recent token with each would take their number squared.
    const begins = mx.multiply(mx.arange(rows), vocabulary).reshape(rows, 1);
    const places = mx.add(begins, mx.broadcastTo(tokens, recent));
    const counts = mx.zeros([rows * vocabulary]).at(places).add(mx.broadcastTo(weights ?? mx.array(1), recent));
    return mx.subtract(logits, mx.multiply(counts.reshape(rows, vocabulary), each).astype(logits.dtype));
  };
  return Object.assign(process, { graph, counts: true });
}

function addBias(logits: Tensor, bias: readonly (readonly [number, number])[]): Tensor {
  const [rows, vocabulary] = logits.shape;
  for (const [id] of bias) checkNumber("logitBias has a token that", id, id < vocabulary, `an id below ${vocabulary}`);
  const indices = mx.broadcastTo(mx.array(bias.map(([id]) => id), mx.int32), [rows, bias.length]);
  const values = mx.array(bias.map(([, value]) => value), logits.dtype);
  return mx.putAlongAxis(logits, indices, mx.add(mx.takeAlongAxis(logits, indices, -1), values), -1);
}
