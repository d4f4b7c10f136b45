/**
 * Types of arrays before a program runs: the element type by name and the number of axes. `Tensor<"float32", 2>` gives
 * `number[][]` from `tolist()` and `number` from `item()`. Types only: nothing of this is there at run time.
 *
 * An unknown part is `any`, as in the types of numpy: `Tensor` alone is `Tensor<any, any>`. An array of which nothing is known goes
 * wherever an array goes, and what it gives is checked when the program runs.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- stands for an unknown part

import type { Complex, Dtype, DtypeName } from "../../graph/dtype.ts";
import type { Slice } from "./slice.ts";
import type { Scalar, TypedArray } from "./values.ts";

/** Names of dtypes that hold numbers. */
export type NumberName = Exclude<DtypeName, "bool">;

/** Names of dtypes that hold floating-point numbers. */
export type FloatName = "float16" | "bfloat16" | "float32" | "float64";

/** Names of dtypes that hold floating-point or complex numbers. */
export type InexactName = FloatName | "complex64";

/** Whether a type is `any`; of names and numbers of axes, whose types are limited, `DtypeName extends N` and `number extends R` tell. */
export type IsAny<T> = 0 extends 1 & T ? true : false;

/** One element as a JavaScript value. */
export type Item<N extends DtypeName> = DtypeName extends N ? any
  : N extends "bool" ? boolean
  : N extends "int64" | "uint64" ? number | bigint
  : N extends "complex64" ? Complex
  : number;

/** Lists as deep as there are axes. */
export type Nested<T, R extends number> = number extends R ? any : Lists<T>[R];

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

/** A value from which the type of an array follows. */
export interface Typed<N extends DtypeName, R extends number> {
  /** Element type. */
  readonly dtype: Dtype<N>;
  /** Number of axes. */
  readonly ndim: R;
}

/** Names of the dtypes that values become. */
export type NameOf<A> = IsAny<A> extends true ? any
  : A extends Typed<infer N, number> ? N
  : A extends number ? "float32"
  : A extends boolean ? "bool"
  : A extends bigint ? "int64"
  : A extends Complex ? "complex64"
  : A extends TypedArray ? TypedName<A>
  : A extends readonly (infer E)[] ? ListName<A, E>
  : any;

/** Lists of arrays have their dtype, of booleans bool, of bigints int64, of complex numbers complex64, all others float32. */
export type ListName<A, E> = IsAny<E> extends true ? any
  : [E] extends [never] ? "float32"
  : [A] extends [E] ? "bool" | "float32" // lists of any depth
  : [E] extends [Typed<infer N, number>] ? Single<N>
  : [Extract<E, Typed<DtypeName, number>>] extends [never] ? PlainListName<E>
  : any;

/** The same of lists without arrays at this depth. */
export type PlainListName<E> = [E] extends [boolean] ? "bool"
  : [E] extends [bigint] ? "int64"
  : [E] extends [Complex] ? "complex64"
  : E extends readonly (infer F)[] ? ListName<E, F>
  : "float32";

/** The name itself, or `any` if it may be one of several: what arrays of different dtypes meet in depends on all of them. */
export type Single<N, All = N> = N extends unknown ? [All] extends [N] ? N : any : never;

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

/** Number of axes of a value that is taken as an array. */
export type RankOf<A> = IsAny<A> extends true ? any
  : A extends Typed<DtypeName, infer R> ? R
  : A extends Scalar ? 0
  : A extends TypedArray ? 1
  : A extends readonly (infer E)[] ? IsAny<E> extends true ? any
    : [E] extends [never] ? 1
    : [A] extends [E] ? any
    : Up<RankOf<E>>
  : any;

/** One more axis. */
export type Up<R extends number> = {
  [axes: number]: any;
  0: 1;
  1: 2;
  2: 3;
  3: 4;
  4: 5;
  5: 6;
}[R];

/** One axis less. */
export type Down<R extends number> = {
  [axes: number]: any;
  1: 0;
  2: 1;
  3: 2;
  4: 3;
  5: 4;
  6: 5;
}[R];

/** Number of axes of a `diag` result: a matrix of a vector, a vector of a matrix. */
export type DiagRank<R> = number extends R ? any : R extends 1 ? 2 : R extends 2 ? 1 : any;

/** The larger of two numbers of axes. */
export type Larger<P extends number, Q extends number> = {
  [axes: number]: { [axes: number]: any };
  0: { [axes: number]: any; 0: 0; 1: 1; 2: 2; 3: 3; 4: 4; 5: 5; 6: 6 };
  1: { [axes: number]: any; 0: 1; 1: 1; 2: 2; 3: 3; 4: 4; 5: 5; 6: 6 };
  2: { [axes: number]: any; 0: 2; 1: 2; 2: 2; 3: 3; 4: 4; 5: 5; 6: 6 };
  3: { [axes: number]: any; 0: 3; 1: 3; 2: 3; 3: 3; 4: 4; 5: 5; 6: 6 };
  4: { [axes: number]: any; 0: 4; 1: 4; 2: 4; 3: 4; 4: 4; 5: 5; 6: 6 };
  5: { [axes: number]: any; 0: 5; 1: 5; 2: 5; 3: 5; 4: 5; 5: 5; 6: 6 };
  6: { [axes: number]: any; 0: 6; 1: 6; 2: 6; 3: 6; 4: 6; 5: 6; 6: 6 };
}[P][Q];

