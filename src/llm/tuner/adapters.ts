/**
 * Folders of adapters as mlx-lm writes them: adapter_config.json, which says what was adapted and how, and adapters.safetensors.
 *
 * @module
 */

import { join } from "node:path";
import { FileError, readFile, writeWhole } from "../../../ffi/file.ts";
import { makeFolder } from "../../../ffi/store.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import type * as nn from "../../nn/mod.ts";
import { LlmError } from "../error.ts";
import { blocksOf, linearToLoraLayers, type LoRAConfig, prefixOf } from "./layers.ts";

/** How a model is fine-tuned. */
export type FineTuneType = "lora" | "dora" | "full";

/** The model's form in adapter_config.json. */
export interface AdapterConfig {
  /** How it was fine-tuned. */
  readonly fineTuneType: FineTuneType;
  /** Blocks from the end on that were; -1 and 0 are all. */
  readonly numLayers: number;
  /** How layers were adapted; not there with "full". */
  readonly loraParameters?: LoRAConfig;
}

/** File of the trained parameters. */
export const ADAPTER_FILE = "adapters.safetensors";
const CONFIG_FILE = "adapter_config.json";
const MAX_CONFIG_BYTES = 2 ** 20;
const TYPES: readonly FineTuneType[] = ["lora", "dora", "full"];

/** Writes the parameters of a model that are trained, by mlx-lm's names. */
export function saveAdapterWeights(model: nn.Module, file: string): void {
  const own = Object.entries(mx.utils.treeFlatten(model.trainableParameters(), "", null, {}) as Record<string, Tensor>);
  mx.saveSafetensors(file, Object.fromEntries(own.map(([name, array]) => [prefixOf(model) + name, array])));
}

/** Names of parameters that adapters have. */
export const ADAPTER_LEAVES: ReadonlySet<string> = new Set(["lora_a", "lora_b", "m"]);

/**
 * Readies a model for fine-tuning as a config says: freezes it, and puts adapters in or, with "full", lets the last `numLayers` blocks be
 * trained.
 */
export function prepareModel(model: nn.Module, { fineTuneType, numLayers, loraParameters }: AdapterConfig): void {
  const blocks = blocksOf(model);
  if (numLayers > blocks.length) {
    throw new LlmError("option", `${numLayers} layers were asked for: the model has ${blocks.length}`);
  }
  model.freeze();
  if (fineTuneType === "full") {
    for (const block of numLayers > 0 ? blocks.slice(-numLayers) : blocks) block.unfreeze();
  } else linearToLoraLayers(model, numLayers, loraParameters!, fineTuneType === "dora");
}

/** Keys as mlx-lm matches them: those outside of blocks are whole names. */
function storedKeys(model: nn.Module, keys: readonly string[]): readonly string[] {
  const names = new Set(model.namedModules().map(([name]) => name));
  return keys.map((key) => names.has(key) ? prefixOf(model) + key : key);
}

/**
 * Writes the adapter_config.json of a model, by mlx-lm's names; `more` is what mlx-lm notes besides. The folder is made if it is not
 * there.
 */
export function saveAdapterConfig(
  model: nn.Module,
  folder: string,
  { fineTuneType, numLayers, loraParameters }: AdapterConfig,
  more: Readonly<Record<string, unknown>> = {},
): void {
  const all: Record<string, unknown> = {
    ...more,
    fine_tune_type: fineTuneType,
    num_layers: numLayers,
    lora_parameters: loraParameters
      ? { ...loraParameters, ...(loraParameters.keys && { keys: storedKeys(model, loraParameters.keys) }) }
      : null,
  };
  const sorted = Object.fromEntries(Object.keys(all).sort().map((name) => [name, all[name]]));
  try {
    makeFolder(folder);
    writeWhole(join(folder, CONFIG_FILE), [new TextEncoder().encode(JSON.stringify(sorted, null, 4))]);
  } catch (cause) {
    throw new LlmError("output", `${shownPath(folder)} cannot be written: ${firstLine(cause)}`);
  }
}

function firstLine(cause: unknown): string {
  return (cause as Error).message.split("\n")[0];
}

