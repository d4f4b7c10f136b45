/**
 * Parts of complex numbers.
 *
 * @module
 */

import type { TensorLike } from "../tensor/convert.ts";
import { apply } from "./elementwise.ts";
import type { Same } from "../tensor/results.ts";
import type { Tensor } from "../tensor/tensor.ts";
import type { NameOf, RankOf } from "../tensor/types.ts";

/** The dtype of the parts of numbers: float32 of complex64, else the same. */
export type PartOf<A> = NameOf<A> extends "complex64" ? Tensor<"float32", RankOf<A>> : Same<A>;

/**
 * The real parts: float32 of complex64, other dtypes as they are.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.real(mx.array([mx.complex(1, 2)])).tolist(); // [1]
 * ```
 */
export function real<A extends TensorLike>(a: A): PartOf<A> {
  return apply("real", "same", a);
}

/** The imaginary parts: float32 of complex64, zeros of other dtypes. */
export function imag<A extends TensorLike>(a: A): PartOf<A> {
  return apply("imag", "same", a);
}

/** The complex conjugates; other dtypes as they are. */
export function conjugate<A extends TensorLike>(a: A): Same<A> {
  return apply("conjugate", "same", a);
}

/** The same as {@link conjugate}. */
export const conj: typeof conjugate = conjugate;
