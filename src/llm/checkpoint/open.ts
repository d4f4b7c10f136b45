/**
 * Finds the form of a checkpoint: a model directory or GGUF files.
 *
 * @module
 */

import { join } from "node:path";
import { shownPath } from "../../graph/error.ts";
import { listed, LlmError } from "../error.ts";
import type { Checkpoint } from "./checkpoint.ts";
import { DirectoryCheckpoint } from "./directory.ts";
import { GgufCheckpoint } from "./gguf/checkpoint.ts";
import { isGguf, partNumber, weightFiles } from "./shards.ts";
import type { Verify } from "./verify.ts";
import { modelFiles } from "./model_files.ts";

/** Files of llama.cpp that hold the vision part of a model. */
const VISION = /^mmproj/;

/**
 * Opens a folder with a model, in safetensors or in one GGUF file or its parts, or such a file. `drafts`: with the file of the head that
 * drafts tokens, if there is one.
 */
export function openCheckpoint(path: string, verify: Verify | undefined, drafts: boolean = false): Checkpoint {
  if (isGguf(path)) return new GgufCheckpoint(path, verify);
  const names = modelFiles(path);
  const files = names.filter(isGguf);
  if (files.length === 0 || weightFiles(path, names).length > 0) {
    return new DirectoryCheckpoint(path, names, verify, drafts);
  }
  return new GgufCheckpoint(join(path, modelAmong(path, files)), verify);
}

/** The only model among the GGUF files of a folder. */
function modelAmong(path: string, files: readonly string[]): string {
  const models = files.filter((name) => !VISION.test(name) && partNumber(name) === 1).sort();
  if (models.length === 1) return models[0];
  const found = models.length === 0
    ? "no model among its GGUF files"
    : `several models: ${listed(models.map(shownPath))}`;
  throw new LlmError("weights", `${shownPath(path)} has ${found}: name one of its files`);
}
