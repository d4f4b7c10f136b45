/**
 * What loading a model needs, whether it is in a folder as mlx-lm writes it or in a GGUF file.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import type { Fields } from "../config/fields.ts";
import type { GenerationConfig } from "../config/model.ts";
import type { ArrayLimits } from "./row_parts.ts";
import type { ReadTokenizerSource, TokenizerSource } from "../tokenizer/tokenizer.ts";

/** What `Tokenizer.load` takes beside what the model says. */
export type TokenizerTexts =
  & Pick<TokenizerSource, "config" | "chatTemplate" | "toolTemplate">
  & (Pick<TokenizerSource, "tokenizer" | "format"> | Pick<ReadTokenizerSource, "file">);

/** The words of messages about the tensors of a checkpoint. */
export interface CheckpointTerms {
  /** What says which tensors there are. */
  readonly config: string;
  /** The name in the file of a tensor, by its name here. */
  nameOf(name: string): string;
}

/** Those of a folder, whose tensors have mlx-lm's names. */
export const FOLDER_TERMS: CheckpointTerms = { config: "config.json", nameOf: (name) => name };

/** A model that was found and not read yet. Everything throws an {@link LlmError} that names the file. */
export interface Checkpoint {
  /** The folder or the file, for messages. */
  readonly path: string;
  /** Reads the fields of config.json, or those that stand for them, and the file that messages name. */
  readConfig(): { readonly fields: Fields; readonly file: string };
  /** How messages name a tensor of mlx-lm's name, and what it has to fit. */
  readonly terms: CheckpointTerms;
  /** Reads the defaults of generation_config.json. */
  readGenerationConfig(): GenerationConfig;
  /** Throws if files of weights are missing or are not the published ones. */
  checkFiles(signal: AbortSignal | undefined): Promise<void>;
  /** Reads the tokenizer of a model with so many embeddings. */
  readTokenizer(embeddings: number): TokenizerTexts;
  /**
   * The tensors by the names of Hugging Face or mlx-lm, none of them read. They belong to the caller. `exact` asks for all digits where
   * weights change their form. Tensors above `most` are in parts of rows, see row_parts.ts.
   */
  tensors(exact: boolean, most?: ArrayLimits): Map<string, Tensor>;
  /** Says what became of weights that change their form; undefined if none do. */
  note(exact: boolean): string | undefined;
  /** Throws if a file changed since it was compared with its checksum. */
  finish(): void;
}
