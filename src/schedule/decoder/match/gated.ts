/**
 * Gated products in the graph of a decoder: activation(gate) * up.
 *
 * @module
 */

import type { Node } from "../../../graph/node.ts";
import { expect, Mismatch, type Product, type Walk } from "../../plan/pattern.ts";
import type { FusedActivation } from "../spec.ts";
import { findActivation } from "./activation.ts";
import { type Joint, joint } from "./joint.ts";
import { findProjection } from "./projection.ts";

/** A gated feed-forward part, whose matrices are multiplied as two. */
export interface GatedPart {
  readonly gateUp: Joint;
  readonly activation: FusedActivation;
  readonly down: Joint;
}

/** The matrices of a part as two. */
export function gatedPart(
  { gate, up, activation, down }: ReturnType<typeof gatedBy> & { readonly down: Product },
): GatedPart {
  const part = { gateUp: joint([gate, up]), activation, down: joint([down]) };
  expect(part.gateUp.columns.every((n) => n % 64 === 0), "the intermediate size is no multiple of 64");
  return part;
}

/** A product without a bias. */
export function unbiased(walk: Walk, node: Node, what: string): Product {
  const { bias, ...product } = findProjection(walk, node, what);
  expect(bias === undefined, `${what} has a bias`);
  return product;
}

/** activation(gate) * up in either order. */
export function gatedBy(
  walk: Walk,
  product: Node,
): { readonly gate: Product; readonly up: Product; readonly activation: FusedActivation } {
  const sides = walk.elementwise(product, "multiply") ?? [];
  for (const [i, side] of sides.entries()) {
    const found = findActivation(walk, side);
    if (!found) continue;
    return {
      gate: unbiased(walk, found.x, "the gate projection"),
      up: unbiased(walk, sides[1 - i], "the up projection"),
      activation: found.activation,
    };
  }
  throw new Mismatch("the feed-forward part has no gate with silu or gelu");
}
