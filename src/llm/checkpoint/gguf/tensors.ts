/**
 * The tensors of GGUF files as the loader takes them: mlx-lm's names, rows of heads in its order, norms without an offset. Types that
 * have codes with products become those.
 *
 * @module
 */

import * as mx from "../../../array/mod.ts";
import type { Dtype, Tensor } from "../../../array/mod.ts";
import type { GgufHeader, GgufTensor } from "../../../array/files/gguf.ts";
import { codeArrays, storedArray, valueArray } from "../../../array/files/gguf_arrays.ts";
import type { GgufFamily } from "./families.ts";
import type { HeadSizes } from "./config.ts";
import { nameOf } from "./names.ts";

/** A tensor and the header of the file that holds it. */
export interface Placed {
  readonly header: GgufHeader;
  readonly tensor: GgufTensor;
}

/** The dtype of vectors beside matrices of 16 bits: fused kernels take one for all. Undefined for files without such matrices. */
function vectorDtype(placed: readonly Placed[]): Dtype | undefined {
  const types = placed.map(({ tensor }) => tensor.type).filter(({ dtype }) => dtype !== mx.float32);
  if (types.some(({ dtype }) => dtype !== mx.bfloat16)) return mx.float16;
  return types.length > 0 ? mx.bfloat16 : undefined;
}

/** Rows of heads (heads * D, …) from pairs of the two halves of a head to one half after the other. */
function unpaired(x: Tensor, heads: number): Tensor {
  const [rows, ...rest] = x.shape;
  return x.reshape(heads, rows / heads / 2, 2, ...rest).swapaxes(1, 2).reshape(rows, ...rest);
}

/** The arrays of a tensor by the ends of their names. */
function arraysOf({ header, tensor }: Placed, floats: Dtype): Readonly<Record<string, Tensor>> {
  const { type } = tensor;
  if (type.dtype) return { weight: storedArray(header, tensor, type.dtype) };
  if (type.codes) return codeArrays(header, tensor, type.codes, floats);
  return { weight: valueArray(header, tensor, type.values!, floats) };
}

const QUERIES_KEYS = /\.self_attn\.([qk])_proj\.(weight|bias)$/;
const NORM = /norm\.weight$/;
const CONVOLUTION = /\.conv\.conv\.weight$/;
/** Added to scores that choose experts: its digits decide between close ones. */
const CHOICE = /\.expert_bias$/;
const SHARED_GATE = /\.shared_expert_gate\.weight$/;

/**
 * The tensors of a model by mlx-lm's names, none of them read. If `exact`, scales and values have all their digits in float32, and vectors
 * their own dtype; else they have 16 bits.
 */
export function tensorsOf(
  placed: readonly Placed[],
  { names = {}, paired = false, normOffset = 0 }: GgufFamily,
  { heads, kvHeads, headDim }: HeadSizes,
  exact: boolean,
): [name: string, tensor: Tensor][] {
  const vector = exact ? undefined : vectorDtype(placed);
  const floats = exact ? mx.float32 : mx.float16;
  return placed.flatMap((one): [string, Tensor][] => {
    const { name: stored, shape, type } = one.tensor;
    const name = nameOf(stored, names);
    if (name === undefined) return [];
    const [, which] = QUERIES_KEYS.exec(name) ?? [];
    const count = which === "q" ? heads : kvHeads;
    const isPaired = paired && which !== undefined && shape[0] === count * headDim;
    const isSmall = shape.length === 1 || name.endsWith(".bias") || CONVOLUTION.test(name);
    const isVector = type.dtype === mx.float32 && isSmall && !CHOICE.test(name);
    const form = (x: Tensor): Tensor => {
      if (isPaired) return unpaired(x, count);
      if (CONVOLUTION.test(name) && x.ndim === 2) return x.reshape(...x.shape, 1); // a filter of each channel
      const shifted = normOffset !== 0 && NORM.test(name) ? mx.subtract(x, normOffset) : x;
      if (SHARED_GATE.test(name) && shifted.ndim === 1) return shifted.reshape(1, -1);
      return shifted;
    };
    const path = name.replace(/\.weight$/, "");
    return Object.entries(arraysOf(one, floats)).map(([part, array]) => {
      const formed = form(array);
      const cast = isVector && vector ? formed.astype(vector) : formed;
      return [part === "weight" ? name : `${path}.${part}`, cast];
    });
  });
}

/** Says which types became codes, with which error, and which became values; undefined if none did. */
export function describeTypes(placed: readonly Placed[], exact: boolean): string | undefined {
  const counts = new Map<GgufTensor["type"], number>();
  for (const { tensor: { type } } of placed) if (!type.dtype) counts.set(type, (counts.get(type) ?? 0) + 1);
  const lines = Array.from(counts, ([{ name, codes }, count]) => {
    if (!codes) return `${count} of ${name} dequantized to ${exact ? "float32" : "float16"}`;
    const kind = codes.mode === "mxfp4" ? codes.mode : `${codes.bits}-bit codes`;
    return `${count} of ${name} as ${kind}, ${codes.rounded && !exact ? "scales rounded by at most 2^-11" : "exact"}`;
  });
  return lines.length > 0 ? lines.join("; ") : undefined;
}
