/**
 * Element types: one row per dtype with its size, kind, kernel code and host view, and MLX's promotion rules.
 *
 * Codes are those of shaders/include/dtype.h. Promotion is the lattice of MLX:
 *   - bool is below everything;
 *   - unsigned and signed integers give a wider signed one: uint32 with a signed one gives int64;
 *   - uint64 with a signed integer gives float32;
 *   - an integer with a float gives the float;
 *   - float16 with bfloat16 gives float32;
 *   - everything with complex64 gives complex64.
 *
 * JavaScript numbers are weak: they take the dtype of the array beside them. Only one that is not whole turns integers to float32.
 *
 * @module
 */

import { DtypeError, quoted } from "./error.ts";

/** The kind of arithmetic of a dtype. */
export type DtypeKind = "bool" | "uint" | "int" | "float" | "complex";

/** An element type. Compare by identity: `x.dtype === mx.float32`. As text it is its name: `${x.dtype}` is "float32". */
export interface Dtype<N extends DtypeName = DtypeName> {
  /** MLX's name, such as "float32". */
  readonly name: N;
  /** The kind of its arithmetic. */
  readonly kind: DtypeKind;
  /** Bytes of one element. */
  readonly bytes: number;
  /** Code in kernels (shaders/include/dtype.h). */
  readonly code: number;
}

/** Names of all dtypes. */
export type DtypeName =
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

const ROWS = {
  bool: { kind: "bool", bytes: 1, code: 0 },
  uint8: { kind: "uint", bytes: 1, code: 1 },
  uint16: { kind: "uint", bytes: 2, code: 2 },
  uint32: { kind: "uint", bytes: 4, code: 3 },
  int8: { kind: "int", bytes: 1, code: 4 },
  int16: { kind: "int", bytes: 2, code: 5 },
  int32: { kind: "int", bytes: 4, code: 6 },
  float16: { kind: "float", bytes: 2, code: 7 },
  bfloat16: { kind: "float", bytes: 2, code: 8 },
  float32: { kind: "float", bytes: 4, code: 9 },
  int64: { kind: "int", bytes: 8, code: 10 },
  uint64: { kind: "uint", bytes: 8, code: 11 },
  float64: { kind: "float", bytes: 8, code: 12 },
  complex64: { kind: "complex", bytes: 8, code: 13 },
} as const satisfies Record<DtypeName, Omit<Dtype, "name">>;

/** The prototype of all dtypes: as text, in consoles and in notebooks they are their names. */
const PRINTED = {
  toString(this: Dtype): string {
    return this.name;
  },
  [Symbol.for("Deno.customInspect")](this: Dtype): string {
    return this.name;
  },
  [Symbol.for("nodejs.util.inspect.custom")](this: Dtype): string {
    return this.name;
  },
};

function row<N extends DtypeName>(name: N): Dtype<N> {
  const fields = { name, ...(ROWS[name] as Omit<Dtype, "name">) };
  return Object.freeze(Object.assign(Object.create(PRINTED), fields));
}

/** Boolean, one byte an element. */
export const bool: Dtype<"bool"> = row("bool");
/** Unsigned 8-bit integer. */
export const uint8: Dtype<"uint8"> = row("uint8");
/** Unsigned 16-bit integer. */
export const uint16: Dtype<"uint16"> = row("uint16");
/** Unsigned 32-bit integer. */
export const uint32: Dtype<"uint32"> = row("uint32");
/** Signed 8-bit integer. */
export const int8: Dtype<"int8"> = row("int8");
/** Signed 16-bit integer. */
export const int16: Dtype<"int16"> = row("int16");
/** Signed 32-bit integer. */
export const int32: Dtype<"int32"> = row("int32");
/** IEEE half precision; arithmetic runs in float32 and rounds when stored. */
export const float16: Dtype<"float16"> = row("float16");
/** bfloat16; arithmetic runs in float32 and rounds when stored. */
export const bfloat16: Dtype<"bfloat16"> = row("bfloat16");
/** IEEE single precision. */
export const float32: Dtype<"float32"> = row("float32");

/** Signed 64-bit integer; bigints in JavaScript where a number would not hold it. */
export const int64: Dtype<"int64"> = row("int64");
/** Unsigned 64-bit integer; bigints in JavaScript where a number would not hold it. */
export const uint64: Dtype<"uint64"> = row("uint64");
/** IEEE double precision, on the CPU only. */
export const float64: Dtype<"float64"> = row("float64");
/** Complex number of two float32. */
export const complex64: Dtype<"complex64"> = row("complex64");

