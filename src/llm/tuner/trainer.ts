/**
 * The training loop of mlx-lm: compiled steps over batches, reports, validation, adapters and checkpoints.
 *
 * @module
 */

import { basename, dirname, join } from "node:path";
import * as mx from "../../array/mod.ts";
import { checkOptions } from "../../graph/options.ts";
import { interruptible } from "../host.ts";
import type * as nn from "../../nn/mod.ts";
import { saveAdapterWeights } from "./adapters.ts";
import { Batches } from "./batches.ts";
import { type Counts, type History, restoreCheckpoint, saveCheckpoint } from "./checkpoint.ts";
import type { Dataset } from "./datasets.ts";
import { checkFinite, checkFiniteArrays } from "./finite.ts";
import { checkpointLayers } from "./layers.ts";
import { cellLossChart } from "./loss_plot.ts";
import { defaultLoss, type Loss, type TrainableModel } from "./loss.ts";
import { NumpyRandom } from "./numpy_random.ts";
import { checkEqualStart, endsAnywhere, gatherWaiting, totalOf } from "./processes.ts";
import { compileGradients, compileUpdate } from "./steps.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";

/** The report of the training loss. */
export interface TrainReport {
  /** Iterations that are done. */
  readonly iteration: number;
  /** Mean loss of the iterations since the last report. */
  readonly trainLoss: number;
  /** The learning rate now. */
  readonly learningRate: number;
  /** Iterations a second since the last report. */
  readonly iterationsPerSecond: number;
  /** Tokens that the loss counted, a second. */
  readonly tokensPerSecond: number;
  /** Such tokens since the training began. */
  readonly trainedTokens: number;
  /** Most bytes of device memory that were in use at once. */
  readonly peakMemory: number;
}

/** The report of the validation loss. */
export interface ValReport {
  /** Iterations that are done. */
  readonly iteration: number;
  /** Mean loss of the validation set. */
  readonly valLoss: number;
  /** Seconds that it took. */
  readonly valTime: number;
}

/** Callbacks of a training. */
export interface TrainingCallback {
  /** After each iteration. */
  onStep?(iteration: number, iters: number): void;
  /** After an iteration whose batch had no token that the loss counts: it changed nothing. */
  onSkip?(iteration: number): void;
  /** Each `stepsPerReport` iterations and at the end. */
  onTrainLossReport?(report: TrainReport): void;
  /** Before the first iteration, each `stepsPerEval` ones and at the end. */
  onValLossReport?(report: ValReport): void;
  /** Where adapters were saved. */
  onSave?(files: readonly string[]): void;
}

/** How {@link train} trains; names and defaults are mlx-lm's. */
export interface TrainingArgs {
  /** Examples of a batch, in a group of all processes together; 4. */
  readonly batchSize?: number;
  /** Iterations in all, those of a checkpoint included; 100. */
  readonly iters?: number;
  /** Batches of a validation, -1 for all of the set; 25. */
  readonly valBatches?: number;
  /** Iterations from one report to the next; 10. */
  readonly stepsPerReport?: number;
  /** Iterations from one validation to the next; 200. */
  readonly stepsPerEval?: number;
  /** Iterations from one save to the next; 100. */
  readonly stepsPerSave?: number;
  /** Most tokens of an example, whose rest is left out; 2048. */
  readonly maxSeqLength?: number;
  /** Where trained parameters are saved, null for nowhere; "adapters.safetensors". A checkpoint lies beside it. */
  readonly adapterFile?: string | null;
  /** Whether what lies inside of layers is computed again for gradients, which takes less memory; false. */
  readonly gradCheckpoint?: boolean;
  /** Batches whose gradients make one step of the optimizer; 1. */
  readonly gradAccumulationSteps?: number;
  /** The seed for the order of batches; 0. */
  readonly seed?: number;
}

/** Further options of {@link train}. */
export interface TrainOptions {
  /** A set to validate with. */
  readonly valDataset?: Dataset;
  /** How it trains. */
  readonly args?: TrainingArgs;
  /** The loss to minimise; default {@link defaultLoss}. */
  readonly loss?: Loss;
  /** Called as the training goes on; default in a notebook: a plot of the losses in its cell. */
  readonly callback?: TrainingCallback;
  /** A checkpoint to go on from, exactly as if the training had not ended there. */
  readonly resume?: string;
  /** Ends the training after an iteration; the trained parameters are saved. In a group one process's signal ends all. */
  readonly signal?: AbortSignal;
  /** The processes that train together. Default all processes. */
  readonly group?: mx.distributed.Group;
}

