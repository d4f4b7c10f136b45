/**
 * The models that can be loaded, by the "model_type" of config.json. A new one is a module like qwen3.ts and a row here.
 *
 * @module
 */

import { quoted, shownPath } from "../../graph/error.ts";
import type { Fields, ModelConfig } from "../config.ts";
import { LlmError } from "../error.ts";
import type { Weights } from "../weights.ts";
import type { LanguageModel } from "./language_model.ts";
import * as qwen3 from "./qwen3.ts";

export type { LanguageModel };

/** A model that was described but not built. */
export interface Architecture {
  /** What config.json says. */
  readonly config: ModelConfig;
  /** Builds the model from its tensors. */
  build(weights: Weights): LanguageModel;
}

function row<A extends ModelConfig>(
  module: { readArgs(fields: Fields): A; Model: new (args: A, weights: Weights) => LanguageModel },
): (fields: Fields) => Architecture {
  return (fields) => {
    const config = module.readArgs(fields);
    return { config, build: (weights) => new module.Model(config, weights) };
  };
}

const MODELS: Readonly<Record<string, (fields: Fields) => Architecture>> = {
  qwen3: row(qwen3),
};

/** Reads config.json. Throws an {@link LlmError} that names every wrong field, or the known types when the type is not one. */
export function describeModel(fields: Fields, file: string): Architecture {
  const type = fields.string("model_type");
  if (!Object.hasOwn(MODELS, type)) {
    if (type === "") fields.finish();
    throw new LlmError(
      "config",
      `${shownPath(file)}: model_type ${quoted(type)} is not known: known are ${Object.keys(MODELS).join(", ")}`,
    );
  }
  return MODELS[type](fields);
}
