/**
 * Quantized matrices: codes of few bits with a scale for each group of neighbours in a row, and products with them.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype follows from a mode

import { bfloat16, checkDtype, type Dtype, float32, isWide, promote, uint32, uint8 } from "../../graph/dtype.ts";
import { DtypeError, quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { checkOptions, entryOf } from "../../graph/options.ts";
import {
  CODE_MODES,
  type CodeMode,
  fitsRows,
  type ModeRow,
  QUANTIZATION_MODES,
  type QuantizationMode,
  type QuantizedFormat,
} from "../../graph/quantization.ts";
import { broadcastShapes, formatShape, sizeOf } from "../../graph/shape.ts";
import { castNode, type TensorLike, toNode } from "../tensor/convert.ts";
import { reshapeNode } from "../ops/movement.ts";
import { make, type Tensor, wrap } from "../tensor/tensor.ts";
import type { Same } from "../tensor/results.ts";
import type { RankOf } from "../tensor/types.ts";

/** Modes whose codes are small floats. */
export type SmallFloatMode = Exclude<QuantizationMode, "affine">;

/** Checks mode, group size and bits; defaults are the mode's. `modes` are the known ones. */
export function formatOf<Mode extends CodeMode = CodeMode>(
  op: string,
  groupSize: number | null | undefined,
  bits: number | null | undefined,
  mode: string | null | undefined,
  modes: Readonly<Partial<Record<Mode, ModeRow>>> = CODE_MODES,
): QuantizedFormat<Mode> {
  const name = mode ?? "affine";
  const row = entryOf(modes as Readonly<Record<string, ModeRow>>, name);
  if (!row) {
    const all = Object.keys(modes).join(", ");
    throw new ValueError(`${op}() expected mode to be one of ${all}: found ${quoted(name)}`);
  }
  const found = { bits: bits ?? row.defaults.bits, groupSize: groupSize ?? row.defaults.groupSize };
  const inMode = name === "affine" ? "" : ` in mode ${name}`;
  for (const [what, known] of [["bits", row.bits], ["groupSize", row.groupSizes]] as const) {
    if (known.includes(found[what])) continue;
    throw new ValueError(
      `${op}() expected ${what} to be one of ${known.join(", ")}${inMode}: found ${quoted(found[what])}`,
    );
  }
  return { ...found, mode: name as Mode };
}

/** Throws unless kernels read and write a dtype as floats. */
export function checkFloat(op: string, what: string, dtype: Dtype): void {
  checkDtype(dtype, op);
  if (dtype.kind === "float" && !isWide(dtype)) return;
  throw new DtypeError(`${op}() takes float arrays only: found ${what} of ${dtype.name}, use astype(mx.float32)`);
}

/** The number that scales of the whole matrix are relative to, if any: one float32, of nvfp4 only. */
export function globalNode(
  op: string,
  name: string,
  value: TensorLike | null | undefined,
  mode: string,
): Node | undefined {
  if (value == null) return undefined;
  if (mode !== "nvfp4") throw new ValueError(`${op}() takes ${name} in mode nvfp4 only: found mode ${mode}`);
  const node = toNode(op, value);
  if (sizeOf(node.shape) !== 1) {
    throw new ShapeError(`${op}() expected ${name} to be one number: found shape ${formatShape(node.shape)}`);
  }
  if (node.dtype !== float32) {
    throw new DtypeError(`${op}() expected ${name} to be float32: found ${node.dtype.name}`);
  }
  return reshapeNode(node, []);
}

/** Codes, scales and, if the mode has them, biases, checked against each other. */
export interface PackedMatrix {
  /** Codes, scales and, if the mode has them, biases; scales and biases of one dtype. */
  readonly inputs: readonly Node[];
  readonly format: QuantizedFormat;
  /** Length of an unpacked row. */
  readonly columns: number;
}

/** Checks codes, scales and biases against each other. */
export function packedMatrix(
  op: string,
  w: TensorLike,
  scales: TensorLike,
  biases: TensorLike | null | undefined,
  format: QuantizedFormat,
): PackedMatrix {
  const { bits, groupSize, mode } = format;
  const codes = toNode(op, w);
  if (codes.dtype !== uint32) throw new DtypeError(`${op}() expected w to be uint32: found ${codes.dtype.name}`);
  const factors = [toNode(op, scales)];
  const known = CODE_MODES[mode];
  if (known.biases && biases == null) throw new ValueError(`${op}() expected biases, which affine codes have`);
  if (!known.biases && biases != null) throw new ValueError(`${op}() takes no biases in mode ${mode}`);
  if (known.floatScales) {
    checkFloat(op, "scales", factors[0].dtype);
  } else if (factors[0].dtype !== uint8) {
    throw new DtypeError(`${op}() in mode ${mode} expected scales to be uint8: found ${factors[0].dtype.name}`);
  }
  if (biases != null) {
    factors.push(toNode(op, biases));
    checkFloat(op, "biases", factors[1].dtype);
  }
  const columns = (codes.shape[codes.shape.length - 1] ?? 0) * 32 / bits;
  const groups = formatShape([...codes.shape.slice(0, -1), columns / groupSize]);
  if (
    codes.shape.length < 2 || !fitsRows(format, columns) || factors.some(({ shape }) => formatShape(shape) !== groups)
  ) {
    const found = factors.map(({ shape }, i) => `${["scales", "biases"][i]} ${formatShape(shape)}`);
    throw new ShapeError(
      `${op}() with ${bits} bits in groups of ${groupSize} does not fit ` +
        [`w ${formatShape(codes.shape)}`, ...found].join(", "),
    );
  }
  const dtype = factors.map((node) => node.dtype).reduce(promote);
  return { inputs: [codes, ...factors.map((node) => castNode(node, dtype))], format, columns };
}

