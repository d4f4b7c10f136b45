/**
 * Puts the layers of a model that is being loaded on several devices.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { explain } from "../../array/devices/on_device.ts";
import { LlmError, optionError } from "../error.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";
import { fits, type PlannedPart, planParts } from "./plan.ts";

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
}

/** Options of {@link placeModel}. */
export interface PlaceOptions {
  /** Layers or a share for each device. */
  readonly split?: readonly number[] | undefined;
  /** Most bytes of each device. */
  readonly memoryBytes?: number | undefined;
  /** Tokens of context for which there must be room. */
  readonly context: number;
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
 * Divides the layers among devices, before the weights are read. Throws an {@link LlmError} that names what each device needs and has free,
 * if a part does not fit.
 */
export function placeModel(
  path: string,
  model: LanguageModel,
  devices: readonly string[],
  { split, memoryBytes = Infinity, context }: PlaceOptions,
): void {
  const decoding = decodingModel(model);
  const { first, layers, last, sharesWith } = decoding.sections;
  const caches = mx.withDevice(devices.at(-1), () => model.makeCache()).byteLengths(context);
  const free = devices.map((name) => ({
    name,
    free: Math.max(0, Math.min(mx.deviceMemory(name).available, memoryBytes)),
  }));
  const sizes = {
    first: bytesOf(first),
    layers: layers.map((tensors, layer) => bytesOf(tensors) + (caches[layer] ?? 0)),
    last: bytesOf(last),
    sharesWith,
  };
  const parts = planParts(sizes, free, split);
  if (!parts.every(fits)) throw tooLarge(path, parts, context);
  for (const part of parts) explain(`${path}: ${describe(part)}`);
  decoding.place(parts.flatMap(({ name, from, to }) => Array<string>(to - from).fill(name)));
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
    return { device, from, to, bytes: bytesOf([...tensors, ...ends]) };
  });
}

function bytesOf(tensors: readonly mx.Tensor[]): number {
  return tensors.reduce((sum, { nbytes }) => sum + nbytes, 0);
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(2)} GB`;
}

function describe({ name, from, to, bytes, free }: PlannedPart): string {
  const layers = to - from === 1 ? `layer ${from}` : `layers ${from} to ${to - 1}`;
  return `${layers} on ${name}: ${gigabytes(bytes)} of ${gigabytes(free)} free`;
}

function tooLarge(path: string, parts: readonly PlannedPart[], context: number): LlmError {
  const all = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return new LlmError(
    "memory",
    `${path} needs ${gigabytes(all)} with ${context} tokens of context. Its parts do not fit: ${
      parts.map(describe).join(", ")
    }: take a smaller or more strongly quantized model, another split, or more devices`,
  );
}
