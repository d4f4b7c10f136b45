/**
 * The order of a graph.
 *
 * @module
 */

import type { Node } from "../../graph/node.ts";

/** All nodes of the graph of `outputs`, inputs first. `inputsOf` is asked once for each node, before those that it names. */
export function inputsFirst(outputs: readonly Node[], inputsOf: (node: Node) => readonly Node[]): Node[] {
  const order: Node[] = [];
  const state = new Map<Node, "open" | "done">();
  const stack: Node[] = [...outputs].reverse(); // and no recursion: graphs can be deeper than the stack
  while (stack.length > 0) {
    const node = stack[stack.length - 1];
    if (!state.has(node)) {
      state.set(node, "open");
      for (const input of inputsOf(node)) if (state.get(input) !== "done") stack.push(input);
      continue;
    }
    stack.pop();
    if (state.get(node) === "done") continue;
    state.set(node, "done");
    order.push(node);
  }
  return order;
}
