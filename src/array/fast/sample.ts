/**
 * Choosing a token from each row of logits, fused, beside its definition in primitives.
 *
 * @module
 */

import { float32, uint32 } from "../../graph/dtype.ts";
import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node, OpAttrs } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import * as op from "../ops/binary.ts";
import { array, full } from "../ops/creation.ts";
import { castNode, type TensorLike, toNode, toNumber } from "../tensor/convert.ts";
import { astype, broadcastNode, reshape, reshapeNode } from "../ops/movement.ts";
import { concatenate, split } from "../ops/join.ts";
import { defineFused, floatNode } from "./fused.ts";
import { takeAlongAxis } from "../ops/gather.ts";
import { uniform } from "../random/random.ts";
import * as reduce from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { argsort } from "../ops/sort.ts";
import { maskLogits, tokenMaskNode } from "./token_mask.ts";
import { type AnyTensor, handOn, nodeOf, Tensor, wrap } from "../tensor/tensor.ts";
import { exp, isfinite, log, negative } from "../ops/unary.ts";

/** The id that is no token: the largest uint32, -1 as an int32. */
const NO_TOKEN = 0xffffffff;

/** Options of {@link sample}. The first four are a number for all rows, or an array (…) with one for each row. */
export interface SampleOptions {
  /** Divides the logits; 0 takes the most likely token. Default 1. */
  readonly temperature?: TensorLike;
  /** Keeps the most likely tokens whose probabilities reach this together. Default 1, which like 0 keeps all. */
  readonly topP?: TensorLike;
  /** Keeps tokens at least this likely relative to the most likely one. Default 0: all. */
  readonly minP?: TensorLike;
  /** Keeps this many of the most likely tokens. Default 0: all. */
  readonly topK?: TensorLike;
  /** Random key, or one for each row (rows, 2); default the global random state. */
  readonly key?: TensorLike;
  /**
   * uint32 (…, V / 32, rounded up): bit i % 32 of word i / 32 is set where token i may be taken. The other tokens count as logits of
   * -Infinity. Default: every token may be taken.
   */
  readonly mask?: TensorLike;
}

const SAMPLE_OPTIONS = {
  temperature: true,
  topP: true,
  minP: true,
  topK: true,
  key: true,
  mask: true,
} as const satisfies Record<keyof SampleOptions, true>;

/**
 * Draws one token (uint32) from each row of logits (…, V), filtered as mlx-lm's samplers filter. Every filter judges the
 * probabilities at temperature 1, and a token must pass all of them. Masked logits are -Infinity; a row that holds NaN or Infinity,
 * or no finite logit at all, has no token: 4294967295. A number of an array that is out of range switches its filter off, and
 * a temperature below 0 is 0. Throws a ValueError if a number is out of range, a ShapeError if an array does not fit the rows.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const logits = mx.array([[0, 2, 1], [3, 0, 3]]);
 * mx.fast.sample(logits, { temperature: 0 }).tolist(); // [1, 0]
 * const mixed = mx.fast.sample(logits, { temperature: mx.array([0, 0.8]), topK: mx.array([0, 2]), key: mx.random.key(7) });
 * mixed.tolist()[0]; // 1: the first row takes its largest logit, the second one draws from two
 * ```
 */
export function sample(logits: TensorLike, options: SampleOptions = {}): Tensor<"uint32"> {
  checkOptions("sample", options, SAMPLE_OPTIONS);
  const { temperature = 1, topP = 1, minP = 0, topK = 0, key, mask } = options;
  const settings = { temperature, topP, minP, topK };
  const node = floatNode("sample", logits);
  const { shape } = node;
  const cols = shape[shape.length - 1] ?? 0;
  if (cols === 0) throw new ShapeError(`sample() expected logits (…, V) with V > 0: found shape ${formatShape(shape)}`);
  for (const [option, value] of Object.entries(settings)) checkSetting(option as keyof typeof settings, value);
  const lead = shape.slice(0, -1);
  const rows = sizeOf(lead);
  const known = typeof topK === "number" && typeof topP === "number";
  const attrs: OpAttrs["sample"] = {
    draws: temperature !== 0,
    topK: known ? topK : -1,
    topP: !known || (topP > 0 && topP < 1),
    masked: mask !== undefined,
  };
  return scoped("sample", (): AnyTensor => {
    const inputs = [reshapeNode(node, [rows, cols])];
    if (attrs.draws) inputs.push(settingsNode(Object.entries(settings), lead));
    if (attrs.draws) inputs.push(handOn(uniform(0, 1, [rows], float32, key)));
    if (mask !== undefined) inputs.push(tokenMaskNode("sample", mask, rows, cols));
    return reshape(sampleNode(inputs, [rows], uint32, attrs), lead);
  });
}

/** Options of {@link sampleRows}. */
export interface RowOptions {
  /** Random keys (rows, 2). */
  readonly key: Tensor;
  /** Whether a row may have topP, and whether one may have topK. */
  readonly topP: boolean;
  readonly topK: boolean;
  /** As of {@link SampleOptions}. */
  readonly mask?: Tensor;
}

/**
 * {@link sample} of logits (rows, V) by settings that only the device knows: float32 (rows, 4), which are temperature, topP, minP and topK of
 * each row. Rows of temperature 0 take the most likely token.
 */
