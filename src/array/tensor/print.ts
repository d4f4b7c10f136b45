/**
 * Arrays as text, as MLX prints them. Numbers have six significant digits by default. Of more than six entries the first and last three
 * are shown.
 *
 * @module
 */

import { type Dtype, type HostArray, hostValue, isComplex, type Scalar } from "../../graph/dtype.ts";
import { quoted, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { sizeOf } from "../../graph/shape.ts";
import { elements } from "./values.ts";

/** Entries at each end of an axis that is cut. */
export const EDGE = 3;
const DIGITS = 6;

/** How floats are printed. */
export interface PrintOptions {
  /** Decimal places; -1, which is the default, for six significant digits. */
  readonly precision?: number;
}

const PRINT_OPTIONS = { precision: true } as const satisfies Record<keyof PrintOptions, true>;

let precision = -1;

/** How arrays are printed now. */
export function getPrintoptions(): Required<PrintOptions> {
  return { precision };
}

/**
 * Says how arrays are printed from now on; without `precision` as at the start.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.setPrintoptions({ precision: 3 });
 * `${mx.array([1.23456])}`; // "array([1.235], dtype=float32)"
 * mx.setPrintoptions();
 * ```
 */
export function setPrintoptions(options: PrintOptions = {}): void {
  precision = checkPrintOptions("setPrintoptions", options);
}

/** As {@link setPrintoptions} until the scope ends: `using _ = mx.printoptions({ precision: 3 })`. */
export function printoptions(options: PrintOptions = {}): Disposable {
  const before = precision;
  precision = checkPrintOptions("printoptions", options);
  return {
    [Symbol.dispose](): void {
      precision = before;
    },
  };
}

function checkPrintOptions(op: string, options: PrintOptions): number {
  checkOptions(op, options, PRINT_OPTIONS);
  const { precision = -1 } = options;
  if (Number.isInteger(precision) && precision >= -1 && precision <= MAX_PLACES) return precision;
  throw new ValueError(`${op}() expected precision to be whole, from -1 to ${MAX_PLACES}: found ${quoted(precision)}`);
}

/** Most digits that JavaScript writes after a point. A number exactly between two shorter ones has fewer. */
const MAX_PLACES = 99;

/** A magnitude with `places` decimals. Ties go to the even one, as in C; JavaScript rounds them up. */
function toPlaces(size: number, places: number): string {
  // JavaScript writes large numbers, which are whole, with an exponent.
  if (size >= 1e21) return BigInt(size).toString() + (places > 0 ? `.${"0".repeat(places)}` : "");
  const all = size.toFixed(MAX_PLACES + 1);
  const end = all.indexOf(".") + 1 + places;
  const down = all.slice(0, places === 0 ? end - 1 : end);
  return /^50*$/.test(all.slice(end)) && /[02468]$/.test(down) ? down : size.toFixed(places);
}

/** A magnitude in scientific notation with `places` decimals, rounded as {@link toPlaces} does. */
function toScientific(size: number, places: number): string {
  const [mantissa, exponent] = size.toExponential(MAX_PLACES + 1).split("e");
  const down = mantissa.slice(0, places + 2);
  const even = /^50*$/.test(mantissa.slice(places + 2)) && /[02468]$/.test(down);
  return even ? `${down}e${exponent}` : size.toExponential(places);
}

/** A float as C prints it: by %g with six significant digits, or by %f where the precision is set. */
function formatFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const size = Math.abs(value);
  if (precision >= 0) return sign + toPlaces(size, precision);
  if (size === 0) return `${sign}0`;
  const [mantissa, exponent] = toScientific(size, DIGITS - 1).split("e");
  const power = Number(exponent);
  const trim = (text: string): string => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  if (power < -4 || power >= DIGITS) {
    return `${sign}${trim(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  return sign + trim(toPlaces(size, DIGITS - 1 - power));
}

function formatValue(value: Scalar): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (!isComplex(value)) return formatFloat(Number(value));
  const im = formatFloat(value.im);
  return `${formatFloat(value.re)}${im.startsWith("-") ? "" : "+"}${im}j`;
}

/** The text of element `i` of a host view. */
export function formatElement(dtype: Dtype, view: HostArray, i: number): string {
  const value = hostValue(dtype, view, i);
  return dtype.kind === "int" || dtype.kind === "uint" ? String(value) : formatValue(value);
}

/** The text of an array; evaluates it. */
export function formatArray(node: Node): string {
  const { shape, dtype } = node;
  const view = elements(node);
  const prefix = "array(";
  const block = (depth: number, start: number, size: number): string => {
    if (depth === shape.length) return formatElement(dtype, view, start);
    const count = shape[depth];
    const step = count === 0 ? 0 : size / count;
    const last = depth === shape.length - 1;
    const parts: string[] = [];
    for (let i = 0; i < count; i++) {
      if (count > 2 * EDGE && i === EDGE) {
        parts.push("...");
        i = count - EDGE;
      }
      parts.push(block(depth + 1, start + i * step, step));
    }
    return `[${parts.join(last ? ", " : `,\n${" ".repeat(prefix.length + depth + 1)}`)}]`;
  };
  return `${prefix}${block(0, 0, sizeOf(shape))}, dtype=${dtype.name})`;
}
