/**
 * The matches in layers of Qwen3's, Llama's and Qwen2's kind, in a step and in a prompt, without a device.
 * For a layer that matches it is its sizes and options. For layers that differ in one thing it is the one reason.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { bufferShape, FUSED_LAYOUT } from "../../../src/graph/kv_layout.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import { type DecoderRegion, findDecoder } from "../../../src/schedule/decoder/match/decode_step.ts";
import { findPrompt } from "../../../src/schedule/decoder/match/prefill.ts";
import type { DecoderFeatures } from "../../../src/schedule/decoder/spec.ts";
import { viewOf } from "../../support/models/graph_view.ts";

const [LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, DIM, CAPACITY, VOCABULARY] = [2, 128, 192, 2, 1, 64, 256, 320];
const PROMPT = 20;

/** Differences of layers from Llama's. */
interface Variant {
  /** How many there are (default {@link LAYERS}). */
  readonly layers?: number;
  /** Where q and k are normalised. */
  readonly norm?: "heads" | "whole" | "only k";
  /** Projections with biases. */
  readonly biases?: readonly string[];
  /** The one whose bias is float32. */
  readonly wideBias?: string;
  /** Whether a bias comes first in its sum. */
  readonly biasFirst?: boolean;
  readonly activation?: (x: mx.Tensor) => mx.Tensor;
  readonly traditional?: boolean;
  readonly dims?: number;
  readonly base?: (layer: number) => number;
  /** The factor of scores (default 1 / 8). */
  readonly scoreScale?: (layer: number) => number;
  /** Frequencies, as llama3 and yarn have them. */
  readonly freqs?: boolean;
  readonly mscale?: number;
  readonly postNorm?: boolean;
  readonly masked?: boolean;
  /** Whether the projection to q is no quantized one. */
  readonly dense?: boolean;
  readonly ungated?: boolean;
  /** Heads that are rotated by one position too much. */
  readonly ahead?: readonly string[];
  /** Whether rows of q are taken for heads. */
  readonly mixed?: boolean;
  /** Whether logits are asked of the last row alone. */
  readonly lastRow?: boolean;
  /** Activations. */
  readonly dtype?: mx.Dtype;
}

