/**
 * `mlx.optimizers`: optimizers, schedules of learning rates, and gradient clipping.
 *
 * @module
 */

export { type LeafState, type Learner, type LearningRate, Optimizer, type OptimizerState } from "./optimizer.ts";
export type { Settings } from "./settings.ts";
export { RMSprop, type RMSpropOptions, SGD, type SGDOptions } from "./gradient_descent.ts";
export { AdaDelta, type AdaDeltaOptions, Adagrad, type AdagradOptions } from "./adaptive.ts";
export { Adam, Adamax, type AdamaxOptions, type AdamOptions, AdamW, type AdamWOptions, type Betas } from "./adam.ts";
export { Lion, type LionOptions } from "./lion.ts";
export { Adafactor, type AdafactorOptions } from "./adafactor.ts";
export { Muon, type MuonOptions } from "./muon.ts";
export { type Filter, MultiOptimizer } from "./multi.ts";
export {
  type ArraySchedule,
  cosineDecay,
  exponentialDecay,
  joinSchedules,
  linearSchedule,
  type Schedule,
  stepDecay,
} from "./schedules.ts";
export { clipGradNorm } from "./clip.ts";
