/**
 * One run of `vkmx train`: its flags as arguments of `mx.lm.tuner`, the figures on stderr, the plot of the losses.
 *
 * @module
 */

import { join } from "node:path";
import * as mx from "../../mod.ts";
import { STEPS } from "../notebook/figures.ts";
import { checkOneOf, type Flags, UsageError, type Values } from "./flags.ts";
import { DEVICE_FLAG, MODEL_FLAG, WEIGHT_BYTES_FLAG } from "./model_flags.ts";
import { canRedraw, note } from "./output.ts";
import { JSON_FLAG } from "./program.ts";
import { describeSeconds, Progress } from "./progress.ts";
import { describeBytes } from "./table.ts";

const MOST = Number.MAX_SAFE_INTEGER;
const { optimizers } = mx;

const TYPES = ["lora", "dora", "full"] as const satisfies readonly mx.lm.tuner.FineTuneType[];

/** Optimizers by the names of `mlx_lm.lora`. */
const OPTIMIZERS = {
  adam: (learningRate) => new optimizers.Adam({ learningRate }),
  adamw: (learningRate) => new optimizers.AdamW({ learningRate }),
  muon: (learningRate) => new optimizers.Muon({ learningRate }),
  sgd: (learningRate) => new optimizers.SGD({ learningRate }),
  adafactor: (learningRate) => new optimizers.Adafactor({ learningRate }),
} as const satisfies Record<string, (learningRate: number) => mx.optimizers.Optimizer>;

type OptimizerName = keyof typeof OPTIMIZERS;

const count = (help: string, least = 1) => ({ value: "N", help, range: [least, MOST], whole: true } as const);

/** The flags; those of mlx-lm have its names, and mean what they mean there. */
export const TRAIN_FLAGS = {
  ...MODEL_FLAG,
  "data": { value: "DIR", help: "folder with train.jsonl, and valid.jsonl and test.jsonl where they are wanted" },
  "fine-tune-type": {
    value: "TYPE",
    help: `what is trained: ${TYPES.join(", ")} (lora)`,
    meant: ["type", "train-type"],
  },
  "num-layers": count("layers from the last one on that are trained, -1 for all (16, or all of fewer)", -1),
  "rank": { ...count("rank of adapters (8)"), meant: ["lora-rank", "r", "lora-r"] },
  "scale": {
    value: "X",
    help: "what adapters are multiplied by (20)",
    range: [0, 1e6],
    meant: ["alpha", "lora-alpha"],
  },
  "dropout": { value: "P", help: "part of the inputs of adapters that is dropped (0)", range: [0, 0.999] },
  "keys": {
    value: "NAME",
    help: "adapt only layers of this name, such as self_attn.q_proj; several times",
    many: true,
  },
  "mask-prompt": { help: "leave prompts out of the loss" },
  "optimizer": { value: "NAME", help: `${Object.keys(OPTIMIZERS).join(", ")} (adam)` },
  "learning-rate": { value: "X", help: "the learning rate (1e-5)", range: [0, 1e3], meant: ["lr"] },
  "batch-size": count("examples of a step (4)"),
  "iters": { ...count("steps in all (1000)", 0), meant: ["steps", "epochs", "iterations"] },
  "grad-accumulation-steps": count("steps whose gradients make one of the optimizer (1)"),
  "max-seq-length": { ...count("most tokens of an example (2048)", 2), meant: ["context"] },
  "grad-checkpoint": { help: "compute layers again for gradients: slower, with less memory" },
  "steps-per-report": count("steps from one report to the next (10)"),
  "steps-per-eval": count("steps from one validation to the next (200)"),
  "val-batches": count("batches of a validation, -1 for all (25)", -1),
  "save-every": count("steps from one save to the next (100)"),
  "adapter-path": {
    value: "DIR",
    help: "where adapters, checkpoint and plot go (adapters)",
    meant: ["output", "out", "o"],
  },
  "resume-adapter-file": {
    value: "FILE",
    help: "a checkpoint.safetensors to go on from, or adapters to begin with",
    aliases: ["resume"],
  },
  "test": { help: "measure the loss of test.jsonl at the end" },
  "test-batches": count("batches of the test, -1 for all (500)", -1),
  "seed": { ...count("what adapters and the order of batches are drawn from (0)", 0) },
  "train": { help: "nothing: it trains anyway" },
  ...DEVICE_FLAG,
  ...WEIGHT_BYTES_FLAG,
  ...JSON_FLAG,
} as const satisfies Flags;

/** The flags of a command line. */
export type TrainValues = Values<typeof TRAIN_FLAGS>;

/** The training that a command line asks for. */
export interface TrainSettings {
  /** The data. */
  readonly data: string;
  /** The folder of the adapters. */
  readonly folder: string;
  /** The trained part of the model; `numLayers` is undefined by default. */
  readonly adapter: Omit<mx.lm.tuner.AdapterConfig, "numLayers"> & { readonly numLayers: number | undefined };
  /** How it is trained. */
  readonly args: Required<Omit<mx.lm.tuner.TrainingArgs, "adapterFile">>;
  /** The optimizer by name. */
  readonly optimizer: OptimizerName;
  readonly learningRate: number;
}

