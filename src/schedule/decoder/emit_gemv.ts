/**
 * The layers of a decoder of one token where workgroups make whole rows, as shaders/decode_gemv/gemv.glsl says: for shapes whose weights
 * take long to read. All layers are one dispatch whose workgroups wait for each other, or each phase of a layer is a dispatch. Both are the
 * same code and give the same bits. `emit_decode.ts` has the kernels that open and end a token.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import {
  type Caches,
  decodePush,
  type Emission,
  layerPush,
  normsOf,
  runsOfFormats,
  sizeConstants,
  specOf,
  SPIN_LIMIT,
  tableOfPages,
  workgroupsOf,
} from "./emission.ts";
import { capacityOf } from "./kv_place.ts";
import {
  type DecoderFormats,
  hasSmallFloatProducts,
  isDenseDecoder,
  type LayerFormats,
  layerFormatWord,
  routerFormatWord,
} from "./formats.ts";
import {
  type DecoderFeatures,
  type DecoderLayer,
  type DecoderSizes,
  type DecoderSpec,
  type ExpertFeatures,
  expertSizeOf,
  hasPlainNorms,
  LANES,
  needsGemv,
  type NormFeatures,
  OTHER_NORMS,
  sequencesOf,
} from "./spec.ts";
import {
  emitHybridLayers,
  emitRecurrent,
  hybridCanPersist,
  isHybrid,
  normsOfRecurrent,
  orderedLayers,
} from "./emit_hybrid.ts";
import {
  type GemvShape,
  MULTIPLE,
  productsOf,
  ratesBytes,
  runsOf,
  sumsOfTeam,
  TEAMS,
  THREADS,
} from "./gemv_products.ts";
import type { LayerWeights } from "./prepared_weights.ts";
import { netRequirements } from "./recurrent_layer.ts";
import { gemvState } from "./states.ts";
import { options } from "../plan/options.ts";
import { firstReason, type Requirement } from "../plan/requirements.ts";
import type { Matrix } from "../plan/pattern.ts";
import { rowsIn, type Value } from "../plan/value.ts";
import { tuningOf } from "../tuning/choose.ts";
import type { PerLaunchMode } from "../tuning/tuning.ts";

/** Positions of a round of attention, of one position to a thread. */
const TILE = 64;
/**
 * Positions of a thread in rounds over many, each of which waits for the cache. A thread has registers for those of few query heads to a key
 * head and a cache of 16 bits.
 */
const LONG_UNROLL = 2;
const FEW_HEADS = 4;
/** Features of their heads at most. */
const LONG_DIM = 128;
/** Groups of features whose parts of a score are added up, as shaders/decode_gemv/gemv.glsl has them. */
const FEATURE_GROUPS = 8;
/** Query heads to a key head. */
const MAX_HEADS = 8;
/** Subgroups that the kernels exchange values in at least. */
const MIN_SUBGROUP = 4;
/** Bytes of a layer in the table of addresses in the kernel of all layers. */
const TABLE_BYTES = 14 * 8;
/** Those of its router, of the expert of all tokens, and of what hybrids have besides. */
const ROUTER_BYTES = 2 * 8;
const SHARED_EXPERT_BYTES = 4 * 8;
const HYBRID_BYTES = 5 * 8;
/** Bytes of a stack of matrices, which has offsets of 32 bits. */
const MAX_STACK_BYTES = 2 ** 32;
/** Bits of the phases, in the order in which a layer has them. */
const PHASES = { qkv: 1, attention: 2, merge: 4, o: 8, router: 64, gateUp: 16, down: 32 } as const;
type GemvPhase = keyof typeof PHASES;
const ALL_PHASES = 127;

function subgroupOf({ limits }: Backend): number {
  return Math.min(LANES, limits.subgroup);
}

/** Features of heads whose query heads to a key head one workgroup attends with. */
const SHORT_DIM = 128;

/** Groups of query heads that a workgroup of attention has at once, as HEAD_SPLIT of shaders/decode_gemv/gemv.glsl cuts them. */
function groupsOf({ heads, kvHeads, headDim }: DecoderSizes): number {
  const each = heads / kvHeads;
  if (!(headDim > SHORT_DIM)) return kvHeads;
  return kvHeads * (each % 4 === 0 ? each / 2 : each % 2 === 0 ? 2 : 1);
}

