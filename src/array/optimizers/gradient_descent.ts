/**
 * Gradient descent: with momentum, and by the root of a running mean of squares.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import { add, divide, multiply, subtract } from "../ops/binary.ts";
import { zerosLike } from "../ops/creation.ts";
import { astype } from "../ops/movement.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { sqrt, square } from "../ops/unary.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { checkRange, type Settings, settingsOf } from "./settings.ts";

/** Options of {@link SGD}. */
export interface SGDOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** The momentum µ; 0 by default. */
  readonly momentum?: number;
  /** Share of each parameter that is added to its gradient; 0 by default. */
  readonly weightDecay?: number;
  /** Dampening τ of gradients in the momentum; 0 by default. */
  readonly dampening?: number;
  /** Looks ahead along the momentum; false by default. */
  readonly nesterov?: boolean;
}

const SGD_DEFAULTS: Required<SGDOptions> = {
  learningRate: undefined!,
  momentum: 0,
  weightDecay: 0,
  dampening: 0,
  nesterov: false,
};

/**
 * Stochastic gradient descent: v ← µ v + (1 - τ) g, w ← w - λ v.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const optimizer = new mx.optimizers.SGD({ learningRate: 0.1, momentum: 0.9 });
 * let parameters = { w: mx.array([4]) };
 * const gradient = mx.grad((p: typeof parameters) => mx.sum(mx.square(p.w)));
 * for (let step = 0; step < 100; step++) {
 *   parameters = optimizer.applyGradients(gradient(parameters), parameters);
 *   mx.eval(parameters, optimizer.state);
 * }
 * mx.allclose(parameters.w, 0, 0, 0.1).item(); // true
 * ```
 */
export class SGD extends Optimizer {
  /** The momentum µ. */
  momentum: number;
  /** Share of each parameter that is added to its gradient. */
  weightDecay: number;
  /** Dampening τ of gradients in the momentum. */
  dampening: number;
  /** Whether it looks ahead along the momentum. */
  nesterov: boolean;

  /** Takes {@link SGDOptions}, or the learning rate and then the others; `nesterov` without momentum or with dampening is an error. */
  constructor(
    ...settings: Settings<
      SGDOptions,
      [momentum?: number, weightDecay?: number, dampening?: number, nesterov?: boolean]
    >
  ) {
    super();
    const s = settingsOf("SGD", SGD_DEFAULTS, settings);
    if (s.nesterov && (s.momentum <= 0 || s.dampening !== 0)) {
      throw new ValueError("SGD() needs a momentum above 0 and no dampening for nesterov");
    }
    this.momentum = s.momentum;
    this.weightDecay = s.weightDecay;
    this.dampening = s.dampening;
    this.nesterov = s.nesterov;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** v: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.v = zerosLike(parameter);
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const g = this.weightDecay === 0 ? gradient : add(gradient, multiply(parameter, this.weightDecay));
    const rate = astype(this.learningRate, g.dtype);
    if (this.momentum <= 0) return subtract(parameter, multiply(rate, g));
    const v = add(multiply(state.v, this.momentum), this.dampening > 0 ? multiply(g, 1 - this.dampening) : g);
    state.v = v;
    return subtract(parameter, multiply(rate, this.nesterov ? add(g, multiply(v, this.momentum)) : v));
  }
}

/** Options of {@link RMSprop}. */
export interface RMSpropOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** How much of the mean of squares stays, α; 0.99 by default. */
  readonly alpha?: number;
  /** Added to the root, ε; 1e-8 by default. */
  readonly eps?: number;
}

const RMSPROP_DEFAULTS: Required<RMSpropOptions> = { learningRate: undefined!, alpha: 0.99, eps: 1e-8 };

/** RMSprop: v ← α v + (1 - α) g², w ← w - λ g / (√v + ε). */
export class RMSprop extends Optimizer {
  /** How much of the mean of squares stays, α. */
  alpha: number;
  /** Added to the root, ε. */
  eps: number;

  /** Takes {@link RMSpropOptions}, or the learning rate and then the others; a negative alpha or an eps of 0 is a ValueError. */
  constructor(...settings: Settings<RMSpropOptions, [alpha?: number, eps?: number]>) {
    super();
    const s = settingsOf("RMSprop", RMSPROP_DEFAULTS, settings);
    checkRange("RMSprop", "alpha", s.alpha, s.alpha >= 0, ">=0");
    checkRange("RMSprop", "eps", s.eps, s.eps > 0, ">0");
    this.alpha = s.alpha;
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
    state.v = add(multiply(state.v, this.alpha), multiply(square(gradient), 1 - this.alpha));
    return subtract(parameter, divide(multiply(rate, gradient), add(sqrt(state.v), this.eps)));
  }
}
