/**
 * Nodes of fused functions, which carry their definition in primitives.
 *
 * @module
 */

import { type Dtype, float32, float64 } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";
import { attrsOf, type Definition, makeNode, type Node, type OpAttrs, type OpName } from "../../graph/node.ts";
import type { FusedName } from "../../schedule/ops/fused_ops.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, handOn, type Tensor, wrap } from "../tensor/tensor.ts";

/** Computes a fused op in primitives, with the attributes, shape and dtype that its node has when it is lowered. */
type FusedDefinition<K extends FusedName> = (
  node: Pick<Definition, "shape" | "dtype"> & { readonly attrs: OpAttrs[K] },
  ...inputs: Tensor[]
) => Tensor;

/** Makes nodes of a fused op. */
type Fused<K extends FusedName> = (
  inputs: readonly Node[],
  shape: readonly number[],
  dtype: Dtype,
  attrs: OpAttrs[K],
) => AnyTensor;

const composites = new Map<OpName, Node["composite"]>();

/**
 * Defines a fused op: what makes its nodes. Their composite is what `definition` gives for attributes and inputs: those of the node when
 * it is lowered, which row pruning may have changed. Kernels know no float64: with an input of it the definition is taken at once.
 */
export function defineFused<K extends FusedName>(name: K, definition: FusedDefinition<K>): Fused<K> {
  const composite = (node: Definition): Node =>
    handOn(
      scoped(() =>
        definition({ shape: node.shape, dtype: node.dtype, attrs: attrsOf(node, name) }, ...node.inputs.map(wrap))
      ),
    );
  composites.set(name, composite);
  return (inputs, shape, dtype, attrs) => {
    if (inputs.some((node) => node.dtype === float64)) {
      return scoped((): AnyTensor => definition({ attrs, shape, dtype }, ...inputs.map(wrap)) as AnyTensor);
    }
    return wrap(makeNode(name, inputs, shape, dtype, attrs, composite));
  };
}

/** The composite of the nodes of an op; undefined for one that is not fused. */
export function compositeOf(op: OpName): Node["composite"] {
  return composites.get(op);
}

/** The dtype in which fused functions of a dtype compute: float64 of float64, else float32. */
export function accumulatorOf(dtype: Dtype): Dtype {
  return dtype === float64 ? float64 : float32;
}

/** The node of an array of floats; throws for another dtype, with the name of the function that was called. */
export function floatNode(name: string, value: TensorLike): Node {
  const node = toNode(name, value);
  if (node.dtype.kind === "float") return node;
  throw new DtypeError(`${name}() takes arrays of floats: found ${node.dtype.name}, use astype(mx.float32)`);
}
