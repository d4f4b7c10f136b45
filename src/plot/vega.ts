/**
 * Figures as Vega-Lite, which notebooks draw so that one can point at values.
 *
 * @module
 */

import { INK, seriesColor } from "../display/color.ts";
import { type Axis, type Figure, type Panel, seriesOf } from "./figure.ts";
import { pngUrl } from "../display/png.ts";
import { shrink } from "../display/raster.ts";

/** A specification of Vega-Lite, as JSON has it. */
export type VegaLite = Readonly<Record<string, unknown>>;

/** The MIME type of {@link VegaLite}. */
export const VEGA_LITE = "application/vnd.vegalite.v5+json";

/** Most rows and columns of a matrix: each cell is an object. */
const MAX_CELLS = 64;

/** A figure as a specification. */
export function toVegaLite({ title, description, panels, columns, width, height }: Figure): VegaLite {
  const rows = Math.ceil(panels.length / columns);
  const size = { width: Math.max(60, width / columns - 90), height: Math.max(60, height / rows - 60) };
  const head = {
    $schema: "https://vega.github.io/schema/vega-lite/v5.json",
    description,
    background: "transparent",
    config: {
      axis: { labelColor: INK, titleColor: INK, gridOpacity: 0.25, gridColor: INK, domainColor: INK, tickColor: INK },
      legend: { labelColor: INK, titleColor: INK },
      title: { color: INK },
      view: { stroke: null },
    },
  };
  const specs = panels.map((panel) => ({ ...size, ...panelSpec(panel), ...(panel.title && { title: panel.title }) }));
  if (specs.length === 1) return { ...head, ...specs[0], ...(title && { title }) };
  return { ...head, ...(title && { title }), columns, concat: specs };
}

/** How a channel reads a field. */
function channel(field: string, axis: Axis): Record<string, unknown> {
  const { scale: { low, high, log } } = axis;
  return {
    field,
    type: "quantitative",
    title: axis.label || null,
    scale: { domain: [low, high], nice: false, ...(log ? { type: "log" } : { zero: false }) },
    ...(axis.hidden && { axis: null }),
  };
}

/** A channel of rows or columns of a matrix. */
function ordinal(field: string, axis: Axis): Record<string, unknown> {
  const names = axis.names && { labelExpr: `${JSON.stringify(axis.names)}[datum.value]` };
  return { field, type: "ordinal", title: axis.label || null, axis: { labelOverlap: true, ...names } };
}

const finite = (value: number): number | null => Number.isFinite(value) ? value : null;

function panelSpec(panel: Panel): Record<string, unknown> {
  const { x, y, marks } = panel;
  const [first] = marks;
  if (first?.kind === "picture") {
    if (first.rgba.length === 0) return { data: { values: [] }, mark: "image" };
    return {
      data: { values: [{ url: pngUrl(first.rgba, first.columns, first.rows) }] },
      mark: { type: "image", width: { expr: "width" }, height: { expr: "height" }, aspect: true },
      encoding: { url: { field: "url", type: "nominal" } },
    };
  }
  if (first?.kind === "cells") {
    const { rows, columns, values } = shrink(first.matrix, MAX_CELLS);
    const [rowStep, columnStep] = [first.matrix.rows / rows, first.matrix.columns / columns];
    const cells = Array.from({ length: rows * columns }, (_, i) => ({
      row: Math.floor(Math.floor(i / columns) * rowStep),
      column: Math.floor((i % columns) * columnStep),
      value: finite(values[i]),
    }));
    const scheme = { viridis: "viridis", magma: "magma", gray: "greys", coolwarm: "redblue" }[first.colorMap];
    return {
      data: { values: cells },
      mark: { type: "rect", tooltip: true, invalid: null },
      encoding: {
        x: ordinal("column", x),
        y: ordinal("row", y),
        color: {
          field: "value",
          type: "quantitative",
          title: null,
          scale: { scheme, domain: first.range, reverse: first.colorMap === "coolwarm" || first.colorMap === "gray" },
        },
      },
    };
  }
  if (first?.kind === "bars") {
    const values = first.heights.map((count, i) => ({ from: first.edges[i], to: first.edges[i + 1], count }));
    return {
      data: { values },
      mark: { type: "bar", tooltip: true, color: seriesColor(0) },
      encoding: { x: channel("from", x), x2: { field: "to" }, y: { ...channel("count", y), stack: null } },
    };
  }
  const series = seriesOf(panel);
  const names = series.map(({ name }, i) => name || `series ${i + 1}`);
  const values = series.flatMap((one, i) =>
    Array.from(one.x, (at, j) => ({ series: names[i], i: j, x: finite(at), y: finite(one.y[j]) }))
  );
  return {
    data: { values },
    mark: first?.kind === "points"
      ? { type: "point", filled: true, tooltip: true }
      : { type: "line", tooltip: true, point: values.length <= series.length },
    encoding: {
      x: channel("x", x),
      y: channel("y", y),
      ...(first?.kind !== "points" && { order: { field: "i" } }),
      color: {
        field: "series",
        type: "nominal",
        scale: { domain: names, range: series.map((_, i) => seriesColor(i)) },
        ...(panel.legend ? { title: null } : { legend: null }),
      },
    },
  };
}
