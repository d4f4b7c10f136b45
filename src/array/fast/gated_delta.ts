/**
 * The gated delta rule of linear attention (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).
 *
 * @module
 */

import { bool, type Dtype, float32, isHalf, promote } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { add, multiply, subtract, where } from "../ops/binary.ts";
import { castNode, type TensorLike, toNode } from "../tensor/convert.ts";
import { zeros } from "../ops/creation.ts";
import { concatenate, repeat, stack } from "../ops/join.ts";
import { astype, broadcastTo, expandDims, reshape, sliceNode, squeeze, transpose } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { exp, log, negative, rsqrt, sigmoid } from "../ops/unary.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { applyDeltaRule } from "./delta_rule.ts";
import { defineFused } from "./fused.ts";
import { softplus } from "./nn.ts";

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
  const [b, t, , dk, hv, dv] = sizesOf(...given as [Node, Node, Node, Node, Node]);
  const start = initialState === null ? undefined : toNode(NAME, initialState);
  if (start) expect("initialState", start, [b, hv, dv, dk]);
  const live = mask === null ? undefined : castNode(toNode(NAME, mask), bool);
  if (live) expect("mask", live, [b, t]);
  const type = [...given, ...(start ? [start] : [])].map(({ dtype }) => dtype).reduce(promote, float32);
  if (type.kind !== "float") throw new DtypeError(`${NAME}() expected real numbers: found ${type.name}`);
  const met = given.slice(0, 3).map(({ dtype }) => dtype).reduce(promote);
  const out: Dtype = met.kind === "float" ? met : float32;
  // The kernel reads queries, keys and values of 16 bits as they are.
  const inputs = given.map((node, i) => i < 3 && isHalf(node.dtype) ? node : castNode(node, type));
  const first = start ? castNode(start, type) : nodeOf(zeros([b, hv, dv, dk], type));
  return scoped((): [AnyTensor, AnyTensor] => {
    const all = deltaNode(
      [...inputs, first, ...(live ? [live] : [])],
      [b * hv * dv * (t + dk)],
      type,
      { decays: false, normEps: 0, hasMask: live !== undefined, gated: false },
    );
    const [outputs, state] = resultsOf(all, [b, t, hv, dv], [b, hv, dv, dk]);
    return [astype(outputs, out), state];
  });
}

/** What the gates of a token follow from: γ is exp(-exp(logRate) softplus(gamma + bias)), and β the sigmoid of `beta`. */
export interface DeltaGates {
  /** (Hv,) */
  readonly bias: Tensor;
  /** (Hv,) */
  readonly logRate: Tensor;
}

/** What a layer gives the rule: γ is between 0 and 1, and queries and keys are to be divided by their lengths. */
export interface DeltaUpdate {
  /** (B, T, Hk, Dk) */
  readonly q: Tensor;
  /** (B, T, Hk, Dk) */
  readonly k: Tensor;
  /** (B, T, Hv, Dv) */
  readonly v: Tensor;
  /** γ, float32 (B, T, Hv), or with `gates` what it follows from. */
  readonly gamma: Tensor;
  /** β, float32 (B, T, Hv), or with `gates` what it follows from. */
  readonly beta: Tensor;
  /** Absent where `gamma` and `beta` are the gates themselves. */
  readonly gates?: DeltaGates;
  /** float32 (B, Hv, Dv, Dk) */
  readonly state: Tensor;
  /** bool (B, T): tokens that count. Default all. */
  readonly mask?: Tensor;
}

/**
 * The rule with queries and keys of length 1, queries divided by the root of Dk too; `eps` is added to the squares of lengths. Gives the
 * outputs (B, T, Hv, Dv) and the last state, float32.
 */
export function normalizedDeltaUpdate(
  { q, k, v, gamma, beta, state, mask, gates }: DeltaUpdate,
  eps: number,
): [Tensor, Tensor] {
  const [b, t, hv, dv] = v.shape;
  const more = [...(mask ? [mask] : []), ...(gates ? [gates.bias, gates.logRate] : [])];
  const inputs = [q, k, v, gamma, beta, state, ...more].map(nodeOf);
  const attrs = { decays: true, normEps: eps, hasMask: mask !== undefined, gated: gates !== undefined };
  const all = deltaNode(inputs, [b * hv * dv * (t + q.shape[3])], float32, attrs);
  return resultsOf(all, [b, t, hv, dv], state.shape) as [Tensor, Tensor];
}

/** Outputs and the last state, which one array has one after the other. */
function resultsOf(all: AnyTensor, outputs: Shape, state: Shape): [AnyTensor, AnyTensor] {
  const count = sizeOf(outputs);
  const part = (from: number, size: number): AnyTensor => wrap(sliceNode(nodeOf(all), [from], [1], [size]));
  return [reshape(part(0, count), outputs), reshape(part(count, sizeOf(state)), state)];
}

