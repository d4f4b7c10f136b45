/**
 * Tensors that lie in safetensors files, for code that reads them in parts and writes their bytes.
 *
 * @module
 */

import type { Dtype } from "../../graph/dtype.ts";
import { sizeOf } from "../../graph/shape.ts";
import { readNode } from "../../schedule/realize.ts";
import { readHeader } from "./safetensors.ts";
import { make, nodeOf, type Tensor } from "../tensor/tensor.ts";

/** A tensor of a file that nothing is read of yet. */
export interface StoredTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Dtype that it loads as. */
  readonly dtype: Dtype;
  /** Its shape. */
  readonly shape: readonly number[];
  /** The file, its version, and where the tensor begins there. */
  readonly place: { readonly path: string; readonly version: string; readonly byteOffset: number };
}

/** The tensors of a safetensors file, for code that reads parts of them. */
export function storedTensors(path: string): StoredTensor[] {
  const { path: real, version, dataStart, entries } = readHeader(path);
  return entries.map(({ name, dtype, shape, begin }) => ({
    name,
    dtype,
    shape,
    place: { path: real, version, byteOffset: dataStart + begin },
  }));
}

/** A stored tensor, read when something needs it. */
export function storedWhole({ dtype, shape, place }: StoredTensor): Tensor {
  return make("file", [], [...shape], dtype, place);
}

/** `count` rows of a stored tensor from `first` on, read when something needs them. */
export function storedRows({ dtype, shape, place }: StoredTensor, first: number, count: number): Tensor {
  const bytes = sizeOf(shape.slice(1)) * dtype.bytes;
  return make("file", [], [count, ...shape.slice(1)], dtype, {
    ...place,
    byteOffset: place.byteOffset + first * bytes,
  });
}

/** The bytes of an array as a file holds them; computes it if nothing has yet. */
export function storedBytes(tensor: Tensor): Uint8Array {
  return readNode(nodeOf(tensor));
}
