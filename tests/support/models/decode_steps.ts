/**
 * Steps of decoding over caches of made-up rows, which tests of fused decoders compare. A step has one token of each of
 * several sequences or several tokens of each.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { ModelShape } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../oracles/oracle.ts";

/** A model, the dtype of its activations and caches, and the positions of sequences in caches of `capacity` rows. */
export interface Batch {
  readonly shape: ModelShape;
  readonly groupSize: number;
  /** Bits of a weight; default 4. */
  readonly bits?: number;
  readonly dtype: mx.Dtype;
  readonly capacity: number;
  readonly positions: readonly number[];
  /** Tokens of each sequence that a step feeds; default 1. */
  readonly tokens?: number;
  /** Too large for software devices. */
  readonly large?: boolean;
}

/** Entries of the vocabulary: no multiple of anything. */
export const VOCAB = 4099;
/** A model of these sizes of heads and of the feed-forward part, of one layer. */
export const shapeOf = (
  hidden: number,
  intermediate: number,
  heads: number,
  kvHeads: number,
  headDim: number,
): ModelShape => ({
  hidden,
  intermediate,
  layers: 1,
  heads,
  kvHeads,
  headDim,
  tied: true,
  vocab: VOCAB,
});
/** Positions that one step feeds after another. */
export const STEPS = 2;
/** NMSE of logits, and of keys and values of new tokens, which are rounded to the dtype of the cache. */
export const LIMITS: readonly (readonly [mx.Dtype, number, number])[] = [
  [mx.float32, 1e-5, 1e-5],
  [mx.float16, 1e-5, 1e-5],
  [mx.bfloat16, 2e-4, 2e-5],
];

/** Logits of some sequences after each step, and their caches at the end. */
export interface Found {
  readonly logits: readonly Float32Array[];
  readonly caches: readonly { readonly values: Float32Array; readonly block: number }[];
}

/**
 * Feeds tokens to some of the sequences after caches of random rows. A sequence's numbers, rounded to the batch's
 * dtype, do not depend on which others there are. The caches are laid out for fused kernels, even where `regions` are
 * off.
 */
export async function steps(
  model: LanguageModel,
  batch: Batch,
  dtype: mx.Dtype,
  which: readonly number[],
  { regions = "on", capacity = batch.capacity, row }: {
    regions?: typeof options.regions;
    capacity?: number;
    /** The token of a sequence whose logits are asked for; default all. */
    row?: number;
  } = {},
): Promise<Found> {
  const { shape: { layers, vocab }, tokens = 1 } = batch;
  const rows = which.length * (row === undefined ? tokens : 1);
  const cache = model.makeCache();
  cache.reserve(1);
  const random = (side: readonly mx.Tensor[], seed: number): mx.Tensor[] =>
    side.map(({ shape }, layer) =>
      mx.tidy(() => {
        const sizes = shape.map((size, axis) => axis === 3 ? batch.capacity : size);
        const of = (i: number): mx.Tensor =>
          mx.random.normal(sizes, mx.float32, 0, 1, mx.random.key(100 * i + 2 * layer + seed));
        const rows = mx.concatenate(which.map(of), 0).astype(batch.dtype).astype(dtype);
        const more = rows.shape.map((size, axis) => axis === 3 ? capacity - batch.capacity : size);
        return capacity === batch.capacity ? rows : mx.concatenate([rows, mx.zeros(more, dtype)], 3);
      })
    );
  const state = {
    token: mx.array(
      which.map((i) => Array.from({ length: tokens }, (_, t) => (100 * i + 5 + 311 * t) % VOCAB)),
      mx.int32,
    ),
    row: row === undefined ? undefined : mx.array([row], mx.uint32),
    position: mx.array(which.map((i) => batch.positions[i]), mx.int32),
    logits: mx.zeros([rows, vocab]),
    keys: random(cache.keys, 0),
    values: random(cache.values, 1),
  };
  assertEquals(state.keys.length, layers);
  cache.dispose();
  mx.eval(...state.keys, ...state.values);
  using _options = withOptions({ regions });
  const loop = new DeviceLoop(state, ({ token, row, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step, row).reshape([rows, -1]).astype(mx.float32);
    return {
      token: mx.add(token, 7),
      row,
      position: mx.add(position, tokens),
      logits,
      keys: step.keys,
      values: step.values,
    };
  });
  const floats = (t: mx.Tensor): Float32Array =>
    mx.tidy(() => Float32Array.from(t.astype(mx.float32).toTypedArray() as Float32Array));
  const logits: Float32Array[] = [];
  for (let i = 0; i < STEPS; i++) {
    loop.run();
    await loop.done();
    logits.push(floats(state.logits));
  }
  const caches = [...state.keys, ...state.values].map((t) => ({ values: floats(t), block: t.shape[4] }));
  loop[Symbol.dispose]();
  mx.dispose([
    state.token,
    ...(state.row ? [state.row] : []),
    state.position,
    state.logits,
    ...state.keys,
    ...state.values,
  ]);
  return { logits, caches };
}

/** The state of a sequence at place `at` of `count`. */
export function ofSequence({ logits, caches }: Found, at: number, count: number): Found {
  const part = (x: Float32Array): Float32Array => x.subarray(at * x.length / count, (at + 1) * x.length / count);
  return { logits: logits.map(part), caches: caches.map(({ values, block }) => ({ values: part(values), block })) };
}

/** Compares a sequence with itself alone: logits and new rows closely, all other rows of the caches bit by bit. */
export function assertAgrees(
  found: Found,
  alone: Found,
  batch: Batch,
  sequence: number,
  what: string,
  limits = LIMITS,
): void {
  const [, most, mostOfRows] = limits.find(([dtype]) => dtype === batch.dtype)!;
  found.logits.forEach((logits, step) => {
    const error = nmse(logits, alone.logits[step]);
    assert(error <= most, `${what}: NMSE ${error} of the logits of step ${step}`);
  });
  const first = batch.positions[sequence];
  found.caches.forEach(({ values, block }, n) => {
    const isNew = (_: number, at: number): boolean => {
      const row = Math.floor(at / block) % batch.capacity;
      return row >= first && row < first + STEPS * (batch.tokens ?? 1);
    };
    const expected = alone.caches[n].values;
    const error = nmse(values.filter(isNew), expected.filter(isNew));
    assert(error <= mostOfRows, `${what}: NMSE ${error} of the new rows of cache ${n}`);
    const changed = values.findIndex((x, at) => x !== expected[at] && !isNew(x, at));
    assert(changed < 0, `${what}: element ${changed} of cache ${n} was overwritten`);
  });
}

/** Compares all logits and caches bit by bit. */
export function assertSame(found: Found, expected: Found, what: string): void {
  const all = ({ logits, caches }: Found): Float32Array[] => [...logits, ...caches.map(({ values }) => values)];
  all(found).forEach((values, n) => {
    const other = all(expected)[n];
    const first = values.findIndex((x, at) => x !== other[at]);
    assert(first < 0, `${what}, result ${n}: ${values[first]} at ${first}, expected ${other[first]}`);
  });
}
