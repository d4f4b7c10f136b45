/**
 * Arrays in GGUF files: loading with the weights as MLX names them, and saving.
 *
 * @module
 */

import { DtypeError, quoted, ValueError } from "../../graph/error.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import * as dt from "../../graph/dtype.ts";
import { array } from "../ops/creation.ts";
import { make, Tensor } from "../tensor/tensor.ts";
import {
  ALIGNMENT,
  type GgufHeader,
  type GgufTensor,
  type GgufValue,
  LIST,
  MAGIC,
  readGguf,
  STRING,
  VALUES,
  VERSION,
} from "./gguf.ts";
import { codeArrays, storedArray, valueArray } from "./gguf_arrays.ts";
import { GGUF_CODES } from "./gguf_types.ts";
import { byName, namedList, type NamedTensors, type TensorTree } from "./named.ts";
import { tensorPieces, writeFile } from "./pieces.ts";
import { failFile } from "./safetensors.ts";
import { storedBytes } from "./stored.ts";

/** Metadata of a GGUF file: texts, lists of texts, numbers as arrays of no axes and lists of numbers as arrays of one. */
export type GgufMetadata = Record<string, string | string[] | Tensor>;

const WEIGHT = ".weight";

/** The arrays that a tensor becomes, by name. */
function arraysOf(header: GgufHeader, tensor: GgufTensor): [string, Tensor][] {
  const { name, type } = tensor;
  if (type.dtype) return [[name, storedArray(header, tensor, type.dtype)]];
  if (type.values) return [[name, valueArray(header, tensor, type.values, dt.float16)]];
  const { weight, scales, biases } = codeArrays(header, tensor, type.codes!, dt.float16);
  const prefix = name.endsWith(WEIGHT) ? name.slice(0, -WEIGHT.length) : name;
  return [[name, weight], [`${prefix}.scales`, scales], [`${prefix}.biases`, biases!]];
}

function loadedValue(value: GgufValue): string | string[] | Tensor {
  if (typeof value === "string") return value;
  if (!("dtype" in value)) return [...value];
  return make("data", [], [...value.shape], value.dtype, { bytes: value.bytes });
}

/** The arrays of a GGUF file by name, and its metadata. See {@link loadGguf}. */
export function loadGgufWithMetadata(path: string): [arrays: NamedTensors, metadata: GgufMetadata] {
  const header = readGguf(path);
  const list = header.tensors.flatMap((tensor) => arraysOf(header, tensor));
  const names = new Set<string>();
  for (const [name] of list) {
    if (names.has(name)) failFile(path, `has two arrays that would be called ${quoted(name)}`);
    names.add(name);
  }
  return [byName(list), byName([...header.metadata].map(([key, value]) => [key, loadedValue(value)]))];
}

/**
 * The arrays of a GGUF file by name. As in MLX, Q4_0, Q4_1 and Q8_0 weights become codes, scales and biases ("x.weight", "x.scales",
 * "x.biases") for `mx.dequantize` in groups of 32. Other quantized types become float16 values. Nothing is read or computed before it
 * is needed.
 *
 * Throws an {@link ArrayError} with code "file" if that is no such file, is damaged, or has tensors of another type.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = await Deno.makeTempFile({ suffix: ".gguf" });
 * mx.saveGguf(path, { w: mx.ones([2, 2]) }, { "general.name": "ones" });
 * mx.loadGguf(path).w.tolist(); // [[1, 1], [1, 1]]
 * ```
 */
export function loadGguf(path: string): NamedTensors {
  return loadGgufWithMetadata(path)[0];
}

/** Numbers as little-endian bytes. */
function u32(...values: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

function u64(...values: readonly number[]): Uint8Array {
  return new Uint8Array(BigUint64Array.from(values, BigInt).buffer);
}

function text(value: string): Uint8Array[] {
  const bytes = new TextEncoder().encode(value);
  return [u64(bytes.length), bytes];
}

/** The type and the bytes of a value. */
function savedValue(key: string, value: unknown): Uint8Array[] {
  if (typeof value === "string") return [u32(STRING), ...text(value)];
  if (Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === "string")) {
    return [u32(LIST, STRING), u64(value.length), ...value.flatMap(text)];
  }
  const scalar = typeof value === "number" || typeof value === "boolean";
  const x = value instanceof Tensor ? value : scalar || Array.isArray(value) ? array(value) : undefined;
  if (!x) {
    throw new ValueError(
      `saveGguf() expected texts, lists of texts or arrays in metadata: found ${quoted(value)} at "${key}"`,
    );
  }
  const type = VALUES.indexOf(x.dtype);
  if (type < 0) throw new DtypeError(`saveGguf() cannot store ${x.dtype.name} in metadata, at "${key}": use float32`);
  if (x.ndim > 1) throw new ValueError(`saveGguf() expected at most one axis in metadata: found ${x.ndim} at "${key}"`);
  return x.ndim === 0 ? [u32(type), storedBytes(x)] : [u32(LIST, type), u64(x.size), storedBytes(x)];
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

/** A value of the metadata as it is saved. */
export type SavedMetadata = Readonly<Record<string, string | readonly string[] | Tensor | number | boolean>>;

/** A tensor on its way into a file: the code of its type, and its bytes. */
export interface SavedTensor {
  readonly name: string;
  readonly shape: Shape;
  readonly code: number;
  readonly bytes: number;
}

/** The beginning of a file, up to its first tensor, and where each tensor begins. */
export function ggufLayout(
  metadata: SavedMetadata,
  tensors: readonly SavedTensor[],
): { readonly header: Uint8Array; readonly offsets: readonly number[]; readonly size: number } {
  const pairs = Object.entries(metadata);
  const header: Uint8Array[] = [u32(MAGIC, VERSION), u64(tensors.length, pairs.length)];
  for (const [key, value] of pairs) header.push(...text(key), ...savedValue(key, value));
  let at = 0;
  const places = tensors.map(({ name, shape, code, bytes }) => {
    header.push(...text(name), u32(shape.length), u64(...shape.toReversed()), u32(code), u64(at));
    const place = at;
    at += aligned(bytes);
    return place;
  });
  const length = aligned(header.reduce((sum, part) => sum + part.length, 0));
  const whole = new Uint8Array(length);
  let end = 0;
  for (const part of header) whole.set(part, end), end += part.length;
  return { header: whole, offsets: places.map((place) => length + place), size: length + at };
}

/**
 * Saves arrays by name as a GGUF file; those in nested objects and lists get names such as "layers.0.weight". Metadata are texts, lists of
 * texts, and numbers or arrays of at most one axis. float32, float16, bfloat16, float64 and signed integers can be stored. The
 * file appears whole or not at all.
 */
export function saveGguf(
  path: string,
  arrays: TensorTree,
  metadata: SavedMetadata = {},
): void {
  const list = namedList("saveGguf", arrays).map(([name, tensor]) => {
    const { shape, dtype } = tensor;
    const code = GGUF_CODES.get(dtype);
    if (code === undefined) {
      throw new DtypeError(`saveGguf() cannot store ${dtype.name}, the dtype of "${name}": cast it with astype()`);
    }
    return { name, shape, code, bytes: sizeOf(shape) * dtype.bytes, tensor };
  });
  const { header } = ggufLayout(metadata, list);
  writeFile(
    path.endsWith(".gguf") ? path : `${path}.gguf`,
    function* () {
      yield header;
      for (const { tensor, bytes } of list) {
        yield* tensorPieces(tensor);
        yield new Uint8Array(aligned(bytes) - bytes);
      }
    }(),
  );
}
