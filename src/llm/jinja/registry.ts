/**
 * All filters and tests by name, and those that look others up by name, such as `map` and `select`.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { VALUE_FILTERS } from "./filters.ts";
import { type Filter, known, NO_ARGS, table, type Test } from "./functions.ts";
import { step, TemplateFault } from "./limits.ts";
import { type Getter, getter, LIST_FILTERS } from "./list_filters.ts";
import { textOf } from "./strings.ts";
import { str } from "./print.ts";
import { VALUE_TESTS } from "./tests.ts";
import { TEXT_FILTERS } from "./text_filters.ts";
import { type Args, Iter, iterate, truthy, type Value } from "./values.ts";

function map(self: Value, { positional, named }: Args): Value {
  const [name, ...rest] = positional;
  let change: Getter;
  if (name === undefined) {
    const attribute = named.get("attribute");
    if (attribute === undefined) throw new TemplateFault("map() needs a filter");
    const other = [...named.keys()].find((key) => key !== "attribute" && key !== "default");
    if (other !== undefined) throw new TemplateFault(`map() has no argument ${quoted(other)}`);
    change = getter(attribute, named.get("default"));
  } else {
    const filter = known(FILTERS, textOf(name, "the name of a filter").text, "filter");
    change = (item) => filter(item, { positional: rest, named });
  }
  return new Iter(mapped(self, change));
}

function* mapped(self: Value, change: Getter): Generator<Value> {
  if (!truthy(self)) return;
  for (const item of iterate(self)) {
    step();
    yield change(item);
  }
}

/** select() and its kin: whether those that pass are kept, and whether an attribute is looked at. */
function selection(keep: boolean, byAttribute: boolean): Filter {
  return (self, { positional, named }) => {
    const [attribute, ...others] = byAttribute ? positional : [null, ...positional];
    if (attribute === undefined) throw new TemplateFault("selectattr() and rejectattr() need an attribute");
    const [name, ...rest] = others;
    const get = byAttribute ? getter(attribute) : (item: Value) => item;
    const test = name === undefined ? undefined : known(TESTS, textOf(name, "the name of a test").text, "test");
    const args = name === undefined ? NO_ARGS : { positional: rest, named };
    const passes = (item: Value): boolean => truthy(test === undefined ? get(item) : test(get(item), args));
    return new Iter(filtered(self, (item) => passes(item) === keep));
  };
}

function* filtered(self: Value, keeps: (item: Value) => boolean): Generator<Value> {
  if (!truthy(self)) return;
  for (const item of iterate(self)) {
    step();
    if (keeps(item)) yield item;
  }
}

/** Filters by name. */
export const FILTERS: Readonly<Record<string, Filter>> = {
  ...LIST_FILTERS,
  ...TEXT_FILTERS,
  ...VALUE_FILTERS,
  map,
  select: selection(true, false),
  reject: selection(false, false),
  selectattr: selection(true, true),
  rejectattr: selection(false, true),
};

/** Tests by name. */
export const TESTS: Readonly<Record<string, Test>> = {
  ...VALUE_TESTS,
  ...table({
    filter: ["", (self) => Object.hasOwn(FILTERS, str(self).text)],
    test: ["", (self) => Object.hasOwn(TESTS, str(self).text)],
  }),
};
