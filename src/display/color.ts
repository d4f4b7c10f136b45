/**
 * Colours: maps from numbers for pictures of matrices, and a palette for series. Its colours differ for every kind of colour vision, on
 * a light and on a dark page.
 *
 * @module
 */

/** Red, green and blue, 0 to 255 each. */
export type Rgb = readonly [number, number, number];

const parse = (hex: string): Rgb => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)) as unknown as Rgb;
const stops = (text: string): readonly Rgb[] => text.split(" ").map(parse);

/** A colour map: "viridis", "magma" and "gray" run from low to high, "coolwarm" from one side to the other. */
export type ColorMap = "viridis" | "magma" | "gray" | "coolwarm";

/** Evenly spaced colours of each map; those between are mixed. */
const MAPS: Readonly<Record<ColorMap, readonly Rgb[]>> = {
  viridis: stops("440154 481d6f 453581 3d4d8a 34618d 2b748e 24878e 1f998a 25ac82 40bd72 67cc5c 98d83e cde11d fde725"),
  magma: stops("000004 120d32 331068 5a167e 7d2482 a3307e c83e73 e95562 f97c5d fea873 fed395 fcfdbf"),
  gray: stops("000000 ffffff"),
  coolwarm: stops("3b4cc0 6788ee 9abbff c9d7f0 edd1c2 f7a889 e26952 b40426"),
};

/** Names of all colour maps. */
export const COLOR_MAPS = Object.keys(MAPS) as readonly ColorMap[];

/** The colour of a share from 0 to 1. */
export function colorOf(map: ColorMap, share: number): Rgb {
  const colors = MAPS[map];
  const at = Math.min(1, Math.max(0, share)) * (colors.length - 1);
  const low = Math.min(Math.floor(at), colors.length - 2);
  const mix = (i: 0 | 1 | 2): number => Math.round(colors[low][i] + (colors[low + 1][i] - colors[low][i]) * (at - low));
  return [mix(0), mix(1), mix(2)];
}

/** A colour as CSS writes it. */
export function cssColor(color: Rgb): string {
  return `#${color.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** Colours of series, of Okabe and Ito. */
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"] as const;

/** The colour of a series. */
export function seriesColor(i: number): string {
  return PALETTE[i % PALETTE.length];
}

/** Text and lines around a plot: a gray that can be read on white and on black. */
export const INK = "#767676";
