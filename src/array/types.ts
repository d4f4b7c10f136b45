/**
 * What is known of arrays before a program runs: the element type by name and the number of axes. `Tensor<"float32", 2>` gives
 * `number[][]` from `tolist()` and `number` from `item()`; where either is not known, the type says so (`Tensor` alone knows
 * neither). Types only: nothing of this is there at run time.
 *
 * @module
 */

import type { Complex, Dtype, DtypeName } from "../graph/dtype.ts";
import type { Slice } from "./slice.ts";
import type { Scalar, TypedArray } from "./values.ts";

/** Names of dtypes that hold numbers. */
export type NumberName = Exclude<DtypeName, "bool">;

/** Names of dtypes that hold floating-point numbers. */
export type FloatName = "float16" | "bfloat16" | "float32" | "float64";

/** Names of dtypes that hold floating-point or complex numbers. */
export type InexactName = FloatName | "complex64";

/** What one element is in JavaScript. */
export type Item<N extends DtypeName> = N extends "bool" ? boolean
  : N extends "int64" | "uint64" ? number | bigint
  : N extends "complex64" ? Complex
  : number;

/** Lists as deep as there are axes; where that is not known, a value or lists of any depth. */
export type Nested<T, R extends number> = Lists<T>[R];

/** Lists of lists of any depth. */
export type NestedValues<T> = (T | NestedValues<T>)[];

/** Lists by their depth. */
export interface Lists<T> {
  /** A number of axes that is not known, or larger. */
  [axes: number]: T | NestedValues<T>;
  /** No axis: a value. */
  0: T;
  /** One axis. */
  1: T[];
  /** Two axes. */
  2: T[][];
  /** Three axes. */
  3: T[][][];
  /** Four axes. */
  4: T[][][][];
  /** Five axes. */
  5: T[][][][][];
  /** Six axes. */
  6: T[][][][][][];
}

/** What tells the type of an array. */
export interface Typed<N extends DtypeName, R extends number> {
  /** Element type. */
  readonly dtype: Dtype<N>;
  /** Number of axes. */
  readonly ndim: R;
}

/** Names of the dtypes that values become. */
export type NameOf<A> = A extends Typed<infer N, number> ? N
  : A extends number ? "float32"
  : A extends boolean ? "bool"
  : A extends bigint ? "int64"
  : A extends Complex ? "complex64"
  : A extends TypedArray ? TypedName<A>
  : A extends readonly (infer E)[] ? ListName<A, E>
  : DtypeName;

/** Lists of arrays have their dtype, of booleans bool, of bigints int64, of complex numbers complex64, all others float32. */
export type ListName<A, E> = [E] extends [never] ? "float32"
  : [A] extends [E] ? "bool" | "float32" // lists of any depth
  : [E] extends [Typed<infer N, number>] ? N
  : [Extract<E, Typed<DtypeName, number>>] extends [never] ? PlainListName<E>
  : DtypeName;

/** The same of lists without arrays at this depth. */
export type PlainListName<E> = [E] extends [boolean] ? "bool"
  : [E] extends [bigint] ? "int64"
  : [E] extends [Complex] ? "complex64"
  : E extends readonly (infer F)[] ? ListName<E, F>
  : "float32";

/** Names of the dtypes of typed arrays. Float32Array and the like have the same structure, so their tags tell them apart. */
export type TypedName<A extends TypedArray> = Extract<
  {
    Uint8Array: "uint8";
    Uint8ClampedArray: "uint8";
    Uint16Array: "uint16";
    Uint32Array: "uint32";
    Int8Array: "int8";
    Int16Array: "int16";
    Int32Array: "int32";
    Float16Array: "float16";
    Float32Array: "float32";
    Float64Array: "float32";
    BigInt64Array: "int64";
    BigUint64Array: "uint64";
  }[A[typeof Symbol.toStringTag]],
  NumberName
>;

/** Number of axes of what is taken as an array. */
export type RankOf<A> = A extends Typed<DtypeName, infer R> ? R
  : A extends Scalar ? 0
  : A extends TypedArray ? 1
  : A extends readonly (infer E)[] ? [E] extends [never] ? 1 : [A] extends [E] ? number : Up<RankOf<E>>
  : number;

/** One more axis. */
export type Up<R extends number> = {
  [axes: number]: number;
  0: 1;
  1: 2;
  2: 3;
  3: 4;
  4: 5;
  5: 6;
}[R];

/** One axis less. */
export type Down<R extends number> = {
  [axes: number]: number;
  1: 0;
  2: 1;
  3: 2;
  4: 3;
  5: 4;
  6: 5;
}[R];

/** Number of axes of what `diag` gives: a matrix of a vector, a vector of a matrix. */
export type DiagRank<R> = R extends 1 ? 2 : R extends 2 ? 1 : number;

/** The larger of two numbers of axes. */
export type Larger<P extends number, Q extends number> = {
  [axes: number]: readonly number[];
  0: [0, 1, 2, 3, 4, 5, 6];
  1: [1, 1, 2, 3, 4, 5, 6];
  2: [2, 2, 2, 3, 4, 5, 6];
  3: [3, 3, 3, 3, 4, 5, 6];
  4: [4, 4, 4, 4, 4, 5, 6];
  5: [5, 5, 5, 5, 5, 5, 6];
  6: [6, 6, 6, 6, 6, 6, 6];
}[P][Q];

