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
  /** "model.layers.0.mlp.down_proj" */
  readonly path: string;
  /** Shape of its weight; with two axes it can be quantized. */
  readonly shape: readonly number[];
  /** Whether it has a bias. */
  readonly bias: boolean;
}

/** Scalings of positions that need a table of wavelengths. */
const TABLES: ReadonlySet<RopeScaling["type"]> = new Set(["llama3", "yarn", "longrope"]);

/** The modules of a decoder: those of a model that is never evaluated, so its arrays take no memory. `hasHead` says whether a head is stored. */
export function decoderModules(config: DecoderConfig, hasHead: boolean, order: readonly string[]): WeightModule[] {
  const { tieWordEmbeddings = !hasHead } = config;
  const dense = { ...config, tieWordEmbeddings, quantization: undefined };
  using model = new DecoderModel(dense, new Weights("", dense, new Map(), mx.float32));
  const parameters = new Map(namedLeaves(model.parameters()) as [string, Tensor][]);
  const modules = [...parameters].filter(([name]) => name.endsWith(".weight")).map(([name, { shape }]) => {
    const path = name.slice(0, -".weight".length);
    return { path, shape, bias: parameters.has(`${path}.bias`) };
  });
  return order.length === 0 ? modules : inOrder(modules, order);
}

/** Modules with those of each layer in the order of their names. */
function inOrder(modules: readonly WeightModule[], order: readonly string[]): WeightModule[] {
  const places = modules.map(({ path }) => {
    const [, layer = path, name = ""] = /\.layers\.(\d+)\.([^.]+)/.exec(path) ?? [];
    return { layer, place: order.indexOf(name) };
  });
  const groups = new Map([...new Set(places.map(({ layer }) => layer))].map((layer, group) => [layer, group]));
  const rank = (i: number): number => groups.get(places[i].layer)! * (order.length + 1) + places[i].place;
  return modules.map((_, i) => i).toSorted((a, b) => rank(a) - rank(b)).map((i) => modules[i]);
}

/** Bytes of the float32 wavelengths that each layer of mlx-lm's model keeps where positions are stretched other than evenly. */
export function ropeTableBytes(config: DecoderConfig): number {
  const { layers, headDim, ropeDims = headDim } = config;
  const scalings = Array.from({ length: layers }, (_, i) => attentionOf(config, i).rope?.ropeScaling.type ?? "default");
  return scalings.filter((type) => TABLES.has(type)).length * ropeDims / 2 * 4;
}
