/**
 * The key/value cache of a decoder: as large as its config says, and as the device of its weights reads it best.
 *
 * @module
 */

import type { DeviceFacts } from "../../array/devices/device_of.ts";
import { type Dtype, float32 } from "../../array/mod.ts";
import { isBlocked, type KvLayout, plainLayout } from "../../graph/kv_layout.ts";
import type { MatrixFormat } from "../../graph/quantization.ts";
import { attentionOf, type DecoderConfig, type ExpertsConfig } from "../config/decoder.ts";
import { kindOf, layerStates } from "../config/layer_kinds.ts";
import { CODED_FEATURES } from "../../graph/kv_codes.ts";
import { checkOptions } from "../../graph/options.ts";
import { LlmError, optionError } from "../error.ts";
import { KvCache, type KvCacheOptions } from "./cache.ts";
import type { KvHeads } from "./heads.ts";
import { type GroupedLayer, groupsOf } from "./page_groups.ts";
import type { KvPoolSizes } from "./paged.ts";
import type { StateShape } from "./states.ts";

/** What a cache depends on besides the config. */
export interface CachedModel {
  readonly config: DecoderConfig;
  /** The device of the parameters, where the cache is. */
  readonly device: DeviceFacts;
  /** What activations are computed in. */
  readonly dtype: Dtype;
  /** The formats that matrices have; undefined if there are dense ones of other than 16 bits. */
  readonly formats: readonly MatrixFormat[] | undefined;
  /** The device of each layer, where layers are on several. */
  readonly devices?: readonly string[] | undefined;
}

/** Options of `model.makeCache()`. */
export interface CacheOptions {
  /** Sequences that advance together. Default 1. */
  readonly batch?: number;
  /** 8 keeps keys and values in 8 bits: half of the memory of float16. Default: in the dtype of the device's caches. */
  readonly kvBits?: 8;
  /**
   * Positions that a token sees, its own among them: the first four and the last ones, as in mlx-lm. Memory does not grow then. At least 8; in
   * families with a window, layers see what both let them. Default: a token sees all.
   */
  readonly maxKvSize?: number;
}

const CACHE_OPTIONS = { batch: true, kvBits: true, maxKvSize: true } as const satisfies Record<
  keyof CacheOptions,
  true
>;
/** First positions that a cache with `maxKvSize` keeps, as in mlx-lm, and the least that it may be. */
export const RING_KEEP = 4;
const MIN_RING = 2 * RING_KEEP;

/** Throws an {@link LlmError} unless a cache of a model can have the options. */
export function checkCacheOptions(sizes: KvHeadSizes, { batch = 1, kvBits, maxKvSize = MIN_RING }: CacheOptions): void {
  const isFrom = (value: number, least: number): boolean => Number.isSafeInteger(value) && value >= least;
  if (!isFrom(batch, 1)) throw optionError("batch", batch, "a positive integer");
  if (!isFrom(maxKvSize, MIN_RING)) throw optionError("maxKvSize", maxKvSize, `an integer of at least ${MIN_RING}`);
  if (kvBits === undefined) return;
  if (kvBits !== 8) throw optionError("kvBits", kvBits, "8");
  const { layerHeads = [sizes] } = sizes;
  const odd = layerHeads.flatMap(({ headDim, valueDim = headDim }: KvHeads) => [headDim, valueDim])
    .find((size) => size % CODED_FEATURES !== 0);
  if (odd === undefined) return;
  const found = `those of this model have ${odd}`;
  throw new LlmError("option", `kvBits 8 takes heads of a multiple of ${CODED_FEATURES} features; ${found}`);
}

/** What all caches of a model have in common. */
interface CommonFacts {
  readonly heads: KvHeadSizes;
  readonly windows: Pick<KvCacheOptions, "windows">;
  /** The layout that fused steps read, where their layers are fused. It is asked for each time, because it depends on options. */
  layout(): KvLayout | undefined;
  readonly states: readonly StateShape[];
}

/** Looking at all layers takes longer than the rest of a cache, so it is done once for a model. */
const common = new WeakMap<CachedModel, CommonFacts>();

function commonFacts(model: CachedModel): CommonFacts {
  const known = common.get(model);
  if (known) return known;
  const { config } = model;
  const facts = {
    heads: { ...headsOf(config), ...devicesOf(model) },
    windows: windowsOf(config),
    layout: layoutOf(model),
    states: statesOf(model),
  };
  common.set(model, facts);
  return facts;
}

