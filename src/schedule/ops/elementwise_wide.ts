/**
 * Elementwise ops with 8-byte dtypes among their inputs or results: a dispatch for each, in one of the domains of elementwise_wide.h.
 * Operands are cast to the domain as they are read, results to the node's dtype as they are written.
 *
 * @module
 */

import { ELEMENTWISE, type KernelName } from "../../backend/kernels.ts";
import { complex64, type Dtype, isWide } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { broadcastStrides, collapse, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

const MAX_RANK = 4;

/** Codes of domains, as shaders/include/dtype.h counts them. */
const DOMAINS: Readonly<Record<string, number>> = { int64: 0, uint64: 1, complex64: 2, float64: 3 };

/** Rows of complex64 that have a kernel of their own: those of domain T in elementwise_wide.h. */
const COMPLEX_MATH: ReadonlySet<string> = new Set([
  ...["abs", "sign", "sqrt", "rsqrt", "exp", "log", "log2", "log10", "log1p", "power", "logaddexp"],
  ...["sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"],
]);

/** The kernel that has a row of a domain. */
function kernelOf(domain: Dtype, row: string): KernelName {
  if (domain !== complex64) return "elementwise_wide";
  return COMPLEX_MATH.has(row) ? "elementwise_complex_math" : "elementwise_complex";
}

/** Whether a node is computed by the kernels of 8-byte dtypes. */
export function isWideElementwise(node: Node): boolean {
  return node.op === "elementwise" && [node, ...node.inputs].some(({ dtype }) => isWide(dtype));
}

function domainOf(node: Node): Dtype {
  const { fn } = attrsOf(node, "elementwise");
  // A cast computes in what it casts to, if that is wide: no bits of either are lost.
  if (fn === "cast") return isWide(node.dtype) ? node.dtype : node.inputs[0].dtype;
  return node.inputs[fn === "select" ? 1 : 0].dtype;
}

/** Dispatches a node whose inputs lie at `values`. */
export function emitWide(l: Lowering, node: Node, values: readonly Value[]): Value {
  const { fn } = attrsOf(node, "elementwise");
  const [a, b, c] = fn === "select" ? [values[1], values[2], values[0]] : values;
  const { shape } = node;
  const out = l.temporary(shape, node.dtype);
  let inputs = [a, b, c].filter((value) => value !== undefined);
  const walk = (): { shape: number[]; strides: number[][] } =>
    collapse(shape, [...inputs.map((v) => broadcastStrides(v.shape, v.strides, shape)), out.strides]);
  if (walk().shape.length > MAX_RANK) inputs = inputs.map((v) => l.contiguous(l.broadcast(v, shape)));
  const { shape: sizes, strides } = walk();
  const count = sizeOf(shape);
  const domain = domainOf(node);
  const row = fn === "cast" ? "identity" : fn;
  l.emit(kernelOf(domain, row), [inputs[0], inputs[1], inputs[2], out], {
    spec: {
      DTYPE_A: inputs[0].dtype.code,
      DTYPE_B: inputs[1]?.dtype.code ?? 0,
      DTYPE_C: inputs[2]?.dtype.code ?? 0,
      DTYPE_OUT: node.dtype.code,
      DOMAIN: DOMAINS[domain.name],
      ROW: ELEMENTWISE[row as keyof typeof ELEMENTWISE].id,
    },
    push: {
      count,
      shape: sizes,
      a_strides: strides[0],
      b_strides: inputs[1] ? strides[1] : [],
      c_strides: inputs[2] ? strides[2] : [],
    },
    workgroups: l.groups(count),
  });
  return out;
}
