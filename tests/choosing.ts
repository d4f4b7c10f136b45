/**
 * States that choose tokens, for tests of fused steps: the graphs are those of generation, the rings are so small that they turn over.
 *
 * @module
 */

import * as mx from "../mod.ts";
import type { DecodeOptions, State } from "../src/llm/decode_state.ts";
import type { KvCache } from "../src/llm/kv_cache.ts";
import { makeLogitsProcessors, makeSampler, type SamplerOptions } from "../src/llm/sampler.ts";

/** Tokens that are known before the first step: as many as penalties look at. */
const RECENT = [3, 1, 4, 11, 11];
/** Places of the log. */
const LOG = 16;

/** How tokens are chosen under some settings, with draws that repeat. */
export function choosingOf(settings: SamplerOptions): DecodeOptions {
  return {
    sampler: makeSampler({ ...settings, seed: 5 }),
    processors: makeLogitsProcessors(settings),
    contextSize: RECENT.length,
  };
}

/** The state of one sequence before its first step, which feeds `token` at position 0. */
export function stateOf({ sampler, processors }: DecodeOptions, token: number, cache: KvCache): State {
  return {
    token: mx.array([[token]], mx.int32),
    position: mx.array([0], mx.int32),
    key: sampler.key && mx.array([[...sampler.key]], mx.uint32),
    recent: processors.length > 0 ? mx.array([RECENT], mx.int32) : undefined,
    weights: undefined,
    log: mx.zeros([1, LOG], mx.int32),
    logprobs: undefined,
    keys: cache.keys,
    values: cache.values,
  };
}

/** Token, position, random key and rings of a state. */
export function numbersOf({ token, position, key, recent, log }: State): number[] {
  const parts = [token, position, key, recent, log].filter((part) => part !== undefined);
  return parts.flatMap((part) => part.reshape([-1]).tolist() as number[]);
}