/** Workgroups of a sequence. */
function gridOf(backend: Backend): number {
  return tuningOf(backend).decode.gemvWorkgroups;
}

/** Bytes of shared memory in which experts are chosen: scores, keys of 16 experts at a time, and what was chosen. */
function choiceBytes({ count, chosen }: ExpertFeatures): number {
  return 4 * count + 4 * 16 * Math.ceil(count / 16) + 8 * chosen;
}

/** The same of decoders without experts. */
const NO_CHOICE_BYTES = 4 + 16 + 8;

/** Parts of the features that down multiplies, each of which is in shared memory at once. */
const DOWN_PARTS = [1, 2, 3, 4] as const;

/** A shape whose layers the gemv kernels are to serve, and how they are cut. */
type CutShape = GemvShape & Pick<DecoderSpec, "recurrent"> & {
  readonly layers: DecoderFormats;
  readonly downParts?: number;
  readonly unroll?: number;
};

/** Bytes of shared memory of the kernel of so many layers, or, of none, of a phase. */
function sharedBytes(backend: Backend, shape: CutShape, layers: number): number {
  const { sizes: s, features: { experts }, layers: formats, downParts = 1, unroll = 1 } = shape;
  const subgroup = subgroupOf(backend);
  const grid = gridOf(backend);
  const heads = s.heads / groupsOf(s);
  const chunks = Math.max(s.hidden, s.intermediate / downParts, s.heads * s.headDim) / 32;
  const tile = TILE * unroll;
  const own = (heads + 2) * s.headDim;
  const vector = 4 * Math.max(16 * chunks, (FEATURE_GROUPS + 1) * heads * tile + own) + 8 * chunks;
  const { DOWN, ...others } = productsOf(shape, grid);
  const products = Object.entries({ ...others, DOWN: { ...DOWN, depth: DOWN.depth / downParts } });
  const sums = [...formats, ...shape.recurrent?.layers ?? []].flatMap(({ formats }) => {
    const runs = runsOf(shape, formats, grid);
    return products.map(([name, { rows, depth }]) => sumsOfTeam(rows, depth, runs[name as keyof typeof runs]));
  });
  const left = 4 * TEAMS * Math.max(...sums) * Math.ceil(16 / subgroup);
  const exchange = subgroup < LANES ? 4 * THREADS : 4;
  const squares = 4 * THREADS / subgroup;
  const choice = experts ? choiceBytes(experts) : NO_CHOICE_BYTES;
  const row = TABLE_BYTES + (isHybrid(shape) ? HYBRID_BYTES : 0) + (experts ? ROUTER_BYTES : 0) +
    (experts?.shared ? SHARED_EXPERT_BYTES : 0);
  return vector + left + ratesBytes(shape, grid) + 8 * heads * tile / subgroup + exchange + squares + choice +
    (layers > 0 ? layers * row + 16 : 0);
}

/** The fewest parts for which there is room, as a kernel of all layers has it; 1 if there is none for any. */
function downPartsOf(backend: Backend, shape: CutShape): number {
  const { sizes: { intermediate }, features: { experts }, layers, recurrent } = shape;
  if (experts) return 1;
  const count = layers.length + (recurrent?.layers.length ?? 0);
  const fits = (downParts: number): boolean =>
    intermediate % (downParts * MULTIPLE) === 0 &&
    sharedBytes(backend, { ...shape, downParts }, count) <= backend.limits.sharedBytes;
  return DOWN_PARTS.find(fits) ?? 1;
}

