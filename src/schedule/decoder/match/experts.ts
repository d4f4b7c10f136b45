/**
 * The experts of a layer: a router scores them, and each row takes the weighted sum of the best ones. They are the fused functions of
 * src/array/quantized/experts.ts.
 *
 * @module
 */

import type { ExpertChoice, ExpertFormat, ExpertUnit } from "../../../graph/experts.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { CODE_MODES, DENSE } from "../../../graph/quantization.ts";
import { expect, type Matrix, type Product, type Walk } from "../../plan/pattern.ts";
import type { ExpertFeatures, FusedActivation } from "../spec.ts";

/** How experts are chosen. */
export interface ExpertPart extends ExpertFeatures {
  /** Scores (rows, experts) of the normalised rows. */
  readonly router: Product;
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

/** The units that kernels know. */
const ACTIVATIONS: Readonly<Record<ExpertUnit, FusedActivation | undefined>> = {
  silu: "silu",
  geluTanh: "geluTanh",
  clipped: undefined,
};

/** The weighted sum of experts, maybe through views. */
export function findExpertSum(walk: Walk, node: Node): ExpertSum {
  const sum = walk.take(walk.stripViews(node), "expertSum", "the sum of experts");
  const units = walk.take(walk.stripViews(sum.inputs[0]), "expertUnits", "what experts multiply last");
  const choice = walk.take(walk.stripViews(sum.inputs[1]), "expertChoice", "the choice of experts");
  expect(walk.stripViews(units.inputs[1]) === choice, "experts are chosen twice");
  const { unit, hasBias, ...format } = attrsOf(units, "expertUnits");
  const { hasBias: hasSumBias, ...sumFormat } = attrsOf(sum, "expertSum");
  expect(!hasBias && !hasSumBias, "experts have biases");
  const activation = ACTIVATIONS[unit];
  expect(activation !== undefined, `experts have a ${unit} unit`);
  const among = sharesOf(attrsOf(choice, "expertChoice"));
  const router = walk.product(choice.inputs[0], "the router");
  const [normed, , ...arrays] = units.inputs;
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
    down: { matrix: stackOf(sum.inputs.slice(2), sumFormat), x: units },
    experts: { count, chosen, among, router },
  };
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
  expect(CODE_MODES[mode].floatScales, `experts have ${mode} weights`);
  return { codes, scales, biases, bits, groupSize };
}
