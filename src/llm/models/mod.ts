/**
 * The models that can be loaded, by the "model_type" of config.json. A new one is a module like llama.ts and a row here.
 *
 * @module
 */

import { quoted, shownPath } from "../../graph/error.ts";
import { type DecoderConfig, DRAFT_HEAD } from "../config/decoder.ts";
import type { Fields } from "../config/fields.ts";
import type { ModelConfig } from "../config/model.ts";
import { listed, LlmError } from "../error.ts";
import { DecoderModel } from "../layers/decoder_model.ts";
import type { Stack } from "../checkpoint/expert_stacks.ts";
import {
  decoderModules,
  type ModuleOrder,
  ropeTableBytes,
  type StoredHeads,
  type WeightModule,
} from "../layers/modules.ts";
import type { Change, ShapeOf, Weights } from "../checkpoint/weights.ts";
import { adviceFor } from "./absent.ts";
import type { LanguageModel } from "./language_model.ts";
import * as gemma from "./gemma.ts";
import * as gemma2 from "./gemma2.ts";
import * as gemma3Text from "./gemma3_text.ts";
import * as gemma4Text from "./gemma4_text.ts";
import * as glm4MoeLite from "./glm4_moe_lite.ts";
import * as gptOss from "./gpt_oss.ts";
import * as granite from "./granite.ts";
import * as lfm2 from "./lfm2.ts";
import * as lfm2Moe from "./lfm2_moe.ts";
import * as llama from "./llama.ts";
import * as ministral3 from "./ministral3.ts";
import * as mixtral from "./mixtral.ts";
import { olmo2, olmo3 } from "./olmo.ts";
import * as phi3 from "./phi3.ts";
import * as qwen2 from "./qwen2.ts";
import * as qwen2Moe from "./qwen2_moe.ts";
import * as qwen3 from "./qwen3.ts";
import * as qwen3_5 from "./qwen3_5.ts";
import * as qwen3Moe from "./qwen3_moe.ts";
import * as qwen3Next from "./qwen3_next.ts";
import * as smollm3 from "./smollm3.ts";
import { nameInText, TEXT_PREFIX, textFields } from "./text_part.ts";

export { type DecodingModel, decodingModel, type Draft, type LanguageModel, type Traces } from "./language_model.ts";

/** A field of an object in config.json, and the name that mlx-lm writes. */
export type MovedField = readonly [object: string, from: string, to: string];

/** A model that was described but not built. */
export interface Architecture {
  /** The fields of config.json. */
  readonly config: ModelConfig;
  /** Its modules that hold weights, in mlx-lm's order; the heads that are stored decide where the config does not. */
  modules(stored: StoredHeads): readonly WeightModule[];
  /** Bytes of tables that mlx-lm computes when it loads the model, and counts as part of it; no file has them. */
  readonly tableBytes: number;
  /** Whether a module of this path gets 8 bits where others get fewer, if no recipe and no function says how. */
  widened(path: string): boolean;
  /** Whether the converter keeps the dtype of a module's floats, whatever the dtype of the others. */
  keepsDtype(path: string): boolean;
  /** Whether a checkpoint may have a head that drafts tokens. */
  readonly mayDraft: boolean;
  /** Tensors that may be stored in parts, by other names. */
  readonly stacks: readonly Stack[];
  /** Changes of tensors of the makers' layout, by names within the model. */
  changes(shapeOf: ShapeOf): readonly Change[];
  /** Fields that mlx-lm gives to "text_config" and writes there; none in other configs. */
  readonly textFields: Readonly<Record<string, unknown>>;
  /** Fields of objects that mlx-lm writes by other names, in "text_config" if there is one. */
  readonly movedFields: readonly MovedField[];
  /** What mlx-lm's names of its modules begin with, before the names that they have here. */
  readonly prefix: string;
  /** The name of a stored tensor here; undefined for one that is left out. */
  nameOf(stored: string): string | undefined;
  /**
   * Builds the model from its tensors, which are whole. The head that drafts tokens is left out unless `draftHead`. `prefix` is for an
   * architecture that has the tensors of another one under a name.
   */
  build(weights: Weights, draftHead?: boolean, prefix?: string): LanguageModel;
}

