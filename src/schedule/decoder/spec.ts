/**
 * A decoder of one token of a sequence, or of several: what `regions.ts` finds in a graph, the sizes that it may have, and what all
 * kernels that run it share. `decoder_ready.ts` brings its weights into place, `decoder_emit.ts` and `batch.ts` run it.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { StepEnd } from "./emit_sampling_tail.ts";
import type { ReadyDecoder } from "./weights.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { options } from "../plan/options.ts";

/** A quantized matrix (rows, columns) as nodes. */
export interface Matrix {
  readonly codes: Node;
  readonly scales: Node;
  readonly biases: Node;
}

/** One layer. `keys` and `values` are the updates of the cache, in the layout of {@link cacheBlocks}. */
export interface DecoderLayer {
  readonly norm: Node;
  readonly q: Matrix;
  readonly k: Matrix;
  readonly v: Matrix;
  readonly qNorm: Node;
  readonly kNorm: Node;
  readonly o: Matrix;
  readonly keys: Node;
  readonly values: Node;
  readonly mlpNorm: Node;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
}

/** Sizes that the kernels are specialised for. */
export interface DecoderSizes {
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly groupSize: number;
  readonly bits: number;
}

/** What all layers of a decoder share. */
export interface DecoderStep {
  readonly sizes: DecoderSizes;
  /** int32 (sequences,): rows of the cache before this token. */
  readonly position: Node;
  readonly capacity: number;
  readonly freqs: Node | undefined;
  readonly eps: number;
  readonly headEps: number;
  readonly scoreScale: number;
  readonly ropeScale: number;
  readonly ropeBase: number;
}

/** The row of a token in a table, rounded to a dtype. */
export interface TokenRow {
  readonly ids: Node;
  readonly table: Matrix;
  readonly dtype: Dtype;
}

/** A decoder of one token of each sequence, found in a graph. */
export interface Decoder extends DecoderStep {
  /** The token's embedding, or the parts to look it up with. */
  readonly x: Node | TokenRow;
  readonly layers: readonly DecoderLayer[];
  readonly norm: Node;
  readonly head: Matrix;
  readonly vocabulary: number;
  /** The result (sequences, …, vocabulary). */
  readonly logits: Node;
  /** Its argmax. */
  readonly token: Node | undefined;
  /** Whether anything but the argmax reads the logits. */
  readonly keepsLogits: boolean;
  /** The end of a step of a loop, where the token is all that the state's rest needs. */
  readonly end: StepEnd | undefined;
}

/** Threads of a workgroup. */
export const THREADS = 256;
/** Threads that the kernels want to exchange values by shuffles. */
const LANES = 32;
/** Kinds of sums, the best first; a device takes the first one whose kernels it has. */
const SUMS = ["u64", "i32", "f32"] as const;
export type Sums = typeof SUMS[number];

/** A kernel of a token. */
export type Phase = "begin" | "qkv" | "attend" | "mlp" | "head" | "greedy" | "draw";

/** The kernel of a phase for a kind of sums. */
export function kernel(phase: Phase, sums: Sums): KernelName {
  return `decode_${phase}_${sums}`;
}

/** The kind of sums that decoders run with; undefined where the device has no kernels for them. */
export function sumsOf(backend: Backend): Sums | undefined {
  const order = options.sums === undefined ? SUMS : [options.sums, ...SUMS];
  return order.find((sums) => backend.has(kernel("qkv", sums)));
}

/** Why the kernels cannot serve these sizes on this device; undefined when they can. */
export function decoderMisfit(backend: Backend, s: DecoderSizes): string | undefined {
  if (!sumsOf(backend)) return `${backend.name} has no decode kernels`;
  const { maxThreads, subgroup } = backend.limits;
  if (options.regions === "auto" && subgroup < LANES) return `subgroups of ${subgroup} are faster that way`;
  if (maxThreads < THREADS) return `workgroups have at most ${maxThreads} threads, ${THREADS} are needed`;
  const rules: readonly (readonly [boolean, string])[] = [
    [s.bits === 4 || s.bits === 8, `weights have ${s.bits} bits, not 4 or 8`],
    [s.groupSize % 32 === 0, `the group size ${s.groupSize} is no multiple of 32`],
    [s.hidden % 128 === 0 && s.hidden <= 8192, `the hidden size ${s.hidden} is no multiple of 128 up to 8192`],
    [s.headDim % 16 === 0 && s.headDim <= 256, `the head size ${s.headDim} is no multiple of 16 up to 256`],
    [s.heads % s.kvHeads === 0 && s.heads / s.kvHeads <= 16, `${s.heads} heads do not share ${s.kvHeads} key heads`],
    [s.intermediate % 8 === 0, `the intermediate size ${s.intermediate} is no multiple of 8`],
    [s.kvHeads * s.headDim / 8 <= 2048, "there are too many key/value features"],
    [
      [s.hidden, s.intermediate, s.heads * s.headDim].every((n) => n % s.groupSize === 0),
      `groups of ${s.groupSize} do not divide the sizes`,
    ],
  ];
  return rules.find(([holds]) => !holds)?.[1];
}

/**
 * Features that lie side by side in a cache of keys and values: (B, H, D / block, capacity, block). With blocks of a whole head
 * that is the plain layout (B, H, capacity, D).
 */
