/**
 * Puts the weights of a model that is being loaded on its device or devices. Experts that have no room there go into host memory.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { explain, hostBytesOf, inHostMemory } from "../../array/devices/on_device.ts";
import { LlmError, optionError } from "../error.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import { type Fit, type FitBytes, type FitRoom, fitWeights, hostRoom, layersText } from "./fit.ts";
import { type PlannedPart, planParts } from "./plan.ts";

export { hostBytesOf, inHostMemory };

/** The layers of a device, of a model that is loaded. */
export interface ModelPart {
  /** Name of the device. */
  readonly device: string;
  /** Its first layer. */
  readonly from: number;
  /** The layer after its last one. */
  readonly to: number;
  /** Bytes of its weights. */
  readonly bytes: number;
  /** Those of them that are in host memory. */
  readonly hostBytes: number;
}

/** Options of placing. */
export interface PlaceOptions {
  /** Layers or a share for each device. */
  readonly split?: readonly number[] | undefined;
  /** Most bytes of each device. */
  readonly memoryBytes?: number | undefined;
  /** Most bytes of weights on each device, if someone says so. */
  readonly weightBytes?: number | undefined;
  /** Most bytes of host memory for experts. */
  readonly hostMemoryBytes?: number | undefined;
  /** Tokens of context for which there must be room. */
  readonly context: number;
}

/** Weights that stay in host memory. */
export interface HostWeights {
  readonly tensors: ReadonlySet<mx.Tensor>;
  /** Says which they are, if there are any. */
  readonly note: string | undefined;
}

/**
 * Which weights of a model on the default device stay in host memory. Throws an {@link LlmError} with what it needs, if it has no room even
 * so. `cacheBytes` are those of so many tokens.
 */
export function placeWeights(
  path: string,
  model: LanguageModel,
  { all, cacheBytes }: { readonly all: readonly mx.Tensor[]; readonly cacheBytes: number },
  options: PlaceOptions,
): HostWeights {
  const { name, room } = roomOf(undefined, options);
  const experts = decodingModel(model).sections.experts.map(bytesOf);
  const others = bytesOf(all) - experts.reduce((sum, bytes) => sum + bytes, 0);
  const bytes: FitBytes = { experts, others, cache: cacheBytes };
  const placed: Placed = { name, bytes, room, fit: fitWeights(bytes, room) };
  if (placed.fit.lacks === "limit") throw overLimit(path, placed);
  if (placed.fit.lacks) throw noRoom(path, placed, options.context);
  return hostWeights(path, model, [placed], bytesOf(all));
}

/** What a device has of a model, and why that may not be. */
interface Placed {
  readonly name: string;
  readonly bytes: FitBytes;
  readonly room: FitRoom;
  readonly fit: Fit;
}

/** What a device has room for. On the CPU, whose memory is that of the host, there is nothing to limit. */
function roomOf(
  device: string | undefined,
  { memoryBytes = Infinity, weightBytes, hostMemoryBytes = Infinity }: PlaceOptions,
): { readonly name: string; readonly room: FitRoom } {
  const { name, available, hostAvailable, hostTotal } = mx.deviceMemory(device);
  const host = hostTotal > 0 ? Math.min(hostAvailable, hostMemoryBytes) : undefined;
  const limit = mx.deviceInfo(name).type === "wasm" ? undefined : weightBytes;
  return { name, room: { device: Math.max(0, Math.min(available, memoryBytes)), host, weightBytes: limit } };
}

function hostWeights(path: string, model: LanguageModel, placed: readonly Placed[], all: number): HostWeights {
  const { experts } = decodingModel(model).sections;
  const layers = placed.flatMap(({ fit }) => fit.hostLayers);
  const bytes = placed.reduce((sum, { fit }) => sum + fit.hostBytes, 0);
  const tensors = new Set(layers.flatMap((layer) => experts[layer]));
  if (layers.length === 0) return { tensors, note: undefined };
  const what = `the experts of ${layersText(layers)} stay in host memory, ${bytesText(bytes)} of ${bytesText(all)}`;
  explain(`${path}: ${what}`);
  const isSlower = placed.some(({ fit, room }) => fit.hostLayers.length > 0 && room.host !== undefined);
  return { tensors, note: isSlower ? `${path}: ${what}; tokens take longer for that` : undefined };
}