const deltaNode = defineFused("gatedDelta", ({ attrs, dtype }, ...inputs) => {
  const { decays, normEps, hasMask, gated } = attrs;
  const floats = inputs.map((x) => x.dtype === bool ? x : astype(x, dtype)) as AnyTensor[];
  const [q, k, v, , , state] = floats;
  const [gamma, beta] = gated ? gatesOf(floats) : floats.slice(3, 5);
  const live = hasMask ? inputs[6] : undefined;
  const [qs, ks] = normEps > 0 ? normalized(q, k, normEps) : [q, k];
  const rule = decays ? byChunk : tokenByToken;
  const [outputs, last] = rule(qs, ks, v, gamma, beta, state, live);
  return concatenate([reshape(outputs, [-1]), reshape(last, [-1])], 0) as Tensor;
});

/** γ and β of an op whose gates follow from its inputs. */
function gatesOf(inputs: readonly AnyTensor[]): AnyTensor[] {
  const [step, rate] = inputs.slice(3, 5), [bias, logRate] = inputs.slice(-2);
  const width = softplus(add(step, bias) as Tensor);
  return [exp(negative(multiply(exp(logRate), width))), sigmoid(rate)];
}

/** Queries and keys of length 1, queries divided by the root of their features too. */
function normalized(q: AnyTensor, k: AnyTensor, eps: number): AnyTensor[] {
  const unit = (x: AnyTensor): AnyTensor => multiply(x, rsqrt(add(sum(multiply(x, x), -1, true), eps)));
  return [multiply(unit(q), q.shape[3] ** -0.5), unit(k)];
}

type Rule = (
  q: AnyTensor,
  k: AnyTensor,
  v: AnyTensor,
  gamma: AnyTensor,
  beta: AnyTensor,
  state: AnyTensor,
  live: AnyTensor | undefined,
) => AnyTensor[];

/** The rule over chunks of tokens, for `gamma` between 0 and 1. */
function byChunk(...[q, k, v, gamma, beta, state, live]: Parameters<Rule>): AnyTensor[] {
  const [, , hk] = q.shape, [b, t, hv, dv] = v.shape;
  // (B, T, H, D) → (B, H, T, D), each head of keys for its heads of values.
  const heads = (x: AnyTensor): AnyTensor => {
    const split = transpose(x, [0, 2, 1, 3]);
    return split.shape[1] === hv ? split : repeat(split, hv / hk, 1);
  };
  const counted = (x: AnyTensor): AnyTensor => {
    const perHead = transpose(x, [0, 2, 1]);
    return live ? where(expandDims(live, 1), perHead, 0) : perHead;
  };
  const { outputs, state: last } = applyDeltaRule({
    queries: heads(q) as Tensor,
    keys: heads(k) as Tensor,
    values: heads(v) as Tensor,
    logDecay: counted(log(gamma)) as Tensor,
    beta: counted(beta) as Tensor,
  }, state as Tensor);
  const y = transpose(outputs, [0, 2, 1, 3]);
  return [live ? where(reshape(live, [b, t, 1, 1]), y, zeros([1, 1, 1, dv], float32)) : y, last];
}

/** The rule as it is written. */
function tokenByToken(...[q, k, v, gamma, beta, start, live]: Parameters<Rule>): AnyTensor[] {
  const [b, t, hk, dk] = q.shape, hv = v.shape[2];
  const [qs, ks, vs, gammas, betas] = [q, k, v, gamma, beta].map(nodeOf);
  // One position, heads of keys repeated for those of values: (B, Hv, 1, Dk).
  const row = (node: Node, at: number): AnyTensor => {
    const one = expandDims(position(node, at), 2);
    return reshape(broadcastTo(one, [b, hk, hv / hk, dk]), [b, hv, 1, dk]);
  };
  let state = start;
  const outputs: AnyTensor[] = [];
  for (let at = 0; at < t; at++) {
    const key = row(ks, at), decayed = multiply(reshape(position(gammas, at), [b, hv, 1, 1]), state);
    const missing = subtract(position(vs, at), sum(multiply(decayed, key), -1));
    const update = multiply(expandDims(multiply(missing, expandDims(position(betas, at), -1)), -1), key);
    const next = add(decayed, update), output = sum(multiply(next, row(qs, at)), -1);
    const keep = live && reshape(position(nodeOf(live), at), [b, 1, 1, 1]);
    state = keep ? where(keep, next, state) : next;
    outputs.push(keep ? where(squeeze(keep, -1), output, 0) : output);
  }
  return [stack(outputs, 1), state];
}

/** An array at one place of its second axis, which goes. */
function position(node: Node, at: number): AnyTensor {
  const shape = node.shape.with(1, 1);
  const starts = shape.map((_, i) => i === 1 ? at : 0);
  return squeeze(wrap(sliceNode(node, starts, shape.map(() => 1), shape)), 1);
}
