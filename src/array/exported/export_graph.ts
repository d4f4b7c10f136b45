/**
 * Graphs as text for Graphviz.
 *
 * @module
 */

import { writeWhole } from "../../../ffi/file.ts";
import { quoted, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape } from "../../graph/shape.ts";
import { tensorsOf } from "../tensor/scope.ts";
import { nodeOf, Tensor } from "../tensor/tensor.ts";

/** A file that text is written to: its path, or something with a method for that. */
export type TextSink = string | { write(text: string): unknown };

/**
 * Writes the pending graph of arrays, also of those inside lists and objects, in the language of Graphviz. Each op is a box with
 * its inputs above. Arrays that are values of an object bear its keys as names. Nothing is evaluated.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const lines: string[] = [];
 * const x = mx.ones([2]);
 * mx.exportToDot({ write: (text) => lines.push(text) }, { x, y: mx.exp(x) });
 * lines.join("").includes("y: elementwise exp"); // true
 * ```
 */
export function exportToDot(file: TextSink, ...trees: readonly unknown[]): void {
  const text = describe(tensorsOf(trees).map(nodeOf), namesOf(trees));
  if (typeof file === "string") writeWhole(file, [new TextEncoder().encode(text)]);
  else if (typeof file?.write === "function") file.write(text);
  else throw new ValueError(`exportToDot() expected a path or an object with a method write: found ${quoted(file)}`);
}

/** Names of nodes, from the keys of objects among the arguments. */
function namesOf(trees: readonly unknown[]): ReadonlyMap<Node, string> {
  const names = new Map<Node, string>();
  for (const tree of trees) {
    if (typeof tree !== "object" || tree === null || tree instanceof Tensor) continue;
    for (const [name, value] of Array.isArray(tree) ? [] : Object.entries(tree)) {
      if (value instanceof Tensor) names.set(nodeOf(value), name);
    }
  }
  return names;
}

function describe(outputs: readonly Node[], names: ReadonlyMap<Node, string>): string {
  const seen = new Set<Node>();
  const lines = ["digraph {"];
  const stack = [...outputs];
  for (let node = stack.pop(); node; node = stack.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    const shape = node.inputs.length === 0 || outputs.includes(node) ? "ellipse" : "rectangle";
    const fn = "fn" in node.attrs ? `${node.op} ${node.attrs.fn}` : node.op;
    const name = names.has(node) ? `${names.get(node)!.replaceAll(/[\\"]/g, "\\$&")}: ` : "";
    lines.push(`${node.id} [label="${name}${fn}\\n${node.dtype.name} ${formatShape(node.shape)}", shape=${shape}];`);
    for (const input of node.inputs) lines.push(`${input.id} -> ${node.id};`);
    stack.push(...node.inputs);
  }
  return `${lines.join("\n")}\n}\n`;
}
