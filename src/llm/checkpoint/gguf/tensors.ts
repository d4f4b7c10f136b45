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
import { type ArrayLimits, partPath, partRows, partsOfRows } from "../row_parts.ts";
import { type Facts, headsOf } from "./config.ts";
import type { GgufFamily, TensorForm } from "./family.ts";
import { layerOf, nameOf } from "./names.ts";

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
const CONVOLUTION = /\.(conv\.conv|conv1d)\.weight$/;
/** Arrays whose digits count: they decide between experts of close scores, or are exponents. */
const EXACT = /\.(expert_bias|e_score_correction_bias|A_log)$/;
const SHARED_GATE = /\.shared_expert_gate\.weight$/;

/** Gate and up of experts that a file has in one tensor. */
const GATE_UP: TensorForm = {
  of: /\.switch_\w+\.gate_up_proj$/,
  make: (x) => {
    const [gate_proj, up_proj] = mx.split(x, 2, -2);
    return { gate_proj, up_proj };
  },
};

/** The tensors that a model has: not those that its config is made of, nor layers that predict further tokens. */
export function loaded(placed: readonly Placed[], { names = {} }: Pick<GgufFamily, "names">, facts: Facts): Placed[] {
  const layers = facts.number("block_count")!;
  return placed.filter(({ tensor: { name } }) => nameOf(name, names) !== undefined && (layerOf(name) ?? 0) < layers);
}

/** A tensor, or its parts if what it becomes is too large for an array. */
function partsOf({ header, tensor }: Placed, floats: Dtype, most: ArrayLimits | undefined): Placed[] {
  const { type, shape, byteOffset, bytes } = tensor;
  const columns = shape.at(-1)!;
  const stored = type.codes
    ? { shape: shape.with(-1, columns * type.codes.bits / 32), elementBytes: 4 }
    : { shape, elementBytes: (type.dtype ?? floats).bytes };
  const step = shape.length === 2 ? partRows(stored, most) : undefined;
  if (step === undefined) return [{ header, tensor }];
  const rowBytes = bytes / shape[0]; // rows are whole blocks
  return partsOfRows(shape[0], step).map(({ first, rows }) => ({
    header,
    tensor: { ...tensor, shape: [rows, columns], byteOffset: byteOffset + first * rowBytes, bytes: rows * rowBytes },
  }));
}

/**
 * The tensors of a model by mlx-lm's names, none of them read. If `exact`, scales and values have all their digits in float32, and vectors
 * their own dtype; else they have 16 bits. Those above `most` are in parts of rows.
 */
export function tensorsOf(
  placed: readonly Placed[],
  { names = {}, paired = false, normOffset = 0, forms: formsOf }: GgufFamily,
  facts: Facts,
  exact: boolean,
  most?: ArrayLimits,
): [name: string, tensor: Tensor][] {
  const vector = exact ? undefined : vectorDtype(placed);
  const floats = exact ? mx.float32 : mx.float16;
  const forms = [GATE_UP, ...formsOf?.(facts) ?? []];
  const named = loaded(placed, { names }, facts).flatMap((one) => {
    const parts = partsOf(one, floats, most);
    return parts.map((part, i) => ({ one: part, part: parts.length > 1 ? i : undefined }));
  });
  return named.flatMap(({ one, part: number }): [string, Tensor][] => {
    const { name: stored, shape, type } = one.tensor;
    const name = nameOf(stored, names)!;
    const pairs = paired ? pairsOf(name, shape[0], facts) : undefined;
    const isSmall = shape.length === 1 || name.endsWith(".bias") || CONVOLUTION.test(name);
    const isVector = type.dtype === mx.float32 && isSmall && !EXACT.test(name);
    const [end = ""] = /\.(weight|bias)$/.exec(name) ?? [];
    const whole = name.slice(0, name.length - end.length);
    const path = number === undefined ? whole : partPath(whole, number);
    const form = forms.find(({ of }) => of.test(path));
    const inOrder = (x: Tensor): Tensor => {
      if (pairs !== undefined) return unpaired(x, pairs);
      if (CONVOLUTION.test(name) && x.ndim === 2) return x.reshape(...x.shape, 1); // a filter of each channel
      const shifted = normOffset !== 0 && NORM.test(name) ? mx.subtract(x, normOffset) : x;
      return SHARED_GATE.test(name) && shifted.ndim === 1 ? shifted.reshape(1, -1) : shifted;
    };
    return Object.entries(arraysOf(one, floats)).flatMap(([part, array]) => {
      const formed = form?.make(array) ?? array;
      const made = formed instanceof mx.Tensor ? { [path]: formed } : besides(path, formed);
      return Object.entries(made).map(([path, x]): [string, Tensor] => {
        const ordered = inOrder(x);
        const cast = isVector && vector ? ordered.astype(vector) : ordered;
        return [part === "weight" ? `${path}${end}` : `${path}.${part}`, cast];
      });
    });
  });
}

/** The heads whose rows are in pairs, of a tensor with so many rows; undefined where they are not. */
function pairsOf(name: string, rows: number, facts: Facts): number | undefined {
  const [, which] = QUERIES_KEYS.exec(name) ?? [];
  if (which === undefined) return undefined;
  const { heads, kvHeads, headDim } = headsOf(facts);
  const count = which === "q" ? heads : kvHeads;
  return rows === count * headDim ? count : undefined;
}

/** Tensors by the paths that have the given last parts in place of that of `path`. */
function besides(path: string, parts: Readonly<Record<string, Tensor>>): Record<string, Tensor> {
  const parent = path.slice(0, path.lastIndexOf(".") + 1);
  return Object.fromEntries(Object.entries(parts).map(([part, x]) => [`${parent}${part}`, x]));
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
