/**
 * The experts of a layer: a router scores them, and each row takes the weighted sum of the best ones. They are the fused functions of
 * src/array/quantized/experts.ts.
 *
 * @module
 */

import type { ExpertChoice, ExpertFormat } from "../../../graph/experts.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { DENSE, smallFloatMode } from "../../../graph/quantization.ts";
import { expect, type Matrix, type Product, type Walk } from "../../plan/pattern.ts";
import type { ExpertBiases, ExpertFeatures, FusedActivation } from "../spec.ts";
import { findProjection, type Projection } from "./projection.ts";

/** How experts are chosen. */
export interface ExpertPart extends Omit<ExpertFeatures, "biases"> {
  /** Scores (rows, experts) of the normalised rows. */
  readonly router: Product;
  readonly biases: ExpertBiases | undefined;
}

/** What experts add to the residual, in the matrices of a feed-forward part: a stack of those of all experts each. */
export interface ExpertSum {
  /** What the router and the experts read. */
  readonly normed: Node;
  readonly gate: Product;
  readonly up: Product;
  readonly activation: FusedActivation;
  readonly down: Product;
  readonly experts: ExpertPart;
}

/** The weighted sum of experts, maybe through views. */
export function findExpertSum(walk: Walk, node: Node): ExpertSum {
  const sum = walk.take(walk.stripViews(node), "expertSum", "the sum of experts");
  const units = walk.take(walk.stripViews(sum.inputs[0]), "expertUnits", "what experts multiply last");
  const choice = walk.take(walk.stripViews(sum.inputs[1]), "expertChoice", "the choice of experts");
  expect(walk.stripViews(units.inputs[1]) === choice, "experts are chosen twice");
  const { unit: activation, hasBias, ...format } = attrsOf(units, "expertUnits");
  const { hasBias: hasSumBias, ...sumFormat } = attrsOf(sum, "expertSum");
  const among = sharesOf(attrsOf(choice, "expertChoice"));
  const router = findProjection(walk, choice.inputs[0], "the router");
  const biases = biasesOf(router, hasBias ? units.inputs.slice(-2) : [], hasSumBias ? sum.inputs.slice(-1) : []);
  const [normed, , ...inputs] = units.inputs;
  const arrays = hasBias ? inputs.slice(0, -2) : inputs;
  expect(walk.stripViews(router.x) === walk.peek(normed), "the router and the experts read different rows");
  const half = arrays.length / 2;
  const gate = stackOf(arrays.slice(0, half), format);
  const [chosen, count] = [attrsOf(choice, "expertChoice").chosen, gate.codes.shape[0]];
  expect(choice.inputs[0].shape[1] === count, "the router has scores of other experts");
  return {
    normed,
    gate: { matrix: gate, x: normed },
    up: { matrix: stackOf(arrays.slice(half), format), x: normed },
    activation,
    down: { matrix: stackOf(sum.inputs.slice(2, hasSumBias ? -1 : undefined), sumFormat), x: units },
    experts: { count, chosen, among, router, biases },
  };
}

/** The biases of a router and of the matrices of experts, which have all of them or none. */
function biasesOf(
  { bias: router }: Projection,
  gateUp: readonly Node[],
  [down]: readonly Node[],
): ExpertBiases | undefined {
  const [gate, up] = gateUp;
  if (router && gate && down) return { router, gate, up, down };
  expect(!router && !gate && !down, "only some of a router and the matrices of experts have biases");
  return undefined;
}

/** Which scores weights are shares of. Kernels know no other weights. */
function sharesOf({ among, factor, closedGroups, hasBias, hasScale }: ExpertChoice): ExpertFeatures["among"] {
  expect(among !== "sigmoid", "weights of experts are sigmoids");
  expect(factor === 1 && !hasScale, "weights of experts have factors");
  expect(closedGroups === 0 && !hasBias, "experts are chosen by more than their scores");
  return among;
}

/** The matrices of all experts as one. */
function stackOf([codes, scales, biases]: readonly Node[], { mode, bits, groupSize }: ExpertFormat): Matrix {
  if (mode === "dense") return { codes, scales: undefined, biases: undefined, ...DENSE };
  const small = smallFloatMode(mode);
  return { codes, scales, biases, bits, groupSize, ...(small && { mode: small }) };
}
