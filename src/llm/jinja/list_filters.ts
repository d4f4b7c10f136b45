/**
 * Filters of lists and dicts.
 *
 * Python returns generators from filters such as batch() and unique(). Here too their values are computed when they are read. Such a
 * value counts as true, has no length and can be read once.
 *
 * @module
 */

import { compare, equal } from "./compare.ts";
import { itemOf } from "./access.ts";
import { type Filter, table } from "./functions.ts";
import { checkItems, step, TemplateFault } from "./limits.ts";
import { markedAs } from "./markup.ts";
import { arithmetic, indexOf } from "./numbers.ts";
import { str } from "./print.ts";
import { join, Str } from "./text.ts";
import {
  Dict,
  hashOf,
  isIterable,
  itemsOf,
  Iter,
  iterate,
  List,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.ts";

/** Reads an attribute such as "function.name" or 0 of a value. */
export type Getter = (value: Value) => Value;

/** The {@link Getter} of an attribute; `fallback` replaces undefined values. */
export function getter(attribute: Value, fallback?: Value): Getter {
  if (attribute === null) return (value) => value;
  const path: Value[] = attribute instanceof Str
    ? attribute.text.split(".").map((part) => /^\d+$/.test(part) ? Number(part) : Str.template(part))
    : [attribute];
  return (value) => {
    step();
    for (const part of path) {
      value = itemOf(value, part);
      if (fallback !== undefined && fallback !== null && value instanceof Undefined) value = fallback;
    }
    return value;
  };
}

const ignoreCase = (value: Value): Value => value instanceof Str ? value.map((text) => text.toLowerCase()) : value;

function keyOf(attribute: Value, caseSensitive: Value, fallback?: Value): Getter {
  const get = getter(attribute, fallback);
  return truthy(caseSensitive) ? get : (value) => ignoreCase(get(value));
}

/** Sorted by keys, equal ones as they stood. */
function sorted(items: readonly Value[], key: Getter, reverse: Value): List {
  const rows = items.map((item) => ({ item, key: key(item) }));
  const sign = truthy(reverse) ? -1 : 1;
  return new List(rows.sort((a, b) => sign * compare(a.key, b.key) || 0).map(({ item }) => item));
}

function sort(self: Value, reverse: Value = false, caseSensitive: Value = false, attribute: Value = null): Value {
  const names = attribute instanceof Str ? attribute.text.split(",").map((name) => Str.template(name)) : [attribute];
  const keys = names.map((name) => keyOf(name, caseSensitive));
  return sorted(itemsOf(self), (item) => new List(keys.map((key) => key(item))), reverse);
}

function dictSort(
  self: Value,
  caseSensitive: Value = false,
  by: Value = Str.template("key"),
  reverse: Value = false,
): Value {
  if (!(self instanceof Dict)) throw new TemplateFault(`dictsort needs a dict, not ${typeName(self)}`);
  const place = ["key", "value"].indexOf(str(by).text);
  if (place < 0) throw new TemplateFault('dictsort can only sort by "key" or "value"');
  return sorted([...new View(self, "items").values()], keyOf(place, caseSensitive), reverse);
}

function groupBy(self: Value, attribute: Value, fallback: Value = null, caseSensitive: Value = false): Value {
  const key = keyOf(attribute, caseSensitive, fallback);
  const shown = getter(attribute, fallback);
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of sorted(itemsOf(self), key, false).items) {
    const group = groups.at(-1);
    if (group !== undefined && equal(group.key, key(item))) group.items.push(item);
    else groups.push({ key: key(item), items: [item] });
  }
  return new List(groups.map(({ items }) => new Tuple([shown(items[0]), new List(items)], ["grouper", "list"])));
}

function extreme(self: Value, caseSensitive: Value = false, attribute: Value = null, sign: number): Value {
  const items = itemsOf(self);
  if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
  const key = keyOf(attribute, caseSensitive);
  let [best, bestKey] = [items[0], key(items[0])];
  for (const item of items.slice(1)) {
    const itemKey = key(item);
    if (sign * compare(itemKey, bestKey) > 0) [best, bestKey] = [item, itemKey];
  }
  return best;
}

