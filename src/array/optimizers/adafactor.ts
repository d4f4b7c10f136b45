/**
 * Adafactor: of the mean of squared gradients of a matrix only the means of rows and columns are kept.
 *
 * @module
 */

import { float32 } from "../../graph/dtype.ts";
import { add, divide, maximum, minimum, multiply, power, subtract } from "../ops/binary.ts";
import { zeros, zerosLike } from "../ops/creation.ts";
import { astype, expandDims } from "../ops/movement.ts";
import { mean } from "../ops/reduce.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { rsqrt, sqrt, square } from "../ops/unary.ts";
import { meanOf } from "./adam.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { type Settings, settingsOf } from "./settings.ts";

/** Options of {@link Adafactor}. */
export interface AdafactorOptions {
  /** The learning rate, or its schedule; null, the default, if `relativeStep` makes it. */
  readonly learningRate?: LearningRate | null;
  /** Added to squares of gradients, and the least scale of a parameter; 1e-30 and 1e-3 by default. */
  readonly eps?: readonly [number, number];
  /** Root mean square that an update may have; 1 by default. */
  readonly clipThreshold?: number;
  /** Exponent of the step in how much of the means stays; -0.8 by default. */
  readonly decayRate?: number;
  /** How much of a mean of updates stays; null, the default, for none. */
  readonly beta1?: number | null;
  /** Share of each parameter that a step takes away, times its learning rate; 0 by default. */
  readonly weightDecay?: number;
  /** Scales the learning rate by the root mean square of the parameter; true by default. */
  readonly scaleParameter?: boolean;
  /** Makes the learning rate of the step; true by default. */
  readonly relativeStep?: boolean;
  /** Begins with small steps; false by default. */
  readonly warmupInit?: boolean;
}

const DEFAULTS: Required<AdafactorOptions> = {
  learningRate: null,
  eps: [1e-30, 1e-3],
  clipThreshold: 1,
  decayRate: -0.8,
  beta1: null,
  weightDecay: 0,
  scaleParameter: true,
  relativeStep: true,
  warmupInit: false,
};

type InOrder = [
  eps?: readonly [number, number],
  clipThreshold?: number,
  decayRate?: number,
  beta1?: number | null,
  weightDecay?: number,
  scaleParameter?: boolean,
  relativeStep?: boolean,
  warmupInit?: boolean,
];

/** The root of the mean of squares. */
function rms(x: AnyTensor): AnyTensor {
  return sqrt(mean(square(x)));
}

/** Adafactor: Adam's steps with state of the size of a row and a column of each matrix. */
export class Adafactor extends Optimizer {
  /** Added to squares of gradients, and the least scale of a parameter. */
  eps: readonly [number, number];
  /** Root mean square that an update may have. */
  clipThreshold: number;
  /** Exponent of the step in how much of the means stays. */
  decayRate: number;
  /** How much of a mean of updates stays; null for none. */
  beta1: number | null;
  /** Share of each parameter that a step takes away, times its learning rate. */
  weightDecay: number;
  /** Whether the learning rate is scaled by the root mean square of the parameter. */
  scaleParameter: boolean;
  /** Whether the learning rate is made of the step. */
  relativeStep: boolean;
  /** Whether it begins with small steps. */
  warmupInit: boolean;

  /** Takes {@link AdafactorOptions}, or the learning rate and then the others, or nothing. */
  constructor(...settings: Settings<AdafactorOptions, InOrder> | [learningRate: null, ...InOrder] | []) {
    super();
    const s = settingsOf("Adafactor", DEFAULTS, settings);
    this.eps = s.eps;
    this.clipThreshold = s.clipThreshold;
    this.decayRate = s.decayRate;
    this.beta1 = s.beta1;
    this.weightDecay = s.weightDecay;
    this.scaleParameter = s.scaleParameter;
    this.relativeStep = s.relativeStep;
    this.warmupInit = s.warmupInit;
    if (s.learningRate !== null) this.maybeSchedule("learningRate", s.learningRate);
  }

  /** Means of squares: of rows and columns of matrices, else of elements. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    const { shape, dtype } = parameter;
    if (shape.length >= 2) {
      state.expAvgSqRow = zeros(shape.slice(0, -1), dtype);
      state.expAvgSqCol = zeros([...shape.slice(0, -2), shape.at(-1)!], dtype);
    } else state.expAvgSq = zerosLike(parameter);
    if (this.beta1 !== null) state.expAvg = zerosLike(parameter);
  }

  #rateOf(step: AnyTensor, scale: AnyTensor): AnyTensor {
    const rate = this.relativeStep
      ? minimum(this.warmupInit ? multiply(step, 1e-6) : 1e-2, rsqrt(step))
      : this.learningRate;
    const own: AnyTensor = astype(rate, scale.dtype);
    return this.scaleParameter ? multiply(maximum(this.eps[1], scale), own) : own;
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const step = astype(this.step, float32);
    const scale = rms(parameter);
    const rate = this.#rateOf(step, scale);
    const beta2 = subtract(1, astype(power(step, this.decayRate), scale.dtype));
    const squares = add(square(gradient), this.eps[0]);
    const running = (old: AnyTensor, value: AnyTensor): AnyTensor =>
      add(multiply(beta2, old), multiply(subtract(1, beta2), value));
    let factor: AnyTensor;
    if (gradient.ndim >= 2) {
      const row = state.expAvgSqRow = running(state.expAvgSqRow, mean(squares, -1));
      const column = state.expAvgSqCol = running(state.expAvgSqCol, mean(squares, -2));
      const ofRows = rsqrt(divide(row, mean(row, -1, true)));
      factor = multiply(expandDims(ofRows, -1), expandDims(rsqrt(column), -2));
    } else {
      state.expAvgSq = running(state.expAvgSq, squares);
      factor = rsqrt(state.expAvgSq);
    }
    const unscaled = multiply(factor, gradient);
    const clipped = divide(unscaled, maximum(1, divide(rms(unscaled), this.clipThreshold)));
    let update: AnyTensor = multiply(rate, clipped);
    if (this.beta1 !== null) update = state.expAvg = meanOf(state.expAvg, update, this.beta1);
    const left = this.weightDecay === 0
      ? parameter
      : add(parameter, multiply(parameter, multiply(rate, -this.weightDecay)));
    return subtract(left, update);
  }
}
