/**
 * A decoder of one token of a sequence, or of several: what `match/decode_step.ts` finds in a graph. Also the sizes that it may have, and
 * what all kernels that run it share. `prepared_weights.ts` brings its weights into place, `emit_decode.ts` and `emit_batched.ts` run it.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { FUSED_LAYOUT, type KvLayout, plainLayout } from "../../graph/kv_layout.ts";
import type { Node } from "../../graph/node.ts";
import type { MatrixFormat } from "../../graph/quantization.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { DecoderHead, DecoderHidden, TokenRow } from "./ends.ts";
import { formatRequirements, hasSmallFloats, isDense, type LayerFormats, type SharedMatrices } from "./formats.ts";
import type { KvPlace } from "./kv_place.ts";
import { options } from "../plan/options.ts";
import type { RecurrentPart } from "./recurrent_layer.ts";
import type { Matrix } from "../plan/pattern.ts";
import { firstReason, type Requirement } from "../plan/requirements.ts";

/**
 * How heads are rotated: by the frequencies that `base` gives, or by `freqs` float32, one for each rotated pair. Positions are multiplied by
 * `scale`, and the rotated features by `factor`.
 */
export interface Rope {
  readonly base: number;
  readonly scale: number;
  readonly factor: number;
  readonly freqs: Node | undefined;
}

/** In which layers of a decoder may differ. */
export interface LayerKind {
  /** Of a layer without positions it has the scale 0. */
  readonly rope: Rope;
  /** How many positions a token sees, its own the last of them; undefined for all. */
  readonly window: number | undefined;
}

/** Queries at a position p are multiplied by 1 + beta * log(1 + floor(p / context)). */
export interface QueryGrowth {
  readonly beta: number;
  readonly context: number;
}

/** Biases of the router (experts,), and of the three matrices of all experts (experts, rows). */
export type ExpertBiases = Readonly<Record<"router" | "gate" | "up" | "down", Node>>;

/** One layer. `keys` and `values` are the updates of the cache, in the layout of {@link kvLayoutFor}. */
export interface DecoderLayer extends LayerKind {
  readonly norm: Node;
  readonly q: Matrix;
  readonly k: Matrix;
  readonly v: Matrix;
  /** Added to the products to q, k and v (features,): of all three or of none. */
  readonly qBias: Node | undefined;
  readonly kBias: Node | undefined;
  readonly vBias: Node | undefined;
  /** Weights (headDim,) of the norms of q's and k's heads before they are rotated: of both or of none. */
  readonly qNorm: Node | undefined;
  readonly kNorm: Node | undefined;
  readonly o: Matrix;
  readonly oBias: Node | undefined;
  /** One more score of each query head, which has no value (heads,). */
  readonly sinks: Node | undefined;
  readonly keys: Node;
  readonly values: Node;
  readonly mlpNorm: Node;
  /** Weights of the norms of what attention and the feed-forward part add: of both or of none. */
  readonly attentionPostNorm: Node | undefined;
  readonly mlpPostNorm: Node | undefined;
  /** The router of experts; the three matrices are stacks of theirs then. */
  readonly router: Matrix | undefined;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
  /** The expert that all tokens take, and what gives its score. */
  readonly shared: SharedMatrices | undefined;
  readonly expertBiases: ExpertBiases | undefined;
  /** How kernels read the matrices. */
  readonly formats: LayerFormats;
}

