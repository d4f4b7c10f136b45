/**
 * Figures as SVG, without any style from outside, so that a file, a notebook and a web page show the same.
 *
 * @module
 */

import { escapeMarkup } from "../display/html.ts";
import { colorOf, cssColor, INK, seriesColor } from "../display/color.ts";
import { type Axis, type Cells, type Figure, type Panel, type Series, seriesOf } from "./figure.ts";
import { pngUrl } from "../display/png.ts";
import { enlarge, pixels } from "../display/raster.ts";
import { position, scaleOf, type Tick, ticks } from "./ticks.ts";

interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** Letters of a tick that are shown. */
const TICK_LETTERS = 14;
/** Pixels to which the picture of a small matrix is enlarged. */
const SHARP_PIXELS = 320;
const LEGEND_ROW = 16;
const TITLE_ROW = 24;

const round = (value: number): string => String(Math.round(value * 100) / 100);
const short = (text: string, most: number): string => {
  const letters = Array.from(text);
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
};

function text(x: number, y: number, content: string, anchor: "start" | "middle" | "end", more = ""): string {
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}"${more}>${escapeMarkup(content)}</text>`;
}

/** The marks of an axis: names if it has some, as many as there is room for. */
export function axisTicks(axis: Axis, pixels: number, room: number): readonly Tick[] {
  if (axis.hidden) return [];
  if (axis.names === undefined) {
    const all = ticks(axis.scale, Math.max(2, Math.floor(pixels / room)));
    return axis.whole ? all.filter(({ at }) => Number.isInteger(at)) : all;
  }
  const step = Math.max(1, Math.ceil(axis.names.length * 14 / pixels));
  return axis.names.flatMap((name, at) => at % step === 0 ? [{ at, text: short(name, TICK_LETTERS) }] : []);
}

/** A figure as the text of an SVG file. */
export function toSvg(figure: Figure): string {
  const { width, height, panels, columns, title, description } = figure;
  const rows = Math.ceil(panels.length / columns);
  const head = title === "" ? 0 : TITLE_ROW;
  const boxes = panels.map((_, i): Box => ({
    left: (i % columns) * width / columns,
    top: head + Math.floor(i / columns) * (height - head) / rows,
    width: width / columns,
    height: (height - head) / rows,
  }));
  const body = panels.map((panel, i) => drawPanel(panel, boxes[i])).join("");
  const name = escapeMarkup(title || "Plot");
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `role="img" aria-label="${name}" font-family="system-ui, sans-serif" font-size="11" fill="${INK}">` +
    `<title>${name}</title><desc>${escapeMarkup(description)}</desc>` +
    (title === "" ? "" : text(width / 2, 17, title, "middle", ' font-size="14" font-weight="600"')) +
    `${body}</svg>`;
}

function drawPanel(panel: Panel, outer: Box): string {
  const { x, y, title } = panel;
  const [first] = panel.marks;
  const named = panel.legend ? seriesOf(panel).filter(({ name }) => name !== "") : [];
  const top = outer.top + 8 + (title === "" ? 0 : 18) + named.length * LEGEND_ROW;
  const letters = (axis: Axis, count: number, room: number): number =>
    Math.max(0, ...axisTicks(axis, count, room).map((tick) => Array.from(tick.text).length));
  const slanted = x.names !== undefined && letters(x, outer.width, 70) > 2;
  const xRoom = (x.hidden ? 4 : slanted ? 10 + letters(x, outer.width, 70) * 5 : 18) + (x.label === "" ? 0 : 16);
  const yRoom = (y.hidden ? 8 : 12 + letters(y, outer.height, 40) * 6.5) + (y.label === "" ? 0 : 16);
  const bar = first?.kind === "cells" && outer.width >= 240 ? 56 : 10;
  const inner: Box = {
    left: outer.left + yRoom,
    top,
    width: Math.max(10, outer.width - yRoom - bar),
    height: Math.max(10, outer.top + outer.height - top - xRoom - 4),
  };
  const px = (value: number): number => inner.left + position(x.scale, value) * inner.width;
  const py = (value: number): number => inner.top + (1 - position(y.scale, value)) * inner.height;
  const parts: string[] = [];
  if (title !== "") parts.push(text(inner.left + inner.width / 2, outer.top + 16, title, "middle", ' font-size="12"'));
  named.forEach(({ name }, i) => {
    const at = top - 4 - (named.length - i - 0.5) * LEGEND_ROW;
    const color = seriesColor(seriesOf(panel).findIndex((series) => series.name === name));
    parts.push(`<rect x="${round(inner.left)}" y="${round(at - 5)}" width="10" height="10" fill="${color}"/>`);
    parts.push(text(inner.left + 15, at + 4, short(name, 60), "start"));
  });
  parts.push(drawAxes(panel, inner, px, py, slanted));
  if (x.label !== "") parts.push(text(inner.left + inner.width / 2, outer.top + outer.height - 5, x.label, "middle"));
  if (y.label !== "") {
    const [cx, cy] = [round(outer.left + 12), round(inner.top + inner.height / 2)];
    parts.push(text(Number(cx), Number(cy), y.label, "middle", ` transform="rotate(-90 ${cx} ${cy})"`));
  }
  if (first?.kind === "cells" && bar > 10) parts.push(drawColorBar(first, inner));
  parts.push(drawMarks(panel, inner, px, py));
  return `<g>${parts.join("")}</g>`;
}

