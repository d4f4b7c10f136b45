/**
 * Subscripts of Einstein summation, and the order in which their operands are contracted: the greedy one of opt_einsum, which NumPy
 * and MLX take.
 *
 * @module
 */

import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape, type Shape } from "../../graph/shape.ts";
import { type TensorLike, toOperands } from "../tensor/convert.ts";

/** Subscripts of arrays: one letter an axis, and the sizes that letters stand for. */
export interface Subscripts {
  readonly inputs: readonly (readonly string[])[];
  readonly output: readonly string[];
  readonly sizes: ReadonlyMap<string, number>;
}

/** Letters with at most one "..." in each part. */
const FORM = /^(?!.*\.\.\.[A-Za-z]*\.)(?:[A-Za-z,]|\.\.\.)*(?:->(?:[A-Za-z]|\.\.\.)*)?$/;

/** One letter an axis of every input and of the output. The axes of "…" are named by their place from the end. */
function parse(op: string, subscripts: string, ranks: readonly number[]): { inputs: string[][]; output: string[] } {
  if (typeof subscripts !== "string") {
    throw new ValueError(`${op}() expected subscripts such as "ij,jk->ik": found ${quoted(subscripts)}`);
  }
  const text = subscripts.replaceAll(" ", "");
  const [left, right, more] = text.split("->");
  const parts = left.split(",");
  const named = (part: string): number => part.replace("...", "").length;
  const open = parts.map((part, i) => part.includes("...") ? Math.max(0, ranks[i] - named(part)) : 0);
  const broadcast = (count: number): string[] => Array.from({ length: count }, (_, i) => `...${count - i}`);
  const letters = (part: string, count: number): string[] => {
    const [before, after] = part.split("...");
    return after === undefined ? [...part] : [...before, ...broadcast(count), ...after];
  };
  const inputs = parts.map((part, i) => letters(part, open[i]));
  const all = Math.max(...open);
  const output = right !== undefined
    ? letters(right, all)
    : [...broadcast(all), ...once(inputs.flat()).filter((c) => c.length === 1).sort()];
  const known = new Set(inputs.flat());
  const wrong = more !== undefined || parts.length !== ranks.length || !FORM.test(text) ||
    new Set(output).size !== output.length || output.some((c) => !known.has(c));
  if (wrong) {
    throw new ValueError(
      `${op}() cannot use "${subscripts}" for ${ranks.length} arrays: letters, commas, "..." and "->" in NumPy's form`,
    );
  }
  return { inputs, output };
}

function once(letters: readonly string[]): string[] {
  return letters.filter((c) => letters.filter((d) => d === c).length === 1);
}

/** Takes subscripts apart and holds them against the shapes of the operands. Throws a ValueError or ShapeError, in the name of `op`. */
export function readSubscripts(op: string, subscripts: string, shapes: readonly Shape[]): Subscripts {
  const { inputs, output } = parse(op, subscripts, shapes.map((shape) => shape.length));
  const sizes = new Map<string, number>();
  shapes.forEach((shape, i) => {
    if (shape.length !== inputs[i].length) {
      const text = subscripts.split(",")[i].split("->")[0];
      throw new ShapeError(`${op}() "${text}" does not fit an array of shape ${formatShape(shape)}`);
    }
    inputs[i].forEach((c, axis) => {
      const [old = 1, size] = [sizes.get(c), shape[axis]];
      const own = shape[inputs[i].indexOf(c)];
      if (old !== size && old !== 1 && size !== 1 || own !== size) {
        throw new ShapeError(
          `${op}() letter "${c}" of "${subscripts}" has sizes ${own === size ? old : own} and ${size}`,
        );
      }
      sizes.set(c, old === 1 ? size : old);
    });
  });
  return { inputs, output, sizes };
}

type Letters = ReadonlySet<string>;

/** The order of contractions: each takes operands away by their places among those that are left, and adds its result at the end. */
export interface EinsumPath {
  readonly path: readonly (readonly number[])[];
  /** Multiplications and additions. */
  readonly cost: number;
  /** Most letters of a contraction. */
  readonly scaling: number;
}

/** A pair of operands that may be next. */
interface Pair {
  readonly places: readonly [number, number];
  readonly result: Letters;
  /** How many elements it frees. */
  readonly freed: number;
  readonly cost: number;
  readonly scaling: number;
}

function sizeOf(letters: Iterable<string>, sizes: ReadonlyMap<string, number>): number {
  let size = 1;
  for (const c of letters) size *= sizes.get(c)!;
  return size;
}

/** Work of the product of `count` operands with these letters in all, some of which are summed over or not. */
function costOf(letters: Letters, summed: boolean, count: number, sizes: ReadonlyMap<string, number>): number {
  return sizeOf(letters, sizes) * (Math.max(1, count - 1) + (summed ? 1 : 0));
}

