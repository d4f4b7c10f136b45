/**
 * Arrays by name, as files hold them: trees of arrays with their names, and objects that any name can be a key of.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { Tensor } from "../tensor/tensor.ts";

/** Arrays by name. */
export type NamedTensors = Record<string, Tensor>;

/** Arrays in nested objects and lists; names join with dots in files. */
export type TensorTree = Tensor | readonly TensorTree[] | { readonly [name: string]: TensorTree };

/** An object of named values; each name is an own property, "__proto__" included. */
export function byName<T>(entries: Iterable<readonly [string, T]>): Record<string, T> {
  const found: Record<string, T> = {};
  for (const [name, value] of entries) {
    Object.defineProperty(found, name, { value, enumerable: true, writable: true, configurable: true });
  }
  return found;
}

/** Arrays of a tree with their names: keys and list indices joined by dots. Throws in the name of `op`, also if a name occurs twice. */
export function namedList(op: string, tree: TensorTree): [name: string, tensor: Tensor][] {
  const list = [...named(op, tree, "")];
  checkNames(op, list);
  return list;
}

/** Throws in the name of `op` if a name occurs twice. */
export function checkNames(op: string, list: readonly (readonly [string, Tensor])[]): void {
  const names = new Set<string>();
  for (const [name] of list) {
    if (names.has(name)) throw new ValueError(`${op}() got the name "${name}" twice`);
    names.add(name);
  }
}

function* named(op: string, tree: TensorTree, prefix: string): Generator<[string, Tensor]> {
  if (tree instanceof Tensor) {
    if (prefix === "") throw new ValueError(`${op}() expected arrays by name: found one array without a name`);
    yield [prefix, tree];
    return;
  }
  if (typeof tree !== "object" || tree === null) {
    throw new ValueError(`${op}() expected arrays only: found ${tree} at "${prefix}"`);
  }
  for (const [key, value] of Object.entries(tree)) yield* named(op, value, prefix === "" ? key : `${prefix}.${key}`);
}
