/**
 * Steps of several rows of models with gated attention and gated delta nets, in the batched kernels (shaders/decode_batched/hybrid.comp), against the same
 * steps op by op. Rows are a token of each of several sequences, or drafted tokens of one or of several. Logits, keys, values and recurrent
 * states must agree, where as many of the tokens count as a step says.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelFormat, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { bufferShape, FUSED_LAYOUT, PAGE } from "../../../src/graph/kv_layout.ts";
import { PagedCache } from "../../../src/llm/kv/paged.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { hybridRequirements } from "../../../src/schedule/decoder/emit_batched_hybrid.ts";
import type { DecoderSpec } from "../../../src/schedule/decoder/spec.ts";
import { firstReason } from "../../../src/schedule/plan/requirements.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { drawSome, isDrawn } from "../../support/draw_cases.ts";
import { uniformFormats } from "../../support/devices/kernel_choices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Sizes of a small Qwen3.5. */
const SMALL = {
  hidden: 128,
  intermediate: 128,
  layers: 3,
  /** Layers from one with attention to the next one. */
  interval: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  keyHeads: 8,
  valueHeads: 16,
  keyDim: 64,
  valueDim: 16,
  window: 4,
};
type Sizes = typeof SMALL;

/** Rows of a step, and the steps. */
interface Rows {
  /** Of each sequence before the first step; at 0 its slot has the state of another one. */
  readonly positions: readonly number[];
  /** Tokens of each sequence in a step, 1 by default, and how many of them count. */
  readonly tokens?: number;
  readonly counted?: readonly number[];
  /** Whether several tokens are drafts, of which only some count: so by default. */
  readonly drafts?: boolean;
}

const CASES: readonly (readonly [string, Partial<Sizes>, ModelFormat, Rows, "bfloat16"?])[] = [
  ["two sequences, the first layer and the last one recurrent", {}, { groupSize: 64 }, { positions: [5, 0] }],
  [
    "eight sequences, three recurrent layers in a row, heads of keys of their own",
    { layers: 4, interval: 4, keyHeads: 16 },
    { groupSize: 32 },
    { positions: [0, 1, 63, 64, 17, 100, 3, 0] },
  ],
  ["four drafted tokens, of which two count", {}, { groupSize: 64 }, { positions: [70], tokens: 4, counted: [2] }],
  [
    "two of four sequences' tokens, bfloat16",
    { layers: 2 },
    { groupSize: 64 },
    { positions: [0, 9, 64, 33], tokens: 2, counted: [2, 1, 2, 1] },
    "bfloat16",
  ],
  [
    "three sequences of 8 bits, heads of 256 features, a window of 3",
    { layers: 2, heads: 2, kvHeads: 1, headDim: 256, keyHeads: 16, keyDim: 128, valueDim: 32, window: 3 },
    { bits: 8, groupSize: 32 },
    { positions: [31, 2, 0] },
  ],
  [
    "nine sequences, in two blocks of rows",
    { layers: 2 },
    { groupSize: 64 },
    { positions: [5, 0, 64, 12, 1, 0, 63, 7, 30] },
  ],
  ["three tokens of each of two sequences, all of which count", {}, { groupSize: 64 }, {
    positions: [6, 0],
    tokens: 3,
    drafts: false,
  }],
  ["gates of heads alone", { layers: 2, interval: 1 }, { groupSize: 128 }, { positions: [65, 0, 8] }],
];

/** Most NMSE: kernels multiply numbers of 16 bits. */
const BOUND = { float32: 2e-5, bfloat16: 2e-4 };
const COLUMNS = 3;
const STEPS = 2;
const VOCAB = 4099;

/** Between log probabilities of the two most probable tokens, from which on the first one is sure. */
const SURE = 0.02;

/** Tokens of an answer, and how much more probable than the next one each is, if that was asked for. */
interface Answer {
  readonly tokens: number[];
  readonly gaps: number[];
}