const TRAIN_OPTIONS = {
  valDataset: true,
  args: true,
  loss: true,
  callback: true,
  resume: true,
  signal: true,
  group: true,
} as const satisfies Record<keyof TrainOptions, true>;

/** Arguments with what holds if nothing is given. */
export const DEFAULT_ARGS: Required<TrainingArgs> = {
  batchSize: 4,
  iters: 100,
  valBatches: 25,
  stepsPerReport: 10,
  stepsPerEval: 200,
  stepsPerSave: 100,
  maxSeqLength: 2048,
  adapterFile: "adapters.safetensors",
  gradCheckpoint: false,
  gradAccumulationSteps: 1,
  seed: 0,
};

/** Least values of arguments that are whole numbers. */
const LEAST = {
  batchSize: 1,
  iters: 0,
  valBatches: -1,
  stepsPerReport: 1,
  stepsPerEval: 1,
  stepsPerSave: 1,
  maxSeqLength: 2,
  gradAccumulationSteps: 1,
  seed: 0,
} as const satisfies Partial<Record<keyof TrainingArgs, number>>;

function checkArguments(args: TrainingArgs): Required<TrainingArgs> {
  checkOptions("train", args, Object.fromEntries(Object.keys(DEFAULT_ARGS).map((name) => [name, true] as const)));
  const all = { ...DEFAULT_ARGS, ...args };
  for (const [name, least] of Object.entries(LEAST) as [keyof typeof LEAST, number][]) {
    const value = all[name];
    if (Number.isSafeInteger(value) && value >= least) continue;
    throw new mx.ValueError(`train() expected ${name} to be a whole number of at least ${least}: found ${value}`);
  }
  return all;
}

/** The measurements of a training. */
export interface Trained extends History {
  /** Iterations that are done. */
  readonly iteration: number;
  /** Tokens that the loss counted. */
  readonly trainedTokens: number;
  /** Iterations that changed nothing, because the loss counted no token of their batch. */
  readonly skipped: number;
}

/** How {@link evaluate} goes through a set. */
export interface EvaluateOptions {
  /** Batches at most, -1 for all; default -1. */
  readonly numBatches?: number;
  /** Most tokens of an example; default 2048. */
  readonly maxSeqLength?: number;
  /** The measured loss; default {@link defaultLoss}. */
  readonly loss?: Loss;
  /** Decides which batches are taken; default seed 0. */
  readonly random?: NumpyRandom;
  /** Called after each batch. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Ends it with an error. In a group one process's signal ends all. */
  readonly signal?: AbortSignal;
  /** The processes, each of which measures its part of the batches. Default all processes. */
  readonly group?: mx.distributed.Group;
}

/**
 * The mean loss of a token of a set, measured without dropout. The model is not in training afterwards. Batches without a token that the
 * loss counts are left out.
 *
 * Throws a ValueError if the set does not fill a batch, or if the loss counts no token of it.
 */
export function evaluate(
  model: TrainableModel,
  dataset: Dataset,
  batchSize: number,
  options: EvaluateOptions = {},
): Promise<number> {
  return interruptible(options, (heeding) => evaluateSet(model, dataset, batchSize, heeding));
}

async function evaluateSet(
  model: TrainableModel,
  dataset: Dataset,
  batchSize: number,
  options: EvaluateOptions,
): Promise<number> {
  const { sum, count } = await measure(model, dataset, batchSize, options);
  if (count > 0) return sum / count;
  throw new mx.ValueError(noTokens("evaluate()", options.maxSeqLength ?? DEFAULT_ARGS.maxSeqLength));
}

function noTokens(op: string, maxSeqLength: number): string {
  return `${op} found no token that the loss counts: every prompt reaches the ${maxSeqLength} tokens of maxSeqLength`;
}

