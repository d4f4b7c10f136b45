/**
 * Arrays as text, as MLX prints them: six significant digits, and the first and last three of more than six entries.
 *
 * @module
 */

import { type Dtype, type HostArray, hostValue, isComplex, type Scalar } from "../graph/dtype.ts";
import type { Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { elements } from "./values.ts";

/** Entries at each end of an axis that is cut. */
export const EDGE = 3;
const DIGITS = 6;

/** A float with six significant digits, as C's %g prints it. */
function formatFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const [mantissa, exponent] = value.toExponential(DIGITS - 1).split("e");
  const power = Number(exponent);
  const trim = (text: string): string => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  if (power < -4 || power >= DIGITS) {
    return `${trim(mantissa)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  return trim(value.toFixed(DIGITS - 1 - power));
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
