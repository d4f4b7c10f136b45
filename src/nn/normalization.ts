/**
 * Normalization: mean and variance of groups of elements become 0 and 1.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonBool, pythonFloat } from "./print.ts";

const { ShapeError, ValueError } = mx;

function checkEps(op: string, eps: number): number {
  if (eps > 0) return eps;
  throw new ValueError(`${op} expected eps to be positive: found ${eps}`);
}

/** weight * x + bias, if there are such. */
function scaled(x: Tensor, weight: Tensor | undefined, bias: Tensor | undefined): Tensor {
  const y = weight ? mx.multiply(weight, x) : x;
  return bias ? mx.add(y, bias) : y;
}

/** Each row along the last axis by itself, scaled and moved by learned vectors. */
export class LayerNorm extends Module {
  /** (dims,); not there unless affine. */
  weight?: Tensor;
  /** (dims,); not there unless affine and with a bias. */
  bias?: Tensor;
  /** Added to the variance. */
  readonly eps: number;
  /** Size of the last axis. */
  readonly dims: number;

  /** Takes the size of the last axis, the epsilon of the variance, and whether there are a weight and a bias. */
  constructor(dims: number, eps: number = 1e-5, affine: boolean = true, bias: boolean = true) {
    super();
    this.eps = checkEps("LayerNorm", eps);
    this.dims = dims;
    if (affine) this.weight = mx.ones([dims]);
    if (affine && bias) this.bias = mx.zeros([dims]);
  }

  /** x (…, dims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return mx.fast.layerNorm(x, this.weight ?? null, this.bias ?? null, this.eps);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.dims}, eps=${pythonFloat(this.eps)}, affine=${pythonBool(this.weight !== undefined)}`;
  }
}

/**
 * Each row along the last axis divided by the root of the mean of its squares, and scaled by a learned vector.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * new mx.nn.RMSNorm(2).forward(mx.array([[3, 3]])).tolist(); // [[1, 1]], but for eps
 * ```
 */
export class RMSNorm extends Module {
  /** (dims,) */
  weight: Tensor;
  /** Added to the mean of the squares. */
  readonly eps: number;

  /** Takes the size of the last axis, or the weight, and the epsilon of the mean square. */
  constructor(dims: number | { readonly weight: Tensor }, eps: number = 1e-5) {
    super();
    this.eps = checkEps("RMSNorm", eps);
    this.weight = typeof dims === "number" ? mx.ones([dims]) : dims.weight;
  }

  /** x (…, dims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return mx.fast.rmsNorm(x, this.weight, this.eps);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.weight.shape[0]}, eps=${pythonFloat(this.eps)}`;
  }
}

/** Each channel of each example by itself: x is (N, …, C). */
export class InstanceNorm extends Module {
  /** (dims,); not there unless affine. */
  weight?: Tensor;
  /** (dims,); not there unless affine. */
  bias?: Tensor;
  /** Number of channels. */
  readonly dims: number;
  /** Added to the variance. */
  readonly eps: number;

  /** Takes the number of channels, the epsilon of the variance, and whether there are a weight and a bias. */
  constructor(dims: number, eps: number = 1e-5, affine: boolean = false) {
    super();
    this.eps = checkEps("InstanceNorm", eps);
    this.dims = dims;
    if (affine) {
      this.weight = mx.ones([dims]);
      this.bias = mx.zeros([dims]);
    }
  }

  /** x (N, …, dims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { shape } = x;
    if (shape.length < 3) {
      throw new ShapeError(`InstanceNorm expected at least 3 axes (N, …, C): found shape (${shape.join(", ")})`);
    }
    return scoped((): Tensor => {
      const rows = mx.moveaxis(x, -1, 1);
      const flat = mx.reshape(rows, [shape[0], shape[shape.length - 1], -1]);
      const normal = mx.reshape(mx.fast.layerNorm(flat, null, null, this.eps), rows.shape);
      return scaled(mx.moveaxis(normal, 1, -1), this.weight, this.bias);
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.dims}, eps=${pythonFloat(this.eps)}, affine=${pythonBool(this.weight !== undefined)}`;
  }
}

/**
 * Channels in groups, each group of each example by itself: x is (N, …, C). A group is every `numGroups`-th channel, or with
 * `pytorchCompatible` neighbouring ones.
 */
export class GroupNorm extends Module {
  /** (dims,); not there unless affine. */
  bias?: Tensor;
  /** (dims,); not there unless affine. */
  weight?: Tensor;
  /** Number of groups. */
  readonly numGroups: number;
  /** Number of channels. */
  readonly dims: number;
  /** Added to the variance. */
  readonly eps: number;
  /** Whether the channels of a group are neighbours. */
  readonly pytorchCompatible: boolean;

  /** Takes the numbers of groups and channels, the epsilon of the variance, and whether there are a weight and a bias. */
  constructor(
    numGroups: number,
    dims: number,
    eps: number = 1e-5,
    affine: boolean = true,
    pytorchCompatible: boolean = false,
  ) {
    super();
    this.eps = checkEps("GroupNorm", eps);
    for (const [name, value] of [["numGroups", numGroups], ["dims", dims]] as const) {
      if (value <= 0) throw new ValueError(`GroupNorm expected ${name} to be positive: found ${value}`);
    }
    if (dims % numGroups !== 0) {
      throw new ValueError(`GroupNorm expected dims to be divisible by numGroups: found ${dims} and ${numGroups}`);
    }
    this.numGroups = numGroups;
    this.dims = dims;
    this.pytorchCompatible = pytorchCompatible;
    if (affine) {
      this.bias = mx.zeros([dims]);
      this.weight = mx.ones([dims]);
    }
  }

