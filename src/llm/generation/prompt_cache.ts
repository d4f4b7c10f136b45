/**
 * Key/value caches in files, in the format of mlx-lm (`save_prompt_cache` of mlx_lm/models/cache.py). A safetensors file has
 * the state of each layer: keys "i.0", values "i.1" and numbers from "i.2" on, see mlx_caches.ts. A recurrent layer has its state arrays
 * "i.0.0", "i.0.1" and so on, and no "i.1" and "i.2", which are empty. The metadata is a tree
 * flattened to dots. Below "0" is the caller's own metadata, below "1" the class of each layer's cache, below "2" the arrays that
 * were scalars. Older files of mlx-lm, with classes below "2" and no "i.2", load too.
 *
 * Two additions are ignored by mlx-lm: the token ids, as one more array after the layers, and the model's properties at "0.vkmx".
 * Everything is checked against the header before anything is allocated, and rows are read layer by layer.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import {
  openSafetensors,
  type SavedArray,
  type StoredArrays,
  writeSafetensors,
} from "../../array/files/safetensors_file.ts";
import { storedBytes } from "../../array/files/stored.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { sameShape } from "../../graph/shape.ts";
import { checkIds, checkNumber, checkOptions } from "../arguments.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { host } from "../host.ts";
import { untilFree } from "./generate.ts";
import {
  MLX_CLASSES,
  type MlxClass,
  type MlxQuantization,
  readLayers,
  savedLayer,
  type StoredLayer,
} from "./mlx_caches.ts";
import { KvCache } from "../kv/cache.ts";
import { decodingModel, type LanguageModel } from "../models/mod.ts";

/** Options of {@link savePromptCache}. */
export interface SavePromptCacheOptions {
  /** Strings by name that {@link loadPromptCache} gives back. */
  readonly metadata?: Readonly<Record<string, string>>;
  /**
   * Quantizes keys and values of layers without a window to 4 or 8 bits in the file, as mlx-lm's `--kv-bits` does. Default: they are
   * saved as they are. mlx-lm does not go on from such keys and values if heads have sinks or attention is latent.
   */
  readonly kvBits?: 4 | 8;
  /** Features that share a scale then: 32, 64 or 128, a divisor of the head size. Default 64. */
  readonly kvGroupSize?: 32 | 64 | 128;
}

/** Options of {@link loadPromptCache}. */
export interface LoadPromptCacheOptions {
  /** Ids of the tokens that it holds, for `cachePrompt`, if the file does not tell them, as those of mlx-lm. */
  readonly tokens?: readonly number[];
}

/** What {@link loadPromptCache} gives. */
export interface LoadedPromptCache {
  /** The cache; free it with `cache.dispose()` or `using`. */
  readonly cache: KvCache;
  /** What was saved with it. */
  readonly metadata: Readonly<Record<string, string>>;
}

const SAVE_OPTIONS = { metadata: true, kvBits: true, kvGroupSize: true } as const satisfies Record<
  keyof SavePromptCacheOptions,
  true
>;
const LOAD_OPTIONS = { tokens: true } as const satisfies Record<keyof LoadPromptCacheOptions, true>;

/** The version of the additions to the format. */
const VERSION = 1;
/** The name of it in the metadata. */
const OWN = "vkmx";
/** mlx-lm's class of caches of layers with state arrays. */
const STATES = "ArraysCache";
/** Rows that mlx-lm may hold beyond the tokens of a context. */
const SPARE_ROWS = 256;
/** Fields of a config that do not change what a cache holds. */
const FREE_FIELDS = ["maxPositionEmbeddings", "eosTokenIds"];

/** What a cache depends on, of a model's config, by name and as JSON. */
function identityOf(config: ModelConfig): Record<string, string> {
  const plain = (_: string, value: unknown): unknown => value instanceof Map ? Object.fromEntries(value) : value;
  const fields = Object.entries(config).filter(([name, value]) => value !== undefined && !FREE_FIELDS.includes(name));
  return Object.fromEntries(fields.map(([name, value]) => [name, JSON.stringify(value, plain)]));
}

