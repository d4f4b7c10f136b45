/**
 * Rules of the fused ops of recurrent layers: the gated delta rule, and a convolution over the last tokens.
 *
 * @module
 */

import type { KernelName } from "../../backend/kernels.ts";
import { float32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import type { Inputs } from "./rule.ts";

/** Threads of a workgroup of gated_delta, and the rows of a state that they have. */
const DELTA_THREADS = 128;
const DELTA_ROWS = DELTA_THREADS / 8;
/** Features of keys: a thread has four of each so many, and no more than registers hold. */
const KEY_STEP = 32;
const MAX_KEYS = 256;
/** Tokens that a convolution sees at most. */
const MAX_WINDOW = 8;
/** Numbers that kernels load at once. */
const QUAD = 4;

/** The kernel of the gated delta rule, if it knows the sizes. */
export function deltaKernel({ inputs: [q, , v, ...floats], dtype }: Node): KernelName | undefined {
  const [keys, values] = [q.shape[3], v.shape[3]];
  const fits = keys % KEY_STEP === 0 && keys <= MAX_KEYS && values % DELTA_ROWS === 0;
  const exact = floats.slice(0, 3).every((input) => input.dtype === float32) && dtype === float32;
  return fits && exact && keys > 0 && values > 0 && q.shape[0] > 0 ? "gated_delta" : undefined;
}

/** A value (B, T, H, D) whose features can be read four at a time, and its strides over sequences, tokens and heads. */
function inQuads(l: Lowering, value: Value): { readonly value: Value; readonly strides: readonly number[] } {
  const isWhole = ({ offset, strides }: Value): boolean =>
    strides[3] === 1 && [offset, ...strides.slice(0, 3)].every((n) => n % QUAD === 0);
  const found = isWhole(value) ? value : l.contiguous(value, true);
  return { value: found, strides: found.strides.slice(0, 3) };
}

/** Outputs and the last state of the gated delta rule. */
export function gatedDelta(l: Lowering, node: Node, [q, k, v, gamma, beta, state, mask]: Inputs): Value {
  const { normEps, hasMask } = attrsOf(node, "gatedDelta");
  const [batch, tokens, keyHeads, keys] = q.shape;
  const [heads, values] = v.shape.slice(2);
  const out = l.temporary(node.shape, node.dtype);
  const [queries, ofKeys, ofValues] = [q, k, v].map((value) => inQuads(l, value));
  const floats = [gamma, beta, state].map((value) => l.contiguous(value, true));
  l.emit("gated_delta", [
    queries.value,
    ofKeys.value,
    ofValues.value,
    ...floats,
    hasMask ? l.contiguous(mask) : undefined,
    out,
  ], {
    threads: DELTA_THREADS,
    spec: {
      KEY_DIM: keys,
      DTYPE_Q: q.dtype.code,
      DTYPE_K: k.dtype.code,
      DTYPE_V: v.dtype.code,
      NORMALIZED: normEps > 0 ? 1 : 0,
      HAS_MASK: hasMask ? 1 : 0,
    },
    push: {
      batch,
      tokens,
      heads,
      key_heads: keyHeads,
      values,
      eps: normEps,
      q_strides: queries.strides,
      k_strides: ofKeys.strides,
      v_strides: ofValues.strides,
    },
    workgroups: batch * heads * values / DELTA_ROWS,
  });
  return out;
}

/** The kernel of a convolution over tokens, if it knows the sizes. */
export function causalConvKernel({ inputs: [, x, weight] }: Node): KernelName | undefined {
  return x.shape[2] % QUAD === 0 && weight.shape[1] <= MAX_WINDOW && sizeOf(x.shape) > 0 ? "causal_conv" : undefined;
}

/** A convolution over tokens, and its last inputs. */
export function causalConv(l: Lowering, node: Node, [before, x, weight, ...rest]: Inputs): Value {
  const { silu, hasBias, hasCounted } = attrsOf(node, "causalConv");
  const [bias, counted] = [hasBias ? rest[0] : undefined, hasCounted ? rest.at(-1) : undefined];
  const [batch, tokens, features] = x.shape;
  const window = weight.shape[1];
  const out = l.temporary(node.shape, node.dtype);
  const operands = [before, x, weight].map((value) => l.contiguous(value, true));
  l.emit("causal_conv", [...operands, bias && l.contiguous(bias), counted && l.contiguous(counted), out], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_BEFORE: before.dtype.code,
      DTYPE_WEIGHT: weight.dtype.code,
      DTYPE_BIAS: (bias?.dtype ?? float32).code,
      SILU: silu ? 1 : 0,
      HAS_BIAS: hasBias ? 1 : 0,
      HAS_COUNTED: hasCounted ? 1 : 0,
    },
    push: { batch, tokens, features, window },
    workgroups: l.groups(batch * (tokens + window - 1) * features / QUAD),
  });
  return out;
}
