/**
 * Derivatives and batches of what processes compute together, as in MLX.
 *
 * A cotangent stays on its process, which differentiates its own part of a program. The cotangent of a sum is that of the result. The one
 * of joined arrays is the process's own part.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { collectiveNode, gatherNode, partOf } from "../distributed/nodes.ts";
import { reshapeNode, transposeNode } from "../ops/movement.ts";
import { nodeOf, wrap } from "../tensor/tensor.ts";
import { linear } from "./movement_rules.ts";
import type { OpRules } from "./rule.ts";

/** The first two axes exchanged. */
function exchanged(x: Node): Node {
  return transposeNode(x, [1, 0, ...x.shape.slice(2).map((_, i) => i + 2)]);
}

/** The rules of `collective`. */
export const COLLECTIVE: OpRules = {
  vjp({ entry }, c) {
    const { kind, processes } = attrsOf(entry, "collective");
    const { shape } = entry.inputs[0];
    if (kind === "receive") return [undefined];
    if (kind === "sumScatter") return [wrap(gatherNode(nodeOf(c), processes))];
    return [
      kind === "gather"
        ? wrap(reshapeNode(partOf(nodeOf(c), shape.length > 0 ? shape : [1], processes.rank), shape))
        : c,
    ];
  },
  jvp(step, tangents) {
    const { kind } = attrsOf(step.entry, "collective");
    if (kind === "send" || kind === "receive") {
      throw new ValueError(`distributed.${kind === "send" ? kind : "recv"}() has no jvp`);
    }
    return linear(step, tangents);
  },
  vmap(entry, [x], _, size) {
    const { kind, processes, peer } = attrsOf(entry, "collective");
    if (kind === "gather") {
      const all = reshapeNode(gatherNode(x, processes), [processes.size, ...x.shape]);
      return reshapeNode(exchanged(all), [size, ...entry.shape]);
    }
    if (kind !== "sumScatter") return collectiveNode(kind, x, x.shape, processes, peer);
    const [part, ...rest] = entry.shape;
    return exchanged(collectiveNode(kind, exchanged(x), [part, size, ...rest], processes));
  },
};
