/**
 * What all fused functions need: nodes that carry their definition in primitives.
 *
 * @module
 */

import type { Dtype } from "../graph/dtype.ts";
import { DtypeError } from "../graph/error.ts";
import { makeNode, type Node, type OpAttrs } from "../graph/node.ts";
import type { FusedName } from "../schedule/ops/fused_ops.ts";
import { type TensorLike, toNode } from "./convert.ts";
import { scoped } from "./scope.ts";
import { handOn, type Tensor, wrap } from "./tensor.ts";

/** The composite of a node: Tensors around its inputs, and the node that the definition gives. */
function composite(inputs: readonly Node[], definition: (...inputs: Tensor[]) => Tensor): () => Node {
  return () => handOn(scoped(() => definition(...inputs.map(wrap))));
}

/** A fused op, whose composite is what `definition` gives. */
export function fused<K extends FusedName>(
  name: K,
  inputs: readonly Node[],
  shape: readonly number[],
  dtype: Dtype,
  attrs: OpAttrs[K],
  definition: (...inputs: Tensor[]) => Tensor,
): Tensor {
  return wrap(makeNode(name, inputs, shape, dtype, attrs, composite(inputs, definition)));
}

/** The node of a float array; throws for another dtype, with the name of the function that was called. */
export function floatNode(name: string, value: TensorLike): Node {
  const node = toNode(name, value);
  if (node.dtype.kind !== "float") throw new DtypeError(`${name}() takes float arrays only: found ${node.dtype.name}`);
  return node;
}
