/**
 * The model of a conversation with its cache, and the change to another one.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { describeDevice, loadOptions } from "../loading.ts";
import { shownPath } from "../../graph/error.ts";
import type { ModelPlace } from "../model_flags.ts";
import { note } from "../output.ts";
import { describeBytes, describeCount } from "../table.ts";
import { expanded } from "./completion.ts";

/** Name of the model that runs where none is named. */
export const EMBEDDED = "tiny-qwen3";

/** A model that is loaded. */
export interface LoadedModel extends mx.lm.Loaded {
  /** The name or path that it was loaded by. */
  readonly name: string;
  /** The folder of its adapters. */
  readonly adapterPath?: string;
  readonly info: mx.lm.ModelInfo;
  readonly cache: mx.lm.KvCache;
}

/** How a model is loaded. */
export interface LoadModelOptions {
  /** The device, or several and how they share the layers. */
  readonly place: ModelPlace;
  readonly signal: AbortSignal;
  /** The folder of its adapters. */
  readonly adapterPath?: string | undefined;
  /** Bits of keys and values. */
  readonly kvBits?: 8 | undefined;
  /** Whether the head that drafts is loaded too. */
  readonly draftHead?: true | undefined;
}

/** Loads a model by the name that a conversation knows it by. Throws the signal's reason when that is aborted. */
export async function loadModel(name: string, options: LoadModelOptions): Promise<LoadedModel> {
  const { place: where, signal, adapterPath, kvBits, draftHead } = options;
  const adapters = adapterPath === undefined ? {} : { adapterPath };
  const loading = { ...loadOptions(where, signal), ...adapters, ...(draftHead && { draftHead }) };
  const { onDownload } = loading;
  const place = name === EMBEDDED
    ? mx.lm.EMBEDDED_MODEL
    : await mx.lm.hub.locate(expanded(name), { signal, ...(onDownload && { onProgress: onDownload }) });
  const loaded = await mx.lm.load(place, loading);
  if (!loaded.tokenizer.hasChatTemplate) {
    loaded.model[Symbol.dispose]();
    throw new mx.lm.LlmError("template", `${name} has no chat template: vkmx generate continues texts with it`);
  }
  const info = await mx.lm.inspect(place);
  return { ...loaded, ...adapters, name, info, cache: loaded.model.makeCache(kvBits ? { kvBits } : {}) };
}

/** Frees a model and its cache. */
export function freeModel({ model, cache }: LoadedModel): void {
  cache[Symbol.dispose]();
  model[Symbol.dispose]();
}

/**
 * Loads another model and frees the one before; if it cannot be loaded, the one before stays. Both are there meanwhile. Where they do
 * not fit beside each other the one before goes first, and is loaded again should the other one fail. Calls `keep` with the one that
 * takes its place.
 */
export async function exchange(
  before: LoadedModel,
  load: (name: string) => Promise<LoadedModel>,
  name: string,
  keep: (loaded: LoadedModel) => void,
): Promise<void> {
  try {
    keep(await load(name));
    freeModel(before);
    return;
  } catch (error) {
    if (!(error instanceof mx.lm.LlmError && error.code === "memory")) throw error;
  }
  freeModel(before);
  try {
    keep(await load(name));
  } catch (error) {
    note(`Loading ${before.name} again\n`);
    keep(await load(before.name));
    throw error;
  }
}

/** A model's description, in a few words. */
export function describeModel(loaded: LoadedModel): string {
  const { name, config, info, adapterPath } = loaded;
  const bits = config.quantization === undefined ? "not quantized" : `${config.quantization.base.bits} bits`;
  const size = `${describeCount(info.parameters)} parameters, ${bits}, ${describeBytes(info.weightBytes)}`;
  const adapters = adapterPath === undefined ? "" : `, adapters of ${shownPath(adapterPath)}`;
  return `${shownPath(name)}: ${config.modelType}, ${size}${adapters}, ` +
    `context of ${config.maxPositionEmbeddings} tokens, on ${describeDevice(loaded)}`;
}
