/**
 * The layers of several rows where some are recurrent, or heads have gates: shaders/decode_batched/hybrid.comp. A layer has the five phases of
 * `emit_batched.ts`, each of which is a dispatch. The first product of a recurrent layer has other columns, and the delta rule takes the place of attention.
 *
 * Where drafted tokens are verified, states stay as they are. The kernels leave what recurrent ops read, which replace them later.
 *
 * @module
 */

import type { KernelName } from "../../backend/kernels.ts";
import type { Node } from "../../graph/node.ts";
import { contiguousStrides } from "../../graph/shape.ts";
import { isDenseDecoder } from "./formats.ts";
import { type Caches, type DecoderPush, type Emission, normsOf, tableOfPages } from "./emission.ts";
import { bitsOf, netConstants, normsOfRecurrent, orderedLayers } from "./emit_hybrid.ts";
import type { ReadyDecoder } from "./prepared_weights.ts";
import { mixedFeatures, netColumns, type NetSizes, type RecurrentLayer } from "./recurrent_layer.ts";
import { type DecoderSpec, kindNumbers, tokensOf } from "./spec.ts";
import type { Requirement } from "../plan/requirements.ts";
import type { Value } from "../plan/value.ts";
import { tuningOf } from "../tuning/choose.ts";

/** Phases of a layer, in the order of their bits in decode_batched/hybrid.comp. */
const PHASE_COUNT = 5;
/** Columns of a block of weights, and features of keys that four neighbouring threads load at once. */
const BLOCK = 16;
/** Most features of keys: registers hold a row of a state. */
const MAX_KEYS = 256;
const MAX_WINDOW = 8;
/** Floats of shared memory for q, k and v of all tokens of a head of keys. */
const MAX_FEATURES = 8192;

/** Whether kernels of {@link emitBatchedHybrid} alone know what a decoder has. */
export function needsHybrid({ features: { gated }, recurrent }: Pick<DecoderSpec, "features" | "recurrent">): boolean {
  return gated === true || recurrent !== undefined;
}

/** The sizes of recurrent layers as constants of kernels have them. */
function netOf(recurrent: DecoderSpec["recurrent"]): NetSizes {
  const { VALUE_HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, WINDOW } = netConstants(recurrent, recurrent?.layers[0]);
  return { valueHeads: VALUE_HEADS, keyHeads: KEY_HEADS, keyDim: KEY_DIM, valueDim: VALUE_DIM, window: WINDOW };
}

/** Sizes that the layout of a state depends on, of any decoder, by the names of constants. */
export function hybridSizes(
  d: Pick<DecoderSpec, "features" | "recurrent">,
): Readonly<Record<"GATES" | "NET_COLUMNS", number>> {
  if (!needsHybrid(d)) return { GATES: 0, NET_COLUMNS: 0 };
  return { GATES: Number(d.features.gated ?? false), NET_COLUMNS: netColumns(netOf(d.recurrent)) };
}

/** What the kernels require of such decoders; nothing of others. */
export function hybridRequirements(d: DecoderSpec): readonly Requirement[] {
  if (!needsHybrid(d)) return [];
  const { sizes: { heads, headDim }, recurrent, layers } = d;
  const { valueHeads, keyHeads, keyDim, valueDim, window } = netOf(recurrent);
  const values = valueHeads * valueDim;
  const features = (d.chunk?.count ?? 1) * (2 * keyDim + values / keyHeads);
  const nets: readonly Requirement[] = recurrent
    ? [
      [values === heads * headDim, `recurrent layers have ${values} values, and attention ${heads * headDim} features`],
      [keyDim % BLOCK === 0 && keyDim <= MAX_KEYS, `keys of recurrent layers have ${keyDim} features`],
      [valueDim % BLOCK === 0, `values of recurrent layers have ${valueDim} features`],
      [valueHeads % BLOCK === 0, `${valueHeads} heads of recurrent layers are no multiple of ${BLOCK}`],
      [window <= MAX_WINDOW, `a convolution sees ${window} tokens`],
      [features <= MAX_FEATURES, `${features} features of a head of keys have no room in shared memory`],
    ]
    : [];
  return [
    [!isDenseDecoder({ layers }), "there are no kernels for dense recurrent layers or dense gates of heads"],
    ...nets,
  ];
}

/** The norms of the first layer of a decoder. */
export function firstNorms(ready: ReadyDecoder): Value {
  return normsOfLayers(ready)[0];
}

/** Norms of all layers in their order, and after them those of the head. */
function normsOfLayers(ready: ReadyDecoder): readonly Value[] {
  const { decoder: d, norms } = ready;
  const own = orderedLayers(d).map(({ kind, index }) =>
    kind === "net" ? normsOfRecurrent(norms, ready, index) : normsOf(norms, d, index)
  );
  return [...own, normsOf(norms, d, d.layers.length)];
}