async function write(path: string, s: Sizes, format: ModelFormat): Promise<void> {
  await writePublished(path, {
    model_type: "qwen3_5_text",
    hidden_size: s.hidden,
    intermediate_size: s.intermediate,
    num_hidden_layers: s.layers,
    num_attention_heads: s.heads,
    num_key_value_heads: s.kvHeads,
    head_dim: s.headDim,
    full_attention_interval: s.interval,
    linear_num_key_heads: s.keyHeads,
    linear_num_value_heads: s.valueHeads,
    linear_key_head_dim: s.keyDim,
    linear_value_head_dim: s.valueDim,
    linear_conv_kernel_dim: s.window,
    max_position_embeddings: 4096,
    rms_norm_eps: 1e-6,
    rope_parameters: { rope_type: "default", rope_theta: 10000, partial_rotary_factor: 0.25 },
    tie_word_embeddings: true,
    vocab_size: VOCAB,
  }, format);
}

type Found = Readonly<Record<"logits" | "cache" | "states", readonly number[]>>;

/** Numbers of arrays, one after the other. */
function numbersOf(arrays: readonly mx.Tensor[]): number[] {
  return arrays.flatMap((array) => mx.tidy(() => Array.from(array.astype(mx.float32).toTypedArray() as Float32Array)));
}

/** Steps over random pages and slots, each after the tokens that counted in the one before. */
async function run(
  model: LanguageModel,
  dtype: mx.Dtype,
  s: Sizes,
  { positions, tokens = 1, counted, drafts = tokens > 1 }: Rows,
): Promise<Found> {
  const sequences = positions.length;
  const attended = Math.floor(s.layers / s.interval);
  const random = (shape: readonly number[], type: mx.Dtype, size: number, seed: number): mx.Tensor =>
    mx.random.normal([...shape], mx.float32, 0, size, mx.random.key(seed)).astype(type);
  const pool = (seed: number, block: number): mx.Tensor => {
    const shape = bufferShape({
      batch: 1 + sequences * COLUMNS,
      heads: s.kvHeads,
      positions: PAGE,
      headDim: s.headDim,
      block,
    });
    return random(shape, dtype, 1, seed);
  };
  const shapes = model.makeCache().buffers.states ?? [];
  const state = {
    token: mx.array(positions.map((_, i) => Array.from({ length: tokens }, (_, t) => 100 * i + 311 * t + 5)), mx.int32),
    position: mx.array([...positions], mx.int32),
    counted: mx.array([...counted ?? positions.map(() => tokens)], mx.int32),
    tables: mx.array(
      positions.map((_, i) => Array.from({ length: COLUMNS }, (_, c) => 1 + c * sequences + i)),
      mx.int32,
    ),
    slots: mx.array(positions.map((_, i) => sequences - i), mx.int32),
    logits: mx.zeros([sequences * tokens, VOCAB]),
    keys: Array.from({ length: attended }, (_, i) => pool(2 * i, FUSED_LAYOUT.keys)),
    values: Array.from({ length: attended }, (_, i) => pool(2 * i + 1, FUSED_LAYOUT.values)),
    states: shapes.map(({ shape, dtype: own }, i) => random([sequences + 1, ...shape.slice(1)], own, 0.1, 1000 + i)),
  };
  mx.eval(...state.keys, ...state.values, ...state.states);
  using loop = new DeviceLoop(state, (now) => {
    const { token, position, tables, slots } = now;
    const cache = new PagedCache(now, position, tables, { slots, drafts });
    const logits = model.forward(token, cache).reshape([sequences * tokens, -1]).astype(mx.float32);
    // As a step that verifies knows it after its choice.
    const choice = mx.argmax(logits, -1).astype(mx.int32).reshape([sequences, tokens]);
    const known = mx.add(now.counted, mx.minimum(mx.max(choice, 1), 0).astype(mx.int32));
    cache.settle(known);
    const { keys, values, states } = cache;
    return { ...now, token: mx.add(token, 7), position: mx.add(position, now.counted), logits, keys, values, states };
  });
  const logits: number[] = [];
  for (let i = 0; i < STEPS; i++) {
    loop.run();
    await loop.done();
    logits.push(...numbersOf([state.logits]));
  }
  return { logits, cache: numbersOf([...state.keys, ...state.values]), states: numbersOf(state.states) };
}

