/**
 * Batches of ops that take none: the op of each element by itself, results stacked. Right for every op, and as slow as a loop.
 *
 * @module
 */

import { makeNode, type Node } from "../../graph/node.ts";
import { fullNode } from "../tensor/convert.ts";
import { reshapeNode, sliceNode } from "../ops/movement.ts";
import type { Vmap } from "./rule.ts";

/** Element `i` of a batch. */
function elementOf(node: Node, i: number): Node {
  const shape = [1, ...node.shape.slice(1)];
  const starts = node.shape.map((_, axis) => axis === 0 ? i : 0);
  return reshapeNode(sliceNode(node, starts, shape.map(() => 1), shape), node.shape.slice(1));
}

/** The op of each element of a batch. */
export const looped: Vmap = (entry, inputs, batched, size) => {
  const { op, shape, dtype, attrs, composite } = entry;
  if (size === 0) return fullNode(0, [0, ...shape], dtype);
  const parts = Array.from({ length: size }, (_, i) => {
    const own = inputs.map((node, k) => batched[k] ? elementOf(node, i) : node);
    return reshapeNode(makeNode(op, own, shape, dtype, attrs, composite), [1, ...shape]);
  });
  return makeNode("concatenate", parts, [size, ...shape], dtype, { axis: 0 });
};
