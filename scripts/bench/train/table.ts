/**
 * The tables of `deno task bench:train`: milliseconds and ratios on the CPU, shares of a GPU's matrix units.
 *
 * @module
 */

import type { TrainRow } from "./measure.ts";
import type { Manner } from "./cases.ts";

/** Manners as a column says them. */
export function mannerName({ compiled, checkpoint }: Manner): string {
  return [compiled ? "compiled" : "eager", ...checkpoint ? ["checkpoint"] : []].join(", ");
}

const fixed = (value: number | null, places: number): string => value === null ? "-" : value.toFixed(places);

/** A column: its title and what it says of a row. */
type Column = readonly [title: string, cell: (row: TrainRow) => string];

const COMMON: readonly Column[] = [
  ["model", (row) => row.case],
  ["manner", (row) => mannerName(row.manner)],
  ["step ms", (row) => fixed(row.step, 2)],
  ["forward ms", (row) => fixed(row.forward, 2)],
  ["step / forward", (row) => fixed(row.step / row.forward, 2)],
  ["items/s", (row) => `${Math.round(row.items / row.step * 1000)} ${row.unit}`],
  ["peak MB", (row) => fixed(row.peak / 1e6, 0)],
  ["dispatches", (row) => String(row.dispatches)],
];

/** Of the CPU: how many times as fast as MLX it is. */
const COMPARED: readonly Column[] = [
  ["mlx ms", (row) => fixed(row.mlx, 2)],
  ["mlx peak MB", (row) => fixed(row.mlxPeak === null ? null : row.mlxPeak / 1e6, 0)],
  ["ratio", (row) => fixed(row.mlx === null ? null : row.mlx / row.step, 2)],
];

/** Of a GPU, whose matrix units reach so many TFLOP/s. */
const rates = (peak: number): readonly Column[] => [
  ["TFLOP/s", (row) => fixed(row.flops / row.step / 1e9, 1)],
  [`of ${peak}`, (row) => `${fixed(row.flops / row.step / 1e9 / peak * 100, 1)} %`],
];

/** The table as text: beside MLX where it ran, with shares of so many TFLOP/s if they are given. */
export function describeTraining(rows: readonly TrainRow[], peak?: number, version?: string): string {
  const columns = [...COMMON, ...peak === undefined ? [] : rates(peak), ...version === undefined ? [] : COMPARED];
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  const head = columns.map(([title]) => title);
  const widths = head.map((title, i) => Math.max(title.length, ...cells.map((line) => line[i].length)));
  const lines = [head, ...cells].map((line) =>
    line.map((cell, i) => i < 2 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])).join("  ").trimEnd()
  );
  return [...lines, ...version === undefined ? [] : ["", `mlx ${version}`]].join("\n") + "\n";
}
