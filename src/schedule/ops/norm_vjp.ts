/**
 * Rules of the gradients of normalisations.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import * as k from "../../backend/kernels.ts";
import type { Lowering } from "../plan/context.ts";
import { matrixShape, type Value } from "../plan/value.ts";
import { zeros } from "./fill.ts";
import { reduce } from "./reduce.ts";
import type { Inputs } from "./rule.ts";

/** Rows of a part of the gradient of a weight, and the most parts there are. */
const PART_ROWS = 16;
const MAX_PARTS = 1024;

/** Threads for one row: a short one, such as that of a head, takes a single subgroup if those have 32 lanes. */
export function rowThreads(l: Lowering, cols: number): number {
  const { threads } = l.backend.limits;
  return cols <= 4 * 32 ? Math.min(32, threads) : threads;
}

/** The gradient of rows after their norm. */
export function normVjp(l: Lowering, node: Node, inputs: Inputs): Value {
  const { eps, centered, hasWeight } = attrsOf(node, "normVjp");
  const [x, cotangent] = [inputs[0], inputs[inputs.length - 1]].map((v) => l.contiguous(v, true));
  const weight = hasWeight ? l.contiguous(inputs[1], true) : undefined;
  const out = l.temporary(node.shape, node.dtype);
  const push = { ...matrixShape(node.shape), eps };
  l.emit("norm_vjp", [x, weight, cotangent, out], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_WEIGHT: (weight?.dtype ?? float32).code,
      DTYPE_C: cotangent.dtype.code,
      HAS_WEIGHT: hasWeight ? 1 : 0,
      CENTERED: centered ? 1 : 0,
    },
    threads: rowThreads(l, push.cols),
    push,
    workgroups: push.cols ? push.rows : 0,
  });
  return out;
}

/** The gradient of the weight of a norm: sums over parts of the rows, and the sum of those. */
export function normWeightVjp(l: Lowering, node: Node, inputs: Inputs): Value {
  const { eps, centered } = attrsOf(node, "normWeightVjp");
  const [x, cotangent] = inputs.map((v) => l.contiguous(v, true));
  const { rows, cols } = matrixShape(x.shape);
  if (rows * cols === 0) return zeros(l, node.shape, node.dtype);
  const out = l.temporary(node.shape, node.dtype);
  const parts = Math.min(MAX_PARTS, Math.ceil(rows / PART_ROWS));
  const sums = parts > 1 ? l.temporary([parts, cols], float32) : out;
  const threads = rowThreads(l, cols);
  l.emit("norm_weight_vjp", [x, cotangent, sums], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_C: cotangent.dtype.code,
      DTYPE_OUT: sums.dtype.code,
      CENTERED: centered ? 1 : 0,
    },
    threads,
    push: { rows, cols, parts, eps },
    workgroups: parts * Math.ceil(cols / (k.NORM_WEIGHT_COLUMNS * threads)),
  });
  if (parts > 1) reduce(l, "sum", sums, [0], out);
  return out;
}
