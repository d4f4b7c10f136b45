/**
 * Values as text: Python's str() and repr(), and JSON as Python's json.dumps() writes it.
 *
 * Text of values that were no strings, such as numbers or the brackets of a list, counts as a user's text. Only text that the
 * template's author wrote out can be a control token.
 *
 * @module
 */

import { enter, leave, step, TemplateFault } from "./limits.ts";
import { floatText } from "./numbers.ts";
import { Builder, EMPTY, Str } from "./text.ts";
import {
  Dict,
  Float,
  Iter,
  List,
  Namespace,
  Range,
  Thing,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.ts";

/** The printed form of a value. */
export function str(value: Value): Str {
  if (value instanceof Str) return value;
  if (value instanceof Undefined) return EMPTY;
  const text = scalar(value);
  return text === undefined ? repr(value) : Str.user(text);
}

/** How a value is written in a program. */
export function repr(value: Value): Str {
  const out = new Builder();
  write(out, value);
  return out.done();
}

/** The text of what holds no other values. */
function scalar(value: Value): string | undefined {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof Float) return floatText(value.value);
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Range) return `range(${value.start}, ${value.stop}${value.by === 1 ? "" : `, ${value.by}`})`;
  if (value instanceof Iter) return "<generator object>";
  return value instanceof Thing && !(value instanceof Namespace) ? value.text : undefined;
}

function write(out: Builder, value: Value): void {
  step();
  enter();
  const text = scalar(value);
  if (text !== undefined) out.addUser(text);
  else if (value instanceof Str) writeQuoted(out, value);
  else if (value instanceof List) writeItems(out, "[", value.items, "]");
  else if (value instanceof Tuple) writeItems(out, "(", value.items, value.items.length === 1 ? ",)" : ")");
  else if (value instanceof Dict) writeEntries(out, value.entries());
  else if (value instanceof View) {
    writeItems(out, `dict_${value.what}([`, [...value.values()], "])");
  } else if (value instanceof Namespace) {
    out.addUser("<Namespace ");
    writeEntries(out, [...value.fields].map(([name, field]) => [Str.user(name), field]));
    out.addUser(">");
  }
  leave();
}

function writeItems(out: Builder, open: string, items: readonly Value[], close: string): void {
  out.addUser(open);
  items.forEach((item, i) => {
    if (i > 0) out.addUser(", ");
    write(out, item);
  });
  out.addUser(close);
}

function writeEntries(out: Builder, entries: Iterable<readonly [Value, Value]>): void {
  let open = "{";
  for (const [key, value] of entries) {
    out.addUser(open);
    write(out, key);
    out.addUser(": ");
    write(out, value);
    open = ", ";
  }
  out.addUser(open === "{" ? "{}" : "}");
}

const REPR_ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

function writeQuoted(out: Builder, value: Str): void {
  const quote = value.text.includes("'") && !value.text.includes('"') ? '"' : "'";
  out.addUser(quote);
  out.add(value.rewrite(/[\\']|(?! )[\p{C}\p{Z}]/gu, (char) => {
    if (char === "'") return quote === "'" ? "\\'" : "'";
    const code = char.codePointAt(0)!;
    const hex = (digits: number): string => code.toString(16).padStart(digits, "0");
    return REPR_ESCAPES[char] ?? (code < 256 ? `\\x${hex(2)}` : code < 65536 ? `\\u${hex(4)}` : `\\U${hex(8)}`);
  }));
  out.addUser(quote);
}

/** How JSON is written. */
export interface JsonForm {
  /** The indentation of a level, when entries have lines of their own. */
  readonly indent?: string;
  /** Between items, and between key and value. */
  readonly separators: readonly [Str, Str];
  /** Whether keys are sorted. */
  readonly sortKeys: boolean;
  /** Whether everything but ASCII is escaped. */
  readonly ascii: boolean;
}

/** A value as JSON. */
export function json(value: Value, form: JsonForm): Str {
  const out = new Builder();
  writeJson(out, value, form, "\n");
  return out.done();
}

function writeJson(out: Builder, value: Value, form: JsonForm, newline: string): void {
  step();
  enter();
  const text = jsonScalar(value);
  if (text !== undefined) out.addUser(text);
  else if (value instanceof Str) out.addUser('"').add(escaped(value, form.ascii)).addUser('"');
  else if (value instanceof List || value instanceof Tuple) {
    writeJsonBlock(out, "[", value.items, "]", form, newline, (item, inner) => writeJson(out, item, form, inner));
  } else if (value instanceof Dict) {
    writeJsonBlock(out, "{", jsonEntries(value, form.sortKeys), "}", form, newline, ([key, item], inner) => {
      out.addUser('"').add(escaped(key, form.ascii)).addUser('"').add(form.separators[1]);
      writeJson(out, item, form, inner);
    });
  } else throw new TemplateFault(`Object of type ${typeName(value)} is not JSON serializable`);
  leave();
}

function writeJsonBlock<T>(
  out: Builder,
  open: string,
  items: readonly T[],
  close: string,
  { indent, separators }: JsonForm,
  newline: string,
  writeItem: (item: T, inner: string) => void,
): void {
  const inner = newline + (indent ?? "");
  out.addUser(open);
  items.forEach((item, i) => {
    if (i > 0) out.add(separators[0]);
    if (indent !== undefined) out.add(Str.user(inner));
    writeItem(item, inner);
  });
  if (indent !== undefined && items.length > 0) out.add(Str.user(newline));
  out.addUser(close);
}

function jsonScalar(value: Value): string | undefined {
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (!(value instanceof Float)) return undefined;
  const text = floatText(value.value);
  return text.endsWith("inf") ? text.replace("inf", "Infinity") : text === "nan" ? "NaN" : text;
}

function jsonEntries(value: Dict, sorted: boolean): (readonly [Str, Value])[] {
  const entries = [...value.entries()].map(([key, item]) => {
    const text = key instanceof Str ? key : jsonScalar(key);
    if (text === undefined) {
      throw new TemplateFault(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
    }
    return [text instanceof Str ? text : Str.user(text), item] as const;
  });
  return sorted ? entries.sort(([a], [b]) => a.text < b.text ? -1 : a.text > b.text ? 1 : 0) : entries;
}

const JSON_ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\b": "\\b",
  "\f": "\\f",
};

function escaped(value: Str, ascii: boolean): Str {
  return value.rewrite(
    // deno-lint-ignore no-control-regex
    ascii ? /[^ !#-[\]-~]/g : /["\\\x00-\x1f]/g,
    (char) => JSON_ESCAPES[char] ?? `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
