/**
 * What all fused functions need: nodes that carry their definition in primitives.
 *
 * @module
 */

import { type Dtype, isFloat } from "../graph/dtype.ts";
import { DtypeError } from "../graph/error.ts";
import { attrsOf, makeNode, type Node, type OpAttrs } from "../graph/node.ts";
import type { FusedName } from "../schedule/ops/fused_ops.ts";
import { type TensorLike, toNode } from "./convert.ts";
import { scoped } from "./scope.ts";
import { type AnyTensor, handOn, type Tensor, wrap } from "./tensor.ts";

/**
 * A fused op, whose composite is what `definition` gives for attributes and inputs: those of the node when it is lowered, which row
 * pruning may have changed.
 */
export function fused<K extends FusedName>(
  name: K,
  inputs: readonly Node[],
  shape: readonly number[],
  dtype: Dtype,
  attrs: OpAttrs[K],
  definition: (attrs: OpAttrs[K], ...inputs: Tensor[]) => Tensor,
): AnyTensor {
  const composite = (node: Node): Node =>
    handOn(scoped(() => definition(attrsOf(node, name), ...node.inputs.map(wrap))));
  return wrap(makeNode(name, inputs, shape, dtype, attrs, composite));
}

/** The node of an array of float16, bfloat16 or float32; throws for another dtype, with the name of the function that was called. */
export function floatNode(name: string, value: TensorLike): Node {
  const node = toNode(name, value);
  if (isFloat(node.dtype)) return node;
  throw new DtypeError(
    `${name}() takes float16, bfloat16 and float32: found ${node.dtype.name}, use astype(mx.float32)`,
  );
}
