/**
 * How functions, methods, filters and tests of the language say which arguments they take.
 *
 * @module
 */

import { TemplateFault } from "./limits.ts";
import { quoted } from "../../graph/error.ts";
import type { Args, Value } from "./values.ts";

/** A function over arguments in the order of its parameters, those not given being `undefined`. */
// deno-lint-ignore no-explicit-any
type Body = (...args: any[]) => Value;

/** A filter: the value before `|`, and the arguments. */
export type Filter = (self: Value, args: Args) => Value;

/** A test: the value before `is`, and the arguments. */
export type Test = Filter;

/** No arguments. */
export const NO_ARGS: Args = { positional: [], named: new Map() };

/** Parameters as a text, such as "old new count?": those with "?" may be left out. */
export function binder(name: string, params: string): (args: Args) => (Value | undefined)[] {
  const rows = params.split(" ").filter(Boolean).map((param) => ({
    name: param.replace("?", ""),
    needed: !param.endsWith("?"),
  }));
  return ({ positional, named }) => {
    if (positional.length > rows.length) {
      throw new TemplateFault(`${name}() takes at most ${rows.length} arguments, ${positional.length} given`);
    }
    const values: (Value | undefined)[] = rows.map(({ name }, i) =>
      i < positional.length ? positional[i] : named.get(name)
    );
    for (const key of named.keys()) {
      const place = rows.findIndex((row) => row.name === key);
      if (place < 0) throw new TemplateFault(`${name}() has no argument ${quoted(key)}`);
      if (place < positional.length) throw new TemplateFault(`${name}() got two values for ${quoted(key)}`);
    }
    rows.forEach(({ name: param, needed }, i) => {
      if (needed && values[i] === undefined) throw new TemplateFault(`${name}() lacks the argument ${quoted(param)}`);
    });
    return values;
  };
}

/** A table of functions by name and parameters; `self` comes first and is no parameter. */
export function table(
  rows: Readonly<Record<string, readonly [params: string, body: Body]>>,
): Readonly<Record<string, (self: Value, args: Args) => Value>> {
  return Object.fromEntries(
    Object.entries(rows).map(([name, [params, body]]) => {
      const bind = binder(name, params);
      return [name, (self: Value, args: Args) => body(self, ...bind(args))];
    }),
  );
}

/** The filter or test of a name. */
export function known<T>(rows: Readonly<Record<string, T>>, name: string, what: "filter" | "test"): T {
  if (!Object.hasOwn(rows, name)) throw new TemplateFault(`there is no ${what} ${quoted(name)}`);
  return rows[name];
}
