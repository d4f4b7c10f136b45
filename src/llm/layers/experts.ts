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
import { geluApprox, Module, silu } from "../../nn/mod.ts";
import type { DecoderConfig, ExpertsConfig } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Mlp } from "./mlp.ts";
import { BiasedRouter, chooseExperts, type ExpertChoice, weightedSum } from "./router.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";
import { type Routed, type SwitchLayer, switchLinear } from "./switch_linear.ts";

/** The linear part of a clipped unit is cut at this on both sides, its gate above. */
const CLIP = 7;
/** The slope of its sigmoid. */
const SLOPE = 1.702;

/** Gated linear units: of the gate and of the linear part. */
const UNITS = {
  silu: (gate: Tensor, up: Tensor): Tensor => mx.multiply(silu(gate), up),
  geluTanh: (gate: Tensor, up: Tensor): Tensor => mx.multiply(geluApprox(gate), up),
  clipped(gate: Tensor, up: Tensor): Tensor {
    const cut = mx.minimum(gate, CLIP);
    const open = mx.multiply(cut, mx.sigmoid(mx.multiply(cut, SLOPE)));
    return mx.multiply(open, mx.add(mx.clip(up, -CLIP, CLIP), 1));
  },
} as const;

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
  constructor(
    { hiddenSize }: DecoderConfig,
    experts: Pick<ExpertsConfig, "count" | "size" | "gate" | "biases">,
    weights: Weights,
    path: string,
  ) {
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

/** What has the router in some families. */
class RouterPart extends Module {
  /** (…, hidden) → (…, E) */
  layer: Layer;

  constructor(layer: Layer) {
    super();
    this.layer = layer;
  }

  override forward(x: Tensor): Tensor {
    return this.layer.forward(x);
  }
}

/** A router, the experts, and an expert that all tokens get, if there is one. */
export class Experts extends Module {
  /** The router: (…, hidden) → (…, E). */
  gate?: Layer | BiasedRouter;
  /** The experts. */
  switch_mlp?: SwitchGlu;
  /** The experts, by the name that they have in some families. */
  experts?: SwitchGlu;
  /** The router, or what has it, by the name that it has there. */
  router?: Layer | RouterPart;
  /** Added to the scores of experts where the best ones are chosen: (E,). Not there in families without it. */
  expert_bias?: Tensor;
  /** The expert of all tokens. */
  shared_expert?: Mlp;
  /** How much it counts, before the sigmoid: (…, hidden) → (…, 1). */
  shared_expert_gate?: Layer;
  /** The expert of all tokens, where it counts as a whole. */
  shared_experts?: Mlp;
  readonly #experts: ExpertsConfig;

  /** Takes the modules of these names below `path`. */
  constructor(config: DecoderConfig, experts: ExpertsConfig, weights: Weights, path: string) {
    super();
    const { hiddenSize } = config;
    this.#experts = experts;
    const { router, stack, shared = "shared_expert" } = experts.names;
    if (experts.names.bias) this.gate = new BiasedRouter(hiddenSize, experts.count, weights, `${path}.gate`);
    else {
      const layer = linear(weights, `${path}.${router}`, hiddenSize, experts.count, experts.biases);
      if (router === "router.layer") this.router = new RouterPart(layer);
      else this[router] = layer;
    }
    this[stack] = new SwitchGlu(config, experts, weights, `${path}.${stack}`);
    if (experts.sigmoid?.bias && !experts.names.bias) {
      this.expert_bias = weights.take(`${path}.expert_bias`, [experts.count], "float");
    }
    if (experts.sharedSize === undefined) return;
    this[shared] = new Mlp({ ...config, intermediateSize: experts.sharedSize }, weights, `${path}.${shared}`);
    if (shared === "shared_experts") return;
    this.shared_expert_gate = linear(weights, `${path}.shared_expert_gate`, hiddenSize, 1);
  }

  /** (B, T, hidden) → (B, T, hidden) */
  override forward(x: Tensor): Tensor {
    const choice = this.#choose(x);
    const sum = weightedSum((this.switch_mlp ?? this.experts)!.forward(x, choice.chosen), choice, x.dtype);
    if (this.shared_experts) return mx.add(sum, this.shared_experts.forward(x));
    if (!this.shared_expert) return sum;
    const share = mx.sigmoid(forwardInDtype(this.shared_expert_gate!, x));
    return mx.add(sum, mx.multiply(share, this.shared_expert.forward(x)));
  }

  #choose(x: Tensor): ExpertChoice {
    const router = this.gate ?? this.router!;
    const bias = router instanceof BiasedRouter ? router.e_score_correction_bias : this.expert_bias;
    return chooseExperts(router.forward(x), this.#experts, bias);
  }
}
