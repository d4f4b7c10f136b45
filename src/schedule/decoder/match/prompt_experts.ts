/**
 * Layers of a prompt whose feed-forward part has experts. Their sum is made op by op, from rows that the region normalises, and goes to the
 * residual with the norm of the next layer. So does what a layer has beside them, such as an expert of all rows.
 *
 * @module
 */

import { type Dtype, float16 } from "../../../graph/dtype.ts";
import type { Node, OpName } from "../../../graph/node.ts";
import { sameShape } from "../../../graph/shape.ts";
import { isFn, type Norm, type Walk } from "../../plan/pattern.ts";
import { unscaled } from "./layer.ts";

/** A feed-forward part that is no part of its region: what it reads, and what it adds to the residual. */
export interface OutsideSum {
  /** The normalised rows. */
  readonly normed: Node;
  /** float16 where all that reads them takes any floats, else the dtype that they have. */
  readonly dtype: Dtype;
  readonly sum: Node;
}

/** Such a part with its norm, and the residual before both. */
export interface ExpertLayer extends OutsideSum {
  readonly x: Node;
  readonly norm: Norm;
  /** The factor of what is added. */
  readonly scale: number;
}

/** Ops whose kernels read rows of any floats as their first input. */
const READERS: ReadonlySet<OpName> = new Set<OpName>(["quantizedMatmul", "expertMixture", "expertUnits"]);

/** norm → experts, and others beside them → residual, whose result is `node`; undefined when that is something else. */
export function findExpertLayer(walk: Walk, node: Node): ExpertLayer | undefined {
  if (!isFn(node, "add")) return undefined;
  for (const [i, side] of node.inputs.entries()) {
    const x = node.inputs[1 - i];
    const { node: sum, scale, scaled } = unscaled(walk, side);
    const normed = walk.readers(walk.peek(x)).find((reader) => reader.op === "rmsNorm");
    const reads = normed && [sum, ...termsOf(walk, sum)].some((term) => readsExperts(walk, term, normed));
    if (!reads || !sameShape(x.shape, node.shape) || !sameShape(sum.shape, node.shape)) continue;
    walk.inside.add(node);
    if (scaled) walk.inside.add(walk.stripViews(side));
    const norm = walk.norm(normed, "the norm before the experts");
    walk.stripViews(x);
    return { x, norm, scale, normed, dtype: takesFloats(walk, normed) ? float16 : normed.dtype, sum };
  }
  return undefined;
}

/** What a node adds up, if it does. */
function termsOf(walk: Walk, node: Node): readonly Node[] {
  const sum = walk.peek(node);
  return isFn(sum, "add") ? sum.inputs : [];
}

/** Whether a node is a sum of experts that read `normed`. */
function readsExperts(walk: Walk, node: Node, normed: Node): boolean {
  const sum = walk.peek(node);
  const layer = sum.op === "expertSum" ? walk.peek(sum.inputs[0]) : sum;
  return (layer.op === "expertMixture" || layer.op === "expertUnits") && walk.peek(layer.inputs[0]) === normed;
}

/** Whether all that reads a node, maybe through views, takes any floats in its place. */
function takesFloats(walk: Walk, node: Node): boolean {
  return !walk.wanted.has(node) &&
    walk.readers(node).every((reader) =>
      reader.op === "reshape"
        ? takesFloats(walk, reader)
        : READERS.has(reader.op) && !walk.graph.replaced.has(reader) && reader.inputs.lastIndexOf(node) === 0
    );
}
