/**
 * How modules print their settings: as Python writes them, since that is how MLX prints modules.
 *
 * @module
 */

/** Numbers from here on have an exponent in Python. */
const MAX_DIGITS = 1e16;
/** Numbers below this have one too. */
const MIN_DIGITS = 1e-4;

/** A floating-point number as Python writes it: 1.0, 1e-05. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size === 0 || (size >= MIN_DIGITS && size < MAX_DIGITS)) {
    return Number.isInteger(value) ? value.toFixed(1) : String(value);
  }
  const [digits, exponent] = value.toExponential().split("e");
  const power = Math.abs(Number(exponent));
  return `${digits}e${exponent.startsWith("-") ? "-" : "+"}${String(power).padStart(2, "0")}`;
}

/** A flag as Python writes it. */
export function pythonBool(value: boolean): string {
  return value ? "True" : "False";
}

/** Whole numbers as a tuple of Python: (2, 2), (3,); one that is no list stays a number. */
export function pythonTuple(values: number | readonly number[]): string {
  if (typeof values === "number") return String(values);
  return values.length === 1 ? `(${values[0]},)` : `(${values.join(", ")})`;
}