/** What all dispatches of layers have. */
export interface BatchedHybrid {
  readonly kernel: KernelName;
  readonly threads: number;
  readonly spec: Readonly<Record<string, number>>;
  readonly push: DecoderPush;
}

/** Values of nodes that layers leave. */
export type LeftValues = readonly (readonly [Node, Value])[];

/** Emits all layers. Gives what they leave for those who replace states later. */
export function emitBatchedHybrid(
  emission: Emission,
  caches: Caches,
  { kernel, threads, spec, push }: BatchedHybrid,
): LeftValues {
  const { l, ready, value, state } = emission;
  const { decoder: d, layers: weights, recurrent } = ready;
  const ordered = orderedLayers(d);
  const norms = normsOfLayers(ready);
  const nets = d.recurrent?.layers ?? [];
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const kept = nets.map((layer) => layer.kept && keptMemory(emission, layer));
  const table = ordered.map(({ kind, index, layer }, i) => {
    const { qkv, o, gateUp, down } = kind === "net" ? recurrent![index] : weights[index];
    const matrices = [qkv, o, gateUp, down].flatMap(([codes, scalesBiases]) => [codes, scalesBiases]);
    if (kind === "attention") {
      const { keys, values } = caches[index];
      const unused = Array.from({ length: 4 }, () => norms[i]); // an address that no kernel reads
      return [norms[i], keys, values, ...matrices, norms[i + 1], ...unused];
    }
    const states = [layer.past, layer.matrix].map(({ parameter }) => value(parameter));
    const own = [layer.conv, layer.dtBias, layer.logRate].map(plain);
    return [norms[i], ...states, ...matrices, norms[i + 1], ...own, kept[index] ?? norms[i]];
  });
  const kinds = kindNumbers(d.layers);
  const ropes = ordered.map(({ kind, index }) => kind === "net" ? 0 : kinds[index]);
  const { slot } = nets[0] ?? {};
  const slots = [slot?.index, slot?.position].map((node) => node && plain(node));
  const constants = {
    ...spec,
    ...netConstants(d.recurrent, nets[0]),
    GATES: Number(d.features.gated ?? false),
    KEEPS: Number(kept.some((one) => one !== undefined)),
  };
  const kindsOfLayers = bitsOf(ordered.map(({ kind }) => Number(kind === "net")));
  for (let layer = 0; layer < ordered.length; layer++) {
    for (let phase = 0; phase < PHASE_COUNT; phase++) {
      l.emit(kernel, [state, undefined, tableOfPages(emission), ...slots], {
        threads,
        spec: { ...constants, PHASES: 1 << phase },
        push: {
          ...push,
          layer,
          ropes: [ropes[layer], 0],
          layers: 1,
          phases: 1 << phase,
          spin_limit: 0, // it waits for nothing
          nets: kindsOfLayers,
          net_eps: d.recurrent?.outputEps ?? 0,
        },
        table: [table[layer]],
        workgroups: tuningOf(l.backend).decode.batchWorkgroups,
      });
    }
  }
  return nets.flatMap((layer, i) => kept[i] ? keptValues(d, layer, kept[i]) : []);
}

/** Memory for what a layer leaves, as decode_batched/net.glsl divides it. */
function keptMemory({ l, ready: { decoder: d } }: Emission, { past }: RecurrentLayer): Value {
  const { net } = d.recurrent!;
  return l.temporary([2 * tokensOf(d) * (mixedFeatures(net) + net.valueHeads)], past.parameter.dtype);
}

/** What lies there, as the nodes have it. */
function keptValues(d: DecoderSpec, { kept }: RecurrentLayer, memory: Value): LeftValues {
  const { x, q, k, v, rate, step, ops } = kept!;
  const { keyHeads, keyDim, valueHeads } = d.recurrent!.net;
  const mixed = mixedFeatures(d.recurrent!.net);
  const rows = tokensOf(d);
  const at = (node: Node, offset: number, width: number): readonly [Node, Value] => {
    const inner = contiguousStrides(node.shape.slice(2));
    const strides = [node.shape[1] * width, width, ...inner];
    return [node, { ...memory, offset: memory.offset + offset, shape: node.shape, strides }];
  };
  const convolved = rows * mixed;
  const keys = keyHeads * keyDim;
  return [
    at(x, 0, mixed),
    at(q, convolved, mixed),
    at(k, convolved + keys, mixed),
    at(v, convolved + 2 * keys, mixed),
    at(rate, 2 * convolved, valueHeads),
    at(step, 2 * convolved + rows * valueHeads, valueHeads),
    ...ops.map((node): readonly [Node, Value] => [node, { ...memory, shape: node.shape }]), // no value, but an order
  ];
}
