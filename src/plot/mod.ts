/**
 * Plots of arrays: lines, points, histograms, pictures, heat maps and attention. Available as `mx.plot`.
 *
 * A cell of a notebook shows what these functions return as SVG or Vega-Lite, `console.log` as text, and `save("plot.svg")` writes a file.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.linspace(0, 6.28, 100);
 * const plot = mx.plot.line(x, mx.stack([mx.sin(x), mx.cos(x)]), { title: "Waves", labels: ["sin", "cos"] });
 * console.log(plot.svg.startsWith("<svg"), `${plot}`.split("\n")[0]);
 * ```
 *
 * @module
 */

import type { TensorLike } from "../array/tensor/tensor.ts";
import { ShapeError, ValueError } from "../graph/error.ts";
import type { ColorMap } from "../display/color.ts";
import {
  checkPlotOptions,
  isOptions,
  placeable,
  PLOT_OPTIONS,
  type PlotOptions,
  scaleFor,
  seriesValues,
  type Values,
  valuesOf,
} from "./data.ts";
import { lineIndices, pick, pointIndices } from "./downsample.ts";
import type { Axis, Cells, Figure, Panel, Series } from "./figure.ts";
import { Plot } from "./plot.ts";
import { extent, type Matrix, shrink } from "../display/raster.ts";

export type { ColorMap } from "../display/color.ts";
export type { PlotOptions } from "./data.ts";
export { Plot } from "./plot.ts";
export type { VegaLite } from "./vega.ts";

/** Options of {@link line} and {@link scatter}. */
export interface SeriesOptions extends PlotOptions {
  /** Names of the series, which a legend tells. */
  readonly labels?: readonly string[];
  /** Whether the horizontal axis is logarithmic; values of at most 0 are left out then. */
  readonly xlog?: boolean;
  /** Whether the vertical axis is logarithmic; values of at most 0 are left out then. */
  readonly ylog?: boolean;
}

/** Options of {@link hist}. */
export interface HistOptions extends PlotOptions {
  /** Number of bars; default chosen by the number of values. */
  readonly bins?: number;
  /** The values that the bars hold; default all. */
  readonly range?: readonly [number, number];
}

/** Options of {@link heatmap}. */
export interface HeatmapOptions extends PlotOptions {
  /** Colours; default "viridis". */
  readonly colorMap?: ColorMap;
  /** The values at the ends of the colours; default the least and the greatest. */
  readonly range?: readonly [number, number];
}

/** Options of {@link image}. */
export type ImageOptions = Omit<PlotOptions, "xlabel" | "ylabel">;

/** Options of {@link attention}. */
export interface AttentionOptions extends Omit<HeatmapOptions, "xlabel" | "ylabel"> {
  /** The text of each token that is attended to; the last of them are those that attend, where `queryTokens` tells no others. */
  readonly tokens?: readonly string[];
  /** The text of each token that attends. */
  readonly queryTokens?: readonly string[];
}

const SERIES_OPTIONS = { ...PLOT_OPTIONS, labels: true, xlog: true, ylog: true } as const satisfies Record<
  keyof SeriesOptions,
  true
>;
const HIST_OPTIONS = { ...PLOT_OPTIONS, bins: true, range: true } as const satisfies Record<keyof HistOptions, true>;
const HEATMAP_OPTIONS = { ...PLOT_OPTIONS, colorMap: true, range: true } as const satisfies Record<
  keyof HeatmapOptions,
  true
>;
const IMAGE_OPTIONS = { title: true, width: true, height: true } as const satisfies Record<keyof ImageOptions, true>;
const ATTENTION_OPTIONS = {
  ...IMAGE_OPTIONS,
  colorMap: true,
  range: true,
  tokens: true,
  queryTokens: true,
} as const satisfies Record<keyof AttentionOptions, true>;

