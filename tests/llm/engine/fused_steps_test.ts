/**
 * Dispatches of an engine on a device with matrix units. Its steps must be fused whatever its requests ask for, and read and write pages
 * where they lie. The backend says that it has every kernel and runs none, so any machine can tell.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { closeDevices, getBackend } from "../../../src/backend/devices.ts";
import { PAGE } from "../../../src/graph/kv_layout.ts";
import { type Dispatched, dispatchesOf, H200_LIMITS, withoutRunning } from "../../support/devices/unrun_device.ts";
import { shapeOf } from "../../support/models/decode_steps.ts";

const LAYERS = 3;

/** Writes a small Qwen3. */
const writeQwen3 = (path: string): Promise<unknown> =>
  writeModel(path, { ...shapeOf(1024, 1024, 16, 8, 128), layers: LAYERS }, { groupSize: 64 });

/** Writes a small Qwen3.5, whose layers but the last have recurrent states. Kernels of several rows want 16 heads of them. */
const writeQwen35 = (path: string, heads: 4 | 16 = 4, draftHead = false): Promise<unknown> =>
  writePublished(path, {
    model_type: "qwen3_5_text",
    hidden_size: 256,
    intermediate_size: 512,
    num_hidden_layers: LAYERS,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 128,
    full_attention_interval: LAYERS,
    linear_num_key_heads: 2,
    linear_num_value_heads: heads,
    linear_key_head_dim: 128,
    linear_value_head_dim: heads === 16 ? 16 : 128,
    linear_conv_kernel_dim: 4,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-6,
    rope_parameters: { rope_type: "default", rope_theta: 10000, partial_rotary_factor: 0.25 },
    tie_word_embeddings: true,
    vocab_size: 4099,
  }, { groupSize: 64, draftHead });

/** The dispatches of each Plan of an engine that answers so many requests. */
async function plansOf(
  requests: number,
  options: Partial<mx.lm.EngineRequest>,
  pages: Pick<mx.lm.EngineOptions, "kvBits" | "speculation">,
  write: (path: string) => Promise<unknown> = writeQwen3,
): Promise<readonly Dispatched[][]> {
  const folder = await Deno.makeTempDir();
  const plans: Uint32Array[] = [];
  using _options = withOptions({ launchMode: "persistent" });
  try {
    await write(`${folder}/model`);
    mx.setDefaultDevice("wasm");
    withoutRunning(H200_LIMITS.maxThreads, (words) => plans.push(words));
    Object.assign(getBackend("wasm"), { limits: H200_LIMITS });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, {
      device: "wasm",
      dtype: mx.float16,
      ...(pages.speculation && { draftHead: true }),
    });
    const engine = new mx.lm.Engine(model, tokenizer, { kvBytes: 2 ** 26, contextSize: 1024, ...pages });
    const answers = Array.from({ length: requests }, (_, i) => {
      const prompt = Array.from({ length: 40 }, (_, t) => t + i);
      return Array.fromAsync(engine.add({ prompt, maxTokens: 8, ...options }));
    });
    await Promise.all(answers);
    await engine[Symbol.asyncDispose]();
    model[Symbol.dispose]();
  } finally {
    closeDevices();
    await Deno.remove(folder, { recursive: true });
  }
  return plans.map(dispatchesOf);
}

const SAMPLED = { temp: 0.7, topP: 0.9, seed: 1 };

/** Drafts three tokens at each place, which are always verified. */
const DRAFTED = {
  speculation: { drafter: { extend: () => {}, draft: () => [1, 2, 3] }, numDraftTokens: 3, adaptive: false },
};

Deno.test("a step that verifies drafts of several requests is one dispatch of all layers", async () => {
  const plans = await plansOf(4, DRAFTED, {});
  const columns = plans.flatMap((plan) => plan.filter(({ kernel }) => kernel.startsWith("batch_layers")))
    .map(({ spec }) => [spec.SEQUENCES, spec.TOKENS]);
  assert(columns.some(([rows, tokens]) => rows === 16 && tokens === 4), `${columns}`);
  assertEquals(plans.flatMap((plan) => plan.filter(({ kernel }) => /^(append|attention)/.test(kernel))), []);
});

