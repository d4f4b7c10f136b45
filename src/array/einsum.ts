/**
 * Einstein summation: operands are contracted from left to right, two at a time, through one matrix product each.
 *
 * @module
 */

import { quoted, ShapeError, ValueError } from "../graph/error.ts";
import { formatShape } from "../graph/shape.ts";
import { type TensorLike, toOperands } from "./convert.ts";
import { matmul } from "./products.ts";
import { broadcastTo, diagonal, reshape, transpose } from "./movement.ts";
import { sum } from "./reduce.ts";
import { scoped } from "./scope.ts";
import { type Tensor, wrap } from "./tensor.ts";
import { multiply } from "./binary.ts";

/** An operand with one letter an axis. */
interface Term {
  readonly tensor: Tensor;
  readonly letters: readonly string[];
}

/** Letters with at most one "..." in each part. */
const FORM = /^(?!.*\.\.\.[A-Za-z]*\.)(?:[A-Za-z,]|\.\.\.)*(?:->(?:[A-Za-z]|\.\.\.)*)?$/;

/** One letter an axis of every input and of the output. The axes of "…" are named by their place from the end. */
function parse(subscripts: string, ranks: readonly number[]): { inputs: string[][]; output: string[] } {
  if (typeof subscripts !== "string") {
    throw new ValueError(`einsum() expected subscripts such as "ij,jk->ik": found ${quoted(subscripts)}`);
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
      `einsum() cannot use "${subscripts}" for ${ranks.length} arrays: letters, commas, "..." and "->" in NumPy's form`,
    );
  }
  return { inputs, output };
}

function once(letters: readonly string[]): string[] {
  return letters.filter((c) => letters.filter((d) => d === c).length === 1);
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

/** Sums over the letters that nobody else has. */
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

/**
 * Sums of products over letters that name axes. Letters that "->" leaves out are summed over; without "->" the result has
 * the letters that occur once, in alphabetical order. "..." stands for any other axes, which broadcast; so do axes of size 1.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.einsum("ij,jk->ik", mx.ones([2, 3]), mx.ones([3, 4])).shape; // [2, 4]
 * ```
 */
export function einsum(subscripts: string, ...operands: readonly TensorLike[]): Tensor {
  const nodes = toOperands("einsum", operands);
  const { inputs, output } = parse(subscripts, nodes.map((node) => node.shape.length));
  const sizes = new Map<string, number>();
  nodes.forEach((node, i) => {
    if (node.shape.length !== inputs[i].length) {
      throw new ShapeError(
        `einsum() "${subscripts.split(",")[i].split("->")[0]}" does not fit an array of shape ${
          formatShape(node.shape)
        }`,
      );
    }
    inputs[i].forEach((c, axis) => {
      const [old = 1, size] = [sizes.get(c), node.shape[axis]];
      if (old !== size && old !== 1 && size !== 1) {
        throw new ShapeError(`einsum() letter "${c}" of "${subscripts}" has sizes ${old} and ${size}`);
      }
      sizes.set(c, old === 1 ? size : old);
    });
  });
  return scoped(() => {
    const terms = nodes.map((node, i): Term => {
      const wide = broadcastTo(wrap(node), inputs[i].map((c) => sizes.get(c)!));
      return uniqueAxes({ tensor: wide, letters: inputs[i] });
    });
    const neededBy = (from: number): Set<string> =>
      new Set([...output, ...terms.slice(from).flatMap((t) => t.letters)]);
    let result = dropUnused(terms[0], neededBy(1));
    for (let i = 1; i < terms.length; i++) {
      const needed = neededBy(i + 1);
      const next = dropUnused(terms[i], new Set([...needed, ...result.letters]));
      const left = dropUnused(result, new Set([...needed, ...next.letters]));
      result = contract(left, next, needed, sizes);
    }
    return arrange(dropUnused(result, new Set(output)), output);
  });
}
