/**
 * Arrays of the tensors in a GGUF file, read and computed when something needs them.
 *
 * Blocks are decoded in pieces of some rows: what is between the bytes and the result never takes more memory than a piece.
 *
 * @module
 */

import * as dt from "../../graph/dtype.ts";
import { concatenate } from "../ops/join.ts";
import { astype, reshape } from "../ops/movement.ts";
import { type AnyTensor, make, type Tensor } from "../tensor/tensor.ts";
import type { GgufHeader, GgufTensor } from "./gguf.ts";
import type { GgufCodes } from "./gguf_codes.ts";
import type { GgufType } from "./gguf_types.ts";

/** Weights of a piece. */
const PIECE = 2 ** 22;

/** The blocks of a tensor, uint8 (blocks, bytes), in pieces. */
function pieces({ path, version }: GgufHeader, { type, byteOffset, bytes }: GgufTensor): AnyTensor[] {
  const count = bytes / type.bytes;
  const step = Math.ceil(PIECE / type.block);
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => {
    const place = { path, version, byteOffset: byteOffset + i * step * type.bytes };
    return make("file", [], [Math.min(step, count - i * step), type.bytes], dt.uint8, place);
  });
}

function joined(parts: readonly Tensor[]): Tensor {
  return parts.length === 1 ? parts[0] : concatenate([...parts], 0);
}

/** A tensor of numbers as it is stored. */
export function storedArray(
  { path, version }: GgufHeader,
  { shape, byteOffset }: GgufTensor,
  dtype: dt.Dtype,
): Tensor {
  return make("file", [], [...shape], dtype, { path, version, byteOffset });
}

/** The values of a quantized tensor. */
export function valueArray(
  header: GgufHeader,
  tensor: GgufTensor,
  values: NonNullable<GgufType["values"]>,
  dtype: dt.Dtype,
): Tensor {
  const parts = pieces(header, tensor).map((blocks) => astype(values(blocks), dtype));
  return reshape(joined(parts), [...tensor.shape]);
}

/** The codes of a quantized tensor (…rows, columns), with scales and biases of a dtype; biases in mode affine. */
export function codeArrays(
  header: GgufHeader,
  tensor: GgufTensor,
  { bits, groupSize, arrays }: GgufCodes,
  dtype: dt.Dtype,
): { readonly weight: Tensor; readonly scales: Tensor; readonly biases?: Tensor } {
  const rows = tensor.shape.slice(0, -1);
  const columns = tensor.shape.at(-1)!;
  const parts = pieces(header, tensor).map((blocks) => arrays(blocks, dtype));
  const whole = (of: readonly Tensor[], width: number): Tensor => reshape(joined(of), [...rows, width]);
  const biases = parts.flatMap((part) => part.biases ?? []);
  return {
    weight: whole(parts.map(({ codes }) => codes), columns * bits / 32),
    scales: whole(parts.map(({ scales }) => scales), columns / groupSize),
    ...(biases.length > 0 && { biases: whole(biases, columns / groupSize) }),
  };
}
