/**
 * Arrays as HTML, for notebooks: a table, cut where numpy cuts its text, and a heat map of what has two axes of numbers.
 *
 * The output is small whatever the array is: at most a thousand entries and a picture of at most {@link MAP_PIXELS} pixels a side.
 *
 * @module
 */

import { colorOf, cssColor } from "../../display/color.ts";
import { pngUrl } from "../../display/png.ts";
import { extent, pixels, shrink } from "../../display/raster.ts";
import { type Dtype, type HostArray, hostValue } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { EDGE, formatElement } from "./print.ts";
import { elements } from "./values.ts";

/** Larger arrays are cut, to the first and last three of each axis. */
const WHOLE_SIZE = 1000;
/** Most tables of an array with more than two axes. */
const MAX_TABLES = 24;
/** Pixels of a side of the heat map's picture; larger matrices are made smaller. */
const MAP_PIXELS = 96;
/** Larger matrices get no heat map: each of their values would be looked at. */
const MAX_MAPPED = 2 ** 24;

/** The entries of an axis that are shown; -1 stands for those between. */
function shown(count: number, whole: boolean): number[] {
  if (whole || count <= 2 * EDGE) return Array.from({ length: count }, (_, i) => i);
  const first = Array.from({ length: EDGE }, (_, i) => i);
  return [...first, -1, ...first.map((i) => count - EDGE + i)];
}

/** An array as HTML; evaluates it. */
export function arrayHtml(node: Node): string {
  const { shape, dtype } = node;
  const view = elements(node);
  const whole = view.length <= WHOLE_SIZE;
  const cells = (columns: readonly number[], start: number): string =>
    columns.map((c) => `<td>${c < 0 ? "…" : formatElement(dtype, view, start + c)}</td>`).join("");
  const table = (rows: number, columns: number, start: number): string => {
    const across = shown(columns, whole);
    const lines = shown(rows, whole).map((r) =>
      `<tr>${r < 0 ? `<td>⋮</td>`.repeat(across.length) : cells(across, start + r * columns)}</tr>`
    );
    return `<div style="overflow-x:auto"><table>${lines.join("")}</table></div>`;
  };
  let tables = 0;
  const block = (axis: number, start: number, size: number, index: string): string => {
    if (tables >= MAX_TABLES) return tables++ === MAX_TABLES ? "<div>⋮</div>" : "";
    if (shape.length - axis <= 2) {
      tables++;
      const [rows, columns] = shape.length - axis === 2 ? shape.slice(-2) : [1, shape.at(-1) ?? 1];
      return (index === "" ? "" : `<div>[${index}]</div>`) + table(rows, columns, start);
    }
    const step = size / shape[axis];
    // Tables take room, so that only few are shown even of a small array.
    return shown(shape[axis], false).map((i) =>
      i < 0
        ? (tables < MAX_TABLES ? "<div>⋮</div>" : "")
        : block(axis + 1, start + i * step, step, index === "" ? `${i}` : `${index}, ${i}`)
    ).join("");
  };
  const name = `<div>${formatShape(shape)} ${dtype.name}</div>`;
  return `<div>${name}${view.length === 0 ? "" : block(0, 0, sizeOf(shape), "")}${heatMap(shape, dtype, view)}</div>`;
}

/** The values as colours, with what the ends of the colours stand for; "" if that tells nothing. */
function heatMap(shape: readonly number[], dtype: Dtype, view: HostArray): string {
  const [rows, columns] = shape;
  if (
    shape.length !== 2 || rows < 2 || columns < 2 || view.length > MAX_MAPPED || dtype.kind === "bool" ||
    dtype.kind === "complex"
  ) return "";
  const values = Float64Array.from({ length: view.length }, (_, i) => Number(hostValue(dtype, view, i)));
  const range = extent(values);
  if (range === undefined) return "";
  const small = shrink({ rows, columns, values }, MAP_PIXELS);
  const scale = 240 / Math.max(rows, columns);
  const size = (count: number): number => Math.max(8, Math.round(count * Math.min(scale, 24)));
  const [low, high] = range.map((value) => Number(value.toPrecision(4)));
  const ramp = [0, 0.25, 0.5, 0.75, 1].map((part) => cssColor(colorOf("viridis", part))).join(",");
  return `<img alt="heat map, ${low} to ${high}" width="${size(columns)}" height="${size(rows)}" ` +
    `style="image-rendering:pixelated" src="${pngUrl(pixels(small, range, "viridis"), small.columns, small.rows)}">` +
    `<div>${low} <span style="display:inline-block;width:6em;height:0.7em;background:linear-gradient(to right,${ramp})">` +
    `</span> ${high}</div>`;
}
