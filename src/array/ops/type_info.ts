/**
 * Questions about dtypes: their categories, what two meet in, which casts lose nothing, and the limits of their values.
 *
 * @module
 */

import * as dt from "../../graph/dtype.ts";
import { checkDtype, type Dtype, promote } from "../../graph/dtype.ts";
import { DtypeError, quoted, ValueError } from "../../graph/error.ts";
import { entryOf } from "../../graph/options.ts";
import { fullNode, type TensorLike, toOperands } from "../tensor/convert.ts";
import { scoped } from "../tensor/scope.ts";
import { Tensor, wrap } from "../tensor/tensor.ts";

/** Names of categories of dtypes. */
export type CategoryName =
  | "generic"
  | "number"
  | "integer"
  | "signedinteger"
  | "unsignedinteger"
  | "inexact"
  | "floating"
  | "complexfloating";

/** Kinds of dtypes, each with the one that it belongs to: MLX's tree. */
const PARENTS = {
  generic: undefined,
  number: "generic",
  integer: "number",
  signedinteger: "integer",
  unsignedinteger: "integer",
  inexact: "number",
  floating: "inexact",
  complexfloating: "inexact",
} as const satisfies Record<CategoryName, CategoryName | undefined>;

/** A category of dtypes, for {@link issubdtype}. */
export interface DtypeCategory {
  /** MLX's name, such as "floating". */
  readonly category: CategoryName;
}

/** A category, which as text is its name. */
function category(name: CategoryName): DtypeCategory {
  const shared = { toString: (): string => name, [Symbol.for("Deno.customInspect")]: (): string => name };
  return Object.freeze(Object.assign(Object.create(shared), { category: name }));
}

/** All dtypes. */
export const generic: DtypeCategory = category("generic");
/** All dtypes but bool. */
export const number: DtypeCategory = category("number");
/** All integers. */
export const integer: DtypeCategory = category("integer");
/** Integers with a sign. */
export const signedinteger: DtypeCategory = category("signedinteger");
/** Integers without a sign. */
export const unsignedinteger: DtypeCategory = category("unsignedinteger");
/** Floats and complex numbers. */
export const inexact: DtypeCategory = category("inexact");
/** Floats. */
export const floating: DtypeCategory = category("floating");
/** Complex numbers. */
export const complexfloating: DtypeCategory = category("complexfloating");

const CATEGORY_OF_KIND = {
  bool: "generic",
  int: "signedinteger",
  uint: "unsignedinteger",
  float: "floating",
  complex: "complexfloating",
} as const satisfies Record<dt.DtypeKind, CategoryName>;

function isCategory(type: unknown): type is DtypeCategory {
  const name: unknown = (type as Partial<DtypeCategory> | null | undefined)?.category;
  return typeof name === "string" && Object.hasOwn(PARENTS, name);
}

/**
 * Whether a dtype or category belongs to another: `issubdtype(mx.float32, mx.floating)`. Of two dtypes, whether they are the same.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.issubdtype(mx.int8, mx.integer); // true
 * ```
 */
export function issubdtype(a: Dtype | DtypeCategory, b: Dtype | DtypeCategory): boolean {
  for (const type of [a, b]) if (!isCategory(type)) checkDtype(type, "issubdtype");
  if (!isCategory(b)) return a === b;
  let name: CategoryName | undefined = isCategory(a) ? a.category : CATEGORY_OF_KIND[a.kind];
  while (name !== undefined && name !== b.category) name = PARENTS[name];
  return name !== undefined;
}

/** Names of kinds in the array API standard. */
const KINDS: Readonly<Record<string, DtypeCategory | Dtype>> = {
  "bool": dt.bool,
  "signed integer": signedinteger,
  "unsigned integer": unsignedinteger,
  "integral": integer,
  "real floating": floating,
  "complex floating": complexfloating,
  "numeric": number,
};

/** A dtype, category, or kind of the array API standard ("integral", "real floating" and so on), or several of them. */
export type DtypeOrKind = Dtype | DtypeCategory | string | readonly DtypeOrKind[];

