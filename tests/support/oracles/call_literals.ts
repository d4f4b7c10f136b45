/**
 * Values of calls, and how JSON, Python and Gemma's templates write them.
 *
 * @module
 */

/** A value of an argument. */
export type Value = null | boolean | number | bigint | string | readonly Value[] | { readonly [key: string]: Value };

/** A call as it was drawn. */
export interface DrawnCall {
  readonly name: string;
  readonly arguments: { readonly [key: string]: Value };
  readonly id?: string;
}

/** The same choices for the same seed. */
export class Draw {
  #state: number;

  constructor(seed: number) {
    this.#state = seed * 2654435761 >>> 0;
  }

  /** A whole number below a limit. */
  below(limit: number): number {
    this.#state = Math.imul(this.#state, 1664525) + 1013904223 >>> 0;
    return (this.#state >>> 8) % limit;
  }

  /** One of a list. */
  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }

  /** White space around a block. */
  around(text: string): string {
    const space = this.of(["\n", "", " ", "\n  "]);
    return `${space}${text}${space}`;
  }
}

/** Characters that Python's repr() escapes. */
// deno-lint-ignore no-control-regex
const ESCAPED = /[\\\0-\x1f\x7f]/g;

/** A list of what is written already. */
export function list(items: readonly string[]): string {
  return `[${items.join(", ")}]`;
}

/** JSON as Python's json.dumps, JavaScript or a model writes it: compact or not, indented, with escapes or without. */
export function json(value: Value, draw: Draw): string {
  const style = draw.below(4);
  const [comma, colon] = style === 1 ? [",", ":"] : [", ", ": "];
  const ascii = style === 2;
  const write = (one: Value, indent: string): string => {
    const inner = style === 3 ? `${indent}  ` : "";
    const open = style === 3 ? `\n${inner}` : "";
    const end = style === 3 ? `\n${indent}` : "";
    const separator = style === 3 ? `,\n${inner}` : comma;
    if (typeof one === "string") return quote(one, ascii);
    if (Array.isArray(one)) {
      return one.length === 0 ? "[]" : `[${open}${one.map((item) => write(item, inner)).join(separator)}${end}]`;
    }
    if (typeof one !== "object" || one === null) return String(one);
    const pairs = Object.entries(one).map(([key, item]) => `${quote(key, ascii)}${colon}${write(item, inner)}`);
    return pairs.length === 0 ? "{}" : `{${open}${pairs.join(separator)}${end}}`;
  };
  return write(value, "");
}

function quote(text: string, ascii: boolean): string {
  const escaped = JSON.stringify(text);
  if (!ascii) return escaped;
  return escaped.replaceAll(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A value as templates write it that leave texts as they are. */
export function plain(value: Value): string {
  return typeof value === "string" ? value : json(value, new Draw(0));
}

/** A value as Gemma's templates write it. */
export function gemma(value: Value, mark: string): string {
  if (typeof value === "string") return `${mark}${value}${mark}`;
  if (Array.isArray(value)) return `[${value.map((item) => gemma(item, mark)).join(",")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  return `{${Object.entries(value).map(([key, item]) => `${key}:${gemma(item, mark)}`).join(",")}}`;
}

/** A call as Python writes it. */
export function python({ name, arguments: given }: DrawnCall, draw: Draw): string {
  return `${name}(${Object.entries(given).map(([key, value]) => `${key}=${repr(value, draw)}`).join(", ")})`;
}

function repr(value: Value, draw: Draw): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") {
    const mark = draw.of(["'", '"']);
    const escaped = value.replaceAll(
      ESCAPED,
      (char) =>
        ({ "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r" })[char] ??
          `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`,
    );
    return `${mark}${escaped.replaceAll(mark, `\\${mark}`)}${mark}`;
  }
  if (Array.isArray(value)) return `[${value.map((item) => repr(item, draw)).join(", ")}]`;
  if (typeof value !== "object") return String(value);
  return `{${Object.entries(value).map(([key, item]) => `${repr(key, draw)}: ${repr(item, draw)}`).join(", ")}}`;
}
