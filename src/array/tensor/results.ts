/**
 * Types of results by those of arguments, for functions of arrays; see types.ts. Types only.
 *
 * @module
 */

import type { Tensor } from "./tensor.ts";
import type { DtypeName } from "../../graph/dtype.ts";
import type { FloatOf, Larger, NameOf, ProductRank, Promoted, PromotedNames, RankOf } from "./types.ts";

/** An array of the dtype and axes of another. */
export type Same<A> = Tensor<NameOf<A>, RankOf<A>>;

/** An array of the axes of another, of its dtype if that is one of floats, else float32. */
export type Floating<A> = Tensor<FloatOf<NameOf<A>>, RankOf<A>>;

/** The type of elementwise arithmetic of two. */
export type Arithmetic<A, B> = Tensor<Promoted<A, B>, Larger<RankOf<A>, RankOf<B>>>;

/** The type of a limited array: limits are as the other side of arithmetic. */
export type Clipped<A, L, H> = L extends null ? (H extends null ? Same<A> : Arithmetic<A, H>)
  : H extends null ? Arithmetic<A, L>
  : Arithmetic<Arithmetic<A, L>, H>;

/** The name of a dtype and that of a further operand, which may be null, together. */
export type NameWith<N extends DtypeName, W> = W extends null | undefined ? N : PromotedNames<N, NameOf<W>>;

/** The type of a comparison of two. */
export type Comparison<A, B> = Tensor<"bool", Larger<RankOf<A>, RankOf<B>>>;

/** The type of a quotient: floats, float32 of whole numbers. */
export type Quotient<A, B> = Tensor<FloatOf<Promoted<A, B>>, Larger<RankOf<A>, RankOf<B>>>;

/** A matrix product. */
export type Product<A, B> = Tensor<Promoted<A, B>, ProductRank<RankOf<A>, RankOf<B>>>;