/** The losses of a set added up, and how many tokens they are of. */
async function measure(
  model: TrainableModel,
  dataset: Dataset,
  batchSize: number,
  options: EvaluateOptions,
): Promise<{ readonly sum: number; readonly count: number }> {
  const { numBatches = -1, maxSeqLength = DEFAULT_ARGS.maxSeqLength, loss = defaultLoss, signal } = options;
  const { random = new NumpyRandom(0), group = mx.distributed.init() } = options;
  const batches = new Batches(dataset, batchSize, maxSeqLength, random, group);
  const total = numBatches < 0 ? batches.count : Math.min(numBatches, batches.count);
  model.eval();
  let sum = 0, count = 0;
  for (let i = 0; i < total; i++) {
    if (endsAnywhere(group, signal)) throw signal?.reason ?? new DOMException("Another process ended", "AbortError");
    const [value, tokens] = loss(model, ...batches.next());
    mx.eval(value, tokens);
    const n = Number(tokens.item());
    if (n > 0) sum += Number(value.item()) * n;
    count += n;
    options.onProgress?.(i + 1, total);
    await yieldToEventLoop();
  }
  return totalOf(group, sum, count);
}

/** File for the trained parameters after so many iterations, beside the newest ones. */
function numbered(file: string, iteration: number): string {
  return join(dirname(file), `${String(iteration).padStart(7, "0")}_${basename(file)}`);
}

/** The checkpoint of a training whose parameters are saved to `file`. */
export function checkpointOf(file: string): string {
  return join(dirname(file), "checkpoint.safetensors");
}

/**
 * Trains the parameters of a model that are not frozen, as mlx-lm's `train` does: the same batches in the same order, compiled steps.
 * Every `stepsPerSave` iterations and at the end, these parameters go to `adapterFile`, and the state of the training to
 * "checkpoint.safetensors" beside it. A process that is killed meanwhile leaves the earlier files whole. A batch without counted
 * tokens changes nothing. The model is in training meanwhile, and comes back in the mode that it had, also after an error. One that was loaded
 * drops no inputs afterwards.
 *
 * In a group each process takes its rows of every batch, and all take the mean of the gradients by tokens. So the losses are those of one process,
 * but for rounding. Process 0 writes the files, and any number of processes resumes from its checkpoint.
 *
 * Throws a ValueError if arguments or sets are invalid or differ between processes, and an {@link LlmError} if `resume` is of another training. If a loss, a
 * parameter or the optimizer's state is NaN or infinite, it throws one with code "training" before anything is saved. The parameters
 * are then those before the iteration with such a loss.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load("Qwen/Qwen3-0.6B-MLX-4bit");
 * const { train } = mx.lm.tuner.loadDatasets("data", tokenizer);
 * model.freeze();
 * mx.lm.tuner.linearToLoraLayers(model, 8, { rank: 8, scale: 20, dropout: 0 });
 * const optimizer = new mx.optimizers.Adam({ learningRate: 1e-4 });
 * await mx.lm.tuner.train(model, optimizer, train, { args: { iters: 200 } });
 * ```
 */
export function train(
  model: TrainableModel,
  optimizer: mx.optimizers.Optimizer,
  trainDataset: Dataset,
  options: TrainOptions = {},
): Promise<Trained> {
  const { training } = model; // false of a loaded one: answers drop no inputs afterwards
  return interruptible(options, (heeding) => runTraining(model, optimizer, trainDataset, heeding))
    .finally(() => model.train(training));
}

