/**
 * The models that can be loaded, by the "model_type" of config.json. A new one is a module like llama.ts and a row here.
 *
 * @module
 */

import { quoted, shownPath } from "../../graph/error.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";
import type { ModelConfig } from "../config/model.ts";
import { LlmError } from "../error.ts";
import { DecoderModel } from "../layers/decoder_model.ts";
import type { Stack } from "../checkpoint/expert_stacks.ts";
import { decoderModules, ropeTableBytes, type WeightModule } from "../layers/modules.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { adviceFor } from "./absent.ts";
import type { LanguageModel } from "./language_model.ts";
import * as granite from "./granite.ts";
import * as llama from "./llama.ts";
import * as ministral3 from "./ministral3.ts";
import * as mixtral from "./mixtral.ts";
import * as olmo2 from "./olmo2.ts";
import * as olmo3 from "./olmo3.ts";
import * as phi3 from "./phi3.ts";
import * as qwen2 from "./qwen2.ts";
import * as qwen2Moe from "./qwen2_moe.ts";
import * as qwen3 from "./qwen3.ts";
import * as qwen3Moe from "./qwen3_moe.ts";
import * as smollm3 from "./smollm3.ts";

export { type DecodingModel, decodingModel, type LanguageModel, type Traces } from "./language_model.ts";

/** A model that was described but not built. */
export interface Architecture {
  /** The fields of config.json. */
  readonly config: ModelConfig;
  /** Its modules that hold weights, in mlx-lm's order; whether a head is stored decides where the config does not. */
  modules(hasHead: boolean): readonly WeightModule[];
  /** Bytes of tables that mlx-lm computes when it loads the model, and counts as part of it; no file has them. */
  readonly tableBytes: number;
  /** Whether a module of this path gets 8 bits where others get fewer, if no recipe and no function says how. */
  widened(path: string): boolean;
  /** Tensors that may be stored in parts, by other names. */
  readonly stacks: readonly Stack[];
  /** Builds the model from its tensors, which are whole. */
  build(weights: Weights): LanguageModel;
}

/** A family whose model is a {@link DecoderModel}. */
interface Family {
  /** Reads and checks config.json. */
  readArgs(fields: Fields): DecoderConfig;
  /** Modules that the converter gives 8 bits, by the end of their paths; none if absent. */
  readonly WIDENED?: readonly string[];
  /** Tensors that may be stored in parts. */
  stacks?(config: DecoderConfig): readonly Stack[];
}

function decoder({ readArgs, WIDENED = [], stacks }: Family): (fields: Fields) => Architecture {
  return (fields) => {
    const config = readArgs(fields);
    return {
      config,
      modules: (hasHead) => decoderModules(config, hasHead),
      tableBytes: ropeTableBytes(config),
      widened: (path) => WIDENED.some((end) => path.endsWith(end)),
      stacks: stacks?.(config) ?? [],
      build: (weights) => new DecoderModel(config, weights),
    };
  };
}

const MODELS: Readonly<Record<string, (fields: Fields) => Architecture>> = {
  granite: decoder(granite),
  llama: decoder(llama),
  ministral3: decoder(ministral3),
  mistral: decoder(llama),
  mixtral: decoder(mixtral),
  olmo2: decoder(olmo2),
  olmo3: decoder(olmo3),
  phi3: decoder(phi3),
  qwen2: decoder(qwen2),
  qwen2_moe: decoder(qwen2Moe),
  qwen3: decoder(qwen3),
  qwen3_moe: decoder(qwen3Moe),
  smollm3: decoder(smollm3),
};

/** Reads config.json. Throws an {@link LlmError} that names every wrong field, or the known types when the type is not one. */
export function describeModel(fields: Fields, file: string): Architecture {
  const type = fields.string("model_type");
  if (!Object.hasOwn(MODELS, type)) {
    if (type === "") fields.finish();
    throw new LlmError(
      "config",
      `${shownPath(file)}: model_type ${quoted(type)} is not known: known are ${Object.keys(MODELS).join(", ")}. ` +
        adviceFor(type),
    );
  }
  return MODELS[type](fields);
}
