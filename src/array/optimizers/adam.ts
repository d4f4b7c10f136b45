/**
 * Adam and its kin.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { add, divide, maximum, multiply, power, subtract } from "../ops/binary.ts";
import { zerosLike } from "../ops/creation.ts";
import { astype } from "../ops/movement.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { abs, rsqrt, sqrt, square } from "../ops/unary.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { checkRange, type Settings, settingsOf } from "./settings.ts";

/** Two coefficients of running means. */
export type Betas = readonly [number, number];

/** Options of {@link Adamax}. */
export interface AdamaxOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** How much of the means of gradients and of their squares stays, β₁ and β₂; 0.9 and 0.999 by default. */
  readonly betas?: Betas;
  /** Added to the denominator, ε; 1e-8 by default. */
  readonly eps?: number;
}

/** Options of {@link Adam}. */
export interface AdamOptions extends AdamaxOptions {
  /** Corrects the bias of the means towards the zeros that they begin with; false by default. */
  readonly biasCorrection?: boolean;
}

/** Options of {@link AdamW}. */
export interface AdamWOptions extends AdamOptions {
  /** Share of each parameter that a step takes away, times the learning rate; 0.01 by default. */
  readonly weightDecay?: number;
}

const ADAMAX_DEFAULTS: Required<AdamaxOptions> = { learningRate: undefined!, betas: [0.9, 0.999], eps: 1e-8 };
const ADAM_DEFAULTS: Required<AdamOptions> = { ...ADAMAX_DEFAULTS, biasCorrection: false };
const ADAMW_DEFAULTS: Required<AdamWOptions> = { ...ADAMAX_DEFAULTS, weightDecay: 0.01, biasCorrection: false };

/** Throws unless coefficients are valid for running means. */
export function checkBetas(op: string, betas: Betas): void {
  betas.forEach((beta, i) => checkRange(op, `betas[${i}]`, beta, beta >= 0 && beta < 1, "in [0, 1)"));
}

/** A running mean. */
export function meanOf(old: AnyTensor, value: AnyTensor, beta: number): AnyTensor {
  return add(multiply(old, beta), multiply(value, 1 - beta));
}

/** Adam and its variants: their settings, and means that begin with zeros. */
abstract class WithMoments extends Optimizer {
  /** How much of the means stays, β₁ and β₂. */
  betas: Betas;
  /** Added to the denominator, ε. */
  eps: number;

  constructor(op: string, s: Required<AdamaxOptions>) {
    super();
    checkBetas(op, s.betas);
    checkRange(op, "eps", s.eps, s.eps >= 0, ">=0");
    this.betas = s.betas;
    this.eps = s.eps;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** m and v: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.m = zerosLike(parameter);
    state.v = zerosLike(parameter);
  }
}

/** The common part of Adam and AdamW. */
abstract class WithSquares extends WithMoments {
  /** Whether the bias of the means is corrected. */
  biasCorrection: boolean;

  constructor(op: string, s: Required<AdamOptions>) {
    super(op, s);
    this.biasCorrection = s.biasCorrection;
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const { betas: [beta1, beta2], eps } = this;
    const { dtype } = gradient;
    const rate = astype(this.learningRate, dtype);
    const m = state.m = meanOf(state.m, gradient, beta1);
    const v = state.v = meanOf(state.v, square(gradient), beta2);
    if (!this.biasCorrection) return subtract(parameter, divide(multiply(rate, m), add(sqrt(v), eps)));
    const step = astype(this.step, float32);
    const numerator = astype(divide(rate, subtract(1, power(beta1, step))), dtype);
    const denominator = astype(rsqrt(subtract(1, power(beta2, step))), dtype);
    return subtract(parameter, divide(multiply(numerator, m), add(multiply(sqrt(v), denominator), eps)));
  }
}

/**
 * Adam: m ← β₁ m + (1 - β₁) g, v ← β₂ v + (1 - β₂) g², w ← w - λ m / (√v + ε).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const optimizer = new mx.optimizers.Adam({ learningRate: mx.optimizers.cosineDecay(0.1, 1000) });
 * const { w } = optimizer.applyGradients({ w: mx.array([3, 0]) }, { w: mx.array([1, 1]) });
 * mx.allclose(w, [0.684, 1], 0, 0.001).item(); // true
 * ```
 */
export class Adam extends WithSquares {
  /** Takes {@link AdamOptions}, or the learning rate and then the others; betas out of [0, 1) or a negative eps are a ValueError. */
  constructor(...settings: Settings<AdamOptions, [betas?: Betas, eps?: number, biasCorrection?: boolean]>) {
    super("Adam", settingsOf("Adam", ADAM_DEFAULTS, settings));
  }
}

/** Adam that also takes λ · weightDecay of each parameter away, beside its step. */
export class AdamW extends WithSquares {
  /** Share of each parameter that a step takes away, times the learning rate. */
  weightDecay: number;

  /** Takes {@link AdamWOptions}, or the learning rate and then the others; betas out of [0, 1) or a negative eps are a ValueError. */
  constructor(
    ...settings: Settings<AdamWOptions, [betas?: Betas, eps?: number, weightDecay?: number, biasCorrection?: boolean]>
  ) {
    const s = settingsOf("AdamW", ADAMW_DEFAULTS, settings);
    super("AdamW", s);
    this.weightDecay = s.weightDecay;
  }

  /** One step of a parameter. */
  override applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const rate = astype(this.learningRate, gradient.dtype);
    const left = multiply(parameter, subtract(1, multiply(rate, this.weightDecay)));
    return super.applySingle(gradient, left, state);
  }
}

/** Adam by the largest gradients: m ← β₁ m + (1 - β₁) g, v ← max(β₂ v, |g|), w ← w - λ m / (v + ε). */
export class Adamax extends WithMoments {
  /** Takes {@link AdamaxOptions}, or the learning rate and then the others; betas out of [0, 1) or a negative eps are a ValueError. */
  constructor(...settings: Settings<AdamaxOptions, [betas?: Betas, eps?: number]>) {
    super("Adamax", settingsOf("Adamax", ADAMAX_DEFAULTS, settings));
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const { betas: [beta1, beta2], eps } = this;
    const rate = astype(this.learningRate, gradient.dtype);
    state.m = meanOf(state.m, gradient, beta1);
    state.v = maximum(multiply(state.v, beta2), abs(gradient));
    return subtract(parameter, divide(multiply(rate, state.m), add(state.v, eps)));
  }
}
