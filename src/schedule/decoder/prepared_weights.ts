/**
 * A decoder that is ready to run: its weights in the layouts of the kernels, which are made once and kept with the weights.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { isQuantized, type Matrix, rowCount } from "../plan/pattern.ts";
import { type RowRange, rowsIn, type Value } from "../plan/value.ts";
import { FUSED_LAYOUT } from "../../graph/kv_layout.ts";
import type { Node } from "../../graph/node.ts";
import { explain } from "../../backend/explain.ts";
import {
  type Accumulators,
  accumulatorsOf,
  type DecoderLayer,
  type DecoderSpec,
  decoderUnsupportedReason,
  type LayerKernels,
  MAX_SEQUENCES,
  needsGemv,
  sequencesOf,
  tokensOf,
} from "./spec.ts";
import {
  hasSmallFloatProducts,
  hasSmallFloats,
  isDense,
  isDenseDecoder,
  productFormat,
  productsOfLayer,
  productsOfPart,
} from "./formats.ts";
import { jointMatrix } from "./prompt_weights.ts";
import {
  gateUpScalesBiases,
  headScalesBiases,
  normWeights,
  qkvScalesBiases,
  runScaleBytes,
  runScalesBiases,
  transposed,
} from "./layouts.ts";
import { productsOf as productsOfGemv, runsOf } from "./gemv_products.ts";
import { productsOfNet, type RecurrentLayer } from "./recurrent_layer.ts";
import { endMatrices, headOf } from "./ends.ts";
import type { Lowering } from "../plan/context.ts";
import { PAIRS } from "../ops/matmul/coopmat.ts";
import { fragments } from "../ops/matmul/coopmat_matmul.ts";
import { type Layout, prepare } from "../plan/weight_layouts.ts";
import { readMatrices, unpackMatrices } from "./unpack_codes.ts";
import { tuningOf } from "../tuning/choose.ts";

/** An array of weights, or some of its rows. */
interface WeightArray {
  readonly node: Node;
  readonly rows?: RowRange;
}

/** Arrays in another layout; undefined if they are not stored by themselves or there is no room. */
type Stored = (arrays: readonly WeightArray[], layout: Layout) => readonly Value[] | undefined;

/** The weights of a layer in the layouts of the kernels: codes and scales and biases, or what the kernels need beside codes in place. */
export interface LayerWeights {
  readonly qkv: readonly Value[];
  readonly o: readonly Value[];
  readonly gateUp: readonly Value[];
  readonly down: readonly Value[];
  /** Of the router of experts. */
  readonly router?: readonly Value[];
}

/** Those of a recurrent layer. */
export interface NetWeights extends LayerWeights {
  /** Of the rates of its heads. */
  readonly rates: readonly Value[];
}

/** The weights of a decoder but for its norms and biases. */
interface Weights {
  readonly layers: readonly LayerWeights[];
  /** Of {@link DecoderSpec.recurrent}. */
  readonly recurrent?: readonly NetWeights[];
  readonly head: readonly Value[];
}

/** A decoder whose weights are in place. */
export interface ReadyDecoder extends Weights {
  readonly decoder: DecoderSpec;
  readonly kernels: LayerKernels;
  readonly accumulators: Accumulators;
  /** Of each layer what {@link normsOfLayer} lists, then the last norm, then what {@link normsOfNet} lists. */
  readonly norms: Value;
  /** Codes that stand for those of the graph, if they have another width. */
  readonly codes: ReadonlyMap<Node, Value>;
}

/** Why kernels do not serve a decoder, or others do it better; undefined if they are the best. "products" are those of prompts. */
export type UnsupportedReasons = Readonly<
  Record<Exclude<LayerKernels, "split_k"> | "products", (d: DecoderSpec) => string | undefined>
>;

/**
 * Brings the weights of a decoder into the layouts of the kernels that serve it best; the reason where that cannot be. `leaf` gives values of
 * leaves.
 */
