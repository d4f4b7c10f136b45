/**
 * The keys and values of one layer in a prompt cache of mlx-lm, by the class of its cache (mlx_lm/models/cache.py).
 *
 * | class              | arrays                                                       | numbers                          |
 * | ------------------ | ------------------------------------------------------------ | -------------------------------- |
 * | `KVCache`          | keys and values (B, H, rows, D)                              | offset                           |
 * | `RotatingKVCache`  | the same: the first `keep` positions and the last ones       | offset, keep, max_size, \_idx    |
 * | `QuantizedKVCache` | codes, scales and biases of each, along D                    | offset, group_size, bits         |
 *
 * `offset` is the number of tokens. Of a ring, `_idx` is the row after that of the last token.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { SavedArray, StoredArrays } from "../../array/files/safetensors_file.ts";
import { storedBytes } from "../../array/files/stored.ts";
import { quoted } from "../../graph/error.ts";
import type { KvCache } from "../kv/cache.ts";
import type { RingSizes } from "../kv/ring.ts";

/** The numbers of a layer, in the order of the file. */
const NUMBERS = {
  KVCache: ["offset"],
  RotatingKVCache: ["offset", "keep", "max_size", "_idx"],
  QuantizedKVCache: ["offset", "group_size", "bits"],
} as const satisfies Record<string, readonly string[]>;
/** Bits and groups of a `QuantizedKVCache` whose codes fill words. */
const BITS: readonly number[] = [2, 4, 8];
const GROUPS: readonly number[] = [32, 64, 128];
const SIDES = ["keys", "values"] as const;

/** mlx-lm's classes of caches with keys and values. */
export type MlxClass = keyof typeof NUMBERS;
/** Keys or values. */
export type Side = (typeof SIDES)[number];
/** Throws an error that names the file. */
type Fail = (what: string) => never;

/** Those classes. */
export const MLX_CLASSES: readonly string[] = Object.keys(NUMBERS);

/** How keys and values are quantized in a file. */
export interface MlxQuantization {
  readonly bits: number;
  readonly groupSize: number;
}

/** A layer of a file whose header was read. */
export class StoredLayer {
  readonly #file: StoredArrays;
  readonly #layer: number;
  readonly #name: MlxClass;
  readonly #numbers: readonly number[];
  readonly #fail: Fail;

  /** For the numbers that {@link readLayers} read. */
  constructor(file: StoredArrays, layer: number, name: MlxClass, numbers: readonly number[], fail: Fail) {
    this.#file = file;
    this.#layer = layer;
    this.#name = name;
    this.#numbers = numbers;
    this.#fail = fail;
  }

