/**
 * Which files of a model are wanted.
 *
 * @module
 */

import { INDEX_FILE } from "../checkpoint/shards.ts";
import type { RepoFile } from "./listing.ts";

/**
 * The downloaded files of a model: those that loading reads, here and in Python. As in a shell, "*" stops at "/", so folders with other
 * formats (`onnx/`, `original/`) stay where they are.
 */
export const MODEL_PATTERNS: readonly string[] = [
  "*.json",
  "*.safetensors",
  "*.jinja",
  "additional_chat_templates/*.jinja",
  "tokenizer*",
  "*.txt",
];

/** Those of the files that must be complete before the model is loaded, if it has them. */
export const LOADED_PATTERNS: readonly string[] = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer.model",
  "tekken.json",
  "tokenizer_config.json",
  "chat_template.jinja",
  "additional_chat_templates/tool_use.jinja",
  INDEX_FILE,
  "model*.safetensors",
  "mtp.safetensors",
];

/** The same weights once more, in the layout of their maker. */
const SECOND_COPY = /^consolidated[^/]*\.safetensors$/;

/** Formats that run code when they are read. They are never downloaded, whatever the patterns say. */
const PICKLES = /\.(?:bin|ckpt|pickle|pkl|pt|pth|joblib|dill|npy|npz|h5|keras|py)$/i;

/** The files that match patterns and no excluding pattern, smallest first: small files soon show what is wrong with a model. */
export function select(
  files: readonly RepoFile[],
  patterns: readonly string[] = MODEL_PATTERNS,
  exclude: readonly string[] = [],
): RepoFile[] {
  const wanted = patterns.map(patternOf);
  const unwanted = exclude.map(patternOf);
  return files.filter(({ name }) =>
    wanted.some((pattern) => pattern.test(name)) && !unwanted.some((pattern) => pattern.test(name)) &&
    !PICKLES.test(name) &&
    !(patterns === MODEL_PATTERNS && SECOND_COPY.test(name))
  ).toSorted((a, b) => a.size - b.size);
}

/** A pattern of a shell: "*" for anything but "/", "**" for anything, "?" for one character. */
function patternOf(pattern: string): RegExp {
  const parts = pattern.split(/(\*+|\?)/).map((part, i) =>
    i % 2 === 0 ? part.replace(/[^\w/-]/g, "\\$&") : part === "?" ? "[^/]" : part === "*" ? "[^/]*" : ".*"
  );
  return new RegExp(`^${parts.join("")}$`, "s");
}

/** Whether a file holds weights. */
export function isWeights(name: string): boolean {
  return name.endsWith(".safetensors") || name.endsWith(".gguf");
}
