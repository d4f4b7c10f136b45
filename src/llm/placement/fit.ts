/**
 * Which weights a device has room for. Where not all fit, the experts of whole layers stay in host memory, which kernels read over the bus.
 * A token reads few of a layer's experts, so they are the weights that are missed least.
 *
 * @module
 */

/** The bytes of a model, or of a device's part of it. */
export interface FitBytes {
  /** Of the experts of each layer; 0 where it has none. */
  readonly experts: readonly number[];
  /** Of all other weights. */
  readonly others: number;
  /** Of keys, values and states that must have room beside the weights. */
  readonly cache: number;
}

/** What there is room for. */
export interface FitRoom {
  /** Free bytes of the device. */
  readonly device: number;
  /** Free bytes of the host's memory; undefined where that is the device's memory. */
  readonly host: number | undefined;
  /** Most bytes of weights on the device, if someone says so. */
  readonly weightBytes?: number | undefined;
}

/** Where weights are. */
export interface Fit {
  /** The layers whose experts stay in host memory. */
  readonly hostLayers: readonly number[];
  /** Their bytes. */
  readonly hostBytes: number;
  /** What has too little room even so. "limit": weights that are no experts are more than `weightBytes`. */
  readonly lacks?: "device" | "host" | "limit";
}

/**
 * The share of the free memory that weights take where not all fit. The rest of the device's is for keys and values, and for
 * intermediates; that of the host's for other programs. Scales in the order of the decoding kernels are in both: a ninth of the weights with
 * groups of 64. They are made only if twice their bytes are free.
 */
const SHARE = 0.75;

/** Bytes that experts may take of so many free ones of the host's memory. */
export function hostRoom(host: number): number {
  return Math.floor(SHARE * host);
}

/**
 * Where the weights of a model are. All are on the device if they fit, or as `weightBytes` says. Else the experts of the last layers stay in
 * host memory, as few as needed, so that the rest and the cache fit. Without `weightBytes` that is so only if the host has memory of its own.
 */
export function fitWeights({ experts, others, cache }: FitBytes, { device, host, weightBytes }: FitRoom): Fit {
  const all = experts.reduce((sum, bytes) => sum + bytes, others);
  if (weightBytes === undefined && (all + cache <= device || host === undefined)) {
    return { hostLayers: [], hostBytes: 0, ...(all + cache > device && { lacks: "device" }) };
  }
  const limit = weightBytes ?? Math.min(SHARE * device, device - cache);
  const hostLayers: number[] = [];
  let left = all;
  for (let layer = experts.length - 1; layer >= 0 && left > limit; layer--) {
    if (experts[layer] === 0) continue;
    hostLayers.unshift(layer);
    left -= experts[layer];
  }
  const hostBytes = all - left;
  const fit = { hostLayers, hostBytes };
  if (weightBytes !== undefined && left > limit) return { ...fit, lacks: "limit" };
  if ((host === undefined ? all : left) + cache > device) return { ...fit, lacks: "device" };
  return host !== undefined && hostBytes > hostRoom(host) ? { ...fit, lacks: "host" } : fit;
}

/** Layers in words: runs of numbers. */
export function layersText(layers: readonly number[]): string {
  const runs: number[][] = [];
  for (const layer of layers) {
    const last = runs.at(-1);
    if (last && last[1] === layer - 1) last[1] = layer;
    else runs.push([layer, layer]);
  }
  const texts = runs.map(([from, to]) => from === to ? `${from}` : `${from} to ${to}`);
  return `${layers.length === 1 ? "layer" : "layers"} ${texts.join(", ")}`;
}
