/**
 * Loading a prompt cache: what a file says is checked against the model, then a cache is filled. prompt_cache.ts has the format.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { openSafetensors, type SavedArray, type StoredArrays } from "../../array/files/safetensors_file.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { sameShape } from "../../graph/shape.ts";
import { checkIds } from "../arguments.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { MLX_CLASSES, type MlxClass, readLayers, type StoredLayer } from "./mlx_caches.ts";
import type { KvCache } from "../kv/cache.ts";
import { type CacheOptions, RING_KEEP } from "../kv/make_cache.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";

/** Options of `loadPromptCache`. */
export interface LoadPromptCacheOptions {
  /** Ids of the tokens that it holds, for `cachePrompt`, if the file does not tell them, as those of mlx-lm. */
  readonly tokens?: readonly number[];
  /** See {@link CacheOptions}; any file can be loaded so. */
  readonly kvBits?: CacheOptions["kvBits"];
  /** See {@link CacheOptions}. Default: that of the file, of mlx-lm's `--max-kv-size` or ours, or none. */
  readonly maxKvSize?: number;
}

/** What `loadPromptCache` gives. */
export interface LoadedPromptCache {
  /** The cache; free it with `cache.dispose()` or `using`. */
  readonly cache: KvCache;
  /** What was saved with it. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** The version of the additions to the format. */
export const VERSION = 1;
/** The name of it in the metadata. */
export const OWN = "vkmx";
/** mlx-lm's class of caches of layers with state arrays. */
export const STATES = "ArraysCache";
/** Rows that mlx-lm may hold beyond the tokens of a context. */
const SPARE_ROWS = 256;
/** Fields of a config that do not change what a cache holds. */
const FREE_FIELDS = ["maxPositionEmbeddings", "eosTokenIds"];

/** What a cache depends on, of a model's config, by name and as JSON. */
export function identityOf(config: ModelConfig): Record<string, string> {
  const plain = (_: string, value: unknown): unknown => value instanceof Map ? Object.fromEntries(value) : value;
  const fields = Object.entries(config).filter(([name, value]) => value !== undefined && !FREE_FIELDS.includes(name));
  return Object.fromEntries(fields.map(([name, value]) => [name, JSON.stringify(value, plain)]));
}

/** Loads a cache from a file, see `loadPromptCache`. */
export function load(path: string, model: LanguageModel, options: LoadPromptCacheOptions): LoadedPromptCache {
  const bad = (what: string): never => {
    throw new LlmError("cache", `${shownPath(path)} ${what}`);
  };
  const file = openSafetensors(path);
  const { classes, metadata } = readClasses(file, bad);
  checkOwn(metadata[OWN], model, bad);
  const { count, batch, layers, rows } = readShapes(file, classes, model, bad);
  const tokens = options.tokens ?? readTokens(file, `${classes.length}.tokens`, count, bad);
  checkIds(model, [...tokens], options.tokens ? "tokens" : shownPath(path));
  if (options.tokens && options.tokens.length !== count) {
    throw new LlmError(
      "option",
      `tokens has ${options.tokens.length} ids, and ${shownPath(path)} holds ${count} tokens`,
    );
  }
  const { kvBits, maxKvSize = sizeOfRing(layers, bad) } = options;
  const cache = model.makeCache({
    batch,
    ...(kvBits !== undefined && { kvBits }),
    ...(maxKvSize !== undefined && { maxKvSize }),
  });
  const needed = neededPositions(cache, count);
  const { parts } = cache;
  for (const [place, { first, last }] of needed.entries()) {
    const held = layers[place].held(rows[place]);
    if (held.first >= first && held.last >= Math.min(last, count)) continue;
    const layer = parts.findIndex((part) => "place" in part && part.place === place);
    const what = `the first ${held.first} and the last ${held.last} of ${count} positions of layer ${layer}`;
    bad(`has ${what}, which sees ${last === count ? "all" : `the first ${first} and the last ${last + 1}`}`);
  }
  const { placement, device: { name: device } } = decodingModel(model);
  checkMemory(path, cache.byteLengths(count), placement ?? [device]);
  const named = cache.parts.flatMap((part, layer) =>
    "states" in part ? part.states.map((_, i) => `${layer}.0.${i}`) : []
  );
  const keysValues = (place: number): { keys: mx.Tensor; values: mx.Tensor } => {
    const { first } = needed[place];
    const { last: held } = layers[place].held(rows[place]);
    const last = Math.min(held, cache.ring?.last ?? held);
    return { keys: layers[place].read("keys", first, last), values: layers[place].read("values", first, last) };
  };
  try {
    mx.withDevice(device, () => cache.fill(count, keysValues, (index) => file.tensor(file.entries.get(named[index])!)));
  } catch (error) {
    cache.dispose();
    throw error;
  }
  cache.remember(tokens);
  return { cache, metadata: Object.fromEntries(Object.entries(metadata).filter(([name]) => name !== OWN)) };
}

/** The classes of layers and the metadata of the caller. The two forms of mlx-lm differ in where those and the classes are. */
function readClasses(
  { metadata }: StoredArrays,
  bad: (what: string) => never,
): { classes: readonly string[]; metadata: Record<string, string> } {
  const below = (at: number): [string, string][] =>
    Object.entries(metadata).flatMap(([name, value]) => name.startsWith(`${at}.`) ? [[name.slice(2), value]] : []);
  const current = metadata["2.0"] === "";
  const classes = below(current ? 1 : 2).sort(([a], [b]) => Number(a) - Number(b)).map(([, name]) => name);
  const known: readonly string[] = [...MLX_CLASSES, STATES];
  const other = classes.find((name) => !known.includes(name));
  if (classes.length === 0) return bad("is no prompt cache: its metadata name no caches of layers");
  if (other !== undefined) return bad(`holds a ${quoted(other)} of mlx-lm: only a ${known.join(" or ")} is read`);
  return { classes, metadata: Object.fromEntries(below(current ? 0 : 1)) };
}

/** Refuses a cache of a later version, and one that was computed with another model. */
function checkOwn(text: string | undefined, model: LanguageModel, bad: (what: string) => never): void {
  if (text === undefined) return; // mlx-lm's
  let own: { version?: unknown; model?: unknown } | null;
  try {
    own = JSON.parse(text);
  } catch {
    return bad(`has metadata ${OWN} that are no JSON`);
  }
  if (own?.version !== VERSION) {
    return bad(`has version ${quoted(own?.version)} of a prompt cache: known is ${VERSION}`);
  }
  if (own.model === undefined) return;
  const saved = own.model;
  if (typeof saved !== "object" || saved === null) return bad(`has metadata ${OWN} without the fields of a model`);
  const found = new Map(Object.entries(saved));
  for (const [name, value] of Object.entries(identityOf(model.config))) {
    const other = found.get(name);
    found.delete(name);
    if (other !== value) bad(`is of another model: its ${name} is ${shown(other)}, this one's ${value}`);
  }
  for (const [name, value] of found) bad(`is of another model: its ${name} is ${shown(value)}, this one has none`);
}

function shown(json: unknown): string {
  if (json === undefined) return "not set";
  return typeof json === "string" ? quoted(json).replace(/^"|"$/g, "").replaceAll('\\"', '"') : quoted(json);
}

/** The numbers of tokens and of sequences, and the layers with keys and values. Refuses arrays that are not those of a cache of the model. */
function readShapes(
  file: StoredArrays,
  classes: readonly string[],
  model: LanguageModel,
  bad: (what: string) => never,
): { count: number; batch: number; layers: readonly StoredLayer[]; rows: readonly number[] } {
  using like = model.makeCache();
  const entry = (name: string) => file.entries.get(name) ?? bad(`lacks the array ${quoted(name)}`);
  const { parts } = like;
  if (classes.length !== parts.length) {
    bad(`is of another model: it has ${classes.length} layers, this one ${parts.length}`);
  }
  const unlike = parts.findIndex((part, layer) => ("states" in part) !== (classes[layer] === STATES));
  if (unlike >= 0) {
    const own = "states" in parts[unlike] ? STATES : MLX_CLASSES[0];
    bad(`is of another model: layer ${unlike} is ${classes[unlike]}, that of this one is ${own}`);
  }
  const placed = parts.flatMap((part, layer) => "place" in part ? [{ ...part, layer }] : []);
  const layers = readLayers(file, placed.map(({ layer }) => [layer, classes[layer] as MlxClass]), bad);
  const [batch] = layers[0].shapeOf("keys");
  const checkFloats = ({ name, dtype }: Pick<SavedArray, "name" | "dtype">): void => {
    if (dtype.kind !== "float") {
      bad(`is no prompt cache: the array ${quoted(name)} is ${dtype.name}, expected floats`);
    }
  };
  for (const [layer, part] of parts.entries()) {
    if (!("states" in part)) continue;
    for (const [i, index] of part.states.entries()) {
      const stored = entry(`${layer}.0.${i}`);
      checkFloats(stored);
      const expected = like.readState(index).shape.with(0, batch);
      if (!sameShape(stored.shape, expected)) {
        bad(`is of another model: the array ${quoted(stored.name)} is (${stored.shape}), expected (${expected})`);
      }
    }
    const padded = [`${layer}.1`, `${layer}.2`].find((name) => entry(name).shape[0] !== 0);
    if (padded !== undefined) bad(`has sequences with padding (${quoted(padded)}), which are not read`);
  }
  const rows = layers.map((stored, place) => {
    const [keys, values] = (["keys", "values"] as const).map((side, at) => {
      const shape = stored.shapeOf(side);
      const [, heads, , headDim] = like.shapeOf(place, side);
      const fits = shape.length === 4 && shape[0] === batch && shape[1] === heads && shape[3] === headDim;
      if (fits && batch > 0) return shape[2];
      const expected = [batch || 1, heads, shape[2] ?? 1, headDim].join();
      return bad(
        `is of another model: the array ${
          quoted(`${placed[place].layer}.${at}`)
        } is (${shape}), expected (${expected})`,
      );
    });
    if (keys !== values) bad(`has ${keys} rows of keys and ${values} of values in layer ${placed[place].layer}`);
    if (keys > like.limit + SPARE_ROWS) {
      throw new LlmError("context", `The cache has ${keys} rows and the model's context holds ${like.limit} tokens`);
    }
    return keys;
  });
  const counts = layers.map((layer, i) => layer.tokens(rows[i]));
  const [count] = counts;
  const odd = counts.find((number) => number !== count);
  if (odd !== undefined) bad(`has layers of ${count} and of ${odd} tokens`);
  for (const [i, layer] of layers.entries()) layer.held(rows[i]);
  if (count > like.limit) {
    throw new LlmError("context", `The cache holds ${count} tokens and the model's context ${like.limit}`);
  }
  return { count, batch, layers, rows };
}

/** The ids of the tokens, none if the file does not tell them. */
function readTokens(file: StoredArrays, name: string, count: number, bad: (what: string) => never): readonly number[] {
  const entry = file.entries.get(name);
  if (entry === undefined) return [];
  if (entry.dtype !== mx.int32 || entry.shape.length !== 1 || entry.shape[0] !== count) {
    return bad(`has ids ${quoted(name)} that are not ${count} int32`);
  }
  return [...new Int32Array(file.bytes([entry])[0].buffer)];
}

/** The `maxKvSize` of a file that has one. */
function sizeOfRing(layers: readonly StoredLayer[], bad: (what: string) => never): number | undefined {
  const rings = layers.flatMap(({ ring }) => ring ?? []);
  if (rings.length === 0) return undefined;
  const [{ keep, last }] = rings;
  const alike = rings.length === layers.length && rings.every((ring) => ring.keep === keep && ring.last === last);
  if (!alike) bad("has layers that keep different positions");
  if (keep !== RING_KEEP) bad(`keeps the first ${keep} positions: only ${RING_KEEP} are read`);
  return keep + last;
}

/**
 * How many of the first positions a cache needs of each layer, and how many of the last ones. These are what the next token sees beside its
 * own. A ring that is not full needs all.
 */
function neededPositions(cache: KvCache, count: number): readonly { readonly first: number; readonly last: number }[] {
  const { keep, last } = cache.ring ?? { keep: 0, last: Infinity };
  return cache.parts.flatMap((part) => {
    if (!("place" in part)) return [];
    const seen = Math.min(cache.ring ? Infinity : part.window ?? Infinity, last) - 1;
    return [keep + seen >= count ? { first: 0, last: count } : { first: keep, last: seen }];
  });
}

/** Refuses what cannot fit on the devices of the layers, or on the one of all, before the first row is read. */
function checkMemory(path: string, layers: readonly number[], devices: readonly string[]): void {
  for (const device of new Set(devices)) {
    const own = layers.filter((_, layer) => (devices[layer] ?? devices.at(-1)) === device);
    const need = own.reduce((sum, bytes) => sum + bytes, 0);
    const { available } = mx.deviceMemory(device);
    if (need <= available) continue;
    const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;
    throw new LlmError(
      "memory",
      `${shownPath(path)} needs ${gigabytes(need)} and ${device} has ${gigabytes(available)} free`,
    );
  }
}
