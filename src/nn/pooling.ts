/**
 * Pooling: the largest or the mean of the elements in windows along spatial axes.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Spatial, Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { spatial } from "./convolution.ts";
import { Module } from "./module.ts";
import { pythonTuple } from "./print.ts";

/** How a window becomes one element, and the padding value beyond the edges. */
interface Pooling {
  readonly reduce: (windows: Tensor, axes: readonly number[]) => Tensor;
  readonly outside: number;
}

const MAX: Pooling = { reduce: (windows, axes) => mx.max(windows, axes), outside: -Infinity };
const MEAN: Pooling = { reduce: (windows, axes) => mx.mean(windows, axes), outside: 0 };

/** Windows of x (N, …spatial, C): (N, …positions, …window, C). */
function windowsOf(x: Tensor, window: readonly number[], stride: readonly number[]): Tensor {
  const { shape } = x;
  const sizes = shape.slice(1, -1);
  const [batch, channels] = [shape[0], shape[shape.length - 1]];
  if (sizes.every((size, i) => window[i] === stride[i] && size % window[i] === 0)) {
    const split = mx.reshape(x, [batch, ...sizes.flatMap((size, i) => [size / window[i], window[i]]), channels]);
    const odd = window.map((_, i) => 2 * i + 1);
    return mx.transpose(split, [0, ...odd, ...odd.map((axis) => axis + 1), 2 * window.length + 1]);
  }
  const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1));
  const inner = steps.slice(1, -1);
  const positions = sizes.map((size, i) => Math.floor((size - window[i]) / stride[i]) + 1);
  return mx.asStrided(
    x,
    [batch, ...positions, ...window, channels],
    [steps[0], ...inner.map((step, i) => step * stride[i]), ...inner, 1],
  );
}

/** The base of all pooling layers. */
export abstract class Pool extends Module {
  readonly #pooling: Pooling;
  readonly #window: readonly number[];
  readonly #stride: readonly number[];
  readonly #padding: readonly number[];

  /** Takes the reduction of windows, and their settings for a number of spatial axes. */
  constructor(
    pooling: Pooling,
    axes: number,
    kernelSize: Spatial,
    stride: Spatial | null = null,
    padding: Spatial = 0,
  ) {
    super();
    const op = new.target.name;
    this.#pooling = pooling;
    this.#window = spatial(op, "kernelSize", kernelSize, axes);
    this.#stride = stride === null ? this.#window : spatial(op, "stride", stride, axes);
    this.#padding = spatial(op, "padding", padding, axes);
    for (const [name, sizes] of [["kernelSize", this.#window], ["stride", this.#stride]] as const) {
      if (sizes.some((size) => size <= 0)) {
        throw new mx.ValueError(`${op} expected ${name} to be positive: found ${sizes}`);
      }
    }
    if (this.#padding.some((size) => size < 0)) {
      throw new mx.ValueError(`${op} expected padding not to be negative: found ${this.#padding}`);
    }
  }

  /** x (N, …spatial, C) → (N, …positions, C) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const axes = this.#window.length;
    const sizes = x.shape.slice(1, -1);
    const fits = sizes.length === axes && sizes.every((size, i) => size + 2 * this.#padding[i] >= this.#window[i]);
    if (!fits) {
      throw new mx.ShapeError(
        `${this.constructor.name} expected (N, …, C) with ${axes} axes between, no smaller than windows of (${
          this.#window.join(", ")
        }): found shape (${x.shape.join(", ")})`,
      );
    }
    return scoped((): Tensor => {
      const width = [[0, 0], ...this.#padding.map((size) => [size, size]), [0, 0]] as [number, number][];
      const padded = this.#padding.some((size) => size > 0) ? mx.pad(x, width, "constant", this.#pooling.outside) : x;
      const windows = windowsOf(padded, this.#window, this.#stride);
      return this.#pooling.reduce(windows, this.#window.map((_, i) => 1 + axes + i));
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `kernel_size=${pythonTuple(this.#window)}, stride=${pythonTuple(this.#stride)}, padding=${
      pythonTuple(this.#padding)
    }`;
  }
}

/**
 * The largest elements of windows along one axis of x (N, L, C).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * new mx.nn.MaxPool1d(2).forward(mx.arange(4).reshape(1, 4, 1)).tolist(); // [[[1], [3]]]
 * ```
 */
export class MaxPool1d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MAX, 1, kernelSize, stride, padding);
  }
}

/** The largest elements of windows along two axes of x (N, H, W, C). */
export class MaxPool2d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MAX, 2, kernelSize, stride, padding);
  }
}

/** The largest elements of windows along three axes of x (N, D, H, W, C). */
export class MaxPool3d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MAX, 3, kernelSize, stride, padding);
  }
}

/** The means of windows along one axis of x (N, L, C), zeros of the padding included. */
export class AvgPool1d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MEAN, 1, kernelSize, stride, padding);
  }
}

/** The means of windows along two axes of x (N, H, W, C), zeros of the padding included. */
export class AvgPool2d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MEAN, 2, kernelSize, stride, padding);
  }
}

/** The means of windows along three axes of x (N, D, H, W, C), zeros of the padding included. */
export class AvgPool3d extends Pool {
  /** Takes the size of windows, their stride (default the size), and the padding. */
  constructor(kernelSize: Spatial, stride: Spatial | null = null, padding: Spatial = 0) {
    super(MEAN, 3, kernelSize, stride, padding);
  }
}
