/**
 * Rows of quantized tables: three gathers that only a dequantize reads, as an embedding asks for them, are one dispatch with it.
 *
 * @module
 */

import { type Dtype, uint32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import { rowsOf, type Value } from "../plan/value.ts";
import type { Fuser } from "../plan/fusion.ts";
import { type GraphView, Walk } from "../plan/pattern.ts";

/** A dequantize of rows that are looked up. */
interface Lookup {
  /** Integers: the rows. */
  readonly indices: Node;
  /** Codes, scales and biases (rows, …) of the table. */
  readonly tables: readonly Node[];
}

/** Rows that are gathered from a quantized table and dequantized. */
export const embeddingFuser: Fuser = {
  enabled: ({ fuse }) => fuse,
  match({ l, graph, wanted, value, done }) {
    const { lookups, inside } = findLookups(graph, wanted);
    if (lookups.size === 0) return undefined;
    return {
      inside,
      whole: false,
      emit(node) {
        const lookup = lookups.get(node);
        if (!lookup) return;
        const { indices, tables } = lookup;
        l.from(node.op);
        done(node, dequantized(l, node, tables.map(value), node.inputs[1].dtype, value(indices)));
      },
    };
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

/** Emits codes times scales plus biases, all rounded to `rounds`; of the rows of a table at `indices` where there are any. */
export function dequantized(
  l: Lowering,
  node: Node,
  [codes, scales, biases]: readonly Value[],
  rounds: Dtype,
  indices?: Value,
): Value {
  const { bits, groupSize } = attrsOf(node, "dequantize");
  const out = l.temporary(node.shape, node.dtype);
  const push = rowsOf(node.shape);
  const index = indices && l.contiguous(indices);
  l.emit("dequantize", [l.contiguous(codes), l.contiguous(scales), l.contiguous(biases), out, index], {
    spec: {
      BITS: bits,
      GROUP: groupSize,
      DTYPE_SCALES: rounds.code,
      DTYPE_OUT: node.dtype.code,
      DTYPE_STORED: scales.dtype.code,
      DTYPE_INDEX: (index?.dtype ?? uint32).code,
    },
    push: { ...push, table: rowsOf(codes.shape).rows },
    workgroups: l.groups(push.rows * push.cols / 8),
  });
  return out;
}