/** Reads adapter_config.json. Throws an {@link LlmError} that names what is wrong. */
export function readAdapterConfig(folder: string): AdapterConfig {
  const file = join(folder, CONFIG_FILE);
  let text: string;
  try {
    text = new TextDecoder().decode(readFile(file, MAX_CONFIG_BYTES));
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    throw new LlmError("config", `${shownPath(file)} ${cause.message}`);
  }
  const fail = (what: string): never => {
    throw new LlmError("config", `${shownPath(file)}: ${what}`);
  };
  let found: Record<string, unknown>;
  try {
    found = JSON.parse(text);
  } catch {
    throw new LlmError("config", `${shownPath(file)} is not JSON`);
  }
  if (typeof found !== "object" || found === null) fail("expected an object");
  const { fine_tune_type: type = "lora", num_layers: numLayers, lora_parameters: given } = found;
  const fineTuneType = TYPES.find((name) => name === type) ??
    fail(`fine_tune_type is ${quoted(type)}, expected ${TYPES.join(", ")}`);
  if (!Number.isSafeInteger(numLayers)) fail(`num_layers is ${quoted(numLayers)}, expected a whole number`);
  if (fineTuneType === "full") return { fineTuneType, numLayers: numLayers as number };
  const { rank, scale, dropout = 0, keys } = (given ?? {}) as Record<string, unknown>;
  for (const [name, value] of Object.entries({ rank, scale, dropout })) {
    if (typeof value !== "number") fail(`lora_parameters.${name} is ${quoted(value)}, expected a number`);
  }
  const isList = Array.isArray(keys) && keys.every((key) => typeof key === "string");
  if (keys !== undefined && keys !== null && !isList) fail("lora_parameters.keys is no list of names");
  const loraParameters = { rank, scale, dropout, ...(isList && { keys }) } as LoRAConfig;
  return { fineTuneType, numLayers: numLayers as number, loraParameters };
}

/**
 * Puts the arrays of a file in the places of parameters: of adapters, or with "full" of any. Throws an {@link LlmError} that names those
 * that do not fit, and changes nothing then.
 */
export function loadAdapterWeights(model: nn.Module, file: string, fineTuneType: FineTuneType): void {
  let arrays: Record<string, Tensor>;
  try {
    arrays = mx.loadSafetensors(file);
  } catch (cause) {
    if (!(cause instanceof mx.ArrayError)) throw cause;
    throw new LlmError("weights", cause.message);
  }
  const own = mx.utils.treeFlatten(model.parameters(), "", null, {}) as Record<string, Tensor>;
  const fail = (what: string): never => {
    throw new LlmError("weights", `${shownPath(file)} ${what}`);
  };
  const prefix = prefixOf(model);
  const placed: Record<string, Tensor> = {};
  for (const [stored, array] of Object.entries(arrays)) {
    const name = stored.startsWith(prefix) ? stored.slice(prefix.length) : stored; // earlier files have no prefix
    const { shape } = array;
    const place = Object.hasOwn(own, name) ? own[name] : undefined;
    const fits = fineTuneType === "full" || ADAPTER_LEAVES.has(name.slice(name.lastIndexOf(".") + 1));
    if (place === undefined || !fits) {
      fail(`has ${quoted(name)}, which is no parameter that was fine-tuned of this model`);
    } else if (!sameShape(shape, place.shape)) {
      fail(`has ${quoted(name)} of shape ${formatShape(shape)}: the model's is ${formatShape(place.shape)}`);
    }
    placed[name] = array;
  }
  model.update(mx.utils.treeUnflatten(placed) as nn.ModuleTree);
}

/**
 * Puts the adapters of a folder, as {@link train} and mlx-lm save them, into a model, or its fully trained weights.
 *
 * Throws an {@link LlmError} that names the file and what does not fit the model.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load("Qwen/Qwen3-0.6B-MLX-4bit");
 * mx.lm.tuner.loadAdapters(model, "adapters");
 * console.log(await mx.lm.generate(model, tokenizer, "Hi"));
 * ```
 */
export function loadAdapters(model: nn.Module, folder: string): void {
  const config = readAdapterConfig(folder);
  prepareModel(model, config);
  loadAdapterWeights(model, join(folder, ADAPTER_FILE), config.fineTuneType);
}
