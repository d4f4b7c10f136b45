/**
 * The common part of all emitters of a decoder: its caches, how threads walk them, and the constants of its kernels.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { float32Bits } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { pageConstant, placePush } from "./kv_place.ts";
import { type DecoderFormats, endFormatWord, type LayerFormats, layerFormatWord, routerFormatWord } from "./formats.ts";
import { type DecoderHidden, vocabularyOf } from "./ends.ts";
import type { LaunchMode } from "./launch_mode.ts";
import {
  ACTIVATIONS,
  type DecoderSizes,
  type DecoderSpec,
  kindNumbers,
  kindsOf,
  LANES,
  MAX_ROPES,
  type Rope,
  THREADS,
} from "./spec.ts";
import { normSize } from "./layouts.ts";
import { normsOfLayer, type ReadyDecoder } from "./prepared_weights.ts";
import { tuningOf } from "../tuning/choose.ts";

/** Polls of incomplete words before a dispatch is given up: some milliseconds. */
export const SPIN_LIMIT = 16384;

/** Emits the dispatches of a decoder, of one sequence or of several. */
export interface Emission {
  readonly l: Lowering;
  readonly ready: ReadyDecoder;
  readonly mode: LaunchMode;
  /** Gives values of nodes outside of the decoder. */
  value(node: Node): Value;
  readonly state: Value;
  readonly status: Value | undefined;
}

/** The cache of each layer. */
export type Caches = readonly { readonly keys: Value; readonly values: Value }[];

/** Memory for the residual that a decoder ends with. */
export function hiddenValue({ l, value }: Emission, { hidden, hiddenState }: DecoderHidden): Value {
  return hiddenState ? value(hiddenState) : l.temporary(hidden.shape, hidden.dtype);
}

/** The table of pages, where positions are in pages. */
export function tableOfPages({ l, ready: { decoder: { cache } }, value }: Emission): Value | undefined {
  return cache.kind === "paged" ? l.contiguous(value(cache.table)) : undefined;
}

/** Positions that a thread has in flight at most. */
const MAX_POSITIONS = 8;
/** Positions of a thread that are worth no rounds. */
const WITHOUT_ROUNDS = 6;

/** How a thread walks the rows of caches: so many at once, in one round or in as many as it takes. */
export function walkOf(capacity: number): { readonly unroll: number; readonly rounds: number } {
  const positions = Math.ceil(capacity / THREADS);
  if (positions <= WITHOUT_ROUNDS) return { unroll: positions, rounds: 1 };
  return { unroll: Math.ceil(positions / Math.max(2, Math.ceil(positions / MAX_POSITIONS))), rounds: 65536 };
}

/** Prefetch threads of the kernel of all layers. */
const PREFETCH_THREADS = 64;
/** Positions that a thread has in flight at most where a workgroup has prefetch threads. */
const MAX_WITH_PREFETCH = 6;

/**
 * Prefetch threads in the kernel of all layers. There are none for a walk with many positions at once, which needs all registers, nor for
 * weights that do not stay in the cache. Prefetch warps also wait at barriers of their own, which not every device supports.
 */
export function prefetchThreads(s: DecoderSizes, f: LayerFormats, unroll: number, backend: Backend): number {
  const { limits } = backend;
  const attention = (s.heads + 2 * s.kvHeads) * s.headDim * f.qkv.bits + s.heads * s.headDim * f.o.bits;
  const bits = s.hidden * (attention + s.intermediate * (2 * f.gateUp.bits + f.down.bits));
  const fits = backend.has("decode_layers_prefetch") && limits.concurrent && limits.subgroup === LANES &&
    limits.maxThreads >= THREADS + PREFETCH_THREADS;
  const isSmall = bits / 8 / workgroupsOf(s) <= tuningOf(backend).decode.maxPrefetchBytes;
  return fits && unroll <= MAX_WITH_PREFETCH && isSmall ? PREFETCH_THREADS : 0;
}

/** Workgroups of qkv, attention and mlp. */
export function workgroupsOf({ kvHeads, headDim }: DecoderSizes): number {
  return kvHeads * headDim / 8;
}

/** Sizes by the names of their specialization constants. `HEADS` are those of a key/value head. */
export function sizeConstants(
  { hidden, intermediate, heads, kvHeads, headDim }: DecoderSizes,
): Readonly<Record<"HIDDEN" | "INTERMEDIATE" | "KV_HEADS" | "HEADS" | "HEAD_DIM", number>> {
  return {
    HIDDEN: hidden,
    INTERMEDIATE: intermediate,
    KV_HEADS: kvHeads,
    HEADS: heads / kvHeads,
    HEAD_DIM: headDim,
  };
}

/** Layers of a dispatch for as many as possible: neighbours whose matrices have the same formats. */
export interface LayerRun {
  readonly first: number;
  readonly count: number;
}

