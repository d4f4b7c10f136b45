/**
 * Transposed convolutions with learned weights.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import type { Spatial, Tensor } from "../array/mod.ts";
import { Convolution, spatial, TRANSPOSED } from "./convolution.ts";
import { pythonTuple } from "./print.ts";

/** The base of transposed convolutions. */
export abstract class TransposedConvolution extends Convolution {
  /** Elements that are added at the end of spatial axes of the result. */
  readonly outputPadding: readonly number[];

  /** Takes settings for a number of spatial axes. */
  constructor(
    axes: number,
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    outputPadding: Spatial = 0,
    bias: boolean = true,
  ) {
    const op = `ConvTranspose${axes}d`;
    const sizes = ([["stride", stride], ["padding", padding], ["dilation", dilation]] as const)
      .map(([name, value]) => spatial(op, name, value, axes));
    super(inChannels, outChannels, spatial(op, "kernelSize", kernelSize, axes), sizes, bias);
    this.outputPadding = spatial(op, "outputPadding", outputPadding, axes);
  }

  /** x (N, …spatial, inChannels) → (N, …spatial, outChannels) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return this.convolve(TRANSPOSED, x, this.outputPadding);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const { outputPadding } = this;
    return this.settings(
      1,
      `output_padding=${pythonTuple(outputPadding.length === 1 ? outputPadding[0] : outputPadding)}, `,
    );
  }
}

/** Transposed convolution along one axis of x (N, L, inChannels). */
export class ConvTranspose1d extends TransposedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding, dilation and output padding, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    outputPadding: Spatial = 0,
    bias: boolean = true,
  ) {
    super(1, inChannels, outChannels, kernelSize, stride, padding, dilation, outputPadding, bias);
  }
}

/** Transposed convolution along two axes of x (N, H, W, inChannels). */
export class ConvTranspose2d extends TransposedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding, dilation and output padding, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    outputPadding: Spatial = 0,
    bias: boolean = true,
  ) {
    super(2, inChannels, outChannels, kernelSize, stride, padding, dilation, outputPadding, bias);
  }
}

/** Transposed convolution along three axes of x (N, D, H, W, inChannels). */
export class ConvTranspose3d extends TransposedConvolution {
  /** Takes the numbers of channels, the size of the kernel, stride, padding, dilation and output padding, and whether there is a bias. */
  constructor(
    inChannels: number,
    outChannels: number,
    kernelSize: Spatial,
    stride: Spatial = 1,
    padding: Spatial = 0,
    dilation: Spatial = 1,
    outputPadding: Spatial = 0,
    bias: boolean = true,
  ) {
    super(3, inChannels, outChannels, kernelSize, stride, padding, dilation, outputPadding, bias);
  }
}
