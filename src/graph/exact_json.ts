/**
 * JSON of values that have integers beyond 2^53.
 *
 * @module
 */

/** The JSON text of a value, "null" of what has none. Bigints of any depth are numbers with all their digits. */
export function exactJson(value: unknown, indent?: number): string {
  const raw = (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON;
  return JSON.stringify(value, (_, item) => typeof item === "bigint" ? raw(String(item)) : item, indent) ?? "null";
}
