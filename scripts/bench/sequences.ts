/**
 * Several sequences together, as benchmarks measure them: the forms that a step may have, their cases, and the table of all.
 *
 * @module
 */

import type { KernelTime } from "../../mod.ts";
import type { options } from "../../src/schedule/plan/options.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { type Case, type Row, row, type Times } from "./compare.ts";

/** How a step of several sequences is computed: a column of the table. */
export type Form = "grid" | "barriers" | "one dispatch";

/** What forces a form. Regions are on, so that software devices have the one that they can. */
export const FORCED: Readonly<Record<Form, Partial<typeof options>>> = {
  "grid": { regions: "on", batch: "off", fast: "barriers" },
  "barriers": { regions: "on", batch: "on", fast: "barriers" },
  "one dispatch": { regions: "on", batch: "on", fast: "whole" },
};

/** The forms, in the order of the table. */
export const FORMS: readonly Form[] = Object.keys(FORCED) as Form[];

/** What a program takes unasked. It is measured first: one dispatch that fails when it is forced is not taken afterwards. */
const OF_ITSELF = "of itself";
const COLUMNS = [OF_ITSELF, ...FORMS] as const;

/** The form in which steps ran, by the kernels of a profile; undefined of steps that were not fused. */
export function formOf(kernels: readonly Pick<KernelTime, "region" | "kernel" | "calls">[]): Form | undefined {
  const step = kernels.filter(({ region }) => region === "decoder step");
  const calls = (name: string): number =>
    step.reduce((sum, { kernel, calls }) => kernel.startsWith(name) ? sum + calls : sum, 0);
  if (step.length === 0) return undefined;
  if (calls("batch_head") === 0) return "grid";
  return calls("batch_layers") === calls("batch_head") ? "one dispatch" : "barriers";
}

/** A cell of the table. */
interface Cell {
  readonly sequences: number;
  readonly column: typeof COLUMNS[number];
  readonly case: Case;
}

/** The cells for some numbers of sequences, each decoded in the way of `like`; a column at a time. */
export function sequenceCells(counts: readonly number[], like: Case): readonly Cell[] {
  return COLUMNS.flatMap((column) =>
    counts.map((sequences) => ({
      sequences,
      column,
      case: {
        ...like,
        name: `${like.name}, ${sequences} sequences, ${column}`,
        rows: sequences,
        form: column === OF_ITSELF ? "any" : column,
      },
    }))
  );
}

/** A cell's result; null where the device or the model does not have the form. */
export interface SequenceRow extends Row {
  readonly sequences: number;
  readonly column: string;
  /** Microseconds in which every sequence gets a token. */
  readonly step_us: number | null;
  /** The form that ran; null of steps that were not fused. */
  readonly form: Form | null;
}

/** The results of all cells, by the number of sequences. */
export function sequenceRows(
  cells: readonly Cell[],
  times: Times,
  forms: Readonly<Record<string, Form | null>>,
): readonly SequenceRow[] {
  return cells.toSorted((a, b) => a.sequences - b.sequences).map(({ sequences, column, case: { name } }) => {
    const ms = median(times[name]);
    return {
      ...row(name, ms && 1000 / ms, null, null, "tok/s"),
      sequences,
      column,
      step_us: ms && 1000 * ms * sequences,
      form: forms[name] ?? null,
    };
  });
}

/** The table: tokens a second of all sequences, and behind them the microseconds of a step. */
export function describeSequences(rows: readonly SequenceRow[]): string {
  const lines = [["sequences", ...FORMS, OF_ITSELF]];
  for (const [sequences, cells] of Map.groupBy(rows, (r) => r.sequences)) {
    const cell = (column: string): string => {
      const { vkmx, step_us: us, form } = cells.find((r) => r.column === column)!;
      if (vkmx === null || us === null) return "-";
      const took = column === OF_ITSELF ? `, ${form ?? "op by op"}` : "";
      return `${vkmx.toFixed(0)} (${us.toFixed(0)} us)${took}`;
    };
    lines.push([String(sequences), ...lines[0].slice(1).map(cell)]);
  }
  return lines.map((cells) => cells.map((text) => text.padEnd(20)).join("").trimEnd() + "\n").join("");
}
