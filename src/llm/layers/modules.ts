/**
 * The modules of a decoder that hold weights. Their fields have the order of mlx-lm's classes. The converter writes modules and
 * fills files in this order.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { namedLeaves } from "../../nn/tree.ts";
import { attentionOf, type DecoderConfig } from "../config/decoder.ts";
import type { RopeScaling } from "../config/rope.ts";
import { Weights } from "../checkpoint/weights.ts";
import { DecoderModel } from "./decoder_model.ts";

/** A module with weights. */
export interface WeightModule {
  /** "model.layers.0.mlp.down_proj", or the name of an array that no module for weights has. */
  readonly path: string;
  /** Shape of its weight; with two axes it can be quantized. */
  readonly shape: readonly number[];
  /** Whether it has a bias. */
  readonly bias: boolean;
  /** Whether the path is the name of an array. */
  readonly isArray: boolean;
}

/** The order of modules in mlx-lm, where it is not that of the fields here. */
export interface ModuleOrder {
  /** Of the model, but for its head, which is the last one. */
  readonly model?: readonly string[];
  /** Of a layer. */
  readonly layer?: readonly string[];
}

const MODEL_ORDER = ["embed_tokens", "layers", "norm"];
/** Above what the reader of config.json takes, and above the parts of a layer. */
const [MAX_LAYERS, MAX_PARTS] = [1e4, 100];

/** Scalings of positions that need a table of wavelengths. */
const TABLES: ReadonlySet<RopeScaling["type"]> = new Set(["llama3", "yarn", "longrope"]);

/** The modules of a decoder: those of a model that is never evaluated, so its arrays take no memory. `hasHead` says whether a head is stored. */
export function decoderModules(config: DecoderConfig, hasHead: boolean, order: ModuleOrder): WeightModule[] {
  const { tieWordEmbeddings = !hasHead } = config;
  const dense = { ...config, tieWordEmbeddings, quantization: undefined };
  using model = new DecoderModel(dense, new Weights("", dense, new Map(), mx.float32));
  const parameters = new Map(namedLeaves(model.parameters()) as [string, Tensor][]);
  const modules = [...parameters].filter(([name]) => !name.endsWith(".bias")).map(([name, { shape }]) => {
    const isArray = !name.endsWith(".weight");
    const path = isArray ? name : name.slice(0, -".weight".length);
    return { path, shape, bias: parameters.has(`${path}.bias`), isArray };
  });
  return inOrder(modules, order);
}

/** Modules in an order by names: those of the model, and those of each layer. */
function inOrder(modules: readonly WeightModule[], { model = MODEL_ORDER, layer = [] }: ModuleOrder): WeightModule[] {
  const ranks = new Map(modules.map((module) => {
    const [, part, number = "0", inside = ""] = /^model\.(\w+)(?:\.(\d+)\.(\w+))?/.exec(module.path) ?? [];
    const place = part === undefined ? model.length : model.indexOf(part);
    return [module, (place * MAX_LAYERS + Number(number)) * MAX_PARTS + layer.indexOf(inside)] as const;
  }));
  return modules.toSorted((a, b) => ranks.get(a)! - ranks.get(b)!);
}

/** Bytes of the float32 wavelengths that each layer of mlx-lm's model keeps where positions are stretched other than evenly. */
export function ropeTableBytes(config: DecoderConfig): number {
  const { layers, headDim, ropeDims = headDim } = config;
  const scalings = Array.from({ length: layers }, (_, i) => attentionOf(config, i).rope?.ropeScaling.type ?? "default");
  return scalings.filter((type) => TABLES.has(type)).length * ropeDims / 2 * 4;
}