/** Throws an {@link LlmError} unless there are names. */
export function checkDeviceNames(names: readonly string[]): void {
  const isList = Array.isArray(names) && names.length > 0 && names.every((name) => typeof name === "string");
  if (!isList) throw optionError("devices", names, "a list of names of devices");
}

/** The devices of names, each once. Throws an {@link LlmError} if `split` does not fit them. */
export function checkDevices(names: readonly string[], split: readonly number[] | undefined): readonly string[] {
  const devices = [...new Set(names.map((name) => mx.withDevice(name, mx.defaultDevice)))];
  const isSplit = (list: readonly number[]): boolean =>
    Array.isArray(list) && list.length === names.length && list.every((share) => Number.isFinite(share) && share > 0);
  if (split !== undefined && !isSplit(split)) {
    throw optionError("split", split, `${names.length} positive numbers, one for each device`);
  }
  if (split !== undefined && devices.length < names.length) {
    throw new LlmError("option", "split takes devices that differ");
  }
  return devices;
}

/**
 * Divides the layers among devices, before the weights are read, and says which weights stay in host memory. Throws an {@link LlmError} that
 * names what each device needs and has free, if a part does not fit.
 */
export function placeModel(
  path: string,
  model: LanguageModel,
  devices: readonly string[],
  options: PlaceOptions,
): HostWeights {
  const { split, context } = options;
  const decoding = decodingModel(model);
  const { first, layers, experts, last, sharesWith } = decoding.sections;
  const caches = mx.withDevice(devices.at(-1), () => model.makeCache()).byteLengths(context);
  const rooms = devices.map((name) => roomOf(name, options));
  const free = rooms.map(({ name, room }) => ({ name, free: room.device }));
  const sizes = {
    first: bytesOf(first),
    layers: layers.map((tensors, layer) => bytesOf(tensors) + (caches[layer] ?? 0)),
    last: bytesOf(last),
    sharesWith,
  };
  const parts = planParts(sizes, free, split);
  const placed = parts.map(({ name, from, to, bytes }, i): Placed => {
    const isOwn = (layer: number): boolean => layer >= from && layer < to;
    const own = experts.map((tensors, layer) => isOwn(layer) ? bytesOf(tensors) : 0);
    const cache = caches.reduce((sum, bytes, layer) => isOwn(layer) ? sum + bytes : sum, 0);
    const others = own.reduce((left, bytes) => left - bytes, bytes - cache);
    const part = { experts: own, others, cache };
    return { name, bytes: part, room: rooms[i].room, fit: fitWeights(part, rooms[i].room) };
  });
  const limited = placed.find(({ fit }) => fit.lacks === "limit");
  if (limited) throw overLimit(path, limited);
  const lacking = placed.filter(({ fit }) => fit.lacks);
  if (lacking.length === 0) lacking.push(...lackingTogether(placed));
  if (lacking.length > 0) throw tooLarge(path, parts, lacking, context);
  for (const part of parts) explain(`${path}: ${describe(part)}`);
  const weights = hostWeights(path, model, placed, bytesOf([...new Set([first, layers.flat(), last].flat())]));
  decoding.place(parts.flatMap(({ name, from, to }) => Array<string>(to - from).fill(name)));
  return weights;
}

/** The device of each array of a model; undefined if all are on one. */
export function deviceOfTensors(model: LanguageModel): ReadonlyMap<mx.Tensor, string> | undefined {
  const { placement, sections: { first, layers, last } } = decodingModel(model);
  return placement && new Map([
    ...layers.flatMap((tensors, layer) => tensors.map((tensor) => [tensor, placement[layer]] as const)),
    ...first.map((tensor) => [tensor, placement[0]] as const),
    ...last.map((tensor) => [tensor, placement.at(-1)!] as const),
  ]);
}

/** The parts of a model, with the bytes of its weights. */
export function partsOf(model: LanguageModel): readonly ModelPart[] {
  const { placement, sections: { first, layers, last } } = decodingModel(model);
  if (!placement) return [];
  return [...new Set(placement)].map((device) => {
    const [from, to] = [placement.indexOf(device), placement.lastIndexOf(device) + 1];
    const tensors = new Set(layers.slice(from, to).flat());
    const ends = [...(from === 0 ? first : []), ...(to === layers.length ? last : [])];
    const own = [...tensors, ...ends];
    return { device, from, to, bytes: bytesOf(own), hostBytes: hostBytesOf(own) };
  });
}

