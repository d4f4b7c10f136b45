/**
 * Reads config.json and generation_config.json of a model directory.
 *
 * A {@link Fields} collects every absent or wrong field before it throws, so that one message names them all. What is
 * common to all models (vocabulary, context, EOS, quantization, rope scaling) is read here; what belongs to one
 * architecture is read by its module in models/.
 *
 * @module
 */

import { quoted, shownPath } from "../graph/error.ts";
import { listed, LlmError } from "./error.ts";

/** Affine quantization of one module. */
export interface Quantization {
  /** Neighbouring weights of a row that share a scale and a bias. */
  readonly groupSize: number;
  /** Bits of a weight. */
  readonly bits: number;
}

/** The "quantization" block: a default and the modules that differ from it (`undefined` keeps a module dense). */
export interface QuantizationConfig {
  /** How modules are quantized. */
  readonly base: Quantization;
  /** Modules that differ, by path. */
  readonly overrides: ReadonlyMap<string, Quantization | undefined>;
}

/** How positions are stretched beyond the trained context. */
export type RopeScaling =
  | { readonly type: "default" }
  | { readonly type: "linear"; readonly factor: number }
  | {
    readonly type: "yarn";
    readonly factor: number;
    readonly originalMaxPositionEmbeddings: number;
    readonly betaFast: number;
    readonly betaSlow: number;
    readonly mscale: number;
    readonly mscaleAllDim: number;
  };

/** The fields of config.json that every model has. */
export interface ModelConfig {
  /** The "model_type" that names the architecture. */
  readonly modelType: string;
  /** Rows of the embedding. */
  readonly vocabSize: number;
  /** The longest context in tokens. */
  readonly maxPositionEmbeddings: number;
  /** Whether the head shares the embedding's weights. */
  readonly tieWordEmbeddings: boolean;
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
  /** Keep the likeliest tokens up to this share of probability. */
  readonly topP: number | undefined;
  /** Drop tokens less likely than this share of the likeliest. */
  readonly minP: number | undefined;
}

const GROUP_SIZES: readonly number[] = [32, 64, 128];
const BITS: readonly number[] = [2, 3, 4, 5, 6, 8];
/** What mlx-lm takes for what a row of the quantization block leaves out or says null for. */
const AFFINE: Quantization = { groupSize: 64, bits: 4 };

// Far above any model. Sizes are compared with the tensors that are stored, and until then nothing may be made of them.
const MAX_VOCABULARY = 2 ** 26;
/** Positions are int32. */
const MAX_POSITION = 2 ** 31 - 1;
const MAX_IDS = 1000;
const MAX_THETA = 1e12;
const MAX_SCALING = 1e6;

/** Checked access to the fields of a JSON object; problems are collected and thrown together by {@link Fields.finish}. */
export class Fields {
  /** The object itself. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly #file: string;
  readonly #problems: string[] = [];

  /** Wraps a parsed JSON object; `file` is what messages call it. */
  constructor(values: unknown, file: string) {
    if (typeof values !== "object" || values === null || Array.isArray(values)) {
      throw new LlmError("config", `${shownPath(file)} does not hold a JSON object`);
    }
    this.values = values as Record<string, unknown>;
    this.#file = file;
  }

  /** Parses the text of a JSON file. */
  static parse(text: string, file: string): Fields {
    let values: unknown;
    try {
      values = JSON.parse(text);
    } catch (cause) {
      throw new LlmError("config", `${shownPath(file)} is not valid JSON: ${quoted((cause as Error).message)}`, {
        cause,
      });
    }
    return new Fields(values, file);
  }

  /** A whole number from 1 to `most`. */
  count(name: string, most: number): number {
    return this.whole(name, 1, most);
  }

  /** A finite number above 0 and up to `most`. */
  positive(name: string, most: number): number {
    return this.#number(name, (v) => v > 0 && v <= most, `a positive number up to ${most}`, undefined);
  }

  /** A finite number in a closed range. */
  within(name: string, low: number, high: number, fallback?: number): number {
    return this.#number(name, (v) => v >= low && v <= high, `a number from ${low} to ${high}`, fallback);
  }

  /** A whole number in a closed range. */
  whole(name: string, low: number, high: number): number {
    const valid = (v: number): boolean => Number.isInteger(v) && v >= low && v <= high;
    return this.#number(name, valid, `a whole number from ${low} to ${high}`, undefined);
  }

  /** An object, empty when the field is absent. */
  record(name: string): Readonly<Record<string, unknown>> {
    const value = this.values[name] ?? {};
    if (typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
    this.#expected(name, "an object");
    return {};
  }

  /** true or false. */
  flag(name: string, fallback?: boolean): boolean {
    const value = this.values[name] ?? fallback;
    if (typeof value === "boolean") return value;
    this.#expected(name, "true or false");
    return false;
  }

  /** A string. */
  string(name: string, fallback?: string): string {
    const value = this.values[name] ?? fallback;
    if (typeof value === "string") return value;
    this.#expected(name, "a string");
    return "";
  }

  /** A token id or a list of them; empty when the field is absent. */
  tokenIds(name: string): number[] {
    const value = this.values[name] ?? [];
    const ids: unknown[] = Array.isArray(value) ? value : [value];
    const valid = (id: unknown): boolean => Number.isSafeInteger(id) && (id as number) >= 0;
    if (ids.length <= MAX_IDS && ids.every(valid)) return ids as number[];
    this.#expected(name, `a token id or a list of token ids${ids.length > MAX_IDS ? `, at most ${MAX_IDS}` : ""}`);
    return [];
  }

  /** Whether the field is there and not null. */
  has(name: string): boolean {
    return (this.values[name] ?? undefined) !== undefined;
  }

