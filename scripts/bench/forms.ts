/**
 * The forms that a decode step may have: which kernels compute its layers, and whether all layers are one dispatch.
 *
 * @module
 */

import type { KernelTime } from "../../mod.ts";
import type { options } from "../../src/schedule/plan/options.ts";

/**
 * How a step is computed: one sequence by columns or by rows of its matrices, several by a grid of the former, in a batch, or by the products
 * of prompts.
 */
export type Form =
  | "columns, one dispatch"
  | "columns, barriers"
  | "rows, one dispatch"
  | "rows, barriers"
  | "grid"
  | "products"
  | "batch, one dispatch"
  | "batch, barriers";

/** A step that was not fused. */
export const OP_BY_OP = "op by op";

/** What forces a form. Regions are on, so that software devices have the one that they can. */
export const FORCED: Readonly<Record<Form, Partial<typeof options>>> = {
  "columns, one dispatch": { regions: "on", rows: "off", fast: "whole" },
  "columns, barriers": { regions: "on", rows: "off", fast: "barriers" },
  "rows, one dispatch": { regions: "on", rows: "on", fast: "whole" },
  "rows, barriers": { regions: "on", rows: "on", fast: "barriers" },
  "grid": { regions: "on", batch: "off", fast: "barriers" },
  "products": { regions: "on", batch: "off", fast: "barriers" }, // or a grid, whichever serves
  "batch, one dispatch": { regions: "on", batch: "on", fast: "whole" },
  "batch, barriers": { regions: "on", batch: "on", fast: "barriers" },
};

/** The forms of one sequence, and of several. */
export const FORMS: Readonly<Record<"one" | "several", readonly Form[]>> = {
  one: ["columns, barriers", "columns, one dispatch", "rows, barriers", "rows, one dispatch"],
  several: ["grid", "products", "batch, barriers", "batch, one dispatch"],
};

/** Which kernels a form's layers have, without whether they are one dispatch. */
export function kindOf(form: Form): string {
  return form.split(",")[0];
}

/** Kernels that compute layers in a step. */
export const LAYER_KERNELS = /^(decode_(qkv|attention|mlp|layers|rows)|batch_layers)/;

/** Calls of a kernel. */
type Calls = Pick<KernelTime, "region" | "kernel" | "calls">;

/** What ran in more tokens behind the same prompts, by the kernels of a profile of many and of few. */
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
 * The form in which steps of so many sequences ran, by the kernels of a profile, of several sequences {@link inSteps}; undefined of steps
 * that were not fused.
 */
export function formOf(kernels: readonly Calls[], sequences: number): Form | undefined {
  if (sequences > 1 && kernels.some(({ region }) => region === "prompt layer")) return "products";
  const step = kernels.filter(({ region }) => region === "decoder step");
  const calls = (name: string): number =>
    step.reduce((sum, { kernel, calls }) => kernel.startsWith(name) ? sum + calls : sum, 0);
  if (step.length === 0) return undefined;
  if (calls("batch_head") > 0) {
    // One dispatch a token, or several for each layer; the runs of few tokens that were taken off may have had another form.
    return calls("batch_layers") <= calls("batch_head") ? "batch, one dispatch" : "batch, barriers";
  }
  if (sequences > 1) return "grid";
  if (calls("decode_rows") > 0) return calls("decode_rows_phase") > 0 ? "rows, barriers" : "rows, one dispatch";
  return calls("decode_qkv") > 0 ? "columns, barriers" : "columns, one dispatch";
}