  /** x (N, …, dims) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return scoped((): Tensor => {
      const normal = this.pytorchCompatible ? this.#neighbours(x) : this.#strided(x);
      return scaled(normal, this.weight, this.bias);
    });
  }

  #neighbours(x: Tensor): Tensor {
    const [batch, groups, size] = [x.shape[0], this.numGroups, this.dims / this.numGroups];
    const split = mx.transpose(mx.reshape(x, [batch, -1, groups, size]), [0, 2, 1, 3]);
    const normal = mx.fast.layerNorm(mx.reshape(split, [batch, groups, -1]), null, null, this.eps);
    return mx.reshape(mx.transpose(mx.reshape(normal, split.shape), [0, 2, 1, 3]), x.shape);
  }

  #strided(x: Tensor): Tensor {
    const split = mx.reshape(x, [x.shape[0], -1, this.numGroups]);
    const centered = mx.subtract(split, mx.mean(split, 1, true));
    const scale = mx.rsqrt(mx.add(mx.variance(split, 1, true), this.eps));
    return mx.reshape(mx.multiply(centered, scale), x.shape);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.numGroups}, ${this.dims}, eps=${pythonFloat(this.eps)}, affine=${
      pythonBool(this.weight !== undefined)
    }, pytorch_compatible=${pythonBool(this.pytorchCompatible)}`;
  }
}

/**
 * Each channel over all examples: x is (N, C), (N, L, C) or (N, H, W, C). While training, mean and variance are those of x and flow
 * into running ones, which are used otherwise. Those are never trained; evaluate them with the loss, as `mx.eval(loss,
 * model.parameters())` does, or what they are computed of grows from step to step.
 */
export class BatchNorm extends Module {
  /** (numFeatures,); not there unless affine. */
  weight?: Tensor;
  /** (numFeatures,); not there unless affine. */
  bias?: Tensor;
  /** (numFeatures,); not there unless tracked. */
  runningMean?: Tensor;
  /** (numFeatures,); not there unless tracked. */
  runningVar?: Tensor;
  /** Number of channels. */
  readonly numFeatures: number;
  /** Added to the variance. */
  readonly eps: number;
  /** Part that new means and variances have in the running ones. */
  readonly momentum: number;
  /** Whether there are running means and variances. */
  readonly trackRunningStats: boolean;

  /** Takes the number of channels, the epsilon of the variance, the momentum, whether it is affine, and whether it tracks statistics. */
  constructor(
    numFeatures: number,
    eps: number = 1e-5,
    momentum: number = 0.1,
    affine: boolean = true,
    trackRunningStats: boolean = true,
  ) {
    super();
    this.eps = checkEps("BatchNorm", eps);
    this.numFeatures = numFeatures;
    this.momentum = momentum;
    this.trackRunningStats = trackRunningStats;
    if (affine) {
      this.weight = mx.ones([numFeatures]);
      this.bias = mx.zeros([numFeatures]);
    }
    if (trackRunningStats) {
      this.runningMean = mx.zeros([numFeatures]);
      this.runningVar = mx.ones([numFeatures]);
      this.keepFrozen();
    }
  }

  /** Running means and variances are not trained. */
  protected override keepFrozen(): void {
    this.freeze({ recurse: false, keys: ["runningMean", "runningVar"] });
  }

  /** x (N, …, numFeatures) of 2, 3 or 4 axes */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const { shape } = x;
    if (shape.length < 2 || shape.length > 4) {
      throw new ShapeError(`BatchNorm expected 2, 3 or 4 axes: found shape (${shape.join(", ")})`);
    }
    const axes = shape.slice(0, -1).map((_, axis) => axis);
    if (this.training) {
      if (axes.reduce((count, axis) => count * shape[axis], 1) === 1) {
        throw new ValueError(
          `BatchNorm expected several values for each channel while training: found shape (${shape.join(", ")})`,
        );
      }
      this.#track(x, axes);
    }
    return scoped((): Tensor => {
      const running = !this.training && this.trackRunningStats;
      const mean = running ? this.runningMean! : mx.mean(x, axes);
      const variance = running ? this.runningVar! : mx.variance(x, axes);
      const normal = mx.multiply(mx.subtract(x, mean), mx.rsqrt(mx.add(variance, this.eps)));
      return scaled(normal, this.weight, this.bias);
    });
  }

  /** Lets mean and variance of x flow into the running ones. */
  #track(x: Tensor, axes: readonly number[]): void {
    const { runningMean, runningVar, momentum } = this;
    if (runningMean === undefined || runningVar === undefined) return;
    const flow = (old: Tensor, now: Tensor): Tensor =>
      mx.add(mx.multiply(old, 1 - momentum), mx.multiply(now, momentum));
    [this.runningMean, this.runningVar] = scoped((): [Tensor, Tensor] => [
      flow(runningMean, mx.mean(x, axes)),
      flow(runningVar, mx.variance(x, axes, false, 1)),
    ]);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `${this.numFeatures}, eps=${pythonFloat(this.eps)}, momentum=${pythonFloat(this.momentum)}, affine=${
      pythonBool(this.weight !== undefined)
    }, track_running_stats=${pythonBool(this.trackRunningStats)}`;
  }
}