/** Logits of `rows` tokens of `batch` sequences after a cache, and the cache's new buffers. */
function decoder(variant: Variant, rows: number, batch = 1): readonly mx.Tensor[] {
  const { layers = LAYERS, dtype = mx.float16, biases = [], norm, mscale = 1 } = variant;
  const weight = (...shape: number[]): mx.Tensor => mx.zeros(shape, mx.bfloat16);
  const rms = (x: mx.Tensor): mx.Tensor => mx.fast.rmsNorm(x, weight(x.shape[x.ndim - 1]), 1e-6).astype(x.dtype);
  const linear = (name: string, x: mx.Tensor, outputs: number): mx.Tensor => {
    const inputs = x.shape[x.ndim - 1];
    const codes = mx.zeros([outputs, inputs / 8], mx.uint32);
    const [scales, offsets] = [weight(outputs, inputs / 64), weight(outputs, inputs / 64)];
    const product = variant.dense && name === "q"
      ? mx.matmul(x, weight(outputs, inputs).T).astype(x.dtype)
      : mx.quantizedMatmul(x, codes, scales, offsets, true, 64, 4).astype(x.dtype);
    if (!biases.includes(name)) return product;
    const bias = mx.zeros([outputs], variant.wideBias === name ? mx.float32 : mx.bfloat16);
    return (variant.biasFirst ? mx.add(bias, product) : mx.add(product, bias)).astype(x.dtype);
  };
  const buffers = (block: number): mx.Tensor[] =>
    Array.from(
      { length: layers },
      () => mx.zeros(bufferShape({ batch, heads: KV_HEADS, positions: CAPACITY, headDim: DIM, block }), dtype),
    );
  const position = mx.zeros([batch], mx.int32);
  const cache = new StepCache(buffers(FUSED_LAYOUT.keys), buffers(FUSED_LAYOUT.values), position);
  const offset = cache.begin(rows);
  const later = mx.add(offset, 1);
  const freqs = variant.freqs ? mx.ones([DIM / 2], mx.float32) : undefined;
  let x: mx.Tensor = mx.zeros([batch, rows, HIDDEN], dtype);
  for (let layer = 0; layer < layers; layer++) {
    const normed = rms(x);
    const heads = (name: string, count: number): mx.Tensor => {
      const y = linear(name, normed, count * DIM);
      const whole = norm === "whole" ? rms(y) : y;
      const each = whole.reshape(batch, rows, count, DIM);
      if (variant.mixed && name === "q") return whole.reshape(batch, count, rows, DIM);
      return (norm === "heads" || norm === `only ${name}` ? rms(each) : each).transpose(0, 2, 1, 3);
    };
    const rotate = (name: string, y: mx.Tensor): mx.Tensor =>
      mx.fast.rope(mscale === 1 ? y : mx.multiply(y, mscale), variant.dims ?? DIM, {
        traditional: variant.traditional ?? false,
        base: freqs ? null : variant.base?.(layer) ?? 10000,
        scale: 1,
        offset: variant.ahead?.includes(name) ? later : offset,
        freqs,
      });
    const [q, k] = [rotate("q", heads("q", HEADS)), rotate("k", heads("k", KV_HEADS))];
    const v = linear("v", normed, KV_HEADS * DIM).reshape(batch, rows, KV_HEADS, DIM).transpose(0, 2, 1, 3);
    const { keys, values, lengths } = cache.update(layer, k, v);
    const mask = variant.masked ? mx.ones([rows, CAPACITY], mx.bool) : rows > 1 ? "causal" : null;
    const attended = mx.fast.scaledDotProductAttention(q, keys, values, {
      scale: variant.scoreScale?.(layer) ?? 0.125,
      mask,
      lengths,
    });
    const after = (y: mx.Tensor): mx.Tensor => variant.postNorm ? rms(y) : y;
    const flat = attended.transpose(0, 2, 1, 3).reshape(batch, rows, HEADS * DIM);
    const h = mx.add(x, after(linear("o", flat, HIDDEN)));
    const read = rms(h);
    const activation = (variant.activation ?? mx.nn.silu)(linear("gate", read, INTERMEDIATE));
    const gated = variant.ungated ? activation : mx.multiply(activation, linear("up", read, INTERMEDIATE));
    x = mx.add(h, after(linear("down", gated, HIDDEN)));
  }
  if (variant.lastRow) x = mx.take(x, mx.array([rows - 1], mx.int32), 1);
  return [linear("head", rms(x), VOCABULARY), ...cache.keys, ...cache.values];
}

/** The match of a step: its features, and the biases and norms of each layer; or the reason. */
function stepOf(variant: Variant, batch = 1): { features: DecoderFeatures; small: number; outside: string[] } | string {
  return mx.tidy(() => {
    const nodes = decoder(variant, 1, batch).map(nodeOf);
    const graph = viewOf(nodes);
    const found = findDecoder(graph, new Set(nodes), []);
    assert(found !== undefined);
    if (typeof found === "string") return found;
    const { features, layers } = found.decoder;
    assertEquals(layers.length, LAYERS);
    const { base = () => 10000 } = variant;
    const ropes = layers.map(({ rope }) => rope.freqs ? "freqs" : rope.base);
    assertEquals(ropes, layers.map((_, i) => variant.freqs ? "freqs" : base(i)));
    const parts = layers.flatMap((l) => [l.qBias, l.kBias, l.vBias, l.oBias, l.qNorm, l.kNorm]);
    const small = parts.filter((node) => node !== undefined);
    assertEquals(new Set(small).size, small.length);
    for (const node of small) assertEquals(node.shape.length, 1);
    for (const { qBias, kBias } of layers) {
      assertEquals([qBias?.shape[0], kBias?.shape[0]], qBias ? [HEADS * DIM, KV_HEADS * DIM] : [undefined, undefined]);
    }
    // All that is computed is inside: what is left are weights, positions and buffers.
    const outside = graph.order.filter((n) => n.inputs.length > 0 && !found.inside.has(n)).map(({ op }) => op);
    return { features, small: small.length / LAYERS, outside: outside.filter((op) => op !== "broadcast") };
  });
}