type Place = (value: number) => number;

function drawAxes({ x, y, marks }: Panel, inner: Box, px: Place, py: Place, slanted: boolean): string {
  const bottom = inner.top + inner.height;
  const parts: string[] = [];
  const grid = marks[0]?.kind !== "cells" && marks[0]?.kind !== "picture";
  const rule = (x1: number, y1: number, x2: number, y2: number): string =>
    `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${
      round(y2)
    }" stroke="${INK}" stroke-opacity="0.25"/>`;
  for (const tick of axisTicks(x, inner.width, 70)) {
    const at = px(tick.at);
    if (grid) parts.push(rule(at, inner.top, at, bottom));
    const turn = slanted ? ` transform="rotate(-45 ${round(at)} ${round(bottom + 12)})"` : "";
    parts.push(text(at, bottom + 14, tick.text, slanted ? "end" : "middle", turn));
  }
  for (const tick of axisTicks(y, inner.height, 40)) {
    const at = py(tick.at);
    if (grid) parts.push(rule(inner.left, at, inner.left + inner.width, at));
    parts.push(text(inner.left - 5, at + 4, tick.text, "end"));
  }
  return parts.join("");
}

function drawMarks(panel: Panel, inner: Box, px: Place, py: Place): string {
  const { left, top, width, height } = inner;
  const image = (url: string): string =>
    `<image x="${round(left)}" y="${round(top)}" width="${round(width)}" height="${round(height)}" ` +
    `preserveAspectRatio="none" style="image-rendering:pixelated" href="${url}"/>`;
  return panel.marks.map((mark, i) => {
    if (mark.kind === "cells") {
      const { matrix, range, colorMap } = mark;
      if (matrix.rows * matrix.columns === 0) return "";
      const factor = Math.max(1, Math.floor(SHARP_PIXELS / Math.max(matrix.rows, matrix.columns)));
      const cells = enlarge(pixels(matrix, range, colorMap), matrix.columns, matrix.rows, factor);
      return image(pngUrl(cells, matrix.columns * factor, matrix.rows * factor));
    }
    if (mark.kind === "picture") return mark.rgba.length === 0 ? "" : image(pngUrl(mark.rgba, mark.columns, mark.rows));
    const color = seriesColor(i);
    if (mark.kind === "line") return drawLine(mark, px, py, color);
    if (mark.kind === "points") {
      const dots: string[] = [];
      for (let j = 0; j < mark.x.length; j++) {
        if (Number.isNaN(mark.x[j]) || Number.isNaN(mark.y[j])) continue;
        dots.push(`<circle cx="${round(px(mark.x[j]))}" cy="${round(py(mark.y[j]))}" r="3"/>`);
      }
      return `<g fill="${color}" fill-opacity="0.7">${dots.join("")}</g>`;
    }
    const { edges, heights } = mark;
    const bars = heights.map((value, j) => {
      const [x1, x2, y1, y2] = [px(edges[j]), px(edges[j + 1]), py(value), py(panel.y.scale.low)];
      if (value <= panel.y.scale.low) return "";
      return `<rect x="${round(x1)}" y="${round(y1)}" width="${round(Math.max(0.5, x2 - x1 - 1))}" height="${
        round(y2 - y1)
      }"/>`;
    });
    return `<g fill="${color}">${bars.join("")}</g>`;
  }).join("");
}

/** A line, broken where values are missing; a value that stands alone is a dot. */
function drawLine({ x, y }: Series, px: Place, py: Place, color: string): string {
  const runs: string[][] = [[]];
  for (let i = 0; i < x.length; i++) {
    if (Number.isNaN(x[i]) || Number.isNaN(y[i])) runs.push([]);
    else runs.at(-1)!.push(`${round(px(x[i]))} ${round(py(y[i]))}`);
  }
  const paths = runs.filter((run) => run.length > 1).map((run) => `M${run.join("L")}`).join("");
  const dots = runs.filter((run) => run.length === 1).map(([at]) => {
    const [cx, cy] = at.split(" ");
    return `<circle cx="${cx}" cy="${cy}" r="3" fill="${color}"/>`;
  });
  const path = paths && `<path d="${paths}" fill="none" stroke="${color}" stroke-width="1.8" stroke-linejoin="round"/>`;
  return path + dots.join("");
}

/** The colours of a map beside the numbers that they stand for. */
function drawColorBar({ range, colorMap }: Cells, inner: Box): string {
  const steps = 24;
  const left = inner.left + inner.width + 10;
  const parts = Array.from({ length: steps }, (_, i) => {
    const top = inner.top + i * inner.height / steps;
    const color = cssColor(colorOf(colorMap, 1 - i / (steps - 1)));
    return `<rect x="${round(left)}" y="${round(top)}" width="10" height="${
      round(inner.height / steps + 0.5)
    }" fill="${color}"/>`;
  });
  const scale = scaleOf(range, false);
  for (const tick of ticks(scale, 4)) {
    const at = inner.top + (1 - position(scale, tick.at)) * inner.height;
    parts.push(text(left + 13, at + 4, short(tick.text, 7), "start", ' font-size="9"'));
  }
  return parts.join("");
}
