/**
 * Arrays seen with another dtype.
 *
 * @module
 */

import { checkDtype, type Dtype, type DtypeName } from "../../graph/dtype.ts";
import { ShapeError } from "../../graph/error.ts";
import { formatShape } from "../../graph/shape.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { RankOf } from "../tensor/types.ts";

/**
 * The bytes of an array as elements of another dtype. Where those have another size, the last axis grows or shrinks, and must be a
 * multiple of it; an array without axes keeps its size.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.view(mx.array([1], mx.float32), mx.uint32).tolist(); // [1065353216]
 * ```
 */
export function view<A extends TensorLike, N extends DtypeName>(a: A, dtype: Dtype<N>): Tensor<N, RankOf<A>> {
  const node = toNode("view", a);
  checkDtype(dtype, "view");
  if (node.dtype === dtype) return wrap(node);
  const { shape, dtype: { bytes, name } } = node;
  const last = (shape.at(-1) ?? 1) * bytes / dtype.bytes;
  if (!Number.isInteger(last) || (shape.length === 0 && bytes !== dtype.bytes)) {
    throw new ShapeError(
      `view() cannot see ${name} of shape ${formatShape(shape)} as ${dtype.name}: its last axis has ` +
        `${(shape.at(-1) ?? 1) * bytes} bytes, expected a multiple of ${dtype.bytes}`,
    );
  }
  return make("bitcast", [node], shape.length === 0 ? [] : [...shape.slice(0, -1), last], dtype, {});
}
