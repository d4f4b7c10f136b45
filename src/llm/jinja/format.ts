/**
 * Python's two ways to put values into a text: the `%` operator and str.format().
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { checkLength, TemplateFault } from "./limits.ts";
import { escape } from "./markup.ts";
import { fixed, floatText, integerOf } from "./numbers.ts";
import { repr, str } from "./print.ts";
import { Builder, Str } from "./text.ts";
import { type Args, Dict, Float, lengthOf, numberOf, Tuple, typeName, type Value } from "./values.ts";

/** The access by `a.b` and `a[b]`. access.ts implements it; its string methods format text. */
export interface Access {
  attributeOf(of: Value, name: string): Value;
  itemOf(of: Value, index: Value): Value;
}

/** How one value is written. */
interface Spec {
  readonly fill: string;
  readonly align: string;
  readonly sign: string;
  readonly alternate: boolean;
  readonly width: number;
  readonly grouping: string;
  readonly precision: number | undefined;
  readonly type: string;
}

const PERCENT =
  /%(?:\((?<name>[^)]*)\))?(?<flags>[-+ #0]*)(?<width>\*|\d+)?(?:\.(?<precision>\*|\d*))?[hlL]?(?<type>[^])?/g;

/** `format % value`. */
export function formatPercent(format: Str, value: Value, { itemOf }: Pick<Access, "itemOf">): Str {
  const out = new Builder();
  const positional = value instanceof Tuple ? value.items : [value];
  let used = 0;
  const next = (): Value => {
    if (used >= positional.length) throw new TemplateFault("not enough arguments for format string");
    return positional[used++];
  };
  const size = (text: string | undefined): number | undefined =>
    text === undefined ? undefined : text === "*" ? Number(integerOf(next()) ?? 0) : Number(text);
  let at = 0;
  for (const { 0: match, index, groups = {} } of format.text.matchAll(PERCENT)) {
    out.add(format.slice(at, index));
    at = index + match.length;
    const { name, flags, type } = groups;
    if (type === undefined) throw new TemplateFault("incomplete format");
    if (type === "%") {
      out.add(format.slice(at - 1, at));
      continue;
    }
    if (name !== undefined && !(value instanceof Dict)) throw new TemplateFault("format requires a mapping");
    const width = size(groups.width) ?? 0;
    const precision = size(groups.precision);
    const item = name === undefined ? next() : itemOf(value, Str.template(name));
    const left = flags.includes("-") || width < 0;
    const zero = flags.includes("0") && !left && !"sra".includes(type);
    out.add(formatted(percentItem(item, type), {
      fill: zero ? "0" : " ",
      align: left ? "<" : zero ? "=" : ">",
      sign: flags.includes("+") ? "+" : flags.includes(" ") ? " " : "",
      alternate: flags.includes("#"),
      width: Math.abs(width),
      grouping: "",
      precision,
      type: type === "i" || type === "u" ? "d" : "sra".includes(type) ? "s" : type,
    }));
  }
  if (used < positional.length && (value instanceof Tuple || value instanceof Str || lengthOf(value) === undefined)) {
    throw new TemplateFault("not all arguments converted during string formatting");
  }
  return out.add(format.slice(at)).done();
}

function percentItem(item: Value, type: string): Value {
  if (type === "r" || type === "a") return repr(item);
  if (type === "s") return str(item);
  if (type === "c") {
    if (item instanceof Str && item.points === 1) return item;
    const code = integerOf(item);
    if (code !== undefined && code >= 0 && code <= 0x10ffff) return Str.user(String.fromCodePoint(Number(code)));
    throw new TemplateFault("%c requires int or char");
  }
  const number = numberOf(item);
  if (number === undefined) {
    throw new TemplateFault(`format ${quoted(type)}: a number is required, not ${typeName(item)}`);
  }
  return "diu".includes(type) && item instanceof Float ? wholePart(item.value) : item;
}

function wholePart(value: number): Value {
  if (!Number.isFinite(value)) throw new TemplateFault(`cannot convert float ${floatText(value)} to integer`);
  return BigInt(Math.trunc(value));
}

const FIELD = /\{\{|\}\}|\{(?<name>[^{}!:]*)(?:!(?<conversion>[rsa]))?(?::(?<spec>(?:[^{}]|\{[^{}]*\})*))?\}|[{}]/g;
const SPEC =
  /^(?:(?<fill>[^])?(?<align>[<>=^]))?(?<sign>[-+ ])?(?<alternate>#)?(?<zero>0)?(?<width>\d+)?(?<grouping>[,_])?(?:\.(?<precision>\d+))?(?<type>[a-zA-Z%])?$/u;

/** Most characters in braces before a colon. */
const MAX_PATH = 1000;

/** `format.format(...)`. */
export function formatBraces(format: Str, { positional, named }: Args, { attributeOf, itemOf }: Access): Str {
  let count = 0;
  const valueOf = (path: string): Value => {
    if (path.length > MAX_PATH) {
      throw new TemplateFault(`a field of more than ${MAX_PATH} characters in a format string`);
    }
    const [, first, rest] = /^([^.[]*)([^]*)$/.exec(path)!;
    const key = first === "" ? String(count++) : first;
    let value = /^\d+$/.test(key) ? positional[Number(key)] : named.get(key);
    if (value === undefined) throw new TemplateFault("format() lacks an argument that its text names");
    for (const [, name, index] of rest.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
      value = name !== undefined
        ? attributeOf(value, name)
        : itemOf(value, /^\d+$/.test(index) ? Number(index) : Str.template(index));
    }
    return value;
  };
  const out = new Builder();
  let at = 0;
  for (const { 0: match, index, groups = {} } of format.text.matchAll(FIELD)) {
    out.add(format.slice(at, index));
    at = index + match.length;
    if (match === "{{" || match === "}}") out.add(format.slice(at - 1, at));
    else if (match.length === 1) throw new TemplateFault(`single '${match}' encountered in format string`);
    else {
      const item = valueOf(groups.name);
      const spec = (groups.spec ?? "").replace(/\{([^{}]*)\}/g, (_, name) => str(valueOf(name)).text);
      const value = groups.conversion === undefined ? item : groups.conversion === "s" ? str(item) : repr(item);
      const text = formatted(value, readSpec(spec, value));
      out.add(format.markup && !(item instanceof Str && item.markup) ? escape(text) : text);
    }
  }
  return out.add(format.slice(at)).done();
}

function readSpec(text: string, value: Value): Spec {
  const { groups } = SPEC.exec(text) ?? {};
  if (groups === undefined) throw new TemplateFault("invalid format specifier");
  const isNumber = numberOf(value) !== undefined && (typeof value !== "boolean" || groups.type !== undefined);
  if (!isNumber && text !== "" && !(value instanceof Str) && typeof value !== "boolean") {
    throw new TemplateFault(`unsupported format string passed to ${typeName(value)}.__format__`);
  }
  const type = groups.type ?? (isNumber ? value instanceof Float ? "" : "d" : "s");
  return {
    fill: groups.fill ?? (groups.zero ? "0" : " "),
    align: groups.align ?? (isNumber ? groups.zero ? "=" : ">" : "<"),
    sign: groups.sign ?? "",
    alternate: groups.alternate !== undefined,
    width: Number(groups.width ?? 0),
    grouping: groups.grouping ?? "",
    precision: groups.precision === undefined ? undefined : Number(groups.precision),
    type,
  };
}

function formatted(value: Value, spec: Spec): Str {
  checkLength(spec.width);
  if (spec.type === "s" || spec.type === "c") {
    if (numberOf(value) !== undefined && typeof value !== "boolean") {
      throw new TemplateFault(`unknown format code ${quoted(spec.type)} for object of type '${typeName(value)}'`);
    }
    const text = str(value);
    return padded(spec.precision === undefined ? text : text.part(0, spec.precision), spec);
  }
  const number = numberOf(value);
  if (number === undefined) {
    throw new TemplateFault(`unknown format code ${quoted(spec.type)} for object of type '${typeName(value)}'`);
  }
  const negative = number < 0 || Object.is(number, -0);
  const size = typeof number === "bigint" ? (negative ? -number : number) : Math.abs(number);
  const sign = negative ? "-" : spec.sign === "-" ? "" : spec.sign;
  const prefix = sign + (spec.alternate ? PREFIXES[spec.type] ?? "" : "");
  let digits = digitsOf(size, spec, value);
  if (spec.grouping !== "") {
    const [whole, ...rest] = digits.split(/(?=[.e])/);
    digits = whole.replace(/\B(?=(\d{3})+$)/g, spec.grouping) + rest.join("");
  }
  if (spec.align !== "=") return padded(Str.user(prefix + digits), spec);
  return Str.user(prefix + spec.fill.repeat(Math.max(0, spec.width - prefix.length - digits.length)) + digits);
}

const PREFIXES: Readonly<Record<string, string>> = { x: "0x", X: "0X", o: "0o", b: "0b" };
const BASES: Readonly<Record<string, number>> = { x: 16, X: 16, o: 8, b: 2, d: 10, n: 10 };

function digitsOf(size: number | bigint, { type, precision, alternate }: Spec, value: Value): string {
  const base = BASES[type];
  if (base !== undefined) {
    if (value instanceof Float) {
      throw new TemplateFault(`unknown format code ${quoted(type)} for object of type 'float'`);
    }
    const text = size.toString(base);
    return (type === "X" ? text.toUpperCase() : text).padStart(Math.min(precision ?? 0, 1000), "0");
  }
  const number = Number(size);
  if (!Number.isFinite(number)) return floatText(number) + (type === "%" ? "%" : "");
  const decimals = Math.min(precision ?? 6, 100);
  const text = {
    f: () => fixed(number, decimals),
    e: () => exponential(number, decimals),
    g: () => general(number, decimals, alternate),
    "%": () => `${fixed(number * 100, decimals)}%`,
    "": () => precision === undefined ? floatText(number) : general(number, decimals, alternate),
  }[type.toLowerCase()];
  if (text === undefined) throw new TemplateFault(`unknown format code for object of type '${typeName(value)}'`);
  return type === "E" || type === "G" ? text().toUpperCase() : text();
}

function exponential(value: number, digits: number): string {
  return value.toExponential(digits).replace(/e([+-])(\d)$/, "e$10$2");
}

function general(value: number, precision: number, alternate: boolean): string {
  const digits = Math.max(1, precision);
  const exponent = Number(value.toExponential(digits - 1).split("e")[1]);
  const small = exponent >= -4 && exponent < digits;
  const text = small ? fixed(value, Math.max(0, digits - 1 - exponent)) : exponential(value, digits - 1);
  return alternate ? text : text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}

function padded(text: Str, { fill, align, width }: Spec): Str {
  const missing = Math.max(0, width - text.points);
  if (missing === 0) return text;
  const before = align === "<" ? 0 : align === "^" ? missing >> 1 : missing;
  const space = (count: number): Str => Str.user(fill.repeat(count));
  return space(before).plus(text).plus(space(missing - before));
}
