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
import { type SavedArray, writeSafetensors } from "../../array/files/safetensors_file.ts";
import { storedBytes } from "../../array/files/stored.ts";
import { quoted } from "../../graph/error.ts";
import { checkNumber, checkOptions, type OptionKind } from "../arguments.ts";
import { LlmError } from "../error.ts";
import { host } from "../host.ts";
import { untilFree } from "./generate.ts";
import { type MlxQuantization, savedLayer } from "./mlx_caches.ts";
import { KvCache } from "../kv/cache.ts";
import type { LanguageModel } from "../models/mod.ts";
import {
  identityOf,
  load,
  type LoadedPromptCache,
  type LoadPromptCacheOptions,
  OWN,
  STATES,
  VERSION,
} from "./stored_prompt_cache.ts";

export type { LoadedPromptCache, LoadPromptCacheOptions };

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

const SAVE_OPTIONS = { metadata: true, kvBits: true, kvGroupSize: true } as const satisfies Record<
  keyof SavePromptCacheOptions,
  true
>;
const LOAD_OPTIONS = { tokens: true, kvBits: "number", maxKvSize: "number" } as const satisfies Record<
  keyof LoadPromptCacheOptions,
  OptionKind
>;

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