Deno.test("steps of several requests read and replace recurrent states in their slots", async () => {
  for (const options of [{}, DRAFTED]) {
    const plans = await plansOf(4, options, {}, writeQwen35);
    const steps = plans.filter((plan) => plan.some(({ kernel }) => kernel === "causal_conv"));
    const states = steps.flatMap((plan) =>
      plan.filter(({ kernel }) => /^(gated_delta(_blocks)?|causal_conv)$/.test(kernel))
    );
    const kernels = new Set(states.map(({ kernel }) => kernel));
    assertEquals([...kernels].sort(), ["causal_conv", "gated_delta", "gated_delta_blocks"]);
    assert(states.every(({ buffers }) => buffers.has("slots")));
    const copies = steps.flatMap((plan) => plan.filter(({ kernel }) => kernel === "scatter"));
    assertEquals(copies, []);
  }
});

Deno.test("steps of several requests of a hybrid are five dispatches a layer, also those that verify drafts", async () => {
  const cases = [[3, {}, 4, 1], [1, DRAFTED, 4, 4], [2, DRAFTED, 8, 4]] as const;
  for (const [requests, options, rows, tokens] of cases) {
    const plans = await plansOf(requests, options, {}, (path) => writeQwen35(path, 16));
    const layersOf = (plan: readonly Dispatched[]): readonly Dispatched[] =>
      plan.filter(({ kernel }) => kernel === "batch_hybrid");
    const step = plans.findLast((plan) => layersOf(plan).some(({ spec }) => spec.TOKENS === tokens));
    const keeps = Number(tokens > 1);
    const about = layersOf(step ?? []).map(({ spec }) => [spec.SEQUENCES, spec.TOKENS, spec.KEEPS]);
    assertEquals(about, Array.from({ length: 5 * LAYERS }, () => [rows, tokens, keeps]));
    // The states of drafted tokens are replaced once it is known how many count.
    const later = step!.filter(({ kernel }) => /^(gated_delta|causal_conv)$/.test(kernel));
    assertEquals(later.length, 2 * keeps * (LAYERS - 1));
    assert(later.every(({ buffers }) => buffers.has("slots")));
  }
});

Deno.test("layers of steps are fused where a head that drafts reads the last norm too", async () => {
  const speculation = { drafter: "mtp", numDraftTokens: 3, adaptive: false } as const;
  const plans = await plansOf(2, {}, { speculation }, (path) => writeQwen35(path, 16, true));
  const parts = plans.filter((plan) => plan.some(({ kernel }) => kernel === "batch_hidden"))
    .map((plan) => plan.filter(({ kernel }) => kernel === "batch_hybrid").map(({ spec }) => [spec.TOKENS, spec.KEEPS]));
  for (const about of [[1, 0], [4, 1]]) {
    const step = parts.find(([first]) => first?.join() === about.join());
    assertEquals(step, Array.from({ length: 5 * LAYERS }, () => about));
  }
});

/** Requests, and what all layers of a step of theirs are. */
const CASES: readonly (readonly [
  requests: number,
  options: Partial<mx.lm.EngineRequest>,
  kernel: string,
  calls: number,
  pages?: Pick<mx.lm.EngineOptions, "kvBits">,
])[] = [
  [1, {}, "decode_layers_prefetch", 1],
  [1, SAMPLED, "decode_layers_prefetch", 1],
  [4, {}, "batch_layers", 1],
  [4, SAMPLED, "batch_layers", 1],
  [40, {}, "coopmat_qkv", LAYERS],
  [40, SAMPLED, "coopmat_qkv", LAYERS],
  [1, {}, "decode_layers_prefetch", 1, { kvBits: 8 }],
  [4, {}, "batch_layers", 1, { kvBits: 8 }],
  [40, SAMPLED, "coopmat_qkv", LAYERS, { kvBits: 8 }],
];

