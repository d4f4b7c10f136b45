/**
 * The type of a row of the case table.
 *
 * Tolerances are normalised mean squared errors: 1e-7 for float32, 1e-5 for 16-bit elementwise, 5e-4 for products in 16
 * bits; integers and indices are exact.
 */

import type * as Mx from "../../../mod.ts";
import type { Dense } from "../../support/oracles/oracle.ts";

/** The library, passed in so that this file stays free of side effects. */
export type Library = typeof Mx;
/** An array of the library. */
export type Tensor = Mx.Tensor;

/** Names of dtypes in the table. */
export type TypeName =
  | "bool"
  | "uint8"
  | "uint16"
  | "uint32"
  | "int8"
  | "int16"
  | "int32"
  | "float16"
  | "bfloat16"
  | "float32"
  | "int64"
  | "uint64"
  | "float64"
  | "complex64";

/**
 * How an input lies in memory. Its last two axes are swapped, all axes are reversed, or it has every other element of a
 * larger array. It may run from the last element to the first, or follow other elements. It may also repeat one row
 * along the first axis; its values are alike then.
 */
export type Layout = "transposed" | "permuted" | "strided" | "reversed" | "offset" | "repeated";

/** One input: random numbers of a dtype in [low, high), or `data`, seen through a view when asked for. */
export interface Input {
  readonly shape: readonly number[];
  readonly dtype: TypeName;
  readonly low?: number;
  readonly high?: number;
  /** Values that the dtype holds, in row-major order. */
  readonly data?: readonly number[];
  readonly layout?: Layout;
}

/** How results are compared. */
export interface Expectation {
  /** NMSE bound; 0 demands equality. */
  readonly tolerance: number;
  /** Dtype of the results, where the row knows it. */
  readonly dtype?: TypeName;
  /**
   * Values of all classes: every element by itself, NaN and infinities exactly. "zeros" tells -0 from 0 too. A finite number may
   * be off by the root of the tolerance, relative to itself.
   */
  readonly classes?: "values" | "zeros";
  /** Absolute error that every element may have besides. */
  readonly absolute?: number;
}

/** A row of the table. */
export interface Case extends Expectation {
  readonly op: string;
  readonly what: string;
  readonly inputs: readonly Input[];
  readonly run: (mx: Library, x: Tensor[]) => Tensor | Tensor[];
  readonly oracle: (x: Dense[]) => Dense | Dense[];
}

/** Dtypes that every op takes. */
export const FLOATS = ["float32", "float16", "bfloat16"] as const;
/** The tolerance that demands equality. */
export const EXACT = 0;

/** Of elementwise ops whose result has this dtype. */
export function tolerance(dtype: TypeName): number {
  return dtype === "float32" ? 1e-7 : dtype === "float16" || dtype === "bfloat16" ? 1e-5 : EXACT;
}

/** Rounding of a bfloat16 result alone is worth 2^-18; products of 16-bit numbers get the bound of the field. */
export function productTolerance(dtype: TypeName): number {
  return dtype === "float32" ? 1e-7 : 5e-4;
}
