/**
 * The types of transform rules: the contract between table.ts, which lists all rules, and the files of their families.
 *
 * @module
 */

import type { Node } from "../../graph/node.ts";
import { sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { conj } from "../ops/complex.ts";
import { castNode, fullNode } from "../tensor/convert.ts";
import { broadcastNode, reshapeNode } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import type { Entry } from "../tensor/tape.ts";

/** A recorded step as rules read it. */
export interface Step {
  readonly entry: Entry;
  /** Input `i`. */
  x(i: number): AnyTensor;
  /** The result. */
  readonly y: AnyTensor;
  /** Whether a derivative with respect to input `i` is asked for. */
  wants(i: number): boolean;
}

/** Cotangents of the inputs, in their shapes; undefined if there is none. */
export type Vjp = (step: Step, cotangent: AnyTensor) => readonly (AnyTensor | undefined)[];

/** Says that a tangent goes through the rule of reverse mode, applied twice. */
export const THROUGH_REVERSE: unique symbol = Symbol("through reverse");

/** The tangent of the result from those of the inputs, of which at least one is there. */
export type Jvp = (
  step: Step,
  tangents: readonly (AnyTensor | undefined)[],
) => AnyTensor | undefined | typeof THROUGH_REVERSE;

/** Inputs of a batch: node `i` has the batch as its first axis where `batched[i]`. Gives the results with the batch first. */
export type Vmap = (entry: Entry, inputs: readonly Node[], batched: readonly boolean[], size: number) => Node;

/** Why there is no rule. */
export interface Reason {
  readonly none: string;
}

/** The rules of an op. */
export interface OpRules {
  readonly vjp: Vjp | Reason;
  /** Left out: through the rule of `vjp`, applied twice. */
  readonly jvp?: Jvp | Reason;
  readonly vmap: Vmap | Reason;
}

/** Zeros of the shape and dtype of a node. */
export function zerosOf(node: Pick<Node, "shape" | "dtype">): AnyTensor {
  return wrap(fullNode(0, node.shape, node.dtype));
}

/** An array summed over the axes that broadcasting added or repeated. */
export function sumTo(value: AnyTensor, shape: Shape): AnyTensor {
  const from = value.shape;
  if (sameShape(from, shape)) return value;
  const added = from.length - shape.length;
  const axes = from.map((_, i) => i).filter((i) => i < added || (shape[i - added] === 1 && from[i] !== 1));
  const total: AnyTensor = axes.length > 0 ? sum(value, axes, true) : value;
  return wrap(reshapeNode(nodeOf(total), shape));
}

/** An array of a dtype in a shape that it broadcasts to. */
export function asLike(value: AnyTensor, like: Pick<Node, "shape" | "dtype">): AnyTensor {
  return wrap(castNode(broadcastNode(nodeOf(value), like.shape), like.dtype));
}

/** An array in the dtype of a node. */
export function asDtype(value: AnyTensor, like: Pick<Node, "dtype">): AnyTensor {
  return wrap(castNode(nodeOf(value), like.dtype));
}

/** The factor of a cotangent: the conjugate of complex numbers, others unchanged. */
export function conjugated(value: AnyTensor): AnyTensor {
  return value.dtype.kind === "complex" ? conj(value) as AnyTensor : value;
}

/** A node with the batch as first axis; one of no batch is repeated. */
export function batchOf(node: Node, batched: boolean, size: number): Node {
  return batched ? node : broadcastNode(reshapeNode(node, [1, ...node.shape]), [size, ...node.shape]);
}

/** Number of elements of one of a batch. */
export function eachOf(node: Node): number {
  return sizeOf(node.shape.slice(1));
}

/** Axes moved back by one, after the batch. */
export function afterBatch(axes: readonly number[]): number[] {
  return axes.map((axis) => axis + 1);
}
