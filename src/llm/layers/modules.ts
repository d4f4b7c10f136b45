/**
 * The modules of a decoder that hold weights. Their fields have the order of mlx-lm's classes. The converter writes modules and
 * fills files in this order.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { sizeOf } from "../../graph/shape.ts";
import { namedLeaves } from "../../nn/tree.ts";
import { attentionOf, type DecoderConfig } from "../config/decoder.ts";
import { kindOf } from "../config/layer_kinds.ts";
import type { RopeScaling } from "../config/rope.ts";
import { Weights } from "../checkpoint/weights.ts";
import { DecoderModel } from "./decoder_model.ts";

/** A module with weights. */
export interface WeightModule {
  /** "model.layers.0.mlp.down_proj", or the name of an array that no module for weights has. */
  readonly path: string;
  /** Shape of its weight; with two axes it can be quantized. */
  readonly shape: readonly number[];
  /** Elements of its bias; 0 without one. */
  readonly bias: number;
  /** Whether the path is the name of an array. */
  readonly isArray: boolean;
  /** Whether mlx-lm has no quantized form of it. */
  readonly isDense: boolean;
  /** Whether mlx-lm counts it among the parameters: arrays of modules that have others are left out. */
  readonly isCounted: boolean;
}

/** The order of modules in mlx-lm, where it is not that of the fields here. */
export interface ModuleOrder {
  /** Of the model, but for its head, which is the last one. */
  readonly model?: readonly string[];
  /** Of a layer; the first entry that is a module's name in it, or the beginning of that name, counts. */
  readonly layer?: readonly string[];
  /** Of a part of a layer; others stay as they are. */
  readonly part?: readonly string[];
}

/** The table of further vectors of tokens. Made here with one row: that of Gemma 4 has more elements than an array may have. */
const LAYER_TABLE = "model.embed_tokens_per_layer";
const MODEL_ORDER = ["embed_tokens", "layers", "norm"];
/** Above what the reader of config.json takes, and above the parts of a layer. */
const [MAX_LAYERS, MAX_PARTS] = [1e4, 100];

/** Scalings of positions that need a table of wavelengths. */
const TABLES: ReadonlySet<RopeScaling["type"]> = new Set(["llama3", "yarn", "longrope", "proportional"]);

/** The heads that a checkpoint stores. */
export interface StoredHeads {
  /** The head of logits. */
  readonly head: boolean;
  /** The head that drafts tokens. */
  readonly draftHead: boolean;
}

/**
 * The modules of a decoder: those of a model that is never evaluated, so its arrays take no memory. `stored` says which heads there are.
 * Paths that end as one of `denseEnds` have no quantized form.
 */
export function decoderModules(
  config: DecoderConfig,
  stored: StoredHeads,
  order: ModuleOrder,
  denseEnds: readonly string[],
): WeightModule[] {
  const { tieWordEmbeddings = !stored.head } = config;
  const { layerInputs } = config;
  const dense = {
    ...config,
    tieWordEmbeddings,
    quantization: undefined,
    ...(layerInputs && { layerInputs: { ...layerInputs, vocabSize: 1 } }),
  };
  using model = new DecoderModel(dense, new Weights("", dense, new Map(), mx.float32), stored.draftHead);
  const parameters = new Map(namedLeaves(model.parameters()) as [string, Tensor][]);
  const modules = [...parameters].filter(([name]) => !name.endsWith(".bias")).map(([name, { shape: made }]) => {
    const isArray = !name.endsWith(".weight");
    const path = isArray ? name : name.slice(0, -".weight".length);
    const shape = path === LAYER_TABLE ? [layerInputs!.vocabSize, ...made.slice(1)] : made;
    const bias = parameters.get(`${path}.bias`)?.size ?? 0;
    const isDense = denseEnds.some((end) => path.endsWith(end));
    const isCounted = !isArray || parameters.has(`${path.slice(0, path.lastIndexOf("."))}.weight`);
    return { path, shape, bias, isArray, isDense, isCounted };
  });
  return inOrder(modules, order);
}

/** Modules in an order by names: those of the model, and those of each layer. */
function inOrder(
  modules: readonly WeightModule[],
  { model = MODEL_ORDER, layer = [], part: within = [] }: ModuleOrder,
): WeightModule[] {
  const ranks = new Map(modules.map((module) => {
    const [, part, number = "0", inner = "", inside, name = ""] =
      /^model\.(\w+)(?:\.(\d+)\.((\w+)(?:\.(\w+))?.*))?/.exec(module.path) ?? [];
    const place = part === undefined ? model.length : model.indexOf(part);
    const own = layer.findIndex((entry) => `${inner}.`.startsWith(`${entry}.`));
    const rank = (place * MAX_LAYERS + Number(number)) * MAX_PARTS + own;
    return [module, { rank, inside, within: within.indexOf(name) }] as const;
  }));
  return modules.toSorted((x, y) => {
    const [a, b] = [ranks.get(x)!, ranks.get(y)!];
    return a.rank - b.rank || (a.inside === b.inside ? a.within - b.within : 0);
  });
}

/** Bytes of the float32 wavelengths that each layer of mlx-lm's model keeps where positions are stretched other than evenly. */
export function ropeTableBytes(config: DecoderConfig): number {
  const layers = Array.from({ length: config.layers }, (_, layer) => layer);
  const attentions = layers.filter((layer) => kindOf(config, layer) === "attention")
    .map((layer) => attentionOf(config, layer));
  const tables = attentions.filter(({ rope }) => rope !== undefined && TABLES.has(rope.ropeScaling.type));
  return tables.reduce((sum, { headDim }) => sum + (config.ropeDims ?? headDim) / 2 * 4, 0);
}

/** Weights of a model as mlx-lm counts them: the same number whether its matrices are quantized or not. */
export function countParameters(modules: readonly WeightModule[]): number {
  return modules.filter(({ isCounted }) => isCounted).reduce((sum, { shape, bias }) => sum + sizeOf(shape) + bias, 0);
}
