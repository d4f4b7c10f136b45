/**
 * Arrays in containers that a compiled function reads and writes beside its arguments and result: MLX's captured state.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { inputsFirst } from "../../schedule/plan/order.ts";
import { holdState, RandomState, state } from "../random/random_state.ts";
import { isReplaceable, markReplaceable } from "../tensor/replaceable.ts";
import { nodeOf, Tensor, wrap } from "../tensor/tensor.ts";
import { runIn, type Scope } from "../tensor/tracking.ts";

/** A place of an array: the keys that lead to it. */
export type Place = readonly (string | number)[];

/** Lists, objects and maps that hold arrays, or other such containers. */
type Container = Record<string | number, unknown> | Map<unknown, unknown> | RandomState;

function read(container: unknown, key: string | number): unknown {
  return container instanceof Map
    ? container.get(key)
    : (container as Record<string | number, unknown> | undefined)?.[key];
}

function containerOf(tree: unknown, place: Place): Container {
  return place.slice(0, -1).reduce(read, tree) as Container;
}

function write(container: Container, key: string | number, value: Tensor): void {
  if (container === state) holdState(nodeOf(value));
  else if (container instanceof Map) container.set(key, value);
  else (container as Record<string | number, unknown>)[key] = value;
}

/** The places of all arrays in a tree, also those that are there twice. */
export function placesOf(tree: unknown): Place[] {
  const found: Place[] = [];
  const seen = new Set<unknown>();
  const walk = (value: unknown, place: Place): void => {
    if (value instanceof Tensor) return void found.push(place);
    if (typeof value !== "object" || value === null || ArrayBuffer.isView(value) || seen.has(value)) return;
    seen.add(value);
    if (value instanceof RandomState) return void found.push([...place, 0]);
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    for (const [key, part] of entries) walk(part, [...place, key]);
  };
  walk(tree, []);
  if (found.some((place) => place.length === 0)) {
    throw new ValueError("compile() captures lists and objects of arrays: found an array, which cannot be replaced");
  }
  return found;
}

/** The array at a place. */
export function at(tree: unknown, place: Place): Tensor {
  return place.reduce(read, tree) as Tensor;
}

/** Puts arrays in their places. The result puts others there: in the containers of then and, if those were replaced, of now. */
export function put(
  tree: unknown,
  places: readonly Place[],
  arrays: readonly Tensor[],
): (arrays: readonly Tensor[]) => void {
  const containers = places.map((place) => containerOf(tree, place));
  const set = (arrays: readonly Tensor[]): void =>
    containers.forEach((container, i) => write(container, places[i].at(-1)!, arrays[i]));
  set(arrays);
  return (arrays) => {
    set(arrays);
    places.forEach((place, i) => {
      const container = containerOf(tree, place);
      if (container && container !== containers[i]) write(container, place.at(-1)!, arrays[i]);
    });
  };
}

/**
 * Lets arrays that a traced function made of no parameter outlive the trace, such as the first state of an optimizer. Arrays that the
 * function left in the containers of `tree` live for ever. Others that need no memory live with the scope `around` the call. `made` are
 * the arrays that would end.
 */
export function keepConstants(made: Set<Disposable>, around: Scope | undefined, tree: unknown): void {
  const arrays = [...made].filter((one) => one instanceof Tensor);
  const needs = new Map<Node, "nothing" | "memory" | "parameters">();
  for (const node of inputsFirst(arrays.map(nodeOf), (node) => node.inputs)) {
    const of = node.inputs.map((input) => needs.get(input)!);
    if (node.op === "parameter" || of.includes("parameters")) needs.set(node, "parameters");
    else needs.set(node, node.stored || of.includes("memory") ? "memory" : "nothing");
  }
  const left = new Set(placesOf(tree).map((place) => at(tree, place)));
  for (const array of arrays) {
    const need = needs.get(nodeOf(array));
    if (need === "parameters" || (need === "memory" && !left.has(array))) continue;
    made.delete(array);
    if (!left.has(array)) around?.made.add(array);
  }
}

/** A scope that never ends what belongs to it. */
function endlessScope(): Scope {
  return { parent: undefined, made: new Set(), open: true };
}

/**
 * Puts new arrays of nodes in their places. They belong to no scope, and outlive it. Where `replaces` says so they and what they replace
 * are arrays of an optimizer: those end that are in no place any more.
 */
export function leave(
  tree: unknown,
  places: readonly Place[],
  nodes: readonly Node[],
  replaces: readonly boolean[],
): void {
  const ended = places.map((place) => at(tree, place)).filter((array, i) => replaces[i] && isReplaceable(array));
  runIn(endlessScope(), () =>
    places.forEach((place, i) => {
      const array = wrap(nodes[i]), container = containerOf(tree, place);
      if (replaces[i]) markReplaceable(array);
      write(container, place.at(-1)!, array);
      if (container === state) array.dispose(); // it keeps the node
    }));
  if (ended.length === 0) return;
  const left = new Set(placesOf(tree).map((place) => at(tree, place)));
  for (const array of ended) if (!left.has(array)) array.dispose();
}
