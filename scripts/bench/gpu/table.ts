/**
 * Rows of `deno task bench:gpu`, one for each figure: what it is, its floor, its aim, the peer, and how far it is from each.
 *
 * @module
 */

import { type ComparedRow, figure, ratioOf, type Unit } from "../compare.ts";
import { TARGETS } from "./targets.ts";

/** A figure of a shape. Ratios above 1 say that vkmx is better; the share of the floor is at most 1. */
export interface GpuRow extends ComparedRow {
  readonly shape: string;
  /** The variant of the kernels that ran; null if that does not matter. */
  readonly variant: string | null;
  /** The best that the device could do. */
  readonly floor: number | null;
  /** How near to that it is. */
  readonly share: number | null;
  readonly aim: number | null;
  /** How the figure stands to the aim. */
  readonly of_aim: number | null;
  /** Why there is no figure, or more of it. */
  readonly note: string | null;
}

/** The parts of a row. */
export interface Figure {
  readonly shape: string;
  readonly case: string;
  /** Of its name in the table of targets: the case, and the variant if it was forced. */
  readonly target?: string;
  readonly variant?: string | null;
  readonly value: number | null;
  readonly unit: Unit;
  readonly floor?: number | null;
  readonly aim?: number;
  readonly peer?: number | null;
  readonly note?: string;
}

/** The row of a figure. */
export function gpuRow(f: Figure, peer: string): GpuRow {
  const { shape, value, unit, floor = null, variant = null } = f;
  const aim = f.aim ?? TARGETS[shape]?.[f.target ?? f.case] ?? null;
  return {
    shape,
    case: f.case,
    variant,
    vkmx: value,
    unit,
    floor,
    share: ratioOf(value, floor, unit),
    aim,
    of_aim: ratioOf(value, aim, unit),
    peer: f.peer == null ? null : peer,
    peer_value: f.peer ?? null,
    ratio: ratioOf(value, f.peer ?? null, unit),
    note: f.note ?? null,
  };
}

/** A column: its title, its width, and what it says. Rows are printed one by one, so widths are fixed. */
type Column = readonly [title: string, width: number, cell: (row: GpuRow) => string];

const times = (value: number | null): string => value === null ? "-" : value.toFixed(2);
const COLUMNS: readonly Column[] = [
  ["shape", 11, ({ shape }) => shape],
  ["case", 38, (row) => row.case],
  ["variant", 22, ({ variant }) => variant ?? "-"],
  ["vkmx", 13, ({ vkmx, unit }) => figure(vkmx, unit)],
  ["floor", 13, ({ floor, unit }) => figure(floor, unit)],
  ["share", 6, ({ share }) => share === null ? "-" : `${(100 * share).toFixed(0)} %`],
  ["aim", 13, ({ aim, unit }) => figure(aim, unit)],
  ["of aim", 7, ({ of_aim }) => times(of_aim)],
  ["peer", 13, ({ peer_value, unit }) => figure(peer_value, unit)],
  ["ratio", 6, ({ ratio }) => times(ratio)],
  ["", 0, ({ note }) => note ?? ""],
];

function line(cells: readonly string[]): string {
  return cells.map((cell, i) => cell.padEnd(COLUMNS[i][1])).join(" ").trimEnd() + "\n";
}

/** The line of titles. */
export const HEAD: string = line(COLUMNS.map(([title]) => title));

/** A row as a line. */
export function describeRow(row: GpuRow): string {
  return line(COLUMNS.map(([, , cell]) => cell(row)));
}
