/**
 * Rules of the fused ops of experts: their choice, their gated linear units and their weighted sum.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import * as k from "../../backend/kernels.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { type Dtype, float32, isHalf } from "../../graph/dtype.ts";
import type { ExpertChoice, ExpertFormat } from "../../graph/experts.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { contiguousStrides, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { type Value, view } from "../plan/value.ts";
import { MODE_CODES } from "./matmul/dequantize.ts";
import { UNITS } from "./matmul/direct_experts.ts";
import { vectorShape } from "./matmul/matmul_tiles.ts";
import { readsOf } from "./matmul/quantized_matmul.ts";
import type { Inputs } from "./rule.ts";

const AMONG: Readonly<Record<ExpertChoice["among"], number>> = {
  all: k.EXPERTS_ALL,
  chosen: k.EXPERTS_CHOSEN,
  sigmoid: k.EXPERTS_SIGMOID,
};

/** Most inputs of an expert's product on the CPU, which keeps a row on the stack. */
const MAX_DEPTH = 16384;
/** Fewest scores that have threads of a subgroup. */
const MIN_THREADS = 32;

/** The kernel that chooses experts, if its shared memory holds as many. */
export function choiceKernel(node: Node): KernelName | undefined {
  const { groups, closedGroups } = attrsOf(node, "expertChoice");
  const experts = node.inputs[0].shape[1];
  const grouped = closedGroups === 0 || (groups <= k.MAX_EXPERT_GROUPS && experts / groups >= 2);
  return experts > 0 && experts <= k.MAX_EXPERTS && grouped ? "expert_choice" : undefined;
}

/** Experts and their weights. */
export function expertChoice(l: Lowering, node: Node, [scores, ...rest]: Inputs): Value {
  const whole = [1, ...scores.shape];
  return choiceOf(l, node, view(l.contiguous(scores), whole, contiguousStrides(whole)), rest);
}

/**
 * Experts and their weights by scores in contiguous parts (splits, rows, experts) that add up to them, with `added` (experts,) if there is
 * one. `rest` are the node's other inputs.
 */
export function choiceOf(l: Lowering, node: Node, parts: Value, rest: Inputs, added?: Value): Value {
  const { chosen, among, normalized, sumEps, factor, groups, closedGroups, hasBias, hasScale } = attrsOf(
    node,
    "expertChoice",
  );
  const bias = hasBias ? l.contiguous(rest[0]) : undefined;
  const scale = hasScale ? l.contiguous(rest[hasBias ? 1 : 0]) : undefined;
  const out = l.temporary(node.shape, node.dtype);
  const [splits, rows, experts] = parts.shape;
  let threads = MIN_THREADS;
  while (threads < experts && 2 * threads <= l.backend.limits.threads) threads *= 2;
  l.emit("expert_choice", [parts, bias, scale, out, added], {
    threads,
    spec: {
      DTYPE: parts.dtype.code,
      DTYPE_BIAS: (bias?.dtype ?? float32).code,
      DTYPE_SCALE: (scale?.dtype ?? float32).code,
      AMONG: AMONG[among],
      HAS_BIAS: hasBias ? 1 : 0,
      HAS_SCALE: hasScale ? 1 : 0,
      SPLITS: splits,
      DTYPE_ADDED: (added?.dtype ?? float32).code,
      EXPERTS: experts,
    },
    push: {
      rows,
      chosen,
      groups,
      closed: closedGroups,
      normalized: normalized ? 1 : 0,
      sum_eps: sumEps,
      factor,
    },
    workgroups: rows,
  });
  return out;
}

/** The kernel of products with experts' matrices, if it knows their dtypes and sizes. */
export function expertKernel(
  name: "expert_units" | "expert_sum",
): (node: Node, backend: Backend) => KernelName | undefined {
  return (node) => {
    const [x, , weight] = node.inputs;
    const { mode } = node.attrs as ExpertFormat;
    const depth = x.shape.at(-1)!;
    const known = ({ dtype }: { readonly dtype: Dtype }): boolean => dtype === float32 || isHalf(dtype);
    const dense = mode !== "dense" || known(weight);
    return known(x) && dense && depth > 0 && depth <= MAX_DEPTH && weight.shape[0] > 0 ? name : undefined;
  };
}