export function readyDecoder(
  l: Lowering,
  d: DecoderSpec,
  leafOf: (node: Node) => Value | undefined,
  unsupported: UnsupportedReasons,
): ReadyDecoder | string {
  const all = [...d.layers, ...d.recurrent?.layers ?? []];
  const ends = headOf(d) ? [productFormat([headOf(d)!.head])] : [];
  const formats = [...ends, ...all.flatMap((layer) => Object.values(layer.formats))];
  const reason = decoderUnsupportedReason(l.backend, d.sizes, d.features, formats);
  if (reason !== undefined) return reason;
  const { keys, values } = FUSED_LAYOUT;
  if (d.layout.keys !== keys || d.layout.values !== values) {
    return `the cache is not in blocks of ${keys} and ${values}`;
  }
  if (sequencesOf(d) > MAX_SEQUENCES) return `${sequencesOf(d)} sequences are more than ${MAX_SEQUENCES}`;
  for (const { keys, values } of d.layers) {
    for (const update of [keys, values]) {
      const base = leafOf(update.inputs[0]);
      if (!base || !l.mayDonate(update.inputs[0], base)) return "the cache cannot be written in place";
    }
  }
  for (const { past, matrix } of d.recurrent?.layers ?? []) {
    for (const { parameter } of [past, matrix]) {
      if (!leafOf(parameter)) return "a recurrent state cannot be written in place";
    }
  }
  const codes = unpackMatrices(l, readMatrices(productsOf(d)), leafOf);
  if (!codes) return NO_ROOM;
  const leaf = (node: Node): Value | undefined => codes.get(node) ?? leafOf(node);
  const stored: Stored = (arrays, layout) => {
    const sources = arrays.map(({ node, rows }) => {
      const value = leaf(node);
      return value && rowsIn(value, rows);
    });
    return sources.every((s) => s !== undefined) ? prepare(l, sources, layout) : undefined;
  };
  const normNodes = [
    ...d.layers.flatMap((_, i) => normsOfLayer(d, i)),
    ...normsOfHead(d),
    ...(d.recurrent?.layers ?? []).flatMap(normsOfNet),
  ];
  const norms = stored(normNodes.map((node) => ({ node })), normWeights(normNodes));
  if (!norms) return NO_ROOM;
  const ready = (kernels: LayerKernels, weights: Weights | undefined): ReadyDecoder | undefined =>
    weights && { decoder: d, kernels, accumulators: accumulatorsOf(l.backend)!, ...weights, norms: norms[0], codes };
  if (tokensOf(d) > 1) {
    const why = unsupported.batched(d);
    const batch = why === undefined ? ready("batched", prepareBatched(l, d, leaf)) : undefined;
    if (batch) return batch;
    if (d.chunk || d.recurrent || isDenseDecoder(d) || (hasSmallFloatProducts(d) && !d.features.experts)) {
      return why ?? NO_ROOM;
    }
    if (unsupported.products(d) === undefined) return `${sequencesOf(d)} sequences use the prefill GEMMs`;
    explain(`${sequencesOf(d)} sequences: a grid of the kernels of one, because ${why ?? NO_ROOM}`);
  }
  const why = unsupported.gemv(d);
  if (isGemvAlone(d) && why !== undefined) return why;
  explain(
    `layers of ${d.sizes.hidden} features: ${why === undefined ? "gemv kernels" : `split_k kernels, because ${why}`}`,
  );
  const alone = why === undefined
    ? ready("gemv", prepareGemv(l.backend, d, stored))
    : ready("split_k", prepareSplitK(d, stored));
  return alone ?? NO_ROOM;
}

/** Whether no kernels but gemv read the layers of a decoder of one sequence. */
function isGemvAlone(d: DecoderSpec): boolean {
  return isDenseDecoder(d) || needsGemv(d) || hasSmallFloatProducts(d);
}

/** The matrices of each product of a decoder. */
function productsOf(d: DecoderSpec): readonly (readonly Matrix[])[] {
  return [
    ...endMatrices(d).map((matrix) => [matrix]),
    ...d.layers.flatMap((layer) => Object.values(productsOfLayer(layer))),
    ...(d.recurrent?.layers ?? []).flatMap((layer) => Object.values(productsOfNet(layer))),
  ];
}