/** Axes of a shape: a list of known length, or one number. */
export type RankOfShape<S> = IsAny<S> extends true ? any
  : S extends number ? 1
  : S extends readonly number[] ? number extends S["length"] ? any : S["length"]
  : any;

/** Axes of an array that is reshaped to sizes, or to one list of them. */
export type RankOfSizes<S extends readonly unknown[]> = S extends readonly [infer L extends readonly number[]]
  ? RankOfShape<L>
  : RankOfShape<S>;

/** Axes of a `flatten` result: one, or unknown if only some axes are flattened. */
export type Flattened<X extends readonly unknown[]> = X extends readonly [] ? 1 : any;

/** Axes that are left of R without one, or without all of size 1, whose number is not known. */
export type Squeezed<R extends number, X> = [X] extends [null | undefined] ? any : Reduced<R, X, false>;

/** Axes of R and new ones. */
export type Expanded<R extends number, X> = X extends number | readonly [number] ? Up<R>
  : X extends readonly [number, number] ? Up<Up<R>>
  : any;

/** Axes of arrays that are joined or searched along an axis: null flattens them. */
export type Along<R extends number, X> = [X] extends [null] ? 1 : [X] extends [number] ? R : any;

/** A dtype of floats or complex numbers stays; the others become float32. */
export type FloatOf<N extends DtypeName> = N extends InexactName ? N : "float32";

/** The dtype of magnitudes: float32 of complex64. */
export type RealOf<N extends DtypeName> = N extends "complex64" ? "float32" : N;

/** The dtype of sums: small integers and bool widen to 32 bits. */
export type SumOf<N extends DtypeName> = N extends InexactName ? N
  : N extends "int64" | "uint64" ? N
  : N extends "uint8" | "uint16" | "uint32" ? "uint32"
  : "int32";

/** The dtype of two together; a JavaScript value takes that of the array beside it where it can. */
export type Promoted<A, B> = IsAny<A> extends true ? any
  : IsAny<B> extends true ? any
  : A extends Scalar ? B extends Scalar ? ScalarsName<A | B> : Weak<A, NameOf<B>>
  : B extends Scalar ? Weak<B, NameOf<A>>
  : PromotedNames<NameOf<A>, NameOf<B>>;

/** The dtype of JavaScript values alone: complex64, bool or int64 where all are, else float32. */
export type ScalarsName<V extends Scalar> = [Extract<V, Complex>] extends [never] ? [V] extends [boolean] ? "bool"
  : [V] extends [bigint] ? "int64"
  : "float32"
  : "complex64";

/** The dtype of an array and a JavaScript value: integers become float32 beside a number that is not whole. */
export type Weak<V extends Scalar, N extends DtypeName> = DtypeName extends N ? any
  : V extends boolean ? N
  : V extends Complex ? "complex64"
  : N extends InexactName ? N
  : V extends bigint ? (N extends "bool" ? "int32" | "int64" : N)
  : `${Extract<V, number>}` extends `${bigint}` ? (N extends "bool" ? "int32" : N)
  : number extends V ? (N extends "bool" ? "int32" | "float32" : N | "float32")
  : "float32";

/** By dtypes, those that another becomes beside them. */
export interface Takers {
  /** All. */
  bool: DtypeName;
  /** Wider integers, floats and complex numbers. */
  uint8: Exclude<NumberName, "int8">;
  /** Wider integers, floats and complex numbers. */
  uint16: "uint16" | "uint32" | "uint64" | "int32" | "int64" | InexactName;
  /** Wider integers, floats and complex numbers. */
  uint32: "uint32" | "uint64" | "int64" | InexactName;
  /** Floats and complex numbers. */
  uint64: "uint64" | InexactName;
  /** Wider integers with a sign, floats and complex numbers. */
  int8: "int8" | "int16" | "int32" | "int64" | InexactName;
  /** Wider integers with a sign, floats and complex numbers. */
  int16: "int16" | "int32" | "int64" | InexactName;
  /** Wider integers with a sign, floats and complex numbers. */
  int32: "int32" | "int64" | InexactName;
  /** Floats and complex numbers. */
  int64: "int64" | InexactName;
  /** Wider floats and complex numbers. */
  float16: "float16" | "float32" | "float64" | "complex64";
  /** Wider floats and complex numbers. */
  bfloat16: "bfloat16" | "float32" | "float64" | "complex64";
  /** Wider floats and complex numbers. */
  float32: "float32" | "float64" | "complex64";
  /** Complex numbers. */
  float64: "float64" | "complex64";
  /** None but itself. */
  complex64: "complex64";
}

/** The dtype that arrays of two meet in: MLX's table, as `promote()` of src/graph/dtype.ts has it. */
export type PromotedNames<N extends DtypeName, M extends DtypeName> = DtypeName extends N ? any
  : DtypeName extends M ? any
  : N extends DtypeName
    ? M extends DtypeName ? M extends Takers[N] ? M : N extends Takers[M] ? N : Meeting<N | M> : never
  : never;

