/** Tokens one by one, as the generation loop runs them: traced, with the position on the device. */

import * as mx from "../../../mod.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import type { Buffers } from "../../../src/llm/kv/cache.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";

/** The tokens, and the kept part of their logits. */
export interface Steps {
  /** The tokens from the first position on; those that the cache does not hold follow. */
  readonly ids: readonly number[];
  /** Sequences of the cache, which all go on with the same tokens. Default 1. */
  readonly sequences?: number;
  /** The parts that are kept of a row of logits after the token at a position. */
  keep(logits: Float32Array, position: number): Iterable<number>;
}

/** The kept part of the logits of tokens that a cache does not hold, for each of its sequences. */
export async function loopSteps(
  model: mx.lm.LanguageModel,
  cache: mx.lm.KvCache,
  { ids, sequences = 1, keep }: Steps,
): Promise<Float32Array[]> {
  const held = cache.offset;
  cache.reserve(ids.length - held);
  const state: { position: mx.Tensor; logits: mx.Tensor } & Buffers = {
    position: mx.full([sequences], held, mx.int32),
    logits: mx.zeros([sequences, model.config.vocabSize]),
    keys: cache.keys,
    values: cache.values,
    ...(cache.hasState && { states: cache.buffers.states! }),
  };
  const tokens = mx.array([...ids], mx.int32);
  mx.eval(tokens);
  const found = Array.from({ length: sequences }, (): number[] => []);
  {
    using loop = new DeviceLoop(state, ({ position, keys, values, states }) => {
      const step = new StepCache(keys, values, position, states ? { states } : {});
      const token = mx.take(tokens, position).reshape([sequences, 1]);
      const logits = model.forward(token, step).reshape([sequences, -1]).astype(mx.float32);
      return { position: mx.add(position, 1), logits, ...step.buffers };
    });
    for (let at = held; at < ids.length; at++) {
      loop.run();
      await loop.done();
      const logits = state.logits.toTypedArray() as Float32Array;
      const width = logits.length / sequences;
      found.forEach((of, row) => of.push(...keep(logits.subarray(row * width, (row + 1) * width), at)));
    }
  }
  cache.advance(ids.length - held);
  mx.dispose([state.position, state.logits, tokens]);
  return found.map((of) => Float32Array.from(of));
}