/** Why a decoder's layers take split_k kernels; undefined if the gemv kernels serve them better in a launch mode. */
export function gemvUnsupportedReason(
  backend: Backend,
  { sizes: s, features, layers, recurrent }: Pick<DecoderSpec, "sizes" | "recurrent"> & {
    readonly features: NormFeatures & Pick<DecoderFeatures, "experts" | "gated">;
    readonly layers: DecoderFormats;
  },
  mode: keyof PerLaunchMode,
): string | undefined {
  const [q, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim];
  const { maxThreads, sharedBytes: most } = backend.limits;
  const [subgroup, grid] = [subgroupOf(backend), gridOf(backend)];
  const shape = { sizes: s, features, recurrent, layers };
  const bytes = sharedBytes(
    backend,
    { ...shape, downParts: downPartsOf(backend, shape) },
    mode === "persistent" ? layers.length + (recurrent?.layers.length ?? 0) : 0,
  );
  const size = expertSizeOf(s, features);
  const shared = [s.intermediate, q, q + 2 * kv, ...(features.experts ? [] : [s.hidden])];
  const dividing = shared.every((n) => n % MULTIPLE === 0);
  return firstReason([
    [options.gemv !== "off", "gemv kernels are switched off"],
    [hasPlainNorms(features), `there are ${OTHER_NORMS}`],
    [
      options.gemv === "on" || isDenseDecoder({ layers }) || needsGemv({ features, recurrent }) ||
      hasSmallFloatProducts({ layers }) ||
      splitFeatures(s, grid) >= tuningOf(backend).decode.gemvMinHidden[mode],
      `${s.hidden} hidden features are faster with split_k kernels of ${workgroupsOf(s)} workgroups`,
    ],
    [backend.has("decode_gemv_phase"), `${backend.name} has no gemv kernels`],
    [maxThreads >= THREADS, `workgroups have at most ${maxThreads} threads, ${THREADS} are needed for gemv kernels`],
    [subgroup >= MIN_SUBGROUP, `subgroups of ${subgroup} are less than ${MIN_SUBGROUP}`],
    [dividing, `sizes are no multiples of ${MULTIPLE}`],
    ...expertRequirements(features, grid, s.hidden * size * Math.max(...layers.map(bitsOfExperts)) / 8),
    [[64, 128, 256].includes(s.headDim), `heads have ${s.headDim} features, not 64, 128 or 256`],
    ...(recurrent ? netRequirements(recurrent, q, grid) : []),
    [s.heads / s.kvHeads <= MAX_HEADS, `${s.heads / s.kvHeads} heads to a key head are more than ${MAX_HEADS}`],
    [grid / 2 % groupsOf(s) === 0, `${groupsOf(s)} groups of heads do not divide ${grid / 2} workgroups`],
    [
      bytes <= most,
      `workgroups have ${most} bytes, ${bytes} are needed for gemv kernels`,
    ],
  ]);
}

/**
 * The hidden features at which split_k kernels of `grid` workgroups would take as long. They have a workgroup for 8 features of keys, so a
 * model of few key heads leaves multiprocessors without work: Qwen2.5-0.5B has 16 workgroups.
 */
function splitFeatures(s: DecoderSizes, grid: number): number {
  return s.hidden * Math.max(1, grid / workgroupsOf(s));
}

/** Bits of a weight of the experts of a layer. */
function bitsOfExperts({ formats: { gateUp, down } }: DecoderFormats[number]): number {
  return Math.max(gateUp.bits, down.bits);
}

/** What layers have beside matrices and norms, as shaders/decode_gemv/extras.glsl has it. */
function extrasOf({ outputBias, sinks, experts }: DecoderFeatures): number {
  return Number(outputBias ?? false) | Number(sinks ?? false) << 1 | Number(experts?.biases ?? false) << 2;
}

/** Requirements of experts, whose matrices have so many bytes. */
function expertRequirements(
  { experts }: Pick<DecoderFeatures, "experts">,
  grid: number,
  bytes: number,
): readonly Requirement[] {
  if (!experts) return [];
  const { count, shared } = experts;
  return [
    [!shared || count < THREADS, `there is no room for the score of an expert beside those of ${count}`],
    [count <= THREADS, `${count} experts are more than ${THREADS}`],
    [count <= grid || count % grid === 0, `${grid} workgroups do not share ${count} experts evenly`],
    [count * bytes < MAX_STACK_BYTES, "the matrices of experts have more than 4 GB together"],
  ];
}

/** Where the state of one token has its parts, and its bytes. */
export function gemvStateOf(sizes: DecoderSizes): ReturnType<typeof gemvState> {
  return gemvState(sizeConstants(sizes));
}

/** How the positions of a cache are walked: by how many workgroups for a key/value head, and how many of a thread at once. */
export function gemvWalkOf(
  backend: Backend,
  { sizes, features, layers, recurrent }: DecoderSpec,
  capacity: number,
): { readonly parts: number; readonly unroll: number } {
  const all = gridOf(backend) / groupsOf(sizes);
  const shape = { sizes, features, recurrent, layers };
  const cut = (): CutShape => ({ ...shape, downParts: downPartsOf(backend, shape), unroll: LONG_UNROLL });
  const long = capacity > all * TILE && sizes.heads / sizes.kvHeads <= FEW_HEADS && sizes.headDim <= LONG_DIM &&
    layers[0].keys.dtype.bytes < 4 &&
    sharedBytes(backend, cut(), layers.length + (recurrent?.layers.length ?? 0)) <= backend.limits.sharedBytes;
  return { parts: capacity <= tuningOf(backend).decode.gemvFewPositions ? 2 : all, unroll: long ? LONG_UNROLL : 1 };
}

