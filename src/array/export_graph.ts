/**
 * Graphs as text for Graphviz.
 *
 * @module
 */

import { writeWhole } from "../../ffi/file.ts";
import type { Node } from "../graph/node.ts";
import { formatShape } from "../graph/shape.ts";
import { tensorsOf } from "./scope.ts";
import { nodeOf } from "./tensor.ts";

/** A file that text is written to: its path, or something with a method for that. */
export type TextSink = string | { write(text: string): unknown };

/**
 * Writes the pending graph behind arrays, also those inside arrays and objects, in the language of Graphviz: a box for each op, its
 * inputs above. Nothing is evaluated.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const lines: string[] = [];
 * mx.exportToDot({ write: (text) => lines.push(text) }, mx.exp(mx.ones([2])));
 * ```
 */
export function exportToDot(file: TextSink, ...trees: readonly unknown[]): void {
  const text = describe(tensorsOf(trees).map(nodeOf));
  if (typeof file === "string") writeWhole(file, [new TextEncoder().encode(text)]);
  else file.write(text);
}

function describe(outputs: readonly Node[]): string {
  const seen = new Set<Node>();
  const lines = ["digraph {"];
  const stack = [...outputs];
  for (let node = stack.pop(); node; node = stack.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    const shape = node.inputs.length === 0 || outputs.includes(node) ? "ellipse" : "rectangle";
    const fn = "fn" in node.attrs ? `${node.op} ${node.attrs.fn}` : node.op;
    lines.push(`${node.id} [label="${fn}\\n${node.dtype.name} ${formatShape(node.shape)}", shape=${shape}];`);
    for (const input of node.inputs) lines.push(`${input.id} -> ${node.id};`);
    stack.push(...node.inputs);
  }
  return `${lines.join("\n")}\n}\n`;
}
