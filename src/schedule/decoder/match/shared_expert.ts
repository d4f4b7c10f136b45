/**
 * Experts of a layer with one more that all rows take, which counts by the sigmoid of a score of its own.
 *
 * @module
 */

import type { Node } from "../../../graph/node.ts";
import { expect, isFn, rowCount, type Walk } from "../../plan/pattern.ts";
import type { SharedMatrices } from "../formats.ts";
import { type ExpertSum, findExpertSum } from "./experts.ts";
import { gatedBy, unbiased } from "./gated.ts";

/** What experts add to the residual, and the matrices of the one that all rows take. */
export interface WholeSum extends ExpertSum {
  readonly shared: SharedMatrices | undefined;
}

/** Whether a node may be {@link findExpertPart}'s. */
export function isExpertPart(walk: Walk, node: Node): boolean {
  const sum = walk.peek(node);
  return sum.op === "expertSum" || (isFn(sum, "add") && sum.inputs.some((side) => walk.peek(side).op === "expertSum"));
}

/** The weighted sum of experts, maybe with that of all rows, maybe through views. */
export function findExpertPart(walk: Walk, node: Node): WholeSum {
  const sum = walk.stripViews(node);
  if (sum.op === "expertSum") return { ...findExpertSum(walk, sum), shared: undefined };
  walk.inside.add(sum);
  const side = sum.inputs.findIndex((input) => walk.peek(input).op === "expertSum");
  const found = findExpertSum(walk, sum.inputs[side]);
  const parts = walk.elementwise(walk.stripViews(sum.inputs[1 - side]), "multiply");
  const at = parts?.findIndex((part) => isFn(repeated(walk, part), "sigmoid")) ?? -1;
  expect(parts !== undefined && at >= 0, "the expert of all rows is not multiplied by the sigmoid of a score");
  const score = repeated(walk, parts[at], true);
  const router = unbiased(walk, score.inputs[0], "the score of the expert of all rows");
  const down = unbiased(walk, parts[1 - at], "the down projection of the expert of all rows");
  const { gate, up, activation } = gatedBy(walk, walk.stripViews(down.x));
  for (const { x } of [router, gate, up]) {
    expect(walk.stripViews(x) === walk.peek(found.normed), "the expert of all rows reads others");
  }
  const { count } = found.experts;
  const isLike = activation === found.activation && rowCount(router.matrix) === 1 &&
    rowCount(gate.matrix) * count === rowCount(found.gate.matrix) && rowCount(up.matrix) === rowCount(gate.matrix);
  expect(isLike, "the expert of all rows is of another kind or size than the others");
  return {
    ...found,
    experts: { ...found.experts, shared: true },
    shared: { router: router.matrix, gate: gate.matrix, up: up.matrix, down: down.matrix },
  };
}

/** The node that another shows or repeats. With `takes` the nodes on the way are taken. */
export function repeated(walk: Walk, node: Node, takes: boolean = false): Node {
  const found = takes ? walk.stripViews(node) : walk.peek(node);
  if (takes) walk.inside.add(found);
  return found.op === "broadcast" ? repeated(walk, found.inputs[0], takes) : found;
}
