/** Greedy steps after a cache of random rows, as a loop on the device, and those of gemv kernels beside those op by op. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { ModelShape } from "../../../scripts/synthetic/synthetic.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { kernelsOf } from "../devices/harness.ts";
import { nmse } from "../oracles/oracle.ts";

/**
 * Logits of a few greedy steps after a cache of random rows, of `shape.layers` layers with attention, and of random recurrent states. The rows
 * of the cache afterwards may be left out.
 */
export async function steps(
  model: LanguageModel,
  shape: ModelShape,
  context: number,
  count: number,
  readsCache: boolean = true,
): Promise<{ logits: number[]; cache: number[]; states: number[] }> {
  const cache: KvCache = model.makeCache();
  mx.tidy(() => {
    cache.begin(context);
    for (let layer = 0; layer < shape.layers; layer++) {
      const rows = (seed: number): mx.Tensor =>
        mx.random.normal([1, shape.kvHeads, context, shape.headDim], mx.float32, 0, 1, mx.random.key(seed));
      cache.update(layer, rows(2 * layer), rows(2 * layer + 1));
    }
    for (const [i, { shape }] of (cache.buffers.states ?? []).entries()) {
      cache.writeState(i, mx.random.normal(shape, mx.float32, 0, 0.1, mx.random.key(1000 + i)));
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
    states: [...cache.buffers.states ?? []],
  };
  const loop = new DeviceLoop(state, ({ token, position, keys, values, states }) => {
    const step = new StepCache(keys, values, position, { states });
    const logits = model.forward(token, step).reshape([1, -1]).astype(mx.float32);
    return {
      token: mx.argmax(logits, -1).astype(mx.int32).reshape([1, 1]),
      position: mx.add(position, 1),
      logits,
      keys: step.keys,
      values: step.values,
      states: step.states,
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
  for (const buffer of readsCache ? [...cache.keys, ...cache.values] : []) {
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
  const states = state.states.flatMap((x) => {
    using floats = mx.tidy(() => mx.add(x.astype(mx.float32), 0));
    return [...floats.toTypedArray() as Float32Array];
  });
  loop[Symbol.dispose]();
  mx.dispose([state.token, state.position, state.logits]);
  cache.dispose();
  return { logits, cache: rows, states };
}

/** Most NMSE of gemv kernels, where op by op rounds to 16 bits in between; few rows of a cache are new. */
const BOUNDS = {
  float32: { logits: 1e-6, cache: 1e-6 },
  float16: { logits: 1e-5, cache: 1e-7 },
  bfloat16: { logits: 2e-4, cache: 1e-5 },
} as const;

/** What steps in gemv kernels are held to. */
export interface GemvSteps {
  /** Positions before the first token. */
  readonly context: number;
  readonly count: number;
  readonly dtype: keyof typeof BOUNDS;
  /** Kernels that must not run: those of what is fused. */
  readonly absent?: readonly string[];
}

/** The kernel that waits runs where subgroups have 32 threads: lavapipe loses stores after its loops. */
export function gemvModes(device: string): readonly ("barriers" | "per_phase")[] {
  return mx.withDevice(device, getBackend).limits.subgroup < 32 ? ["barriers"] : ["barriers", "per_phase"];
}

/** Steps of a model in gemv kernels agree with those op by op, and both launch modes give the same bits. */
export async function assertGemvSteps(
  device: string,
  model: LanguageModel,
  shape: ModelShape,
  { context, count, dtype, absent = [] }: GemvSteps,
): Promise<void> {
  let expected: Awaited<ReturnType<typeof steps>>;
  {
    using _options = withOptions({ regions: "off" });
    expected = await steps(model, shape, context, count);
  }
  let exact: number[] | undefined;
  for (const launchMode of gemvModes(device)) {
    using _options = withOptions({ regions: "on", gemv: "on", launchMode });
    let found = expected;
    const kernels = await kernelsOf(device, async () => {
      found = await steps(model, shape, context, count);
    });
    const kernel = launchMode === "barriers" ? "decode_gemv_phase" : "decode_gemv_layers";
    assert(kernels.has(kernel) && !absent.some((name) => kernels.has(name)), [...kernels].join());
    for (const what of ["logits", "cache"] as const) {
      const error = nmse(found[what], expected[what]);
      assert(error <= BOUNDS[dtype][what], `${launchMode} ${what}: NMSE ${error}`);
    }
    assertEquals(found.logits, exact ??= found.logits);
  }
}

type Loaded = Pick<mx.lm.Loaded, "model" | "tokenizer">;

/** The greedy tokens after a prompt. */
async function tokensAfter(
  { model, tokenizer }: Loaded,
  prompt: readonly number[],
  maxTokens: number,
): Promise<number[]> {
  const found: number[] = [];
  for await (const { token } of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens, temp: 0 })) {
    found.push(token);
  }
  return found;
}

/** Asserts that a generation in gemv kernels has the tokens of one op by op. */
export async function assertGemvTokens(device: string, loaded: Loaded, prompt: readonly number[]): Promise<void> {
  const tokens = async (regions: "on" | "off"): Promise<number[]> => {
    using _options = withOptions({ regions, launchMode: "barriers" });
    return await tokensAfter(loaded, prompt, 12);
  };
  const expected = await tokens("off");
  const kernels = await kernelsOf(device, async () => assertEquals(await tokens("on"), expected));
  for (const kernel of ["decode_gemv_phase", "decode_greedy_gemv"] as const) {
    assert(kernels.has(kernel), [...kernels].join());
  }
}

/** Asserts that sequences which run together in gemv kernels have the tokens of each by itself. */
export async function assertGemvBatch(
  device: string,
  loaded: Loaded,
  prompts: readonly (readonly number[])[],
): Promise<void> {
  const { model, tokenizer } = loaded;
  using _options = withOptions({ regions: "on", launchMode: "barriers" });
  const found: number[][] = prompts.map(() => []);
  const kernels = await kernelsOf(device, async () => {
    for await (const r of mx.lm.streamBatchGenerate(model, tokenizer, prompts, { maxTokens: 4, temp: 0 })) {
      found[r.sequence].push(r.token);
    }
  });
  assert(kernels.has("decode_gemv_phase"), [...kernels].join());
  for (const [i, prompt] of prompts.entries()) assertEquals(found[i], await tokensAfter(loaded, prompt, 4));
}
