/**
 * Einstein summation: operands are contracted in the order of {@link einsumPath}, each step through matrix products.
 *
 * @module
 */

import { type TensorLike, toOperands } from "../tensor/convert.ts";
import { matmul } from "./products.ts";
import { pathOf, readSubscripts } from "./einsum_path.ts";
import { broadcastTo, diagonal, reshape, transpose } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { scoped } from "../tensor/scope.ts";
import { type Tensor, wrap } from "../tensor/tensor.ts";
import { multiply } from "../ops/binary.ts";
import type { EinsumRank, NameOf, Single } from "../tensor/types.ts";

/** An operand with one letter an axis. */
interface Term {
  readonly tensor: Tensor;
  readonly letters: readonly string[];
}

/** Repeated letters of one operand become its diagonal. */
function uniqueAxes(term: Term): Term {
  let { tensor, letters } = term;
  for (let repeated = duplicate(letters); repeated; repeated = duplicate(letters)) {
    const [i, j] = repeated;
    const letter = letters[i];
    tensor = diagonal(tensor, 0, i, j);
    letters = [...letters.filter((_, k) => k !== i && k !== j), letter];
  }
  return { tensor, letters };
}

function duplicate(letters: readonly string[]): [number, number] | undefined {
  const j = letters.findIndex((c, i) => letters.indexOf(c) < i);
  return j < 0 ? undefined : [letters.indexOf(letters[j]), j];
}

/** Sums over the letters that no other operand and not the result has. */
function dropUnused(term: Term, needed: ReadonlySet<string>): Term {
  const axes = term.letters.flatMap((c, i) => needed.has(c) ? [] : [i]);
  if (axes.length === 0) return term;
  return { tensor: sum(term.tensor, axes), letters: term.letters.filter((c) => needed.has(c)) };
}

function arrange(term: Term, letters: readonly string[]): Tensor {
  return transpose(term.tensor, letters.map((c) => term.letters.indexOf(c)));
}

/** Product of two operands, summed over letters that are not needed any more. */
function contract(a: Term, b: Term, needed: ReadonlySet<string>, sizes: ReadonlyMap<string, number>): Term {
  const shared = a.letters.filter((c) => b.letters.includes(c));
  const batch = shared.filter((c) => needed.has(c));
  const summed = shared.filter((c) => !needed.has(c));
  const rows = a.letters.filter((c) => !shared.includes(c));
  const cols = b.letters.filter((c) => !shared.includes(c));
  const size = (letters: readonly string[]): number => letters.reduce((n, c) => n * sizes.get(c)!, 1);
  const dims = (letters: readonly string[]): number[] => letters.map((c) => sizes.get(c)!);
  const lead = dims(batch);
  const left = reshape(arrange(a, [...batch, ...rows, ...summed]), [...lead, size(rows), size(summed)]);
  const right = reshape(arrange(b, [...batch, ...summed, ...cols]), [...lead, size(summed), size(cols)]);
  const product = summed.length === 0 ? multiply(left, reshape(right, [...lead, 1, size(cols)])) : matmul(left, right);
  return { tensor: reshape(product, [...lead, ...dims(rows), ...dims(cols)]), letters: [...batch, ...rows, ...cols] };
}

/** Operands contracted from left to right, over letters that neither the result nor the `others` need. */
function contractAll(terms: readonly Term[], others: readonly string[], sizes: ReadonlyMap<string, number>): Term {
  const neededBy = (from: number): Set<string> => new Set([...others, ...terms.slice(from).flatMap((t) => t.letters)]);
  let result = dropUnused(terms[0], neededBy(1));
  for (let i = 1; i < terms.length; i++) {
    const needed = neededBy(i + 1);
    const next = dropUnused(terms[i], new Set([...needed, ...result.letters]));
    const left = dropUnused(result, new Set([...needed, ...next.letters]));
    result = contract(left, next, needed, sizes);
  }
  return result;
}

/**
 * Sums of products over letters that name axes. Letters that "->" leaves out are summed over; without "->" the result has
 * the letters that occur once, in alphabetical order. "..." stands for any other axes, which broadcast; so do axes of size 1.
 * Of more than two arrays those are multiplied first that {@link einsumPath} says.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.einsum("ij,jk->ik", mx.ones([2, 3]), mx.ones([3, 4])).shape; // [2, 4]
 * ```
 */
export function einsum<S extends string, A extends readonly TensorLike[]>(
  subscripts: S,
  ...operands: A
): Tensor<Single<NameOf<A[number]>>, EinsumRank<S>> {
  const nodes = toOperands("einsum", operands);
  const terms = readSubscripts("einsum", subscripts, nodes.map((node) => node.shape));
  const { inputs, output, sizes } = terms;
  return scoped("einsum", () => {
    const left = nodes.map((node, i): Term => {
      const wide = broadcastTo(wrap(node), inputs[i].map((c) => sizes.get(c)!));
      return uniqueAxes({ tensor: wide, letters: inputs[i] });
    });
    for (const positions of pathOf(terms).path) {
      const step = positions.map((i) => left[i]);
      for (const i of positions.toReversed()) left.splice(i, 1);
      left.push(contractAll(step, [...output, ...left.flatMap((term) => term.letters)], sizes));
    }
    return arrange(dropUnused(left[0], new Set(output)), output);
  });
}
