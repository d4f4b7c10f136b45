/**
 * Random matrices of experts in every format, rows that are sorted by expert, their tiles, and what products of them are in float64.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { type Dtype, float16, float32, type HostArray } from "../../../src/graph/dtype.ts";
import type { ExpertUnit } from "../../../src/graph/experts.ts";
import type { CodeMode, QuantizationMode } from "../../../src/graph/quantization.ts";
import { pack, unpack } from "./kernel_values.ts";
import { generator } from "./oracle.ts";

const next = generator(41);
/** Numbers of [-scale, scale). */
export const random = (n: number, scale = 1): number[] => Array.from({ length: n }, () => (next() * 2 - 1) * scale);

/** Rows of each expert. */
export type Counts = readonly number[];

/** Tiles as the kernel cuts them, in JavaScript. */
export function tilesOf(counts: Counts, height: number, length: number): number[] {
  const tiles: number[] = [];
  let first = 0;
  counts.forEach((count, expert) => {
    for (let i = 0; i < count; i += height) tiles.push(first + i, expert << 8 | Math.min(height, count - i));
    first += count;
  });
  return [...tiles, ...new Array(2 * length - tiles.length).fill(0)];
}

/** The expert of each row. */
export function expertsOf(counts: Counts): Uint32Array<ArrayBuffer> {
  return Uint32Array.from(counts.flatMap((count, expert) => new Array(count).fill(expert)));
}

/** A product of sorted rows. */
export interface Case {
  readonly counts: Counts;
  readonly n: number;
  readonly k: number;
  readonly mode?: CodeMode;
  readonly bits?: number;
  readonly group?: number;
  readonly scales?: Dtype;
  readonly x?: Dtype;
  readonly out?: Dtype;
  /** Rows are others than those in order. */
  readonly permuted?: boolean;
}

/** Codes of random matrices (experts, n, k), and their numbers. */
export function matricesOf(experts: number, { n, k, mode = "affine", bits, group, scales: dtype = float16 }: Case): {
  /** Codes, scales, and biases of affine codes. */
  readonly parts: readonly (HostArray | undefined)[];
  readonly numbers: Float32Array;
} {
  return mx.withDevice("wasm", () => {
    const dense = mx.array(random(experts * n * k, (3 / k) ** 0.5), float32).reshape(experts, n, k);
    const affine = mode === "affine";
    const [codes, ...factors] = mx.quantize(dense, group ?? null, bits ?? null, mode as QuantizationMode);
    const [scales, biases] = factors.map((part) => affine ? part.astype(dtype) : part);
    // In float32, as the kernels multiply.
    const wide = [scales, biases].map((part) => affine ? part.astype(float32) : part);
    const numbers = mx.dequantize(codes, wide[0], wide[1] ?? null, group ?? null, bits ?? null, {
      mode,
      dtype: float32,
    });
    const bytes = wide.map((part) => {
      const values = part?.toTypedArray();
      return values && (affine ? pack(dtype, values as Float32Array) : values.slice());
    });
    return {
      parts: [codes.toTypedArray().slice(), ...bytes],
      numbers: (numbers.toTypedArray() as Float32Array).slice(),
    };
  });
}

/** Bits and group size by mode. */
export const DEFAULTS: Readonly<Partial<Record<CodeMode, readonly [bits: number, group: number]>>> = {
  affine: [4, 64],
  mxfp4: [4, 32],
  mxfp8: [8, 32],
  nvfp4: [4, 16],
};

/** What the rows are, in float64, of x as the kernel reads it and weights rounded to float16. */
export function expectedOf(
  { counts, n, k }: Case,
  x: readonly number[],
  left: Uint32Array,
  numbers: Float32Array,
): Float64Array {
  const w = unpack(float16, pack(float16, [...numbers]));
  const indices = expertsOf(counts);
  return Float64Array.from({ length: indices.length * n }, (_, at) => {
    const [row, column] = [Math.floor(at / n), at % n];
    const from = (indices[row] * n + column) * k;
    let sum = 0;
    for (let d = 0; d < k; d++) sum += x[left[row] * k + d] * w[from + d];
    return sum;
  });
}

/** The unit of a gate and a linear part. */
export function unitOf(unit: ExpertUnit, gate: number, up: number): number {
  const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
  if (unit === "silu") return gate * sigmoid(gate) * up;
  if (unit === "geluTanh") {
    return 0.5 * gate * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (gate + 0.044715 * gate ** 3))) * up;
  }
  const cut = Math.min(gate, 7);
  return cut * sigmoid(1.702 * cut) * (Math.min(Math.max(up, -7), 7) + 1);
}

/** Choices (rows, chosen) of `experts`, as experts first and then their weights, all in one list. */
export function choicesOf(rows: number, chosen: number, experts: number): { choice: number[]; weights: number[][] } {
  const weights = Array.from({ length: rows }, () => random(chosen));
  const first = (row: number): number => Math.floor((row * row) % 11 * experts / 14); // some experts have none
  const own = (row: number): number[] => Array.from({ length: chosen }, (_, i) => (first(row) + 3 * i) % experts);
  return { choice: weights.flatMap((list, row) => [...own(row), ...list]), weights };
}

/** Numbers of choices by expert, and tiles of `height` where the kernel puts them. */
export function orderOf(
  chosenBy: readonly number[],
  experts: number,
  height: number,
): { order: number[]; tiles: number[] } {
  const order: number[] = [];
  const tiles = new Array(2 * (Math.floor(chosenBy.length / height) + experts)).fill(0);
  for (let e = 0; e < experts; e++) {
    const own = chosenBy.flatMap((expert, i) => expert === e ? [i] : []);
    for (let i = 0; i < own.length; i += height) {
      const at = Math.floor(order.length / height) + e + i / height;
      tiles.splice(2 * at, 2, order.length + i, e << 8 | Math.min(height, own.length - i));
    }
    order.push(...own);
  }
  return { order, tiles };
}
