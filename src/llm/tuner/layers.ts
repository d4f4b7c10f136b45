/**
 * Models with adapted layers: putting them in, taking them out, fusing them, and recomputing layers for gradients.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import * as nn from "../../nn/mod.ts";
import { checkOptions } from "../../graph/options.ts";
import { quoted } from "../../graph/error.ts";
import { DoRAEmbedding, DoRALinear } from "./dora.ts";
import { PartedTable } from "../layers/parted_table.ts";
import { QuantizedSwitchLinear, SwitchLinear } from "../layers/switch_linear.ts";
import { denseWeight, embeddingWith, linearWith, LoRAEmbedding, LoRALinear, type LoRAOptions } from "./lora.ts";
import { LoRASwitchLinear } from "./lora_switch.ts";
import type { TrainableModel } from "./loss.ts";

/** "lora_parameters" of an adapter_config.json. */
export interface LoRAConfig {
  /** Columns of the first matrix. */
  readonly rank: number;
  /** The factor of the product. */
  readonly scale: number;
  /** The part of inputs that becomes 0 while training. */
  readonly dropout: number;
  /** Names of the adapted layers, in a block or in the model; default all in blocks that can be adapted. */
  readonly keys?: readonly string[];
}

const LORA_CONFIG = { rank: true, scale: true, dropout: true, keys: true } as const satisfies Record<
  keyof LoRAConfig,
  true
>;

const LINEAR = [nn.Linear, nn.QuantizedLinear] as const;
const EMBEDDING = [nn.Embedding, nn.QuantizedEmbedding] as const;
const EXPERTS = [SwitchLinear, QuantizedSwitchLinear] as const;

function isOneOf<C extends readonly (abstract new (...args: never[]) => unknown)[]>(
  module: unknown,
  classes: C,
): module is InstanceType<C[number]> {
  return classes.some((known) => module instanceof known);
}

/** An adapted layer in the place of one: in training if that is. */
function adapted(name: string, module: nn.Module, options: LoRAOptions, useDora: boolean): nn.Module {
  return adapterOf(name, module, options, useDora).train(module.training);
}

function adapterOf(name: string, module: nn.Module, options: LoRAOptions, useDora: boolean): nn.Module {
  if (isOneOf(module, LINEAR)) return (useDora ? DoRALinear : LoRALinear).fromBase(module, options);
  if (isOneOf(module, EMBEDDING)) {
    return useDora ? DoRAEmbedding.fromBase(module as nn.Embedding, options) : LoRAEmbedding.fromBase(module, options);
  }
  if (isOneOf(module, EXPERTS) && !useDora) return LoRASwitchLinear.fromBase(module, options);
  const why = isOneOf(module, EXPERTS)
    ? "experts take LoRA, not DoRA"
    : module instanceof PartedTable
    ? "it is larger than an array may be on the device: leave it out, or take a more strongly quantized model"
    : `${module.constructor.name} is neither linear nor an embedding`;
  throw new mx.ValueError(`linearToLoraLayers() cannot adapt ${quoted(name)}: ${why}`);
}

function replaceAll(model: nn.Module, replaced: readonly (readonly [string, nn.Module])[]): void {
  if (replaced.length > 0) {
    model.updateModules(mx.utils.treeUnflatten(replaced as [string, nn.Module][]) as nn.ModuleTree);
  }
}

/**
 * Replaces linear layers and embeddings in the last `numLayers` blocks of a model by {@link LoRALinear} and {@link LoRAEmbedding}, and the
 * matrices of experts. As in mlx-lm, -1 and 0 mean all blocks. With `useDora` they are {@link DoRALinear} and {@link DoRAEmbedding}, and
 * experts stay as they are. `keys` chooses layers and may name some outside of blocks, also by the names that mlx-lm has for them. Freeze the model before: then only the new parts are trained.
 * They are in training where the layer that they adapt is. A loaded model's are not, and drop no inputs before `model.train()`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Sequential(new mx.nn.Linear(4, 4), new mx.nn.Linear(4, 4));
 * model.freeze();
 * mx.lm.tuner.linearToLoraLayers(model, 1, { rank: 2, scale: 10, dropout: 0 });
 * Object.keys(model.trainableParameters().layers[1]); // ["lora_a", "lora_b"]
 * ```
 */
