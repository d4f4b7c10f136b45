/** Mistakes in training: src/llm/tuner. */

import type { Mutant } from "./mutant.ts";

export const TRAINING = [
  {
    name: "accumulated gradients are added, not averaged",
    file: "src/llm/tuner/steps.ts",
    find: "count === 1 ? sum",
    replace: "count >= 1 ? sum",
    tests: ["tests/training/tuner_test.ts", "tests/training/loop_test.ts"],
  },
  {
    name: "parts of a batch count alike, whatever their tokens",
    file: "src/llm/tuner/processes.ts",
    find: "mx.multiply(gradient, weight)",
    replace: "mx.multiply(gradient, 1)",
    tests: ["tests/distributed/train_test.ts"],
  },
  {
    name: "the buffer of a carried value is lent while a part reads it",
    file: "src/schedule/exchange_parts.ts",
    find: "until < value.made",
    replace: "until <= value.made",
    tests: ["tests/distributed/exchange_loop_test.ts", "tests/distributed/tensor_parallel_test.ts"],
  },
  {
    name: "a new value is written while a later part reads the old one",
    file: "src/schedule/exchange_parts.ts",
    find: "else if (at > part && ",
    replace: "else if (at > part + 9 && ",
    tests: ["tests/distributed/exchange_loop_test.ts"],
  },
  {
    name: "a value is copied to another device before it is computed",
    file: "src/schedule/exchange_parts.ts",
    find: "this.#copy(own, node, from + 1, part)",
    replace: "this.#copy(own, node, from, part)",
    tests: ["tests/distributed/device_loop_test.ts"],
  },
  {
    name: "parts end between layers that share keys and values",
    file: "src/llm/placement/plan.ts",
    find: "source < end && layer >= end",
    replace: "source < end && layer > end",
    tests: ["tests/llm/placement/plan_test.ts"],
  },
  {
    name: "experts in host memory take no room where host and device have one memory",
    file: "src/llm/placement/fit.ts",
    find: "if ((host === undefined ? all : left) + cache > device)",
    replace: "if (left + cache > device)",
    tests: ["tests/llm/placement/fit_test.ts"],
  },
  {
    name: "the loss leaves out the token that follows an example",
    file: "src/llm/tuner/loss.ts",
    find: "mx.lessEqual(steps, last)",
    replace: "mx.less(steps, last)",
    tests: ["tests/training/tuner_test.ts", "tests/training/loop_test.ts"],
  },
  {
    name: "an example that was cut counts with its whole length",
    file: "src/llm/tuner/batches.ts",
    find: "lengths.set([offset, kept.length], 2 * row);",
    replace: "lengths.set([offset, tokens.length], 2 * row);",
    tests: ["tests/training/tuner_test.ts", "tests/training/loop_test.ts"],
  },
  {
    name: "adapters are fused without their scale",
    file: "src/llm/tuner/lora.ts",
    find: "mx.matmul(mx.multiply(this.lora_b.T, this.scale), this.lora_a.T)",
    replace: "mx.matmul(this.lora_b.T, this.lora_a.T)",
    tests: ["tests/training/tuner_test.ts", "tests/training/finetune_test.ts"],
  },
  {
    name: "the length of adapted rows has a gradient",
    file: "src/llm/tuner/dora.ts",
    find: "mx.divide(this.m, mx.stopGradient(lengths(adapted))).astype(x.dtype)",
    replace: "mx.divide(this.m, lengths(adapted)).astype(x.dtype)",
    tests: ["tests/training/tuner_test.ts", "tests/training/finetune_test.ts"],
  },
  {
    name: "a text that ends with the last token gets it once more",
    file: "src/llm/tuner/datasets.ts",
    find: "if (end !== undefined && tokens.at(-1) !== end) tokens.push(end);",
    replace: "if (end !== undefined) tokens.push(end);",
    tests: ["tests/training/tuner_test.ts", "tests/training/finetune_test.ts"],
  },
] as const satisfies readonly Mutant[];
