/**
 * Nodes that processes compute together, for the functions of `mx.distributed` and for their rules in transforms.
 *
 * @module
 */

import type { CollectiveKind, Communicator } from "../../graph/collective.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import type { Shape } from "../../graph/shape.ts";
import { sliceNode } from "../ops/movement.ts";

/** A node of a collective; `peer` is the other process of "send" and "receive". */
export function collectiveNode(
  kind: CollectiveKind,
  x: Node,
  shape: Shape,
  processes: Communicator,
  peer: number = -1,
): Node {
  return makeNode("collective", [x], shape, x.dtype, { kind, processes, peer });
}

/** The arrays of all processes, joined along the first axis. */
export function gatherNode(x: Node, processes: Communicator): Node {
  const [first = 1, ...rest] = x.shape;
  return collectiveNode("gather", x, [processes.size * first, ...rest], processes);
}

/** The part of a process of an array whose first axis is that of all. */
export function partOf(x: Node, shape: Shape, rank: number): Node {
  const starts = shape.map((size, axis) => axis === 0 ? rank * size : 0);
  return sliceNode(x, starts, shape.map(() => 1), shape);
}