/** Axes of a shape: a list of known length, or one number. */
export type RankOfShape<S> = S extends number ? 1 : S extends readonly number[] ? S["length"] : number;

/** A dtype of floats or complex numbers stays; the others become float32. */
export type FloatOf<N extends DtypeName> = N extends InexactName ? N : "float32";

/** The dtype of magnitudes: float32 of complex64. */
export type RealOf<N extends DtypeName> = N extends "complex64" ? "float32" : N;

/** The dtype of sums: small integers and bool widen to 32 bits. */
export type SumOf<N extends DtypeName> = N extends InexactName ? N
  : N extends "int64" | "uint64" ? N
  : N extends "uint8" | "uint16" | "uint32" ? "uint32"
  : "int32";

/** The dtype of two together; a JavaScript number or boolean takes that of the array beside it where it can. */
export type Promoted<A, B> = A extends number ? Weak<NameOf<B>>
  : B extends number ? Weak<NameOf<A>>
  : A extends boolean ? NameOf<B>
  : B extends boolean ? NameOf<A>
  : A extends Complex ? "complex64"
  : B extends Complex ? "complex64"
  : A extends bigint ? Weak<NameOf<B>>
  : B extends bigint ? Weak<NameOf<A>>
  : PromotedNames<NameOf<A>, NameOf<B>>;

/** Beside a number floats stay as they are; integers may become float32. */
export type Weak<N extends DtypeName> = N extends InexactName ? N : NumberName;

/** Two equal dtypes stay; complex64 takes in every other, float32 all but that and float64. */
export type PromotedNames<N extends DtypeName, M extends DtypeName> = DtypeName extends N | M
  ? "bool" extends N & M ? DtypeName : NumberName
  : [N, M] extends [M, N] ? N
  : [N] extends ["complex64"] ? "complex64"
  : [M] extends ["complex64"] ? "complex64"
  : "float64" extends N | M ? NumberName
  : "complex64" extends N | M ? NumberName
  : "float32" extends N | M ? [N] extends ["float32"] ? "float32" : [M] extends ["float32"] ? "float32" : NumberName
  : NumberName;

/** Axes that are left of R by a reduction over `X`, which stay with size 1 where `K`. */
export type Reduced<R extends number, X, K extends boolean> = boolean extends K ? number
  : K extends true ? R
  : [X] extends [null | undefined] ? 0
  : [X] extends [number] ? Down<R>
  : number;

/** Axes that an index leaves of R: a number takes one away, null adds one. */
export type Indexed<R extends number, I extends readonly unknown[]> = {
  "unknown": number;
  "-4": Down<Down<Down<Down<R>>>>;
  "-3": Down<Down<Down<R>>>;
  "-2": Down<Down<R>>;
  "-1": Down<R>;
  "0": R;
  "1": Up<R>;
  "2": Up<Up<R>>;
}[ShiftOf<I>];

/** How many axes more or less there are; "unknown" where more than that. */
export type Shift = "unknown" | "-4" | "-3" | "-2" | "-1" | "0" | "1" | "2";

/** How many axes more or less an index gives. */
export type ShiftOf<I extends readonly unknown[], S extends Shift = "0"> = number extends I["length"] ? "unknown"
  : I extends readonly [infer First, ...infer Rest] ? First extends number ? ShiftOf<
        Rest,
        {
          "unknown": "unknown";
          "-4": "unknown";
          "-3": "-4";
          "-2": "-3";
          "-1": "-2";
          "0": "-1";
          "1": "0";
          "2": "1";
        }[S]
      >
    : First extends null ? ShiftOf<
        Rest,
        {
          "unknown": "unknown";
          "-4": "-3";
          "-3": "-2";
          "-2": "-1";
          "-1": "0";
          "0": "1";
          "1": "2";
          "2": "unknown";
        }[S]
      >
    : First extends Slice | "..." ? ShiftOf<Rest, S>
    : "unknown"
  : S;

/** Axes of a matrix product. */
export type ProductRank<P extends number, Q extends number> = {
  [axes: number]: readonly number[];
  1: [number, 0, 1, 2, 3, 4, 5];
  2: [number, 1, 2, 3, 4, 5, 6];
  3: [number, 2, 3, 3, 4, 5, 6];
  4: [number, 3, 4, 4, 4, 5, 6];
  5: [number, 4, 5, 5, 5, 5, 6];
  6: [number, 5, 6, 6, 6, 6, 6];
}[P][Q];

/** Axes of what is taken at indices of Q axes: those in place of one axis, or alone. */
export type Taken<P extends number, Q extends number, X> = [X] extends [null | undefined] ? Q
  : Q extends 0 ? Down<P>
  : Q extends 1 ? P
  : Q extends 2 ? Up<P>
  : number;

/** The typed array of a dtype's elements; bfloat16 widens to float32, bool is bytes 0 and 1. */
export type HostArrayOf<N extends DtypeName> = {
  bool: Uint8Array;
  uint8: Uint8Array;
  uint16: Uint16Array;
  uint32: Uint32Array;
  int8: Int8Array;
  int16: Int16Array;
  int32: Int32Array;
  float16: Float16Array;
  bfloat16: Float32Array;
  float32: Float32Array;
  int64: BigInt64Array;
  uint64: BigUint64Array;
  float64: Float64Array;
  complex64: Float32Array;
}[N];
