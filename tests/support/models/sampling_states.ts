/**
 * States that choose tokens, for tests of fused steps: the graphs are those of generation, the rings are so small that they turn over.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import type { ModelShape } from "../../../scripts/synthetic/synthetic.ts";
import type { DecodeOptions, State } from "../../../src/llm/decode/state.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { logprobsWidth } from "../../../src/llm/sampling/logprobs_log.ts";
import type { SamplerOptions } from "../../../src/llm/sampling/options.ts";
import { makeLogitsProcessors, makeSampler } from "../../../src/llm/sampling/sampler.ts";

/** A model whose steps take no time. */
export const SHAPE: ModelShape = {
  hidden: 128,
  intermediate: 64,
  layers: 1,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  tied: true,
  vocab: 4099, // the last four rows of the head are not whole
};

/** Tokens that are known before the first step: as many as penalties look at. */
const RECENT = [3, 1, 4, 11, 11];
/** Places of the log. */
const LOG = 16;

/** How tokens are chosen, and how many top log probabilities the state has. */
export type ChoosingSettings = SamplerOptions & Pick<DecodeOptions, "logprobs">;

/** How tokens are chosen under some settings, with draws that repeat. */
export function choosingOf({ logprobs, ...settings }: ChoosingSettings): DecodeOptions {
  return {
    sampler: makeSampler({ ...settings, seed: 5 }),
    processors: makeLogitsProcessors(settings),
    contextSize: RECENT.length,
    logprobs,
  };
}

/** The state of one sequence before its first step, which feeds `token` at position 0. */
export function stateOf({ sampler, processors, logprobs }: DecodeOptions, token: number, cache: KvCache): State {
  return {
    token: mx.array([[token]], mx.int32),
    position: mx.array([0], mx.int32),
    key: sampler.key && mx.array([[...sampler.key]], mx.uint32),
    recent: processors.length > 0 ? mx.array([RECENT], mx.int32) : undefined,
    weights: undefined,
    log: mx.zeros([1, LOG], mx.int32),
    logprobs: logprobs === undefined ? undefined : mx.zeros([1, LOG, logprobsWidth(logprobs)], mx.float32),
    keys: cache.keys,
    values: cache.values,
  };
}

/** Token, position, random key and rings of tokens of a state. */
export function numbersOf({ token, position, key, recent, log }: State): number[] {
  return flat([token, position, key, recent, log]);
}

/** The ring of log probabilities of a state. */
export function toldOf({ logprobs }: State): number[] {
  return flat([logprobs]);
}

function flat(parts: readonly (mx.Tensor | undefined)[]): number[] {
  return parts.filter((part) => part !== undefined).flatMap((part) => part.reshape([-1]).tolist() as number[]);
}