for (const device of DEVICES) {
  for (const [name, sizes, format, rows, dtype = "float32"] of drawSome(device, "rows of hybrids", CASES, 1)) {
    Deno.test(`a fused step of several rows equals op by op: ${name} on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      const s = { ...SMALL, ...sizes };
      await write(`${folder}/model`, s, format);
      mx.setDefaultDevice(device);
      const found = async (regions: "on" | "off", dtype: "float32" | "bfloat16"): Promise<Found> => {
        using _options = withOptions({ regions, launchMode: "barriers", batched: "on" });
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[dtype] });
        using _model = model;
        return await run(model, mx[dtype], s, rows);
      };
      const expected = await found("off", "float32");
      let fused = expected;
      const kernels = await kernelsOf(device, async () => {
        fused = await found("on", dtype);
      });
      const own = [...kernels].filter((kernel) => kernel.startsWith("batch_hybrid"));
      assertEquals(own.length, 1, [...kernels].join());
      // The states of drafted tokens are replaced once it is known how many count.
      assertEquals(kernels.has("gated_delta"), rows.counted !== undefined, [...kernels].join());
      for (const what of ["logits", "cache", "states"] as const) {
        if (what === "states" && s.interval === 1) continue;
        const error = nmse(fused[what], expected[what]);
        assert(error <= BOUND[dtype], `${what}: NMSE ${error}`);
      }
      await Deno.remove(folder, { recursive: true });
    });
  }

  if (!isDrawn(device, "tokens of hybrids with drafts", 4)) continue; // 80 s of pipelines
  Deno.test(`an engine gives the tokens of its requests alone, together and with drafts, on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    await write(`${folder}/model`, SMALL, { groupSize: 64, seed: 4 });
    const { model, tokenizer } = await mx.lm.load(`${folder}/model`, { device, dtype: mx.float32 });
    using _model = model;
    const prompts = [[3, 14, 159, 26, 5, 35, 89], [79, 32, 38, 46, 26]];
    const answers = async (
      requests: readonly mx.lm.EngineRequest[],
      options: Parameters<typeof withOptions>[0],
    ): Promise<Answer[]> => {
      using _options = withOptions({ launchMode: "barriers", ...options });
      await using engine = new mx.lm.Engine(model, tokenizer, { kvBytes: 2 ** 22, contextSize: 256, maxSequences: 4 });
      return await Promise.all(requests.map(async (request) => {
        const answer: Answer = { tokens: [], gaps: [] };
        for await (const { token, logprobs } of engine.add({ maxTokens: 10, temp: 0, ...request })) {
          answer.tokens.push(token);
          const [first, second] = logprobs?.top ?? [];
          if (second) answer.gaps.push(first.logprob - second.logprob);
        }
        return answer;
      }));
    };
    const plain = prompts.map((prompt) => ({ prompt }));
    const expected: Answer[] = [];
    for (const one of plain) expected.push(...await answers([{ ...one, logprobs: 2 }], { regions: "off" }));
    // A token that another one is as probable as may be either, and all that follows it.
    const sure = expected.map(({ gaps }) => [...gaps, 0].findIndex((gap) => gap < SURE));
    assert(sure.every((count) => count >= 8), `${sure}`);
    const assertTokens = (found: readonly Answer[], requests: readonly number[]): void => {
      const cut = (all: readonly Answer[], at: (i: number) => number): number[][] =>
        all.map(({ tokens }, i) => tokens.slice(0, sure[at(i)]));
      assertEquals(cut(found, (i) => requests[i]), cut(requests.map((i) => expected[i]), (i) => requests[i]));
    };
    const fused = { regions: "on", batched: "on" } as const;
    // Drafts of an answer, of which each third token is wrong.
    const draftedOf = (
      i: number,
    ): { prompt: number[]; speculation: mx.lm.RequestSpeculation & { drafter: mx.lm.Drafter } } => {
      let at = -1;
      const drafter: mx.lm.Drafter = {
        extend: (more) => void (at = at < 0 ? 0 : at + more.length),
        draft: (count) => expected[i].tokens.slice(at, at + count).map((id, n) => (at + n) % 3 === 2 ? id ^ 1 : id),
      };
      return { prompt: prompts[i], speculation: { drafter, numDraftTokens: 3, adaptive: false } };
    };
    const kernels = await kernelsOf(device, async () => {
      assertTokens(await answers(plain, fused), [0, 1]);
    });
    assert([...kernels].some((kernel) => kernel.startsWith("batch_hybrid")), [...kernels].join());
    assertTokens(await answers([draftedOf(0), draftedOf(1)], fused), [0, 1]);
    assertTokens(await answers([draftedOf(1)], fused), [1]);
    { // one sequence by itself has its states in arrays of their own
      using _options = withOptions({ launchMode: "barriers", ...fused });
      const { prompt, speculation } = draftedOf(0);
      const tokens: number[] = [];
      const stream = mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: 10, temp: 0, speculation });
      for await (const { token } of stream) tokens.push(token);
      assertTokens([{ tokens, gaps: [] }], [0]);
    }
    await model.traces.idle();
    await Deno.remove(folder, { recursive: true });
  });
}