  /** Shape (B, H, rows, D) of the keys or the values. Refuses arrays that are not those of the class. */
  shapeOf(side: Side): readonly number[] {
    const names = this.#names(side);
    if (this.#name !== "QuantizedKVCache") {
      const { shape, dtype } = this.#entry(names[0]);
      if (dtype.kind !== "float") {
        this.#fail(`is no prompt cache: the array ${quoted(names[0])} is ${dtype.name}, expected floats`);
      }
      return shape;
    }
    const { bits, groupSize } = this.#quantization;
    const [codes, scales, biases] = names.map((name) => this.#entry(name));
    if (codes.dtype !== mx.uint32) {
      this.#fail(`is no prompt cache: the array ${quoted(names[0])} is ${codes.dtype.name}, expected uint32`);
    }
    const headDim = (codes.shape.at(-1) ?? 0) * 32 / bits;
    for (const part of [scales, biases]) {
      const expected = codes.shape.with(-1, headDim / groupSize);
      if (part.dtype.kind !== "float" || part.shape.join() !== expected.join()) {
        const found = `${part.dtype.name} (${part.shape})`;
        this.#fail(`is no prompt cache: the array ${quoted(part.name)} is ${found}, expected floats (${expected})`);
      }
    }
    return codes.shape.with(-1, headDim);
  }

  /** How many tokens it is of: `rows` in older files, which do not say it. */
  tokens(rows: number): number {
    return this.#numbers[0] ?? rows;
  }

  /** What a cache of mlx-lm that keeps first positions lets tokens see of all layers; undefined for other caches. */
  get ring(): RingSizes | undefined {
    const [, keep, size] = this.#numbers;
    return this.#name === "RotatingKVCache" && keep > 0 ? { keep, last: size - keep } : undefined;
  }

  /** How many of the first positions it holds of `rows` rows, and how many of the last ones. Refuses numbers that do not fit. */
  held(rows: number): { readonly first: number; readonly last: number } {
    const count = this.tokens(rows);
    const { ordered, keep } = this.#order(rows, count);
    if (count < 1 || ordered > count || (this.#name !== "RotatingKVCache" && count > rows)) {
      this.#fail(`says that it holds ${count} tokens, and it has ${rows} rows`);
    }
    return ordered === count ? { first: count, last: count } : { first: keep, last: ordered - keep };
  }

  /** The first positions and the last ones (B, H, first + last, D) in their order, at most all, read when they are needed. */
  read(side: Side, first: number, last: number): mx.Tensor {
    const [, , rows] = this.shapeOf(side);
    return mx.tidy(() => {
      const all = this.#names(side).map((name) =>
        this.#ordered(this.#file.tensor(this.#entry(name)), rows, first, last)
      );
      if (this.#name !== "QuantizedKVCache") return all[0];
      const { bits, groupSize } = this.#quantization;
      return mx.dequantize(all[0], all[1], all[2], groupSize, bits);
    });
  }

  #ordered(array: mx.Tensor, rows: number, first: number, last: number): mx.Tensor {
    const { ordered, keep, next } = this.#order(rows, this.tokens(rows));
    // Rows in the order of their positions, as ranges of rows of the array.
    const turned = [[0, keep], [next, rows], [keep, next]] as const;
    const ranges = next === ordered ? [[0, ordered] as const] : turned;
    let at = 0;
    const wanted = ranges.flatMap(([from, to]) => {
      const begin = at;
      at += to - from;
      const cut = (low: number, high: number): (readonly [number, number])[] => {
        const [a, b] = [Math.max(low, begin), Math.min(high, at)];
        return a < b ? [[from + a - begin, from + b - begin]] : [];
      };
      return first + last >= ordered ? cut(0, ordered) : [...cut(0, first), ...cut(ordered - last, ordered)];
    });
    const parts = wanted.map(([from, to]) => array.index("...", mx.Slice(from, to), mx.Slice(null)));
    return parts.length > 1 ? mx.concatenate(parts, 2) : parts[0];
  }

  /** How many rows are positions, how many of those never go, and the row after the last position. */
  #order(rows: number, count: number): { readonly ordered: number; readonly keep: number; readonly next: number } {
    if (this.#name !== "RotatingKVCache") return { ordered: count, keep: 0, next: count };
    const [, keep, most, next] = this.#numbers;
    const turned = next < Math.min(rows, count);
    const fits = keep >= 0 && keep < most && next >= 1 && next <= rows && !(turned && next < keep);
    if (!fits) this.#fail(`has a ring of ${rows} rows with keep ${keep}, max_size ${most} and _idx ${next}`);
    return { ordered: turned ? rows : next, keep, next };
  }

  get #quantization(): MlxQuantization {
    const [, groupSize, bits] = this.#numbers;
    if (!BITS.includes(bits) || !GROUPS.includes(groupSize)) {
      this.#fail(
        `has keys and values of ${bits} bits in groups of ${groupSize}; known are ${BITS} bits, groups of ${GROUPS}`,
      );
    }
    return { bits, groupSize };
  }

  #names(side: Side): readonly string[] {
    const name = `${this.#layer}.${SIDES.indexOf(side)}`;
    return this.#name === "QuantizedKVCache" ? [0, 1, 2].map((part) => `${name}.${part}`) : [name];
  }

  #entry(name: string): NonNullable<ReturnType<StoredArrays["entries"]["get"]>> {
    return this.#file.entries.get(name) ?? this.#fail(`lacks the array ${quoted(name)}`);
  }
}

