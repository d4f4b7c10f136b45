/**
 * Layers of a prompt whose feed-forward part has experts. Their sum is made op by op, from rows that the region normalises, and goes to the
 * residual with the norm of the next layer. So does what a layer has beside them, such as an expert of all rows.
 *
 * @module
 */

import { type Dtype, float16, isFloat } from "../../../graph/dtype.ts";
import type { Node, OpName } from "../../../graph/node.ts";
import { sameShape, sizeOf } from "../../../graph/shape.ts";
import { isFn, Mismatch, type Norm, Walk } from "../../plan/pattern.ts";
import { gatedBy, type GatedPart, gatedPart, unbiased } from "./gated.ts";
import { type Joint, joint } from "./joint.ts";
import { unscaled } from "./layer.ts";
import { findProjection } from "./projection.ts";
import { repeated } from "./shared_expert.ts";

/** A feed-forward part that is no part of its region: what it reads, and what it adds to the residual. */
export interface OutsideSum {
  /** The normalised rows. */
  readonly normed: Node;
  /** float16 where all that reads them takes any floats, else the dtype that they have. */
  readonly dtype: Dtype;
  readonly router: Router | undefined;
  /** What is added: experts alone, which are taken, or any node. */
  readonly sum: Node;
  readonly isMixture: boolean;
  /** The expert of all rows beside experts that are taken. */
  readonly shared: SharedPart | undefined;
}

/** A gated part that all rows take. It counts as a whole, or by the sigmoid of a score (rows, 1). */
export interface SharedPart extends GatedPart {
  readonly score: Node | undefined;
}

/** A product of the normalised rows that gives scores, and the choice of experts by them. */
export interface Router {
  readonly joint: Joint;
  /** Added to the products (experts,). */
  readonly bias: Node | undefined;
  readonly choice: Node;
  readonly inside: ReadonlySet<Node>;
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
    const layer = normed && [sum, ...termsOf(walk, sum)].map((term) => expertsOf(walk, term, normed)).find((at) => at);
    if (!layer || !sameShape(x.shape, node.shape) || !sameShape(sum.shape, node.shape)) continue;
    walk.inside.add(node);
    if (scaled) walk.inside.add(walk.stripViews(side));
    const norm = walk.norm(normed, "the norm before the experts");
    walk.stripViews(x);
    const dtype = takesFloats(walk, normed) ? float16 : normed.dtype;
    const router = findRouter(walk, layer, normed);
    return { x, norm, scale, normed, dtype, router, ...(findBoth(walk, sum, normed) ?? findMixture(walk, sum)) };
  }
  return undefined;
}

/** What a node adds up, if it does. */
function termsOf(walk: Walk, node: Node): readonly Node[] {
  const sum = walk.peek(node);
  return isFn(sum, "add") ? sum.inputs : [];
}

/** The experts that read `normed` and whose sum a node is. */
function expertsOf(walk: Walk, node: Node, normed: Node): Node | undefined {
  const sum = walk.peek(node);
  const layer = sum.op === "expertSum" ? walk.peek(sum.inputs[0]) : sum;
  const reads = (layer.op === "expertMixture" || layer.op === "expertUnits") && walk.peek(layer.inputs[0]) === normed;
  return reads ? layer : undefined;
}

/** What of a sum of experts is taken. */
type Taken = Pick<OutsideSum, "sum" | "isMixture" | "shared">;

/** Experts that nothing but the residual reads are taken, with the views between. */
function findMixture(walk: Walk, node: Node): Taken {
  const sum = walk.shownOnce(node);
  const isMixture = sum?.op === "expertMixture" && !walk.graph.replaced.has(sum);
  if (isMixture) walk.inside.add(walk.stripViews(node));
  return { sum: isMixture ? sum : node, isMixture, shared: undefined };
}

/** Experts, and one of all rows that is added to them; undefined if a node is no sum of two such. */
function findBoth(walk: Walk, node: Node, normed: Node): Taken | undefined {
  const sum = walk.shownOnce(node);
  if (!sum || !isFn(sum, "add") || !sum.inputs.every((term) => sameShape(term.shape, sum.shape))) return undefined;
  for (const [i, term] of sum.inputs.entries()) {
    const own = new Walk(walk.graph, walk.wanted);
    own.inside.add(own.stripViews(node));
    const mixture = findMixture(own, term);
    const shared = mixture.isMixture ? findShared(own, sum.inputs[1 - i], normed) : undefined;
    if (!shared) continue;
    const isAlone = [...own.inside].every((n) =>
      n === node || (!walk.wanted.has(n) && walk.readers(n).every((reader) => own.inside.has(reader)))
    );
    if (!isAlone) return undefined;
    for (const taken of own.inside) walk.inside.add(taken);
    return { ...mixture, shared };
  }
  return undefined;
}

/** A gated part of the normalised rows, maybe times the sigmoid of a score; undefined if a node is something else. */
function findShared(walk: Walk, node: Node, normed: Node): SharedPart | undefined {
  try {
    const sides = walk.elementwise(walk.stripViews(node), "multiply");
    const at = sides?.findIndex((side) => isFn(repeated(walk, side), "sigmoid")) ?? -1;
    if (sides && at < 0) return undefined;
    const score = sides && repeated(walk, sides[at], true).inputs[0];
    if (score && !isScoreOf(score, node)) return undefined;
    const down = unbiased(walk, sides ? sides[1 - at] : node, "the down projection of the expert of all rows");
    const found = gatedBy(walk, walk.stripViews(down.x));
    const reads = [found.gate, found.up].every(({ x }) => walk.peek(x) === normed);
    return reads ? { ...gatedPart({ ...found, down }), score } : undefined;
  } catch (error) {
    if (!(error instanceof Mismatch)) throw error;
    return undefined;
  }
}

/** Whether a node has a number for each row of another one. */
function isScoreOf({ shape }: Node, { shape: rows }: Node): boolean {
  return shape.at(-1) === 1 && sizeOf(shape) === sizeOf(rows.slice(0, -1));
}

/** The router of experts, if nothing else reads the scores. */
function findRouter(walk: Walk, layer: Node, normed: Node): Router | undefined {
  const choice = walk.peek(layer.inputs[1]);
  if (choice.op !== "expertChoice" || walk.graph.replaced.has(choice)) return undefined;
  const own = new Walk(walk.graph, walk.wanted);
  try {
    const { bias, ...router } = findProjection(own, choice.inputs[0], "the router");
    const isAlone = [...own.inside].every((node) =>
      !walk.wanted.has(node) && walk.readers(node).every((reader) => reader === choice || own.inside.has(reader))
    );
    if (!isAlone || own.peek(router.x) !== normed || (bias && !isFloat(bias.dtype))) return undefined;
    return { joint: joint([router]), bias, choice, inside: own.inside.add(choice) };
  } catch (error) {
    if (!(error instanceof Mismatch)) throw error;
    return undefined;
  }
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