/** Whether one dispatch for all layers, which is faster, can tell a token's words from those of the one before. */
export function gemvCanPersist(decoder: DecoderSpec): boolean {
  if (isHybrid(decoder)) return hybridCanPersist(decoder);
  return decoder.layers.length > 1; // words of the only layer look alike for every token
}

/** Emits all layers over their caches. */
export function emitGemvLayers(emission: Emission, caches: Caches): void {
  const { l, ready, mode, value, state, status } = emission;
  const pages = tableOfPages(emission);
  const { decoder: d, layers: prepared, norms } = ready;
  const grid = gridOf(l.backend);
  const { parts, unroll } = gemvWalkOf(l.backend, d, capacityOf(d.cache));
  const { experts, gated = false } = d.features;
  const common = {
    ...specOf(d, l.backend),
    GATED: Number(gated),
    SHARED: Number(experts?.shared ?? false),
    COPIES: 1,
    UNROLL: unroll,
    ROUNDS: 1,
    GRID: grid,
    QKV_MOST: productsOf(d, grid).QKV.rows,
    PARTS: parts,
    EXPERTS: experts?.count ?? 0,
    CHOSEN: experts?.chosen ?? 1,
    SHARES_ALL: Number(experts?.among === "all"),
    EXTRAS: extrasOf(d.features),
    DOWN_PARTS: downPartsOf(l.backend, d),
  };
  const constants = (formats: LayerFormats): Readonly<Record<string, number>> => {
    const runs = runsOf(d, formats, grid);
    return {
      ...common,
      FORMATS: layerFormatWord(formats),
      ROUTER_FORMAT: routerFormatWord(formats),
      QKV_RUN: runs.QKV,
      O_RUN: runs.O,
      ROUTER_RUN: runs.ROUTER,
      GATE_UP_RUN: runs.GATE_UP,
      DOWN_RUN: runs.DOWN,
    };
  };
  const push = decodePush(d);
  // What is not there gets an address that no kernel reads: a router, and scales of dense matrices.
  const product = (matrices: readonly (Matrix | undefined)[], [scalesBiases = norms]: readonly Value[] = []) => [
    ...matrices.map((m) => m ? l.contiguous(rowsIn(value(m.codes), m.rows), true) : norms),
    scalesBiases,
  ];
  const partOf = (
    layer: Pick<DecoderLayer, "router" | "gate" | "up" | "down" | "shared">,
    { router, gateUp, down }: LayerWeights,
  ) => ({
    router: product([layer.router], router),
    gateUp: product([layer.gate, layer.up], gateUp),
    down: product([layer.down], down),
    shared: layer.shared && product([layer.shared.router, layer.shared.gate, layer.shared.up, layer.shared.down]),
  });
  const rows = d.layers.map((layer, i) => ({
    norms: normsOf(norms, d, i),
    cache: [caches[i].keys, caches[i].values],
    qkv: product([layer.q, layer.k, layer.v], prepared[i].qkv),
    o: product([layer.o], prepared[i].o),
    ...partOf(layer, prepared[i]),
  }));
  const phases = (Object.keys(PHASES) as GemvPhase[]).filter((phase) =>
    (phase !== "merge" || parts > 2) && (phase !== "router" || experts !== undefined)
  );
  if (mode === "barriers") {
    const [none, noCache] = [undefined, [undefined, undefined]];
    const gridOfPhase = (phase: GemvPhase): number => {
      if (phase === "attention") return groupsOf(d.sizes) * parts;
      return phase === "router" && experts?.shared ? grid + 1 : grid; // one for the score of the expert of all tokens
    };
    const emitPhase = (
      phase: GemvPhase,
      buffers: readonly (Value | undefined)[],
      layer: number,
      spec: Readonly<Record<string, number>>,
    ): void =>
      l.emit("decode_gemv_phase", [state, ...buffers, phase === "attention" ? pages : none], {
        threads: THREADS,
        spec: { ...spec, PHASES: PHASES[phase] },
        push: { ...push, ...layerPush(d, layer) },
        workgroups: [gridOfPhase(phase), sequencesOf(d), 1],
      });
    const partPhases = (norms: Value, { router, gateUp, down, shared = [] }: ReturnType<typeof partOf>) => ({
      router: [norms, router[0], shared[0], none, router[1], ...noCache],
      gateUp: [norms, gateUp[0], gateUp[1], shared[1], gateUp[2], shared[2], none],
      down: [norms, down[0], shared[3], none, down[1], ...noCache],
    });
    const emitRecurrentBefore = (place: number): void =>
      d.recurrent?.layers.forEach((layer, i) => {
        if (layer.before !== place) return;
        const spec = constants(layer.formats);
        emitRecurrent(emission, i, {
          spec,
          workgroups: grid,
          product,
          state: ({ parameter }) => value(parameter),
        });
        const norms = normsOfRecurrent(ready.norms, ready, i);
        const buffers = partPhases(norms, partOf(layer, ready.recurrent![i]));
        for (const phase of ["router", "gateUp", "down"] as const) {
          if (phases.includes(phase)) emitPhase(phase, buffers[phase], Math.min(place, rows.length - 1), spec);
        }
      });
    rows.forEach(({ norms, cache, qkv, o, ...part }, layer) => {
      emitRecurrentBefore(layer);
      const buffers: Readonly<Record<GemvPhase, readonly (Value | undefined)[]>> = {
        qkv: [norms, ...qkv, ...noCache],
        attention: [norms, none, none, none, none, ...cache],
        merge: [none, none, none, none, none, ...noCache],
        o: [norms, o[0], none, none, o[1], ...noCache],
        ...partPhases(norms, part),
      };
      for (const phase of phases) emitPhase(phase, buffers[phase], layer, constants(d.layers[layer].formats));
    });
    emitRecurrentBefore(rows.length);
    return;
  }
  if (isHybrid(d)) {
    const unused = (count: number): readonly Value[] => Array.from({ length: count }, () => norms);
    const shared = (values: readonly Value[] | undefined): readonly Value[] => values?.slice(0, 4) ?? unused(4);
    emitHybridLayers(emission, {
      pages,
      workgroups: experts?.shared ? grid + 1 : grid, // one for the score of the expert of all tokens
      push,
      constants,
      phases: { all: ALL_PHASES, each: phases.map((phase) => PHASES[phase]) },
      table: orderedLayers(d).map(({ kind, index, layer }) => {
        if (kind === "attention") {
          const { norms, cache, qkv, o, router, gateUp, down, shared: own } = rows[index];
          return [norms, ...qkv, ...cache, ...o, ...gateUp, ...down, ...unused(5), ...router, ...shared(own)];
        }
        const weights = ready.recurrent![index];
        const part = partOf(layer, weights);
        const [b, a, words] = product([layer.b, layer.a], weights.rates);
        const [mixed, z, mixedWords] = product([layer.mixed, layer.z], weights.qkv);
        const [conv, dtBias, logRate] = [layer.conv, layer.dtBias, layer.logRate].map((node) =>
          l.contiguous(value(node), true)
        );
        return [
          normsOfRecurrent(norms, ready, index),
          ...[mixed, z, b, mixedWords, value(layer.past.parameter), value(layer.matrix.parameter)],
          ...product([layer.o], weights.o),
          ...part.gateUp,
          ...part.down,
          ...[a, words, conv, dtBias, logRate],
          ...part.router,
          ...shared(part.shared),
        ];
      }),
    });
    return;
  }
  const table = rows.map((
    { norms, cache, qkv, o, router, gateUp, down },
  ) => [norms, ...qkv, ...cache, ...o, ...gateUp, ...down, ...router]);
  const run = (layer: number, layers: number, phases: number): void =>
    l.emit("decode_gemv_layers", [state, status, pages], {
      threads: THREADS,
      spec: { ...constants(d.layers[layer].formats), PHASES: phases, LAYERS: rows.length },
      push: { ...push, ...layerPush(d, layer), layers, phases, spin_limit: options.spinLimit ?? SPIN_LIMIT },
      table: table.slice(layer, layer + layers),
      workgroups: grid,
    });
  if (mode === "persistent") {
    for (const { first, count } of runsOfFormats(d.layers)) run(first, count, ALL_PHASES);
    return;
  }
  rows.forEach((_, layer) => phases.forEach((phase) => run(layer, 1, PHASES[phase])));
}
