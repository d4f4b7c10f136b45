/**
 * Sorting of 8-byte dtypes where the kernels of a device sort 32 bits: stably by one half of the elements, then by the other.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import type { Lowering } from "../plan/context.ts";
import { matrixShape, type Value } from "../plan/value.ts";

/** Indices that sort contiguous rows of an 8-byte dtype; `argsort` sorts rows of uint32 stably. */
export function argsortWide(l: Lowering, x: Value, argsort: (keys: Value) => Value): Value {
  const { rows, cols } = matrixShape(x.shape);
  const half = (word: 0 | 1, order?: Value): Value => {
    const keys = l.temporary([rows, cols], uint32);
    l.emit("sort_words", [x, order, keys], {
      spec: { DTYPE_IN: x.dtype.code, WORD: word },
      push: { rows, cols },
      workgroups: l.groups(rows * cols),
    });
    return argsort(keys);
  };
  const low = half(0);
  return along(l, low, half(1, low));
}

/** x[row, order[row, i]] of contiguous rows. */
export function along(l: Lowering, x: Value, order: Value): Value {
  const { rows: outer, cols } = matrixShape(x.shape);
  const out = l.temporary(x.shape, x.dtype);
  l.emit("gather", [x, order, out], {
    spec: { ELEMENT_BYTES: x.dtype.bytes, DTYPE_INDEX: order.dtype.code, ALONG: 1, FOURS: 0 },
    push: { outer, axis: cols, inner: 1, n: cols },
    workgroups: l.groups(outer * cols),
  });
  return out;
}