/** An empty cache for sequences of a model. */
export function makeCache(model: CachedModel, options: CacheOptions, keep: number = RING_KEEP): KvCache {
  checkOptions("makeCache", options, CACHE_OPTIONS, (message) => new LlmError("option", message));
  const { config, device, dtype } = model;
  const { heads, windows, layout, states } = commonFacts(model);
  checkCacheOptions(heads, options);
  const { batch = 1, kvBits, maxKvSize } = options;
  const ring = maxKvSize !== undefined && { ring: { keep, last: maxKvSize - keep } };
  return new KvCache({
    ...ring,
    ...(kvBits && { bits: kvBits }),
    ...heads,
    ...windows,
    batch,
    dtype: device.kvDtype(dtype),
    blocks: batch === 1 && !ring ? layout() : undefined,
    states,
    device: device.name,
    limit: config.maxPositionEmbeddings,
    config,
  });
}

/**
 * Sizes of a pool of pages for sequences of a model, but for how many there are. With the config of its draft head, that is one more layer,
 * and the last hidden state of a sequence one more state.
 */
export function poolSizes(model: CachedModel, draft?: DecoderConfig): Omit<KvPoolSizes, "pages"> {
  const { config, device, dtype } = model;
  const { heads: own, layout, states } = commonFacts(model);
  const blocks = layout() ?? plainLayout(config.headDim);
  const heads = draft ? joined(own, headsOf(draft)) : own;
  const groups = groupsOf(groupedLayers(config, heads));
  // Fused steps read one table: where they serve layers with and without windows, all keep their pages.
  // Layers on several devices share no memory.
  const isShared = groups !== undefined && !model.devices &&
    !(isBlocked(blocks, config.headDim) && groups.tables.length > 1);
  return {
    ...heads,
    dtype: device.kvDtype(dtype),
    blocks,
    states: draft ? [...states, { layer: config.layers, shape: [1, config.hiddenSize], dtype }] : states,
    ...(isShared && { groups }),
    ...(draft && { head: { layer: own.layers, state: states.length } }),
  };
}

/** The heads of some layers and of others after them. */
function joined(first: KvHeadSizes, second: KvHeadSizes): KvHeadSizes {
  const layerHeads = [first, second].flatMap(({ layers, heads, headDim, layerHeads }) =>
    layerHeads ?? Array<KvHeads>(layers).fill({ heads, headDim })
  );
  const { heads, headDim } = first;
  const alike = layerHeads.every((layer) =>
    layer.heads === heads && layer.headDim === headDim && layer.valueDim === undefined
  );
  return { layers: layerHeads.length, heads, headDim, ...(!alike && { layerHeads }) };
}

/** What the layers with keys and values of their own need of a pool. */
function groupedLayers(config: DecoderConfig, { layers, heads, headDim, layerHeads }: KvHeadSizes): GroupedLayer[] {
  const { windows = [] } = windowsOf(config);
  return Array.from(
    { length: layers },
    (_, layer) => ({ window: windows[layer], heads: layerHeads?.[layer] ?? { heads, headDim } }),
  );
}

/** Most features of a head that the kernels of attention take. */
const MAX_HEAD_DIM = 256;

/**
 * Whether attention reads the pages of a pool where they are. Then a pass may have many tiles of a long sequence. Otherwise keys and values
 * are copied for each of them.
 */
export function attendsInPages(config: DecoderConfig): boolean {
  const { latent, sinks, scoreCap, layers } = config;
  const isMasked = sinks || scoreCap !== undefined;
  const numbers = Array.from({ length: layers }, (_, layer) => layer);
  return !latent && !isMasked && numbers.every((layer) => attentionOf(config, layer).headDim <= MAX_HEAD_DIM);
}

/** The layers of attention that have keys and values of their own. */
function ownLayers(config: DecoderConfig): number[] {
  const numbers = Array.from({ length: config.layers }, (_, layer) => layer);
  return numbers.filter((layer) =>
    kindOf(config, layer) === "attention" && attentionOf(config, layer).sharesWith === undefined
  );
}

/** Attention of those layers. */
function ownAttentions(config: DecoderConfig): ReturnType<typeof attentionOf>[] {
  return ownLayers(config).map((layer) => attentionOf(config, layer));
}

/** How many positions those layers see, if some do not see all. */
function windowsOf(config: DecoderConfig): Pick<KvCacheOptions, "windows"> {
  const windows = ownAttentions(config).map(({ window }) => window);
  return windows.some((window) => window !== undefined) ? { windows } : {};
}

/** The heads of the layers with keys and values. */
type KvHeadSizes = Pick<KvPoolSizes, "layers" | "heads" | "headDim" | "layerHeads" | "devices">;