/** All operands in one step. */
function naive(terms: readonly Letters[], output: Letters, sizes: ReadonlyMap<string, number>): EinsumPath {
  const letters = new Set(terms.flatMap((term) => [...term]));
  const cost = costOf(letters, !letters.isSubsetOf(output), terms.length, sizes);
  return { path: [terms.map((_, i) => i)], cost, scaling: letters.size };
}

/** The product of two operands, or undefined if it is larger than `most` elements or more work than `budget`. */
function pairOf(
  places: readonly [number, number],
  terms: readonly Letters[],
  output: Letters,
  sizes: ReadonlyMap<string, number>,
  most: number,
  budget: number,
): Pair | undefined {
  const [a, b] = places.map((i) => terms[i]);
  const letters = a.union(b);
  const needed = new Set([...output, ...terms.flatMap((term, i) => places.includes(i) ? [] : [...term])]);
  const result = letters.intersection(needed);
  const size = sizeOf(result, sizes);
  const cost = costOf(letters, letters.size > result.size, 2, sizes);
  if (size > most || cost > budget) return undefined;
  return { places, result, freed: sizeOf(a, sizes) + sizeOf(b, sizes) - size, cost, scaling: letters.size };
}

/**
 * Contracts the pair that frees most elements, and of those the one with the least work, again and again. Pairs without a common letter
 * come last. An intermediate result may not be larger than the largest operand or the output, and the total work may not exceed `limit`.
 * If no pair is left, one last step contracts all remaining operands.
 */
function greedy({ inputs, output, sizes }: Subscripts, limit: number): EinsumPath {
  const most = Math.max(...[output, ...inputs].map((letters) => sizeOf(letters, sizes)));
  const wanted = new Set(output);
  let terms: Letters[] = inputs.map((letters) => new Set(letters));
  let pairs: Pair[] = [];
  let places = terms.flatMap((_, j) => terms.slice(0, j).map((_, i) => [i, j] as const)).sort(([a], [b]) => a - b);
  const path: (readonly number[])[] = [];
  let cost = 0, scaling = 0;
  while (path.length < inputs.length - 1) {
    const possible = (list: typeof places): Pair[] =>
      list.flatMap((at) => pairOf(at, terms, wanted, sizes, most, limit - cost) ?? []);
    pairs.push(...possible(places.filter(([i, j]) => !terms[i].isDisjointFrom(terms[j]))));
    if (pairs.length === 0) pairs = possible(places);
    if (pairs.length === 0) {
      const rest = naive(terms, wanted, sizes);
      return { path: [...path, ...rest.path], cost: cost + rest.cost, scaling: Math.max(scaling, rest.scaling) };
    }
    const best = pairs.reduce((a, b) => b.freed > a.freed || b.freed === a.freed && b.cost < a.cost ? b : a);
    const [x, y] = best.places;
    path.push(best.places);
    cost += best.cost;
    scaling = Math.max(scaling, best.scaling);
    terms = [...terms.filter((_, i) => i !== x && i !== y), best.result];
    const moved = (i: number): number => i - (i > x ? 1 : 0) - (i > y ? 1 : 0);
    pairs = pairs.filter((pair) => !pair.places.includes(x) && !pair.places.includes(y))
      .map((pair) => ({ ...pair, places: [moved(pair.places[0]), moved(pair.places[1])] }));
    places = terms.slice(0, -1).map((_, i) => [i, terms.length - 1] as const);
  }
  return { path, cost, scaling };
}

/** The order of contractions, and what all at once would take. */
export function pathOf(terms: Subscripts): EinsumPath & { readonly naive: EinsumPath } {
  const once = naive(terms.inputs.map((letters) => new Set(letters)), new Set(terms.output), terms.sizes);
  return { ...(terms.inputs.length <= 2 ? once : greedy(terms, once.cost)), naive: once };
}

/**
 * The order in which `einsum` contracts arrays, and what it costs, as text. Each step names the places of the arrays that it multiplies
 * among those that are left; its result comes last. Throws as `einsum` does.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [path] = mx.einsumPath("ij,jk,kl", mx.ones([5, 8]), mx.ones([8, 10]), mx.ones([10, 7]));
 * path; // [[1, 2], [0, 1]]
 * ```
 */
export function einsumPath(subscripts: string, ...operands: readonly TensorLike[]): [path: number[][], text: string] {
  const shapes = toOperands("einsumPath", operands).map((node) => node.shape);
  const { path, cost, scaling, naive } = pathOf(readSubscripts("einsumPath", subscripts, shapes));
  const lines = [
    `  Complete contraction:  ${subscripts}`,
    `         Naive scaling:  ${naive.scaling}`,
    `     Optimized scaling:  ${scaling}`,
    `      Naive FLOP count:  ${naive.cost}`,
    `  Optimized FLOP count:  ${cost}`,
  ];
  return [path.map((step) => [...step]), lines.join("\n") + "\n"];
}
