/**
 * Functions of sequences: places in a sorted one, and differences of neighbours.
 *
 * @module
 */

import { bool, int32, uint32 } from "../../graph/dtype.ts";
import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { checkOptions } from "../../graph/options.ts";
import { formatShape } from "../../graph/shape.ts";
import { add, less, lessEqual, logicalAnd, logicalOr, minimum, notEqual, subtract, where } from "./binary.ts";
import { type TensorLike, toInteger, toNode } from "../tensor/convert.ts";
import { zeros } from "./creation.ts";
import { take } from "./gather.ts";
import { concatenate } from "./join.ts";
import { astype, axisOf, broadcastTo, sliceNode } from "./movement.ts";
import type { Same } from "../tensor/results.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import type { RankOf } from "../tensor/types.ts";
import { isnan, logicalNot } from "./unary.ts";

/** Whether x lies before y in sorting order: NaN is after all numbers, complex ones with a NaN part as well. */
function liesBefore(x: AnyTensor, y: AnyTensor): AnyTensor {
  const inexact = (a: AnyTensor): boolean => a.dtype.kind === "float" || a.dtype.kind === "complex";
  if (!inexact(x) && !inexact(y)) return less(x, y);
  return logicalAnd(logicalNot(isnan(x)), logicalOr(less(x, y), isnan(y)));
}

/**
 * Indices (uint32, of the shape of `values`) at which values belong in a sorted sequence of one axis. They come before equal elements,
 * or after them if `side` is "right". NaN belongs after all numbers.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.searchsorted([1, 2, 2, 4], [0, 2, 3, 5]).tolist(); // [0, 1, 3, 4]
 * mx.searchsorted([1, 2, 2, 4], [0, 2, 3, 5], "right").tolist(); // [0, 3, 3, 4]
 * ```
 */
export function searchsorted<V extends TensorLike>(
  sortedSequence: TensorLike,
  values: V,
  side: "left" | "right" = "left",
): Tensor<"uint32", RankOf<V>> {
  if (side !== "left" && side !== "right") {
    throw new ValueError(`searchsorted() expected side "left" or "right": found ${quoted(side)}`);
  }
  const sequence = toNode("searchsorted", sortedSequence);
  const wanted = toNode("searchsorted", values);
  if (sequence.shape.length !== 1) {
    throw new ShapeError(`searchsorted() expected a sequence of 1 axis: found ${formatShape(sequence.shape)}`);
  }
  const count = sequence.shape[0];
  return scoped("searchsorted", (): AnyTensor => {
    let found: AnyTensor = zeros(wanted.shape, int32); // elements known to lie in front
    if (count === 0) return astype(found, uint32);
    const [x, y] = [wrap(sequence), wrap(wanted)];
    for (let step = 2 ** Math.floor(Math.log2(count)); step >= 1; step /= 2) {
      const next = add(found, step);
      const element = take(x, subtract(minimum(next, count), 1), 0);
      const before = side === "left" ? liesBefore(element, y) : logicalNot(liesBefore(y, element));
      found = where(logicalAnd(lessEqual(next, count), before), next, found);
    }
    return astype(found, uint32);
  });
}

/** Elements that {@link diff} first joins to the array. */
export interface DiffOptions {
  /** Elements before the array along the axis; a number stands for one row of them. */
  readonly prepend?: TensorLike;
  /** Elements after it. */
  readonly append?: TensorLike;
}

const DIFF_OPTIONS = { prepend: true, append: true } as const satisfies Record<keyof DiffOptions, true>;

/**
 * Differences of neighbours along an axis, taken `n` times; each time the axis is one element shorter. Of bool: whether they
 * differ.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.diff([1, 2, 4, 7]).tolist(); // [1, 2, 3]
 * mx.diff([1, 2, 4, 7], 1, -1, { prepend: 0 }).tolist(); // [1, 1, 2, 3]
 * ```
 */
export function diff<A extends TensorLike>(a: A, n: number = 1, axis: number = -1, options: DiffOptions = {}): Same<A> {
  checkOptions("diff", options, DIFF_OPTIONS);
  const node = toNode("diff", a);
  if (toInteger("diff", "n", n) < 0) throw new ValueError(`diff() expected n of at least 0: found ${n}`);
  const at = axisOf("diff", axis, node.shape);
  const row = node.shape.map((d, i) => i === at ? 1 : d);
  const part = (list: TensorLike | undefined): AnyTensor[] => {
    if (list === undefined) return [];
    const value = wrap(toNode("diff", list, node.dtype));
    return [value.shape.length === 0 ? broadcastTo(value, row) : value];
  };
  return scoped("diff", (): AnyTensor => {
    let x: AnyTensor = wrap(node);
    if (n > 0 && (options.prepend !== undefined || options.append !== undefined)) {
      x = concatenate([...part(options.prepend), x, ...part(options.append)], at);
    }
    for (let i = 0; i < n && x.shape[at] > 0; i++) {
      const from = nodeOf(x);
      const length = x.shape[at] - 1;
      const slice = (start: number): AnyTensor =>
        wrap(
          sliceNode(
            from,
            from.shape.map((_, i) => i === at ? start : 0),
            from.shape.map(() => 1),
            from.shape.map((d, i) => i === at ? length : d),
          ),
        );
      x = from.dtype === bool
        ? notEqual(slice(length > 0 ? 1 : 0), slice(0))
        : subtract(slice(length > 0 ? 1 : 0), slice(0));
    }
    return x;
  });
}