/** Weights if a sequence is decoded by itself: projections for the split_k kernels, and scales and biases of all others. */
function prepareSplitK(d: DecoderSpec, stored: Stored): Weights | undefined {
  const { hidden, intermediate, heads, headDim } = d.sizes;
  const layers: LayerWeights[] = [];
  for (const layer of d.layers) {
    const { formats: f } = layer;
    const qkv = stored(
      [layer.q, layer.k, layer.v].flatMap(scalesBiases),
      qkvScalesBiases(d.sizes, d.features.ropeDims, f.qkv.groupSize),
    );
    const o = stored(all(layer.o), transposed(hidden, heads * headDim, f.o));
    const gateUp = stored(
      [layer.gate, layer.up].flatMap(scalesBiases),
      gateUpScalesBiases(d.sizes, f.gateUp.groupSize),
    );
    const down = stored(all(layer.down), transposed(hidden, intermediate, f.down));
    if (!qkv || !o || !gateUp || !down) return undefined;
    layers.push({ qkv, o, gateUp, down });
  }
  const head = storedHead(d, stored);
  return head && { layers, head };
}

/** Rows of the head whose scales are together. */
const HEAD_RUN = 4;

/** The scales of small floats, by runs of rows. */
function storedScaleBytes(
  matrices: readonly Matrix[],
  columns: number,
  run: number,
  stored: Stored,
): readonly Value[] | undefined {
  const scales = matrices.filter(isQuantized).map(({ scales, rows }) => ({ node: scales, ...(rows && { rows }) }));
  return stored(scales, runScaleBytes(matrices.map(rowCount), columns, run, matrices[0].groupSize));
}

/** The words of the head: none if it is dense or not there. */
function storedHead(d: DecoderSpec, stored: Stored): readonly Value[] | undefined {
  const found = headOf(d);
  if (!found) return [];
  const { head, vocabulary } = found;
  const { hidden } = d.sizes;
  const { groupSize, ...format } = productFormat([head]);
  if (hasSmallFloats(format)) return storedScaleBytes([head], hidden, HEAD_RUN, stored);
  return isDense(head) ? [] : stored(scalesBiases(head), headScalesBiases(vocabulary, hidden, groupSize));
}

/** Weights if a sequence is decoded by itself and workgroups make whole rows: scales and biases, none for dense ones. */
function prepareGemv(
  backend: Backend,
  d: DecoderSpec,
  stored: Stored,
): Weights | undefined {
  const grid = tuningOf(backend).decode.gemvWorkgroups;
  const shapes = productsOfGemv(d, grid);
  const packed = (matrices: readonly Matrix[], columns: number, run: number) => {
    const { groupSize, ...format } = productFormat(matrices);
    if (hasSmallFloats(format)) return storedScaleBytes(matrices, columns, run, stored);
    return isDense(format)
      ? []
      : stored(matrices.flatMap(scalesBiases), runScalesBiases(matrices.map(rowCount), columns, run, groupSize));
  };
  const packedPart = (
    { o, ...part }: Pick<DecoderLayer, "o" | "router" | "gate" | "up" | "down" | "shared">,
    runs: ReturnType<typeof runsOf>,
  ) => {
    const { router, gateUp, down } = productsOfPart(part);
    return {
      o: packed([o], shapes.O.depth, runs.O),
      router: router ? packed(router, shapes.ROUTER.depth, runs.ROUTER) : [],
      gateUp: packed(gateUp, shapes.GATE_UP.depth, runs.GATE_UP),
      down: packed(down, shapes.DOWN.depth, runs.DOWN),
    };
  };
  const layers = d.layers.map((layer) => {
    const runs = runsOf(d, layer.formats, grid);
    return { qkv: packed([layer.q, layer.k, layer.v], shapes.QKV.depth, runs.QKV), ...packedPart(layer, runs) };
  });
  const recurrent = d.recurrent?.layers.map((layer) => {
    const runs = runsOf(d, layer.formats, grid);
    return {
      qkv: packed([layer.mixed, layer.z], shapes.QKV.depth, runs.QKV),
      rates: packed([layer.b, layer.a], shapes.QKV.depth, 1), // a row at a time
      ...packedPart(layer, runs),
    };
  });
  const head = storedHead(d, stored);
  const isWhole = <T extends object>(layer: T): layer is { [K in keyof T]: NonNullable<T[K]> } & T =>
    Object.values(layer).every((values) => values !== undefined);
  if (!head || !layers.every(isWhole) || !(recurrent ?? []).every(isWhole)) return undefined;
  return { layers: layers as LayerWeights[], ...(recurrent && { recurrent: recurrent as NetWeights[] }), head };
}

