/**
 * The least time that work can take on a device. It is that of its bytes at the rate of a copy, or of its operations at the rate of the
 * matrix units.
 *
 * @module
 */

import type { Case, Rates } from "../compare.ts";
import type { ModelShape } from "../../synthetic/synthetic.ts";

/** How a model's weights and cache are stored. */
export interface Stored {
  /** Bytes of a weight, scales and biases of its group included. */
  readonly weightBytes: number;
  /** Bytes of an element of the cache. */
  readonly cacheBytes: number;
  /** Bytes of the weights that a token reads, where they are not what the sizes say: with experts, or with other layers than attention. */
  readonly tokenBytes?: number;
}

/** A tensor of a file. */
export interface StoredTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Of how many experts a token takes how many. */
export interface ExpertCounts {
  readonly count: number;
  readonly chosen: number;
}

/** Tensors that a token does not read: it takes a row of the embedding. */
const UNREAD = /(^|\.)(mtp|vision_tower|visual|multi_modal_projector)\.|embed_tokens/;
/** The same where the embedding is the head too. */
const UNREAD_TIED = /(^|\.)(mtp|vision_tower|visual|multi_modal_projector)\./;

/** Bytes of all weights that a token reads: of stacks of experts those of the chosen ones. */
export function bytesOfToken(
  tensors: readonly StoredTensor[],
  tied: boolean,
  { count, chosen }: ExpertCounts = { count: 1, chosen: 1 },
): number {
  const unread = tied ? UNREAD_TIED : UNREAD;
  return tensors.filter(({ name }) => !unread.test(name)).reduce((sum, { name, shape, bytes }) => {
    const isStack = /\.(experts|switch_mlp)\./.test(name) && shape[0] === count;
    return sum + (isStack ? bytes * chosen / count : bytes);
  }, 0);
}

/** Bytes of a weight of so many bits, whose groups have a scale and a bias of 16 bits each; 16 bits are dense. */
export function bytesOfWeight(bits: number, groupSize: number): number {
  return bits === 16 ? 2 : bits / 8 + 4 / groupSize;
}

/** Weights of a layer's matrices: of keys and values, and of all others. */
function layerWeights({ hidden, intermediate, heads, kvHeads, headDim }: ModelShape): readonly [number, number] {
  return [2 * kvHeads * headDim * hidden, 2 * heads * headDim * hidden + 3 * intermediate * hidden];
}

/** Weights that a token is multiplied with: all layers and the head. */
function tokenWeights(shape: ModelShape): number {
  const [cached, others] = layerWeights(shape);
  return shape.layers * (cached + others) + shape.hidden * shape.vocab;
}

/** Bytes that keys and values of a position have. */
export function positionBytes({ layers, kvHeads, headDim }: ModelShape, { cacheBytes }: Stored): number {
  return 2 * layers * kvHeads * headDim * cacheBytes;
}

/** Operations of the products of a prompt in all layers, the last of which needs keys and values only. */
export function productWork(shape: ModelShape, tokens: number): number {
  const [cached, others] = layerWeights(shape);
  return 2 * tokens * (shape.layers * cached + (shape.layers - 1) * others);
}

/** Operations of causal attention in the same layers, after so many positions. */
export function attentionWork({ heads, headDim, layers }: ModelShape, tokens: number, behind: number = 0): number {
  return 4 * heads * headDim * (layers - 1) * (tokens * (tokens + 1) / 2 + tokens * behind);
}

/** Bytes and operations of a step of all sequences, or of a prompt. */
export function workOf(
  shape: ModelShape,
  stored: Stored,
  c: Case,
): { readonly bytes: number; readonly operations: number } {
  const { kind, prompt, tokens = 1, rows = 1, behind = 0 } = c;
  const weights = tokenWeights(shape);
  if (kind === "decode") {
    const positions = prompt + tokens / 2; // of a token in the middle
    const { tokenBytes } = stored;
    return {
      bytes: (tokenBytes ?? weights * stored.weightBytes) + rows * positions * positionBytes(shape, stored),
      operations: tokenBytes === undefined ? 2 * rows * weights : 0,
    };
  }
  return {
    bytes: weights * stored.weightBytes + (prompt + behind) * positionBytes(shape, stored),
    operations: productWork(shape, prompt) + attentionWork(shape, prompt, behind) + 2 * shape.hidden * shape.vocab,
  };
}

/**
 * Milliseconds that the work of a case takes at least: of a step, or of a prompt. Undefined where the sizes do not say it: only a token of one
 * sequence is known of models with {@link Stored.tokenBytes}.
 */
export function floorOf(shape: ModelShape, stored: Stored, c: Case, { copy, matrix }: Rates): number | undefined {
  if (stored.tokenBytes !== undefined && (c.kind !== "decode" || (c.rows ?? 1) > 1)) return undefined;
  const { bytes, operations } = workOf(shape, stored, c);
  return Math.max(bytes / copy / 1e6, matrix === null ? 0 : operations / matrix / 1e9);
}
