/**
 * Convolutions with learned weights; channels are the last axis, as everywhere in MLX.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Spatial, Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonBool, pythonTuple } from "./print.ts";

/** The arguments of a convolution function, without the last one. */
type Convolve = (
  x: Tensor,
  weight: Tensor,
  stride: Spatial,
  padding: Spatial,
  dilation: Spatial,
  last: number | Spatial,
) => Tensor;

/** The functions by the number of spatial axes; the last argument is the number of groups. */
export const FORWARD: readonly Convolve[] = [
  (x, w, s, p, d, groups) => mx.conv1d(x, w, s, p, d, groups as number),
  (x, w, s, p, d, groups) => mx.conv2d(x, w, s, p, d, groups as number),
  (x, w, s, p, d, groups) => mx.conv3d(x, w, s, p, d, groups as number),
];

/** The functions of transposed convolutions; the last argument is the padding of the output. */
export const TRANSPOSED: readonly Convolve[] = [mx.convTranspose1d, mx.convTranspose2d, mx.convTranspose3d];

/** Sizes along spatial axes: one for each, or one for all. */
export function spatial(op: string, name: string, value: Spatial, axes: number): number[] {
  const list = typeof value === "number" ? new Array<number>(axes).fill(value) : [...value];
  if (list.length === axes && list.every(Number.isInteger)) return list;
  throw new mx.ValueError(`${op} expected ${name} to be a whole number or a list of ${axes}: found ${String(value)}`);
}

/** The base of all convolutions. */
export abstract class Convolution extends Module {
  /** (outChannels, …kernelSize, inChannels / groups) */
  weight: Tensor;
  /** (outChannels,); not there without a bias. */
  bias?: Tensor;
  /** Steps of the kernel along spatial axes. */
  readonly stride: readonly number[];
  /** Zeros on both sides of spatial axes. */
  readonly padding: readonly number[];
  /** Steps between elements of the kernel. */
  readonly dilation: readonly number[];

  /** Draws weights uniformly within 1 / sqrt(inChannels / groups * elements of the kernel); biases are 0. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernel: readonly number[],
    [stride, padding, dilation]: readonly (readonly number[])[],
    bias: boolean,
  ) {
    super();
    const scale = Math.sqrt(1 / kernel.reduce((product, size) => product * size, inChannels));
    this.weight = mx.random.uniform(-scale, scale, [outChannels, ...kernel, inChannels]);
    if (bias) this.bias = mx.zeros([outChannels]);
    this.stride = stride;
    this.padding = padding;
    this.dilation = dilation;
  }

  /** Applies a convolution function and adds the bias. */
  protected convolve(functions: readonly Convolve[], x: Tensor, last: number | Spatial): Tensor {
    const { weight, bias, stride, padding, dilation } = this;
    return scoped((): Tensor => {
      const y = functions[stride.length - 1](x, weight, stride, padding, dilation, last);
      return bias ? mx.add(y, bias) : y;
    });
  }

  /** The settings as MLX prints them, with those of the class between. */
  protected settings(groups: number, own: string): string {
    const { shape } = this.weight;
    // Along one axis MLX keeps the arguments as given, and the dilation always; the rest become tuples.
    const flat = this.stride.length === 1;
    const show = (sizes: readonly number[]): string => pythonTuple(flat ? sizes[0] : sizes);
    const same = this.dilation.every((size) => size === this.dilation[0]);
    const dilation = same ? String(this.dilation[0]) : pythonTuple(this.dilation);
    return `${shape[shape.length - 1] * groups}, ${shape[0]}, kernel_size=${show(shape.slice(1, -1))}, ` +
      `stride=${show(this.stride)}, padding=${show(this.padding)}, dilation=${dilation}, ${own}` +
      `bias=${pythonBool(this.bias !== undefined)}`;
  }
}

/** The common part of the convolutions that are not transposed. */
export abstract class GroupedConvolution extends Convolution {
  /** Groups of channels that are convolved each by itself. */
  readonly groups: number;

  /** Takes settings for a number of spatial axes. */
  constructor(
    axes: number,
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    groups: number = 1,
    bias: boolean = true,
  ) {
    const op = `Conv${axes}d`;
    if (inChannels % groups !== 0) {
      throw new mx.ValueError(`${op} expected inChannels to be divisible by groups: found ${inChannels} and ${groups}`);
    }
    const sizes = ([["stride", stride], ["padding", padding], ["dilation", dilation]] as const)
      .map(([name, value]) => spatial(op, name, value, axes));
    super(inChannels / groups, outChannels, spatial(op, "kernelSize", kernelSize, axes), sizes, bias);
    this.groups = groups;
  }

  /** x (N, …spatial, inChannels) → (N, …spatial, outChannels) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return this.convolve(FORWARD, x, this.groups);
  }
}

/**
 * Convolution along one axis of x (N, L, inChannels).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.Conv1d(4, 8, 3, 1, 1);
 * layer.forward(mx.ones([2, 10, 4])).shape; // [2, 10, 8]
 * ```
 */
export class Conv1d extends GroupedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding, dilation and groups, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    groups: number = 1,
    bias: boolean = true,
  ) {
    super(1, inChannels, outChannels, kernelSize, stride, padding, dilation, groups, bias);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.settings(this.groups, `groups=${this.groups}, `);
  }
}

/** Convolution along two axes of x (N, H, W, inChannels). */
export class Conv2d extends GroupedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding, dilation and groups, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    groups: number = 1,
    bias: boolean = true,
  ) {
    super(2, inChannels, outChannels, kernelSize, stride, padding, dilation, groups, bias);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.settings(this.groups, `groups=${this.groups}, `);
  }
}

/** Convolution along three axes of x (N, D, H, W, inChannels). */
export class Conv3d extends GroupedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding and dilation, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    bias: boolean = true,
  ) {
    super(3, inChannels, outChannels, kernelSize, stride, padding, dilation, 1, bias);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return this.settings(1, "");
  }
}
