/**
 * A decoder that is ready to run: its weights in the layouts of the kernels, which are made once and kept with the weights.
 *
 * @module
 */

import type { Node } from "../graph/node.ts";
import { isBatch, usesMatrices } from "./batch.ts";
import { gateUpFragments, headFragments, qkvFragments } from "./batch_layouts.ts";
import { type Decoder, decoderMisfit, type Matrix, sequencesOf, type Sums, sumsOf } from "./decoder.ts";
import { gateUpAffine, headAffine, normWeights, qkvAffine, transposed } from "./decoder_layouts.ts";
import type { Lowering, Value } from "./lowering.ts";
import { type Layout, prepare } from "./prepared.ts";

/** Sequences that are decoded together at most: products that take many rows at once serve more of them. */
const MOST_SEQUENCES = 16;

/** The weights of a layer in the layouts of the kernels. */
interface Prepared {
  readonly qkv: readonly Value[];
  readonly o: readonly Value[];
  readonly gateUp: readonly Value[];
  readonly down: readonly Value[];
}

/** A decoder whose weights are in place. */
export interface ReadyDecoder {
  readonly decoder: Decoder;
  readonly sums: Sums;
  readonly layers: readonly Prepared[];
  readonly head: readonly Value[];
  /** Of each layer norm, mlpNorm, qNorm and kNorm, then the last norm. */
  readonly norms: Value;
}

/** Brings the weights of a decoder into the layouts of the kernels; the reason where that cannot be. `leaf` gives values of leaves. */
export function readyDecoder(l: Lowering, d: Decoder, leaf: (node: Node) => Value | undefined): ReadyDecoder | string {
  const misfit = decoderMisfit(l.backend, d.sizes);
  if (misfit !== undefined) return misfit;
  if (sequencesOf(d) > MOST_SEQUENCES) return `${sequencesOf(d)} sequences are more than ${MOST_SEQUENCES}`;
  const { hidden, intermediate, heads, headDim, groupSize } = d.sizes;
  const stored = (nodes: readonly Node[], layout: Layout): readonly Value[] | undefined => {
    const sources = nodes.map(leaf);
    return sources.every((s) => s !== undefined) ? prepare(l, sources, layout) : undefined;
  };
  // A projection as the kernels read it: by columns, or by rows where several sequences share it.
  const batch = isBatch(l.backend, d);
  const projection = (m: Matrix, columns: number): readonly Value[] | undefined =>
    batch
      ? stored(affine(m), headAffine(hidden, columns, groupSize))
      : stored(all(m), transposed(hidden, columns, groupSize));
  // Scales and biases, and where matrices multiply, codes in another order.
  const product = (matrices: readonly Matrix[], packed: Layout, codes: Layout): readonly Value[] | undefined => {
    const first = stored(matrices.flatMap(affine), packed);
    if (!first || !batch || !usesMatrices(l.backend)) return first;
    const second = stored(matrices.map((m) => m.codes), codes);
    return second && [...first, ...second];
  };
  const layers: Prepared[] = [];
  for (const layer of d.layers) {
    for (const update of [layer.keys, layer.values]) {
      const base = leaf(update.inputs[0]);
      if (!base || !l.mayDonate(update.inputs[0], base)) return "the cache cannot be written in place";
    }
    const qkv = product([layer.q, layer.k, layer.v], qkvAffine(d.sizes), qkvFragments(d.sizes));
    const o = projection(layer.o, heads * headDim);
    const gateUp = product([layer.gate, layer.up], gateUpAffine(d.sizes), gateUpFragments(d.sizes));
    const down = projection(layer.down, intermediate);
    if (!qkv || !o || !gateUp || !down) return NO_ROOM;
    layers.push({ qkv, o, gateUp, down });
  }
  const head = product([d.head], headAffine(d.vocabulary, hidden, groupSize), headFragments(d.vocabulary, hidden));
  const normNodes = [...d.layers.flatMap((layer) => [layer.norm, layer.mlpNorm, layer.qNorm, layer.kNorm]), d.norm];
  const norms = stored(normNodes, normWeights(normNodes));
  return head && norms ? { decoder: d, sums: sumsOf(l.backend)!, layers, head, norms: norms[0] } : NO_ROOM;
}

const NO_ROOM = "its weights are not stored as arrays of their own, or there is no memory for another layout of them";

function affine(m: Matrix): readonly Node[] {
  return [m.scales, m.biases];
}

/** The arrays of a matrix. */
export function all(m: Matrix): readonly Node[] {
  return [m.codes, m.scales, m.biases];
}
