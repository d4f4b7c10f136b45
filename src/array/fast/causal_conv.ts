/**
 * A convolution of each feature by itself over the last tokens of sequences, as a fused function.
 *
 * Shapes: B sequences, T tokens, F features, W tokens that the convolution sees.
 *
 * @module
 */

import { type Dtype, float32, int32 } from "../../graph/dtype.ts";
import { sizeOf } from "../../graph/shape.ts";
import { add, multiply } from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { takeAlongAxis } from "../ops/gather.ts";
import { concatenate } from "../ops/join.ts";
import { astype, broadcastTo, reshape, sliceNode } from "../ops/movement.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { defineFused } from "./fused.ts";
import { silu } from "./nn.ts";

/** What a convolution reads. */
export interface CausalConvInputs {
  /** The inputs of the tokens before, (B, W - 1, F). */
  readonly before: Tensor;
  /** (B, T, F) */
  readonly x: Tensor;
  /** (F, W, 1), the factor of the token itself last. */
  readonly weight: Tensor;
  /** (F,) */
  readonly bias?: Tensor;
  /** How many of the T tokens count, int32 (1,) for all sequences or (B,); the others are padding. Default all. */
  readonly counted?: Tensor;
}

/** The convolution in the dtype of x, through `silu` if asked for: (B, T, F). And the last inputs that count, (B, W - 1, F). */
export function causalConv(
  { before, x, weight, bias, counted }: CausalConvInputs,
  options: { readonly silu: boolean },
): { readonly outputs: Tensor; readonly last: Tensor } {
  const [B, T, F] = x.shape;
  const past = weight.shape[1] - 1;
  const inputs = [before, x, weight, ...(bias ? [bias] : []), ...(counted ? [counted] : [])].map(nodeOf);
  const attrs = { silu: options.silu, hasBias: bias !== undefined, hasCounted: counted !== undefined };
  const all = nodeOf(convNode(inputs, [B * F * (T + past)], x.dtype as Dtype, attrs));
  const part = (from: number, shape: readonly number[]): Tensor =>
    reshape(wrap(sliceNode(all, [from], [1], [sizeOf(shape)])), [...shape]) as Tensor;
  return { outputs: part(0, [B, T, F]), last: part(B * T * F, [B, past, F]) };
}

/** Of inputs (B, W - 1 + T, F) the W - 1 before the token number `counted` of the T: (B, W - 1, F). */
function inputsBefore(inputs: AnyTensor, counted: AnyTensor, past: number): AnyTensor {
  const [B, , F] = inputs.shape;
  const places = add(reshape(counted, [-1, 1, 1]), reshape(arange(0, past, 1, int32), [1, past, 1]));
  return takeAlongAxis(inputs, broadcastTo(places, [B, past, F]), 1);
}

const convNode = defineFused("causalConv", ({ attrs, dtype }, before, x, weight, ...rest) => {
  const [B, T, F] = x.shape;
  const window = weight.shape[1];
  const bias = attrs.hasBias ? rest[0] : undefined;
  const counted = attrs.hasCounted ? rest.at(-1) : undefined;
  const inputs = concatenate([astype(before, dtype), x], 1);
  // (B, length, F) from a token on.
  const rows = (from: number, length: number): AnyTensor =>
    wrap(sliceNode(nodeOf(inputs), [0, from, 0], [1, 1, 1], [B, length, F]));
  const factors = nodeOf(astype(weight, float32));
  const terms = Array.from({ length: window }, (_, i) => {
    const factor = reshape(wrap(sliceNode(factors, [0, i, 0], [1, 1, 1], [F, 1, 1])), [F]);
    return multiply(astype(rows(i, T), float32), factor) as AnyTensor;
  });
  const sum = terms.reduce((all, term) => add(all, term) as AnyTensor);
  const y = astype(bias ? add(sum, astype(bias, float32)) : sum, dtype);
  const last = counted ? inputsBefore(inputs, counted, window - 1) : rows(T, window - 1);
  return concatenate([attrs.silu ? silu(y as Tensor) : y, last].map((part) => reshape(part, [-1])), 0) as Tensor;
});
