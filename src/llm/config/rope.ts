/**
 * Reads the rotary positions of config.json: their base, and how they are stretched beyond the trained context.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { Fields } from "./fields.ts";
import { MAX_POSITION } from "./model.ts";

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
    /** The factor of the rotated features; undefined if it follows from the others. */
    readonly attentionFactor?: number;
  }
  | {
    readonly type: "llama3";
    readonly factor: number;
    readonly lowFreqFactor: number;
    readonly highFreqFactor: number;
    readonly originalMaxPositionEmbeddings: number;
  }
  | {
    readonly type: "proportional";
    /** A factor of the wavelengths. */
    readonly factor: number;
    /** The share of the pairs that is rotated: those of the shortest wavelengths. */
    readonly share: number;
  }
  | {
    readonly type: "longrope";
    /** The factor of each pair's wavelength, or one for all. */
    readonly factors: readonly number[] | number;
    /** The factor of the rotated features. */
    readonly mscale: number;
  };

/** The rotary positions of config.json. */
export interface RopeConfig {
  /** The base of the wavelengths. */
  readonly ropeTheta: number;
  /** How they are stretched. */
  readonly ropeScaling: RopeScaling;
}

const MAX_THETA = 1e12;
const MAX_SCALING = 1e6;

/**
 * "rope_theta", or `theta` if it is absent, and "rope_scaling"; newer configs nest both in "rope_parameters". In a `plain` family positions
 * are not stretched, whatever the config says.
 */
export function readRope(fields: Fields, theta?: number, plain: boolean = false): RopeConfig {
  const nested: RopeBlock = { name: "rope_parameters", values: fields.record("rope_parameters") };
  const own = fields.has("rope_theta") || (nested.values.rope_theta ?? undefined) === undefined;
  const block = fields.has("rope_scaling") ? { name: "rope_scaling", values: fields.record("rope_scaling") } : nested;
  const ropeTheta = own
    ? fields.positive("rope_theta", MAX_THETA, theta)
    : positiveIn(fields, nested, "rope_theta", MAX_THETA);
  const ropeScaling: RopeScaling = plain ? { type: "default" } : readRopeScaling(fields, block);
  const given = own ? fields.values.rope_theta : nested.values.rope_theta;
  if (ropeScaling.type === "yarn" && given === ropeTheta && ropeTheta <= 1) {
    fields.problem(`"rope_theta" is ${ropeTheta}: "yarn" needs more than 1`);
  }
  return { ropeTheta, ropeScaling };
}

/** Rotary positions of one kind of layers, which "rope_parameters" has by the names of kinds; with base `theta` if it is absent. */
export function readRopeOf(fields: Fields, kind: string, theta: number): RopeConfig {
  const values = fields.nested("rope_parameters", (kinds) => kinds.record(kind));
  const block: RopeBlock = { name: `rope_parameters.${kind}`, values };
  return {
    ropeTheta: positiveIn(fields, block, "rope_theta", MAX_THETA, theta),
    ropeScaling: readRopeScaling(fields, block),
  };
}

/** An object of config.json that tells of positions. */
interface RopeBlock {
  readonly name: string;
  readonly values: Readonly<Record<string, unknown>>;
}

/** How the numbers of each scaling are read; what may be left out has mlx-lm's default. */
const SCALINGS = {
  default: () => ({ type: "default" }),
  linear: (fields, block) => ({ type: "linear", factor: scalingIn(fields, block, "factor") }),
  yarn: readYarn,
  llama3: (fields, block) => {
    const lowFreqFactor = scalingIn(fields, block, "low_freq_factor", 1);
    const highFreqFactor = scalingIn(fields, block, "high_freq_factor", 4);
    if (highFreqFactor < lowFreqFactor) {
      fields.problem(`"${block.name}.high_freq_factor" is ${highFreqFactor}, below "low_freq_factor" ${lowFreqFactor}`);
    }
    return {
      type: "llama3",
      factor: scalingIn(fields, block, "factor"),
      lowFreqFactor,
      highFreqFactor,
      originalMaxPositionEmbeddings: contextIn(fields, block, 8192),
    };
  },
  proportional: (fields, block) => ({
    type: "proportional",
    factor: scalingIn(fields, block, "factor", 1),
    share: numberIn(fields, block, "partial_rotary_factor", SHARE, 1),
  }),
  longrope: readLongRope,
  su: readLongRope, // its name in early configs
  deepseek_yarn: readYarn, // its name in configs of DeepSeek's form
  mrope: () => ({ type: "default" }), // of images; texts have the same position in all of its sections
} as const satisfies
  & { [T in RopeScaling["type"]]: (fields: Fields, block: RopeBlock) => RopeScaling }
  & Record<string, (fields: Fields, block: RopeBlock) => RopeScaling>;

