/**
 * What differs between the architectures of GGUF files: the form of a row of families.ts.
 *
 * @module
 */

import type { Tensor } from "../../../array/mod.ts";
import type { CommonFields, Facts } from "./config.ts";
import type { ModuleNames } from "./names.ts";

/**
 * A tensor whose rows or columns mlx-lm has in another order, or in other tensors. Codes and their scales and biases go through `make` alike:
 * their rows are those of the matrix, and each has a share of its columns.
 */
export interface TensorForm {
  /** The module, or the array, by its path in mlx-lm. */
  readonly of: RegExp;
  /** The tensor in mlx-lm's form, or several. Their names take the place of the last part of the path. */
  make(stored: Tensor): Tensor | Readonly<Record<string, Tensor>>;
}

/** An architecture. */
export interface GgufFamily {
  /** Its "model_type". */
  readonly modelType: string;
  /** Whether the rows of each head of queries and keys are in pairs: the first of a half, then that of the other half. */
  readonly paired?: boolean;
  /** What the file adds to the weights of norms. */
  readonly normOffset?: number;
  /** Names of modules in a layer that differ from those of most families. */
  readonly names?: ModuleNames;
  /** Whether a part of each head may stay as it is, without a rotation. */
  readonly rotatesPart?: boolean;
  /** The facts as the fields of all families read them, where keys have another meaning or differ by layer. */
  commonFacts?(facts: Facts): Facts;
  /** Further fields of config.json, beside the common ones. */
  fields?(facts: Facts, common: CommonFields): Readonly<Record<string, unknown>>;
  /** Tensors in another form than mlx-lm's. */
  forms?(facts: Facts): readonly TensorForm[];
}

/** Facts with other numbers by key; undefined for one that the file does not count as having. */
export function withNumbers(facts: Facts, numbers: Readonly<Record<string, number | undefined>>): Facts {
  return { ...facts, number: (key) => Object.hasOwn(numbers, key) ? numbers[key] : facts.number(key) };
}
