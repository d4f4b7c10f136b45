/**
 * Learning rates that adapt to all gradients so far: Adagrad, AdaDelta.
 *
 * @module
 */

import { add, divide, multiply, subtract } from "../ops/binary.ts";
import { zerosLike } from "../ops/creation.ts";
import { astype } from "../ops/movement.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { sqrt, square } from "../ops/unary.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { checkRange, type Settings, settingsOf } from "./settings.ts";

/** Options of {@link Adagrad}. */
export interface AdagradOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** Added to the root, ε; 1e-8 by default. */
  readonly eps?: number;
}

const ADAGRAD_DEFAULTS: Required<AdagradOptions> = { learningRate: undefined!, eps: 1e-8 };

/** Adagrad: v ← v + g², w ← w - λ g / (√v + ε). */
export class Adagrad extends Optimizer {
  /** Added to the root, ε. */
  eps: number;

  /** Takes {@link AdagradOptions}, or the learning rate and then the other; an eps of 0 is a ValueError. */
  constructor(...settings: Settings<AdagradOptions, [eps?: number]>) {
    super();
    const s = settingsOf("Adagrad", ADAGRAD_DEFAULTS, settings);
    checkRange("Adagrad", "eps", s.eps, s.eps > 0, ">0");
    this.eps = s.eps;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** v: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.v = zerosLike(parameter);
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const rate = astype(this.learningRate, gradient.dtype);
    state.v = add(state.v, square(gradient));
    return subtract(parameter, divide(multiply(rate, gradient), add(sqrt(state.v), this.eps)));
  }
}

/** Options of {@link AdaDelta}. */
export interface AdaDeltaOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** How much of the means stays, ρ; 0.9 by default. */
  readonly rho?: number;
  /** Added under the roots, ε; 1e-6 by default. */
  readonly eps?: number;
}

const ADADELTA_DEFAULTS: Required<AdaDeltaOptions> = { learningRate: undefined!, rho: 0.9, eps: 1e-6 };

/** AdaDelta: v ← ρ v + (1 - ρ) g², d = √(u + ε) / √(v + ε) g, u ← ρ u + (1 - ρ) d², w ← w - λ d. */
export class AdaDelta extends Optimizer {
  /** How much of the means stays, ρ. */
  rho: number;
  /** Added under the roots, ε. */
  eps: number;

  /** Takes {@link AdaDeltaOptions}, or the learning rate and then the others; a negative rho or an eps of 0 is a ValueError. */
  constructor(...settings: Settings<AdaDeltaOptions, [rho?: number, eps?: number]>) {
    super();
    const s = settingsOf("AdaDelta", ADADELTA_DEFAULTS, settings);
    checkRange("AdaDelta", "rho", s.rho, s.rho >= 0, ">=0");
    checkRange("AdaDelta", "eps", s.eps, s.eps > 0, ">0");
    this.rho = s.rho;
    this.eps = s.eps;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** v and u: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.v = zerosLike(parameter);
    state.u = zerosLike(parameter);
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const { rho, eps } = this;
    const rate = astype(this.learningRate, gradient.dtype);
    const mean = (old: AnyTensor, x: AnyTensor): AnyTensor => add(multiply(old, rho), multiply(square(x), 1 - rho));
    const v = mean(state.v, gradient);
    const d = multiply(divide(sqrt(add(state.u, eps)), sqrt(add(v, eps))), gradient);
    state.u = mean(state.u, d);
    state.v = v;
    return subtract(parameter, multiply(rate, d));
  }
}
