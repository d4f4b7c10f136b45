/**
 * Layers of `mx.nn` over the tensors of a model directory, dense or quantized. They take them from {@link Weights} by path, which is
 * where shapes are checked; nothing is drawn or computed.
 *
 * @module
 */

import { duplicated } from "../../array/devices/duplicate.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { Embedding, Linear, type Module, QuantizedEmbedding, QuantizedLinear, RMSNorm } from "../../nn/mod.ts";
import type { QuantizedArrays } from "../../nn/mod.ts";
import { CODE_MODES } from "../../graph/quantization.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { partPath } from "../checkpoint/row_parts.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { PartedTable, type Table } from "./parted_table.ts";

export type { Table };

/** A layer from arrays to arrays, such as a linear map or a norm; others may be put in its place. */
export type Layer = Module & { forward(x: Tensor): Tensor };

/** Applies a layer to x in the dtype of x: weights may have another one. */
export function forwardInDtype(layer: Layer, x: Tensor): Tensor {
  return layer.forward(x).astype(x.dtype);
}

/** Takes `<path>.weight` (outputs, inputs), or its codes, scales and biases, and `<path>.bias` (outputs,) if it has one. */
export function linear(weights: Weights, path: string, inputs: number, outputs: number, bias: boolean = false): Layer {
  const matrix = takeMatrix(weights, path, [outputs], inputs);
  const arrays = bias ? { ...matrix, bias: weights.takeVector(`${path}.bias`, [outputs]) } : matrix;
  return "scales" in arrays ? new QuantizedLinear(arrays) : new Linear(arrays);
}

/** Takes `<path>.weight` (count, size), or its codes, scales and biases; those of its parts, if it is too large for one array. */
export function embedding(weights: Weights, path: string, count: number, size: number): Table {
  const rows = weights.rowsOfParts(path, count);
  if (rows === undefined) return tableOf(takeMatrix(weights, path, [count], size));
  return new PartedTable(
    rows.map((own, i) => tableOf(takeMatrix(weights, partPath(path, i), [own], size, path))),
    rows,
  );
}

function tableOf(matrix: ReturnType<typeof takeMatrix>): Table {
  return "scales" in matrix ? new QuantizedEmbedding(matrix) : new Embedding(matrix);
}

/** A table of the same vectors, none of which is evaluated, for another device. */
export function copyOfTable(weights: Weights, table: Table): Table {
  if (table instanceof PartedTable) return table.map((part) => copyOfTable(weights, part));
  const copy = (array: Tensor): Tensor => weights.adopt(duplicated(array));
  if (!(table instanceof QuantizedEmbedding)) return new Embedding({ weight: copy((table as Embedding).weight) });
  const { weight, scales, biases, groupSize, bits, mode } = table;
  const arrays = { weight: copy(weight), scales: copy(scales), ...(biases && { biases: copy(biases) }) };
  return new QuantizedEmbedding({ ...arrays, groupSize, bits, mode });
}

/** Takes `<path>.weight` (size,). */
export function rmsNorm(weights: Weights, path: string, size: number, config: DecoderConfig): Layer {
  const { rmsNormEps, normOffset } = config;
  const arrays = { weight: weights.takeVector(`${path}.weight`, [size]) };
  return normOffset === undefined ? new RMSNorm(arrays, rmsNormEps) : new OffsetNorm(arrays, rmsNormEps, normOffset);
}

/** The same, whatever other norms of the model add to their weights. */
export function plainNorm(weights: Weights, path: string, size: number, eps: number): Layer {
  return new RMSNorm({ weight: weights.takeVector(`${path}.weight`, [size]) }, eps);
}

/** A norm whose weight is stored without a part that all have, as 1. */
class OffsetNorm extends RMSNorm {
  readonly #offset: number;

  constructor(arrays: { readonly weight: Tensor }, eps: number, offset: number) {
    super(arrays, eps);
    this.#offset = offset;
  }

  /** x (…, dims); the weight is added up in the dtype of x. */
  override forward(x: Tensor): Tensor {
    return mx.fast.rmsNorm(x, mx.add(this.weight.astype(x.dtype), this.#offset), this.eps);
  }
}

/**
 * Takes `<path>.weight` (…rows, cols), or its codes, scales and, if the mode has them, biases. config.json may have another `name` for it.
 */
export function takeMatrix(
  weights: Weights,
  path: string,
  rows: readonly number[],
  cols: number,
  name: string = path,
): { readonly weight: Tensor } | QuantizedArrays {
  const quantization = weights.quantization(path, cols, name);
  if (quantization === undefined) return { weight: weights.takeDense(`${path}.weight`, [...rows, cols]) };
  const { bits, groupSize, mode = "affine" } = quantization;
  const weight = weights.take(`${path}.weight`, [...rows, cols * bits / 32], "codes");
  const factors = (name: string, kind: "float" | "bytes"): Tensor =>
    weights.take(`${path}.${name}`, [...rows, cols / groupSize], kind);
  const scales = factors("scales", CODE_MODES[mode].floatScales ? "float" : "bytes");
  if (!CODE_MODES[mode].biases) return { weight, scales, groupSize, bits, mode };
  const matrix = { weight, scales, biases: factors("biases", "float"), groupSize, bits };
  if (rows.length === 1) weights.matrices.push(matrix); // indices choose from stacks as they lie
  return matrix;
}