/**
 * The matches in a prompt: norms and biases before attention, and activations after it, of each layer; and the reasons.
 */
function promptOf(variant: Variant): { before: string[]; behind: string[]; reasons: string[] } {
  return mx.tidy(() => {
    const nodes = decoder(variant, PROMPT).map(nodeOf);
    const { prologues, epilogues, reasons } = findPrompt(viewOf(nodes), new Set(nodes));
    const before = prologues.map((p) => {
      const { qBias, kBias, vBias, qNorm, kNorm, ropeAngles: { form, dims, factor, freqs }, appendKeys, appendValues } =
        p;
      const [blocks, buffers] = [[appendKeys?.block, appendValues?.block], [FUSED_LAYOUT.keys, FUSED_LAYOUT.values]];
      assertEquals(blocks, buffers);
      const given = Object.entries({ qNorm, kNorm, qBias, kBias, vBias, freqs }).filter(([, node]) =>
        node !== undefined
      );
      return [form, dims, ...(factor === 1 ? [] : [`by ${factor}`]), ...given.map(([name]) => name)].join(" ");
    });
    return {
      before,
      behind: epilogues.map(({ feedForward }) => "activation" in feedForward ? feedForward.activation : "experts"),
      reasons: [...reasons],
    };
  });
}

const ALIKE = { activation: "silu", postNorm: false, normOffset: 0, ropeForm: "half", ropeDims: DIM } as const;
const QKV = ["q", "k", "v"];

/** Layers that are found: what a step has, the norms and biases of a layer, and what a prompt has. */
const FOUND: Readonly<Record<string, readonly [Variant, DecoderFeatures, number, string]>> = {
  "Qwen3's": [{ norm: "heads" }, { ...ALIKE, headNorm: true, qkvBias: false }, 2, `half ${DIM} qNorm kNorm`],
  "Llama's": [{}, { ...ALIKE, headNorm: false, qkvBias: false }, 0, `half ${DIM}`],
  "Llama 3's": [{ freqs: true }, { ...ALIKE, headNorm: false, qkvBias: false }, 0, `half ${DIM} freqs`],
  "another rope in each": [
    { base: (layer) => 1000 * (layer + 1) },
    { ...ALIKE, headNorm: false, qkvBias: false },
    0,
    `half ${DIM}`,
  ],
  "Qwen2's": [{ biases: QKV }, { ...ALIKE, headNorm: false, qkvBias: true }, 3, `half ${DIM} qBias kBias vBias`],
  "both norms and biases": [
    { biases: QKV, norm: "heads", biasFirst: true },
    { ...ALIKE, headNorm: true, qkvBias: true },
    5,
    `half ${DIM} qNorm kNorm qBias kBias vBias`,
  ],
  "gelu": [
    { activation: mx.nn.gelu },
    { ...ALIKE, headNorm: false, qkvBias: false, activation: "gelu" },
    0,
    `half ${DIM}`,
  ],
  "gelu by tanh": [
    { activation: mx.nn.geluApprox },
    { ...ALIKE, headNorm: false, qkvBias: false, activation: "geluTanh" },
    0,
    `half ${DIM}`,
  ],
  "neighbours rotated": [
    { traditional: true },
    { ...ALIKE, headNorm: false, qkvBias: false, ropeForm: "traditional" },
    0,
    `traditional ${DIM}`,
  ],
  "heads that are scaled": [{ mscale: 1.5 }, { ...ALIKE, headNorm: false, qkvBias: false }, 0, `half ${DIM} by 1.5`],
  "a part of each head rotated": [
    { dims: 32 },
    { ...ALIKE, headNorm: false, qkvBias: false, ropeDims: 32 },
    0,
    "half 32",
  ],
};