Deno.test("hybrids that the kernels of several rows do not serve have a reason", () => {
  const { formats } = uniformFormats(4, 64);
  const dtype = mx.float32;
  const layer = { formats: { ...formats, rates: formats.qkv }, logRate: { dtype }, dtBias: { dtype } };
  const net = { keyHeads: 8, valueHeads: 16, keyDim: 128, valueDim: 128, window: 4 };
  /** Why not, on a device with so many bytes of shared memory. */
  const reason = (
    { shared = 49152, count = 16, kept = false, ...change }: Partial<typeof net> & {
      readonly shared?: number;
      readonly count?: number;
      readonly kept?: boolean;
      readonly qkvBias?: boolean;
    },
  ): string | undefined => {
    const { qkvBias = false, ...sizes } = change;
    const decoder = {
      sizes: { heads: 8, kvHeads: 1, headDim: 256 },
      features: { gated: true, qkvBias },
      layers: [{ formats }],
      recurrent: { net: { ...net, ...sizes }, dtype, unitEps: 0, layers: [{ ...layer, ...(kept && { kept }) }] },
      chunk: { count },
    };
    return firstReason(
      hybridRequirements(decoder as unknown as DecoderSpec, { threads: 512, fragmentBytes: 0 }, shared),
    );
  };
  // Fresh q, k and v of 16 tokens take 45,056 bytes, sums and squares the rest.
  assertEquals(reason({ shared: 48896 }), undefined);
  assertMatch(reason({ shared: 48895 })!, /need 48896 bytes of shared memory, and the device has 48895/);
  // One head of keys with its 16 heads of values: 2,304 features of a token.
  assertMatch(reason({ keyHeads: 1 })!, /need 151296 bytes of shared memory/);
  assertEquals(reason({ keyHeads: 1, kept: true }), undefined);
  assertEquals(reason({ keyHeads: 1, count: 4 }), undefined);
  assertMatch(reason({ qkvBias: true })!, /biases/);
  assertMatch(reason({ valueHeads: 8, valueDim: 256 })!, /8 heads of recurrent layers/);
});