/** Codes, scales and, if they are affine, biases of a matrix. */
export function quantizeNodes(op: string, node: Node, format: QuantizedFormat, global?: Node): Node[] {
  const { bits, groupSize, mode } = format;
  checkFloat(op, "the matrix", node.dtype);
  const { shape } = node;
  const columns = shape[shape.length - 1] ?? 0;
  if (shape.length < 2) throw new ShapeError(`${op}() expected at least 2 axes: found shape ${formatShape(shape)}`);
  if (columns % groupSize !== 0) {
    throw new ShapeError(
      `${op}() expected the last axis to be divisible by groupSize ${groupSize}: found shape ${formatShape(shape)}`,
    );
  }
  const lead = shape.slice(0, -1);
  const codes = [...lead, columns * bits / 32];
  const groups = [...lead, columns / groupSize];
  const all = makeNode("quantize", global ? [node, global] : [node], codes, uint32, format);
  const factors = mode === "affine" ? [node.dtype, node.dtype] : [uint8];
  return [
    makeNode("part", [all], codes, uint32, { index: 0 }),
    ...factors.map((dtype, i) => makeNode("part", [all], groups, dtype, { index: i + 1 })),
  ];
}

/** The operands of a product with a quantized matrix, and the dtype of the result. */
export interface QuantizedOperands {
  readonly x: Node;
  readonly dtype: Dtype;
  /** Columns of the product. */
  readonly n: number;
}

/** Checks x against a quantized matrix; if its scales are floats it may be of whole numbers. */
export function operandsOf(op: string, x: Node, w: PackedMatrix, transpose: boolean): QuantizedOperands {
  const { inputs: [codes, scales], format: { mode }, columns } = w;
  const dtype = CODE_MODES[mode].floatScales ? promote(x.dtype, scales.dtype) : x.dtype;
  checkFloat(op, "x", dtype);
  const rows = codes.shape[codes.shape.length - 2];
  const [n, k] = transpose ? [rows, columns] : [columns, rows];
  if (x.shape[x.shape.length - 1] !== k) {
    throw new ShapeError(
      `${op}() cannot multiply ${formatShape(x.shape)} by ${transpose ? "the transpose of " : ""}a matrix of shape ` +
        formatShape([...codes.shape.slice(0, -2), rows, columns]),
    );
  }
  return { x: x.dtype.kind === "float" ? x : castNode(x, dtype), dtype, n };
}

/** Options of {@link quantize}. */
export interface QuantizeOptions {
  /** In mode nvfp4, one float32 number, as large as the largest of the matrix: scales are relative to it. */
  readonly globalScale?: TensorLike | null;
}

const QUANTIZE_OPTIONS = { globalScale: true } as const satisfies Record<keyof QuantizeOptions, true>;

/**
 * Quantization in groups along the last axis, which they must divide: [codes (uint32, packed), scales, biases]. Mode "affine" has
 * `w ≈ scale * code + bias`, 1, 2, 3, 4, 5, 6 or 8 bits (default 4) and groups of 32, 64 or 128 (default 64). The other modes have
 * codes of small floats, scales of one byte (uint8) and no biases:
 *
 * | mode    | codes | groups | scales |
 * | ------- | ----- | ------ | ------ |
 * | "mxfp4" | e2m1  | 32     | e8m0   |
 * | "mxfp8" | e4m3  | 32     | e8m0   |
 * | "nvfp4" | e2m1  | 16     | e4m3   |
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const w = mx.random.normal([128, 256]);
 * const [codes, scales, biases] = mx.quantize(w, 64, 4);
 * mx.quantizedMatmul(mx.ones([1, 256]), codes, scales, biases, true, 64, 4).shape; // [1, 128]
 *
 * const [small, bytes] = mx.quantize(w, null, null, "mxfp4");
 * mx.dequantize(small, bytes, null, null, null, "mxfp4").dtype.name; // "bfloat16"
 * ```
 */