async function runTraining(
  model: TrainableModel,
  optimizer: mx.optimizers.Optimizer,
  trainDataset: Dataset,
  options: TrainOptions,
): Promise<Trained> {
  checkOptions("train", options, TRAIN_OPTIONS);
  const { valDataset = [], loss = defaultLoss, resume, signal, group = mx.distributed.init() } = options;
  const callback: TrainingCallback = options.callback ?? cellLossChart() ?? {};
  const args = checkArguments(options.args ?? {});
  const { batchSize, iters, maxSeqLength, gradAccumulationSteps, seed, adapterFile } = args;
  const random = new NumpyRandom(seed);
  const batches = new Batches(trainDataset, batchSize, maxSeqLength, random, group);
  const history: History = { train: [], valid: [] };
  const settings = {
    batchSize: `${batchSize}`,
    maxSeqLength: `${maxSeqLength}`,
    gradAccumulationSteps: `${gradAccumulationSteps}`,
    examples: `${trainDataset.length}`,
    scale: [...new Set(model.modules().flatMap(({ state }) => "lora_a" in state ? [state.scale] : []))].join(),
  };
  let gradients: nn.ModuleTree | null = null;
  let counts: Counts = {
    iteration: 0,
    trainedTokens: 0,
    skipped: 0,
    gathered: 0,
    since: { loss: 0, tokens: 0, steps: 0 },
  };
  optimizer.init(model.trainableParameters());
  if (resume !== undefined) {
    const found = restoreCheckpoint(resume, { model, optimizer, batches, random, history, settings });
    ({ gradients, ...counts } = found);
  }
  checkEqualStart(group, model, { iteration: counts.iteration, iters, datasets: [trainDataset, valDataset] });

  using _ = args.gradCheckpoint ? checkpointLayers(model) : undefined;
  using gradientsOf = compileGradients(model, loss, group);
  using update = compileUpdate(model, optimizer, group);
  const save = (iteration: number): void => {
    checkFiniteArrays(iteration, { ...model.trainableParameters() }, "parameter");
    checkFiniteArrays(iteration, { ...optimizer.state }, "state of the optimizer");
    if (adapterFile === null) return;
    gradients = gatherWaiting(group, gradients);
    if (group.rank() !== 0) return;
    const files = [adapterFile, ...(iteration % args.stepsPerSave === 0 ? [numbered(adapterFile, iteration)] : [])];
    const training = { model, optimizer, batches, random, gradients, history, settings };
    saveCheckpoint(checkpointOf(adapterFile), training, counts);
    for (const file of files) saveAdapterWeights(model, file);
    callback.onSave?.(files);
  };
  const validate = async (iteration: number): Promise<void> => {
    if (valDataset.length === 0) return;
    const start = performance.now();
    const { sum, count } = await measure(model, valDataset, batchSize, {
      numBatches: args.valBatches,
      maxSeqLength,
      loss,
      random,
      signal,
      group,
    });
    if (count === 0) return;
    const valLoss = sum / count;
    checkFinite(iteration, valLoss, "validation loss");
    history.valid.push([iteration, valLoss]);
    callback.onValLossReport?.({ iteration, valLoss, valTime: (performance.now() - start) / 1000 });
  };

  let seconds = 0, timed = 0;
  const first = counts.iteration;
  for (let i = first + 1; i <= iters && !endsAnywhere(group, signal); i++) {
    const batch = batches.next();
    if (i === 1 || i % args.stepsPerEval === 0 || i === iters) await validate(i - 1);
    const start = performance.now();
    model.train();
    const [value, tokens, found] = gradientsOf(batch, gradients);
    mx.eval(value, tokens, found);
    const [lost, seen] = [Number(value.item()), Number(tokens.item())];
    counts = { ...counts, iteration: i, trainedTokens: counts.trainedTokens + seen };
    if (seen > 0) {
      checkFinite(i, lost, "training loss");
      if (gradients !== null) mx.dispose(gradients);
      gradients = found;
      const { gathered, since } = counts;
      counts = {
        ...counts,
        gathered: gathered + 1,
        since: { loss: since.loss + lost, tokens: since.tokens + seen, steps: since.steps + 1 },
      };
    } else {
      mx.dispose(found);
      counts = { ...counts, skipped: counts.skipped + 1 };
    }
    if (i % gradAccumulationSteps === 0 && gradients !== null) {
      update(gradients, counts.gathered);
      mx.eval(model.trainableParameters(), optimizer.state);
      mx.dispose(gradients);
      gradients = null;
      counts = { ...counts, gathered: 0 };
    }
    await yieldToEventLoop();
    seconds += (performance.now() - start) / 1000;
    timed++;
    if (seen === 0) callback.onSkip?.(i);
    if (counts.trainedTokens === 0 && (i % batches.count === 0 || i === iters)) {
      throw new mx.ValueError(noTokens("train()", maxSeqLength));
    }
    if ((i % args.stepsPerReport === 0 || i === iters) && counts.since.steps > 0) {
      const { since: { loss, tokens, steps }, trainedTokens } = counts;
      history.train.push([i, loss / steps]);
      callback.onTrainLossReport?.({
        iteration: i,
        trainLoss: loss / steps,
        learningRate: Number(optimizer.learningRate.item()),
        iterationsPerSecond: timed / seconds,
        tokensPerSecond: tokens * timed / steps / seconds,
        trainedTokens,
        peakMemory: mx.getPeakMemory(),
      });
      counts = { ...counts, since: { loss: 0, tokens: 0, steps: 0 } };
      [seconds, timed] = [0, 0];
    }
    callback.onStep?.(i, iters);
    if (i % args.stepsPerSave === 0 && i !== iters && counts.trainedTokens > 0) save(i);
  }
  save(counts.iteration);
  const { iteration, trainedTokens, skipped } = counts;
  return { ...history, iteration, trainedTokens, skipped };
}
