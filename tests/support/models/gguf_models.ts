/**
 * Small models in GGUF, as the package gguf writes them, with mlx-lm's logits of their weights. golden/models/gguf_models.json.gz has their
 * headers; values and blocks are drawn here as reference/gguf/models.py draws them.
 */

import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";
import { GGUF_TYPES } from "../../../src/array/files/gguf_types.ts";
import { hash, tensorOf, type TensorRow } from "./mlx_lm_families.ts";

/**
 * A tensor of a file: its values, or the tensors of the model that it holds, one after the other. Rows and columns of them may be in another
 * order or left out, and a number added.
 */
type Source =
  | readonly [name: string, type: string, values: readonly number[]]
  | readonly [
    name: string,
    type: string,
    of: readonly string[],
    shape: readonly number[],
    rows: readonly number[] | null,
    columns: readonly number[] | null,
    added: number,
  ];

/** A model in a file. */
export interface GgufModel {
  readonly name: string;
  /** The config of the same model in a folder. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly rows: readonly TensorRow[];
  readonly tensors: readonly Source[];
  /** SHA-256 of the file that the package gguf wrote. */
  readonly sha256: string;
  /** The beginning of the file in base64. */
  readonly header: string;
}

const file = (name: string): Uint8Array<ArrayBuffer> =>
  Deno.readFileSync(new URL(`../../golden/models/${name}`, import.meta.url));

/** The models. */
export const GGUF_MODELS: readonly GgufModel[] = JSON.parse(
  new TextDecoder().decode(gunzipSync(file("gguf_models.json.gz"))),
);

/** mlx-lm's logits of a model, as keptLogits() keeps them. */
export function ggufLogits(index: number): Float32Array {
  const all = new Float32Array(file("gguf_models.f32").buffer);
  const each = all.length / GGUF_MODELS.length;
  return all.subarray(index * each, (index + 1) * each);
}

/** The bytes of a model's file. */
export function ggufBytes(model: GgufModel): Uint8Array {
  const parts: Uint8Array[] = [Uint8Array.fromBase64(model.header)];
  for (const source of model.tensors) {
    const data = bytesOf(source, model.rows);
    parts.push(data, new Uint8Array(-data.length & 31));
  }
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) bytes.set(part, at), at += part.length;
  assertEquals(createHash("sha256").update(bytes).digest("hex"), model.sha256, model.name);
  return bytes;
}

function bytesOf(source: Source, rows: readonly TensorRow[]): Uint8Array {
  const [, type] = source;
  if (source.length === 3) return new Uint8Array(Float32Array.from(source[2]).buffer);
  const [, , of, shape, rowOrder, columnOrder, added] = source;
  const places = of.map((name) => rows.findIndex(([other]) => other === name));
  if (Object.hasOwn(SCALES, type)) return blocksOf(type, places[0], shape);
  return mx.tidy(() => {
    const width = shape.length > 1 ? shape.at(-1)! : 1;
    const parts = places.map((row) => tensorOf(rows[row], row).astype(mx.float32).reshape(-1, width));
    const whole = parts.length > 1 ? mx.concatenate(parts, 0) : parts[0];
    const inRows = rowOrder === null ? whole : mx.take(whole, mx.array([...rowOrder], mx.int32), 0);
    const stored = columnOrder === null ? inRows : mx.take(inRows, mx.array([...columnOrder], mx.int32), 1);
    const values = stored.add(added);
    if (type === "F32") return new Uint8Array(values.toTypedArray().slice().buffer);
    const dtype = type === "BF16" ? mx.bfloat16 : mx.float16;
    return new Uint8Array(values.astype(dtype).view(mx.uint16).toTypedArray().slice().buffer);
  });
}

/** Where the 16-bit floats of a block are, their exponents, and whether they are below 0. */
const SCALES: Readonly<Record<string, readonly (readonly [at: number, exponent: number, negative?: true])[]>> = {
  Q4_0: [[0, -7]],
  Q4_1: [[0, -7], [2, -4, true]],
  Q5_0: [[0, -8]],
  Q5_1: [[0, -8], [2, -4, true]],
  Q8_0: [[0, -11]],
  Q2_K: [[80, -8], [82, -7]],
  Q3_K: [[108, -10]],
  Q4_K: [[0, -13], [2, -10]],
  Q5_K: [[0, -14], [2, -10]],
  Q6_K: [[208, -14]],
  IQ4_NL: [[0, -11]],
  MXFP4: [],
};

function hashed(row: number, index: number): number {
  return hash((Math.imul(index, 2654435761) + Math.imul(row, 0x9e3779b9)) >>> 0);
}

/** Blocks of tensor number `row`: hashed words, with scales of one exponent. */
function blocksOf(type: string, row: number, shape: readonly number[]): Uint8Array {
  const { block, bytes } = [...GGUF_TYPES.values()].find(({ name }) => name === type)!;
  const count = shape.reduce((product, size) => product * size, 1) / block;
  const words = Uint32Array.from({ length: Math.ceil(count * bytes / 4) }, (_, i) => hashed(row, i));
  const data = new Uint8Array(words.buffer, 0, count * bytes);
  const view = new DataView(data.buffer);
  for (let i = 0; i < count; i++) {
    SCALES[type].forEach(([at, exponent, negative], index) => {
      const digits = hashed(row + 1000 * (index + 1), i) & 1023;
      view.setUint16(i * bytes + at, digits + ((exponent + 15) << 10) + (negative ? 0x8000 : 0), true);
    });
    if (type === "MXFP4") data[i * bytes] = 121 + (hashed(row + 1000, i) & 1);
  }
  return data;
}