export function quantize<W extends TensorLike>(
  w: W,
  groupSize?: number | null,
  bits?: number | null,
  mode?: "affine" | null,
  options?: QuantizeOptions,
): [Tensor<"uint32", RankOf<W>>, Same<W>, Same<W>];
/** The same in the modes of small floats: [codes, scales]. */
export function quantize<W extends TensorLike>(
  w: W,
  groupSize: number | null | undefined,
  bits: number | null | undefined,
  mode: SmallFloatMode,
  options?: QuantizeOptions,
): [Tensor<"uint32", RankOf<W>>, Tensor<"uint8", RankOf<W>>];
/** The same in any mode. */
export function quantize<W extends TensorLike>(
  w: W,
  groupSize: number | null | undefined,
  bits: number | null | undefined,
  mode: QuantizationMode,
  options?: QuantizeOptions,
): Tensor[];
export function quantize(
  w: TensorLike,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: QuantizationMode | null = "affine",
  options: QuantizeOptions = {},
): Tensor[] {
  const op = "quantize";
  checkOptions(op, options, QUANTIZE_OPTIONS);
  const format = formatOf(op, groupSize, bits, mode, QUANTIZATION_MODES);
  const global = globalNode(op, "globalScale", options.globalScale, format.mode);
  return quantizeNodes(op, toNode(op, w), format, global).map((node) => wrap(node));
}

/** Options of `dequantize`, in the place of `mode`. */
export interface DequantizeOptions {
  /** How codes are read. Default "affine". */
  readonly mode?: CodeMode;
  /** The number that the matrix was quantized with. */
  readonly globalScale?: TensorLike | null;
  /** Element type of the result; default that of the scales, bfloat16 for small floats. */
  readonly dtype?: Dtype | null;
}

const DEQUANTIZE_OPTIONS = { mode: true, globalScale: true, dtype: true } as const satisfies Record<
  keyof DequantizeOptions,
  true
>;

/**
 * The matrix that codes, scales and biases stand for. It is scale * code + bias, or scale * number in the modes of small floats, whose
 * default `dtype` is bfloat16. Mode "symmetric" of GGUF files has scale * (code - 2^(bits - 1)). Beginning with `mode`, arguments may also be an object.
 */
export function dequantize<W extends TensorLike>(
  w: W,
  scales: TensorLike,
  biases: TensorLike | null = null,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: CodeMode | DequantizeOptions | null = "affine",
  globalScale: TensorLike | null = null,
  dtype: Dtype | null = null,
): Tensor<any, RankOf<W>> {
  const op = "dequantize";
  const options = typeof mode === "object" && mode !== null ? mode : { mode: mode ?? undefined, globalScale, dtype };
  checkOptions(op, options, DEQUANTIZE_OPTIONS);
  const format = formatOf(op, groupSize, bits, options.mode);
  const { inputs, columns } = packedMatrix(op, w, scales, biases, format);
  const global = globalNode(op, "globalScale", options.globalScale, format.mode);
  const result = options.dtype ?? (CODE_MODES[format.mode].floatScales ? inputs[1].dtype : bfloat16);
  checkFloat(op, "dtype", result);
  const all = global ? [...inputs, global] : inputs;
  return make("dequantize", all, [...inputs[0].shape.slice(0, -1), columns], result, format);
}

/**
 * Product with a quantized matrix: x @ w.T, or x @ w when `transpose` is false. The dtype is that in which x, scales and
 * biases meet, in the modes of small floats that of x. Leading axes of x are rows; with more than two axes in w, leading axes
 * broadcast.
 */
export function quantizedMatmul<X extends TensorLike>(
  x: X,
  w: TensorLike,
  scales: TensorLike,
  biases: TensorLike | null = null,
  transpose: boolean = true,
  groupSize: number | null = null,
  bits: number | null = null,
  mode: CodeMode | null = "affine",
): Tensor<any, RankOf<X>> {
  const op = "quantizedMatmul";
  const matrix = packedMatrix(op, w, scales, biases, formatOf(op, groupSize, bits, mode));
  return wrap(quantizedProduct(op, toNode(op, x), matrix, transpose));
}

/** x times a quantized matrix, or the matrices of a batch. */
export function quantizedProduct(op: string, left: Node, w: PackedMatrix, transpose: boolean): Node {
  const { x, dtype, n } = operandsOf(op, left, w, transpose);
  const input = x.shape.length === 1 ? reshapeNode(x, [1, ...x.shape]) : x;
  const batches = [input, w.inputs[0]].map(({ shape }) => shape.slice(0, -2));
  const lead = broadcastShapes(batches[0], batches[1]);
  if (!lead) {
    throw new ShapeError(`${op}() cannot broadcast the batches ${batches.map((b) => formatShape(b)).join(" and ")}`);
  }
  const shape = [...lead, input.shape[input.shape.length - 2], n];
  const node = makeNode("quantizedMatmul", [input, ...w.inputs], shape, dtype, { ...w.format, transpose });
  return x.shape.length === 1 ? reshapeNode(node, [...lead, n]) : node;
}