/**
 * Saves a cache with the tokens that it holds, in the format of mlx-lm. Only rows of tokens are written, one layer at a time; the file
 * appears whole or not at all. Of a layer with a window only the positions in the window are written.
 *
 * Throws an {@link LlmError} for a cache that is empty or that a generation writes to. Throws an ArrayError with code "file" if the
 * file cannot be written.
 *
 * @example
 * ```ts ignore
 * using cache = model.makeCache();
 * await mx.lm.generate(model, tokenizer, manual, { cache, maxTokens: 1 });
 * await mx.lm.savePromptCache("manual.safetensors", cache);
 * ```
 */
export async function savePromptCache(
  file: string,
  cache: KvCache,
  options: SavePromptCacheOptions = {},
): Promise<void> {
  checkOptions("savePromptCache", options, SAVE_OPTIONS);
  if (!(cache instanceof KvCache)) {
    throw new LlmError("option", "savePromptCache() expected a cache of model.makeCache()");
  }
  await host().untilInterrupted(untilFree(cache));
  const { metadata = {} } = options;
  const quantization = quantizationOf(options, cache);
  const { offset, parts, tokens, config } = cache;
  if (offset === 0) throw new LlmError("option", "The cache holds no tokens: there is nothing to save");
  const strings = Object.entries(metadata);
  const wrong = strings.find(([name, value]) => name === OWN || typeof value !== "string");
  if (wrong) throw new LlmError("option", `metadata has ${quoted(wrong[0])}, expected strings under names but ${OWN}`);
  const words = (name: string, values: readonly number[], axes: readonly number[]): SavedArray => ({
    name,
    dtype: mx.int32,
    shape: axes,
    pieces: () => [new Uint8Array(Int32Array.from(values).buffer)],
  });
  const arrays: SavedArray[] = [];
  const classes: string[] = [];
  const states: [string, string][] = [];
  const mark = (name: string, kind: "scalar" | "none"): void => {
    const at = `2.${states.length / 2 + 1}`;
    states.push([`${at}.0`, name], [`${at}.1`, kind]);
  };
  for (const [layer, held] of parts.entries()) {
    if ("states" in held) {
      held.states.forEach((index, i) => {
        const { dtype, shape } = cache.readState(index);
        arrays.push({ name: `${layer}.0.${i}`, dtype, shape, pieces: () => [storedBytes(cache.readState(index))] });
      });
      for (const name of [`${layer}.1`, `${layer}.2`]) { // padding and lengths, which a cache of ours has none of
        arrays.push({ name, dtype: mx.float32, shape: [0], pieces: () => [] });
        mark(name, "none");
      }
      classes[layer] = STATES;
      continue;
    }
    const saved = savedLayer(cache, layer, held, quantization);
    arrays.push(...saved.arrays);
    saved.numbers.forEach((number, i) => {
      arrays.push(words(`${layer}.${2 + i}`, [number], []));
      mark(`${layer}.${2 + i}`, "scalar");
    });
    classes[layer] = saved.name;
  }
  if (tokens.length > 0) arrays.push(words(`${parts.length}.tokens`, tokens, [tokens.length]));
  const own = { version: VERSION, ...(config && { model: identityOf(config) }) };
  writeSafetensors(file, arrays, {
    [`0.${OWN}`]: JSON.stringify(own),
    ...Object.fromEntries(strings.map(([name, value]) => [`0.${name}`, value])),
    ...Object.fromEntries(classes.map((name, layer) => [`1.${layer}`, name])),
    "2.0": "",
    ...Object.fromEntries(states),
  });
}

/**
 * Loads a cache that {@link savePromptCache} or mlx-lm saved, for a model on any device. Generations with it give the same results as
 * with the saved one. On a device whose caches have another dtype, rows are rounded to that dtype.
 *
 * Quantized keys and values of mlx-lm become floats. Of layers with a window a file may have the last positions only; such a cache
 * goes back by one token, or to its begin.
 *
 * Throws an {@link LlmError} with code "cache" that says what is wrong with the file. It may be damaged, of another model, or lack
 * positions that attention sees. The code is "memory" or "context" if there is no room for the cache.
 *
 * @example
 * ```ts ignore
 * const { cache } = await mx.lm.loadPromptCache("manual.safetensors", model);
 * await mx.lm.generate(model, tokenizer, `${manual} How do I reset it?`, { cache, cachePrompt: true });
 * ```
 */
