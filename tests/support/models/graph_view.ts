/** The graph of some arrays, as lowering sees it. */

import type { Node } from "../../../src/graph/node.ts";
import { inputsFirst } from "../../../src/schedule/plan/order.ts";
import type { GraphView } from "../../../src/schedule/plan/pattern.ts";
import { pruneRows } from "../../../src/schedule/plan/row_pruning.ts";

/** Nodes with their readers, without rows that nothing reads. */
export function viewOf(outputs: readonly Node[]): GraphView {
  pruneRows(outputs);
  const order = inputsFirst(outputs, ({ inputs }) => inputs);
  const readers = new Map<Node, Node[]>();
  for (const node of order) {
    for (const input of new Set(node.inputs)) readers.set(input, [...readers.get(input) ?? [], node]);
  }
  return { order, readers, replaced: new Map() };
}