for (const [requests, options, kernel, calls, pages = {}] of CASES) {
  const how = Object.keys(options).length > 0 ? "sampled" : "greedy";
  const bits = pages.kvBits ? ` over pages of ${pages.kvBits} bits` : "";
  Deno.test(`steps of an engine with ${requests} ${how} requests are fused${bits}`, async () => {
    const plans = await plansOf(requests, options, pages);
    const of = (plan: readonly Dispatched[], name: string): readonly Dispatched[] =>
      plan.filter((dispatch) => dispatch.kernel.startsWith(name));
    const written = ["append_pages", "append_codes", "gather_codes"];
    assertEquals(plans.flatMap((plan) => written.flatMap((name) => of(plan, name))), []);
    const steps = plans.filter((plan) => of(plan, kernel).length > 0);
    assertEquals(of(steps.at(-1)!, kernel).length, calls);
    for (const plan of steps) {
      for (const name of [kernel, "paged_attention", "coopmat_paged_attention", "coopmat_attention", "attention"]) {
        for (const { spec } of of(plan, name)) {
          assertEquals([spec.PAGE, spec.DTYPE_KV], [PAGE, (pages.kvBits ? mx.uint8 : mx.float16).code]);
        }
      }
    }
    const prompts = plans.filter((plan) => of(plan, "coopmat_qkv").length > 0);
    // Of one prompt the last layer attends for its last token alone.
    assertEquals(of(prompts[0], "coopmat_attention").length, requests > 1 ? LAYERS : LAYERS - 1);
  });
}

const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

Deno.test("requests wait for no pipelines where larger steps ran before", async () => {
  const folder = await Deno.makeTempDir();
  const held: (() => void)[] = [];
  let holds = false;
  try {
    await writeQwen3(`${folder}/model`);
    mx.setDefaultDevice("wasm");
    withoutRunning(H200_LIMITS.maxThreads, () => {});
    const prepare = (): Promise<void> => new Promise((done) => holds ? held.push(done) : done());
    Object.assign(getBackend("wasm"), { limits: H200_LIMITS, prepare });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, {
      device: "wasm",
      dtype: mx.float16,
    });
    const engine = new mx.lm.Engine(model, tokenizer, { kvBytes: 2 ** 26, contextSize: 1024 });
    const answer = (tokens: number, first: number): Promise<unknown> =>
      Array.fromAsync(engine.add({ prompt: Array.from({ length: tokens }, (_, t) => t + first), maxTokens: 4 }));
    await Promise.all([40, 50, 60].map(answer));
    holds = true;
    await answer(100, 500);
    assert(held.length > 0, "no pipelines are made");
    for (const done of held) done();
    await model.traces.idle();
    holds = false;
    await answer(100, 900);
    // Traces go with replaced weights, and after a step that failed. Prompts then wait for the pipelines of their own shape.
    model.traces[Symbol.dispose]();
    const backend = getBackend("wasm");
    const { run } = backend;
    let runs = 0;
    Object.assign(backend, { run: (...args: Parameters<typeof run>) => (runs++, run.apply(backend, args)) });
    holds = true;
    let ended = false;
    const again = Promise.all([40, 50, 60].map((count, i) => answer(count, 1000 + 300 * i))).then(() => ended = true);
    held.splice(0);
    while (held.length === 0) await pause(1);
    await pause(20);
    assertEquals(runs, 0);
    for (; !ended; await pause(1)) for (const done of held.splice(0)) done();
    await again;
    await engine[Symbol.asyncDispose]();
    model[Symbol.dispose]();
  } finally {
    closeDevices();
    await Deno.remove(folder, { recursive: true });
  }
});
