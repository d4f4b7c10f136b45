/**
 * Lowering of prompts for a device with matrix units, on any machine: a backend that says it has every kernel and runs
 * none. `fused_prefill_test.ts` tests what the kernels compute. Here every graph must be lowered, also those of passes
 * that were not evaluated before the next one. The tests check how much of a graph is fused, and that dispatches name
 * the constants and buffers of the architecture.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { closeDevices, getBackend } from "../../../src/backend/devices.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { FUSED_LAYOUT, PAGE } from "../../../src/graph/kv_layout.ts";
import type { KvCache } from "../../../src/llm/kv/cache.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import { KvPool, PagedCache } from "../../../src/llm/kv/paged.ts";
import { ATTENTIONS } from "../../../src/schedule/ops/matmul/coopmat_attention.ts";
import { PRODUCTS } from "../../../src/schedule/ops/matmul/coopmat_matmul.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { type Dispatched, dispatchesOf, withoutRunning } from "../../support/devices/unrun_device.ts";

/** Plans that were compiled last. */
let compiled: Uint32Array[] = [];

const SHAPE: ModelShape = {
  hidden: 128,
  intermediate: 128,
  layers: 3,
  heads: 2,
  kvHeads: 1,
  headDim: 64,
  tied: true,
  vocab: 4096,
};

/** The evaluated arrays, and the layers of a prompt that are fused before attention. */
const ASKED: readonly (readonly [string, (cache: KvCache, logits: mx.Tensor) => readonly mx.Tensor[], number])[] = [
  ["logits", (_, logits) => [logits], 3],
  ["logits, keys and values", ({ state }, logits) => [logits, ...state], 3],
  ["keys and values", ({ state }) => state, 3],
  ["keys", ({ keys }) => keys, 0], // a prologue writes both
];

/** Runs a body with a model on such a device, whose workgroups have at most so many threads. */
async function lowering(
  format: ModelFormat,
  dtype: mx.Dtype,
  maxThreads: number,
  body: (model: mx.lm.LanguageModel) => Promise<void>,
  shape: ModelShape = SHAPE,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  await writeModel(`${folder}/model`, shape, { groupSize: 64, ...format });
  using _options = withOptions({ regions: "on" });
  try {
    mx.setDefaultDevice("wasm");
    withoutRunning(maxThreads, (words) => compiled.push(words));
    const { model } = await mx.lm.load(`${folder}/model`, { device: "wasm", dtype });
    await body(model);
    model[Symbol.dispose]();
  } finally {
    closeDevices();
    await Deno.remove(folder, { recursive: true });
  }
}

/** The kernels of passes over prompts of some sizes, one after the other. */
async function kernelsOf(
  model: mx.lm.LanguageModel,
  sizes: readonly number[],
  evaluate: (cache: KvCache, logits: mx.Tensor, isLast: boolean) => void,
): Promise<readonly mx.KernelTime[]> {
  using cache = model.makeCache();
  const { kernels } = await mx.profile(
    () =>
      mx.tidy(() =>
        sizes.forEach((size, i) =>
          evaluate(cache, model.forward(mx.zeros([1, size], mx.int32), cache), i === sizes.length - 1)
        )
      ),
    { timed: false },
  );
  return kernels;
}

for (const scales of ["BF16", "F16"] as const) {
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
    Deno.test(`prompts of ${dtype.name} over ${scales} weights lower for a device with matrices`, () =>
      lowering({ dtype: scales }, dtype, 1024, async (model) => {
        for (const sizes of [[40], [17, 64, 33], [16, 1, 5, 40]]) {
          const prompts = sizes.filter((size) => size >= 16).length;
          for (const [what, asked, fused] of ASKED) {
            for (const each of [true, false]) {
              const kernels = await kernelsOf(model, sizes, (cache, logits, isLast) => {
                if (each || isLast) mx.eval(...asked(cache, logits));
              });
              // Where a pass waits for the next one's, or computes what one before left, how often it runs is not the point.
              if (sizes.length > 1 && !(each && what.includes("values"))) continue;
              const calls = kernels.reduce((sum, k) => k.kernel.startsWith("coopmat_qkv") ? sum + k.calls : sum, 0);
              assertEquals(calls, fused * prompts, `${what} of ${sizes}`);
            }
          }
        }
      }));
  }
}

