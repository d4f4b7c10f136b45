/**
 * The content of a plot for every renderer: panels with axes and marks. Everything in it is of a bounded size.
 *
 * @module
 */

import type { ColorMap } from "../display/color.ts";
import type { Matrix } from "../display/raster.ts";
import type { Scale } from "./ticks.ts";

/** Points in the order in which they are joined or drawn; those that have no place on the axes are NaN. */
export interface Series<Kind extends "line" | "points" = "line" | "points"> {
  readonly kind: Kind;
  readonly name: string;
  readonly x: ArrayLike<number>;
  readonly y: ArrayLike<number>;
}

/** Bars beside each other on the axis. */
export interface Bars {
  readonly kind: "bars";
  /** Edges of the bars, one more than there are. */
  readonly edges: readonly number[];
  readonly heights: readonly number[];
}

/** A matrix as colours; its rows run down. */
export interface Cells {
  readonly kind: "cells";
  readonly matrix: Matrix;
  readonly range: readonly [number, number];
  readonly colorMap: ColorMap;
}

/** Pixels. */
export interface Picture {
  readonly kind: "picture";
  readonly rgba: Uint8Array;
  readonly columns: number;
  readonly rows: number;
}

/** An axis. */
export interface Axis {
  readonly label: string;
  readonly scale: Scale;
  /** Labels at 0, 1, … in place of numbers. */
  readonly names?: readonly string[];
  /** Whether it counts rows or columns, which have no fractions. */
  readonly whole?: boolean;
  /** Without marks and line. */
  readonly hidden?: boolean;
}

/** One pair of axes. */
export interface Panel {
  readonly title: string;
  readonly x: Axis;
  readonly y: Axis;
  /** Series, or one mark of another kind. */
  readonly marks: readonly (Series<"line"> | Series<"points"> | Bars | Cells | Picture)[];
  /** Whether names of series are shown. */
  readonly legend: boolean;
}

/** A plot. */
export interface Figure {
  readonly title: string;
  /** Its content in a sentence, for readers who cannot see it. */
  readonly description: string;
  /** Pixels of the whole. */
  readonly width: number;
  readonly height: number;
  readonly panels: readonly Panel[];
  /** Panels beside each other. */
  readonly columns: number;
}

/** The series of a panel. */
export function seriesOf(panel: Panel): readonly Series[] {
  return panel.marks.filter((mark): mark is Series<"line"> | Series<"points"> =>
    mark.kind === "line" || mark.kind === "points"
  );
}
