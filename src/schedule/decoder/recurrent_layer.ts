/**
 * Layers that have a gated delta net in the place of attention: what the gemv kernels of shaders/decode_gemv/recurrent.glsl read of them.
 *
 * @module
 */

import type { Dtype } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import type { StateUpdate } from "../plan/fusion.ts";
import type { Matrix } from "../plan/pattern.ts";
import type { Requirement } from "../plan/requirements.ts";
import {
  type LayerFormats,
  layerFormats,
  type ProductFormat,
  productFormat,
  productsOfPart,
  productUnsupportedReason,
  type SharedMatrices,
} from "./formats.ts";

/** Heads of a net, and the tokens that its convolution sees. */
export interface NetSizes {
  readonly keyHeads: number;
  /** A multiple of `keyHeads`. */
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly window: number;
}

/** The matrices of a layer. */
export interface NetMatrices {
  /** To queries, keys and values. */
  readonly mixed: Matrix;
  /** To the gate of the result. */
  readonly z: Matrix;
  /** To the rate of change of each head before its sigmoid, and to what its decay follows from. */
  readonly b: Matrix;
  readonly a: Matrix;
  readonly o: Matrix;
  readonly router: Matrix | undefined;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
  readonly shared: SharedMatrices | undefined;
}

/** How kernels read them: `qkv` is `mixed` and `z`. */
export interface NetFormats extends LayerFormats {
  /** Of `b` and `a`. */
  readonly rates: ProductFormat;
}

/** One layer. */
export interface RecurrentLayer extends NetMatrices {
  /** How many layers with attention come before it. */
  readonly before: number;
  readonly norm: Node;
  readonly mlpNorm: Node;
  /** Factors of the convolution (features, window, 1). */
  readonly conv: Node;
  /** Added to what `a` gives (heads,). */
  readonly dtBias: Node;
  /** The logarithm of the rate of decay (heads,). */
  readonly logRate: Node;
  /** The norm of the result of each head (valueDim,). */
  readonly outputNorm: Node;
  /** The last inputs of the convolution (n, window - 1, features), and the state of the heads (n, heads, valueDim, keyDim). */
  readonly past: StateUpdate;
  readonly matrix: StateUpdate;
  /** Which of the n are those of the sequences; undefined where these have all, in their order. */
  readonly slot: StateSlot | undefined;
  /** What the states will follow from, if others replace them; undefined where the layer does. */
  readonly kept: KeptInputs | undefined;
  readonly formats: NetFormats;
}

/** Where sequences have their states among those of others. */
export interface StateSlot {
  /** int32 (sequences,). */
  readonly index: Node;
  /** int32 (sequences,): at position 0 a state counts as zeros. */
  readonly position: Node;
}

/** What recurrent ops read where drafted tokens are verified: states are replaced once it is known how many of the tokens count. */
export interface KeptInputs {
  /** (B, T, features): the inputs of the convolution. */
  readonly x: Node;
  /** Of these q, k and v, as the delta rule reads them. */
  readonly q: Node;
  readonly k: Node;
  readonly v: Node;
  /** (B, T, heads) */
  readonly rate: Node;
  readonly step: Node;
  /** The ops themselves. Nothing reads what they give, but others must come after them. */
  readonly ops: readonly Node[];
}

/** The recurrent layers of a decoder, with what all of them share. */
export interface RecurrentPart {
  readonly net: NetSizes;
  /** The dtype of the convolution's inputs. */
  readonly dtype: Dtype;
  /** Added to the squares of the lengths of queries and keys. */
  readonly unitEps: number;
  readonly outputEps: number;
  readonly layers: readonly RecurrentLayer[];
}

/** Features that the convolution of a net has. */
export function mixedFeatures({ keyHeads, valueHeads, keyDim, valueDim }: NetSizes): number {
  return 2 * keyHeads * keyDim + valueHeads * valueDim;
}

/** Nodes that a layer gives its values: its new states, or what they will follow from. */
export function resultsOfNet({ past, matrix, kept }: RecurrentLayer): readonly Node[] {
  if (!kept) return [past.value, matrix.value];
  const { x, q, k, v, rate, step, ops } = kept;
  return [x, q, k, v, rate, step, ...ops];
}

/** Columns of the joint product of a layer in the batched kernels: x, z, b and a. */
export function netColumns(net: NetSizes): number {
  return mixedFeatures(net) + net.valueHeads * (net.valueDim + 2);
}

/** The matrices of each product of a layer. */
export function productsOfNet(
  { mixed, z, b, a, o, ...part }: NetMatrices,
): Readonly<Record<Exclude<keyof NetFormats, "router">, readonly Matrix[]>> & { readonly router?: readonly Matrix[] } {
  return { qkv: [mixed, z], rates: [b, a], o: [o], ...productsOfPart(part) };
}

/** The formats of the products of a layer; the reason if kernels do not read one of them. */
export function netFormats(matrices: NetMatrices): NetFormats | string {
  const products = productsOfNet(matrices);
  const reason = Object.values(products).map(productUnsupportedReason).find((found) => found !== undefined);
  if (reason !== undefined) return reason;
  const { mixed: q, z: k } = matrices;
  return { ...layerFormats({ ...matrices, q, k, v: k }), rates: productFormat(products.rates) };
}

/** Numbers that are read at once. */
const QUAD = 4;
/** Rows of a head's state that a workgroup has. */
export const HEAD_ROWS = 32;
/** Lanes that share a row, times the features that each of them loads at once. */
const KEY_STEP = 64;
const MAX_KEYS = 256;
const MAX_WINDOW = 8;

/** Requirements of recurrent layers: of how many features a row of the output projection has, and of the workgroups of a product. */
export function netRequirements(
  { net }: Pick<RecurrentPart, "net">,
  attended: number,
  workgroups: number,
): readonly Requirement[] {
  const { valueHeads, keyDim, valueDim, window } = net;
  const values = valueHeads * valueDim;
  return [
    [values === attended, `recurrent layers have ${values} values, and attention ${attended} features`],
    [keyDim % KEY_STEP === 0 && keyDim <= MAX_KEYS, `keys of recurrent layers have ${keyDim} features`],
    [valueDim % HEAD_ROWS === 0, `values of recurrent layers have ${valueDim} features`],
    [valueHeads % QUAD === 0, `${valueHeads} heads are no multiple of ${QUAD}`],
    [net.keyHeads * keyDim <= values, `${net.keyHeads * keyDim} features of keys are more than ${values} values`],
    [window <= MAX_WINDOW, `a convolution sees ${window} tokens`],
    [
      (mixedFeatures(net) + values) % workgroups === 0,
      `${workgroups} workgroups do not share the rows of recurrent layers`,
    ],
  ];
}
