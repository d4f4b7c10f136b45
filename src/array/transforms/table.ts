/**
 * One row per op: its rules for cotangents (reverse mode), tangents (forward mode) and batches.
 *
 * Fused ops have no row of their own: their composites are gone through, except where fused_rules.ts has a derivative. An op that is made only by the decoders of language models,
 * or whose result does not move with its inputs, says so.
 *
 * @module
 */

import type { OpName } from "../../graph/node.ts";
import type { FusedName } from "../../schedule/ops/fused_ops.ts";
import { COLLECTIVE } from "./collective_rules.ts";
import { CUSTOM_KERNEL } from "./custom_kernel_rules.ts";
import { ELEMENTWISE } from "./elementwise_rules.ts";
import { FACTORIZATION } from "./factorization_rules.ts";
import { INDEXING } from "./indexing_rules.ts";
import { MOVEMENT } from "./movement_rules.ts";
import { PRODUCTS } from "./product_rules.ts";
import { RANDOM } from "./random_rules.ts";
import { REDUCTIONS } from "./reduce_rules.ts";
import type { OpRules } from "./rule.ts";

/** Ops without inputs: nothing is recorded of them. */
type Leaf = "stored" | "data" | "file" | "parameter" | "full" | "arange";

/** Rules of all ops that have inputs and are not fused. */
export const TABLE: { readonly [K in Exclude<OpName, Leaf | FusedName>]: OpRules } = {
  elementwise: ELEMENTWISE,
  ...MOVEMENT,
  ...INDEXING,
  ...REDUCTIONS,
  ...PRODUCTS,
  factorization: FACTORIZATION,
  customKernel: CUSTOM_KERNEL,
  collective: COLLECTIVE,
  ...RANDOM,
};

/** The rules of a recorded op; undefined for a fused one. */
export function rulesOf(op: OpName): OpRules | undefined {
  return (TABLE as Partial<Record<OpName, OpRules>>)[op];
}
