/**
 * Activations of a gated feed-forward part, as the functions of `mx.nn` build them.
 *
 * @module
 */

import { attrsOf, type Node } from "../../../graph/node.ts";
import type { Walk } from "../../plan/pattern.ts";
import type { FusedActivation } from "../spec.ts";

/** An elementwise function of operands: x, which is the same wherever it stands, numbers, and other functions. */
type Expression = "x" | number | Call;
type Call = readonly [fn: string, ...operands: ("x" | number | Call)[]];

/** Those of a gate by itself. */
const EXPRESSIONS: Readonly<Record<Exclude<FusedActivation, "clipped">, Expression>> = {
  silu: ["multiply", "x", ["sigmoid", "x"]],
  gelu: ["divide", ["multiply", "x", ["add", ["erf", ["divide", "x", Math.SQRT2]], 1]], 2],
  geluTanh: [
    "multiply",
    ["multiply", "x", 0.5],
    [
      "add",
      [
        "tanh",
        ["multiply", ["multiply", ["add", ["multiply", ["square", "x"], 0.044715], 1], "x"], Math.sqrt(2 / Math.PI)],
      ],
      1,
    ],
  ],
};

const COMMUTATIVE: ReadonlySet<string> = new Set(["add", "multiply"]);

interface Match {
  x: Node | undefined;
  nodes: readonly Node[];
}

/** The activation that a node computes, and of what; undefined if it is none of them. Its nodes are taken. */
export function findActivation(
  walk: Walk,
  node: Node,
): { readonly activation: FusedActivation; readonly x: Node } | undefined {
  for (const [name, expression] of Object.entries(EXPRESSIONS)) {
    const match: Match = { x: undefined, nodes: [] };
    if (!matches(walk, node, expression, match)) continue;
    for (const passed of match.nodes) walk.inside.add(passed);
    return { activation: name as FusedActivation, x: match.x! };
  }
  return undefined;
}

/** Whether a node computes an expression, looking through views and casts. */
function matches(walk: Walk, node: Node, expression: Expression, match: Match): boolean {
  if (typeof expression === "number") return walk.peekFull(node) === expression;
  const passed: Node[] = [];
  let at = node;
  for (; walk.isView(at); at = at.inputs[0]) passed.push(at);
  if (expression === "x") {
    match.x ??= at;
    match.nodes = [...match.nodes, ...passed];
    return match.x === at;
  }
  const [fn, ...operands] = expression;
  if (at.op !== "elementwise" || attrsOf(at, "elementwise").fn !== fn) return false;
  const orders = COMMUTATIVE.has(fn) ? [at.inputs, at.inputs.toReversed()] : [at.inputs];
  return orders.some((inputs) => {
    const trial: Match = { x: match.x, nodes: [...match.nodes, ...passed, at] };
    const fits = inputs.every((input, i) => matches(walk, input, operands[i], trial));
    if (fits) Object.assign(match, trial);
    return fits;
  });
}
