/**
 * Functions that every template finds: those of Jinja, and `raise_exception` and `strftime_now` of Hugging Face.
 *
 * @module
 */

import { binder } from "./functions.ts";
import { countRange, TemplateFault } from "./limits.ts";
import { indexOf } from "./numbers.ts";
import { str } from "./print.ts";
import { EMPTY, Str } from "./text.ts";
import { type Args, Dict, Func, itemsOf, Namespace, Range, Thing, type Value } from "./values.ts";
import { quoted } from "../../graph/error.ts";

/** Functions by name. */
export const GLOBALS: readonly Func[] = [
  func("range", "start stop? step?", (start, stop, by) => {
    const [from, to] = stop === undefined ? [0, start!] : [start!, stop];
    const stride = by === undefined ? 1 : indexOf(by, "range()'s step");
    if (stride === 0) throw new TemplateFault("range() arg 3 must not be zero");
    const range = new Range(indexOf(from, "range()'s start"), indexOf(to, "range()'s stop"), stride);
    countRange(range.length, true);
    return range;
  }),
  new Func("dict", (args) => new Dict(fieldsOf("dict", args))),
  new Func("namespace", (args) => {
    const fields = new Map(fieldsOf("namespace", args).map(([key, value]) => [str(key).text, value]));
    for (const name of fields.keys()) {
      if (name.startsWith("_")) throw new TemplateFault(`a namespace cannot have the attribute ${quoted(name)}`);
    }
    return new Namespace(fields);
  }),
  new Func("cycler", ({ positional }) => new Cycler(positional)),
  func("joiner", "sep?", (separator) => {
    let used = false;
    return func("joiner", "", () => {
      const text = used ? separator ?? Str.template(", ") : EMPTY;
      used = true;
      return text;
    });
  }),
  func("raise_exception", "message", (message) => {
    throw new TemplateFault(`the template refuses: ${quoted(str(message!).text)}`);
  }),
  func("strftime_now", "format", (format) => strftime(str(format!), new Date())),
];

function func(name: string, params: string, run: (...args: (Value | undefined)[]) => Value): Func {
  const bind = binder(name, params);
  return new Func(name, (args) => run(...bind(args)));
}

/** The entries that dict(…) makes of a dict or of pairs, and of arguments by name, which may be keys of a user's dict. */
function fieldsOf(name: string, { positional, named }: Args): (readonly [Value, Value])[] {
  if (positional.length > 1) throw new TemplateFault(`${name}() takes at most one argument by position`);
  const [from] = positional;
  const pairs = from === undefined ? [] : from instanceof Dict ? [...from.entries()] : itemsOf(from).map((pair) => {
    const [key, value, ...more] = itemsOf(pair);
    if (value === undefined || more.length > 0) throw new TemplateFault(`${name}() needs pairs of key and value`);
    return [key, value] as const;
  });
  return [...pairs, ...[...named].map(([key, value]) => [Str.user(key), value] as const)];
}

/** The result of cycler(). */
class Cycler extends Thing {
  readonly typeName = "Cycler";
  #place = 0;

  constructor(readonly items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateFault("at least one item has to be provided");
  }

  override attribute(name: string): Value | undefined {
    if (name === "current") return this.items[this.#place];
    if (name === "next") {
      return func("next", "", () => {
        const item = this.items[this.#place];
        this.#place = (this.#place + 1) % this.items.length;
        return item;
      });
    }
    if (name !== "reset") return undefined;
    return func("reset", "", () => {
      this.#place = 0;
      return null;
    });
  }
}

/** A time in Python's strftime(), in English. */
function strftime(format: Str, now: Date): Str {
  const name = (options: Intl.DateTimeFormatOptions): string => now.toLocaleDateString("en-US", options);
  const two = (value: number): string => String(value).padStart(2, "0");
  const hour = now.getHours() % 12 || 12;
  const startOfYear = new Date(now.getFullYear(), 0, 1);
  const day = Math.round(
    (Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) -
      Date.UTC(startOfYear.getFullYear(), 0, 1)) / 86_400_000,
  ) + 1;
  const fields: Readonly<Record<string, () => string>> = {
    a: () => name({ weekday: "short" }),
    A: () => name({ weekday: "long" }),
    b: () => name({ month: "short" }),
    B: () => name({ month: "long" }),
    d: () => two(now.getDate()),
    e: () => String(now.getDate()).padStart(2, " "),
    f: () => String(now.getMilliseconds() * 1000).padStart(6, "0"),
    F: () => `${now.getFullYear()}-${two(now.getMonth() + 1)}-${two(now.getDate())}`,
    H: () => two(now.getHours()),
    I: () => two(hour),
    j: () => String(day).padStart(3, "0"),
    m: () => two(now.getMonth() + 1),
    M: () => two(now.getMinutes()),
    p: () => now.getHours() < 12 ? "AM" : "PM",
    S: () => two(now.getSeconds()),
    T: () => `${two(now.getHours())}:${two(now.getMinutes())}:${two(now.getSeconds())}`,
    u: () => String(now.getDay() || 7),
    w: () => String(now.getDay()),
    y: () => two(now.getFullYear() % 100),
    Y: () => String(now.getFullYear()),
    Z: () => "",
    z: () => "",
    "%": () => "%",
  };
  return format.rewrite(/%(-?)([^])/g, (match) => {
    const field = fields[match.at(-1)!];
    if (field === undefined) throw new TemplateFault(`strftime_now() does not know ${quoted(match)}`);
    return match[1] === "-" ? field().replace(/^0+(?=\d)/, "") : field();
  });
}
