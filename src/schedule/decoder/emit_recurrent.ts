/**
 * The dispatches of a recurrent layer before its feed-forward part: the products, the delta rule and the output projection of
 * shaders/decode_gemv/recurrent.comp. `emit_gemv.ts` has the layers with attention, and the feed-forward parts of both.
 *
 * @module
 */

import { float32, float32Bits } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { decodePush, type Emission } from "./emission.ts";
import { productFormatWord } from "./formats.ts";
import { THREADS } from "./gemv_products.ts";
import { HEAD_ROWS, mixedFeatures, type NetSizes, RATE_GROUPS, type RecurrentLayer } from "./recurrent_layer.ts";
import type { Value } from "../plan/value.ts";
import { normsOfNet } from "./prepared_weights.ts";
import type { Matrix } from "../plan/pattern.ts";

/** The phases, by the bits of those of a layer with attention, and their workgroups. */
const PHASES = { project: 1, update: 2, o: 8 } as const;

/** Numbers of a token that the phases exchange. */
function projectedSize({ valueHeads, valueDim, ...net }: NetSizes): number {
  const values = valueHeads * valueDim;
  return mixedFeatures({ valueHeads, valueDim, ...net }) + values + 2 * valueHeads + values / HEAD_ROWS;
}

/** What the layers of a token exchange between their phases. */
export function projectedOf({ l, ready: { decoder } }: Emission): Value | undefined {
  return decoder.recurrent && l.temporary([projectedSize(decoder.recurrent.net)], float32);
}

/** What the emission of a layer needs besides the decoder. */
export interface RecurrentEmission {
  readonly projected: Value;
  /** `spec` has the constants of a layer with attention, with the runs of this one. */
  readonly spec: Readonly<Record<string, number>>;
  readonly ratesRun: number;
  readonly workgroups: number;
  /** The codes of matrices, with words beside them. */
  product(matrices: readonly (Matrix | undefined)[], words: readonly Value[] | undefined): readonly Value[];
  /** The state in the place of the loop's. */
  state(update: RecurrentLayer["past"]): Value;
}

/** The norms of a recurrent layer within those of a whole decoder. */
export function normsOfRecurrent(norms: Value, { decoder: d }: Emission["ready"], index: number): readonly Value[] {
  const layers = d.recurrent!.layers;
  const sizeOfAll = (nodes: readonly Node[]): number => nodes.reduce((sum, { shape: [size] }) => sum + size, 0);
  const own = normsOfNet(layers[index]);
  // Those of layers with attention and of the head come first.
  const first = norms.shape[0] - (layers.length - index) * sizeOfAll(own);
  return own.map((_, i) => ({ ...norms, offset: norms.offset + first + sizeOfAll(own.slice(0, i)) }));
}

/** Emits the part of recurrent layer `index` before its feed-forward part. */
export function emitRecurrent(emission: Emission, index: number, e: RecurrentEmission): void {
  const { l, ready, state, value } = emission;
  const { decoder: d, recurrent } = ready;
  const { net, dtype, unitEps, outputEps, layers } = d.recurrent!;
  const layer = layers[index];
  const { qkv, rates, o } = recurrent![index];
  const [norms, , outputNorm] = normsOfRecurrent(ready.norms, ready, index);
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const [past, matrix] = [e.state(layer.past), e.state(layer.matrix)];
  const spec = {
    ...e.spec,
    VALUE_HEADS: net.valueHeads,
    KEY_HEADS: net.keyHeads,
    KEY_DIM: net.keyDim,
    VALUE_DIM: net.valueDim,
    WINDOW: net.window,
    RATES_FORMAT: productFormatWord(layer.formats.rates),
    RATES_RUN: e.ratesRun,
    DTYPE_X: dtype.code,
    DTYPES_RATE: layer.logRate.dtype.code | layer.dtBias.dtype.code << 8,
    UNIT_EPS: float32Bits(unitEps),
  };
  const { capacity, eps } = decodePush(d);
  const push = { capacity, layer: layer.before, eps, head_eps: outputEps };
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
    update: [outputNorm, plain(layer.dtBias), plain(layer.logRate), none, none, none, none, none, matrix],
    o: [none, oCodes, none, oWords, none, none, none, none, none],
  } as const satisfies Record<keyof typeof PHASES, readonly (Value | undefined)[]>;
  const workgroups = {
    project: e.workgroups + RATE_GROUPS,
    update: net.valueHeads * net.valueDim / HEAD_ROWS,
    o: e.workgroups,
  };
  for (const phase of ["project", "update", "o"] as const) {
    l.emit("decode_gemv_recurrent", [state, ...buffers[phase], e.projected, ...slot], {
      threads: THREADS,
      spec: { ...spec, PHASES: PHASES[phase] },
      push,
      workgroups: workgroups[phase],
    });
  }
}
