/**
 * The tensors of a checkpoint by name. The model takes them one by one, which checks names, shapes and dtypes; nothing is allocated before
 * all of them fit.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import type { QuantizedArrays } from "../../nn/mod.ts";
import { type CheckpointTerms, FOLDER_TERMS } from "./checkpoint.ts";
import type { Stack } from "./expert_stacks.ts";
import { partName, partPath, wholeName } from "./row_parts.ts";
import type { ModelConfig, Quantization } from "../config/model.ts";
import { quantizationOf } from "../config/stored_format.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import type { CodeMode } from "../../graph/quantization.ts";
import { MAX_SIZE } from "../../graph/node.ts";
import { sameShape, sizeOf } from "../../graph/shape.ts";
import { listed, LlmError } from "../error.ts";

/** Kinds of stored tensors. */
type StoredKind = "float" | "codes" | "bytes";

const KINDS: Readonly<Record<StoredKind, readonly string[]>> = {
  float: ["float32", "float16", "bfloat16"],
  codes: ["uint32"],
  bytes: ["uint8"],
};

/** A change of a stored tensor of the makers' layout, whose rows need nothing of each other. */
export interface Change {
  readonly name: string;
  /** mlx-lm's form of its rows. */
  readonly make: (rows: Tensor) => Tensor;
}

/** The shape of a stored tensor, from its header; undefined if it is not there. */
export type ShapeOf = (name: string) => readonly number[] | undefined;

/** A matrix of affine codes. */
export type AffineMatrix = QuantizedArrays & { readonly biases: Tensor };

/** The tensors of a model directory, taken by name. */
export class Weights implements Disposable {
  /** Matrices whose three tensors are only read together, which lets a device lay them out as it likes. */
  readonly matrices: AffineMatrix[] = [];
  /** The dtype of activations. */
  readonly dtype: Dtype;
  /** Whether the model was saved without its head, as one for embeddings. */
  readonly headless: boolean;
  readonly #dir: string;
  readonly #prefix: string;
  readonly #terms: CheckpointTerms;
  readonly #config: ModelConfig;
  readonly #stored: Map<string, Tensor>;
  readonly #owned: Tensor[] = [];
  readonly #wrong: string[] = [];
  readonly #missing: string[] = [];
  readonly #large: string[] = [];

  /** Wraps tensors by name; they belong to this object from now on. The dtype may follow from that of the stored floats. */
  constructor(
    dir: string,
    config: ModelConfig,
    stored: Map<string, Tensor>,
    dtype: Dtype | ((stored: Dtype) => Dtype),
    headless: boolean = false,
    prefix: string = "",
    terms: CheckpointTerms = FOLDER_TERMS,
  ) {
    this.#terms = terms;
    this.#dir = dir;
    this.#prefix = prefix;
    this.#config = config;
    this.#stored = stored;
    this.dtype = typeof dtype === "function" ? dtype(floatsOf(stored.values())) : dtype;
    this.headless = headless;
  }