Deno.test("prompts on a device whose workgroups are small take no kernel with more threads", () =>
  lowering({}, mx.float16, 128, async (model) => {
    const rows = [...Object.values(PRODUCTS), ATTENTIONS].flatMap((table) => Object.values(table).flat());
    const wide = new Set(rows.filter(({ threads = 0 }) => threads > 128).map(({ kernel }) => kernel));
    assert(wide.size > 0);
    for (const size of [16, 40, 300, 700, 1200]) {
      const kernels = await kernelsOf(model, [size], (_, logits) => mx.eval(logits));
      assertEquals(kernels.filter(({ kernel }) => wide.has(kernel as KernelName)), [], `${size} rows`);
      const matrices = kernels.some(({ kernel }) => kernel.startsWith("coopmat"));
      assert(size < 300 || matrices, `${size} rows take no matrices at all`);
    }
  }));

for (const maxThreads of [128, 256]) {
  Deno.test(`prompts are fused on a device whose workgroups have ${maxThreads} threads at most`, () =>
    lowering({}, mx.float16, maxThreads, async (model) => {
      for (const size of [16, 40, 64, 300]) {
        const kernels = await kernelsOf(model, [size], (cache, logits) => mx.eval(logits, ...cache.state));
        const gated = kernels.filter(({ kernel }) => kernel.startsWith("coopmat_gated"));
        assertEquals(gated.reduce((sum, { calls }) => sum + calls, 0), SHAPE.layers, `${size} rows`);
      }
    }));
}

