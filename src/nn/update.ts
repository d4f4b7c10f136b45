/**
 * Values put into the fields of modules, and into lists and plain objects there.
 *
 * @module
 */

import { ValueError } from "../graph/error.ts";
import { describe, isBranch } from "./tree.ts";

/** A module as this file sees it: an object of fields. */
type Holder = Record<string, unknown>;

/** Puts a value where a name leads: fields and places in lists, joined by dots. The place is there. */
export function put(into: object, name: string, value: unknown): void {
  const path = name.split(".");
  const last = path.pop()!;
  const holder = path.reduce((at, key) => at[key] as Holder, into as Holder);
  holder[last] = value;
}

/** Whether a value has places that others can be put in. */
function isHolder(value: unknown): value is Holder {
  return typeof value === "object" && value !== null;
}

/** Puts the leaves of a tree where `take` says of the old value and the new one that they may be put; descends elsewhere. */
export function replace(
  op: string,
  into: unknown,
  tree: unknown,
  strict: boolean,
  path: string,
  take: (old: unknown, value: unknown, path: string) => boolean,
): void {
  const isList = Array.isArray(tree);
  if (!isBranch(tree) || (!isHolder(into) && Object.keys(tree).length > 0)) {
    if (!strict) return;
    throw new ValueError(`${op}() does not fit ${describe(into)} at "${path}": found ${describe(tree)}`);
  }
  const holder = into as Holder;
  for (const [key, value] of Object.entries(tree)) {
    const at = path === "" ? key : `${path}.${key}`;
    if (!Object.hasOwn(holder, key) || isList !== Array.isArray(into)) {
      if (!strict) continue;
      throw new ValueError(`${op}() found no "${at}" in the module`);
    }
    if (take(holder[key], value, at)) holder[key] = value;
    else replace(op, holder[key], value, strict, at, take);
  }
}
