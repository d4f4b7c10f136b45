/**
 * The feed-forward part of a layer, a gated linear unit (arXiv 2002.05202).
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { gelu, geluApprox, Module, silu } from "../../nn/mod.ts";
import type { DecoderConfig, GateActivation } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";

const ACTIVATIONS = {
  silu,
  gelu,
  geluTanh: geluApprox,
} as const satisfies Record<GateActivation, (x: Tensor) => Tensor>;

/** down_proj(activation(gate_proj(x)) * up_proj(x)) */
export class Mlp extends Module {
  /** (…, hidden) → (…, intermediate) */
  gate_proj: Layer;
  /** (…, intermediate) → (…, hidden) */
  down_proj: Layer;
  /** (…, hidden) → (…, intermediate) */
  up_proj: Layer;
  readonly #activation: (x: Tensor) => Tensor;

  /** Takes gate_proj, up_proj and down_proj below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    super();
    const { hiddenSize, intermediateSize, activation, mlpBias } = config;
    this.gate_proj = linear(weights, `${path}.gate_proj`, hiddenSize, intermediateSize, mlpBias);
    this.down_proj = linear(weights, `${path}.down_proj`, intermediateSize, hiddenSize, mlpBias);
    this.up_proj = linear(weights, `${path}.up_proj`, hiddenSize, intermediateSize, mlpBias);
    this.#activation = ACTIVATIONS[activation];
  }

  /** (…, hidden) → (…, hidden) */
  override forward(x: Tensor): Tensor {
    const gate = this.#activation(forwardInDtype(this.gate_proj, x));
    return forwardInDtype(this.down_proj, mx.multiply(gate, forwardInDtype(this.up_proj, x)));
  }
}
