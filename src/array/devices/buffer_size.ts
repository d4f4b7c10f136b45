/**
 * How much memory arrays take.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { tensorsOf } from "../tensor/scope.ts";
import { nodeOf } from "../tensor/tensor.ts";

/**
 * Bytes of the buffers in which arrays lie, also those in lists and objects; each buffer counts once and as a whole. Throws a ValueError
 * where one was not evaluated.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.zeros([10]);
 * mx.eval(x);
 * mx.getArrayBufferSize(x, [x]); // 40 or more
 * ```
 */
export function getArrayBufferSize(...trees: readonly unknown[]): number {
  const buffers = new Map<unknown, number>();
  for (const { op, stored, shape, dtype } of tensorsOf(trees).map(nodeOf)) {
    if (!stored && op !== "data") {
      const found = `${dtype.name} of shape ${formatShape(shape)}`;
      throw new ValueError(
        `getArrayBufferSize() expected arrays that are evaluated: found ${found}, use mx.eval() first`,
      );
    }
    // Values that no device holds yet are as large as they are.
    if (stored) buffers.set(stored.storage, stored.storage.bytes);
    else buffers.set({}, sizeOf(shape) * dtype.bytes);
  }
  return [...buffers.values()].reduce((sum, bytes) => sum + bytes, 0);
}
