/**
 * Reverse mode: cotangents go back along a tape.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import type { FusedName } from "../../schedule/ops/fused_ops.ts";
import { add } from "../ops/binary.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { type Step, zerosOf } from "./rule.ts";
import { FUSED_VJP } from "./fused_rules.ts";
import { rulesOf } from "./table.ts";
import { aliasOf, type Entry, Tape } from "../tensor/tape.ts";

/** A recorded step as its rules read it. */
export function stepOf(entry: Entry, tape: Tape): Step {
  return {
    entry,
    x: (i) => wrap(entry.inputs[i]),
    get y(): AnyTensor {
      return wrap(entry.outputs[0]);
    },
    wants: (i) => tape.has(entry.inputs[i]),
  };
}

/**
 * Entries of a fused op's composite, the inputs that `wants` names on a tape of their own: rules refuse some of the others. `use` gets all inputs
 * and the result there.
 */
export function throughComposite<T>(
  entry: Entry,
  wants: (i: number) => boolean,
  use: (tape: Tape, inputs: readonly Node[], output: Node) => T,
  whole: boolean = false,
): T {
  const inputs = entry.inputs.map(aliasOf);
  using tape = new Tape(inputs.filter((_, i) => wants(i)), whole);
  const output = tape.record(() => {
    const node = entry.composite!({ ...entry, inputs });
    return wrap(node);
  });
  return use(tape, inputs, nodeOf(output));
}

/** Cotangents of the inputs of one step. */
function backThrough(entry: Entry, tape: Tape, cotangent: AnyTensor): readonly (AnyTensor | undefined)[] {
  const rules = rulesOf(entry.op);
  if (!rules) {
    const step = stepOf(entry, tape);
    const back = FUSED_VJP[entry.op as FusedName]?.(step, cotangent);
    if (back) return back;
    return throughComposite(
      entry,
      step.wants,
      (inner, inputs, output) => reverse(inner, [output], [cotangent], inputs) as readonly (AnyTensor | undefined)[],
    );
  }
  if (typeof rules.vjp === "function") return rules.vjp(stepOf(entry, tape), cotangent);
  throw new ValueError(`there is no derivative of ${entry.op}: ${rules.vjp.none}`);
}

/** Cotangents of `inputs` from those of `outputs`; undefined if nothing depends on an input. */
export function reverse(
  tape: Tape,
  outputs: readonly Node[],
  cotangents: readonly (Tensor | undefined)[],
  inputs: readonly Node[],
): (AnyTensor | undefined)[] {
  const found = new Map<Node, AnyTensor>();
  const put = (node: Node, value: AnyTensor): void => {
    const old = found.get(node);
    found.set(node, old ? add(old, value) as AnyTensor : value);
  };
  outputs.forEach((node, i) => {
    const cotangent = cotangents[i];
    if (cotangent && tape.has(node)) put(node, cotangent);
  });
  for (let i = tape.entries.length - 1; i >= 0; i--) {
    const entry = tape.entries[i];
    if (!entry.outputs.some((node) => found.has(node))) continue;
    const back = entry.custom
      ? entry.custom.vjp(
        entry.inputs.map((node) => wrap(node)),
        entry.outputs.map((node) => found.get(node) ?? zerosOf(node)),
        entry.outputs.map((node) => wrap(node)),
      )
      : backThrough(entry, tape, found.get(entry.outputs[0])!);
    for (const node of entry.outputs) found.delete(node); // all that read them are done
    entry.inputs.forEach((node, k) => {
      const value = back[k];
      if (value && tape.has(node)) put(node, value as AnyTensor);
    });
  }
  return inputs.map((node) => found.get(node));
}
