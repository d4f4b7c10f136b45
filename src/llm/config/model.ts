/**
 * Reads the fields of config.json that all models have (vocabulary, context, EOS, quantization), and generation_config.json.
 *
 * decoder.ts reads the other fields that decoders share, and a family's module in models/ its special ones.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type CodeFormat, type CodeMode, QUANTIZATION_MODES, type QuantizationMode } from "../../graph/quantization.ts";
import { Fields } from "./fields.ts";

/** Quantization of one module. */
export interface Quantization<Mode extends CodeMode = QuantizationMode> extends CodeFormat {
  /** How codes are read. Default "affine". */
  readonly mode?: Mode;
}

/** The "quantization" block: a default and the modules that differ from it (`undefined` keeps a module dense). */
export interface QuantizationConfig {
  /** How modules are quantized. */
  readonly base: Quantization;
  /** Modules that differ, by path. */
  readonly overrides: ReadonlyMap<string, Quantization | undefined>;
}

/** The fields of config.json that every model has. */
export interface ModelConfig {
  /** The "model_type" that names the architecture. */
  readonly modelType: string;
  /** Rows of the embedding. */
  readonly vocabSize: number;
  /** The longest context in tokens. */
  readonly maxPositionEmbeddings: number;
  /** Whether the head shares the embedding's weights; undefined if config.json does not say, and then a head that is stored decides. */
  readonly tieWordEmbeddings: boolean | undefined;
  /** Tokens that end a generation, from config.json. */
  readonly eosTokenIds: readonly number[];
  /** The quantization block, when there is one. */
  readonly quantization: QuantizationConfig | undefined;
}

/** generation_config.json: how the model's makers suggest to sample. */
export interface GenerationConfig {
  /** Tokens that end a generation; they take the place of config.json's. */
  readonly eosTokenIds: readonly number[];
  /** 0 when `do_sample` is false. */
  readonly temperature: number | undefined;
  /** Keep the most likely tokens. */
  readonly topK: number | undefined;
  /** Keep the most probable tokens up to this share of probability. */
  readonly topP: number | undefined;
  /** Drop tokens whose probability is below this share of the highest one. */
  readonly minP: number | undefined;
}

// Far above any model. Sizes are compared with the tensors that are stored, and until then nothing may be made of them.
const MAX_VOCABULARY = 2 ** 26;
/** Positions are int32. */
export const MAX_POSITION: number = 2 ** 31 - 1;

/**
 * The fields that all models share; the caller reads its own from the same {@link Fields} and then calls `finish()`. The longest
 * context may be left out where a family has a `context` of its own.
 */
export function readModelConfig(fields: Fields, context?: number): ModelConfig {
  return {
    modelType: fields.string("model_type"),
    vocabSize: fields.count("vocab_size", MAX_VOCABULARY),
    maxPositionEmbeddings: fields.count("max_position_embeddings", MAX_POSITION, context),
    // No default is safe: mlx-lm takes true, transformers false.
    tieWordEmbeddings: fields.has("tie_word_embeddings") ? fields.flag("tie_word_embeddings") : undefined,
    eosTokenIds: fields.tokenIds("eos_token_id"),
    quantization: readQuantization(fields),
  };
}

/** generation_config.json; an absent file is `undefined` and gives an object without wishes. */
export function readGenerationConfig(text: string | undefined, file: string): GenerationConfig {
  const fields = text === undefined ? new Fields({}, file) : Fields.parse(text, file);
  const optional = (name: string, low: number, high: number): number | undefined =>
    fields.has(name) ? fields.within(name, low, high) : undefined;
  const sampled = fields.flag("do_sample", true);
  const config: GenerationConfig = {
    eosTokenIds: fields.tokenIds("eos_token_id"),
    temperature: sampled ? optional("temperature", 0, 100) : 0,
    topK: fields.has("top_k") ? fields.whole("top_k", 0, 2 ** 31) : undefined,
    topP: optional("top_p", 0, 1),
    minP: optional("min_p", 0, 1),
  };
  fields.finish();
  return config;
}

/** Values of "quant_method" whose packed tensors are those of a mode. */
const METHODS: Readonly<Record<string, Quantization>> = {
  mxfp4: { ...QUANTIZATION_MODES.mxfp4.defaults, mode: "mxfp4" },
  mxfp8: { ...QUANTIZATION_MODES.mxfp8.defaults, mode: "mxfp8" },
};

/**
 * "quantization" as mlx-lm writes it (mirrored as "quantization_config"): group_size and bits for all modules. Further keys name
 * single modules, with a block of their own or false for dense ones.
 */
function readQuantization(fields: Fields): QuantizationConfig | undefined {
  const name = fields.has("quantization") ? "quantization" : "quantization_config";
  if (!fields.has(name)) return undefined;
  const block = fields.values[name];
  if (typeof block !== "object" || block === null || Array.isArray(block)) {
    fields.problem(`"${name}" is ${quoted(block)}, expected an object with "group_size" and "bits"`);
    return undefined;
  }
  const { quant_method: method } = block as Record<string, unknown>;
  if (name === "quantization_config" && typeof method === "string" && Object.hasOwn(METHODS, method)) {
    return { base: METHODS[method], overrides: new Map() };
  }
  if (method !== undefined && !("group_size" in block && "bits" in block && name === "quantization")) {
    fields.problem(`"${name}" uses quant_method ${quoted(method)}: convert the model with mlx_lm.convert first`);
    return undefined;
  }
  const base = readQuantizationRow(fields, block as Record<string, unknown>, name);
  const overrides = new Map<string, Quantization | undefined>();
  for (const [path, row] of Object.entries(block)) {
    if (row === false) overrides.set(path, undefined);
    else if (typeof row === "object" && row !== null && !Array.isArray(row)) {
      overrides.set(path, readQuantizationRow(fields, row as Record<string, unknown>, `${name}.${path}`));
    }
  }
  return { base, overrides };
}

function readQuantizationRow(fields: Fields, row: Record<string, unknown>, path: string): Quantization {
  const name = row.mode ?? "affine";
  if (typeof name !== "string" || !Object.hasOwn(QUANTIZATION_MODES, name)) {
    const all = Object.keys(QUANTIZATION_MODES).join(", ");
    fields.problem(`${quoted(path)} has mode ${quoted(name)}, expected ${all}`);
    return QUANTIZATION_MODES.affine.defaults;
  }
  const mode = name as QuantizationMode;
  const known = QUANTIZATION_MODES[mode];
  // The defaults of mlx-lm for fields that are missing or null.
  const groupSize = row.group_size ?? known.defaults.groupSize;
  const bits = row.bits ?? known.defaults.bits;
  if (!known.groupSizes.includes(groupSize as number)) {
    fields.problem(`${quoted(path)} has group_size ${quoted(groupSize)}, expected ${known.groupSizes.join(", ")}`);
  }
  if (!known.bits.includes(bits as number)) {
    fields.problem(`${quoted(path)} has bits ${quoted(bits)}, expected ${known.bits.join(", ")}`);
  }
  return { groupSize: groupSize as number, bits: bits as number, ...(mode !== "affine" && { mode }) };
}
