/**
 * Rows of arrays that are in files.
 *
 * @module
 */

import { attrsOf, makeNode } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { sliceNode } from "../ops/movement.ts";
import { make, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";

/** `count` rows of an array from `first` on, in memory of their own. Of one that is in a file and was not read yet, these rows are read alone. */
export function rowsOf(x: Tensor, first: number, count: number): Tensor {
  const node = nodeOf(x);
  const [, ...rest] = node.shape;
  if (node.op !== "file" || attrsOf(node, "file").deflated) {
    const rows = sliceNode(node, [first, ...rest.map(() => 0)], node.shape.map(() => 1), [count, ...rest]);
    return wrap(makeNode("concatenate", [rows], rows.shape, rows.dtype, { axis: 0 })) as Tensor; // a copy
  }
  const place = attrsOf(node, "file");
  const byteOffset = place.byteOffset + first * sizeOf(rest) * node.dtype.bytes;
  return make("file", [], [count, ...rest], node.dtype, { ...place, byteOffset });
}
