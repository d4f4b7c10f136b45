/**
 * All layers of a decoder of one token in one dispatch (shaders/decode_gemv/hybrid.comp). It is for decoders of which some layers are
 * recurrent, heads have gates, or all tokens take an expert. `emit_gemv.ts` has the decoders without these, and all that run with barriers.
 *
 * @module
 */

import type { DecoderPush, Emission } from "./emission.ts";
import { SPIN_LIMIT } from "./emission.ts";
import { type LayerFormats, layerFormatWord, routerFormatWord } from "./formats.ts";
import { netConstants } from "./emit_recurrent.ts";
import { THREADS } from "./gemv_products.ts";
import type { RecurrentLayer } from "./recurrent_layer.ts";
import { type DecoderFeatures, type DecoderLayer, type DecoderSpec, kindNumbers } from "./spec.ts";
import { options } from "../plan/options.ts";
import type { Value } from "../plan/value.ts";

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
