/**
 * Lowering rule of convolutions: a product of patches and weights a group, or sums by themselves where groups are small or
 * elements float64.
 *
 * @module
 */

import { float64 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { emitDenseConv } from "./matmul/coopmat_dense.ts";
import { tileSpec, tiling } from "./matmul/matmul_tiles.ts";

/** Spatial axes of the kernels; those that an array lacks have size 1. */
const AXES = 3;
/** Filters of a group up to which, and products of filters and channels up to which, outputs are sums by themselves. */
const DIRECT = { filters: 8, products: 64 } as const;

/** A convolution, channels last. */
export function conv(l: Lowering, node: Node, [x, w]: readonly Value[]): Value {
  const { stride, paddingLow, kernelDilation, inputDilation, groups, flip } = attrsOf(node, "conv");
  const out = l.temporary(node.shape, node.dtype);
  const count = sizeOf(node.shape);
  if (count === 0) return out;
  const spatial = (list: readonly number[], fill: number): number[] => [
    ...new Array<number>(AXES - list.length).fill(fill),
    ...list,
  ];
  const channels = w.shape[w.shape.length - 1];
  const filters = w.shape[0] / groups;
  const kernel = w.shape.slice(1, -1);
  const positions = node.shape.slice(1, -1);
  const push = {
    images: x.shape[0],
    in_shape: spatial(x.shape.slice(1, -1), 1),
    out_shape: spatial(positions, 1),
    kernel: spatial(kernel, 1),
    stride: spatial(stride, 1),
    padding: spatial(paddingLow, 0),
    kernel_dilation: spatial(kernelDilation, 1),
    input_dilation: spatial(inputDilation, 1),
    groups,
    channels,
    filters,
  };
  const dtypes = { DTYPE_IN: x.dtype.code, DTYPE_WEIGHT: w.dtype.code, DTYPE_OUT: node.dtype.code };
  const operands = (): Value[] => [l.contiguous(x, true), l.contiguous(w, true)];
  const small = groups > 1 && filters <= DIRECT.filters && filters * channels <= DIRECT.products;
  if (small || node.dtype === float64) {
    const workgroups = l.groups(count);
    l.emit("conv_direct", [...operands(), out], { spec: { ...dtypes, FLIP: flip ? 1 : 0 }, push, workgroups });
    return out;
  }
  const rows = x.shape[0] * sizeOf(positions);
  const plain = !flip && inputDilation.every((d) => d === 1);
  if (plain && emitDenseConv(l, { groups, rows, filters, channels, taps: sizeOf(kernel) }, [x, w], out, push)) {
    return out;
  }
  const cutting = tiling(l.backend, groups, rows, filters, sizeOf(kernel) * channels, false);
  l.emit("conv", [...operands(), out], {
    threads: cutting.shape.threads,
    spec: { ...dtypes, ...tileSpec(cutting), FLIP: flip ? 1 : 0 },
    push,
    workgroups: cutting.workgroups,
  });
  return out;
}