/** A family whose model is a {@link DecoderModel}. */
interface Family {
  /** Reads and checks config.json. */
  readArgs(fields: Fields): DecoderConfig;
  /** The order of modules in mlx-lm, which the converter keeps; absent where it is that of the fields here. */
  readonly ORDER?: ModuleOrder;
  /** Modules that the converter gives 8 bits, by the end of their paths; none if absent. */
  readonly WIDENED?: readonly string[];
  /** Modules that it leaves dense, because mlx-lm has no quantized form of them. */
  readonly DENSE?: readonly string[];
  /** Modules whose floats keep their dtype when a model is converted, by the end of their paths; none if absent. */
  readonly KEPT?: readonly string[];
  /** Fields of objects in config.json that mlx-lm writes by other names; none if absent. */
  readonly MOVED?: readonly MovedField[];
  /** The name of a stored tensor here, undefined for one that is left out; absent where all names are the same. */
  nameOf?(stored: string, config: DecoderConfig): string | undefined;
  /** Changes of tensors of the makers' layout, which the converter makes too. */
  changes?(config: DecoderConfig, shapeOf: ShapeOf): readonly Change[];
  /** Gives further tensors of the makers' layout mlx-lm's names and shapes: such a model is loaded but not converted. */
  arrange?(weights: Weights, config: DecoderConfig): void;
  /** Tensors that may be stored in parts. */
  stacks?(config: DecoderConfig): readonly Stack[];
}

function decoder(family: Family): (fields: Fields) => Architecture {
  const { readArgs, ORDER = {}, WIDENED = [], DENSE = [], KEPT = [], MOVED = [], nameOf, changes, arrange, stacks } =
    family;
  return (fields) => {
    const config = readArgs(fields);
    return {
      config,
      modules: (stored) => decoderModules(config, stored, ORDER, DENSE),
      tableBytes: ropeTableBytes(config),
      widened: (path) => WIDENED.some((end) => path.endsWith(end)),
      keepsDtype: (path) => KEPT.some((end) => path.endsWith(end)),
      mayDraft: config.mayDraft === true,
      stacks: stacks?.(config) ?? [],
      textFields: {},
      movedFields: MOVED,
      prefix: "",
      nameOf: (stored) => nameOf ? nameOf(stored, config) : stored,
      changes: (shapeOf) => changes?.(config, shapeOf) ?? [],
      build(weights, draftHead = false, prefix = "") {
        if (config.mayDraft && !draftHead) weights.drop(DRAFT_HEAD);
        for (const { name, make } of changes?.(config, (name) => weights.shapeOf(name)) ?? []) {
          weights.replace(name, () => true, (x) => ({ [name]: make(x) }));
        }
        arrange?.(weights, config);
        return new DecoderModel(config, weights, undefined, prefix);
      },
    };
  };
}