export function sampleRows(logits: Tensor, settings: Tensor, { key, topP, topK, mask }: RowOptions): Tensor {
  const [rows, cols] = logits.shape;
  return scoped("sample", (): AnyTensor => {
    const inputs = [logits, settings, uniform(0, 1, [rows], float32, key)].map(nodeOf);
    if (mask) inputs.push(tokenMaskNode("sample", mask, rows, cols));
    const attrs = { draws: true, topK: topK ? -1 : 0, topP, masked: mask !== undefined };
    return sampleNode(inputs, [rows], uint32, attrs);
  }) as Tensor;
}

/** Range of a setting of {@link sample} that is a number. */
const SETTINGS = {
  temperature: { fits: (x: number) => x >= 0, what: "a temperature of 0 or more" },
  topP: { fits: (x: number) => x >= 0 && x <= 1, what: "topP between 0 and 1" },
  minP: { fits: (x: number) => x >= 0 && x <= 1, what: "minP between 0 and 1" },
  topK: { fits: (x: number) => Number.isInteger(x) && x >= 0, what: "topK to be a whole number of 0 or more" },
} as const satisfies Record<string, { fits(x: number): boolean; what: string }>;

function checkSetting(option: keyof typeof SETTINGS, value: TensorLike): void {
  if (Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof Tensor) return;
  const { fits, what } = SETTINGS[option];
  if (option !== "topK") toNumber("sample", option, value as number);
  if (!fits(value as number)) throw new ValueError(`sample() expected ${what}: found ${quoted(value)}`);
}

/** The settings (rows, 4) of rows of shape `lead`, from those of all rows or of each. */
function settingsNode(settings: readonly (readonly [string, TensorLike])[], lead: Shape): Node {
  const rows = sizeOf(lead);
  const numbers = settings.map(([, value]) => value).filter((value) => typeof value === "number");
  if (numbers.length === settings.length) {
    const one = array(numbers.map((value) => Math.min(value, MAX_SETTING)), float32);
    return broadcastNode(reshapeNode(handOn(one), [1, numbers.length]), [rows, numbers.length]);
  }
  const columns = settings.map(([option, value]) => {
    if (typeof value === "number") return full([rows, 1], Math.min(value, MAX_SETTING), float32);
    const node = castNode(toNode("sample", value), float32);
    if (sameShape(node.shape, lead)) return wrap(reshapeNode(node, [rows, 1]));
    throw new ShapeError(
      `sample() expected ${option} of shape ${formatShape(lead)}, one for each row: found shape ${
        formatShape(node.shape)
      }`,
    );
  });
  return handOn(concatenate(columns, 1));
}

/** The largest setting: float32 has all integers up to it, and no row has as many tokens. */
const MAX_SETTING = 2 ** 24;

const sampleNode = defineFused("sample", ({ attrs }, x, ...rest) => {
  const draw = attrs.draws ? { settings: rest[0], uniforms: rest[1] } : undefined;
  return sampleComposite(attrs.masked ? maskLogits(x, rest.at(-1)!) : x, draw, attrs);
});

/** Computes {@link sample} in primitives, for logits (rows, V), and if it draws, settings (rows, 4) and uniforms (rows,). */
export function sampleComposite(
  logits: Tensor,
  draw: { readonly settings: Tensor; readonly uniforms: Tensor } | undefined,
  attrs: OpAttrs["sample"],
): Tensor {
  const x = astype(logits, float32);
  const cols = x.shape[1];
  const most = reduce.max(x, -1, true);
  const checked = (token: Tensor): Tensor => op.where(reshape(isfinite(most), [-1]), token, full([], NO_TOKEN, uint32));
  const largest = reduce.argmax(x, -1);
  if (!draw) return checked(largest);
  const [temperature, topP, minP, topK] = split(draw.settings, 4, 1);
  const least = op.where(op.greater(minP, 0), op.add(most, log(op.maximum(minP, 0))), -Infinity);
  let kept = op.where(op.greaterEqual(x, least), x, -Infinity);
  if (attrs.topP || attrs.topK !== 0) {
    const order = argsort(negative(x), -1); // stable: of equal logits the lower index first
    if (attrs.topP) {
      const sorted = takeAlongAxis(x, order, -1);
      const before = reduce.cumsum(takeAlongAxis(reduce.softmax(x, -1), order, -1), -1, { inclusive: false });
      const likeliest = reduce.min(op.where(op.less(before, topP), sorted, Infinity), -1, true);
      const isOn = op.logicalAnd(op.greater(topP, 0), op.less(topP, 1));
      kept = op.where(op.greaterEqual(x, op.where(isOn, likeliest, -Infinity)), kept, -Infinity);
    }
    if (attrs.topK !== 0) {
      const count = op.where(op.greaterEqual(topK, 1), topK, cols);
      kept = op.where(op.less(astype(argsort(order, -1), float32), count), kept, -Infinity);
    }
  }
  const draws = op.greater(temperature, 0);
  const mass = reduce.cumsum(exp(op.divide(op.subtract(kept, most), op.where(draws, temperature, 1))), -1);
  const total = split(mass, [cols - 1], -1)[1];
  const drawn = reduce.argmax(op.greater(mass, op.multiply(reshape(draw.uniforms, [-1, 1]), total)), -1);
  return checked(op.where(reshape(draws, [-1]), drawn, largest));
}
