/**
 * The gated delta rule (arXiv 2412.06464) over many tokens at a time. The state S of a head becomes γ S + β (v - γ S k) kᵀ at each token, and
 * the output is S q.
 *
 * Tokens are cut into chunks. Within a chunk, what each token adds to the state follows from those before it by a triangular system. So
 * products of matrices give all tokens of a chunk, and only the state goes from chunk to chunk. Work and memory are linear in T.
 *
 * Shapes: B batch, H heads of values, T tokens, C tokens of a chunk, N chunks, K features of a key, V of a value.
 *
 * @module
 */

import { float32, int32 } from "../../graph/dtype.ts";
import { matmul } from "../linalg/products.ts";
import { add, equal, floorDivide, lessEqual, logicalAnd, multiply, remainder, subtract, where } from "../ops/binary.ts";
import { arange, eye, zeros } from "../ops/creation.ts";
import { concatenate } from "../ops/join.ts";
import { expandDims } from "../ops/movement.ts";
import { cumsum } from "../ops/reduce.ts";
import { exp } from "../ops/unary.ts";
import { Slice } from "../tensor/slice.ts";
import type { Tensor } from "../tensor/tensor.ts";

/** Most tokens of a chunk: more have larger products, and fewer steps from state to state. */
const MAX_CHUNK = 64;

/** What the rule reads, all float32. */
export interface DeltaRuleInputs {
  /** (B, H, T, K) */
  readonly queries: Tensor;
  /** (B, H, T, K) */
  readonly keys: Tensor;
  /** (B, H, T, V) */
  readonly values: Tensor;
  /** The logarithm of γ, at most 0: (B, H, T). */
  readonly logDecay: Tensor;
  /** β: (B, H, T). A token with β and the logarithm of γ both 0 leaves the state as it is. */
  readonly beta: Tensor;
}

/** The outputs (B, H, T, V), and the state (B, H, V, K) after the last token, from the one before the first token. */
export function applyDeltaRule(
  inputs: DeltaRuleInputs,
  state: Tensor,
): { readonly outputs: Tensor; readonly state: Tensor } {
  const [B, H, T] = inputs.keys.shape;
  const C = Math.min(MAX_CHUNK, 2 ** Math.ceil(Math.log2(T)));
  const N = Math.ceil(T / C);
  // (B, H, T, …) → (B, H, N, C, …): tokens of zeros fill the last chunk.
  const chunked = (x: Tensor): Tensor => {
    const rest = x.shape.slice(3);
    const missing = N * C - T;
    const whole = missing === 0 ? x : concatenate([x, zeros([B, H, missing, ...rest], x.dtype)], 2);
    return whole.reshape(B, H, N, C, ...rest);
  };
  const [queries, keys, values] = [inputs.queries, inputs.keys, inputs.values].map(chunked);
  const logDecay = chunked(inputs.logDecay);
  const decay = expandDims(exp(cumsum(logDecay, -1)), -1); // of all tokens of the chunk up to each
  const beta = expandDims(chunked(inputs.beta), -1);

  // (…, C, C): how much of what token j added is left at token i, for j up to i.
  const place = arange(0, C, 1, int32);
  const isUpTo = (most: number): Tensor => lessEqual(subtract(place.reshape(1, C), place.reshape(C, 1)), most);
  // Sums of the tokens between alone: a difference of longer sums would lose what is small beside them.
  const between = cumsum(where(isUpTo(-1), expandDims(logDecay, -1), 0), -2);
  const left = where(isUpTo(0), exp(between), 0);
  const seen = multiply(matmul(queries, keys.swapaxes(-1, -2)), left);
  const bound = multiply(multiply(matmul(keys, keys.swapaxes(-1, -2)), left), beta);
  const solved = invertUnit(where(isUpTo(-1), bound, 0), C);

  // What a token adds is `added` less `removed` Sᵀ, with the state S before the chunk.
  const added = matmul(solved, multiply(values, beta));
  const removed = matmul(solved, multiply(multiply(keys, beta), decay));
  const read = multiply(queries, decay);
  const kept = multiply(keys, expandDims(left.index("...", C - 1, Slice(null)), -1));
  const whole = decay.index("...", Slice(C - 1, C), Slice(null)); // (B, H, N, 1, 1)
  const outputs: Tensor[] = [];
  for (let n = 0; n < N; n++) {
    const chunk = (x: Tensor): Tensor => x.index(Slice(null), Slice(null), n);
    const before = state.swapaxes(-1, -2);
    const updates = subtract(chunk(added), matmul(chunk(removed), before));
    outputs.push(add(matmul(chunk(read), before), matmul(chunk(seen), updates)));
    state = add(multiply(state, chunk(whole)), matmul(updates.swapaxes(-1, -2), chunk(kept)));
  }
  const all = outputs.length === 1 ? outputs[0] : concatenate(outputs, 2);
  return { outputs: N * C === T ? all : all.index(Slice(null), Slice(null), Slice(0, T)), state };
}

/**
 * The inverse of I + L (…, C, C) for a strictly lower triangular L, C a power of 2. It is known for blocks on the diagonal, at first of one
 * row. Each turn makes blocks of twice as many rows: [[A, 0], [L, D]] has the inverse [[A⁻¹, 0], [-D⁻¹ L A⁻¹, D⁻¹]].
 */
function invertUnit(lower: Tensor, C: number): Tensor {
  const place = arange(0, C, 1, int32);
  let inverse: Tensor = eye(C, C, 0, float32);
  for (let size = 1; size < C; size *= 2) {
    const block = floorDivide(place, size);
    const [row, column] = [block.reshape(C, 1), block.reshape(1, C)];
    // The block L of each pair: an odd block of rows and the even block of columns before it.
    const isPair = logicalAnd(equal(row, add(column, 1)), equal(remainder(row, 2), 1));
    const between = where(isPair, lower, 0);
    inverse = subtract(inverse, size === 1 ? between : matmul(matmul(inverse, between), inverse));
  }
  return inverse;
}