/** The layers of a file that have keys and values, by number and class. Reads their numbers, all at once. */
export function readLayers(
  file: StoredArrays,
  layers: readonly (readonly [layer: number, name: MlxClass])[],
  fail: Fail,
): readonly StoredLayer[] {
  const entries = layers.map(([layer, name]) =>
    NUMBERS[name].flatMap((_, i) => {
      const entry = file.entries.get(`${layer}.${2 + i}`);
      if (entry && (entry.dtype !== mx.int32 || entry.end - entry.begin !== 4)) {
        const what = i === 0 ? "number of tokens" : NUMBERS[name][i];
        fail(`has a ${what} ${quoted(entry.name)} that is no single int32`);
      }
      if (!entry && name !== "KVCache") fail(`lacks the array ${quoted(`${layer}.${2 + i}`)}`);
      return entry ?? [];
    })
  );
  const told = entries.filter((list) => list.length > 0).length;
  if (told > 0 && told < layers.length) fail("has the number of tokens of some layers only");
  const numbers = file.bytes(entries.flat()).map((bytes) => new Int32Array(bytes.buffer)[0]);
  return layers.map(([layer, name], i) =>
    new StoredLayer(file, layer, name, numbers.splice(0, entries[i].length), fail)
  );
}

/** A layer as a file of mlx-lm has it. */
export interface SavedLayer {
  readonly name: MlxClass;
  readonly arrays: readonly SavedArray[];
  readonly numbers: readonly number[];
}

/**
 * The layer at a place of a cache for a file. Of a layer with a window the last positions are saved, as many as the window has; of a ring
 * those that it keeps. Other layers are quantized if that is wanted; D is a multiple of the group.
 */
export function savedLayer(
  cache: KvCache,
  layer: number,
  { place, window }: { readonly place: number; readonly window?: number },
  quantization?: MlxQuantization,
): SavedLayer {
  const { offset, dtype, ring } = cache;
  const held = Math.min(cache.held, ring ? Infinity : window ?? Infinity);
  const read = (side: Side): mx.Tensor =>
    cache.read(place, side).index("...", mx.Slice(cache.held - held, cache.held), mx.Slice(null));
  const array = (name: string, shape: readonly number[], dtype: mx.Dtype, made: () => mx.Tensor): SavedArray => ({
    name,
    dtype,
    shape,
    pieces: () => [mx.tidy(() => storedBytes(made()))],
  });
  if (quantization && window === undefined && !ring) {
    const { bits, groupSize } = quantization;
    const arrays = SIDES.flatMap((side, at) => {
      const shape = cache.shapeOf(place, side);
      const parts = [[mx.uint32, 32 / bits], [dtype, groupSize], [dtype, groupSize]] as const;
      return parts.map(([dtype, features], part) =>
        array(
          `${layer}.${at}.${part}`,
          shape.with(-1, shape[3] / features),
          dtype,
          () => mx.quantize(read(side), groupSize, bits)[part],
        )
      );
    });
    return { name: "QuantizedKVCache", arrays, numbers: [offset, groupSize, bits] };
  }
  const arrays = SIDES.map((side, at) =>
    array(`${layer}.${at}`, cache.shapeOf(place, side).with(2, held), dtype, () => read(side))
  );
  if (ring) return { name: "RotatingKVCache", arrays, numbers: [offset, ring.keep, ring.keep + ring.last, held] };
  if (window === undefined) return { name: "KVCache", arrays, numbers: [offset] };
  return { name: "RotatingKVCache", arrays, numbers: [offset, 0, window, held] };
}