export function cacheBlocks(backend: Backend, sizes: DecoderSizes): { readonly keys: number; readonly values: number } {
  const fits = options.fuse && options.regions !== "off" && decoderMisfit(backend, sizes) === undefined;
  return fits ? { keys: 4, values: 8 } : { keys: sizes.headDim, values: sizes.headDim };
}

// ---- what kernels share -------------------------------------------------------------------------------------------------------

/** How decoders wait for sums: between dispatches by barriers, or inside of one, which is tried where `fast.ts` says so. */
export type DecoderForm = "barriers" | "whole" | "steps";

/** Looks at what is not complete before a dispatch is given up: some milliseconds. */
export const PATIENCE = 16384;

/** What emits the dispatches of a decoder, of one sequence or of several. */
export interface Emission {
  readonly l: Lowering;
  readonly ready: ReadyDecoder;
  readonly form: DecoderForm;
  /** Rows of the caches. */
  readonly capacity: number;
  /** Gives values of nodes outside of the decoder. */
  value(node: Node): Value;
  readonly state: Value;
  readonly status: Value | undefined;
}

/** The cache of each layer. */
export type Caches = readonly { readonly keys: Value; readonly values: Value }[];

/** Positions that a thread has in flight at most. */
const MOST_POSITIONS = 8;
/** Positions of a thread that are worth no rounds. */
const WITHOUT_ROUNDS = 6;

/** How a thread walks the rows of caches: so many at once, in one round or in as many as it takes. */
export function walkOf(capacity: number): { readonly unroll: number; readonly rounds: number } {
  const positions = Math.ceil(capacity / THREADS);
  if (positions <= WITHOUT_ROUNDS) return { unroll: positions, rounds: 1 };
  return { unroll: Math.ceil(positions / Math.max(2, Math.ceil(positions / MOST_POSITIONS))), rounds: 65536 };
}

/** Threads that bring the next layer's weights near in the kernel of all layers, and the most bytes of a layer that stay near. */
const HELPERS = 64;
const MOST_NEAR = 1 << 17;
/** Positions that a thread has in flight at most where a workgroup has helpers. */
const MOST_WITH_HELPERS = 6;

/**
 * Helpers in the kernel of all layers. A walk with many positions at once needs all registers; weights that do not stay near are
 * better read once; and helpers stand at barriers of their own, which not every device counts as the same.
 */
export function helpersOf({ sizes: s }: Decoder, unroll: number, backend: Backend): number {
  const { limits } = backend;
  const rowsOfHidden = (s.heads + 2 * s.kvHeads) * s.headDim + 2 * s.intermediate;
  const weights = s.hidden * (rowsOfHidden + s.heads * s.headDim + s.intermediate);
  const fits = backend.has("decode_layers_near") && limits.concurrent && limits.subgroup === LANES &&
    limits.maxThreads >= THREADS + HELPERS;
  return fits && unroll <= MOST_WITH_HELPERS && weights * s.bits / 8 / workgroupsOf(s) <= MOST_NEAR ? HELPERS : 0;
}

/** Workgroups of qkv, attend and mlp. */
export function workgroupsOf({ kvHeads, headDim }: DecoderSizes): number {
  return kvHeads * headDim / 8;
}

/** Sequences that a decoder advances by a token. */
export function sequencesOf({ position }: Pick<Decoder, "position">): number {
  return sizeOf(position.shape);
}

/** Specialisation of all kernels of a decoder but for how they walk a cache. */
export function specOf(d: Decoder, backend: Backend): Readonly<Record<string, number>> {
  const { hidden, intermediate, heads, kvHeads, headDim, groupSize } = d.sizes;
  return {
    HIDDEN: hidden,
    INTERMEDIATE: intermediate,
    KV_HEADS: kvHeads,
    HEADS: heads / kvHeads,
    HEAD_DIM: headDim,
    GROUP: groupSize,
    DTYPE_W: d.head.scales.dtype.code,
    DTYPE_KV: d.layers[0].keys.dtype.code,
    SUBGROUP: Math.min(LANES, backend.limits.subgroup),
  };
}

/** Push constants of all kernels of a decoder over caches of `capacity` rows. */
export function pushOf(d: Decoder, capacity: number): Readonly<Record<string, number>> {
  return {
    capacity,
    vocabulary: d.vocabulary,
    layer: 0,
    eps: d.eps,
    head_eps: d.headEps,
    score_scale: d.scoreScale,
    rope_scale: d.ropeScale,
    log2_base: Math.log2(d.ropeBase),
  };
}

/** Norms of a layer in the order in which all of them lie, or from behind the last layer on the one before the head. */
export function normsOf(norms: Value, { hidden, headDim }: DecoderSizes, layer: number): {
  readonly norm: Value;
  readonly mlpNorm: Value;
  readonly qNorm: Value;
  readonly kNorm: Value;
} {
  const at = layer * 2 * (hidden + headDim);
  const [norm, mlpNorm, qNorm, kNorm] = [0, hidden, 2 * hidden, 2 * hidden + headDim].map((offset) => ({
    ...norms,
    offset: norms.offset + at + offset,
  }));
  return { norm, mlpNorm, qNorm, kNorm };
}

/** Dtypes that weights beside the codes may have: the two halves of a packed word. */
export function isHalf(dtype: Dtype): boolean {
  return dtype === float16 || dtype === bfloat16;
}

/** Dtypes of activations and of a cache. */
export function isFloat(dtype: Dtype): boolean {
  return dtype === float32 || isHalf(dtype);
}