  /** How a matrix of so many columns is quantized: as config.json says of it by `named`, or as it is stored. */
  quantization(path: string, columns: number, named: string = path): Quantization<CodeMode> | undefined {
    const { quantization } = this.#config;
    if (quantization !== undefined) {
      const override = this.#prefix + named;
      const found = quantizationOf(path, columns, quantization, (name) => this.#stored.get(name), override);
      if (found === undefined || columns % found.groupSize === 0) return found;
      const name = this.#terms.nameOf(`${path}.weight`);
      this.#wrong.push(`"${name}" has ${columns} columns, which groups of ${found.groupSize} do not divide`);
      return undefined;
    }
    if (this.has(`${path}.scales`)) {
      this.#wrong.push(`"${path}.scales" is stored but config.json has no "quantization"`);
    }
    return undefined;
  }

  /** The shape of a tensor that is stored and was not taken yet. */
  shapeOf(name: string): readonly number[] | undefined {
    return this.#stored.get(name)?.shape;
  }

  /**
   * The rows of each part of a matrix with `count` rows that is too large for one array; undefined where it is whole.
   * {@link Weights.finish} reports another number of rows.
   */
  rowsOfParts(path: string, count: number): readonly number[] | undefined {
    const rows: number[] = [];
    for (let shape; (shape = this.shapeOf(`${partPath(path, rows.length)}.weight`));) rows.push(shape[0]);
    if (rows.length === 0) return undefined;
    const stored = rows.reduce((sum, own) => sum + own, 0);
    if (stored !== count) {
      this.#wrong.push(`"${this.#terms.nameOf(`${path}.weight`)}" has ${stored} rows, expected ${count}`);
    }
    return rows;
  }

  /** Whether a tensor is stored, whole or in parts, and was not taken yet. */
  has(name: string): boolean {
    return this.#stored.has(name) || this.#stored.has(partName(name, 0));
  }

  /**
   * Makes one tensor of stored parts of one shape and dtype, along a new first axis. Nothing happens where the first part is not stored.
   * {@link Weights.finish} reports parts that are missing or differ.
   */
  stack({ from: names, to }: Stack): void {
    const first = this.#stored.get(names[0]);
    if (first === undefined) return;
    if (sizeOf(first.shape) * names.length > MAX_SIZE) {
      this.#large.push(to);
      return;
    }
    const parts = names.map((name) => this.#take(name, first.shape, first.dtype));
    const isLike = ({ shape, dtype }: Tensor): boolean => dtype === first.dtype && sameShape(shape, first.shape);
    const other = parts.findIndex((part) => !isLike(part));
    if (other >= 0) this.#wrong.push(`"${names[other]}" has another shape or dtype than "${names[0]}"`);
    const whole = mx.stack(parts.map((part) => isLike(part) ? part : first));
    untrack(whole);
    this.#stored.set(to, whole);
    mx.dispose(parts); // their memory goes when the stack was computed
  }

  /** Puts tensors that are made of a stored one in its place, if it is stored and fits. */
  replace(
    name: string,
    fits: (tensor: Tensor) => boolean,
    make: (tensor: Tensor) => Readonly<Record<string, Tensor>>,
  ): void {
    const tensor = this.#stored.get(name);
    if (tensor === undefined || !fits(tensor)) return;
    this.#stored.delete(name);
    const made = Object.entries(make(tensor));
    for (const [to, one] of made) {
      untrack(one);
      this.#stored.set(to, one);
    }
    if (made.every(([, one]) => one !== tensor)) tensor[Symbol.dispose](); // its memory goes when they were computed
  }

  /** The tensor of a name, which must have this shape and kind. {@link Weights.finish} reports those that do not fit. */
  take(name: string, shape: readonly number[], kind: StoredKind): Tensor {
    return this.adopt(this.#find(name, shape, kind));
  }

  /**
   * A dense array of a name. Where activations have 16 bits it gets their dtype: a product of two other dtypes is one of float32, which no
   * matrix units compute.
   */
  takeDense(name: string, shape: readonly number[]): Tensor {
    const stored = this.#find(name, shape, "float");
    if (this.dtype.bytes !== 2 || stored.dtype === this.dtype) return this.adopt(stored);
    const cast = this.adopt(stored.astype(this.dtype));
    stored[Symbol.dispose](); // its memory goes when the cast was computed
    return cast;
  }

  /**
   * A norm weight or a bias by name. Beside quantized matrices it keeps its stored dtype, which is that of their scales. In a dense
   * model it gets the dtype of the other weights, for which there are kernels.
   */
  takeVector(name: string, shape: readonly number[]): Tensor {
    return this.#config.quantization ? this.take(name, shape, "float") : this.takeDense(name, shape);
  }

  /** Takes a tensor out of the stored ones. */
  #take(name: string, shape: readonly number[], dtype: Dtype = mx.float32): Tensor {
    const tensor = this.#stored.get(name);
    if (tensor === undefined) {
      if (!this.#large.includes(name) && !this.#refuseParts(name)) this.#missing.push(name);
      const most = sizeOf(shape) > MAX_SIZE ? shape.with(0, 1) : [...shape];
      return mx.zeros(most, dtype); // stands in until finish() throws; lazy, so it takes no memory
    }
    this.#stored.delete(name);
    return tensor;
  }

  /** Notes that a tensor which must be whole is larger than an array may be; false if it is not. */
  #refuseParts(name: string): boolean {
    const isParted = this.#stored.has(partName(name, 0));
    for (let i = 0, part; (part = this.#stored.get(partName(name, i))); i++) {
      part[Symbol.dispose]();
      this.#stored.delete(partName(name, i));
    }
    if (isParted) this.#large.push(name);
    return isParted;
  }

  #find(name: string, shape: readonly number[], kind: StoredKind): Tensor {
    const isThere = this.#stored.has(name);
    const tensor = this.#take(name, shape);
    if (!isThere) return tensor;
    if (!sameShape(tensor.shape, shape) || !KINDS[kind].includes(tensor.dtype.name)) {
      this.#wrong.push(
        `"${this.#terms.nameOf(name)}" is ${tensor.dtype.name} (${tensor.shape.join(", ")}), expected ${
          KINDS[kind].join(" or ")
        } (${shape.join(", ")})`,
      );
    }
    return tensor;
  }

  /** Keeps a tensor that a layer computed, for as long as the model lives. */
  adopt(tensor: Tensor): Tensor {
    untrack(tensor);
    this.#owned.push(tensor);
    return tensor;
  }

  /** Puts the arrays of a layer in the places of others, which are freed unless it has them too. `matrix` says how they are quantized, if they are. */
  exchange(before: readonly Tensor[], now: readonly Tensor[], matrix?: QuantizedArrays): void {
    const gone = new Set(before).difference(new Set(now));
    const keep = <T>(list: T[], isGone: (one: T) => boolean): T[] => list.splice(0).filter((one) => !isGone(one));
    this.#owned.push(...keep(this.#owned, (tensor) => gone.has(tensor)));
    this.matrices.push(...keep(this.matrices, ({ weight }) => gone.has(weight)));
    if (matrix?.biases) this.matrices.push(matrix as AffineMatrix);
    mx.dispose([...gone]); // their memory goes when the parts were computed
    for (const tensor of now) if (!before.includes(tensor)) this.adopt(tensor);
  }

  /** Leaves out all tensors of a module. */
  drop(path: string): void {
    for (const [name, tensor] of this.#stored) {
      if (!name.startsWith(`${path}.`)) continue;
      tensor[Symbol.dispose]();
      this.#stored.delete(name);
    }
  }

  /** Throws when tensors were missing, wrong or left over, naming them. */
  finish(): void {
    const { config, nameOf } = this.#terms;
    const asked = this.#large.length;
    for (const name of this.#stored.keys()) {
      const whole = wholeName(name);
      if (whole !== undefined) this.#refuseParts(whole); // such as a stack of the makers' layout
    }
    const groups = [
      [this.#wrong, `does not fit ${config}`, `do not fit ${config}`],
      // What a tensor that is too large was to become is not missing.
      [this.#large.length > asked ? [] : this.#missing.map(nameOf), "is missing", "are missing"],
      [
        this.#large.map((name) => quoted(nameOf(name))),
        `is larger than an array may be on the device, ${SMALLER}`,
        `are larger than an array may be on the device, ${SMALLER}`,
      ],
      [
        Array.from(this.#stored.keys(), (name) => quoted(nameOf(name))),
        "is not part of the model",
        "are not part of the model",
      ],
    ] as const;
    const problems = groups.filter(([names]) => names.length > 0).map(([names, one, several]) =>
      `${names.length === 1 ? `1 tensor ${one}` : `${names.length} tensors ${several}`}: ${listed(names, 3)}`
    );
    if (problems.length > 0) throw new LlmError("weights", `${shownPath(this.#dir)}: ${problems.join("; ")}`);
  }

  /** The tensors of the model as they were loaded. */
  get tensors(): readonly Tensor[] {
    return this.#owned;
  }

  /** Bytes of the tensors of the model. */
  get byteLength(): number {
    return this.#owned.reduce((sum, tensor) => sum + tensor.nbytes, 0);
  }

  /** Frees all tensors. */
  [Symbol.dispose](): void {
    mx.dispose(this.#owned, [...this.#stored.values()]);
    this.#owned.length = 0;
    this.#stored.clear();
  }
}

/** The dtype of all floats among tensors, or float32 if they have several. */
function floatsOf(tensors: Iterable<Tensor>): Dtype {
  const found = new Set<Dtype>();
  for (const { dtype } of tensors) if (dtype.kind === "float") found.add(dtype);
  const [first = mx.float32] = found;
  return found.size === 1 ? first : mx.float32;
}

/** Names and stacks the tensors of a checkpoint for a model; they belong to the result. No tensor is read yet. */
export function openWeights(
  path: string,
  stored: Map<string, Tensor>,
  { config, stacks, prefix, nameOf }: CheckpointNames,
  dtype: Dtype | ((stored: Dtype) => Dtype),
  terms: CheckpointTerms = FOLDER_TERMS,
): Weights {
  const own = renamed(stored, nameOf);
  const named = withPrefix(own);
  const headless = named !== own && !named.keys().some((name) => name.startsWith(HEAD));
  const weights = new Weights(path, config, named, dtype, headless, prefix, terms);
  for (const stack of stacks) weights.stack(stack);
  return weights;
}

/** How a checkpoint names and stacks tensors. */
export interface CheckpointNames {
  /** Its config. */
  readonly config: ModelConfig;
  /** Tensors that may be stored in parts. */
  readonly stacks: readonly Stack[];
  /** What mlx-lm's names of its modules begin with, before the names that they have here. */
  readonly prefix: string;
  /** The name of a stored tensor here; undefined for one that is left out. */
  nameOf(stored: string): string | undefined;
}

/** Tensors by the names that they have here; those without one are freed. */
function renamed(stored: Map<string, Tensor>, nameOf: CheckpointNames["nameOf"]): Map<string, Tensor> {
  const named = new Map<string, Tensor>();
  for (const [name, tensor] of stored) {
    const own = nameOf(name);
    if (own === undefined) tensor[Symbol.dispose]();
    else named.set(own, tensor);
  }
  return named;
}

const SMALLER = "take a more strongly quantized model or another device";
const PREFIX = "model.";
const HEAD = "lm_head.";
/** Names of the embedding, whole or in parts, in a model without a head. */
const TABLES = ["embed_tokens", partPath("embed_tokens", 0)].map((path) => `${path}.weight`);

/** Tensors by the names of a model with a head; those of embedding models, saved without one, lack the prefix. */
export function withPrefix<T>(stored: Map<string, T>): Map<string, T> {
  const bare = TABLES.some((name) => stored.has(name)) && !stored.keys().some((name) => name.startsWith(PREFIX));
  return bare
    ? new Map(Array.from(stored, ([name, tensor]) => [name.startsWith(HEAD) ? name : PREFIX + name, tensor]))
    : stored;
}