/** Whether a dtype is of a kind, or of one of several. */
export function isdtype(dtype: Dtype, kind: DtypeOrKind): boolean {
  checkDtype(dtype, "isdtype");
  if (Array.isArray(kind)) return kind.some((one) => isdtype(dtype, one));
  if (typeof kind === "string") {
    const row = entryOf(KINDS, kind);
    if (!row) {
      throw new ValueError(`isdtype() expected a kind (${Object.keys(KINDS).join(", ")}): found ${quoted(kind)}`);
    }
    return issubdtype(dtype, row);
  }
  if (!isCategory(kind)) checkDtype(kind as Dtype, "isdtype");
  return issubdtype(dtype, kind as Dtype | DtypeCategory);
}

/** Whether promotion casts `from`, a dtype or that of an array, to `to`: whether the two promote to `to`. */
export function canCast(from: Dtype | Tensor, to: Dtype): boolean {
  const dtype = from instanceof Tensor ? from.dtype : from;
  checkDtype(dtype, "canCast");
  checkDtype(to, "canCast");
  return promote(dtype, to) === to;
}

/**
 * The dtype that arrays, scalars and dtypes meet in; scalars are weak.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.resultType(mx.int32, mx.float16).name; // "float16"
 * ```
 */
export function resultType(...values: readonly (TensorLike | Dtype)[]): Dtype {
  if (values.length === 0) throw new ValueError("resultType() expected at least one array or dtype");
  // Dtypes stand for arrays of them, beside which scalars are weak.
  return scoped(
    "resultType",
    () => toOperands("resultType", values.map((v) => dt.isDtype(v) ? wrap(fullNode(0, [], v)) : v))[0].dtype,
  );
}

/** The limits of a floating-point dtype; of complex64 those of float32, which its parts are. */
export interface FloatInfo {
  /** The dtype; float32 for complex64. */
  readonly dtype: Dtype;
  /** Bits of a number. */
  readonly bits: number;
  /** The difference between 1 and the next larger number. */
  readonly eps: number;
  /** The largest finite number. */
  readonly max: number;
  /** The least finite number. */
  readonly min: number;
  /** The least positive number of full precision. */
  readonly smallestNormal: number;
}

const FLOATS: Readonly<Record<string, Omit<FloatInfo, "dtype" | "min">>> = {
  float16: { bits: 16, eps: 2 ** -10, max: 65504, smallestNormal: 2 ** -14 },
  bfloat16: { bits: 16, eps: 2 ** -7, max: (2 - 2 ** -7) * 2 ** 127, smallestNormal: 2 ** -126 },
  float32: { bits: 32, eps: 2 ** -23, max: (2 - 2 ** -23) * 2 ** 127, smallestNormal: 2 ** -126 },
  float64: { bits: 64, eps: 2 ** -52, max: Number.MAX_VALUE, smallestNormal: 2 ** -1022 },
};

/** The limits of a floating-point dtype. Throws a DtypeError for others. */
export function finfo(dtype: Dtype): FloatInfo {
  checkDtype(dtype, "finfo");
  const part = dtype === dt.complex64 ? dt.float32 : dtype;
  const known = FLOATS[part.name];
  if (!known) throw new DtypeError(`finfo() expected a dtype of floats: found ${dtype.name}, see iinfo()`);
  return Object.freeze({ dtype: part, ...known, min: -known.max });
}

/** The limits of an integer dtype. */
export interface IntegerInfo {
  /** The dtype. */
  readonly dtype: Dtype;
  /** Bits of a number. */
  readonly bits: number;
  /** The least number; a bigint if a number would not be exact. */
  readonly min: number | bigint;
  /** The largest number; a bigint if a number would not be exact. */
  readonly max: number | bigint;
}

/** The limits of an integer dtype. Throws a DtypeError for others. */
export function iinfo(dtype: Dtype): IntegerInfo {
  checkDtype(dtype, "iinfo");
  if (dtype.kind !== "int" && dtype.kind !== "uint") {
    throw new DtypeError(`iinfo() expected a dtype of integers: found ${dtype.name}, see finfo()`);
  }
  const bits = 8 * dtype.bytes;
  const low = dtype.kind === "int" ? -(1n << BigInt(bits - 1)) : 0n;
  const exact = (value: bigint): number | bigint => Number.isSafeInteger(Number(value)) ? Number(value) : value;
  return Object.freeze({ dtype, bits, min: exact(low), max: exact(low + (1n << BigInt(bits)) - 1n) });
}
