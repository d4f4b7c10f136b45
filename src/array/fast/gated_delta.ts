/**
 * The gated delta rule of linear attention (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).
 *
 * @module
 */

import { bool, type Dtype, float32, promote } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sameShape, type Shape } from "../../graph/shape.ts";
import { add, multiply, subtract, where } from "../ops/binary.ts";
import { castNode, type TensorLike, toNode } from "../tensor/convert.ts";
import { zeros } from "../ops/creation.ts";
import { stack } from "../ops/join.ts";
import { astype, broadcastTo, expandDims, reshape, sliceNode, squeeze } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, type Tensor, wrap } from "../tensor/tensor.ts";

const NAME = "gatedDeltaUpdate";

function expect(what: string, node: Node, shape: Shape): void {
  if (sameShape(node.shape, shape)) return;
  throw new ShapeError(`${NAME}() expected ${what} of shape ${formatShape(shape)}: found ${formatShape(node.shape)}`);
}

/** Checks shapes against each other; gives (B, T, Hk, Dk) and (Hv, Dv). */
function sizesOf(q: Node, k: Node, v: Node, gamma: Node, beta: Node): readonly number[] {
  const [b, t, hk, dk] = q.shape, [hv, dv] = v.shape.slice(2);
  if (q.shape.length !== 4 || v.shape.length !== 4 || t === 0 || hk === 0 || hv % hk !== 0) {
    throw new ShapeError(
      `${NAME}() expected queries (B, T, Hk, Dk), values (B, T, Hv, Dv), T > 0 and Hv a multiple of Hk: found ${
        formatShape(q.shape)
      } and ${formatShape(v.shape)}`,
    );
  }
  expect("keys", k, q.shape);
  expect("values", v, [b, t, hv, dv]);
  expect("gamma", gamma, [b, t, hv]);
  expect("beta", beta, [b, t, hv]);
  return [b, t, hk, dk, hv, dv];
}

/**
 * Queries and keys (B, T, Hk, Dk) and values (B, T, Hv, Dv) through the gated delta rule, one position after the other. The state S
 * (B, Hv, Dv, Dk) becomes γ S + β (v - γ S k) kᵀ, and the output is S q. Heads of values share those of keys. `gamma` and `beta` are
 * (B, T, Hv), `initialState` is zeros by default. Where `mask` (B, T) is false the state stays and the output is 0.
 *
 * Returns the output (B, T, Hv, Dv), in the float dtype in which q, k and v meet, and the last state, in float32. Throws a ShapeError
 * where shapes do not fit.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [x, one] = [mx.ones([1, 2, 1, 4]), mx.ones([1, 2, 1])];
 * const [y, state] = mx.fast.gatedDeltaUpdate(x, x, x, one, one);
 * y.shape; // [1, 2, 1, 4]
 * state.shape; // [1, 1, 4, 4]
 * ```
 */
export function gatedDeltaUpdate(
  q: TensorLike,
  k: TensorLike,
  v: TensorLike,
  gamma: TensorLike,
  beta: TensorLike,
  initialState: TensorLike | null = null,
  mask: TensorLike | null = null,
): [Tensor, Tensor] {
  const given = [q, k, v, gamma, beta].map((x) => toNode(NAME, x));
  const [b, t, hk, dk, hv, dv] = sizesOf(...given as [Node, Node, Node, Node, Node]);
  const start = initialState === null ? undefined : toNode(NAME, initialState);
  if (start) expect("initialState", start, [b, hv, dv, dk]);
  const live = mask === null ? undefined : castNode(toNode(NAME, mask), bool);
  if (live) expect("mask", live, [b, t]);
  const type = [...given, ...(start ? [start] : [])].map(({ dtype }) => dtype).reduce(promote, float32);
  if (type.kind !== "float") throw new DtypeError(`${NAME}() expected real numbers: found ${type.name}`);
  const met = given.slice(0, 3).map(({ dtype }) => dtype).reduce(promote);
  const out: Dtype = met.kind === "float" ? met : float32;
  return scoped((): [AnyTensor, AnyTensor] => {
    const [qs, ks, vs, gammas, betas] = given.map((node) => castNode(node, type));
    // One position, heads of keys repeated for those of values: (B, Hv, 1, Dk).
    const row = (node: Node, at: number): AnyTensor => {
      const one = expandDims(position(node, at), 2);
      return reshape(broadcastTo(one, [b, hk, hv / hk, dk]), [b, hv, 1, dk]);
    };
    let state: AnyTensor = start ? wrap(castNode(start, type)) : zeros([b, hv, dv, dk], type);
    const outputs: AnyTensor[] = [];
    for (let at = 0; at < t; at++) {
      const key = row(ks, at), decayed = multiply(reshape(position(gammas, at), [b, hv, 1, 1]), state);
      const missing = subtract(position(vs, at), sum(multiply(decayed, key), -1));
      const update = multiply(expandDims(multiply(missing, expandDims(position(betas, at), -1)), -1), key);
      const next = add(decayed, update), output = sum(multiply(next, row(qs, at)), -1);
      const keep = live && reshape(position(live, at), [b, 1, 1, 1]);
      state = keep ? where(keep, next, state) : next;
      outputs.push(keep ? where(squeeze(keep, -1), output, 0) : output);
    }
    return [astype(stack(outputs, 1), out), state];
  });
}

/** An array at one place of its second axis, which goes. */
function position(node: Node, at: number): AnyTensor {
  const shape = node.shape.with(1, 1);
  const starts = shape.map((_, i) => i === 1 ? at : 0);
  return squeeze(wrap(sliceNode(node, starts, shape.map(() => 1), shape)), 1);
}