/** Sizes that the kernels are specialised for. */
export interface DecoderSizes {
  readonly hidden: number;
  /** Gated values of a token: with experts those of all that it chooses. */
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** Activations of the gate of a feed-forward part, in the order of the codes of shaders/include/activation.glsl. */
export const ACTIVATIONS = ["silu", "gelu", "geluTanh", "clipped"] as const;
/** One of them: `gelu` is that of erf, `geluTanh` its approximation, `clipped` that of gpt-oss's experts, which cuts the linear part too. */
export type FusedActivation = typeof ACTIVATIONS[number];

/** Experts as a feed-forward part: a token takes the `chosen` of highest score of `count`. */
export interface ExpertFeatures {
  readonly count: number;
  readonly chosen: number;
  /** Whether weights are a softmax of all scores or of those of the chosen experts. */
  readonly among: "all" | "chosen";
  /** Whether there is one more, as large, that all tokens take by a score of its own; absent where there is none. */
  readonly shared?: boolean;
  /** Whether the router and the matrices of experts have biases; absent if not. */
  readonly biases?: boolean;
}

/** Experts that a token takes, all of which have as many gated values. */
export function slotsOf(
  { experts }: { readonly experts?: Pick<ExpertFeatures, "chosen" | "shared"> | undefined },
): number {
  return experts ? experts.chosen + Number(experts.shared ?? false) : 1;
}

/** Features in which architectures of pre-norm layers with a gated feed-forward part differ. */
export interface DecoderFeatures {
  /** Absent where all tokens take the same feed-forward part. */
  readonly experts?: ExpertFeatures;
  /** Whether what a head attends to is multiplied by a gate of its own; absent where it is not. */
  readonly gated?: boolean;
  /** Whether what the parts of a layer add is normalised before. */
  readonly postNorm: boolean;
  /** Added to the weights of all norms. */
  readonly normOffset: number;
  /** Whether the heads of q and k are normalised. */
  readonly headNorm: boolean;
  /** Whether the products to q, k and v have biases. */
  readonly qkvBias: boolean;
  /** Whether the output projection has a bias, and query heads have sinks; absent if not. Gemv kernels know both, beside experts. */
  readonly outputBias?: boolean;
  readonly sinks?: boolean;
  readonly activation: FusedActivation;
  /** Rotated pairs: features half of `ropeDims` apart, or neighbours (`traditional` of MLX). */
  readonly ropeForm: "half" | "traditional";
  /** Features of a head that are rotated, from the first one on. */
  readonly ropeDims: number;
}

/** The fields that all layers of a decoder share. */
export interface DecoderStep {
  readonly sizes: DecoderSizes;
  readonly features: DecoderFeatures;
  /** How its caches lie: {@link FUSED_LAYOUT} if kernels run it. */
  readonly layout: KvLayout;
  /** int32 (sequences,): rows of the cache before this token. */
  readonly position: Node;
  /** Where the positions of its caches lie. */
  readonly cache: KvPlace;
  readonly eps: number;
  /** Of the norms of heads; 0 if there are none. */
  readonly headEps: number;
  readonly scoreScale: number;
  /** Undefined where queries do not grow. */
  readonly growth: QueryGrowth | undefined;
  /** The factor of what attention and the feed-forward part add to the residual. */
  readonly residualScale: number;
  /** Whether the residual is kept in float16's range. */
  readonly clips: boolean;
}

/** Consecutive tokens of each sequence that go through the layers together, the first at the position of its step. */
export interface TokenChunk {
  /** Of each sequence. */
  readonly count: number;
  /** uint32 (1,), of one sequence: the one whose logits are asked for; undefined if those of all are. */
  readonly selected: Node | undefined;
}

/** A decoder of one token of each sequence, or of a chunk of each, found in a graph. */
export interface DecoderSpec extends DecoderStep {
  readonly chunk: TokenChunk | undefined;
  /** The parts to look up the embedding of the tokens with; or the residual, of which another part of a model has made them. */
  readonly x: Node | TokenRow;
  /** The layers with attention. */
  readonly layers: readonly DecoderLayer[];
  /** Those between them that have a recurrent state instead; undefined where there are none. */
  readonly recurrent?: RecurrentPart | undefined;
  /** What it ends with: logits, or in a part of a model the residual. */
  readonly out: DecoderHead | DecoderHidden;
}

/** The features of norms. */
export type NormFeatures = Pick<DecoderFeatures, "postNorm" | "normOffset">;

/** What kernels other than split_k say of decoders without {@link hasPlainNorms}. */
export const OTHER_NORMS = "no kernels for norms after parts or offsets of norms";

/** Whether norms are before parts alone, with the weights that are stored: others are known to the split_k kernels. */
export function hasPlainNorms({ postNorm, normOffset }: NormFeatures): boolean {
  return !postNorm && normOffset === 0;
}

/** What kernels other than gemv say of decoders with experts. */
export const OTHER_EXPERTS = "no kernels for experts";
/** What they say of gates of heads. */
export const OTHER_GATES = "no kernels for gates of heads";

/** Whether gemv kernels alone know what a decoder has. */
export function needsGemv({ features: { experts, gated }, recurrent }: GemvNeeds): boolean {
  return experts !== undefined || gated === true || recurrent !== undefined;
}

/** What {@link needsGemv} looks at. */
export interface GemvNeeds {
  readonly features: Pick<DecoderFeatures, "experts" | "gated">;
  readonly recurrent?: RecurrentPart | undefined;
}

/** Gated values of one expert, or of the only feed-forward part. */
export function expertSizeOf(
  { intermediate }: Pick<DecoderSizes, "intermediate">,
  features: Pick<DecoderFeatures, "experts">,
): number {
  return intermediate / slotsOf(features);
}

/** Different kinds of layers that the kernels serve: states have angles of the ropes of so many (ROPES of shaders/states.zon). */
export const MAX_ROPES = 2;

function isSameRope(a: Rope, b: Rope): boolean {
  return a.base === b.base && a.scale === b.scale && a.factor === b.factor && a.freqs === b.freqs;
}

function isSameKind(a: LayerKind, b: LayerKind): boolean {
  return a.window === b.window && isSameRope(a.rope, b.rope);
}

/** The different kinds of layers, in the order in which layers first are of them. */
export function kindsOf(layers: readonly LayerKind[]): readonly LayerKind[] {
  return layers.filter((layer, i) => layers.findIndex((other) => isSameKind(other, layer)) === i);
}

/** Of which of {@link kindsOf} each layer is. */
export function kindNumbers(layers: readonly LayerKind[]): readonly number[] {
  const kinds = kindsOf(layers);
  return layers.map((layer) => kinds.findIndex((other) => isSameKind(other, layer)));
}

/** Sequences, or tokens of a chunk, that are decoded together at most: products that take many rows at once serve more of them. */
export const MAX_SEQUENCES = 16;
/** Threads of a workgroup. */
export const THREADS = 256;
/** Threads that the kernels want to exchange values by shuffles. */
export const LANES = 32;
/** Kinds of sums, the best first; a device takes the first one whose kernels it has. */
const ACCUMULATORS = ["u64", "i32"] as const;
export type Accumulators = typeof ACCUMULATORS[number];

/** Which kernels run layers: those of a batch; or of one sequence, with the depth split over workgroups or with whole rows for each. */
export type LayerKernels = "batched" | "split_k" | "gemv";

/** A kernel of a token. */
export type Phase = "begin" | "qkv" | "attention" | "mlp" | "hidden" | "head" | "greedy" | "draw";

/** The kernel of a phase for a kind of sums. */
export function kernel<P extends Phase>(phase: P, accumulators: Accumulators): `decode_${P}_${Accumulators}` {
  return `decode_${phase}_${accumulators}`;
}

/** The kind of sums that decoders run with; undefined if the device has no kernels for them. */
export function accumulatorsOf(backend: Backend): Accumulators | undefined {
  const order = options.accumulators === undefined ? ACCUMULATORS : [options.accumulators, ...ACCUMULATORS];
  return order.find((accumulators) => backend.has(kernel("qkv", accumulators)));
}

/** Of what the hidden features and those of experts are multiples: lanes take as many at once. */
const EXPERT_UNIT = 32;

/** The kernels' requirements of sizes, and of the formats of matrices. */
function sizeRequirements(
  s: DecoderSizes,
  features: DecoderFeatures,
  formats: readonly MatrixFormat[],
): readonly Requirement[] {
  const { hidden, intermediate, heads, kvHeads, headDim } = s;
  const { experts, outputBias, sinks } = features;
  const unit = experts ? EXPERT_UNIT : 128;
  const depths = [hidden, expertSizeOf(s, features), heads * headDim];
  const other = formats.find(({ groupSize }) => depths.some((n) => n % groupSize !== 0));
  return [
    ...formatRequirements(formats),
    [
      experts !== undefined || formats.every((format) => isDense(format) === isDense(formats[0])),
      "some matrices are dense and others quantized",
    ],
    [experts !== undefined || !outputBias, "the output projection has a bias, which is known beside experts alone"],
    [experts !== undefined || !sinks, "heads have sinks, which are known beside experts alone"],
    [hidden % unit === 0 && hidden <= 8192, `the hidden size ${hidden} is no multiple of ${unit} up to 8192`],
    [headDim % 16 === 0 && headDim <= 256, `the head size ${headDim} is no multiple of 16 up to 256`],
    [heads % kvHeads === 0 && heads / kvHeads <= 16, `${heads} heads do not share ${kvHeads} key heads`],
    [intermediate % 8 === 0, `the intermediate size ${intermediate} is no multiple of 8`],
    [kvHeads * headDim / 8 <= 2048, "there are too many key/value features"],
    [other === undefined, `groups of ${other?.groupSize} do not divide the sizes`],
    [
      !formats.some(isDense) || depths.every((n) => n % unit === 0),
      `dense weights have sizes that are no multiples of ${unit}`,
    ],
  ];
}

/** Why no fused kernel, of a step or of a prompt, rotates heads of `headDim` features so; undefined where they do. */
export function ropeUnsupportedReason(
  form: DecoderFeatures["ropeForm"],
  dims: number,
  headDim: number,
): string | undefined {
  return firstReason([
    [form !== "traditional", "rope rotates neighbouring features"],
    [dims === headDim || dims % 8 === 0, `rope rotates ${dims} features of each head, no multiple of 8`],
  ]);
}

/** Why the kernels cannot serve these sizes, features and formats of matrices on this device; undefined when they can. */
export function decoderUnsupportedReason(
  backend: Backend,
  sizes: DecoderSizes,
  features: DecoderFeatures,
  formats: readonly MatrixFormat[],
): string | undefined {
  const { maxThreads, subgroup } = backend.limits;
  return firstReason([
    [accumulatorsOf(backend) !== undefined, `${backend.name} has no decode kernels`],
    [options.regions !== "auto" || subgroup >= LANES, `subgroups of ${subgroup} are faster that way`],
    [maxThreads >= THREADS, `workgroups have at most ${maxThreads} threads, ${THREADS} are needed`],
    ...sizeRequirements(sizes, features, formats),
    [
      !needsGemv({ features }) || backend.has("decode_gemv_phase"),
      `${backend.name} has no gemv kernels, which experts and gates of heads need`,
    ],
    [
      !formats.some(hasSmallFloats) || backend.has("decode_gemv_phase"),
      `${backend.name} has no gemv kernels, which small floats need`,
    ],
    [hasPlainNorms(features) || !formats.some(isDense), `dense weights have ${OTHER_NORMS}`],
  ]) ?? ropeUnsupportedReason(features.ropeForm, features.ropeDims, sizes.headDim);
}

/** How a cache of one sequence should lie: as the fused step reads it where that serves, else plain. */
export function kvLayoutFor(
  backend: Backend,
  sizes: DecoderSizes,
  features: DecoderFeatures,
  formats: readonly MatrixFormat[],
): KvLayout {
  const fused = options.fuse && options.regions !== "off" &&
    decoderUnsupportedReason(backend, sizes, features, formats) === undefined;
  return fused ? FUSED_LAYOUT : plainLayout(sizes.headDim);
}

/** Sequences that a decoder advances. */
export function sequencesOf({ position }: Pick<DecoderSpec, "position">): number {
  return sizeOf(position.shape);
}

/** Tokens that go through the layers: one of each sequence, or a chunk of each. */
export function tokensOf(d: Pick<DecoderSpec, "position" | "chunk">): number {
  return (d.chunk?.count ?? 1) * sequencesOf(d);
}

/** Tokens whose logits are asked for. */
export function headTokensOf(d: Pick<DecoderSpec, "position" | "chunk">): number {
  return d.chunk?.selected ? 1 : tokensOf(d);
}
