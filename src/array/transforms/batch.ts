/**
 * Batches: a tape is replayed with arrays that have one more axis.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { nodeOf, wrap } from "../tensor/tensor.ts";
import { throughComposite } from "./reverse.ts";
import { rulesOf } from "./table.ts";
import type { Entry, Tape } from "../tensor/tape.ts";

function batchOfStep(
  entry: Entry,
  inputs: readonly Node[],
  batched: readonly boolean[],
  size: number,
): readonly Node[] {
  if (entry.custom) return entry.custom.vmap(inputs.map(wrap), batched, size).map(nodeOf);
  const rules = rulesOf(entry.op);
  if (!rules) {
    return throughComposite(entry, (i) => batched[i], (tape, own, output) => {
      const given = new Map(own.flatMap((node, i) => batched[i] ? [[node, inputs[i]]] : []));
      return [batch(tape, given, [output], size)[0] ?? output];
    }, true);
  }
  if (typeof rules.vmap === "function") return [rules.vmap(entry, inputs, batched, size)];
  throw new ValueError(`vmap() cannot map ${entry.op}: ${rules.vmap.none}`);
}

/**
 * The batches of `outputs`, batch first, where the nodes in `given` stand for batches of `size`; undefined for those that depend on none.
 */
export function batch(
  tape: Tape,
  given: ReadonlyMap<Node, Node>,
  outputs: readonly Node[],
  size: number,
): (Node | undefined)[] {
  const found = new Map(given);
  for (const entry of tape.entries) {
    const batched = entry.inputs.map((node) => found.has(node));
    if (!batched.some(Boolean)) continue;
    const inputs = entry.inputs.map((node) => found.get(node) ?? node);
    batchOfStep(entry, inputs, batched, size).forEach((node, i) => found.set(entry.outputs[i], node));
  }
  return outputs.map((node) => found.get(node));
}
