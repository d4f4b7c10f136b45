/**
 * Muon: momentum whose matrices are made nearly orthogonal.
 *
 * @module
 */

import { add, divide, multiply, subtract } from "../ops/binary.ts";
import { zerosLike } from "../ops/creation.ts";
import { norm } from "../linalg/norm.ts";
import { astype, transpose } from "../ops/movement.ts";
import { addmm, matmul } from "../linalg/products.ts";
import { reshape } from "../ops/reshape.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { meanOf } from "./adam.ts";
import { type LeafState, type LearningRate, Optimizer } from "./optimizer.ts";
import { type Settings, settingsOf } from "./settings.ts";

/** Options of {@link Muon}. */
export interface MuonOptions {
  /** The learning rate λ, or its schedule. */
  readonly learningRate: LearningRate;
  /** The momentum; 0.95 by default. */
  readonly momentum?: number;
  /** Share of each parameter that is added to its gradient; 0.01 by default. */
  readonly weightDecay?: number;
  /** Looks ahead along the momentum; true by default. */
  readonly nesterov?: boolean;
  /** Iterations of Newton and Schulz; 5 by default. */
  readonly nsSteps?: number;
}

const DEFAULTS: Required<MuonOptions> = {
  learningRate: undefined!,
  momentum: 0.95,
  weightDecay: 0.01,
  nesterov: true,
  nsSteps: 5,
};

/** Coefficients of a quintic whose iteration brings singular values near 1 fast. */
const [A, B, C] = [3.4445, -4.775, 2.0315];

/** A matrix with the same singular vectors whose singular values are near 1. */
function orthogonalized(matrix: AnyTensor, steps: number): AnyTensor {
  const [rows, columns] = matrix.shape;
  const turned = (x: AnyTensor): AnyTensor => rows > columns ? transpose(x) : x;
  let x = turned(matrix);
  x = divide(x, add(norm(x, null, null, true), 1e-7));
  for (let i = 0; i < steps; i++) {
    const gram: AnyTensor = matmul(x, transpose(x));
    x = addmm(multiply(x, A), addmm(multiply(gram, B), gram, gram, C), x);
  }
  return turned(x);
}

/**
 * Muon, for the matrices inside of a network; embeddings, the last layer and vectors learn better by another one, see
 * {@link MultiOptimizer}. Further axes than the first are taken for one.
 */
export class Muon extends Optimizer {
  /** The momentum. */
  momentum: number;
  /** Share of each parameter that is added to its gradient. */
  weightDecay: number;
  /** Whether it looks ahead along the momentum. */
  nesterov: boolean;
  /** Iterations of Newton and Schulz. */
  nsSteps: number;

  /** Takes {@link MuonOptions}, or the learning rate and then the others. */
  constructor(
    ...settings: Settings<MuonOptions, [momentum?: number, weightDecay?: number, nesterov?: boolean, nsSteps?: number]>
  ) {
    super();
    const s = settingsOf("Muon", DEFAULTS, settings);
    this.momentum = s.momentum;
    this.weightDecay = s.weightDecay;
    this.nesterov = s.nesterov;
    this.nsSteps = s.nsSteps;
    this.maybeSchedule("learningRate", s.learningRate);
  }

  /** v: zeros. */
  initSingle(parameter: AnyTensor, state: LeafState): void {
    state.v = zerosLike(parameter);
  }

  /** One step of a parameter. */
  applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor {
    const { momentum } = this;
    const g = this.weightDecay === 0 ? gradient : add(gradient, multiply(parameter, this.weightDecay));
    const v = state.v = meanOf(state.v, g, momentum);
    const update: AnyTensor = this.nesterov ? add(multiply(g, 1 - momentum), multiply(v, momentum)) : v;
    const rate = astype(this.learningRate, g.dtype);
    const { shape } = update;
    if (shape.length < 2) return subtract(parameter, multiply(rate, update));
    const matrix = shape.length === 2 ? update : reshape(update, [shape[0], -1]);
    const step = reshape(orthogonalized(matrix, this.nsSteps), shape);
    const scale = Math.sqrt(Math.max(1, shape.at(-2)! / shape.at(-1)!));
    return subtract(parameter, multiply(multiply(rate, scale), step));
  }
}
