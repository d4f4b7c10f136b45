/**
 * THE case table: every op with its inputs, its oracle and its tolerance, run on every device by ops_test.ts.
 *
 * A row names the op, the inputs (shape, dtype, range), how to call it and the same thing in float64 (oracle.ts).
 */

import type { Case } from "./cases/case.ts";
import { elementwise } from "./cases/elementwise.ts";
import { movement } from "./cases/movement.ts";
import { fused, products } from "./cases/products.ts";
import { reductions } from "./cases/reductions.ts";

/** All rows. */
export function* cases(): Generator<Case> {
  yield* elementwise();
  yield* reductions();
  yield* movement();
  yield* products();
  yield* fused();
}