export function loadPromptCache(
  file: string,
  model: LanguageModel,
  options: LoadPromptCacheOptions = {},
): Promise<LoadedPromptCache> {
  checkOptions("loadPromptCache", options, LOAD_OPTIONS);
  return Promise.try(() => {
    try {
      return load(file, model, options);
    } catch (cause) {
      if (cause instanceof mx.ArrayError && cause.code === "file") {
        throw new LlmError("cache", cause.message);
      }
      throw cause;
    }
  });
}

function load(path: string, model: LanguageModel, options: LoadPromptCacheOptions): LoadedPromptCache {
  const bad = (what: string): never => {
    throw new LlmError("cache", `${shownPath(path)} ${what}`);
  };
  const file = openSafetensors(path);
  const { classes, metadata } = readClasses(file, bad);
  checkOwn(metadata[OWN], model, bad);
  const { count, batch, layers } = readShapes(file, classes, model, bad);
  const tokens = options.tokens ?? readTokens(file, `${classes.length}.tokens`, count, bad);
  checkIds(model, [...tokens], options.tokens ? "tokens" : shownPath(path));
  if (options.tokens && options.tokens.length !== count) {
    throw new LlmError(
      "option",
      `tokens has ${options.tokens.length} ids, and ${shownPath(path)} holds ${count} tokens`,
    );
  }
  const cache = model.makeCache(batch);
  const { name: device } = decodingModel(model).device;
  checkMemory(path, cache.byteLength(count), device);
  const named = cache.parts.flatMap((part, layer) =>
    "states" in part ? part.states.map((_, i) => `${layer}.0.${i}`) : []
  );
  const keysValues = (place: number): { keys: mx.Tensor; values: mx.Tensor } => ({
    keys: layers[place].read("keys"),
    values: layers[place].read("values"),
  });
  try {
    mx.withDevice(device, () => cache.fill(count, keysValues, (index) => file.tensor(file.entries.get(named[index])!)));
  } catch (error) {
    cache.dispose();
    throw error;
  }
  cache.remember(tokens);
  return { cache, metadata: Object.fromEntries(Object.entries(metadata).filter(([name]) => name !== OWN)) };
}

/** How keys and values are quantized in the file. */
function quantizationOf(
  { kvBits: bits, kvGroupSize: groupSize = 64 }: SavePromptCacheOptions,
  cache: KvCache,
): MlxQuantization | undefined {
  if (bits === undefined) return undefined;
  checkNumber("kvBits", bits, bits === 4 || bits === 8, "4 or 8");
  checkNumber("kvGroupSize", groupSize, [32, 64, 128].includes(groupSize), "32, 64 or 128");
  for (const part of cache.parts) {
    if (!("place" in part)) continue;
    const odd = (["keys", "values"] as const).map((side) => cache.shapeOf(part.place, side)[3])
      .find((headDim) => headDim % groupSize !== 0);
    if (odd === undefined) continue;
    throw new LlmError(
      "option",
      `kvGroupSize ${groupSize} does not divide heads of ${odd} features: take a smaller one`,
    );
  }
  return { bits, groupSize };
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
): { count: number; batch: number; layers: readonly StoredLayer[] } {
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
  for (const [place, { layer, window = Infinity }] of placed.entries()) {
    const held = layers[place].held(rows[place]);
    // The next token sees itself and window - 1 positions before it.
    if (held >= Math.min(count, window - 1)) continue;
    bad(
      `has the last ${held} of ${count} positions of layer ${layer}, which sees ${
        window === Infinity ? "all" : window
      }`,
    );
  }
  if (count > like.limit) {
    throw new LlmError("context", `The cache holds ${count} tokens and the model's context ${like.limit}`);
  }
  return { count, batch, layers };
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

/** Refuses what cannot fit on the device of the model, before the first row is read. */
function checkMemory(path: string, need: number, device: string): void {
  const { available } = mx.deviceMemory(device);
  if (need <= available) return;
  const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;
  throw new LlmError(
    "memory",
    `${shownPath(path)} needs ${gigabytes(need)} and ${device} has ${gigabytes(available)} free`,
  );
}