/** Specialization constants and buffers of stacks of matrices; `biases` follow them. */
function stacksOf(
  l: Lowering,
  { mode, bits, groupSize }: ExpertFormat,
  x: Value,
  arrays: readonly Value[],
  biases: readonly Value[],
): { readonly spec: Readonly<Record<string, number>>; readonly buffers: readonly (Value | undefined)[] } {
  const perStack = mode === "dense" ? 1 : mode === "affine" ? 3 : 2;
  const stacks = Array.from(
    { length: arrays.length / perStack },
    (_, i) => arrays.slice(i * perStack, (i + 1) * perStack),
  );
  const buffers = stacks.flatMap((stack) =>
    Array.from({ length: 3 }, (_, i) => stack[i] && l.contiguous(stack[i], true))
  );
  const spec = {
    BITS: bits || 4, // no constant may be 0
    GROUP: groupSize || 64,
    MODE: mode === "dense" ? k.MODE_DENSE : MODE_CODES[mode],
    DTYPE_X: x.dtype.code,
    DTYPE_SCALES: stacks[0][mode === "dense" ? 0 : 1].dtype.code,
    DTYPE_BIAS: (biases[0]?.dtype ?? float32).code,
    HAS_BIAS: biases.length > 0 ? 1 : 0,
  };
  return { spec, buffers };
}

/** The gated linear units of the chosen experts. */
export function expertUnits(l: Lowering, node: Node, [x, choice, ...rest]: Inputs): Value {
  const { unit, hasBias, ...format } = attrsOf(node, "expertUnits");
  const out = l.temporary(node.shape, node.dtype);
  const [rows, chosen, n] = node.shape;
  const depth = x.shape[1];
  const [biases, arrays] = hasBias ? [rest.slice(-2), rest.slice(0, -2)] : [[], rest];
  const { spec, buffers } = stacksOf(l, format, x, arrays, biases);
  const places = rows * chosen;
  const { threads, columns } = shapeOf(l, format, places * n, depth);
  const [gateBias, upBias] = biases.map((bias) => l.contiguous(bias));
  l.emit("expert_units", [l.contiguous(x, true), l.contiguous(choice), ...buffers, gateBias, upBias, out], {
    threads,
    spec: { ...spec, COLUMNS: columns, UNIT: UNITS[unit], DTYPE_OUT: out.dtype.code },
    push: { rows, chosen, experts: arrays[0].shape[0], m: 1, n, k: depth },
    workgroups: sizeOf(node.shape) === 0 ? 0 : places * Math.ceil(n / columns),
  });
  return out;
}

/** The weighted sum of the chosen experts' products. */
export function expertSum(l: Lowering, node: Node, [x, choice, ...rest]: Inputs): Value {
  const { hasBias, ...format } = attrsOf(node, "expertSum");
  const out = l.temporary(node.shape, node.dtype);
  const [rows, n] = node.shape;
  const [, chosen, depth] = x.shape;
  const [biases, arrays] = hasBias ? [rest.slice(-1), rest.slice(0, -1)] : [[], rest];
  const { spec, buffers } = stacksOf(l, format, x, arrays, biases);
  const { threads, columns } = shapeOf(l, format, rows * n, chosen * depth);
  const [bias] = biases.map((bias) => l.contiguous(bias));
  l.emit("expert_sum", [l.contiguous(x, true), l.contiguous(choice), ...buffers, bias, out], {
    threads,
    spec: { ...spec, COLUMNS: columns, DTYPE_OUT: out.dtype.code },
    push: { rows, chosen, experts: arrays[0].shape[0], m: 1, n, k: depth },
    workgroups: sizeOf(node.shape) === 0 ? 0 : rows * Math.ceil(n / columns),
  });
  return out;
}

/** Threads and columns of a workgroup: those of products of one row. */
function shapeOf(
  l: Lowering,
  format: ExpertFormat,
  outputs: number,
  depth: number,
): ReturnType<typeof vectorShape> {
  return vectorShape(l.backend, 1, outputs, depth, readsOf(format));
}
