/**
 * Markup, as Python's markupsafe has it: a text that `safe` or `escape` made. Texts that are added to markup are escaped first, and what
 * methods make of markup is markup.
 *
 * @module
 */

import { str } from "./print.ts";
import { Str } from "./text.ts";
import { type Args, Dict, itemsOf, List, numberOf, Tuple, type Value } from "./values.ts";

const ESCAPES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  "'": "&#39;",
  '"': "&#34;",
};

/** A value as markup; other text is escaped. */
export function escape(value: Value): Str {
  const text = str(value);
  return text.markup ? text : forceEscape(text);
}

/** A value as markup, escaped also if it is markup already. */
export function forceEscape(value: Value): Str {
  return str(value).rewrite(/[&<>'"]/g, (char) => ESCAPES[char]).withMarkup(true);
}

/** Two texts as one: if one is markup, the other one is escaped. */
export function added(left: Str, right: Str): Str {
  if (!left.markup && !right.markup) return left.plus(right);
  return escape(left).plus(escape(right)).withMarkup(true);
}

/** The result of an operation on a text, marked as markup if the text is. So are texts in lists. */
export function markedAs(text: Value, made: Value): Value {
  if (!(text instanceof Str) || !text.markup) return made;
  if (made instanceof Str) return made.withMarkup(true);
  if (made instanceof List) return new List(made.items.map((item) => markedAs(text, item)));
  return made instanceof Tuple ? new Tuple(made.items.map((item) => markedAs(text, item))) : made;
}

/** A value that is put into markup by a format: numbers stay, so that they can be formatted as such. */
export function escapedField(value: Value): Value {
  return numberOf(value) === undefined ? escape(value) : value;
}

/** The values of `markup % value`. */
export function escapedFields(value: Value): Value {
  if (value instanceof Tuple) return new Tuple(value.items.map(escapedField));
  if (!(value instanceof Dict)) return escapedField(value);
  return new Dict([...value.entries()].map(([key, item]) => [key, escapedField(item)]));
}

/** How the arguments of methods of markup are escaped: at a place or by name, or every item of a list. */
const ESCAPED: Readonly<Record<string, (args: Args) => Args>> = {
  replace: at(1, "new", escape),
  ljust: at(1, "fillchar", escape),
  rjust: at(1, "fillchar", escape),
  center: at(1, "fillchar", escape),
  join: at(0, "iterable", (items) => new List(itemsOf(items).map(escape))),
};

function at(place: number, name: string, change: (value: Value) => Value): (args: Args) => Args {
  return ({ positional, named }) => ({
    positional: positional.map((value, i) => i === place ? change(value) : value),
    named: new Map([...named].map(([key, value]) => [key, key === name ? change(value) : value])),
  });
}

/** Calls a method of a text by its name. */
export function callMethod(text: Str, name: string, method: (self: Value, args: Args) => Value, args: Args): Value {
  if (!text.markup) return method(text, args);
  return markedAs(text, method(text, Object.hasOwn(ESCAPED, name) ? ESCAPED[name](args) : args));
}