/** Weights where several rows share them: fragments, which are those of prompts but for the head, or dense matrices as they are. */
function prepareBatched(l: Lowering, d: DecoderSpec, leaf: (node: Node) => Value | undefined): Weights | undefined {
  const { hidden, intermediate, heads, kvHeads, headDim } = d.sizes;
  const packed = (
    matrices: readonly Matrix[],
    columns: readonly number[],
    k: number,
    gated = false,
  ): readonly Value[] | undefined => {
    if (!isDenseDecoder(d)) {
      const joint = jointMatrix(matrices, leaf, { columns, k, gated });
      return joint && fragments(l, joint, PAIRS);
    }
    const numbers = matrices.map(({ codes }) => leaf(codes));
    return numbers.every((n) => n !== undefined)
      ? numbers.map((n, i) => l.contiguous(rowsIn(n, matrices[i].rows), true))
      : undefined;
  };
  const [q, kv] = [heads * headDim, kvHeads * headDim];
  const layers: LayerWeights[] = [];
  for (const layer of d.layers) {
    const qkv = packed([layer.q, layer.k, layer.v], [d.features.gated ? 2 * q : q, kv, kv], hidden);
    const o = packed([layer.o], [hidden], q);
    const gateUp = packed([layer.gate, layer.up], [intermediate, intermediate], hidden, true);
    const down = packed([layer.down], [hidden], intermediate);
    if (!qkv || !o || !gateUp || !down) return undefined;
    layers.push({ qkv, o, gateUp, down });
  }
  const recurrent: NetWeights[] = [];
  for (const layer of d.recurrent?.layers ?? []) {
    const first = [layer.mixed, layer.z, layer.b, layer.a];
    const qkv = packed(first, first.map(rowCount), hidden);
    const o = packed([layer.o], [hidden], q);
    const gateUp = packed([layer.gate, layer.up], [intermediate, intermediate], hidden, true);
    const down = packed([layer.down], [hidden], intermediate);
    if (!qkv || !o || !gateUp || !down) return undefined;
    recurrent.push({ qkv, o, gateUp, down, rates: [] });
  }
  const found = headOf(d);
  const head = found ? packed([found.head], [found.vocabulary], hidden) : [];
  return head && { layers, ...(d.recurrent && { recurrent }), head };
}

const NO_ROOM = "its weights are not stored as arrays of their own, or there is no memory for another layout of them";

/**
 * Norm weights and biases of a layer, as far as it has them, in the order in which the kernels find them in memory. A norm after the
 * feed-forward part is with those of the next layer, which apply it.
 */
export function normsOfLayer({ layers }: Pick<DecoderSpec, "layers">, layer: number): readonly Node[] {
  const { norm, mlpNorm, attentionPostNorm, qNorm, kNorm, qBias, kBias, vBias, oBias, sinks, expertBiases } =
    layers[layer];
  const before = layers[Math.max(layer - 1, 0)].mlpPostNorm; // that of the first layer is not read
  const { router, gate, up, down } = expertBiases ?? {};
  const biases = [qBias, kBias, vBias, oBias, sinks, router, gate, up, down];
  return [before, norm, mlpNorm, attentionPostNorm, qNorm, kNorm, ...biases].filter((node) => node !== undefined);
}

/** Those of a recurrent layer, which come after those of the head. */
export function normsOfNet({ norm, mlpNorm, outputNorm }: RecurrentLayer): readonly Node[] {
  return [norm, mlpNorm, outputNorm];
}

/** Those of the head. Where there is none another norm stands for the last one: batched layers prepare it, though nothing reads that. */
function normsOfHead(d: DecoderSpec): readonly Node[] {
  const last = d.layers[d.layers.length - 1];
  return [last.mlpPostNorm, headOf(d)?.norm ?? last.norm].filter((node) => node !== undefined);
}

/** The arrays that fill the words beside the codes of a matrix: scales twice if codes are symmetric, none if it is dense. */
function scalesBiases(m: Matrix): readonly WeightArray[] {
  return isQuantized(m) ? [m.scales, m.biases ?? m.scales].map((node) => ({ node, rows: m.rows })) : [];
}

/** The arrays of a matrix. */
function all(m: Matrix): readonly WeightArray[] {
  return [{ node: m.codes, rows: m.rows }, ...scalesBiases(m)];
}