Deno.test("a step in one dispatch for all layers lowers with and without prefetch warps", () =>
  lowering({}, mx.float16, 1024, async (model) => {
    using _options = withOptions({ launchMode: "persistent", gemv: "off" });
    const backend = getBackend("wasm");
    for (const [concurrent, kernel] of [[false, "decode_layers"], [true, "decode_layers_prefetch"]] as const) {
      Object.assign(backend, { limits: { ...backend.limits, concurrent } });
      const { kernels } = await mx.profile(async () => {
        using cache = model.makeCache();
        const settings = { maxTokens: 3, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
        await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
      }, { timed: false });
      assert(kernels.some((row) => row.kernel === kernel), `no ${kernel}: ${kernels.map((row) => row.kernel)}`);
      await model.traces.idle();
      model.traces[Symbol.dispose]();
    }
  }));

/** How Llama 3.1 stretches positions. */
const LLAMA3 = {
  rope_scaling: {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  },
};
/** Families, and what the kernels of their layers are specialised for. */
const FAMILIES: readonly (readonly [Partial<ModelShape>, Readonly<Record<string, number>>])[] = [
  [{ family: "qwen3" }, { HEAD_NORM: 1, QKV_BIAS: 0, ACTIVATION: 0 }],
  [{ family: "llama" }, { HEAD_NORM: 0, QKV_BIAS: 0, ACTIVATION: 0 }],
  [{ family: "llama", config: LLAMA3 }, { HEAD_NORM: 0, QKV_BIAS: 0, ACTIVATION: 0 }],
  [{ family: "qwen2" }, { HEAD_NORM: 0, QKV_BIAS: 1, ACTIVATION: 0 }],
  [{ family: "qwen3", config: { hidden_act: "gelu" } }, { HEAD_NORM: 1, QKV_BIAS: 0, ACTIVATION: 1 }],
  [{ family: "llama", config: { hidden_act: "gelu" } }, { HEAD_NORM: 0, QKV_BIAS: 0, ACTIVATION: 1 }],
  [{ family: "qwen2", config: { hidden_act: "gelu_pytorch_tanh" } }, { HEAD_NORM: 0, QKV_BIAS: 1, ACTIVATION: 2 }],
];

/** The dispatches of what a body compiles, of kernels whose names begin so. */
async function dispatched(body: () => unknown, ...names: readonly string[]): Promise<readonly Dispatched[]> {
  compiled = [];
  await body();
  return compiled.flatMap(dispatchesOf).filter(({ kernel }) => names.some((name) => kernel.startsWith(name)));
}

/** The constants of a dispatch that an architecture decides. */
function featuresOf({ spec }: Dispatched): Record<string, number> {
  return Object.fromEntries(Object.entries(spec).filter(([name]) => /^(HEAD_NORM|QKV_BIAS|ACTIVATION)$/.test(name)));
}

for (const [change, features] of FAMILIES) {
  const { ACTIVATION, ...ofHeads } = features;
  const shape = { ...SHAPE, ...change };
  const { family, config = {} } = change;
  const name = [family, ...Object.values(config).map((v) => typeof v === "string" ? v : "llama3")].join(" with ");
  Deno.test(`prompts and steps of ${name} are fused`, () =>
    lowering({}, mx.float16, 1024, async (model) => {
      using _options = withOptions({ launchMode: "barriers" });
      const kernels = await kernelsOf(model, [40], (cache, logits) => mx.eval(logits, ...cache.state));
      const calls = (prefix: string): number =>
        kernels.reduce((sum, k) => k.kernel.startsWith(prefix) ? sum + k.calls : sum, 0);
      assertEquals(calls("coopmat_qkv"), SHAPE.layers, "in front of attention");
      assertEquals(calls("coopmat_gated"), SHAPE.layers, "behind attention");

      using cache = model.makeCache();
      assert(cache.fused);
      const { kernels: ofStep, fallbacks } = await mx.profile(async () => {
        const settings = { maxTokens: 3, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
        await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
      }, { timed: false });
      assert(ofStep.some(({ kernel }) => kernel.startsWith("decode_qkv")));
      assertEquals(fallbacks.filter((line) => line.startsWith("decoder step")), []);
      await model.traces.idle();
      model.traces[Symbol.dispose]();
    }, shape));

  Deno.test(`prompts of ${name} take the constants and buffers of its layers`, async () => {
    for (const bits of [4, 8]) {
      await lowering({ bits }, mx.float16, 1024, async (model) => {
        for (const size of [40, 200, 700]) {
          const found = await dispatched(
            () => {
              using cache = model.makeCache();
              mx.tidy(() => mx.eval(model.forward(mx.zeros([1, size], mx.int32), cache), ...cache.state));
            },
            "coopmat_qkv",
            "coopmat_gated",
          );
          const [heads, gated] = ["coopmat_qkv", "coopmat_gated"].map((kind) =>
            found.filter(({ kernel }) => kernel.startsWith(kind))
          );
          assertEquals([heads.length, gated.length], [SHAPE.layers, SHAPE.layers], `${size} rows of ${bits} bits`);
          for (const { spec } of gated) assertEquals(spec.ACTIVATION, ACTIVATION);
          for (const dispatch of heads) {
            assertEquals(featuresOf(dispatch), ofHeads);
            const { spec: { N, HEADS, KV_HEADS, HEAD_DIM }, buffers } = dispatch;
            assertEquals([N, HEADS, KV_HEADS, HEAD_DIM], [256, 2, 1, 64]);
            const there = ["q_norm", "k_norm", "bias"].map((buffer) => Number(buffers.has(buffer)));
            assertEquals(there, [ofHeads.HEAD_NORM, ofHeads.HEAD_NORM, ofHeads.QKV_BIAS]);
          }
        }
        // If no caller asks for attention, the last layer has no q.
        const [last] = await dispatched(() => {
          using cache = model.makeCache();
          mx.tidy(() => {
            model.forward(mx.zeros([1, 40], mx.int32), cache);
            mx.eval(...cache.state);
          });
        }, "coopmat_qkv").then((found) => found.filter(({ spec }) => spec.HEADS === 0));
        assertEquals([featuresOf(last), last.spec.N], [ofHeads, 128]);
        const there = ["q_norm", "k_norm", "bias"].map((buffer) => Number(last.buffers.has(buffer)));
        assertEquals(there, [0, ofHeads.HEAD_NORM, ofHeads.QKV_BIAS]);
      }, shape);
    }
  });

  Deno.test(`a step of several sequences of ${name} takes the constants of its layers`, () =>
    lowering({}, mx.float16, 1024, async (model) => {
      for (const [launchMode, rows] of [["barriers", 1], ["persistent", SHAPE.layers]] as const) {
        using _options = withOptions({ batched: "on", launchMode });
        const found = await dispatched(() => batchStep(model, 5), "batch_layers");
        assertEquals(
          found.map((dispatch) => dispatch.rows),
          new Array(launchMode === "persistent" ? 1 : 5 * SHAPE.layers).fill(rows),
        );
        for (const dispatch of found) assertEquals(featuresOf(dispatch), features);
      }
    }, shape));
}

/** A token of each of some sequences. */
async function batchStep(model: mx.lm.LanguageModel, count: number): Promise<void> {
  using cache = model.makeCache();
  cache.reserve(1);
  const several = (side: readonly mx.Tensor[]): mx.Tensor[] =>
    side.map(({ shape, dtype }) => mx.zeros(shape.with(0, count), dtype));
  const state = {
    token: mx.zeros([count, 1], mx.int32),
    position: mx.zeros([count], mx.int32),
    logits: mx.zeros([count, SHAPE.vocab]),
    keys: several(cache.keys),
    values: several(cache.values),
  };
  using loop = new DeviceLoop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([count, -1]).astype(mx.float32);
    return { token, position: mx.add(position, 1), logits, keys: step.keys, values: step.values };
  });
  loop.run();
  await loop.done();
  mx.dispose([state.token, state.position, state.logits, ...state.keys, ...state.values]);
}