for (const [name, [variant, features, small, before]] of Object.entries(FOUND)) {
  for (const dtype of [mx.float16, mx.bfloat16, mx.float32]) {
    Deno.test(`layers with ${name} of ${dtype.name} are found in a step and in a prompt`, () => {
      mx.setDefaultDevice("wasm");
      const given = { ...variant, dtype };
      assertEquals(stepOf(given), { features, small, outside: [] });
      assertEquals(stepOf(given, 3), { features, small, outside: [] });
      const layers = <T>(value: T): T[] => new Array(LAYERS).fill(value);
      assertEquals(promptOf(given), { before: layers(before), behind: layers(features.activation), reasons: [] });
    });
  }
}

Deno.test("layers with norms after parts are found in a step, and as far as attention in a prompt", () => {
  mx.setDefaultDevice("wasm");
  const features = { ...ALIKE, headNorm: false, qkvBias: false, postNorm: true };
  assertEquals(stepOf({ postNorm: true }), { features, small: 0, outside: [] });
  const { before, behind, reasons } = promptOf({ postNorm: true });
  assertEquals([before.length, behind], [LAYERS, []]);
  assertEquals(reasons, ["what is added to the residual is normalised, or the sum is clipped"]);
});

Deno.test("rows that are taken for heads are no heads", () => {
  mx.setDefaultDevice("wasm");
  assertEquals(promptOf({ mixed: true }), {
    before: [],
    behind: ["silu", "silu"],
    reasons: ["quantizedMatmul also reads the result of elementwise"],
  });
  assertEquals(typeof stepOf({ mixed: true }), "object"); // of one row they are the same
});

Deno.test("the last layer of a prompt that computes one row writes keys and values of all, and ends it as a step does", () => {
  mx.setDefaultDevice("wasm");
  for (const [norm, biases, before] of [["heads", [], "kNorm"], [undefined, QKV, "kBias vBias"]] as const) {
    const variant: Variant = { norm, biases, lastRow: true };
    const { before: [first, last, ...more], behind, reasons } = promptOf(variant);
    assertEquals([last, more], [`half ${DIM} ${before}`, []]);
    assertEquals([first.includes(norm ? "qNorm" : "qBias"), behind, reasons], [true, ["silu"], []]);
    mx.tidy(() => {
      const nodes = decoder(variant, PROMPT).map(nodeOf);
      const found = findDecoder(viewOf(nodes), new Set(nodes), []);
      // No loop takes a token here: all else of it was found.
      assertEquals(found, "more is asked of the last row of a prompt than its token");
    });
  }
});

Deno.test("few tokens of each sequence are found as a chunk, with the logits of all of them", () => {
  mx.setDefaultDevice("wasm");
  const found = (variant: Variant, rows: number, batch = 1): DecoderRegion | string | undefined =>
    mx.tidy(() => {
      const nodes = decoder(variant, rows, batch).map(nodeOf);
      return findDecoder(viewOf(nodes), new Set(nodes), [], true);
    });
  for (const variant of [{ norm: "heads", biases: [] }, { biases: QKV }] as const) {
    for (const rows of [2, 16]) {
      const region = found(variant, rows);
      assert(typeof region === "object", String(region));
      const { decoder: { chunk, layers }, last: logits, runsLast } = region;
      assertEquals([chunk, layers.length, runsLast], [{ count: rows, selected: undefined }, LAYERS, false]);
      assertEquals(logits.shape, [1, rows, VOCABULARY]);
    }
  }
  const region = found({}, 4, 2);
  assert(typeof region === "object", String(region));
  const { decoder: { chunk, layers }, last: logits } = region;
  assertEquals([chunk, layers.length, logits.shape], [{ count: 4, selected: undefined }, LAYERS, [2, 4, VOCABULARY]]);
  assertEquals([found({}, 1), found({}, 17), found({}, 17, 2)], [undefined, undefined, undefined]);
  assertEquals(found({ masked: true }, 4), "a chunk is not causal, or has no lengths");
  assertEquals(found({ lastRow: true }, 4), "the row of the head is no uint32");
  assertEquals(found({ ahead: ["q"] }, 4), "q and k are rotated differently");
});

Deno.test("layers with a bias of the output projection are found in a step, which gemv kernels have beside experts", () => {
  mx.setDefaultDevice("wasm");
  const features = { ...ALIKE, headNorm: false, qkvBias: false, outputBias: true };
  assertEquals(stepOf({ biases: ["o"] }), { features, small: 1, outside: [] });
  const found = promptOf({ biases: ["o"] });
  assertEquals([found.reasons, found.before.length, found.behind.length], [[], LAYERS, LAYERS]);
});

