/**
 * The tables of `deno task bench:ops`: milliseconds and ratios on the CPU, rates and shares of a copy's on a GPU.
 *
 * @module
 */

import { type OpRow, type ReferenceName, REFERENCES } from "./measure.ts";

/** The geometric mean; null of none. */
export function geometricMean(values: readonly number[]): number | null {
  return values.length === 0 ? null : Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length);
}

/** How many times as fast vkmx is, for the rows that have both. */
export function ratiosOf(rows: readonly OpRow[], name: ReferenceName): number[] {
  return rows.map((row) => ratio(row, name)).filter((r) => r !== null);
}

function ratio(row: OpRow, name: ReferenceName): number | null {
  const other = row[name];
  return other === null || row.vkmx === null ? null : other / row.vkmx;
}

const digits = (value: number | null, places = 3): string => {
  if (value === null) return "-";
  return value >= 1000 ? value.toFixed(0) : value >= 100 ? value.toFixed(1) : value.toFixed(places);
};

/** The rate of a row: GB/s, TFLOP/s or G keys/s. */
function rateOf({ work, vkmx }: OpRow): { readonly value: number; readonly unit: string } | undefined {
  if (work.unit === "none" || vkmx === null) return undefined;
  const giga = work.amount / vkmx / 1e6; // of a second
  if (work.unit === "bytes") return { value: giga, unit: "GB/s" };
  if (work.unit === "keys") return { value: giga, unit: "G keys/s" };
  return giga >= 1000 ? { value: giga / 1000, unit: "TFLOP/s" } : { value: giga, unit: "GFLOP/s" };
}

/** The table as text: beside the versions of the references where they ran, with shares of a copy's GB/s if they are given. */
export function describeOps(
  rows: readonly OpRow[],
  copy?: number,
  versions?: Readonly<Record<ReferenceName, string>>,
): string {
  const head = ["call", "size", "ms", "rate"];
  if (copy !== undefined) head.push("of copy");
  if (versions) { for (const name of REFERENCES) head.push(`${name} ms`, "ratio"); }
  const cells = rows.map((row) => {
    const rate = rateOf(row);
    const line = [
      row.case,
      String(row.size),
      row.vkmx === null ? "missing" : digits(row.vkmx, 4),
      rate ? `${digits(rate.value, 2)} ${rate.unit}` : "-",
    ];
    if (copy !== undefined) line.push(rate?.unit === "GB/s" ? (rate.value / copy).toFixed(2) : "-");
    if (versions) { for (const name of REFERENCES) line.push(digits(row[name], 4), digits(ratio(row, name), 2)); }
    return line;
  });
  const widths = head.map((title, i) => Math.max(title.length, ...cells.map((line) => line[i].length)));
  const lines = [head, ...cells].map((line) =>
    line.map((cell, i) => i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])).join("  ")
  );
  if (copy !== undefined) lines.unshift(`a copy moves ${copy.toFixed(1)} GB/s`);
  if (versions) {
    lines.push("");
    for (const name of REFERENCES) {
      const ratios = ratiosOf(rows, name);
      const mean = digits(geometricMean(ratios), 2);
      lines.push(`geometric mean of ${ratios.length} rows: ${mean} x ${name} ${versions[name]}`);
    }
  }
  const missing = rows.filter((row) => row.missing !== undefined);
  if (missing.length > 0) lines.push("", ...missing.map((row) => `${row.case}: ${row.missing}`));
  return lines.join("\n") + "\n";
}
