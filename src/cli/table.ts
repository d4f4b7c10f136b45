/**
 * Tables and amounts as commands print them.
 *
 * @module
 */

/** Lines of columns that are aligned; columns of `right` end at the same place. The last column is not filled up. */
export function table(rows: readonly (readonly string[])[], right: readonly number[] = []): string {
  const widths = rows.reduce<number[]>((widest, row) => {
    row.forEach((cell, i) => widest[i] = Math.max(widest[i] ?? 0, cell.length));
    return widest;
  }, []);
  return rows.map((row) => {
    const cells = row.map((cell, i) =>
      right.includes(i) ? cell.padStart(widths[i]) : i === row.length - 1 ? cell : cell.padEnd(widths[i])
    );
    return `${cells.join("  ").trimEnd()}\n`;
  }).join("");
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Bytes as "4.77 MB". */
export function describeBytes(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${power === 0 ? value : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[power]}`;
}

/** A count as "8.92 M". */
export function describeCount(count: number): string {
  if (count < 1e6) return String(count);
  return count < 1e9 ? `${(count / 1e6).toPrecision(3)} M` : `${(count / 1e9).toPrecision(3)} B`;
}

/** A moment as "2026-01-31 12:34", in the time of this place. */
export function describeTime(time: Date): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}
