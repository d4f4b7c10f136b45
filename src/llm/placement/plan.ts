/**
 * How the layers of a model are divided among devices: contiguous parts, whose bytes are in proportion to the free memory of each.
 *
 * @module
 */

import { LlmError } from "../error.ts";

/** The bytes of a model, weights and caches together. */
export interface ModelBytes {
  /** What is with the first layer: the embedding. */
  readonly first: number;
  /** Each layer. */
  readonly layers: readonly number[];
  /** What is with the last layer: norm and head. */
  readonly last: number;
  /** Of each layer, the earlier one whose keys and values it reads, so that both are on one device. */
  readonly sharesWith: readonly (number | undefined)[];
}

/** A device and its free bytes. */
export interface FreeDevice {
  readonly name: string;
  readonly free: number;
}

/** The layers of a device: from `from` to `to`, which is not among them. */
export interface PlannedPart extends FreeDevice {
  readonly from: number;
  readonly to: number;
  /** Bytes that they take, with what else is there. */
  readonly bytes: number;
}

/**
 * The parts of a model. `split` has a number for each device: of its layers if they are all layers in sum, else a share. Default: by free
 * memory. Throws an {@link LlmError} where layers cannot be divided so. Whether parts fit is for the caller to check.
 */
export function planParts(
  model: ModelBytes,
  devices: readonly FreeDevice[],
  split?: readonly number[],
): readonly PlannedPart[] {
  const ends = endsOf(model);
  if (ends.length < devices.length) {
    throw new LlmError(
      "option",
      `the layers make ${ends.length} parts at most, and ${devices.length} devices are named: name fewer`,
    );
  }
  const partsOf = (cuts: readonly number[]): PlannedPart[] =>
    devices.map((device, i) => {
      const [from, to] = [i === 0 ? 0 : cuts[i - 1], cuts[i]];
      return { ...device, from, to, bytes: bytesOf(model, from, to) };
    });
  if (split) return partsOf(cutsBySplit(model, ends, split));
  const proportional = partsOf(cutsByShares(model, ends, devices.map(({ free }) => free)));
  if (proportional.every(fits)) return proportional;
  const filled = partsOf(cutsByFilling(model, ends, devices));
  return filled.every(fits) ? filled : proportional;
}

/** Whether a part has room on its device. */
export function fits({ bytes, free }: PlannedPart): boolean {
  return bytes <= free;
}

/** The layers after which a part may end: none that a later one reads the keys and values of. */
function endsOf({ layers, sharesWith }: ModelBytes): number[] {
  const numbers = layers.map((_, layer) => layer + 1);
  return numbers.filter((end) =>
    !sharesWith.some((source, layer) => source !== undefined && source < end && layer >= end)
  );
}

function bytesOf({ first, layers, last }: ModelBytes, from: number, to: number): number {
  const own = layers.slice(from, to).reduce((sum, bytes) => sum + bytes, 0);
  return own + (from === 0 ? first : 0) + (to === layers.length ? last : 0);
}

/** Cuts at which parts have such shares of all bytes, as nearly as ends allow. */
function cutsByShares(model: ModelBytes, ends: readonly number[], shares: readonly number[]): number[] {
  const all = bytesOf(model, 0, model.layers.length);
  const sum = shares.reduce((total, share) => total + share, 0);
  const cuts: number[] = [];
  let wanted = 0;
  for (const [i, share] of shares.entries()) {
    wanted += sum > 0 ? all * share / sum : all / shares.length;
    const later = shares.length - 1 - i;
    const possible = ends.slice(ends.findIndex((end) => end > (cuts.at(-1) ?? 0)), ends.length - later);
    const distance = (end: number): number => Math.abs(bytesOf(model, 0, end) - wanted);
    cuts.push(later === 0 ? model.layers.length : possible.reduce((a, b) => distance(b) < distance(a) ? b : a));
  }
  return cuts;
}

/** Cuts at which each device but the last one has as many layers as it has room for. */
function cutsByFilling(model: ModelBytes, ends: readonly number[], devices: readonly FreeDevice[]): number[] {
  const cuts: number[] = [];
  for (const [i, { free }] of devices.entries()) {
    const from = cuts.at(-1) ?? 0;
    const later = devices.length - 1 - i;
    const possible = ends.slice(ends.findIndex((end) => end > from), ends.length - later);
    const held = possible.findLast((end) => bytesOf(model, from, end) <= free) ?? possible[0];
    cuts.push(later === 0 ? model.layers.length : held);
  }
  return cuts;
}

function cutsBySplit(model: ModelBytes, ends: readonly number[], split: readonly number[]): number[] {
  const { layers, sharesWith } = model;
  const sum = split.reduce((total, share) => total + share, 0);
  const isExact = sum === layers.length && split.every((share) => Number.isInteger(share) && share > 0);
  if (!isExact) {
    const alike = { first: 0, layers: layers.map(() => 1), last: 0, sharesWith };
    const largest = Math.max(...split); // a sum of shares may be no number
    return cutsByShares(alike, ends, split.map((share) => share / largest));
  }
  let end = 0;
  const cuts = split.map((count) => end += count);
  const odd = cuts.find((cut) => !ends.includes(cut));
  if (odd === undefined) return cuts;
  const reader = sharesWith.findIndex((source, layer) => source !== undefined && source < odd && layer >= odd);
  throw new LlmError(
    "option",
    `split cannot divide the layers at ${odd}: layer ${reader} reads the keys and values of layer ${
      sharesWith[reader]
    }`,
  );
}
