/**
 * One value in all elements of an array.
 *
 * @module
 */

import { type Dtype, elementWords, isWide, type Scalar } from "../../graph/dtype.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { immediateBits } from "./elementwise_chain.ts";

/** A fresh intermediate of one value. */
export function fill(l: Lowering, shape: Shape, dtype: Dtype, value: Scalar): Value {
  const out = l.temporary(shape, dtype);
  fillInto(l, out, value);
  return out;
}

/** Writes one value into a contiguous place. */
export function fillInto(l: Lowering, out: Value, value: Scalar): void {
  const { shape, dtype } = out;
  const [start, high] = isWide(dtype) ? elementWords(dtype, value) : [immediateBits(dtype, value), 0];
  l.emit("arange", [out], {
    spec: { DTYPE_OUT: dtype.code },
    push: { count: sizeOf(shape), start, step: 0, start_high: high, step_high: 0 },
    workgroups: l.groups(sizeOf(shape)),
  });
}

/** A fresh intermediate of zeros. */
export function zeros(l: Lowering, shape: Shape, dtype: Dtype): Value {
  return fill(l, shape, dtype, 0);
}