/** All dtypes in the order of their codes. */
export const DTYPES: readonly Dtype[] = [
  bool,
  uint8,
  uint16,
  uint32,
  int8,
  int16,
  int32,
  float16,
  bfloat16,
  float32,
  int64,
  uint64,
  float64,
  complex64,
];

/** Whether a value is a dtype. */
export function isDtype(value: unknown): value is Dtype {
  return DTYPES.includes(value as Dtype);
}

/** Throws for values that are no dtype, such as the name of one: programs without types pass anything. */
export function checkDtype(dtype: Dtype, op?: string): void {
  if (isDtype(dtype)) return;
  const named = DTYPES.some(({ name }) => name === dtype as unknown);
  const advice = named ? `, which is a string: use mx.${dtype}` : "";
  throw new DtypeError(`${op ? `${op}() ` : ""}expected a dtype such as mx.float32: found ${quoted(dtype)}${advice}`);
}

/** Whether the dtype is float16, bfloat16, float32 or float64. */
export function isFloating(dtype: Dtype): boolean {
  return dtype.kind === "float";
}

/** Whether elements take 8 bytes: what kernels of 32-bit registers do not serve. */
export function isWide(dtype: Dtype): boolean {
  return dtype.bytes === 8;
}

const SIGNED_OF_BYTES: Record<number, Dtype> = { 2: int16, 4: int32, 8: int64 };

/** The dtype that two arrays meet in: MLX's table. */
export function promote(a: Dtype, b: Dtype): Dtype {
  if (a === b) return a;
  if (a.kind === "bool") return b;
  if (b.kind === "bool") return a;
  if (a.kind === "complex" || b.kind === "complex") return complex64;
  if (a.kind === "float" || b.kind === "float") {
    if (a.kind !== "float") return b;
    if (b.kind !== "float") return a;
    return a === float64 || b === float64 ? float64 : float32; // two different float types
  }
  if (a.kind === b.kind) return a.bytes >= b.bytes ? a : b;
  const [unsigned, signed] = a.kind === "uint" ? [a, b] : [b, a];
  if (signed.bytes > unsigned.bytes) return signed;
  return unsigned === uint64 ? float32 : SIGNED_OF_BYTES[unsigned.bytes * 2];
}

/** A complex number. */
export interface Complex {
  /** Real part. */
  readonly re: number;
  /** Imaginary part. */
  readonly im: number;
}

/**
 * A complex number, which every function takes where it takes a number.
 *
 * @param re Real part.
 * @param im Imaginary part, 0 by default.
 *
 * @example
 * ```ts
 * mx.array([mx.complex(1, 2), mx.complex(0, -1)]).dtype === mx.complex64;
 * ```
 */
export function complex(re: number, im = 0): Complex {
  return Object.freeze({ re, im });
}

/** The value of one element in JavaScript. */
export type Scalar = number | boolean | bigint | Complex;

/** Whether a value is a complex number. */
export function isComplex(value: unknown): value is Complex {
  const { re, im } = (value ?? {}) as Partial<Complex>;
  return typeof re === "number" && typeof im === "number";
}

/** The dtype that an array and a JavaScript value meet in. */
export function promoteScalar(array: Dtype, value: Scalar): Dtype {
  if (typeof value === "boolean" || array.kind === "complex") return array;
  if (isComplex(value)) return complex64;
  if (array.kind === "float") return array;
  if (typeof value === "number" && !Number.isInteger(value)) return float32;
  if (array.kind !== "bool") return array;
  return value >= -(2 ** 31) && value < 2 ** 31 ? int32 : int64;
}

/** Typed arrays that hold elements of a dtype; 16-bit floats as their bits, complex numbers as pairs of real and imaginary part. */
export type HostArray =
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/**
 * A view of `bytes` with the element type of `dtype` (16-bit floats as Uint16Array bits, complex numbers as pairs). The bytes must be
 * aligned.
 */
