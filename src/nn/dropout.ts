/**
 * Dropout: a part of what passes becomes 0 while a model is trained, the rest is scaled so that the mean stays.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonFloat } from "./print.ts";

/** The common part of the kinds of dropout; they differ in the axes along which elements are dropped together. */
export abstract class DropoutBase extends Module {
  readonly #keep: number;

  /** Takes the part that becomes 0, from 0 to below 1. */
  constructor(p: number = 0.5) {
    super();
    if (!(p >= 0 && p < 1)) throw new mx.ValueError(`${new.target.name} expected p to be in [0, 1): found ${p}`);
    this.#keep = 1 - p;
  }

  /** The shape of the mask for an array. */
  protected abstract maskShape(shape: readonly number[]): number[];

  /** x with some elements 0 and the others scaled while training; x itself otherwise. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const shape = this.maskShape(x.shape);
    const keep = this.#keep;
    if (keep === 1 || !this.training) return x;
    return scoped((): Tensor => mx.multiply(mx.multiply(mx.random.bernoulli(keep, shape), x), 1 / keep));
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `p=${pythonFloat(1 - this.#keep)}`;
  }
}

/**
 * Each element becomes 0 with probability p.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.Dropout(0.5).eval();
 * layer.forward(mx.ones([3])).tolist(); // [1, 1, 1]
 * ```
 */
export class Dropout extends DropoutBase {
  /** A place for each element. */
  protected override maskShape(shape: readonly number[]): number[] {
    return [...shape];
  }
}

/** The shape of an array with 1 along the spatial axes before its channels. */
function perChannel(shape: readonly number[], spatial: number): number[] {
  const channels = shape.length - 1;
  return shape.map((size, axis) => axis < channels && axis >= channels - spatial ? 1 : size);
}

function checkRank(op: string, shape: readonly number[], ranks: readonly number[]): void {
  if (ranks.includes(shape.length)) return;
  throw new mx.ShapeError(`${op} expected ${ranks.join(" or ")} axes: found shape (${shape.join(", ")})`);
}

/** Whole channels become 0: x is (N, H, W, C) or (H, W, C). */
export class Dropout2d extends DropoutBase {
  /** A place for each channel. */
  protected override maskShape(shape: readonly number[]): number[] {
    checkRank("Dropout2d", shape, [3, 4]);
    return perChannel(shape, 2);
  }
}

/** Whole channels become 0: x is (N, D, H, W, C) or (D, H, W, C). */
export class Dropout3d extends DropoutBase {
  /** A place for each channel. */
  protected override maskShape(shape: readonly number[]): number[] {
    checkRank("Dropout3d", shape, [4, 5]);
    return perChannel(shape, 3);
  }
}
