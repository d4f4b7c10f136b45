/**
 * The layers of several rows where some are recurrent, or heads have gates: shaders/decode_batched/hybrid.comp. A layer has the five phases of
 * `emit_batched.ts`, each of which is a dispatch. The first product of a recurrent layer has other columns. The delta rule takes the place of
 * attention.
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
import { netConstants, normsOfRecurrent, orderedLayers } from "./emit_hybrid.ts";
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
/** Threads of a warp. */
const WARP = 32;

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

/** Bytes of shared memory of a workgroup, as the files of shaders/decode_batched/hybrid.comp declare them. */
function sharedBytes({ sizes: { heads, kvHeads, headDim }, recurrent, chunk }: DecoderSpec, threads: number): number {
  const { valueHeads, keyHeads, keyDim, valueDim } = netOf(recurrent);
  const tokens = chunk?.count ?? 1;
  const sharing = heads / kvHeads;
  const warps = threads / WARP;
  const own = recurrent?.layers.some(({ kept }) => kept) ? 1 : valueHeads / keyHeads;
  const rooms = {
    products: warps * ((warps > 8 ? 4 : 2) * 72 + 1),
    fresh: (3 * sharing + 4 * tokens) * headDim / 4,
    net: tokens * (2 * keyDim + own * valueDim) / 2,
  };
  const pool = 8 * Math.max(...Object.values(rooms));
  const squares = 16 * 16 * (warps / 4 + 1) + (sharing + tokens) * headDim / 4;
  const attention = 2 * 4 * sharing * warps;
  return pool + squares + attention;
}

/**
 * What kernels of so many threads require of such decoders; nothing of others. The device has `shared` bytes for a workgroup, of which the kernels'
 * fragments take some.
 */
export function hybridRequirements(
  d: DecoderSpec,
  { threads, fragmentBytes }: { readonly threads: number; readonly fragmentBytes: number },
  shared: number,
): readonly Requirement[] {
  if (!needsHybrid(d)) return [];
  const { sizes: { heads, headDim }, features, recurrent, layers } = d;
  const { valueHeads, keyDim, valueDim, window } = netOf(recurrent);
  const values = valueHeads * valueDim;
  const bytes = sharedBytes(d, threads) + fragmentBytes;
  const nets: readonly Requirement[] = recurrent
    ? [
      [values === heads * headDim, `recurrent layers have ${values} values, and attention ${heads * headDim} features`],
      [keyDim % BLOCK === 0 && keyDim <= MAX_KEYS, `keys of recurrent layers have ${keyDim} features`],
      [valueDim % BLOCK === 0, `values of recurrent layers have ${valueDim} features`],
      [valueHeads % BLOCK === 0, `${valueHeads} heads of recurrent layers are no multiple of ${BLOCK}`],
      [window <= MAX_WINDOW, `a convolution sees ${window} tokens`],
      [!features.qkvBias, "q, k and v have biases beside recurrent layers"],
    ]
    : [];
  return [
    [!isDenseDecoder({ layers }), "there are no kernels for dense recurrent layers or dense gates of heads"],
    [bytes <= shared, `workgroups need ${bytes} bytes of shared memory, and the device has ${shared}`],
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
  // Where a layer keeps nothing, the state stands in that column: dispatches write it anyway.
  const table = ordered.map(({ kind, index, layer }, i) => {
    const { qkv, o, gateUp, down } = kind === "net" ? recurrent![index] : weights[index];
    const matrices = [qkv, o, gateUp, down].flatMap(([codes, scalesBiases]) => [codes, scalesBiases]);
    if (kind === "attention") {
      const { keys, values } = caches[index];
      const unused = Array.from({ length: 3 }, () => norms[i]); // an address that no kernel reads
      return [norms[i], keys, values, ...matrices, norms[i + 1], ...unused, state];
    }
    const states = [layer.past, layer.matrix].map(({ parameter }) => value(parameter));
    const own = [layer.conv, layer.dtBias, layer.logRate].map(plain);
    return [norms[i], ...states, ...matrices, norms[i + 1], ...own, kept[index] ?? state];
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
          nets: [Number(ordered[layer].kind === "net"), 0],
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

/** The values of the nodes that {@link keptMemory} has, in their shapes. */
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