function* unique(self: Value, caseSensitive: Value = false, attribute: Value = null): Generator<Value> {
  const key = keyOf(attribute, caseSensitive);
  const seen = new Set<unknown>();
  for (const item of iterate(self)) {
    const hash = hashOf(key(item));
    if (seen.has(hash)) continue;
    seen.add(hash);
    yield item;
  }
}

function reverse(self: Value): Value {
  if (self instanceof Str) return markedAs(self, self.reversed());
  return new Iter(itemsOf(self).toReversed().values());
}

function first(self: Value): Value {
  if (!isIterable(self)) throw new TemplateFault(`'${typeName(self)}' object is not iterable`);
  const { done, value } = iterate(self).next();
  return done ? new Undefined("No first item, sequence was empty.") : value;
}

function last(self: Value): Value {
  if (self instanceof Iter) throw new TemplateFault("'generator' object is not reversible");
  if (self instanceof Str) return self.length > 0 ? self.part(self.points - 1, self.points) : noLast();
  const items = itemsOf(self);
  return items.length > 0 ? items[items.length - 1] : noLast();
}

const noLast = (): Value => new Undefined("No last item, sequence was empty.");

function* batch(self: Value, count: Value, fill: Value = null): Generator<Value> {
  const size = indexOf(count, "batch()'s size");
  let items: Value[] = [];
  for (const item of iterate(self)) {
    if (items.length === size) {
      yield new List(items);
      items = [];
    }
    items.push(item);
  }
  if (items.length === 0) return;
  if (fill !== null) {
    checkItems(size);
    while (items.length < size) items.push(fill);
  }
  yield new List(items);
}

function* slices(self: Value, count: Value, fill: Value = null): Generator<Value> {
  const items = itemsOf(self);
  const parts = indexOf(count, "slice()'s number of parts");
  if (parts === 0) throw new TemplateFault("division by zero");
  const [size, longer] = [Math.floor(items.length / parts), items.length % parts];
  let at = 0;
  for (let i = 0; i < parts; i++) {
    step();
    const end = at + size + (i < longer ? 1 : 0);
    yield new List(fill !== null && i >= longer ? [...items.slice(at, end), fill] : items.slice(at, end));
    at = end;
  }
}

function joinItems(self: Value, separator: Value = Str.template(""), attribute: Value = null): Value {
  const get = getter(attribute);
  return join(itemsOf(self).map((item) => str(get(item))), str(separator));
}

function sum(self: Value, attribute: Value = null, start: Value = 0): Value {
  const get = getter(attribute);
  let total = start;
  for (const item of iterate(self)) total = arithmetic("+", total, get(item));
  return total;
}

function items(self: Value): Value {
  if (self instanceof Undefined) return new Iter([].values());
  if (self instanceof Dict) return new Iter(new View(self, "items").values());
  throw new TemplateFault("can only get item pairs from a mapping");
}

/** Filters of lists by name. */
export const LIST_FILTERS: Readonly<Record<string, Filter>> = table({
  batch: ["linecount fill_with?", (self, count, fill) => new Iter(batch(self, count, fill))],
  dictsort: ["case_sensitive? by? reverse?", dictSort],
  first: ["", first],
  groupby: ["attribute default? case_sensitive?", groupBy],
  items: ["", items],
  join: ["d? attribute?", joinItems],
  last: ["", last],
  list: ["", (self) => new List(itemsOf(self))],
  max: ["case_sensitive? attribute?", (self, sensitive, attribute) => extreme(self, sensitive, attribute, 1)],
  min: ["case_sensitive? attribute?", (self, sensitive, attribute) => extreme(self, sensitive, attribute, -1)],
  reverse: ["", reverse],
  slice: ["slices fill_with?", (self, count, fill) => new Iter(slices(self, count, fill))],
  sort: ["reverse? case_sensitive? attribute?", sort],
  sum: ["attribute? start?", sum],
  unique: [
    "case_sensitive? attribute?",
    (self, sensitive, attribute) => new Iter(unique(self, sensitive, attribute)),
  ],
});
