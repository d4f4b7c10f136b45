/**
 * JSON as Python reads and writes it. All keys keep their order, whole numbers stay distinct from floats, and all digits are kept.
 * The output equals that of `json.dump(value, indent=4)` to the byte.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { LlmError } from "../error.ts";
import { floatText } from "../jinja/numbers.ts";

/** A number as it is written in the file. */
export class PythonNumber {
  /** Its digits. */
  readonly text: string;

  /** Keeps a number of a JSON text. */
  constructor(text: string) {
    this.text = text;
  }

  /** As Python writes what it read. */
  toString(): string {
    if (/^-?\d+$/.test(this.text)) return this.text === "-0" ? "0" : this.text;
    return floatText(Number(this.text));
  }
}

/** A value of Python's `json` module. */
export type PythonJson = null | boolean | string | number | PythonNumber | readonly PythonJson[] | PythonObject;

/** An object: keys in their order. */
export type PythonObject = Map<string, PythonJson>;

/** About as deep as Python's own reader goes. */
const MAX_DEPTH = 900;

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)|(true|false|null))/y;

/** Reads the object that is the text of `file`. Throws an {@link LlmError} if it is none. */
export function readPythonObject(text: string, file: string): PythonObject {
  const fail = (what: string): never => {
    throw new LlmError("config", `${file} ${what}`);
  };
  let at = 0;
  const next = (): string => {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (found === null) return fail(`is not valid JSON at character ${at}`);
    at = TOKEN.lastIndex;
    return found[0].trimStart();
  };
  const value = (token: string, depth: number): PythonJson => {
    if (depth > MAX_DEPTH) return fail(`is nested more than ${MAX_DEPTH} deep`);
    if (token === "{") return object(depth);
    if (token === "[") return list(depth);
    if (token.startsWith('"')) return JSON.parse(token);
    if (/^[-\d]/.test(token)) return new PythonNumber(token);
    if (["true", "false", "null"].includes(token)) return JSON.parse(token);
    return fail(`has ${quoted(token)} where a value is expected`);
  };
  const object = (depth: number): PythonObject => {
    const found: PythonObject = new Map();
    for (let token = next(); token !== "}"; token = next()) {
      if (token === ",") continue;
      next(); // the colon
      found.set(JSON.parse(token), value(next(), depth + 1));
    }
    return found;
  };
  const list = (depth: number): PythonJson[] => {
    const found: PythonJson[] = [];
    for (let token = next(); token !== "]"; token = next()) if (token !== ",") found.push(value(token, depth + 1));
    return found;
  };
  try {
    JSON.parse(text); // from here on the text is known to be JSON
  } catch (cause) {
    throw new LlmError("config", `${file} is not valid JSON: ${quoted((cause as Error).message)}`);
  }
  const whole = value(next(), 0);
  return whole instanceof Map ? whole : fail("is no object");
}

/** The text that `json.dump(value, file, indent=4)` writes. */
export function writePythonJson(value: PythonJson, indent = ""): string {
  const inner = `${indent}    `;
  const block = (open: string, rows: readonly string[], close: string): string =>
    rows.length === 0 ? open + close : `${open}\n${inner}${rows.join(`,\n${inner}`)}\n${indent}${close}`;
  if (value instanceof Map) {
    return block("{", Array.from(value, ([key, item]) => `${ascii(key)}: ${writePythonJson(item, inner)}`), "}");
  }
  if (Array.isArray(value)) return block("[", value.map((item) => writePythonJson(item, inner)), "]");
  if (typeof value === "string") return ascii(value);
  return String(value);
}

/** A string in which everything but printable ASCII is escaped. */
export function ascii(text: string): string {
  // deno-lint-ignore no-control-regex
  return JSON.stringify(text).replaceAll(/[^\x00-\x7e]/g, (unit) => {
    return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** Compares texts by their code points, as Python and the bytes of UTF-8 do. */
export function byCodePoints(a: string, b: string): number {
  const [x, y] = [a, b].map((text) => Array.from(text, (char) => char.codePointAt(0)!));
  const at = x.findIndex((point, i) => point !== y[i]);
  return at < 0 ? x.length - y.length : x[at] - (y[at] ?? -1);
}