export function linearToLoraLayers(
  model: nn.Module,
  numLayers: number,
  config: LoRAConfig,
  useDora: boolean = false,
): void {
  checkOptions("linearToLoraLayers", config, LORA_CONFIG);
  const { rank: r, scale, dropout } = config;
  const known = blocksOf(model);
  const canBe = (module: nn.Module): boolean =>
    isOneOf(module, LINEAR) || isOneOf(module, EMBEDDING) || (!useDora && isOneOf(module, EXPERTS));
  const keys = new Set(
    config.keys ?? known.flatMap((layer) => named(layer).filter(([, module]) => canBe(module)).map(([name]) => name)),
  );
  const within = (module: nn.Module, prefix: string = ""): (readonly [string, nn.Module])[] =>
    named(module).filter(([name]) => name !== "" && (keys.has(name) || keys.has(prefix + name)))
      .map(([name, found]) => [name, adapted(name, found, { r, scale, dropout }, useDora)] as const);
  let count = 0;
  const change = (module: nn.Module, found: readonly (readonly [string, nn.Module])[]): void => {
    count += found.length;
    replaceAll(module, found);
  };
  const first = numLayers > 0 ? Math.max(0, known.length - numLayers) : 0;
  known.forEach((layer, i) => {
    if (i < first) return;
    change(layer, within(layer));
  });
  // A block that is itself such a layer, as those of a list of linear layers.
  const bare = keys.has("") ? named(model).filter(([, module]) => known.indexOf(module) >= first && canBe(module)) : [];
  change(model, bare.map(([name, found]) => [name, adapted(name, found, { r, scale, dropout }, useDora)]));
  change(model, within(model, prefixOf(model)));
  if (count === 0) {
    throw new mx.ValueError(`linearToLoraLayers() found no layer named ${[...keys].map(quoted).join(", ")}`);
  }
}

/** What begins mlx-lm's names of the modules and parameters of a model, before those that they have here. */
export function prefixOf(model: nn.Module): string {
  return "namePrefix" in model ? String(model.namePrefix) : "";
}

/** The blocks of a model: modules in its list `layers`, or in that of its field `model`. Throws a ValueError if there are none. */
export function blocksOf(model: nn.Module): readonly nn.Module[] {
  const { layers, model: inner } = model.state;
  const found = layers ?? (inner instanceof nn.Module ? inner.state.layers : undefined);
  const blocks = Array.isArray(found) ? found.filter((layer) => layer instanceof nn.Module) : [];
  if (blocks.length > 0) return blocks;
  throw new mx.ValueError(`Expected a model with a list of layers: ${model.constructor.name} has none`);
}

/** Modules with their names, in mlx-lm's order. */
function named(module: nn.Module): [string, nn.Module][] {
  return module.namedModules();
}

/** A layer that can become one without adapter. */
interface Fusable extends nn.Module {
  fuse(dequantize?: boolean): nn.Module;
}

function isFusable(module: nn.Module): module is Fusable {
  return "fuse" in module && typeof module.fuse === "function";
}

/** Puts layers that compute the same without an adapter in the places of adapted ones: dense with `dequantize`. Gives how many. */
export function fuseLayers(model: nn.Module, dequantize: boolean = false): number {
  const found = named(model).flatMap(([name, module]) =>
    isFusable(module) ? [[name, module.fuse(dequantize)] as const] : []
  );
  replaceAll(model, found);
  return found.length;
}

/** Makes the quantized layers of a model dense. */
export function dequantizeLayers(model: nn.Module): void {
  replaceAll(
    model,
    named(model).flatMap(([name, module]): (readonly [string, nn.Module])[] => {
      if (module instanceof nn.QuantizedLinear) return [[name, linearWith(module, denseWeight(module), true)]];
      if (module instanceof nn.QuantizedEmbedding) return [[name, embeddingWith(module, denseWeight(module), true)]];
      if ("toDense" in module && typeof module.toDense === "function") return [[name, module.toDense() as nn.Module]];
      return [];
    }),
  );
}

/** Puts the adapted layers back in their places; the training is lost. */
export function removeLoraLayers(model: nn.Module): void {
  replaceAll(
    model,
    named(model).flatMap(([name, module]): (readonly [string, nn.Module])[] => {
      if (module instanceof LoRALinear || module instanceof DoRALinear || module instanceof LoRASwitchLinear) {
        return [[name, module.linear]];
      }
      if (module instanceof LoRAEmbedding || module instanceof DoRAEmbedding) {
        return [[name, module.embedding]];
      }
      return [];
    }),
  );
}

/**
 * Makes every block of a model recompute its intermediate arrays for gradients instead of keeping them, until the result is
 * disposed.
 */
export function checkpointLayers(model: TrainableModel): Disposable {
  const layers = blocksOf(model);
  for (const layer of layers) {
    const forward = layer.forward.bind(layer);
    const value = (...args: unknown[]): unknown => nn.checkpoint(layer, forward)(...args);
    Object.defineProperty(layer, "forward", { value, configurable: true, enumerable: false });
  }
  return {
    [Symbol.dispose]: () => {
      for (const layer of layers) Reflect.deleteProperty(layer, "forward");
    },
  };
}
