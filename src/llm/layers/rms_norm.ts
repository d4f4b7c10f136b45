/**
 * Root mean square normalisation.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Weights } from "../weights.ts";

/** x / rms(x) * weight over the last axis. */
export class RmsNorm {
  readonly #weight: Tensor;
  readonly #eps: number;

  /** Takes `<path>.weight` (size,). */
  constructor(weights: Weights, path: string, size: number, eps: number) {
    this.#weight = weights.take(`${path}.weight`, [size], "float");
    this.#eps = eps;
  }

  /** Keeps shape and dtype. */
  forward(x: Tensor): Tensor {
    return mx.fast.rmsNorm(x, this.#weight, this.#eps).astype(x.dtype);
  }
}