export function hostView(dtype: Dtype, bytes: Uint8Array): HostArray {
  const { buffer, byteOffset, byteLength } = bytes;
  const length = byteLength / dtype.bytes;
  switch (dtype.name) {
    case "bool":
    case "uint8":
      return new Uint8Array(buffer, byteOffset, length);
    case "int8":
      return new Int8Array(buffer, byteOffset, length);
    case "uint16":
    case "float16":
    case "bfloat16":
      return new Uint16Array(buffer, byteOffset, length);
    case "int16":
      return new Int16Array(buffer, byteOffset, length);
    case "uint32":
      return new Uint32Array(buffer, byteOffset, length);
    case "int32":
      return new Int32Array(buffer, byteOffset, length);
    case "float32":
      return new Float32Array(buffer, byteOffset, length);
    case "int64":
      return new BigInt64Array(buffer, byteOffset, length);
    case "uint64":
      return new BigUint64Array(buffer, byteOffset, length);
    case "float64":
      return new Float64Array(buffer, byteOffset, length);
    case "complex64":
      return new Float32Array(buffer, byteOffset, 2 * length);
    default:
      return dtype.name satisfies never;
  }
}

const F32 = new Float32Array(1);
const U32 = new Uint32Array(F32.buffer);

/** Bits of a float32. */
export function float32Bits(value: number): number {
  F32[0] = value;
  return U32[0];
}

/** bfloat16 bits of a number, rounded to nearest even. */
export function bfloat16Bits(value: number): number {
  const bits = float32Bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0; // NaN keeps a quiet payload
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** The number that bfloat16 bits stand for. */
export function bfloat16Value(bits: number): number {
  U32[0] = bits << 16;
  return F32[0];
}

const F16 = new Float16Array(1);
const U16 = new Uint16Array(F16.buffer);

/** float16 bits of a number, rounded to nearest even. */
export function float16Bits(value: number): number {
  F16[0] = value;
  return U16[0];
}

/** The number that float16 bits stand for. */
export function float16Value(bits: number): number {
  U16[0] = bits;
  return F16[0];
}

/** A JavaScript value of element `i` of a host view. Integers of 64 bits are bigints if a number would not be exact. */
export function hostValue(dtype: Dtype, view: HostArray, i: number): Scalar {
  if (dtype === complex64) return complex(Number(view[2 * i]), Number(view[2 * i + 1]));
  const raw = view[i];
  if (typeof raw === "bigint") return Number.isSafeInteger(Number(raw)) ? Number(raw) : raw;
  if (dtype === bool) return raw !== 0;
  if (dtype === float16) return float16Value(raw);
  if (dtype === bfloat16) return bfloat16Value(raw);
  return raw;
}

/** The integer that a value is cut to; infinite and NaN give 0. */
function toBigInt(value: number | boolean | bigint): bigint {
  if (typeof value === "bigint") return value;
  const whole = Math.trunc(Number(value));
  return Number.isFinite(whole) ? BigInt(whole) : 0n;
}

/** Stores a JavaScript value as element `i` of a host view. Imaginary parts are dropped by dtypes that have none. */
export function setHostValue(dtype: Dtype, view: HostArray, i: number, value: Scalar): void {
  const { re, im } = isComplex(value) ? value : { re: value, im: 0 };
  if (view instanceof BigInt64Array || view instanceof BigUint64Array) {
    view[i] = toBigInt(re);
    return;
  }
  const n = Number(re);
  if (dtype === complex64) {
    view[2 * i] = n;
    view[2 * i + 1] = im;
  } else if (dtype === bool) view[i] = n !== 0 || im !== 0 ? 1 : 0;
  else if (dtype === float16) view[i] = float16Bits(n);
  else if (dtype === bfloat16) view[i] = bfloat16Bits(n);
  else view[i] = typeof re === "bigint" && dtype.kind !== "float" ? Number(BigInt.asIntN(32, re)) : n;
}

/** The bits of an element of 4 or 8 bytes, low half first. */
export function elementWords(dtype: Dtype, value: Scalar): [low: number, high: number] {
  const words = new Uint32Array(2);
  setHostValue(dtype, hostView(dtype, new Uint8Array(words.buffer, 0, dtype.bytes)), 0, value);
  return [words[0], words[1]];
}

/** Whether two elements fill a packed word: float16 and bfloat16. */
export function isHalf(dtype: Dtype): boolean {
  return dtype === float16 || dtype === bfloat16;
}

/** Whether elements are floats that kernels compute in float32: float32, float16 and bfloat16. */
export function isFloat(dtype: Dtype): boolean {
  return dtype === float32 || isHalf(dtype);
}