const [WIDTH, HEIGHT] = [640, 400];
/** Room around series, as a share of their extent. */
const MARGIN = 0.04;
/** Most rows and columns of a matrix that is drawn. */
const MAX_CELLS = 512;
/** Most heads that are drawn. */
const MAX_HEADS = 64;

/** A figure of one panel, whose title is that of the figure. */
function single(options: PlotOptions, description: string, panel: Omit<Panel, "title">): Plot {
  const { title = "", width = WIDTH, height = HEIGHT } = options;
  return new Plot({ title, description, width, height, columns: 1, panels: [{ title: "", ...panel }] });
}

/** The figure of series in lines or points. */
function plotSeries(op: "line" | "scatter", args: readonly unknown[]): Plot {
  const options = (isOptions(args.at(-1)) ? args.at(-1) : {}) as SeriesOptions;
  const data = args.filter((arg, i) => arg !== undefined && !(i > 0 && isOptions(arg))) as TensorLike[];
  checkPlotOptions(op, options, SERIES_OPTIONS);
  if (data.length < 1 || data.length > 2) throw new ValueError(`${op}() expected (y, options) or (x, y, options)`);
  const { labels = [], xlog = false, ylog = false, xlabel = "", ylabel = "" } = options;
  const all = seriesValues(op, valuesOf(op, data.at(-1)!));
  const x = data.length === 2 ? valuesOf(op, data[0]) : undefined;
  if (x && (x.shape.length > 1 || all.some((y) => y.length !== x.values.length))) {
    const found = `x of shape (${x.shape}) and ${all[0]?.length ?? 0} values of y`;
    throw new ShapeError(`${op}() expected as many values of x as of each series of y: found ${found}`);
  }
  const xs = x?.values;
  const kind = op === "line" ? "line" : "points";
  const marks = all.map((y, i) => {
    const ys = placeable(y, ylog);
    const indices = op === "line" ? lineIndices(ys) : pointIndices(ys.length);
    const at = xs === undefined ? Float64Array.from(indices) : pick(xs, indices);
    const name = labels[i] ?? "";
    return { kind, name, x: placeable(at, xlog), y: pick(ys, indices) } as Series<"line"> | Series<"points">;
  });
  const axis = (label: string, values: readonly ArrayLike<number>[], log: boolean, room: number): Axis => ({
    label,
    scale: scaleFor(values, log, room),
  });
  const count = all.reduce((sum, y) => sum + y.length, 0);
  const what = op === "line" ? "Line plot" : "Scatter plot";
  return single(options, `${what} of ${count} points in ${all.length} series`, {
    x: axis(xlabel, marks.map((mark) => mark.x), xlog, op === "line" ? 0 : MARGIN),
    y: axis(ylabel, marks.map((mark) => mark.y), ylog, MARGIN),
    marks,
    legend: marks.some(({ name }) => name !== ""),
  });
}

/**
 * Lines through values. `y` has one axis, or two of which each row is a line; without `x` they stand at 0, 1, …. Values that are not finite
 * leave a gap. Takes (y, options) or (x, y, options). Long lines are drawn by the extremes of their pieces.
 */
export function line(y: TensorLike, options?: SeriesOptions): Plot;
/** Lines through the points (x, y). */
export function line(x: TensorLike, y: TensorLike, options?: SeriesOptions): Plot;
/** Lines through values. */
export function line(...args: readonly unknown[]): Plot {
  return plotSeries("line", args);
}

/** Points at values, as {@link line} takes them. Of more than a few thousand some are drawn. */
export function scatter(y: TensorLike, options?: SeriesOptions): Plot;
/** Points at (x, y). */
export function scatter(x: TensorLike, y: TensorLike, options?: SeriesOptions): Plot;
/** Points at values. */
export function scatter(...args: readonly unknown[]): Plot {
  return plotSeries("scatter", args);
}

