/**
 * The input of plots as numbers: arrays, lists and typed arrays, and the options of all plots.
 *
 * @module
 */

import { array } from "../array/ops/creation.ts";
import { Tensor, type TensorLike } from "../array/tensor/tensor.ts";
import { quoted, ShapeError, ValueError } from "../graph/error.ts";
import { checkOptions } from "../graph/options.ts";
import { COLOR_MAPS, type ColorMap } from "../display/color.ts";
import { extent } from "../display/raster.ts";
import { type Scale, scaleOf } from "./ticks.ts";

/** Values in row-major order. */
export interface Values {
  readonly shape: readonly number[];
  readonly values: Float64Array;
  /** Whether they are integers of 8 bits, as those of pictures. */
  readonly bytes: boolean;
}

/** Options of every plot. */
export interface PlotOptions {
  /** Stands above the plot. */
  readonly title?: string;
  /** Stands below the horizontal axis. */
  readonly xlabel?: string;
  /** Stands beside the vertical axis. */
  readonly ylabel?: string;
  /** Pixels; default 640. */
  readonly width?: number;
  /** Pixels. */
  readonly height?: number;
}

/** Names of {@link PlotOptions}. */
export const PLOT_OPTIONS = {
  title: true,
  xlabel: true,
  ylabel: true,
  width: true,
  height: true,
} as const satisfies Record<
  keyof PlotOptions,
  true
>;

/** The values of an argument; evaluates it. */
export function valuesOf(op: string, data: TensorLike): Values {
  if (data instanceof Tensor) {
    return {
      shape: data.shape,
      values: Float64Array.from(data.toTypedArray(), Number),
      bytes: data.dtype.name === "uint8",
    };
  }
  if (data instanceof Float64Array) return { shape: [data.length], values: data, bytes: false };
  if (data === undefined) throw new ValueError(`${op}() expected an array: found nothing`);
  using made = array(data); // refuses what is none
  return valuesOf(op, made);
}

/** Whether an argument is an object of options. */
export function isOptions(value: unknown): value is object {
  return typeof value === "object" && value !== null && !(value instanceof Tensor) && !Array.isArray(value) &&
    !ArrayBuffer.isView(value);
}

interface OptionKind {
  readonly expected: string;
  readonly holds: (value: unknown) => boolean;
}

const TEXT: OptionKind = { expected: "a text", holds: (value) => typeof value === "string" };
const TEXTS: OptionKind = {
  expected: "a list of texts",
  holds: (value) => Array.isArray(value) && value.every((text) => typeof text === "string"),
};
const SWITCH: OptionKind = { expected: "true or false", holds: (value) => typeof value === "boolean" };
const PIXELS: OptionKind = {
  expected: "a number of pixels from 80 to 4096",
  holds: (value) => typeof value === "number" && value >= 80 && value <= 4096,
};

/** The options of all plots, by name. */
const KINDS: Readonly<Record<string, OptionKind>> = {
  title: TEXT,
  xlabel: TEXT,
  ylabel: TEXT,
  width: PIXELS,
  height: PIXELS,
  labels: TEXTS,
  tokens: TEXTS,
  queryTokens: TEXTS,
  xlog: SWITCH,
  ylog: SWITCH,
  bins: {
    expected: "a whole number from 1 to 1000",
    holds: (value) => Number.isInteger(value) && value as number >= 1 && value as number <= 1000,
  },
  range: {
    expected: "two finite numbers, the lesser first",
    holds: (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite) && value[0] < value[1],
  },
  colorMap: {
    expected: `one of ${COLOR_MAPS.join(", ")}`,
    holds: (value) => COLOR_MAPS.includes(value as ColorMap),
  },
};

/** Throws a ValueError for names that are not in `known` and for values of another kind. */
export function checkPlotOptions(op: string, options: object, known: Readonly<Record<string, true>>): void {
  checkOptions(op, options, known);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || KINDS[name].holds(value)) continue;
    throw new ValueError(`${op}() expected ${name} to be ${KINDS[name].expected}: found ${quoted(value)}`);
  }
}

/** The series of a plot: those of one axis, or the rows of two. */
export function seriesValues(op: string, { shape, values }: Values): Float64Array[] {
  if (shape.length === 0) return [values];
  if (shape.length === 1) return [values];
  if (shape.length > 2) throw new ShapeError(`${op}() expected an array of one or two axes: found shape (${shape})`);
  const [rows, columns] = shape;
  if (rows > 100) throw new ShapeError(`${op}() draws at most 100 series, the rows of an array: found ${rows}`);
  return Array.from({ length: rows }, (_, i) => values.subarray(i * columns, (i + 1) * columns));
}

/** Values that have a place on an axis; others are NaN. */
export function placeable(values: ArrayLike<number>, log: boolean): Float64Array {
  return Float64Array.from(values, (value) => Number.isFinite(value) && !(log && value <= 0) ? value : NaN);
}

/** The scale of an axis that holds all of some values, with a little room. */
export function scaleFor(all: readonly ArrayLike<number>[], log: boolean, room: number): Scale {
  const extents = all.flatMap((values) => extent(values) ?? []);
  const { low, high } = scaleOf(extent(extents), log);
  if (room === 0) return { low, high, log };
  if (log) return { low: low / (high / low) ** room, high: high * (high / low) ** room, log };
  const more = (high / 2 - low / 2) * 2 * room;
  return Number.isFinite(more) ? { low: low - more, high: high + more, log } : { low, high, log };
}
