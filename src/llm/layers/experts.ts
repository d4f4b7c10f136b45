/**
 * A feed-forward part of experts (arXiv 1701.06538): a router chooses a few of them for each token, and adds what they say by weight.
 * As in mlx-lm's SwitchGLU, products choose their matrices by index, and rows of many tokens are sorted by expert. These are fused functions:
 * the choice, then units and their sum of few tokens (src/array/quantized/experts.ts), or all of it at once (sorted_experts.ts).
 *
 * Shapes: B batch, T tokens, E experts, k experts that a token gets.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import {
  type ExpertMatrices,
  expertSum,
  expertUnits,
  type RoutedRows,
  sortsExperts,
} from "../../array/quantized/experts.ts";
import { expertMixture, sortedMixture } from "../../array/quantized/sorted_experts.ts";
import type { ExpertUnit } from "../../graph/experts.ts";
import { Module } from "../../nn/mod.ts";
import type { DecoderConfig, ExpertsConfig } from "../config/decoder.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Mlp } from "./mlp.ts";
import { BiasedRouter, chooseExperts } from "./router.ts";
import { forwardInDtype, type Layer, linear } from "./stored.ts";
import { matricesOf, type SwitchLayer, switchLinear } from "./switch_linear.ts";

/** The gated linear units of all experts. */
export class SwitchGlu extends Module {
  /** (…, 1, hidden) → (…, 1, size) */
  gate_proj: SwitchLayer;
  /** (…, 1, hidden) → (…, 1, size) */
  up_proj: SwitchLayer;
  /** (…, 1, size) → (…, 1, hidden) */
  down_proj: SwitchLayer;

  readonly #unit: ExpertUnit;
  readonly #count: number;

  /** Takes gate_proj, up_proj and down_proj below `path`. */
  constructor(
    { hiddenSize }: DecoderConfig,
    experts: Pick<ExpertsConfig, "count" | "size" | "gate" | "biases">,
    weights: Weights,
    path: string,
  ) {
    super();
    const { count, size, gate = "silu", biases = false } = experts;
    this.#unit = gate;
    this.#count = count;
    const layer = (name: string, inputs: number, outputs: number): SwitchLayer =>
      switchLinear(weights, `${path}.${name}`, count, inputs, outputs, biases);
    this.gate_proj = layer("gate_proj", hiddenSize, size);
    this.up_proj = layer("up_proj", hiddenSize, size);
    this.down_proj = layer("down_proj", size, hiddenSize);
  }

  /** Tokens (…, hidden) and {@link chooseExperts}' choice for them → the sum of what the experts make of each, (…, hidden). */
  override forward(x: Tensor, choice: Tensor): Tensor {
    const rows = x.shape.length === 2 ? x : x.reshape(-1, x.shape.at(-1)!);
    const sums = this.#fused(rows, choice) ?? this.#sorted(rows, choice);
    return sums.reshape(...x.shape);
  }

  /** The sum in fused functions; undefined if the matrices are not alike, or others are in their place. */
  #fused(rows: Tensor, choice: Tensor): Tensor | undefined {
    const [gate, up, down] = [this.gate_proj, this.up_proj, this.down_proj].map(matricesOf);
    if (!gate || !up || !down || !alike(gate, up)) return undefined;
    if (!sortsExperts(choice, this.#count)) {
      return expertSum(expertUnits(rows, choice, gate, up, this.#unit), choice, down);
    }
    return alike(gate, down) ? expertMixture(rows, choice, { gate, up, down }, this.#unit) : undefined;
  }

  /** The sum op by op. */
  #sorted(rows: Tensor, choice: Tensor): Tensor {
    const [gate, up, down] = [this.gate_proj, this.up_proj, this.down_proj]
      .map((layer) => (routed: RoutedRows): Tensor => layer.forward(routed));
    return sortedMixture(rows, choice, this.#count, { gate, up, down }, this.#unit);
  }
}

/** Whether one kernel may read either stack. */
function alike(a: ExpertMatrices, b: ExpertMatrices): boolean {
  const of = ({ weight, scales, format, bias }: ExpertMatrices): string =>
    JSON.stringify([weight.dtype.name, scales?.dtype.name, format, bias?.dtype.name]);
  return of(a) === of(b);
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
    const rows = x.reshape(-1, x.shape[2]); // one array for the router and the experts: it is converted once
    const sum = (this.switch_mlp ?? this.experts)!.forward(rows, this.#choose(rows)).reshape(...x.shape);
    if (this.shared_experts) return mx.add(sum, this.shared_experts.forward(x));
    if (!this.shared_expert) return sum;
    const share = mx.sigmoid(forwardInDtype(this.shared_expert_gate!, x));
    return mx.add(sum, mx.multiply(share, this.shared_expert.forward(x)));
  }

  #choose(x: Tensor): Tensor {
    const router = this.gate ?? this.router!;
    const bias = router instanceof BiasedRouter ? router.e_score_correction_bias : this.expert_bias;
    return chooseExperts(router.forward(x), this.#experts, { bias });
  }
}