/** The third dtype that two meet in of which neither takes the other. */
export type Meeting<Two extends DtypeName> = "uint8" extends Two ? "int16"
  : "uint16" extends Two ? "int32"
  : "uint32" extends Two ? "int64"
  : "float32";

/** Axes that are left of R by a reduction over `X`, which stay with size 1 where `K`. */
export type Reduced<R extends number, X, K extends boolean> = boolean extends K ? any
  : K extends true ? R
  : [X] extends [null | undefined] ? 0
  : [X] extends [number] ? Down<R>
  : X extends readonly [number] ? Down<R>
  : X extends readonly [number, number] ? Down<Down<R>>
  : X extends readonly [number, number, number] ? Down<Down<Down<R>>>
  : any;

/** Axes that an index leaves of R: a number takes one away, null adds one, an array puts its own in the place of one. */
export type Indexed<R extends number, I extends readonly unknown[]> = {
  "unknown": any;
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

/** One more. */
export interface ShiftUp extends Record<Shift, Shift> {
  /** Four less. */
  "-4": "-3";
  /** Three less. */
  "-3": "-2";
  /** Two less. */
  "-2": "-1";
  /** One less. */
  "-1": "0";
  /** As many. */
  "0": "1";
  /** One more. */
  "1": "2";
  /** Two more. */
  "2": "unknown";
  /** Not known. */
  "unknown": "unknown";
}

/** One less. */
export interface ShiftDown extends Record<Shift, Shift> {
  /** Four less. */
  "-4": "unknown";
  /** Three less. */
  "-3": "-4";
  /** Two less. */
  "-2": "-3";
  /** One less. */
  "-1": "-2";
  /** As many. */
  "0": "-1";
  /** One more. */
  "1": "0";
  /** Two more. */
  "2": "1";
  /** Not known. */
  "unknown": "unknown";
}

/** How many axes more or less an index gives; `Arrays` is the number of axes of the arrays in it that came before. */
export type ShiftOf<I extends readonly unknown[], S extends Shift = "0", Arrays extends number = 0> = number extends
  I["length"] ? "unknown"
  : I extends readonly [infer First, ...infer Rest] ? IsAny<First> extends true ? "unknown"
    : First extends number ? ShiftOf<Rest, ShiftDown[S], Arrays>
    : First extends null ? ShiftOf<Rest, ShiftUp[S], Arrays>
    : First extends Slice | "..." ? ShiftOf<Rest, S, Arrays>
    : number extends RankOf<First> ? "unknown"
    : RankOf<First> extends 1 ? ShiftOf<Rest, Arrays extends 0 ? S : ShiftDown[S], Arrays extends 0 ? 1 : Arrays>
    : RankOf<First> extends 2 ? Arrays extends 0 ? ShiftOf<Rest, ShiftUp[S], 2> : "unknown"
    : "unknown"
  : S;

/** Axes of a matrix product. */
export type ProductRank<P extends number, Q extends number> = {
  [axes: number]: { [axes: number]: any };
  1: { [axes: number]: any; 1: 0; 2: 1; 3: 2; 4: 3; 5: 4; 6: 5 };
  2: { [axes: number]: any; 1: 1; 2: 2; 3: 3; 4: 4; 5: 5; 6: 6 };
  3: { [axes: number]: any; 1: 2; 2: 3; 3: 3; 4: 4; 5: 5; 6: 6 };
  4: { [axes: number]: any; 1: 3; 2: 4; 3: 4; 4: 4; 5: 5; 6: 6 };
  5: { [axes: number]: any; 1: 4; 2: 5; 3: 5; 4: 5; 5: 5; 6: 6 };
  6: { [axes: number]: any; 1: 5; 2: 6; 3: 6; 4: 6; 5: 6; 6: 6 };
}[P][Q];

/** Axes of a take with indices of Q axes, which stand in place of one axis, or alone. */
export type Taken<P extends number, Q extends number, X> = [X] extends [null | undefined] ? Q
  : number extends Q ? any
  : Q extends 0 ? Down<P>
  : Q extends 1 ? P
  : Q extends 2 ? Up<P>
  : any;

/** Axes of a result of `einsum`: the letters after "->"; not known where "..." is among them or there is no arrow. */
export type EinsumRank<S extends string> = string extends S ? any
  : S extends `${string}->${infer Letters}` ? CountLetters<Letters>
  : any;

/** The number of letters of a text without spaces; `any` where it has "." or more than six. */
export type CountLetters<S extends string, Count extends readonly unknown[] = []> = S extends "" ? Count["length"]
  : S extends `${infer Letter}${infer Rest}` ? Letter extends " " ? CountLetters<Rest, Count>
    : Letter extends "." ? any
    : Count["length"] extends 6 ? any
    : CountLetters<Rest, [...Count, Letter]>
  : any;

/** The typed array of a dtype's elements; bfloat16 widens to float32, bool is bytes 0 and 1. */
export type HostArrayOf<N extends DtypeName> = DtypeName extends N ? any : {
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