function bytesOf(tensors: readonly mx.Tensor[]): number {
  return tensors.reduce((sum, { nbytes }) => sum + nbytes, 0);
}

/** Bytes in words. */
export function bytesText(bytes: number): string {
  const [unit, size] = UNITS.find(([, size]) => bytes >= size) ?? ["bytes", 1];
  return `${size === 1 ? bytes : (bytes / size).toFixed(2)} ${unit}`;
}

const UNITS = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const;

/** Devices whose parts have room each, but not together: the memory of the host is the same for all. */
function lackingTogether(placed: readonly Placed[]): readonly Placed[] {
  const there = placed.filter(({ fit, room }) => fit.hostBytes > 0 && room.host !== undefined);
  const hostBytes = there.reduce((sum, { fit }) => sum + fit.hostBytes, 0);
  const host = Math.max(0, ...there.map(({ room }) => room.host!));
  if (hostBytes <= hostRoom(host)) return [];
  const hostLayers = there.flatMap(({ fit }) => fit.hostLayers);
  const name = there.map(({ name }) => name).join(" and ");
  return [{ ...there[0], name, room: { ...there[0].room, host }, fit: { hostLayers, hostBytes, lacks: "host" } }];
}

/** What a device lacks. */
function lackText({ name, bytes: { others, cache }, room: { device, host }, fit }: Placed): string {
  if (fit.lacks === "host") {
    return `the experts of ${layersText(fit.hostLayers)} must stay in host memory, ${
      bytesText(fit.hostBytes)
    }, and they may take ${bytesText(hostRoom(host!))} of the ${bytesText(host!)} that ${name} has free there`;
  }
  const least = fit.hostBytes > 0 && host !== undefined
    ? ` for ${bytesText(others + cache)} that can be nowhere else`
    : "";
  return `${name} has only ${bytesText(device)} free${least}`;
}

/** What a caller can do, before "take a smaller model": another limit, if they gave one. */
function limitAdvice(
  { bytes: { others, cache }, room: { device, host, weightBytes }, fit: { lacks } }: Placed,
): string {
  if (weightBytes === undefined || weightBytes === Infinity) return "";
  if (lacks === "host") return "allow more weightBytes, or ";
  return host !== undefined && others + cache <= device ? "allow fewer weightBytes, or " : "";
}

function describe({ name, from, to, bytes, free }: PlannedPart): string {
  const layers = to - from === 1 ? `layer ${from}` : `layers ${from} to ${to - 1}`;
  return `${layers} on ${name}: ${bytesText(bytes)} of ${bytesText(free)} free`;
}

function tooLarge(
  path: string,
  parts: readonly PlannedPart[],
  lacking: readonly Placed[],
  context: number,
): LlmError {
  const all = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return new LlmError(
    "memory",
    `${path} needs ${bytesText(all)} with ${context} tokens of context. Its parts do not fit: ${
      parts.map(describe).join(", ")
    }. What lacks: ${lacking.map(lackText).join("; ")}: ${
      limitAdvice(lacking[0])
    }take a smaller or more strongly quantized model, another split, or more devices`,
  );
}

/** The error of weights that are no experts, which are more than the caller wants on the device. */
function overLimit(path: string, { name, bytes: { others }, room: { weightBytes = 0 } }: Placed): LlmError {
  return new LlmError(
    "option",
    `${path} has ${
      bytesText(others)
    } of weights for ${name} that are no experts, and weightBytes (--weight-bytes) allows ${
      bytesText(weightBytes)
    }: only experts may stay in host memory. Allow as much, or take a smaller model`,
  );
}

/** The error of a model that has no room on a device. */
function noRoom(path: string, placed: Placed, context: number): LlmError {
  const { experts, others, cache } = placed.bytes;
  const ofExperts = experts.reduce((sum, bytes) => sum + bytes, 0);
  const weights = others + ofExperts;
  return new LlmError(
    "memory",
    `${path} needs ${bytesText(weights + cache)} (${bytesText(weights)} of weights, ${
      ofExperts > 0 ? `${bytesText(ofExperts)} of them of experts, ` : ""
    }${bytesText(cache)} for ${context} tokens of context), but ${lackText(placed)}: ${
      limitAdvice(placed)
    }take a smaller or more strongly quantized model, or another device`,
  );
}