/** How many values lie in each of some ranges of equal width. Values that are not finite, or not in `range`, are not counted. */
export function hist(x: TensorLike, options: HistOptions = {}): Plot {
  checkPlotOptions("hist", options, HIST_OPTIONS);
  const { values } = valuesOf("hist", x);
  const finite = values.filter(Number.isFinite);
  const { bins = Math.max(1, Math.min(100, Math.ceil(2 * Math.cbrt(finite.length)))), xlabel = "", ylabel = "count" } =
    options;
  const scale = scaleFor([options.range ?? finite], false, 0);
  const width = (scale.high / bins) - (scale.low / bins);
  const heights = Array<number>(bins).fill(0);
  for (const value of finite) {
    if (value < scale.low || value > scale.high) continue;
    heights[Math.min(bins - 1, Math.floor((value - scale.low) / width))]++;
  }
  const edges = Array.from({ length: bins + 1 }, (_, i) => i === bins ? scale.high : scale.low + i * width);
  return single(options, `Histogram of ${finite.length} values in ${bins} bins`, {
    x: { label: xlabel, scale },
    y: { label: ylabel, scale: { low: 0, high: Math.max(1, ...heights) * 1.05, log: false } },
    marks: [{ kind: "bars", edges, heights }],
    legend: false,
  });
}

/** A matrix of an argument that has two axes. */
function matrixOf(op: string, { shape, values }: Values): Matrix {
  if (shape.length !== 2) throw new ShapeError(`${op}() expected an array of two axes: found shape (${shape})`);
  return { rows: shape[0], columns: shape[1], values };
}

/** The panel of a matrix. */
function cellsPanel(
  title: string,
  matrix: Matrix,
  { colorMap = "viridis", range, xlabel = "", ylabel = "" }: HeatmapOptions,
  names: { readonly x?: readonly string[]; readonly y?: readonly string[] } = {},
): Panel {
  const { rows, columns } = matrix;
  const mark: Cells = {
    kind: "cells",
    matrix: shrink(matrix, MAX_CELLS),
    range: range ?? extent(matrix.values) ?? [0, 1],
    colorMap,
  };
  return {
    title,
    x: {
      label: xlabel,
      names: names.x,
      whole: true,
      scale: { low: -0.5, high: Math.max(columns, 1) - 0.5, log: false },
    },
    y: { label: ylabel, names: names.y, whole: true, scale: { low: Math.max(rows, 1) - 0.5, high: -0.5, log: false } },
    marks: [mark],
    legend: false,
  };
}

/** A matrix (rows, columns) as colours, its first row at the top. NaN has no colour. Of large ones the means of blocks are shown. */
export function heatmap(x: TensorLike, options: HeatmapOptions = {}): Plot {
  checkPlotOptions("heatmap", options, HEATMAP_OPTIONS);
  const matrix = matrixOf("heatmap", valuesOf("heatmap", x));
  return single(
    options,
    `Heat map of ${matrix.rows} rows and ${matrix.columns} columns`,
    cellsPanel("", matrix, options),
  );
}

/**
 * A picture of shape (height, width) in grays, or (height, width, channels) with 1, 3 or 4 channels. uint8 counts from 0 to 255, everything
 * else from 0 to 1.
 */