/** Layers that are not, the reason in a step, and the reasons in a prompt with what is found of it all the same. */
const REFUSED: Readonly<Record<string, readonly [Variant, string, readonly string[], number, number]>> = {
  "biases of q and k alone": [
    { biases: ["q", "k"] },
    "only some of q, k and v have a bias",
    ["only some of q, k and v have a bias"],
    0,
    LAYERS,
  ],
  "a bias of the gate": [
    { biases: ["gate"] },
    "the gate projection has a bias",
    ["the gate projection has a bias"],
    LAYERS,
    0,
  ],
  "a bias of the down projection": [
    { biases: ["down"] },
    "the down projection has a bias",
    ["the down projection has a bias"],
    LAYERS,
    0,
  ],
  "biases of another dtype": [
    { biases: QKV, wideBias: "v" },
    "scales or dense weights, norm weights and biases are not all float16 or all bfloat16",
    ["norms and biases of heads have different dtypes"],
    0,
    LAYERS,
  ],
  "q at another position than k": [
    { ahead: ["q"] },
    "q and k are rotated differently",
    ["q and k are rotated differently"],
    0,
    LAYERS,
  ],
  "q and k at other positions than the cache's": [
    { ahead: ["q", "k"] },
    "q is not rotated to the position of its sequence in the cache",
    [],
    LAYERS,
    LAYERS,
  ],
  "a sigmoid of something else": [
    { activation: (x) => mx.multiply(x, mx.sigmoid(mx.square(x))) },
    "the feed-forward part has no gate with silu or gelu",
    ["the feed-forward part has no gate with silu or gelu"],
    LAYERS,
    0,
  ],
  "k alone normalised": [
    { norm: "only k" },
    "q and k are normalised differently",
    ["q and k are normalised differently"],
    0,
    LAYERS,
  ],
  "q and k normalised as a whole": [
    { norm: "whole" },
    "q is normalised as a whole, not by heads",
    ["q is normalised as a whole, not by heads"],
    0,
    LAYERS,
  ],
  "a mask": [{ masked: true }, "attention has a mask, or no lengths", [], LAYERS, LAYERS],
  "another scale of scores in the last one": [
    { scoreScale: (layer) => layer === LAYERS - 1 ? 0.25 : 0.125 },
    `layers 0 and ${LAYERS - 1} have different scales of scores`,
    [],
    LAYERS,
    LAYERS,
  ],
  "a third rope": [
    { layers: 3, base: (layer) => 1000 * (layer + 1) },
    "the layers have 3 different ropes and windows, not up to 2",
    [],
    3,
    3,
  ],
  "a projection that is not quantized": [
    { dense: true },
    "matrices with the same input are dense and quantized",
    ["the matrices are dense"],
    0,
    LAYERS,
  ],
  "another activation": [
    { activation: mx.nn.relu },
    "the feed-forward part has no gate with silu or gelu",
    ["the feed-forward part has no gate with silu or gelu"],
    LAYERS,
    0,
  ],
  "half a gelu": [
    { activation: (x) => mx.divide(mx.multiply(x, mx.add(mx.erf(mx.divide(x, 1.4)), 1)), 2) },
    "the feed-forward part has no gate with silu or gelu",
    ["the feed-forward part has no gate with silu or gelu"],
    LAYERS,
    0,
  ],
  "no gate": [
    { ungated: true },
    "the feed-forward part has no gate with silu or gelu",
    ["the feed-forward part has no gate with silu or gelu"],
    LAYERS,
    0,
  ],
};

for (const [name, [variant, step, prompt, before, behind]] of Object.entries(REFUSED)) {
  Deno.test(`layers with ${name} give one reason`, () => {
    mx.setDefaultDevice("wasm");
    assertEquals(stepOf(variant), step);
    const found = promptOf(variant);
    assertEquals([found.reasons, found.before.length, found.behind.length], [[...prompt], before, behind]);
  });
}
