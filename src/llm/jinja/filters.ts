/**
 * The filters of the language, as in `x | trim`: those of Jinja that make sense for text, and `tojson` as Hugging Face has it.
 * Filters of lists are in list_filters.ts, what wraps and shortens text is in text_filters.ts; registry.ts has them all.
 *
 * @module
 */

import { attributeOf, percent } from "./access.ts";
import { type Filter, table } from "./functions.ts";
import { checkLength, TemplateFault } from "./limits.ts";
import { escape, forceEscape, markedAs } from "./markup.ts";
import { capitalize, pad, replace, strip, textOf } from "./strings.ts";
import { arithmetic, fixed, indexOf, integerOf, negated, parseFloating, parseWhole, whole } from "./numbers.ts";
import { json, repr, str } from "./print.ts";
import { Str } from "./text.ts";
import {
  type Args,
  Dict,
  Float,
  itemsOf,
  Iter,
  lengthOf,
  numberOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

function length(self: Value): Value {
  const items = lengthOf(self);
  if (items === undefined) throw new TemplateFault(`object of type '${typeName(self)}' has no len()`);
  return items;
}

const MISSING = Str.template("");

function otherwise(self: Value, value: Value = MISSING, boolean: Value = false): Value {
  return self instanceof Undefined || (truthy(boolean) && !truthy(self)) ? value : self;
}

function int(self: Value, value: Value = 0, base: Value = 10): Value {
  if (self instanceof Undefined) self.fail();
  const number = self instanceof Str ? parseWhole(self.text, indexOf(base, "a base")) : integerOf(self);
  if (number !== undefined) return number;
  const floating = self instanceof Str ? parseFloating(self.text) : numberOf(self);
  return Number.isFinite(floating) ? whole(BigInt(Math.trunc(Number(floating)))) : value;
}

function float(self: Value, value: Value = new Float(0)): Value {
  if (self instanceof Undefined) self.fail();
  const number = self instanceof Str ? parseFloating(self.text) : numberOf(self);
  return number === undefined ? value : new Float(Number(number));
}

function abs(self: Value): Value {
  const number = numberOf(self);
  if (number === undefined) {
    if (self instanceof Undefined) self.fail();
    throw new TemplateFault(`bad operand type for abs(): '${typeName(self)}'`);
  }
  return number < 0 ? negated(self) : typeof self === "boolean" ? Number(self) : self;
}

function round(self: Value, precision: Value = 0, method: Value = Str.template("common")): Value {
  const number = numberOf(self);
  const digits = indexOf(precision, "round()'s precision");
  if (number === undefined) throw new TemplateFault(`type ${typeName(self)} doesn't define __round__ method`);
  const way = str(method).text;
  if (way === "ceil" || way === "floor") {
    const scale = 10 ** digits;
    return new Float(Math[way](Number(number) * scale) / scale);
  }
  if (way !== "common") throw new TemplateFault("method must be common, ceil or floor");
  if (self instanceof Float) {
    if (!Number.isFinite(self.value) || digits > 60) return self;
    return new Float(
      digits >= 0 ? Number(fixed(self.value, digits)) : toEven(self.value / 10 ** -digits) * 10 ** -digits,
    );
  }
  if (digits >= 0) return integerOf(self)!;
  const scale = 10n ** BigInt(Math.min(-digits, 4000));
  const [rest, value] = [arithmetic("%", whole(BigInt(number)), whole(scale)), BigInt(number)];
  const below = value - BigInt(integerOf(rest)!);
  const twice = 2n * BigInt(integerOf(rest)!);
  const up = twice > scale || (twice === scale && (below / scale) % 2n !== 0n);
  return whole(up ? below + scale : below);
}

function toEven(value: number): number {
  return Number(fixed(value, 0));
}

function attribute(self: Value, name: Value): Value {
  const found = attributeOf(self, textOf(name, "attr()'s argument").text);
  // attr() looks for attributes only, where the dot would take items too.
  if (self instanceof Dict && self.get(name) === found) return new Undefined("there is no such attribute");
  return found;
}

function format(self: Value, { positional, named }: Args): Value {
  if (positional.length > 0 && named.size > 0) {
    throw new TemplateFault("format() can't handle positional and keyword arguments at the same time");
  }
  const fields = (): Value => new Dict([...named].map(([name, value]) => [Str.template(name), value]));
  return percent(str(self), named.size > 0 ? fields() : new Tuple(positional));
}

function toJson(
  self: Value,
  ascii: Value = false,
  indent: Value = null,
  separators: Value = null,
  sort: Value = false,
): Value {
  const spaces = (): string => {
    if (indent instanceof Str) return indent.text;
    const count = Math.max(0, indexOf(indent, "tojson()'s indent"));
    checkLength(count);
    return " ".repeat(count);
  };
  const given = separators === null ? undefined : itemsOf(separators).map((item) => textOf(item, "a separator"));
  if (given !== undefined && given.length !== 2) throw new TemplateFault("tojson() needs two separators");
  const [between, after] = given ?? [Str.user(indent === null ? ", " : ","), Str.user(": ")];
  return json(self, {
    indent: indent === null ? undefined : spaces(),
    separators: [between, after],
    sortKeys: truthy(sort),
    ascii: truthy(ascii),
  });
}

/** A whole number of bytes for people. */
function fileSize(self: Value, binary: Value = false): Value {
  const bytes = Number(numberOf(float(self)));
  const base = truthy(binary) ? 1024 : 1000;
  if (bytes === 1) return Str.user("1 Byte");
  if (bytes < base) return Str.user(`${Math.trunc(bytes)} Bytes`);
  const power = Math.min(8, Math.max(1, Math.floor(Math.log(bytes) / Math.log(base) + 1e-12)));
  return Str.user(
    `${fixed(bytes / base ** power, 1)} ${"kMGTPEZY"[power - 1].replace("k", truthy(binary) ? "K" : "k")}${
      truthy(binary) ? "iB" : "B"
    }`,
  );
}

/** A filter whose result is markup if its input is. */
const kept = (change: (text: Str, ...args: Value[]) => Value) => (self: Value, ...args: Value[]): Value =>
  markedAs(self, change(str(self), ...args));

function urlencode(self: Value): Value {
  const quote = (value: Value, query: boolean): Str =>
    str(value).map((text) => {
      const encoded = encodeURIComponent(text.toWellFormed()).replace(/[!'()*]/g, (char) =>
        `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
      return query ? encoded.replaceAll("%20", "+") : encoded.replaceAll("%2F", "/");
    });
  if (self instanceof Str || (lengthOf(self) === undefined && !(self instanceof Iter))) return quote(self, false);
  const pairs = self instanceof Dict ? [...self.entries()] : itemsOf(self).map((pair) => itemsOf(pair));
  return pairs.reduce((all: Str, pair, i) => {
    if (pair.length !== 2) throw new TemplateFault("urlencode needs pairs of key and value");
    return all.plus(Str.user(i === 0 ? "" : "&")).plus(quote(pair[0], true)).plus(Str.user("=")).plus(
      quote(pair[1], true),
    );
  }, Str.user(""));
}

/** Filters of single values by name. */
export const VALUE_FILTERS: Readonly<Record<string, Filter>> = {
  ...table({
    abs: ["", abs],
    attr: ["name", attribute],
    capitalize: ["", kept(capitalize)],
    center: ["width?", kept((text, width = 80) => pad(text, width, undefined, "center"))],
    count: ["", length],
    d: ["default_value? boolean?", otherwise],
    default: ["default_value? boolean?", otherwise],
    e: ["", escape],
    escape: ["", escape],
    filesizeformat: ["binary?", fileSize],
    float: ["default?", float],
    forceescape: ["", forceEscape],
    int: ["default? base?", int],
    length: ["", length],
    lower: ["", kept((self) => self.map((text) => text.toLowerCase()))],
    pprint: ["", (self) => repr(self)],
    replace: [
      "old new count?",
      (self, old, by, count) => replace(str(self), str(old), str(by), count).withMarkup(false),
    ],
    round: ["precision? method?", round],
    safe: ["", (self) => str(self).withMarkup(true)],
    string: ["", (self) => str(self)],
    tojson: ["ensure_ascii? indent? separators? sort_keys?", toJson],
    trim: ["chars?", kept((text, chars) => strip(text, chars))],
    upper: ["", kept((self) => self.map((text) => text.toUpperCase()))],
    urlencode: ["", urlencode],
  }),
  format,
};