  /** Notes a problem in words of the caller. */
  problem(text: string): void {
    this.#problems.push(text);
  }

  /** Throws when there were problems, naming all of them. */
  finish(): void {
    if (this.#problems.length > 0) {
      throw new LlmError("config", `${shownPath(this.#file)}: ${listed(this.#problems, 12)}`);
    }
  }

  #number(name: string, valid: (v: number) => boolean, expected: string, fallback: number | undefined): number {
    const value = this.values[name] ?? fallback;
    if (typeof value === "number" && valid(value)) return value;
    this.#expected(name, expected);
    return 1; // stands in until finish() throws
  }

  #expected(name: string, expected: string): void {
    const value = this.values[name];
    this.#problems.push(
      value === undefined || value === null
        ? `"${name}" is missing (expected ${expected})`
        : `"${name}" is ${quoted(value)}, expected ${expected}`,
    );
  }
}

/** The fields that all models share; the caller reads its own from the same {@link Fields} and then calls `finish()`. */
export function readModelConfig(fields: Fields): ModelConfig {
  return {
    modelType: fields.string("model_type"),
    vocabSize: fields.count("vocab_size", MAX_VOCABULARY),
    maxPositionEmbeddings: fields.count("max_position_embeddings", MAX_POSITION),
    tieWordEmbeddings: fields.flag("tie_word_embeddings"),
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

/**
 * "quantization" as mlx-lm writes it (mirrored as "quantization_config"): group_size and bits for all modules, and further
 * keys that name single modules with a block of their own, or false for dense ones.
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
  const groupSize = row.group_size ?? AFFINE.groupSize;
  const bits = row.bits ?? AFFINE.bits;
  const mode = row.mode ?? "affine";
  if (mode !== "affine") fields.problem(`${quoted(path)} has mode ${quoted(mode)}: only "affine" is supported`);
  if (!GROUP_SIZES.includes(groupSize as number)) {
    fields.problem(`${quoted(path)} has group_size ${quoted(groupSize)}, expected ${GROUP_SIZES.join(", ")}`);
  }
  if (!BITS.includes(bits as number)) {
    fields.problem(`${quoted(path)} has bits ${quoted(bits)}, expected ${BITS.join(", ")}`);
  }
  return { groupSize: groupSize as number, bits: bits as number };
}

/** "rope_theta" and "rope_scaling", which newer configs nest in "rope_parameters". */
export function readRope(fields: Fields): { readonly theta: number; readonly scaling: RopeScaling } {
  const nested: RopeBlock = { name: "rope_parameters", values: fields.record("rope_parameters") };
  const own = fields.has("rope_theta") || (nested.values.rope_theta ?? undefined) === undefined;
  const scaling = fields.has("rope_scaling") ? { name: "rope_scaling", values: fields.record("rope_scaling") } : nested;
  const theta = own ? fields.positive("rope_theta", MAX_THETA) : positiveIn(fields, nested, "rope_theta", MAX_THETA);
  const read = readRopeScaling(fields, scaling);
  const given = own ? fields.values.rope_theta : nested.values.rope_theta;
  if (read.type === "yarn" && given === theta && theta <= 1) {
    fields.problem(`"rope_theta" is ${theta}: "yarn" needs more than 1`);
  }
  return { theta, scaling: read };
}

/** An object of config.json that tells of positions. */
interface RopeBlock {
  readonly name: string;
  readonly values: Readonly<Record<string, unknown>>;
}

function readRopeScaling(fields: Fields, block: RopeBlock): RopeScaling {
  const { values } = block;
  const type = values.rope_type ?? values.type ?? "default";
  const positive = (name: string, fallback?: number): number => positiveIn(fields, block, name, MAX_SCALING, fallback);
  switch (type) {
    case "default":
      return { type: "default" };
    case "linear":
      return { type: "linear", factor: positive("factor") };
    case "yarn":
      return {
        type: "yarn",
        factor: positive("factor"),
        originalMaxPositionEmbeddings: positiveIn(
          fields,
          block,
          "original_max_position_embeddings",
          MAX_POSITION,
          4096,
        ),
        betaFast: positive("beta_fast", 32),
        betaSlow: positive("beta_slow", 1),
        mscale: numberIn(fields, block, "mscale", MSCALE, 1),
        mscaleAllDim: numberIn(fields, block, "mscale_all_dim", MSCALE, 0),
      };
    default:
      fields.problem(`"${block.name}" has type ${quoted(type)}: supported are "default", "linear" and "yarn"`);
      return { type: "default" };
  }
}

/** A range of numbers, and how messages call it. */
interface Range {
  readonly valid: (value: number) => boolean;
  readonly expected: string;
}

const MSCALE: Range = {
  valid: (value) => value >= 0 && value <= MAX_SCALING,
  expected: `a number from 0 to ${MAX_SCALING}`,
};

/** A number of a block above 0 and up to `most`; not so small either that its inverse would be beyond float32. */
function positiveIn(fields: Fields, block: RopeBlock, name: string, most: number, fallback?: number): number {
  const valid = (value: number): boolean => value >= 1 / most && value <= most;
  return numberIn(fields, block, name, { valid, expected: `a positive number from ${1 / most} to ${most}` }, fallback);
}

/** A number of a block, or `fallback` where it is absent and one is given. */
function numberIn(
  fields: Fields,
  { name: path, values }: RopeBlock,
  name: string,
  { valid, expected }: Range,
  fallback?: number,
): number {
  const value = values[name] ?? fallback;
  if (typeof value === "number" && valid(value)) return value;
  const found = value === undefined ? "missing" : quoted(value);
  fields.problem(`"${path}.${name}" is ${found}, expected ${expected}`);
  return 1;
}
