/**
 * Checked access to the metadata of a GGUF file.
 *
 * @module
 */

import type { GgufHeader, GgufNumbers, GgufValue } from "../../../array/files/gguf.ts";
import { quoted, shownPath } from "../../../graph/error.ts";
import { LlmError, type LlmErrorCode } from "../../error.ts";

/** Views of the elements of a list, by the name of their dtype. */
const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float32: Float32Array,
  uint64: BigUint64Array,
  int64: BigInt64Array,
} as const;

function numbersOf({ dtype, bytes }: GgufNumbers): number[] {
  const view = ARRAYS[dtype.name as keyof typeof ARRAYS];
  return Array.from(new view(bytes.slice().buffer) as ArrayLike<number | bigint>, Number);
}

/** Values of metadata by key. A value of another kind throws an {@link LlmError} that names the key. */
export class Metadata {
  /** The file, for messages. */
  readonly path: string;
  readonly #values: ReadonlyMap<string, GgufValue>;

  /** Of the header of a file. */
  constructor(path: string, { metadata }: Pick<GgufHeader, "metadata">) {
    this.path = path;
    this.#values = metadata;
  }

  /** Throws an error about the file. */
  fail(what: string, code: LlmErrorCode = "config"): never {
    throw new LlmError(code, `${shownPath(this.path)}: ${what}`);
  }

  /** Whether there is a value. */
  has(key: string): boolean {
    return this.#values.has(key);
  }

  /** A text. */
  string(key: string): string | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === "string") return value;
    return this.#expected(key, "a text");
  }

  /** A list of texts. */
  strings(key: string): readonly string[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined || (typeof value !== "string" && !("dtype" in value))) return value;
    return this.#expected(key, "a list of texts");
  }

  /** A number. */
  number(key: string): number | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (!isNumeric(value) || value.shape.length > 0) return this.#expected(key, "a number");
    return numbersOf(value)[0];
  }

  /** A number that layers share: one, or a list of equal ones. Layers with 0 have no such part. */
  shared(key: string): number | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (!isNumeric(value)) return this.#expected(key, "a number");
    const numbers = numbersOf(value);
    const [first = numbers[0], ...others] = numbers.filter((number) => number !== 0);
    const other = others.find((number) => number !== first);
    if (other !== undefined) this.fail(`${quoted(key)} is ${first} in some layers and ${other} in others`);
    return first;
  }

  /** A number of each layer; undefined if there is none, or one for all. */
  ofLayers(key: string): readonly number[] | undefined {
    const value = this.#values.get(key);
    return value !== undefined && isNumeric(value) && value.shape.length === 1 ? numbersOf(value) : undefined;
  }

  /** A list of numbers. */
  numbers(key: string): readonly number[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    return isNumeric(value) && value.shape.length === 1 ? numbersOf(value) : this.#expected(key, "a list of numbers");
  }

  /** true or false. */
  flag(key: string): boolean | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (typeof value !== "object" || !("dtype" in value) || value.dtype.name !== "bool" || value.shape.length > 0) {
      return this.#expected(key, "true or false");
    }
    return value.bytes[0] === 1;
  }

  /** A list of true and false; undefined if there is none, or a value of another kind. */
  flags(key: string): readonly boolean[] | undefined {
    const value = this.#values.get(key);
    if (typeof value !== "object" || !("dtype" in value) || value.dtype.name !== "bool") return undefined;
    return value.shape.length === 1 ? Array.from(value.bytes, (byte) => byte === 1) : undefined;
  }

  #expected(key: string, what: string): never {
    return this.fail(`the metadata ${quoted(key)} are not ${what}`);
  }
}

function isNumeric(value: GgufValue): value is GgufNumbers {
  return typeof value === "object" && "dtype" in value && value.dtype.name in ARRAYS;
}
