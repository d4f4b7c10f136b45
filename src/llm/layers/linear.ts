/**
 * A linear map.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Weights } from "../weights.ts";
import { type Matrix, project, takeMatrix } from "./matrix.ts";

/** A linear map, quantized or not, with or without bias. */
export class Linear {
  readonly #matrix: Matrix;
  readonly #bias: Tensor | undefined;

  /** Takes `<path>.weight` (outputs, inputs), or its codes, scales and biases, and `<path>.bias` (outputs,) where it has one. */
  constructor(weights: Weights, path: string, inputs: number, outputs: number, bias = false) {
    this.#matrix = takeMatrix(weights, path, outputs, inputs);
    this.#bias = bias ? weights.take(`${path}.bias`, [outputs], "float") : undefined;
  }

  /** (…, inputs) → (…, outputs) in the dtype of x. */
  forward(x: Tensor): Tensor {
    const y = project(x, this.#matrix);
    return this.#bias === undefined ? y : mx.add(y, this.#bias).astype(x.dtype);
  }
}
