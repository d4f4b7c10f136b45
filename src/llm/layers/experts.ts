/**
 * A feed-forward part of experts (arXiv 1701.06538): a router chooses a few of them for each token, and adds what they say by weight.
 * As mlx-lm's SwitchGLU, products choose their matrices by index, and rows of many tokens are sorted by expert.
 *
 * Shapes: B batch, T tokens, E experts, k experts that a token gets.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Module, silu } from "../../nn/mod.ts";
import type { DecoderConfig, ExpertsConfig, SigmoidScores } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Mlp } from "./mlp.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";
import { type Routed, type SwitchLayer, switchLinear } from "./switch_linear.ts";

/** The linear part of a clipped unit is cut at this on both sides, its gate above. */
const CLIP = 7;
/** The slope of its sigmoid. */
const SLOPE = 1.702;

/** Gated linear units: of the gate and of the linear part. */
const UNITS = {
  silu: (gate: Tensor, up: Tensor): Tensor => mx.multiply(silu(gate), up),
  clipped(gate: Tensor, up: Tensor): Tensor {
    const cut = mx.minimum(gate, CLIP);
    const open = mx.multiply(cut, mx.sigmoid(mx.multiply(cut, SLOPE)));
    return mx.multiply(open, mx.add(mx.clip(up, -CLIP, CLIP), 1));
  },
} as const;

/** Added to the sum of the sigmoids by which weights are divided. */
const SUM_EPS = 1e-6;

/** Rows from which on they are sorted, so that those of an expert follow each other. */
const MIN_SORTED = 64;

/** The gated linear units of all experts. */
export class SwitchGlu extends Module {
  /** (…, 1, hidden) → (…, 1, size) */
  gate_proj: SwitchLayer;
  /** (…, 1, hidden) → (…, 1, size) */
  up_proj: SwitchLayer;
  /** (…, 1, size) → (…, 1, hidden) */
  down_proj: SwitchLayer;

  readonly #unit: (gate: Tensor, up: Tensor) => Tensor;

  /** Takes gate_proj, up_proj and down_proj below `path`. */
  constructor({ hiddenSize }: DecoderConfig, experts: ExpertsConfig, weights: Weights, path: string) {
    super();
    const { count, size, gate = "silu", biases = false } = experts;
    this.#unit = UNITS[gate];
    const layer = (name: string, inputs: number, outputs: number): SwitchLayer =>
      switchLinear(weights, `${path}.${name}`, count, inputs, outputs, biases);
    this.gate_proj = layer("gate_proj", hiddenSize, size);
    this.up_proj = layer("up_proj", hiddenSize, size);
    this.down_proj = layer("down_proj", size, hiddenSize);
  }

  /** Tokens (B, T, hidden) and the experts of each, uint32 (B, T, k) → what each expert makes of them, (B, T, k, hidden). */
  override forward(x: Tensor, chosen: Tensor): Tensor {
    const [B, T, hidden] = x.shape;
    const k = chosen.shape[2];
    if (B * T * k < MIN_SORTED) {
      return this.#each({ x: x.reshape(B, T, 1, 1, hidden), indices: chosen, sorted: false }).reshape(B, T, k, hidden);
    }
    const indices = chosen.reshape(-1);
    const order = mx.argsort(indices);
    const rows = mx.take(x.reshape(B * T, 1, hidden), mx.floorDivide(order, k), 0);
    const y = this.#each({ x: rows, indices: mx.take(indices, order), sorted: true });
    return mx.take(y, mx.argsort(order), 0).reshape(B, T, k, hidden);
  }

  #each(routed: Routed): Tensor {
    const x = this.#unit(this.gate_proj.forward(routed), this.up_proj.forward(routed));
    return this.down_proj.forward({ ...routed, x });
  }
}

/** The experts of each token and their weights, by scores from 0 to 1. A `bias` counts for the choice alone. */
function weighed(
  scores: Tensor,
  best: (of: Tensor) => Tensor,
  { normalized, factor }: SigmoidScores,
  bias: Tensor | undefined,
): { readonly chosen: Tensor; readonly weights: Tensor } {
  const chosen = best(bias ? mx.add(scores, bias.astype(mx.float32)) : scores);
  const own = mx.takeAlongAxis(scores, chosen, -1);
  const weights = normalized ? mx.divide(own, mx.add(mx.sum(own, -1, true), SUM_EPS)) : own;
  return { chosen, weights: mx.multiply(weights, factor) };
}

/** A router, the experts, and an expert that all tokens get, if there is one. */
export class Experts extends Module {
  /** The router: (…, hidden) → (…, E). */
  gate?: Layer;
  /** The experts. */
  switch_mlp?: SwitchGlu;
  /** The experts, by the name that they have in some families. */
  experts?: SwitchGlu;
  /** The router, by the name that it has there. */
  router?: Layer;
  /** Added to the scores of experts where the best ones are chosen: (E,). Not there in families without it. */
  expert_bias?: Tensor;
  /** The expert of all tokens. */
  shared_expert?: Mlp;
  /** How much it counts, before the sigmoid: (…, hidden) → (…, 1). */
  shared_expert_gate?: Layer;
  readonly #experts: ExpertsConfig;

  /** Takes the modules of these names below `path`. */
  constructor(config: DecoderConfig, experts: ExpertsConfig, weights: Weights, path: string) {
    super();
    const { hiddenSize } = config;
    this.#experts = experts;
    const { router, stack } = experts.names;
    this[router] = linear(weights, `${path}.${router}`, hiddenSize, experts.count, experts.biases);
    this[stack] = new SwitchGlu(config, experts, weights, `${path}.${stack}`);
    if (experts.sigmoid?.bias) this.expert_bias = weights.take(`${path}.expert_bias`, [experts.count], "float");
    if (experts.sharedSize === undefined) return;
    this.shared_expert = new Mlp(
      { ...config, intermediateSize: experts.sharedSize },
      weights,
      `${path}.shared_expert`,
    );
    this.shared_expert_gate = linear(weights, `${path}.shared_expert_gate`, hiddenSize, 1);
  }

  /** (B, T, hidden) → (B, T, hidden) */
  override forward(x: Tensor): Tensor {
    const { chosen, weights } = this.#routed(x);
    const each = (this.switch_mlp ?? this.experts)!.forward(x, chosen);
    const y = mx.multiply(each, mx.expandDims(weights, -1));
    const sum = mx.sum(y, -2).astype(x.dtype);
    if (!this.shared_expert) return sum;
    const share = mx.sigmoid(forwardInDtype(this.shared_expert_gate!, x));
    return mx.add(sum, mx.multiply(share, this.shared_expert.forward(x)));
  }

  /** The experts of each token, uint32 (B, T, k), and their weights, float32. Probabilities are float32 whatever x is. */
  #routed(x: Tensor): { readonly chosen: Tensor; readonly weights: Tensor } {
    const { chosen: k, among, sigmoid } = this.#experts;
    const scores = (this.gate ?? this.router)!.forward(x).astype(mx.float32);
    const best = (of: Tensor): Tensor =>
      mx.stopGradient(mx.argpartition(mx.negative(of), k - 1, -1).index("...", mx.Slice(0, k)));
    if (sigmoid) return weighed(mx.sigmoid(scores), best, sigmoid, this.expert_bias);
    const chosen = best(scores);
    const probable = among === "all" ? mx.softmax(scores, -1) : scores;
    const weights = mx.takeAlongAxis(probable, chosen, -1);
    return { chosen, weights: among === "all" ? weights : mx.softmax(weights, -1) };
  }
}