/** The devices of those layers, if they are on several. */
function devicesOf({ config, devices }: CachedModel): Pick<KvPoolSizes, "devices"> {
  return devices ? { devices: ownLayers(config).map((layer) => devices[layer]) } : {};
}

/** The layers of attention that have keys and values of their own, and the heads of those. */
function headsOf(config: DecoderConfig): KvHeadSizes {
  const { kvHeads: heads, headDim, latent } = config;
  const own = ownAttentions(config);
  const layers = own.length;
  if (latent) {
    // The vector of all heads as keys, and the rotated features as values, as mlx-lm has them.
    const one: KvHeads = { heads: 1, headDim: latent.rank, valueDim: headDim - latent.plainDim };
    return { layers, heads: 1, headDim: latent.rank, layerHeads: Array<KvHeads>(layers).fill(one) };
  }
  const layerHeads = own.map(({ kvHeads, headDim }): KvHeads => ({ heads: kvHeads, headDim }));
  const alike = layerHeads.every((layer) => layer.heads === heads && layer.headDim === headDim);
  return { layers, heads, headDim, ...(!alike && { layerHeads }) };
}

/** State arrays in the dtype of activations, but for those that are float32 in any case. */
function statesOf({ config, dtype, devices }: CachedModel): StateShape[] {
  return layerStates(config).map(({ layer, shape, isFloat32 }) => ({
    layer,
    shape,
    dtype: isFloat32 ? float32 : dtype,
    ...(devices && { device: devices[layer] }),
  }));
}

/** Fields of layers that fused steps do not compute. */
const UNFUSED = [
  "qkNormWhole",
  "scoreCap",
  "expertsBeside",
  "valueNorm",
  "intermediateSizes",
  "layerInputs",
  "layerScalars",
  "latent",
] as const satisfies readonly (keyof DecoderConfig)[];

/** Fields of experts that they do not compute. */
const UNFUSED_EXPERTS = [
  "sigmoid",
  "layers",
] as const satisfies readonly (keyof ExpertsConfig)[];

/** Different positions and windows of layers that fused steps compute. */
const FUSED_KINDS = 2;

/** Whether fused steps compute the layers of a config: they are of few kinds, and have keys and values of like heads. */
function isFused(config: DecoderConfig): boolean {
  const { layerAttention = [] } = config;
  const kinds = new Set(layerAttention.map(({ window, rope }) => JSON.stringify([window, rope])));
  const biasedPart = config.mlpBias && !config.experts;
  return !UNFUSED.some((name) => config[name]) && !biasedPart && !config.layerKinds?.includes("conv") &&
    config.norms !== "post" && kinds.size <= FUSED_KINDS &&
    !UNFUSED_EXPERTS.some((name) => config.experts?.[name]) && hasLikeExperts(config) &&
    layerAttention.every(({ kvHeads, headDim, joinedKeysValues, sharesWith }) =>
      (kvHeads ?? headDim ?? joinedKeysValues ?? sharesWith) === undefined
    );
}

/** Whether the expert that all tokens take, if there is one, is as large as the others, and counts by a score. */
function hasLikeExperts({ experts }: DecoderConfig): boolean {
  if (experts?.sharedSize === undefined) return true;
  return experts.sharedSize === experts.size && experts.names.shared !== "shared_experts";
}

/** Gives the layout that fused steps read; undefined where none is: of other architectures, or of other weights. */
function layoutOf({ config, device, formats }: CachedModel): () => KvLayout | undefined {
  const { qkNorm, qkvBias, outputBias, outputGate, sinks, headDim, ropeDims = headDim } = config;
  if (formats === undefined || !isFused(config)) return () => undefined;
  const { hiddenSize: hidden, heads, kvHeads, experts } = config;
  const shared = experts?.sharedSize !== undefined;
  const intermediate = experts ? (experts.chosen + Number(shared)) * experts.size : config.intermediateSize;
  const sizes = { hidden, intermediate, heads, kvHeads, headDim };
  const features: Parameters<DeviceFacts["kvLayout"]>[1] = {
    ...(experts && {
      experts: {
        count: experts.count,
        chosen: experts.chosen,
        among: experts.among,
        biases: experts.biases ?? false,
        ...(shared && { shared }),
      },
    }),
    ...(outputGate && { gated: true }),
    headNorm: qkNorm,
    postNorm: config.norms === "both",
    normOffset: config.normOffset ?? 0,
    qkvBias,
    outputBias,
    sinks: sinks ?? false,
    activation: experts ? experts.gate ?? "silu" : config.activation,
    ropeForm: config.ropeTraditional ? "traditional" : "half",
    ropeDims,
  };
  return () => device.kvLayout(sizes, features, formats);
}
