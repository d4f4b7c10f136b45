/**
 * The dispatches of a recurrent layer before its feed-forward part, with barriers: the products, the delta rule and the output projection of
 * shaders/decode_gemv/recurrent.comp. `emit_gemv.ts` has the layers with attention, and the feed-forward parts of both. `emit_hybrid.ts` has
 * all of them in one dispatch.
 *
 * @module
 */

import { float32Bits } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { decodePush, type Emission } from "./emission.ts";
import { productFormatWord } from "./formats.ts";
import { THREADS } from "./gemv_products.ts";
import { HEAD_ROWS, type RecurrentLayer, type RecurrentPart } from "./recurrent_layer.ts";
import type { Value } from "../plan/value.ts";
import { normsOfNet } from "./prepared_weights.ts";
import type { Matrix } from "../plan/pattern.ts";

/** The phases, by the bits of those of a layer with attention, and their workgroups. */
const PHASES = { project: 1, update: 2, o: 8 } as const;

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
  } as const satisfies Record<keyof typeof PHASES, readonly (Value | undefined)[]>;
  const workgroups = {
    project: e.workgroups,
    update: net.valueHeads * net.valueDim / HEAD_ROWS,
    o: e.workgroups,
  };
  for (const phase of ["project", "update", "o"] as const) {
    l.emit("decode_gemv_recurrent", [state, ...buffers[phase], ...slot], {
      threads: THREADS,
      spec: { ...spec, PHASES: PHASES[phase] },
      push,
      workgroups: workgroups[phase],
    });
  }
}
