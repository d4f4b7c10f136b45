/**
 * Lion: steps by the sign of a running mean.
 *
 * @module
 */

import { multiply, subtract } from "../ops/binary.ts";
import { zerosLike } from "../ops/creation.ts";
import { astype } from "../ops/movement.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { sign } from "../ops/unary.ts";
import { type Betas, checkBetas, meanOf } from "./adam.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { type Settings, settingsOf } from "./settings.ts";

/** Options of {@link Lion}. */
export interface LionOptions {
  /** The learning rate λ, or its schedule; a third to a tenth of a good one for AdamW. */
  readonly learningRate: LearningRate;
  /** How much of the mean stays in the direction and in the state, β₁ and β₂; 0.9 and 0.99 by default. */
  readonly betas?: Betas;
  /** Share of each parameter that a step takes away, times the learning rate; 0 by default. */
  readonly weightDecay?: number;
}

const DEFAULTS: Required<LionOptions> = { learningRate: undefined!, betas: [0.9, 0.99], weightDecay: 0 };

/** Lion: c = β₁ m + (1 - β₁) g, m ← β₂ m + (1 - β₂) g, w ← w - λ (sign(c) + weightDecay · w). */
export class Lion extends Optimizer {
  /** How much of the mean stays in the direction and in the state. */
  betas: Betas;
  /** Share of each parameter that a step takes away, times the learning rate. */
  weightDecay: number;

  /** Takes {@link LionOptions}, or the learning rate and then the others; betas out of [0, 1) are a ValueError. */
  constructor(...settings: Settings<LionOptions, [betas?: Betas, weightDecay?: number]>) {
    super();
    const s = settingsOf("Lion", DEFAULTS, settings);
    checkBetas("Lion", s.betas);
    this.betas = s.betas;
    this.weightDecay = s.weightDecay;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** m: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.m = zerosLike(parameter);
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const [beta1, beta2] = this.betas;
    const rate = astype(this.learningRate, gradient.dtype);
    const direction = sign(meanOf(state.m, gradient, beta1));
    state.m = meanOf(state.m, gradient, beta2);
    const left = this.weightDecay > 0 ? multiply(subtract(1, multiply(rate, this.weightDecay)), parameter) : parameter;
    return subtract(left, multiply(rate, direction));
  }
}