/** A checkpoint with a vision part whose text part is a model of a family. `own` are fields that it has beside those of "text_config". */
function textPart(
  describe: (fields: Fields) => Architecture,
  own: (fields: Fields, text: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>,
): (fields: Fields) => Architecture {
  return (fields) => {
    const added = own(fields, fields.record("text_config"));
    return { ...inText(describe(textFields(fields, added))), textFields: added };
  };
}

/** An architecture whose tensors have the names of the text part of another one. */
function inText(text: Architecture): Architecture {
  const nameOf = (stored: string): string | undefined => {
    const own = nameInText(stored);
    return own === undefined ? undefined : text.nameOf(own);
  };
  return {
    ...text,
    prefix: TEXT_PREFIX,
    nameOf,
    build: (weights, draftHead) => text.build(weights, draftHead, TEXT_PREFIX),
  };
}

/** The text of Qwen3.5: its fields are those of "text_config", or all. Tensors have the names of a text part in any case. */
function qwen35(fields: Fields): Architecture {
  return fields.has("text_config") ? textPart(decoder(qwen3_5), () => ({}))(fields) : inText(decoder(qwen3_5)(fields));
}

/** The family of the text part of Mistral 3. */
function mistral3Text(fields: Fields): (fields: Fields) => Architecture {
  const { model_type: type = "mistral" } = fields.record("text_config");
  if (type === "ministral3") return decoder(ministral3);
  if (type !== "mistral" && type !== "llama") {
    fields.problem(`"text_config.model_type" is ${quoted(type)}: supported are "ministral3", "mistral", "llama"`);
  }
  return decoder(type === "llama" ? llama : llama.mistral);
}

/** The vocabulary of Gemma 3 with images. */
const GEMMA3_VOCABULARY = 262208;
/** The vocabulary of Gemma 4. */
const GEMMA4_VOCABULARY = 262144;

/** The text part of Gemma 4, whose vocabulary is a field of the whole config. */
const gemma4 = textPart(
  decoder(gemma4Text),
  (fields, { num_attention_heads = 8, num_key_value_heads = 1 }) => ({
    vocab_size: fields.values.vocab_size ?? GEMMA4_VOCABULARY,
    num_attention_heads,
    num_key_value_heads,
  }),
);

const MODELS: Readonly<Record<string, (fields: Fields) => Architecture>> = {
  gemma: decoder(gemma),
  gemma2: decoder(gemma2),
  gemma3: textPart(
    decoder(gemma3Text),
    (fields, { num_attention_heads = 8, num_key_value_heads = 4 }) => ({
      vocab_size: fields.values.vocab_size ?? GEMMA3_VOCABULARY,
      num_attention_heads,
      num_key_value_heads,
    }),
  ),
  gemma3_text: decoder(gemma3Text),
  gemma4,
  gemma4_text: decoder(gemma4Text),
  gemma4_unified: gemma4, // without an encoder of images
  glm4_moe_lite: decoder(glm4MoeLite),
  gpt_oss: decoder(gptOss),
  granite: decoder(granite),
  granitemoe: decoder(granite.moe),
  granitemoehybrid: decoder(granite.hybrid),
  lfm2: decoder(lfm2),
  lfm2_moe: decoder(lfm2Moe),
  llama: decoder(llama),
  ministral3: decoder(ministral3),
  mistral: decoder(llama.mistral),
  mistral3: (fields) =>
    textPart(
      mistral3Text(fields),
      (_, { tie_word_embeddings = false }) => ({ tie_word_embeddings }),
    )(fields),
  mixtral: decoder(mixtral),
  olmo2: decoder(olmo2),
  olmo3: decoder(olmo3),
  phi3: decoder(phi3),
  qwen2: decoder(qwen2),
  qwen2_moe: decoder(qwen2Moe),
  qwen3: decoder(qwen3),
  qwen3_5: qwen35,
  qwen3_5_moe: qwen35,
  qwen3_5_moe_text: decoder(qwen3_5),
  qwen3_5_text: decoder(qwen3_5),
  qwen3_moe: decoder(qwen3Moe),
  qwen3_next: decoder(qwen3Next),
  smollm3: decoder(smollm3),
};

/** Most types that a message lists. */
const MAX_LISTED = 20;

/** Reads config.json. Throws an {@link LlmError} that names every wrong field, or known types when the type is not one. */
export function describeModel(fields: Fields, file: string): Architecture {
  const type = fields.string("model_type");
  if (!Object.hasOwn(MODELS, type)) {
    if (type === "") fields.finish();
    throw new LlmError(
      "config",
      `${shownPath(file)}: model_type ${quoted(type)} is not known: known are ${
        listed(Object.keys(MODELS), MAX_LISTED)
      }, see ` +
        `docs/models.md. ${adviceFor(type)}`,
    );
  }
  return MODELS[type](fields);
}
