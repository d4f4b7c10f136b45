/**
 * The layers of a decoder of one token where some are recurrent, heads have gates, or all tokens take an expert. With barriers a recurrent layer has
 * dispatches of its own before its feed-forward part: the products, the delta rule and the output projection of
 * shaders/decode_gemv/recurrent.comp. In one dispatch all layers are those of shaders/decode_gemv/hybrid.comp. `emit_gemv.ts` has the layers with
 * attention, and the feed-forward parts of both.
 *
 * @module
 */

import { float32Bits } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { decodePush, type DecoderPush, type Emission, SPIN_LIMIT } from "./emission.ts";
import { type LayerFormats, layerFormatWord, productFormatWord, routerFormatWord } from "./formats.ts";
import { THREADS } from "./gemv_products.ts";
import { normsOfNet } from "./prepared_weights.ts";
import { HEAD_ROWS, type RecurrentLayer, type RecurrentPart } from "./recurrent_layer.ts";
import { type DecoderFeatures, type DecoderLayer, type DecoderSpec, kindNumbers } from "./spec.ts";
import { options } from "../plan/options.ts";
import type { Matrix } from "../plan/pattern.ts";
import type { Value } from "../plan/value.ts";

/** The phases, by the bits of those of a layer with attention, and their workgroups. */
const NET_PHASES = { project: 1, update: 2, o: 8 } as const;

/** The constants of shaders/decode_gemv/net_sizes.glsl for a layer; those of a decoder without such layers are not used. */
export function netConstants(
  part: Omit<RecurrentPart, "layers"> | undefined,
  layer: RecurrentLayer | undefined,
): Readonly<Record<string, number>> {
  const { valueHeads, keyHeads, keyDim, valueDim, window } = part?.net ??
    { valueHeads: 4, keyHeads: 4, keyDim: 64, valueDim: HEAD_ROWS, window: 2 };
  return {
    VALUE_HEADS: valueHeads,
    KEY_HEADS: keyHeads,
    KEY_DIM: keyDim,
    VALUE_DIM: valueDim,
    WINDOW: window,
    RATES_FORMAT: layer ? productFormatWord(layer.formats.rates) : 0,
    DTYPE_X: part?.dtype.code ?? 0,
    DTYPES_RATE: layer ? layer.logRate.dtype.code | layer.dtBias.dtype.code << 8 : 0,
    UNIT_EPS: float32Bits(part?.unitEps ?? 0),
  };
}

/** What the emission of a layer needs besides the decoder. */
export interface RecurrentEmission {
  /** The constants of a layer with attention of the same formats. */
  readonly spec: Readonly<Record<string, number>>;
  readonly workgroups: number;
  /** The codes of matrices, with words beside them. */
  product(matrices: readonly (Matrix | undefined)[], words: readonly Value[] | undefined): readonly Value[];
  /** The state in the place of the loop's. */
  state(update: RecurrentLayer["past"]): Value;
}

/** The norms of a recurrent layer within those of a whole decoder. */
export function normsOfRecurrent(norms: Value, { decoder: d }: Emission["ready"], index: number): Value {
  const layers = d.recurrent!.layers;
  const sizeOfAll = (nodes: readonly Node[]): number => nodes.reduce((sum, { shape: [size] }) => sum + size, 0);
  // Those of layers with attention and of the head come first.
  const first = norms.shape[0] - (layers.length - index) * sizeOfAll(normsOfNet(layers[index]));
  return { ...norms, offset: norms.offset + first };
}

/** Emits the part of recurrent layer `index` before its feed-forward part. */
export function emitRecurrent(emission: Emission, index: number, e: RecurrentEmission): void {
  const { l, ready, state, value } = emission;
  const { decoder: d, recurrent } = ready;
  const { net, outputEps, layers } = d.recurrent!;
  const layer = layers[index];
  const { qkv, rates, o } = recurrent![index];
  const norms = normsOfRecurrent(ready.norms, ready, index);
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const [past, matrix] = [e.state(layer.past), e.state(layer.matrix)];
  const spec = { ...e.spec, ...netConstants(d.recurrent, layer) };
  const { capacity, eps } = decodePush(d);
  const push = { capacity, layer: layer.before, eps, net_eps: outputEps };
  const slot = [layer.slot?.index, layer.slot?.position].map((node) => node && plain(node));
  const none = undefined;
  const [oCodes, oWords] = e.product([layer.o], o);
  const buffers = {
    project: [
      norms,
      ...e.product([layer.mixed, layer.z], qkv),
      ...e.product([layer.b, layer.a], rates),
      plain(layer.conv),
      past,
    ],
    update: [norms, plain(layer.dtBias), plain(layer.logRate), none, none, none, none, none, matrix],
    o: [none, oCodes, none, oWords, none, none, none, none, none],
  } as const satisfies Record<keyof typeof NET_PHASES, readonly (Value | undefined)[]>;
  const workgroups = {
    project: e.workgroups,
    update: net.valueHeads * net.valueDim / HEAD_ROWS,
    o: e.workgroups,
  };
  for (const phase of ["project", "update", "o"] as const) {
    l.emit("decode_gemv_recurrent", [state, ...buffers[phase], ...slot], {
      threads: THREADS,
      spec: { ...spec, PHASES: NET_PHASES[phase] },
      push,
      workgroups: workgroups[phase],
    });
  }
}

// ---- one dispatch for all layers ------------------------------------------------------------------------------------

