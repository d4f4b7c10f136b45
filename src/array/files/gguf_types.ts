/**
 * The tensor types of GGUF, and what they become. Layouts: ggml-common.h of https://github.com/ggml-org/ggml.
 *
 * @module
 */

import * as dt from "../../graph/dtype.ts";
import type { Dtype } from "../../graph/dtype.ts";
import type { AnyTensor } from "../tensor/tensor.ts";
import { BLOCK_VALUES, LARGE } from "./gguf_blocks.ts";
import { BLOCK_CODES, type GgufCodes, GROUP } from "./gguf_codes.ts";

/** A tensor type: blocks of so many elements and bytes. It has elements of a dtype, or codes, values or both. */
export interface GgufType {
  readonly name: string;
  /** Elements of a block. */
  readonly block: number;
  /** Bytes of a block. */
  readonly bytes: number;
  /** The bytes are elements of it. */
  readonly dtype?: Dtype;
  /** The format of codes with products that has these weights. */
  readonly codes?: GgufCodes;
  /** Values, float32 (blocks, elements); absent where codes are exact and MLX loads them too. */
  readonly values?: (blocks: AnyTensor) => AnyTensor;
}

/** A type whose bytes are numbers. */
function plain(name: string, dtype: Dtype): GgufType {
  return { name, block: 1, bytes: dtype.bytes, dtype };
}

/** A type of blocks, with what is known of it by its name. */
function quantized(name: string, block: number, bytes: number): GgufType {
  const [codes, values] = [BLOCK_CODES, BLOCK_VALUES].map((rows) =>
    Object.hasOwn(rows, name) ? rows[name as keyof typeof rows] : undefined
  );
  return {
    name,
    block,
    bytes,
    ...(codes && { codes: codes as GgufCodes }),
    ...(values && { values: values as NonNullable<GgufType["values"]> }),
  };
}

/** All types that are read, by code. */
export const GGUF_TYPES: ReadonlyMap<number, GgufType> = new Map<number, GgufType>([
  [0, plain("F32", dt.float32)],
  [1, plain("F16", dt.float16)],
  [2, quantized("Q4_0", GROUP, 18)],
  [3, quantized("Q4_1", GROUP, 20)],
  [6, quantized("Q5_0", GROUP, 22)],
  [7, quantized("Q5_1", GROUP, 24)],
  [8, quantized("Q8_0", GROUP, 34)],
  [10, quantized("Q2_K", LARGE, 84)],
  [11, quantized("Q3_K", LARGE, 110)],
  [12, quantized("Q4_K", LARGE, 144)],
  [13, quantized("Q5_K", LARGE, 176)],
  [14, quantized("Q6_K", LARGE, 210)],
  [15, quantized("Q8_K", LARGE, 292)],
  [20, quantized("IQ4_NL", GROUP, 18)],
  [24, plain("I8", dt.int8)],
  [25, plain("I16", dt.int16)],
  [26, plain("I32", dt.int32)],
  [27, plain("I64", dt.int64)],
  [28, plain("F64", dt.float64)],
  [30, plain("BF16", dt.bfloat16)],
  [39, quantized("MXFP4", GROUP, 17)],
]);

/** Codes of the types that arrays are written as. */
export const GGUF_CODES: ReadonlyMap<Dtype, number> = new Map(
  [...GGUF_TYPES].flatMap(([code, { dtype }]) => dtype ? [[dtype, code] as const] : []),
);
