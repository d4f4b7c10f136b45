/**
 * The tests of the language, as in `x is defined`; registry.ts has them all.
 *
 * @module
 */

import { compare, contains, equal } from "./compare.ts";
import { table, type Test } from "./functions.ts";
import { STR_METHODS } from "./methods.ts";
import { arithmetic } from "./numbers.ts";
import { str } from "./print.ts";
import { Str } from "./text.ts";
import {
  type Args,
  Dict,
  Float,
  isIterable,
  List,
  Namespace,
  numberOf,
  Range,
  Thing,
  Tuple,
  Undefined,
  type Value,
} from "./values.ts";

const NONE: Args = { positional: [], named: new Map() };

const equals = (self: Value, other: Value): boolean => equal(self, other);
const differs = (self: Value, other: Value): boolean => !equal(self, other);
const greater = (self: Value, other: Value): boolean => compare(self, other, ">") > 0;
const atLeast = (self: Value, other: Value): boolean => compare(self, other, ">=") >= 0;
const less = (self: Value, other: Value): boolean => compare(self, other, "<") < 0;
const atMost = (self: Value, other: Value): boolean => compare(self, other, "<=") <= 0;
const leaves = (self: Value, by: Value, rest: number): boolean => equal(arithmetic("%", self, by), rest);
const isWhole = (self: Value): boolean => typeof self === "number" || typeof self === "bigint";

/** Identity: values that cannot change are compared by their contents. */
function sameAs(self: Value, other: Value): boolean {
  if (self instanceof Str && other instanceof Str) return self.text === other.text;
  return self === other || (self instanceof Undefined && other instanceof Undefined && self.reason === other.reason);
}

/** Tests of single values by name. */
export const VALUE_TESTS: Readonly<Record<string, Test>> = table({
  odd: ["", (self) => leaves(self, 2, 1)],
  even: ["", (self) => leaves(self, 2, 0)],
  divisibleby: ["num", (self, by) => leaves(self, by, 0)],
  defined: ["", (self) => !(self instanceof Undefined)],
  undefined: ["", (self) => self instanceof Undefined],
  none: ["", (self) => self === null],
  boolean: ["", (self) => typeof self === "boolean"],
  false: ["", (self) => self === false],
  true: ["", (self) => self === true],
  integer: ["", isWhole],
  float: ["", (self) => self instanceof Float],
  number: ["", (self) => numberOf(self) !== undefined],
  string: ["", (self) => self instanceof Str],
  mapping: ["", (self) => self instanceof Dict],
  sequence: ["", (self) => {
    return [Str, List, Tuple, Dict, Range, Undefined].some((type) => self instanceof type);
  }],
  iterable: ["", (self) => isIterable(self)],
  callable: ["", (self) => self instanceof Thing && !(self instanceof Namespace)],
  lower: ["", (self) => STR_METHODS.islower(str(self), NONE)],
  upper: ["", (self) => STR_METHODS.isupper(str(self), NONE)],
  sameas: ["other", sameAs],
  escaped: ["", (self) => self instanceof Str && self.markup],
  in: ["seq", (self, container) => contains(container, self)],
  eq: ["other", equals],
  equalto: ["other", equals],
  "==": ["other", equals],
  ne: ["other", differs],
  "!=": ["other", differs],
  gt: ["other", greater],
  greaterthan: ["other", greater],
  ">": ["other", greater],
  ge: ["other", atLeast],
  ">=": ["other", atLeast],
  lt: ["other", less],
  lessthan: ["other", less],
  "<": ["other", less],
  le: ["other", atMost],
  "<=": ["other", atMost],
});
