/**
 * How a layer of experts chooses them, and what each computes: attributes of its fused ops.
 *
 * @module
 */

import type { CodeMode } from "./quantization.ts";

/** The function of the gate and the linear part of an expert. */
export type ExpertUnit = "silu" | "geluTanh" | "clipped";

/** How the matrices of experts are stored: as codes of a mode, or as numbers, whose bits and group size are 0. */
export interface ExpertFormat {
  readonly mode: CodeMode | "dense";
  readonly bits: number;
  readonly groupSize: number;
}

/** How experts are chosen by scores, and which weights they get. */
export interface ExpertChoice {
  /** Experts that a row gets. */
  readonly chosen: number;
  /** Weights: probabilities among all experts or among the chosen ones, or sigmoids. */
  readonly among: "all" | "chosen" | "sigmoid";
  /** Whether weights are divided by their sum and `sumEps`. */
  readonly normalized: boolean;
  readonly sumEps: number;
  /** A factor of all weights. */
  readonly factor: number;
  /** Groups of as many experts, which follow each other. */
  readonly groups: number;
  /** How many of the groups a row may not choose from: those whose two best experts have the lowest sums. Their scores count as 0. */
  readonly closedGroups: number;
  /** Whether there is a bias of scores, which counts for the choice alone. */
  readonly hasBias: boolean;
  /** Whether there is a factor of weights for each expert. */
  readonly hasScale: boolean;
}
