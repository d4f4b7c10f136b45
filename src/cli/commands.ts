/**
 * The commands of `vkmx`: one row each, and one file in src/cli/commands, which is loaded when the command runs.
 *
 * A new command is a row here and a file whose default export is `command({ name: "vkmx NAME", about, flags, … }, main)`.
 *
 * @module
 */

import type { Command } from "./program.ts";

/** A row of the table. */
export interface CommandRow {
  /** Its purpose, in a few words for the list of all. */
  readonly summary: string;
  /** Loads it. */
  readonly load: () => Promise<{ readonly default: Command }>;
}

/** Every command by name, in the order of the list. */
export const COMMANDS: Readonly<Record<string, CommandRow>> = {
  generate: {
    summary: "continue or answer a prompt",
    load: () => import("./commands/generate.ts"),
  },
  chat: { summary: "talk with a model on the terminal", load: () => import("./commands/chat.ts") },
  serve: {
    summary: "serve models over HTTP: the APIs of OpenAI, Anthropic, ollama",
    load: () => import("./commands/serve.ts"),
  },
  pull: { summary: "download a model of the Hugging Face Hub", load: () => import("./commands/pull.ts") },
  models: { summary: "list, show, remove or verify models", load: () => import("./commands/models.ts") },
  convert: {
    summary: "write a model with another dtype, quantized or dense",
    load: () => import("./commands/convert.ts"),
  },
  quantize: { summary: "write a model in 2 to 8 bits", load: () => import("./commands/quantize.ts") },
  train: {
    summary: "fine-tune a model: LoRA, DoRA or full",
    load: () => import("./commands/train.ts"),
  },
  fuse: {
    summary: "write a model with adapters fused into it",
    load: () => import("./commands/fuse.ts"),
  },
  launch: {
    summary: "start a program in several processes",
    load: () => import("./commands/launch.ts"),
  },
  devices: { summary: "list the devices of this machine", load: () => import("./commands/devices.ts") },
  doctor: { summary: "check what is here and say what is missing", load: () => import("./commands/doctor.ts") },
  bench: { summary: "measure how fast a model runs", load: () => import("./commands/bench.ts") },
  perplexity: {
    summary: "score how well a model predicts a text",
    load: () => import("./commands/perplexity.ts"),
  },
  completions: {
    summary: "print completions for bash, zsh or fish",
    load: async () => ({ default: (await import("./commands/completions.ts")).completionsOf(COMMANDS) }),
  },
  kernel: { summary: "add a kernel to Jupyter whose Stop button works", load: () => import("./commands/kernel.ts") },
};

/** Command names of other programs, with the advice for each. */
export const HABITS: Readonly<Record<string, string>> = {
  complete: "did you mean generate?",
  run: "did you mean chat?",
  server: "did you mean serve?",
  list: "did you mean models list?",
  ls: "did you mean models list?",
  show: "did you mean models show?",
  rm: "did you mean models remove?",
  remove: "did you mean models remove?",
  download: "did you mean pull?",
  lora: "did you mean train?",
  finetune: "did you mean train?",
  "fine-tune": "did you mean train?",
  tune: "did you mean train?",
  merge: "did you mean fuse?",
  "export-lora": "did you mean fuse?",
  mpirun: "did you mean launch?",
  ppl: "did you mean perplexity?",
  eval: "did you mean perplexity?",
  version: "did you mean --version?",
};
