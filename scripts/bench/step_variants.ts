/**
 * The variants that a decode step may have: which kernels compute its layers, and whether all layers are one dispatch.
 *
 * @module
 */

import type { KernelTime } from "../../mod.ts";
import type { options } from "../../src/schedule/plan/options.ts";

/**
 * How a step is computed. One sequence takes the split_k or gemv kernels. Several take a grid of the split_k ones, the batched kernels or
 * the prefill GEMMs.
 */
export type StepVariant =
  | "split_k, persistent"
  | "split_k, barriers"
  | "gemv, persistent"
  | "gemv, barriers"
  | "grid"
  | "products"
  | "batched, persistent"
  | "batched, barriers";

/** A step that was not fused. */
export const OP_BY_OP = "op by op";

/** Options that force a variant. Regions are on, so that software devices have the one that they can. */
export const FORCED: Readonly<Record<StepVariant, Partial<typeof options>>> = {
  "split_k, persistent": { regions: "on", gemv: "off", launchMode: "persistent" },
  "split_k, barriers": { regions: "on", gemv: "off", launchMode: "barriers" },
  "gemv, persistent": { regions: "on", gemv: "on", launchMode: "persistent" },
  "gemv, barriers": { regions: "on", gemv: "on", launchMode: "barriers" },
  "grid": { regions: "on", batched: "off", launchMode: "barriers" },
  "products": { regions: "on", batched: "off", launchMode: "barriers" }, // or a grid, whichever serves
  "batched, persistent": { regions: "on", batched: "on", launchMode: "persistent" },
  "batched, barriers": { regions: "on", batched: "on", launchMode: "barriers" },
};

/** The variants of one sequence, and of several. */
export const VARIANTS: Readonly<Record<"one" | "several", readonly StepVariant[]>> = {
  one: ["split_k, barriers", "split_k, persistent", "gemv, barriers", "gemv, persistent"],
  several: ["grid", "products", "batched, barriers", "batched, persistent"],
};

/** Which kernels a variant's layers have, without whether they are one dispatch. */
export function kindOf(variant: StepVariant): string {
  return variant.split(",")[0];
}

/** Kernels that compute layers in a step. */
export const LAYER_KERNELS = /^(decode_(qkv|attention|mlp|layers|gemv)|batch_layers)/;

/** Calls of a kernel. */
type Calls = Pick<KernelTime, "region" | "kernel" | "calls">;

/** The kernels that ran for more tokens after the same prompts, from a profile of many tokens and one of few. */
export function inSteps(many: readonly Calls[], few: readonly Calls[]): readonly Calls[] {
  const key = ({ region, kernel }: Calls): string => `${region} ${kernel}`;
  const before = new Map<string, number>();
  for (const row of few) before.set(key(row), (before.get(key(row)) ?? 0) + row.calls);
  return Map.groupBy(many, key).values().map((rows) => ({
    ...rows[0],
    calls: rows.reduce((sum, { calls }) => sum + calls, 0) - (before.get(key(rows[0])) ?? 0),
  })).filter(({ calls }) => calls > 0).toArray();
}

/**
 * The variant in which steps of so many sequences ran, by the kernels of a profile; for several sequences {@link inSteps}. Undefined if the
 * steps were not fused.
 */
export function variantOf(kernels: readonly Calls[], sequences: number): StepVariant | undefined {
  if (sequences > 1 && kernels.some(({ region }) => region === "prompt layer")) return "products";
  const step = kernels.filter(({ region }) => region === "decoder step");
  const calls = (name: string): number =>
    step.reduce((sum, { kernel, calls }) => kernel.startsWith(name) ? sum + calls : sum, 0);
  if (step.length === 0) return undefined;
  if (calls("batch_head") > 0) {
    // One dispatch a token, or several for each layer; the runs of few tokens that were taken off may have had another variant.
    return calls("batch_layers") <= calls("batch_head") ? "batched, persistent" : "batched, barriers";
  }
  if (sequences > 1) return "grid";
  if (calls("decode_gemv") > 0) return calls("decode_gemv_phase") > 0 ? "gemv, barriers" : "gemv, persistent";
  return calls("decode_qkv") > 0 ? "split_k, barriers" : "split_k, persistent";
}
