/**
 * Methods for Python's operators and for what numpy's arrays have besides MLX's. Each is the free function of its name with `this` as
 * first argument; methods.ts gives them to Tensor. Types only.
 *
 * @module
 */

import type { DtypeName } from "../graph/dtype.ts";
import type { Clipped } from "./results.ts";
import type { Tensor, TensorLike } from "./tensor.ts";
import type * as t from "./types.ts";

/** The methods. */
export interface OperatorMethods<out N extends DtypeName, out R extends number> {
  /** `this == b`, elementwise (bool). */
  equal<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this != b`, elementwise (bool). */
  notEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this < b`, elementwise (bool). */
  less<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this <= b`, elementwise (bool). */
  lessEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this > b`, elementwise (bool). */
  greater<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** `this >= b`, elementwise (bool). */
  greaterEqual<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** Whether both are not 0. */
  logicalAnd<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** Whether one of both is not 0. */
  logicalOr<B extends TensorLike>(b: B): Tensor<"bool", t.Larger<R, t.RankOf<B>>>;
  /** The larger of both; NaN wins. */
  maximum<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The smaller of both; NaN wins. */
  minimum<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** this / b, rounded down. */
  floorDivide<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The remainder of this / b, with the sign of b. */
  remainder<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that both have. */
  bitwiseAnd<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that one of both has. */
  bitwiseOr<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits that exactly one of both has. */
  bitwiseXor<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits shifted left by b. */
  leftShift<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** The bits shifted right by b. */
  rightShift<B extends TensorLike>(b: B): Tensor<t.Promoted<Tensor<N, R>, B>, t.Larger<R, t.RankOf<B>>>;
  /** Whether elements are 0. */
  logicalNot(): Tensor<"bool", R>;
  /** All bits turned. */
  bitwiseInvert(): Tensor<N, R>;
  /** Elements limited to low…high; null leaves one side open. */
  clip<L extends TensorLike | null, H extends TensorLike | null>(low: L, high: H): Clipped<Tensor<N, R>, L, H>;
  /** Elements at integer indices along an axis, or of the flattened array. */
  take<I extends TensorLike, X extends number | null = null>(
    indices: I,
    axis?: X,
  ): Tensor<N, t.Taken<R, t.RankOf<I>, X>>;
  /** Every element `repeats` times along an axis, or of the flattened array. */
  repeat<X extends number | null = null>(repeats: number, axis?: X): Tensor<N, t.Along<R, X>>;
  /** Indices (uint32) that sort along an axis; null flattens the array. */
  argsort<X extends number | null = -1>(axis?: X): Tensor<"uint32", t.Along<R, X>>;
  /** Sum of a diagonal. */
  trace(offset?: number, axis1?: number, axis2?: number): Tensor<t.SumOf<N>, t.Down<t.Down<R>>>;
}
