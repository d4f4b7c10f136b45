/**
 * Queries that grow with their position, as the model's layers build them: see `QueryGrowth`.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import type { Walk } from "../../plan/pattern.ts";
import type { QueryGrowth } from "../spec.ts";

/** Queries before they grow, and how they do. */
export interface GrowingQueries {
  readonly query: Node;
  /** Undefined where they do not grow. */
  readonly growth: QueryGrowth | undefined;
  /** The index of the row alone whose factor is taken, if there are more. */
  readonly row: Node | undefined;
}

/** The queries at positions from `start` on that a node makes grow, or the node. */
export function findGrowth(walk: Walk, node: Node, start: Node): GrowingQueries {
  const sides = operands(walk.peek(node), "multiply") ?? [];
  for (const [i, factors] of sides.entries()) {
    const taken = seen(factors);
    const takes = taken?.op === "gather" && attrsOf(taken, "gather").axis === 2;
    const growth = growthOf(walk, takes ? taken.inputs[0] : factors, start);
    if (!growth) continue;
    walk.inside.add(walk.stripViews(node));
    return { query: sides[1 - i], growth, row: takes ? taken.inputs[1] : undefined };
  }
  return { query: node, growth: undefined, row: undefined };
}

/** beta * log(floor(position / context) + 1) + 1 of the positions of rows from `start` on. */
function growthOf(walk: Walk, factors: Node, start: Node): QueryGrowth | undefined {
  const [logarithm, beta] = withNumber(walk, withNumber(walk, factors, "add", 1)?.[0], "multiply") ?? [];
  const [contexts] = operands(seen(logarithm), "log") ?? [];
  const [rounds] = operands(seen(withNumber(walk, contexts, "add", 1)?.[0]), "floor") ?? [];
  const [position, context] = withNumber(walk, rounds, "divide") ?? [];
  if (beta === undefined || context === undefined || !Number.isSafeInteger(context) || context < 1) return undefined;
  return isFrom(walk, position, start) ? { beta, context } : undefined;
}

/** Whether a node has the positions of rows from `start` on: 0, 1, … added to it. */
function isFrom(walk: Walk, node: Node | undefined, start: Node): boolean {
  const sum = operands(seen(node), "add");
  const rows = sum?.map(seen).find((side) => side?.op === "arange");
  const other = sum?.find((side) => seen(side) !== rows);
  if (!rows || !other || walk.peekIndex(other) !== start) return false;
  const { start: first, step } = attrsOf(rows, "arange");
  return first === 0 && step === 1;
}

/** The other operand of a function of a number, and that number, which is the second one unless the order is free. */
function withNumber(
  walk: Walk,
  node: Node | undefined,
  fn: "add" | "multiply" | "divide",
  expected?: number,
): readonly [Node, number] | undefined {
  const sides = operands(seen(node), fn) ?? [];
  for (const i of fn === "divide" ? [1] : [0, 1]) {
    const number = sides.length === 2 ? walk.peekFull(sides[i]) : undefined;
    if (number !== undefined && (expected ?? number) === number) return [sides[1 - i], number];
  }
  return undefined;
}

/** The operands of an elementwise function. */
function operands(node: Node | undefined, fn: string): readonly Node[] | undefined {
  return node?.op === "elementwise" && attrsOf(node, "elementwise").fn === fn ? node.inputs : undefined;
}

/** What a node shows: through views, repetitions and casts. */
function seen(node: Node | undefined): Node | undefined {
  while (node && (["reshape", "broadcast", "contiguous"].includes(node.op) || operands(node, "cast"))) {
    [node] = node.inputs;
  }
  return node;
}