/** Tokens of some sequences over pages, each with `columns` of them. */
async function pagedStep(
  model: mx.lm.LanguageModel,
  count: number,
  tokens: number,
  columns: number,
  { layers, kvHeads: heads, headDim }: ModelShape = SHAPE,
  dtype: mx.Dtype = mx.float16,
): Promise<void> {
  using pool = new KvPool({ layers, heads, headDim, dtype, blocks: FUSED_LAYOUT, pages: count * columns });
  const state = {
    token: mx.zeros([count, tokens], mx.int32),
    row: tokens > 1 ? mx.zeros([1], mx.uint32) : undefined,
    position: mx.zeros([count], mx.int32),
    table: mx.zeros([count, columns], mx.int32),
    next: mx.zeros([count, 1], mx.int32),
    ...pool.buffers,
  };
  using loop = new DeviceLoop(state, (now) => {
    const cache = new PagedCache(now, now.position, now.table);
    const logits = model.forward(now.token, cache, now.row).reshape([count, -1]);
    const next = mx.fast.sample(logits, { temperature: 0 }).astype(mx.int32).reshape([count, 1]);
    return { ...now, next, keys: cache.keys, values: cache.values } as unknown as typeof now;
  });
  loop.run();
  await loop.done();
  mx.dispose([state.token, state.position, state.table, state.next, ...(state.row ? [state.row] : [])]);
}

/** Sequences and tokens of each, and the layers whose attention reads all of the tokens: the last one of a prompt reads one. */
const PAGED: readonly (readonly [count: number, tokens: number, attentions: number])[] = [
  [64, 1, 3],
  [128, 1, 3],
  [256, 1, 3],
  [1, 40, 2],
  [1, 700, 2],
];

for (const [count, tokens, attentions] of PAGED) {
  Deno.test(`${tokens} tokens of each of ${count} sequences in pages are fused`, () =>
    lowering({}, mx.float16, 1024, async (model) => {
      using _options = withOptions({ launchMode: "barriers" });
      const found = await dispatched(() => pagedStep(model, count, tokens, 57), "");
      const of = (name: string): readonly Dispatched[] => found.filter(({ kernel }) => kernel.startsWith(name));
      const reads = of(tokens === 1 ? "paged_attention" : "coopmat_attention");
      assertEquals([of("coopmat_qkv").length, reads.length], [SHAPE.layers, attentions]);
      for (const { spec, buffers } of [...of("coopmat_qkv"), ...reads]) {
        assertEquals([spec.PAGE, buffers.has("pages")], [PAGE, true]);
      }
      assertEquals(of("append_pages"), []);
    }));
}

/** Heads, key heads and features of one, sequences, the dtype, and whether attention takes matrix units. */
const ON_MATRICES: readonly (readonly [
  heads: number,
  kvHeads: number,
  headDim: number,
  count: number,
  dtype: mx.Dtype,
  matrices: boolean,
])[] = [
  [8, 2, 64, 64, mx.float16, true],
  [8, 2, 128, 64, mx.bfloat16, true],
  [8, 2, 64, 63, mx.float16, false], // 126 key heads
  [4, 2, 64, 64, mx.float16, false],
  [8, 2, 256, 64, mx.float16, false],
  [8, 2, 64, 64, mx.float32, false],
];

