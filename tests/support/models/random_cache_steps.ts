/** Greedy steps after a cache of random rows, as a loop on the device. */

import * as mx from "../../../mod.ts";
import type { ModelShape } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";

/** Logits of a few greedy steps after a cache of random rows. The rows of the cache afterwards may be left out. */
export async function steps(
  model: LanguageModel,
  shape: ModelShape,
  context: number,
  count: number,
  readsCache: boolean = true,
): Promise<{ logits: number[]; cache: number[] }> {
  const cache: KvCache = model.makeCache();
  mx.tidy(() => {
    cache.begin(context);
    for (let layer = 0; layer < shape.layers; layer++) {
      const rows = (seed: number): mx.Tensor =>
        mx.random.normal([1, shape.kvHeads, context, shape.headDim], mx.float32, 0, 1, mx.random.key(seed));
      cache.update(layer, rows(2 * layer), rows(2 * layer + 1));
    }
    mx.eval(...cache.state);
  });
  cache.reserve(count);
  const state = {
    token: mx.array([[11]], mx.int32),
    position: mx.array([cache.offset], mx.int32),
    logits: mx.zeros([1, model.config.vocabSize]),
    keys: cache.keys,
    values: cache.values,
  };
  const loop = new DeviceLoop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([1, -1]).astype(mx.float32);
    return {
      token: mx.argmax(logits, -1).astype(mx.int32).reshape([1, 1]),
      position: mx.add(position, 1),
      logits,
      keys: step.keys,
      values: step.values,
    };
  });
  const logits: number[] = [];
  for (let i = 0; i < count; i++) {
    loop.run();
    await loop.done();
    logits.push(...state.logits.toTypedArray() as Float32Array);
  }
  cache.advance(count);
  const rows: number[] = [];
  for (const buffer of readsCache ? cache.state : []) {
    const [B, H, blocks, T, block] = buffer.shape;
    const plain = mx.tidy(() =>
      buffer.transpose(0, 1, 3, 2, 4).reshape([B, H, T, blocks * block]).index(
        "...",
        mx.Slice(0, cache.offset),
        mx.Slice(null),
      ).astype(mx.float32)
    );
    for (const x of plain.toTypedArray() as Float32Array) rows.push(x);
    plain[Symbol.dispose]();
  }
  loop[Symbol.dispose]();
  mx.dispose([state.token, state.position, state.logits]);
  cache.dispose();
  return { logits, cache: rows };
}