/** A layer of a decoder: its number among those of its kind, which are those with attention and the recurrent ones. */
export type OrderedLayer =
  | { readonly kind: "attention"; readonly index: number; readonly layer: DecoderLayer }
  | { readonly kind: "net"; readonly index: number; readonly layer: RecurrentLayer };

/** The layers of both kinds in their order. */
export function orderedLayers(
  { layers, recurrent }: Pick<DecoderSpec, "layers" | "recurrent">,
): readonly OrderedLayer[] {
  const nets = (recurrent?.layers ?? []).map((layer, index) => ({ kind: "net" as const, index, layer }));
  const ordered: OrderedLayer[] = [];
  layers.forEach((layer, index) => {
    ordered.push(...nets.filter(({ layer: { before } }) => before === index), { kind: "attention", index, layer });
  });
  ordered.push(...nets.filter(({ layer: { before } }) => before === layers.length));
  return ordered;
}

/** Whether a decoder has what is known to this kernel of all layers alone. */
export function isHybrid(
  { features: { gated, experts }, recurrent }: {
    readonly features: Pick<DecoderFeatures, "gated" | "experts">;
    readonly recurrent?: unknown;
  },
): boolean {
  return gated === true || experts?.shared === true || recurrent !== undefined;
}

/** Whether all layers of a hybrid may be one dispatch: tags tell words of a layer from those of the one of its kind before. */
export function hybridCanPersist({ layers, recurrent, features }: DecoderSpec): boolean {
  const { outputBias, sinks, experts } = features;
  if (outputBias || sinks || experts?.biases) return false;
  const [{ slot } = { slot: undefined }] = recurrent?.layers ?? [];
  const sameSlot = (recurrent?.layers ?? []).every((layer) =>
    layer.slot?.index === slot?.index && layer.slot?.position === slot?.position
  );
  return sameSlot && layers.length > 1 && recurrent?.layers.length !== 1;
}

/** Layers of a dispatch, neighbours with the same formats: constants of kernels. */
interface Run {
  readonly first: number;
  count: number;
  readonly formats: LayerFormats;
  readonly words: string;
  /** That of b and a, once a recurrent layer is among them. */
  net: RecurrentLayer | undefined;
}

function runsOfLayers(layers: readonly OrderedLayer[]): readonly Run[] {
  const runs: Run[] = [];
  layers.forEach(({ kind, layer }, i) => {
    const words = `${layerFormatWord(layer.formats)} ${routerFormatWord(layer.formats)}`;
    const net = kind === "net" ? layer : undefined;
    const last = runs.at(-1);
    const { rates } = net?.formats ?? {};
    const other = last?.net?.formats.rates;
    if (last?.words === words && (!rates || !other || JSON.stringify(rates) === JSON.stringify(other))) {
      last.count++;
      last.net ??= net;
    } else runs.push({ first: i, count: 1, formats: layer.formats, words, net });
  });
  return runs;
}

/** Bits of layers, 32 to a word. */
export function bitsOf(bits: readonly number[]): readonly number[] {
  const words = [0, 0];
  bits.forEach((bit, i) => words[i >> 5] |= bit << (i & 31));
  return words.map((word) => word >>> 0);
}

/** What the emission of all layers needs. */
export interface HybridEmission {
  readonly pages: Value | undefined;
  readonly workgroups: number;
  readonly push: DecoderPush;
  /** Constants of a layer with such formats. */
  constants(formats: LayerFormats): Readonly<Record<string, number>>;
  /** Phases, a bit each; of one dispatch for each phase of a layer, in their order. */
  readonly phases: { readonly all: number; readonly each: readonly number[] };
  /** Rows of the table of addresses, in the order of layers. */
  readonly table: readonly (readonly Value[])[];
}

/** Emits all layers. */
export function emitHybridLayers({ l, ready, mode, value, state, status }: Emission, e: HybridEmission): void {
  const { decoder: d } = ready;
  const layers = orderedLayers(d);
  const kinds = kindNumbers(d.layers);
  const nets = bitsOf(layers.map(({ kind }) => Number(kind === "net")));
  const ropes = layers.map(({ kind, index }) => kind === "net" ? 0 : kinds[index]);
  const { slot } = d.recurrent?.layers[0] ?? {};
  const slots = [slot?.index, slot?.position].map((node) => node && l.contiguous(value(node), true));
  const emit = (run: Run, first: number, count: number, phases: number): void =>
    l.emit("decode_gemv_hybrid", [state, status, e.pages, ...slots], {
      threads: THREADS,
      spec: {
        ...e.constants(run.formats),
        ...netConstants(d.recurrent, run.net ?? d.recurrent?.layers[0]),
        PHASES: phases,
        LAYERS: layers.length,
      },
      push: {
        ...e.push,
        layer: first,
        ropes: bitsOf(ropes.slice(first, first + count)),
        layers: count,
        phases,
        spin_limit: options.spinLimit ?? SPIN_LIMIT,
        nets,
        net_eps: d.recurrent?.outputEps ?? 0,
      },
      table: e.table.slice(first, first + count),
      workgroups: e.workgroups,
    });
  for (const run of runsOfLayers(layers)) {
    if (mode === "persistent") emit(run, run.first, run.count, e.phases.all);
    else {
      for (let i = run.first; i < run.first + run.count; i++) {
        for (const phase of e.phases.each) emit(run, i, 1, phase);
      }
    }
  }
}