export function image(x: TensorLike, options: ImageOptions = {}): Plot {
  checkPlotOptions("image", options, IMAGE_OPTIONS);
  const { shape, values, bytes } = valuesOf("image", x);
  const [rows, columns, channels = 1] = shape;
  if (shape.length < 2 || shape.length > 3 || ![1, 3, 4].includes(channels)) {
    throw new ShapeError(
      `image() expected an array of shape (height, width) or (height, width, channels) with 1, 3 or 4 channels: found (${shape})`,
    );
  }
  const most = 2 * MAX_CELLS;
  const planes = Array.from({ length: channels }, (_, c) => {
    const plane = Float64Array.from({ length: rows * columns }, (_, i) => values[i * channels + c]);
    return shrink({ rows, columns, values: plane }, most);
  });
  const [{ rows: height, columns: width }] = planes;
  const scale = bytes ? 1 : 255;
  const rgba = new Uint8Array(height * width * 4);
  for (let i = 0; i < height * width; i++) {
    const at = (c: number): number => Math.round(Math.min(255, Math.max(0, (planes[c].values[i] || 0) * scale)));
    rgba.set(channels === 1 ? [at(0), at(0), at(0), 255] : [at(0), at(1), at(2), channels === 4 ? at(3) : 255], i * 4);
  }
  const shown = options.width ?? Math.min(WIDTH, Math.max(160, columns));
  const size = {
    width: shown,
    height: options.height ?? Math.min(4096, Math.round(shown * rows / (columns || 1)) + 24),
  };
  const hidden = (high: number): Axis => ({
    label: "",
    hidden: true,
    scale: { low: 0, high: Math.max(1, high), log: false },
  });
  return single({ ...size, ...options }, `Picture of ${columns} by ${rows} pixels`, {
    x: hidden(columns),
    y: hidden(rows),
    marks: [{ kind: "picture", rgba, columns: width, rows: height }],
    legend: false,
  });
}

/**
 * Attention of tokens: `weights` of shape (heads, T, S), or (T, S) of a single head, also with a batch axis of 1 before them. Row t
 * holds the weights of query t for each of S keys.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const scores = mx.random.normal([2, 3, 3], mx.float32, 0, 1, mx.random.key(0));
 * const plot = mx.plot.attention(mx.softmax(scores, -1), { tokens: ["the", "cat", "sat"] });
 * console.log(plot.svg.includes("head 1"));
 * ```
 */
export function attention(weights: TensorLike, options: AttentionOptions = {}): Plot {
  checkPlotOptions("attention", options, ATTENTION_OPTIONS);
  const { shape: given, values } = valuesOf("attention", weights);
  const shape = given.length === 4 && given[0] === 1 ? given.slice(1) : given.length === 2 ? [1, ...given] : given;
  if (shape.length !== 3) {
    throw new ShapeError(`attention() expected weights of shape (heads, T, S) or (T, S): found (${given})`);
  }
  const [heads, rows, columns] = shape;
  if (heads > MAX_HEADS) throw new ShapeError(`attention() draws at most ${MAX_HEADS} heads: found ${heads}`);
  const { tokens, queryTokens = tokens && rows > 0 ? tokens.slice(-rows) : undefined } = options;
  for (const [name, list, count] of [["tokens", tokens, columns], ["queryTokens", queryTokens, rows]] as const) {
    if (list === undefined || list.length === count || columns * rows === 0) continue;
    throw new ShapeError(`attention() expected ${count} ${name} for weights of shape (${given}): found ${list.length}`);
  }
  const names = { x: tokens?.map(shownToken), y: queryTokens?.map(shownToken) };
  const range = options.range ?? [0, extent(values)?.[1] || 1] as const;
  const grid = Math.max(1, Math.ceil(Math.sqrt(heads)));
  const { title = "", width = heads > 1 ? 320 * Math.min(grid, 3) : 480 } = options;
  const lines = Math.max(1, Math.ceil(heads / grid));
  const figure: Figure = {
    title,
    description: `Attention of ${heads} heads, from ${rows} to ${columns} tokens`,
    width,
    height: options.height ?? Math.min(4096, Math.round(width / grid) * lines + (title === "" ? 0 : 24)),
    columns: grid,
    panels: Array.from({ length: heads }, (_, head) => {
      const matrix = { rows, columns, values: values.subarray(head * rows * columns, (head + 1) * rows * columns) };
      return cellsPanel(heads > 1 ? `head ${head}` : "", matrix, { ...options, range }, names);
    }),
  };
  return new Plot(figure);
}

/** A token's text on one line, with its spaces shown. */
function shownToken(text: string): string {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎") || "∅";
}
