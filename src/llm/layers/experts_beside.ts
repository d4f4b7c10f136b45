/**
 * Experts beside the feed-forward part of a layer, as Gemma 4 has them. The router normalises what it reads, and multiplies the weight
 * of an expert by a stored number.
 *
 * Shapes: B batch, T tokens, E experts.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module } from "../../nn/mod.ts";
import type { DecoderConfig, ExpertSizes } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { SwitchGlu } from "./experts.ts";
import { chooseExperts } from "./router.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";

/** A router with a norm and a factor for each expert. */
export class ScaledRouter extends Module {
  /** (…, hidden) → (…, E) */
  proj: Layer;
  /** The weight of the norm, but for its part 1 / sqrt(hidden): (hidden,). */
  scale: Tensor;
  /** The factors of weights: (E,). */
  per_expert_scale: Tensor;
  readonly #chosen: number;
  readonly #eps: number;

  /** Takes proj, scale and per_expert_scale below `path`. */
  constructor(
    { hiddenSize, rmsNormEps }: DecoderConfig,
    { count, chosen }: ExpertSizes,
    weights: Weights,
    path: string,
  ) {
    super();
    this.#chosen = chosen;
    this.#eps = rmsNormEps;
    this.proj = linear(weights, `${path}.proj`, hiddenSize, count);
    this.scale = weights.takeVector(`${path}.scale`, [hiddenSize]);
    this.per_expert_scale = weights.takeVector(`${path}.per_expert_scale`, [count]);
  }

  /** Tokens (B, T, hidden) → their experts. */
  override forward(x: Tensor): Tensor {
    const weight = mx.multiply(this.scale, x.shape[2] ** -0.5);
    const normed = mx.fast.rmsNorm(x, weight, this.#eps).astype(x.dtype);
    const scores = forwardInDtype(this.proj, normed);
    return chooseExperts(scores, { chosen: this.#chosen, among: "chosen" }, { scale: this.per_expert_scale });
  }
}

/** The experts that such a router chooses from. */
export class RoutedExperts extends Module {
  /** Their gated linear units. */
  switch_glu: SwitchGlu;

  /** Takes switch_glu below `path`. */
  constructor(config: DecoderConfig, experts: ExpertSizes, weights: Weights, path: string) {
    super();
    this.switch_glu = new SwitchGlu(config, { ...experts, gate: "geluTanh" }, weights, `${path}.switch_glu`);
  }

  /** Tokens (B, T, hidden) and their experts → (B, T, hidden). */
  override forward(x: Tensor, choice: Tensor): Tensor {
    return this.switch_glu.forward(x, choice);
  }
}
