/**
 * Rows of quantized tables: three gathers that only a dequantize reads, as an embedding asks for them, are one dispatch with it.
 *
 * @module
 */

import { attrsOf, type Node } from "../../graph/node.ts";
import { dequantized, matrixOf } from "./matmul/dequantize.ts";
import type { Fuser } from "../plan/fusion.ts";
import { type GraphView, Walk } from "../plan/pattern.ts";

/** A dequantize of rows that are looked up. */
interface Lookup {
  /** Integers: the rows. */
  readonly indices: Node;
  /** Codes, scales and, if they are affine, biases (rows, …) of the table. */
  readonly tables: readonly Node[];
}

/** Rows that are gathered from a quantized table and dequantized. */
export const embeddingFuser: Fuser = {
  ops: ["dequantize"],
  enabled: ({ fuse }) => fuse,
  match({ l, graph, wanted, value, done }) {
    const { lookups, inside } = findLookups(graph, wanted);
    if (lookups.size === 0) return [];
    return [{
      inside,
      emit(node) {
        const lookup = lookups.get(node);
        if (!lookup) return;
        const { indices, tables } = lookup;
        l.from(node.op);
        const format = attrsOf(node, "dequantize");
        const own = { ...format, rounds: node.inputs[1].dtype, indices: value(indices) };
        done(node, dequantized(l, l.temporary(node.shape, node.dtype), matrixOf(format, tables.map(value)), own));
      },
    }];
  },
};

/** The lookups of a graph by their dequantize, and all nodes that they consist of. */
function findLookups(
  graph: GraphView,
  wanted: ReadonlySet<Node>,
): { readonly lookups: ReadonlyMap<Node, Lookup>; readonly inside: ReadonlySet<Node> } {
  const lookups = new Map<Node, Lookup>();
  const inside = new Set<Node>();
  for (const node of graph.order) {
    if (node.op !== "dequantize") continue;
    const walk = new Walk(graph, wanted);
    const gathers = node.inputs.map((input) => walk.stripViews(input));
    const [{ inputs: [, indices] }] = gathers;
    const alike = gathers.every((g) =>
      g.op === "gather" && attrsOf(g, "gather").axis === 0 && g.inputs[1] === indices &&
      g.inputs[0].shape.length === 2 &&
      !g.inputs[0].stored?.packing
    );
    for (const gather of gathers) walk.inside.add(gather);
    const own = [...walk.inside];
    if (!alike || own.some((n) => wanted.has(n) || walk.readers(n).some((r) => r !== node && !walk.inside.has(r)))) {
      continue;
    }
    lookups.set(node, { indices, tables: gathers.map((g) => g.inputs[0]) });
    for (const n of [node, ...own]) inside.add(n);
  }
  return { lookups, inside };
}
