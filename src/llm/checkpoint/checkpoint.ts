/**
 * What loading a model needs, whether it lies in a folder as mlx-lm writes it or in a GGUF file.
 *
 * @module
 */

import type { Tensor } from "../../array/mod.ts";
import type { Fields } from "../config/fields.ts";
import type { GenerationConfig } from "../config/model.ts";

/** The texts that a tokenizer is made of, in the forms of a folder's files. */
export interface TokenizerTexts {
  /** Bytes of tokenizer.json. */
  readonly tokenizer: Uint8Array;
  /** Text of tokenizer_config.json. */
  readonly config: string | undefined;
  /** Text of chat_template.jinja. */
  readonly chatTemplate: string | undefined;
  /** Text of additional_chat_templates/tool_use.jinja. */
  readonly toolTemplate: string | undefined;
}

/** A model that was found and not read yet. Everything throws an {@link LlmError} that names the file. */
export interface Checkpoint {
  /** The folder or the file, for messages. */
  readonly path: string;
  /** Reads the fields of config.json, or those that stand for them, and the file that messages name. */
  readConfig(): { readonly fields: Fields; readonly file: string };
  /** Reads the defaults of generation_config.json. */
  readGenerationConfig(): GenerationConfig;
  /** Throws if files of weights are missing or are not the published ones. */
  checkFiles(signal: AbortSignal | undefined): Promise<void>;
  /** Reads the texts of the tokenizer. */
  readTokenizer(): TokenizerTexts;
  /**
   * The tensors by the names of Hugging Face or mlx-lm, none of them read. They belong to the caller. `exact` asks for all digits where
   * weights change their form.
   */
  tensors(exact: boolean): Map<string, Tensor>;
  /** Says what became of weights that change their form; undefined if none do. */
  note(exact: boolean): string | undefined;
  /** Throws if a file changed since it was compared with its checksum. */
  finish(): void;
}