function readYarn(fields: Fields, block: RopeBlock): RopeScaling {
  return {
    type: "yarn",
    factor: scalingIn(fields, block, "factor"),
    originalMaxPositionEmbeddings: contextIn(fields, block, 4096),
    betaFast: scalingIn(fields, block, "beta_fast", 32),
    betaSlow: scalingIn(fields, block, "beta_slow", 1),
    mscale: numberIn(fields, block, "mscale", MSCALE, 1),
    mscaleAllDim: numberIn(fields, block, "mscale_all_dim", MSCALE, 0),
    ...((block.values.attention_factor ?? undefined) !== undefined && {
      attentionFactor: scalingIn(fields, block, "attention_factor"),
    }),
  };
}

/**
 * LongRoPE (arXiv 2402.13753) as mlx-lm computes it: the long factors at every length. The trained context may be a field of the config
 * itself.
 */
function readLongRope(fields: Fields, block: RopeBlock): RopeScaling {
  const { long_factor: given } = block.values;
  const own = (block.values.original_max_position_embeddings ?? undefined) !== undefined;
  const context = own
    ? contextIn(fields, block, 4096)
    : fields.count("original_max_position_embeddings", MAX_POSITION, 4096);
  const longest = fields.count("max_position_embeddings", MAX_POSITION, context);
  const mscale = longest <= context ? 1 : Math.sqrt(1 + Math.log(longest / context) / Math.log(context));
  const valid = (value: unknown): value is number =>
    typeof value === "number" && value >= 1 / MAX_SCALING && value <= MAX_SCALING;
  if (valid(given)) return { type: "longrope", factors: given, mscale };
  if (Array.isArray(given) && given.every(valid)) return { type: "longrope", factors: given, mscale };
  const found = given === undefined ? "missing" : quoted(given);
  fields.problem(`"${block.name}.long_factor" is ${found}, expected a positive number for each pair of features`);
  return { type: "default" };
}

/** Notes a problem if a scaling has other factors than one for each of the `pairs` of rotated features. */
export function checkFactors(fields: Fields, { ropeScaling }: RopeConfig, pairs: number): void {
  if (ropeScaling.type !== "longrope" || typeof ropeScaling.factors === "number") return;
  const { length } = ropeScaling.factors;
  if (length !== pairs) fields.problem(`the scaling of positions has ${length} factors, expected ${pairs}`);
}

function readRopeScaling(fields: Fields, block: RopeBlock): RopeScaling {
  const { values } = block;
  const type = (values.type || values.rope_type) ?? "default"; // "type" counts where both are there, as in mlx-lm
  if (typeof type === "string" && Object.hasOwn(SCALINGS, type)) {
    return SCALINGS[type as keyof typeof SCALINGS](fields, block);
  }
  const known = Object.keys(SCALINGS).map(quoted).join(", ");
  fields.problem(`"${block.name}" has type ${quoted(type)}: supported are ${known}`);
  return { type: "default" };
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

const SHARE: Range = { valid: (value) => value >= 0 && value <= 1, expected: "a number from 0 to 1" };

/** A number of a block above 0 and up to `most`; not so small either that its inverse would be beyond float32. */
function positiveIn(fields: Fields, block: RopeBlock, name: string, most: number, fallback?: number): number {
  const valid = (value: number): boolean => value >= 1 / most && value <= most;
  return numberIn(fields, block, name, { valid, expected: `a positive number from ${1 / most} to ${most}` }, fallback);
}

/** A factor of a scaling. */
function scalingIn(fields: Fields, block: RopeBlock, name: string, fallback?: number): number {
  return positiveIn(fields, block, name, MAX_SCALING, fallback);
}

/** The context that a model was trained with. */
function contextIn(fields: Fields, block: RopeBlock, fallback: number): number {
  return positiveIn(fields, block, "original_max_position_embeddings", MAX_POSITION, fallback);
}

/** A number of a block, or `fallback` if it is absent and one is given. */
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
