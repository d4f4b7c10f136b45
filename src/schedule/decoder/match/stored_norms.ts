/**
 * Weights of norms as they are stored: a number may be added to all of them.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import { expect, type Walk } from "../../plan/pattern.ts";

/** Stored weights, and what is added to each. */
interface StoredNorms<W> {
  readonly weights: W;
  readonly offset: number;
}

/** The stored weights of norms, which all have the same number added. */
export function findStoredNorms<W extends Readonly<Record<string, Node | undefined>>>(
  walk: Walk,
  weights: W,
): StoredNorms<W> {
  const found = Object.entries(weights).map(([name, weight]) => [name, weight && findStored(walk, weight)] as const);
  const [first, ...others] = found.flatMap(([, stored]) => stored ? [stored.offset] : []);
  expect(others.every((offset) => offset === first), "norms have different offsets of their weights");
  return { weights: Object.fromEntries(found.map(([name, stored]) => [name, stored?.node])) as W, offset: first };
}

/** The array before a cast and a number that is added. The sum is not taken: norms of other rows may read it too. */
function findStored(walk: Walk, weight: Node): { readonly node: Node; readonly offset: number } {
  const isSum = weight.op === "elementwise" && attrsOf(weight, "elementwise").fn === "add";
  const sides = isSum ? weight.inputs : [];
  for (const i of sides.keys()) {
    const offset = walk.peekFull(sides[i]);
    if (offset === undefined) continue;
    return { node: walk.peek(sides[1 - i]), offset };
  }
  return { node: weight, offset: 0 };
}