/** The layers of a decoder in runs of the same formats, which are constants of kernels. */
export function runsOfFormats(layers: DecoderFormats): readonly LayerRun[] {
  const words = layers.map(({ formats }) => `${layerFormatWord(formats)} ${routerFormatWord(formats)}`);
  const starts = words.flatMap((word, i) => word === words[i - 1] ? [] : [i]);
  return starts.map((first, i) => ({ first, count: (starts[i + 1] ?? words.length) - first }));
}

/** Specialisation of all kernels of a decoder but for how they walk a cache. */
export function specOf(d: DecoderSpec, backend: Backend): Readonly<Record<string, number>> {
  const { headNorm, qkvBias, activation, postNorm, normOffset } = d.features;
  const [first, second] = kindsOf(d.layers);
  return {
    ...sizeConstants(d.sizes),
    FORMATS: layerFormatWord(d.layers[0].formats), // of kernels of a layer those of that layer
    END_FORMATS: endFormatWord(d),
    DTYPE_W: d.layers[0].norm.dtype.code,
    DTYPE_KV: d.layers[0].keys.dtype.code,
    SUBGROUP: Math.min(LANES, backend.limits.subgroup),
    HEAD_NORM: Number(headNorm),
    QKV_BIAS: Number(qkvBias),
    ACTIVATION: ACTIVATIONS.indexOf(activation),
    RESIDUAL_SCALE: float32Bits(d.residualScale),
    WINDOW_0: first.window ?? 0,
    WINDOW_1: second?.window ?? 0,
    GROWTH: float32Bits(d.growth?.beta ?? 0),
    GROWTH_CONTEXT: d.growth?.context ?? 0,
    ...pageConstant(d.cache),
    ...ropeConstants(d),
    POST_NORM: Number(postNorm),
    NORM_OFFSET: float32Bits(normOffset),
    CLIPS: Number(d.clips),
    EMBED_SCALE: "table" in d.x && d.x.scale !== 1 ? float32Bits(d.x.scale) : 0,
  };
}

/** Constants of what is rotated: 0 where it is all of a head, and where no rope has a factor. */
function ropeConstants(d: DecoderSpec): Readonly<Record<"ROPE_DIMS" | "ROPE_FACTOR_0" | "ROPE_FACTOR_1", number>> {
  const { features: { ropeDims }, sizes: { headDim } } = d;
  const factors = openedRopes(d).map(({ factor }) => factor);
  const [first, second] = factors.some((factor) => factor !== 1) ? factors.map(float32Bits) : [0, 0];
  return { ROPE_DIMS: rotatedConstant(ropeDims, headDim), ROPE_FACTOR_0: first, ROPE_FACTOR_1: second };
}

/** The constant ROPE_DIMS of heads of which the first `dims` features are rotated. */
export function rotatedConstant(dims: number, headDim: number): number {
  return dims === headDim ? 0 : dims;
}

/** Push constants by their names. */
export type DecoderPush = Readonly<Record<string, number | readonly number[]>> & { readonly capacity: number };

/** Push constants of all kernels of a decoder. */
export function decodePush(d: DecoderSpec): DecoderPush {
  return {
    ...placePush(d.cache),
    vocabulary: vocabularyOf(d),
    ...layerPush(d, 0),
    eps: d.eps,
    head_eps: d.headEps,
    score_scale: d.scoreScale,
  };
}

/** Push constants of a dispatch that begins with a layer: its number, and the ropes of layers from there on, a bit each: their kinds. */
export function layerPush(
  d: DecoderSpec,
  layer: number,
): { readonly layer: number; readonly ropes: readonly number[] } {
  const words = [0, 0];
  kindNumbers(d.layers).slice(layer, layer + 32 * words.length).forEach((kind, n) => words[n >> 5] |= kind << (n & 31));
  return { layer, ropes: words.map((word) => word >>> 0) };
}

/** As many ropes as the kernels that open a token compute: where layers have fewer, the first one once more. */
function openedRopes(d: DecoderSpec): readonly Rope[] {
  const ropes = kindsOf(d.layers).map(({ rope }) => rope);
  return Array.from({ length: MAX_ROPES }, (_, i) => ropes[i] ?? ropes[0]);
}

/** Push constants of the kernels that open a token. */
export function beginPush(d: DecoderSpec): Readonly<Record<string, readonly number[]>> {
  const ropes = openedRopes(d);
  return { rope_scales: ropes.map(({ scale }) => scale), log2_bases: ropes.map(({ base }) => Math.log2(base)) };
}

/** Their buffers of frequencies, where ropes have no base. */
export function ropeFreqs(d: DecoderSpec, value: (node: Node) => Value): readonly (Value | undefined)[] {
  return openedRopes(d).map(({ freqs }) => freqs && value(freqs));
}

/** Norms of a layer within those of a whole decoder. The index after the last layer gives the norms from the one before the head on. */
export function normsOf(norms: Value, d: DecoderSpec, layer: number): Value {
  const stride = normsOfLayer(d, 0).reduce((sum, node) => sum + normSize(node), 0);
  return { ...norms, offset: norms.offset + layer * stride };
}
