/**
 * Which matrices of a model are quantized, and in how many bits: one width for all, mlx-lm's mixed recipes, or what a function says.
 *
 * @module
 */

import type { QuantizationMode } from "../../graph/quantization.ts";
import type { Quantization } from "../config/model.ts";
import type { WeightModule } from "../layers/modules.ts";

/** Bits of the matrices that a recipe gives fewer, and more. */
const RECIPES = {
  mixed_2_6: [2, 6],
  mixed_3_4: [3, 4],
  mixed_3_6: [3, 6],
  mixed_4_6: [4, 6],
} as const satisfies Record<string, readonly [low: number, high: number]>;

/** A mixed recipe: more bits for the values and the down projections of some layers, and for the head. */
export type QuantRecipe = keyof typeof RECIPES;

/** The recipes by name. */
export const QUANT_RECIPES = Object.keys(RECIPES) as readonly QuantRecipe[];

/**
 * Says of a module whether and how it is quantized: `true` as all are, an object otherwise than those, `false` not at all.
 */
export type QuantPredicate = (path: string, shape: readonly number[]) => boolean | Quantization;

/** How a module is quantized, as config.json says it: a group size that was not given is null there and means 64. */
export interface QuantizationRow {
  readonly groupSize: number | null;
  readonly bits: number;
  /** Default affine. */
  readonly mode?: QuantizationMode;
  /** Whether config.json leaves the mode out. */
  readonly withoutMode?: boolean;
}

/** The format that a recipe gives to a module. Layers count as mlx-lm counts them: all matrices outside of the layers as the first. */
export function ofRecipe(
  recipe: QuantRecipe,
  path: string,
  layers: number,
  groupSize: number | undefined,
): QuantizationRow {
  const [low, high] = RECIPES[recipe];
  const layer = Number(/\.layers\.(\d+)\./.exec(path)?.[1] ?? 0);
  const eighth = Math.floor(layers / 8);
  const more = layer < eighth || layer >= Math.floor(7 * layers / 8) || modulo(layer - eighth, 3) === 2;
  const wide = path.includes("lm_head") || (more && (path.includes("v_proj") || path.includes("down_proj")));
  return { groupSize: groupSize ?? null, bits: wide ? high : low };
}

/** The remainder that has the divisor's sign, as Python's. */
function modulo(a: number, b: number): number {
  return ((a % b) + b) % b;
}

/** The matrices that are quantized, with the entry of config.json for each; `own` where it must name the module. */
export function chosen(
  modules: readonly WeightModule[],
  base: Quantization,
  row: (module: WeightModule) => boolean | QuantizationRow,
): Map<string, { readonly row: QuantizationRow; readonly own: boolean }> {
  const found = new Map<string, { readonly row: QuantizationRow; readonly own: boolean }>();
  for (const module of modules) {
    if (module.isDense || module.shape.length < 2 || module.shape.at(-1)! % base.groupSize !== 0) continue;
    const said = row(module);
    if (said === true) found.set(module.path, { row: base, own: false });
    else if (said !== false) found.set(module.path, { row: said, own: true });
  }
  return found;
}
