/**
 * The feed-forward part of a layer, a gated linear unit (arXiv 2002.05202).
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { gelu, geluApprox, Module, silu } from "../../nn/mod.ts";
import { type DecoderConfig, type GateActivation, MODULE_NAMES, type ModuleNames } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { type Sharder, shardLayer } from "./shard.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";

const ACTIVATIONS = {
  silu,
  gelu,
  geluTanh: geluApprox,
} as const satisfies Record<GateActivation, (x: Tensor) => Tensor>;

/** down_proj(activation(gate_proj(x)) * up_proj(x)) */
export class Mlp extends Module {
  /** gate_proj, by the name that it has in some families. */
  w1?: Layer;
  /** up_proj, by the name that it has there. */
  w3?: Layer;
  /** down_proj, by the name that it has there. */
  w2?: Layer;
  /** (…, hidden) → (…, 2 * intermediate), in families that have one matrix for gate_proj and up_proj. */
  gate_up_proj?: Layer;
  /** (…, hidden) → (…, intermediate) */
  gate_proj?: Layer;
  /** (…, intermediate) → (…, hidden) */
  down_proj?: Layer;
  /** (…, hidden) → (…, intermediate) */
  up_proj?: Layer;
  readonly #activation: (x: Tensor) => Tensor;
  readonly #names: ModuleNames;

  /** Takes gate_proj, up_proj (or gate_up_proj) and down_proj below `path`, or those of other names. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    super();
    const { hiddenSize, intermediateSize, activation, mlpBias, names = MODULE_NAMES } = config;
    const { gate, up, down } = names;
    this.#names = names;
    const into = (name: string, outputs: number): Layer =>
      linear(weights, `${path}.${name}`, hiddenSize, outputs, mlpBias);
    if (config.joinedProjections) this.gate_up_proj = into("gate_up_proj", 2 * intermediateSize);
    else this[gate] = into(gate, intermediateSize);
    this[down] = linear(weights, `${path}.${down}`, intermediateSize, hiddenSize, mlpBias);
    if (!config.joinedProjections) this[up] = into(up, intermediateSize);
    this.#activation = ACTIVATIONS[activation];
  }

  /** Leaves this process its part of the features. */
  shard(sharder: Sharder): void {
    const { gate, up, down } = this.#names;
    for (const name of ["gate_up_proj", gate, up] as const) {
      if (!this[name]) continue;
      const segments = name === "gate_up_proj" ? 2 : 1;
      shardLayer(sharder, this[name], "all-to-sharded", (layer) => this[name] = layer, segments);
    }
    shardLayer(sharder, this[down]!, "sharded-to-all", (layer) => this[down] = layer);
  }

  /** (…, hidden) → (…, hidden) */
  override forward(x: Tensor): Tensor {
    const names = this.#names;
    const [gate, up] = this.gate_up_proj
      ? mx.split(forwardInDtype(this.gate_up_proj, x), 2, -1)
      : [forwardInDtype(this[names.gate]!, x), forwardInDtype(this[names.up]!, x)];
    return forwardInDtype(this[names.down]!, mx.multiply(this.#activation(gate), up));
  }
}
