/**
 * Figures as text for terminals: points and lines in braille, bars in blocks, matrices in shades.
 *
 * @module
 */

import type { Bars, Figure, Panel, Series } from "./figure.ts";
import { seriesOf } from "./figure.ts";
import { share, shrink } from "../display/raster.ts";
import { position, ticks } from "./ticks.ts";

const COLUMNS = 60;
const ROWS = 15;
/** Panels that are drawn; more are counted. */
const MAX_PANELS = 4;
const SHADES = " ░▒▓█";
const BLOCKS = " ▁▂▃▄▅▆▇█";
/** Bits of a braille letter's dots, by row and column. */
const DOTS = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/** Text on one line, without anything that a terminal obeys. */
function plain(text: string): string {
  // deno-lint-ignore no-control-regex
  return text.replaceAll(/[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+/g, " ");
}

/** A figure as lines of text. */
export function toText({ title, panels }: Figure): string {
  const parts = panels.slice(0, MAX_PANELS).map(panelText);
  if (panels.length > MAX_PANELS) parts.push(`… and ${panels.length - MAX_PANELS} more`);
  return [...(title === "" ? [] : [plain(title)]), ...parts].join("\n");
}

function panelText(panel: Panel): string {
  const head = panel.title === "" ? [] : [plain(panel.title)];
  const named = panel.legend ? seriesOf(panel).map(({ name }) => name).filter((name) => name !== "") : [];
  const legend = named.length === 0 ? [] : [`  ${named.map(plain).join(" · ")}`];
  const [first] = panel.marks;
  const labels = [panel.x.label && `x: ${plain(panel.x.label)}`, panel.y.label && `y: ${plain(panel.y.label)}`];
  const foot = labels.filter(Boolean).length === 0 ? [] : [`  ${labels.filter(Boolean).join(", ")}`];
  if (first?.kind === "cells") {
    const { rows, columns, values } = shrink(first.matrix, COLUMNS);
    const shade = (value: number): string =>
      Number.isNaN(value) ? "?" : SHADES[Math.min(4, Math.max(0, Math.floor(share(value, first.range) * 5)))];
    return [
      ...head,
      ...shades(rows, columns, (i) => shade(values[i])),
      ...foot,
      `  ${first.range.map((end) => Number(end.toPrecision(4))).join(" to ")}`,
    ].join(
      "\n",
    );
  }
  if (first?.kind === "picture") {
    const { columns, rows, rgba } = first;
    const gray = Float64Array.from(
      { length: rows * columns },
      (_, i) => 0.299 * rgba[4 * i] + 0.587 * rgba[4 * i + 1] + 0.114 * rgba[4 * i + 2],
    );
    const small = shrink({ rows, columns, values: gray }, COLUMNS);
    return [
      ...head,
      ...shades(small.rows, small.columns, (i) => SHADES[Math.min(4, Math.floor(small.values[i] / 51.2))]),
    ]
      .join("\n");
  }
  const canvas = first?.kind === "bars" ? barsText(first, panel) : dotsText(panel);
  return [...head, ...legend, ...framed(canvas, panel), ...foot].join("\n");
}

/** Rows of shades; two letters to a cell if there is room, since letters are higher than wide. */
function shades(rows: number, columns: number, shade: (i: number) => string): string[] {
  const wide = columns <= COLUMNS / 2 ? 2 : 1;
  return Array.from(
    { length: rows },
    (_, r) => `  ${Array.from({ length: columns }, (_, c) => shade(r * columns + c).repeat(wide)).join("")}`,
  );
}

/** Lines with the numbers of the axes around them. */
function framed(lines: readonly string[], { x, y }: Panel): string[] {
  const marks = new Map<number, string>();
  for (const { at, text } of ticks(y.scale, 4)) {
    marks.set(Math.round((1 - position(y.scale, at)) * (lines.length - 1)), text);
  }
  const width = Math.max(...Array.from(marks.values(), (text) => text.length), 1);
  const body = lines.map((line, i) => `${(marks.get(i) ?? "").padStart(width)} │${line}`);
  const below = Array<string>(COLUMNS + 12).fill(" ");
  let free = 0;
  for (const { at, text } of ticks(x.scale, 5)) {
    const start = Math.max(0, Math.round(position(x.scale, at) * (COLUMNS - 1)) - Math.floor(text.length / 2));
    if (start < free) continue;
    below.splice(start, text.length, ...text);
    free = start + text.length + 1;
  }
  return [
    ...body,
    `${" ".repeat(width)} └${"─".repeat(COLUMNS)}`,
    `${" ".repeat(width + 2)}${below.join("").trimEnd()}`,
  ];
}

function dotsText(panel: Panel): string[] {
  const bits = new Uint8Array(COLUMNS * ROWS);
  const dot = (x: number, y: number): void => {
    if (x < 0 || y < 0 || x >= COLUMNS * 2 || y >= ROWS * 4) return;
    bits[(y >> 2) * COLUMNS + (x >> 1)] |= DOTS[y & 3][x & 1];
  };
  for (const series of seriesOf(panel)) drawDots(series, panel, dot);
  return Array.from(
    { length: ROWS },
    (_, r) =>
      Array.from(bits.subarray(r * COLUMNS, (r + 1) * COLUMNS), (b) => b === 0 ? " " : String.fromCharCode(0x2800 + b))
        .join("").trimEnd(),
  );
}

function drawDots({ kind, x, y }: Series, panel: Panel, dot: (x: number, y: number) => void): void {
  let last: readonly [number, number] | undefined;
  for (let i = 0; i < x.length; i++) {
    const at = [
      Math.round(position(panel.x.scale, x[i]) * (COLUMNS * 2 - 1)),
      Math.round((1 - position(panel.y.scale, y[i])) * (ROWS * 4 - 1)),
    ] as const;
    if (at.some(Number.isNaN)) {
      last = undefined;
      continue;
    }
    const from = kind === "line" && last ? last : at;
    const steps = Math.max(Math.abs(at[0] - from[0]), Math.abs(at[1] - from[1]), 1);
    for (let s = 0; s <= steps; s++) {
      dot(Math.round(from[0] + (at[0] - from[0]) * s / steps), Math.round(from[1] + (at[1] - from[1]) * s / steps));
    }
    last = at;
  }
}

function barsText({ edges, heights }: Bars, panel: Panel): string[] {
  const level = Array.from({ length: COLUMNS }, (_, c) => {
    const { low, high } = panel.x.scale;
    const at = low + (high - low) * (c + 0.5) / COLUMNS;
    const bar = edges.findIndex((edge, i) => at >= edge && at < (edges[i + 1] ?? -Infinity));
    return bar < 0 || heights[bar] <= panel.y.scale.low ? 0 : position(panel.y.scale, heights[bar]) * ROWS * 8;
  });
  return Array.from(
    { length: ROWS },
    (_, r) =>
      level.map((eighths) => BLOCKS[Math.min(8, Math.max(0, Math.round(eighths) - (ROWS - 1 - r) * 8))]).join("")
        .trimEnd(),
  );
}
