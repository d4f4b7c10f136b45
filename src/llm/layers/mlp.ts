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
  /** (…, hidden) → (…, 2 * intermediate), in families that have one matrix for gate_proj and up_proj. */
  gate_up_proj?: Layer;
  /** (…, hidden) → (…, intermediate) */
  gate_proj?: Layer;
  /** (…, intermediate) → (…, hidden) */
  down_proj: Layer;
  /** (…, hidden) → (…, intermediate) */
  up_proj?: Layer;
  readonly #activation: (x: Tensor) => Tensor;

  /** Takes gate_proj, up_proj (or gate_up_proj) and down_proj below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    super();
    const { hiddenSize, intermediateSize, activation, mlpBias } = config;
    const into = (name: string, outputs: number): Layer =>
      linear(weights, `${path}.${name}`, hiddenSize, outputs, mlpBias);
    if (config.joinedProjections) this.gate_up_proj = into("gate_up_proj", 2 * intermediateSize);
    else this.gate_proj = into("gate_proj", intermediateSize);
    this.down_proj = linear(weights, `${path}.down_proj`, intermediateSize, hiddenSize, mlpBias);
    if (!config.joinedProjections) this.up_proj = into("up_proj", intermediateSize);
    this.#activation = ACTIVATIONS[activation];
  }

  /** (…, hidden) → (…, hidden) */
  override forward(x: Tensor): Tensor {
    const [gate, up] = this.gate_up_proj
      ? mx.split(forwardInDtype(this.gate_up_proj, x), 2, -1)
      : [forwardInDtype(this.gate_proj!, x), forwardInDtype(this.up_proj!, x)];
    return forwardInDtype(this.down_proj, mx.multiply(this.#activation(gate), up));
  }
}
