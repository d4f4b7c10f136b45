/**
 * The feed-forward part of a layer, a gated linear unit (arXiv 2002.05202).
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Activation, DecoderConfig } from "../config/decoder.ts";
import type { Weights } from "../weights.ts";
import { Linear } from "./linear.ts";

const ACTIVATIONS = {
  silu: mx.nn.silu,
  gelu: mx.nn.gelu,
  geluTanh: mx.nn.geluApprox,
} as const satisfies Record<Activation, (x: Tensor) => Tensor>;

/** down(activation(gate(x)) * up(x)) */
export class Mlp {
  readonly #gate: Linear;
  readonly #up: Linear;
  readonly #down: Linear;
  readonly #activation: (x: Tensor) => Tensor;

  /** Takes gate_proj, up_proj and down_proj below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    const { hiddenSize, intermediateSize, activation, mlpBias } = config;
    this.#gate = new Linear(weights, `${path}.gate_proj`, hiddenSize, intermediateSize, mlpBias);
    this.#up = new Linear(weights, `${path}.up_proj`, hiddenSize, intermediateSize, mlpBias);
    this.#down = new Linear(weights, `${path}.down_proj`, intermediateSize, hiddenSize, mlpBias);
    this.#activation = ACTIVATIONS[activation];
  }

  /** (…, hidden) → (…, hidden) */
  forward(x: Tensor): Tensor {
    return this.#down.forward(mx.multiply(this.#activation(this.#gate.forward(x)), this.#up.forward(x)));
  }
}
