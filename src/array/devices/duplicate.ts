/**
 * Arrays that are not evaluated, for another device.
 *
 * @module
 */

import { makeNode, type Node } from "../../graph/node.ts";
import { inputsFirst } from "../../schedule/plan/order.ts";
import { nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";

/** The same values as an array that shares nothing with the given one, so that each may be evaluated on a device of its own. What is evaluated is shared. */
export function duplicated(array: Tensor): Tensor {
  const node = nodeOf(array);
  const copies = new Map<Node, Node>();
  for (const one of inputsFirst([node], ({ inputs }) => inputs)) {
    const { op, inputs, shape, dtype, attrs, composite, stored } = one;
    copies.set(
      one,
      stored ? one : makeNode(op, inputs.map((input) => copies.get(input)!), shape, dtype, attrs, composite),
    );
  }
  return wrap(copies.get(node)!);
}