for (const [heads, kvHeads, headDim, count, dtype, matrices] of ON_MATRICES) {
  const shape = { ...SHAPE, heads, kvHeads, headDim };
  const units = matrices ? "matrix" : "vector";
  Deno.test(`${count} sequences of ${heads} ${dtype.name} heads of ${headDim} take ${units} units`, () =>
    lowering({}, dtype, 1024, async (model) => {
      using _options = withOptions({ launchMode: "barriers" });
      const found = await dispatched(() => pagedStep(model, count, 1, 4, shape, dtype), "");
      const kernels = found.map(({ kernel }) => kernel).filter((kernel) => /paged_attention/.test(kernel));
      const expected = matrices ? "coopmat_paged_attention" : "paged_attention";
      assertEquals(kernels, Array(shape.layers).fill(expected));
    }, shape));
}

Deno.test("a step over a cache that lies otherwise than its kernels read says so", () =>
  lowering({}, mx.float16, 1024, async (model) => {
    const { layers, kvHeads: heads, headDim } = SHAPE;
    using cache = new mx.lm.KvCache({ layers, batch: 1, heads, headDim, dtype: mx.float16, limit: 1024 });
    assertEquals(cache.fused, false);
    const { fallbacks } = await mx.profile(async () => {
      const settings = { maxTokens: 2, processors: [], contextSize: 0, cache, prefillStepSize: 2048 };
      await Array.fromAsync(mx.lm.generateStep([1, 2], model, { ...settings, sampler: mx.lm.makeSampler() }));
    }, { timed: false });
    const why = fallbacks.filter((line) => line.startsWith("decoder step"));
    assertEquals(why, ["decoder step: op by op, because the cache is not in blocks of 4 and 8"]);
    await model.traces.idle();
    model.traces[Symbol.dispose]();
  }));

/** Products with quantized matrices, and a norm, of 128 features. */
interface Parts {
  readonly linear: (x: mx.Tensor) => mx.Tensor;
  readonly up: (x: mx.Tensor) => mx.Tensor;
  readonly norm: (x: mx.Tensor) => mx.Tensor;
}

/** Functions of a residual x whose sums are not those of a layer. */
const OTHER_SUMS: Readonly<Record<string, (x: mx.Tensor, parts: Parts) => readonly mx.Tensor[]>> = {
  "two feed-forward parts in a row": (x, parts) => {
    const mixed = mx.add(x, parts.linear(mx.sin(x)));
    return [feedForward(feedForward(mixed, parts), parts)];
  },
  "a norm whose products are in a part and outside": (x, parts) => {
    const normed = parts.norm(x);
    return [feedForward(mx.add(x, parts.linear(normed)), parts), parts.linear(normed)];
  },
  "two norms of one residual": (x, parts) => {
    const { linear, norm } = parts;
    const after = feedForward(mx.add(x, linear(mx.sin(x))), parts);
    return [feedForward(mx.add(after, linear(mx.sin(linear(norm(after))))), parts), linear(norm(after))];
  },
};

function feedForward(x: mx.Tensor, { linear, up, norm }: Parts): mx.Tensor {
  const normed = norm(x);
  return mx.add(x, linear(mx.multiply(mx.nn.silu(linear(normed)), up(normed))));
}

for (const [what, sums] of Object.entries(OTHER_SUMS)) {
  Deno.test(`${what} lower for a device with matrices`, () =>
    lowering({}, mx.float16, 1024, async (model) => {
      const { mlp, input_layernorm } = (model as unknown as {
        model: { layers: { mlp: Record<string, mx.nn.Module>; input_layernorm: mx.nn.Module }[] };
      }).model.layers[0];
      const parts: Parts = {
        linear: (x) => mlp.gate_proj.forward(x) as mx.Tensor,
        up: (x) => mlp.up_proj.forward(x) as mx.Tensor,
        norm: (x) => input_layernorm.forward(x) as mx.Tensor,
      };
      const { kernels } = await mx.profile(
        () =>
          mx.tidy(() => {
            // Regions are looked for in graphs with attention.
            const q = mx.zeros([1, 2, 64, 64], mx.float16);
            const attended = mx.fast.scaledDotProductAttention(q, q, q, { scale: 1, mask: "causal" });
            const x = attended.transpose([0, 2, 1, 3]).reshape(1, 64, SHAPE.hidden);
            mx.eval(...sums(x, parts));
          }),
        { timed: false },
      );
      assert(kernels.some(({ kernel }) => kernel.startsWith("coopmat_gated")), kernels.map((k) => k.kernel).join());
    }));
}
