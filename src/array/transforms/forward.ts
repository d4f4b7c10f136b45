/**
 * Forward mode: tangents go along a tape.
 *
 * An op without a rule of its own goes through its reverse rule twice. That rule is linear in the cotangent; its transpose maps tangents.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { reverse, stepOf, throughComposite } from "./reverse.ts";
import { asLike, THROUGH_REVERSE, zerosOf } from "./rule.ts";
import { rulesOf } from "./table.ts";
import { aliasOf, type Entry, Tape } from "../tensor/tape.ts";

type Tangents = readonly (AnyTensor | undefined)[];

/** The tangent of a step's result, through its reverse rule. */
function throughReverse(entry: Entry, tape: Tape, tangents: Tangents): AnyTensor | undefined {
  const cotangent = aliasOf(nodeOf(zerosOf(entry)));
  using inner = new Tape([cotangent]);
  const rules = rulesOf(entry.op)!;
  if (typeof rules.vjp !== "function") throw new ValueError(`there is no derivative of ${entry.op}: ${rules.vjp.none}`);
  const { vjp } = rules;
  const back = inner.record(() => vjp(stepOf(entry, tape), wrap(cotangent)));
  const outputs: Node[] = [];
  const given: AnyTensor[] = [];
  back.forEach((value, i) => {
    const tangent = tangents[i];
    if (!value || !tangent) return;
    outputs.push(nodeOf(value));
    given.push(asLike(tangent, value));
  });
  return reverse(inner, outputs, given, [cotangent])[0];
}

function tangentsOf(entry: Entry, tape: Tape, tangents: Tangents): Tangents {
  if (entry.custom) {
    return entry.custom.jvp(entry.inputs.map((node) => wrap(node)), tangents) as Tangents;
  }
  const rules = rulesOf(entry.op);
  if (!rules) {
    return throughComposite(
      entry,
      (i) => tangents[i] !== undefined,
      (inner, inputs, output) => forward(inner, inputs, tangents, [output]),
    );
  }
  if (typeof rules.jvp === "function") {
    const tangent = rules.jvp(stepOf(entry, tape), tangents);
    return [tangent === THROUGH_REVERSE ? throughReverse(entry, tape, tangents) : tangent];
  }
  if (rules.jvp) throw new ValueError(`there is no derivative of ${entry.op}: ${rules.jvp.none}`);
  return [throughReverse(entry, tape, tangents)];
}

/** Tangents of `outputs` from those of `inputs`; undefined if they do not depend on them. */
export function forward(
  tape: Tape,
  inputs: readonly Node[],
  tangents: readonly (Tensor | undefined)[],
  outputs: readonly Node[],
): (AnyTensor | undefined)[] {
  const found = new Map<Node, AnyTensor>();
  inputs.forEach((node, i) => {
    const tangent = tangents[i];
    if (tangent) found.set(node, tangent as AnyTensor);
  });
  for (const entry of tape.entries) {
    const own = entry.inputs.map((node) => found.get(node));
    if (!own.some((tangent) => tangent)) continue;
    tangentsOf(entry, tape, own).forEach((tangent, i) => {
      if (tangent) found.set(entry.outputs[i], tangent);
    });
  }
  return outputs.map((node) => found.get(node));
}