/** Reads a command line. Throws a UsageError. */
export function readSettings(values: TrainValues): TrainSettings {
  if (values.data === undefined || values.data === "") {
    throw new UsageError(
      'Expected a folder with train.jsonl: --data DIR. Its lines are such as {"prompt": "Hi", "completion": "Hello"}',
    );
  }
  const fineTuneType = checkOneOf("--fine-tune-type", values["fine-tune-type"] ?? "lora", TYPES);
  const idle = (["rank", "scale", "dropout", "keys"] as const).find((name) => values[name] !== undefined);
  if (fineTuneType === "full" && idle !== undefined) throw new UsageError(`--${idle} is for lora and dora`);
  const names = Object.keys(OPTIMIZERS) as OptimizerName[];
  return {
    data: values.data,
    folder: values["adapter-path"] ?? "adapters",
    adapter: {
      fineTuneType,
      numLayers: values["num-layers"],
      ...(fineTuneType !== "full" && {
        loraParameters: {
          rank: values.rank ?? 8,
          scale: values.scale ?? 20,
          dropout: values.dropout ?? 0,
          ...(values.keys && { keys: values.keys }),
        },
      }),
    },
    args: {
      batchSize: values["batch-size"] ?? 4,
      iters: values.iters ?? 1000,
      valBatches: values["val-batches"] ?? 25,
      stepsPerReport: values["steps-per-report"] ?? 10,
      stepsPerEval: values["steps-per-eval"] ?? 200,
      stepsPerSave: values["save-every"] ?? 100,
      maxSeqLength: values["max-seq-length"] ?? 2048,
      gradCheckpoint: values["grad-checkpoint"] ?? false,
      gradAccumulationSteps: values["grad-accumulation-steps"] ?? 1,
      seed: values.seed ?? 0,
    },
    optimizer: checkOneOf("--optimizer", values.optimizer ?? "adam", names),
    learningRate: values["learning-rate"] ?? 1e-5,
  };
}

/** A new optimizer. */
export function makeOptimizer({ optimizer, learningRate }: TrainSettings): mx.optimizers.Optimizer {
  return OPTIMIZERS[optimizer](learningRate);
}

/** Fields that mlx-lm writes to adapter_config.json besides the form of the model. */
export function notesOf(values: TrainValues, { data, folder, args, optimizer, learningRate }: TrainSettings) {
  return {
    adapter_path: folder,
    batch_size: args.batchSize,
    data,
    grad_accumulation_steps: args.gradAccumulationSteps,
    grad_checkpoint: args.gradCheckpoint,
    iters: args.iters,
    learning_rate: learningRate,
    mask_prompt: values["mask-prompt"] ?? false,
    max_seq_length: args.maxSeqLength,
    model: values.model ?? "tiny-qwen3",
    optimizer,
    resume_adapter_file: values["resume-adapter-file"] ?? null,
    save_every: args.stepsPerSave,
    seed: args.seed,
    steps_per_eval: args.stepsPerEval,
    steps_per_report: args.stepsPerReport,
    train: true,
    val_batches: args.valBatches,
  };
}

/** Tells on stderr how far a training is: lines with figures, and on a terminal a bar below them. */
export class TrainingReport implements mx.lm.tuner.TrainingCallback {
  readonly #iters: number;
  readonly #bar = canRedraw() ? new Progress("Training", { unit: STEPS }) : undefined;

  #skipped = false;

  /** Called when adapters are saved. */
  readonly onSave: () => void;

  /** Of so many iterations. */
  constructor(iters: number, onSave: () => void) {
    this.#iters = iters;
    this.onSave = onSave;
  }

  /** After each iteration. */
  onStep(iteration: number, iters: number): void {
    this.#bar?.update(iteration, iters);
  }

  /** The line of the first batch that changed nothing. */
  onSkip(iteration: number): void {
    if (this.#skipped) return;
    this.#skipped = true;
    note(`Step ${iteration}/${this.#iters}: skipped, all prompts of the batch reach --max-seq-length\n`);
  }

  /** The line of a report. */
  onTrainLossReport(report: mx.lm.tuner.TrainReport): void {
    const { iteration, trainLoss, iterationsPerSecond, tokensPerSecond, peakMemory } = report;
    const left = (this.#iters - iteration) / iterationsPerSecond;
    const figures = [
      `loss ${trainLoss.toFixed(4)}`,
      `${tokensPerSecond.toFixed(0)} tokens/s`,
      describeBytes(peakMemory),
      ...(left > 0 ? [`${describeSeconds(left)} left`] : []),
    ];
    note(`Step ${iteration}/${this.#iters}: ${figures.join(", ")}\n`);
  }

  /** The line of a validation. */
  onValLossReport({ iteration, valLoss, valTime }: mx.lm.tuner.ValReport): void {
    note(`Step ${iteration}/${this.#iters}: validation loss ${valLoss.toFixed(4)}, took ${describeSeconds(valTime)}\n`);
  }

  /** Ends the bar. */
  clear(): void {
    this.#bar?.clear();
  }
}

/** Writes the plot of the losses, if there are any, to loss.svg; a terminal shows those of two reports and more. */
export function plotLosses(folder: string, trained: mx.lm.tuner.Trained): void {
  const plot = mx.lm.tuner.lossPlot(trained);
  plot?.save(join(folder, "loss.svg"));
  if (canRedraw() && trained.train.length > 1) note(`${plot}\n`);
}
