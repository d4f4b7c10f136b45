/**
 * Functions of single arrays as functions of batches.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- what types do not know

import { IndexError, ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { formatShape, normalizeAxis } from "../../graph/shape.ts";
import { transposeNode } from "../ops/movement.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, Tensor, type TensorLike, wrap } from "../tensor/tensor.ts";
import { arraysOf, withArrays } from "../tensor/tree.ts";
import type { IsAny, Up } from "../tensor/types.ts";
import { batch } from "./batch.ts";
import { type AnyFunction, checkFunction, checkSynchronous } from "./grad.ts";
import { batchOf } from "./rule.ts";
import { Tape } from "../tensor/tape.ts";

/** Which axis of an array is the batch: one for all, or a list or object for the parts of an argument; null for none. */
export type Axes = number | null | undefined | readonly Axes[] | { readonly [name: string]: Axes };

/** A tree whose arrays have one axis more, the batch, but for those whose axis is null. */
export type Batched<T, X> = IsAny<T> extends true ? any
  : [X] extends [null | undefined] ? T
  : [TensorLike] extends [T] ? T // takes batches as well
  : T extends Tensor<infer N, infer R> ? Tensor<N, X extends number | readonly [number] ? Up<R> : any>
  : T extends readonly unknown[] | Record<string, unknown> ? { [K in keyof T]: Batched<T[K], AxesOf<X, K>> }
  : T;

/** The arguments of a function of single arrays, as those of batches. An object of axes is that of the only argument. */
export type BatchedArguments<A extends unknown[], X> = {
  [K in keyof A]: Batched<A[K], X extends number | null | undefined | readonly unknown[] ? AxesOf<X, K> : X>;
};

/** The axes of a part of a tree. */
export type AxesOf<X, K> = X extends number | null | undefined ? X : K extends keyof X ? X[K] : any;

/** The axes of the arrays of a tree, in the order of arraysOf(). */
function axesOfArrays(what: string, tree: unknown, axes: Axes): (number | null)[] {
  if (tree instanceof Tensor) {
    if (axes === null || axes === undefined) return [null];
    if (typeof axes !== "number" || !Number.isInteger(axes)) {
      throw new ValueError(
        `vmap() expected ${what} to be whole numbers or null for arrays: found ${
          Array.isArray(axes) ? "a list" : typeof axes === "number" ? axes : typeof axes
        } for shape ${formatShape(tree.shape)}`,
      );
    }
    return [axes];
  }
  if (typeof tree !== "object" || tree === null) return [];
  const entries = Object.entries(tree);
  if (arraysOf(tree).length === 0) return [];
  if (axes === null || axes === undefined || typeof axes === "number") {
    return entries.flatMap(([, part]) => axesOfArrays(what, part, axes));
  }
  if (typeof axes !== "object") {
    throw new ValueError(`vmap() expected ${what} to be whole numbers or null, or lists of them: found ${typeof axes}`);
  }
  if (Array.isArray(axes) !== Array.isArray(tree) || Object.keys(axes).length !== entries.length) {
    throw new ValueError(
      `vmap() expected ${what} in the form of what it is for: found ${
        Object.keys(axes).length
      } axes for ${entries.length} parts`,
    );
  }
  return entries.flatMap(([name, part]) => axesOfArrays(what, part, (axes as Readonly<Record<string, Axes>>)[name]));
}

/** A node with an axis moved to another place. */
function moved(node: Node, from: number, to: number): Node {
  const rest = node.shape.map((_, i) => i).filter((i) => i !== from);
  rest.splice(to, 0, from);
  return transposeNode(node, rest);
}

function normalized(what: string, axis: number, shape: readonly number[], rank: number): number {
  const at = normalizeAxis(axis, rank);
  if (at !== undefined) return at;
  throw new IndexError(`vmap() ${what} ${axis} is out of range for an array of shape ${formatShape(shape)}`);
}

/**
 * A function that gives for batches what `fn` gives for each element of them. `fn` sees arrays without the axis that `inAxes` names, and
 * its results get the batch at `outAxes`. Arrays whose axis is null are the same for all. Axes are one number for all arguments or a list
 * with one for each. An entry of the list may again be lists and objects in the form of the argument. `fn` is run once; it cannot
 * evaluate its arrays. MLX's `vmap`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const dot = (a: mx.Tensor, b: mx.Tensor) => mx.sum(mx.multiply(a, b));
 * mx.vmap(dot)(mx.array([[1, 2], [3, 4]]), mx.array([[1, 0], [0, 1]])).tolist(); // [1, 4]
 * mx.vmap(dot, [0, null])(mx.array([[1, 2], [3, 4]]), mx.array([1, 1])).tolist(); // [3, 7]
 * ```
 */
export function vmap<F extends AnyFunction, const I extends Axes = 0, const O extends Axes = 0>(
  fn: F,
  inAxes: I = 0 as I,
  outAxes: O = 0 as O,
): (...args: BatchedArguments<Parameters<F>, I>) => Batched<ReturnType<F>, O> {
  checkFunction("vmap", fn);
  return (...args) => mapped(fn, args, inAxes, outAxes) as Batched<ReturnType<F>, O>;
}

function mapped(fn: AnyFunction, args: readonly unknown[], inAxes: Axes, outAxes: Axes): unknown {
  const arrays = arraysOf(args);
  // An object of axes is that of the only argument.
  const whole = args.length === 1 && typeof inAxes === "object" && inAxes !== null && !Array.isArray(inAxes);
  const axes = axesOfArrays("inAxes", args, whole ? [inAxes] : inAxes);
  const fronts = arrays.map((array, i) => {
    const axis = axes[i];
    if (axis === null) return undefined;
    const node = nodeOf(array);
    return moved(node, normalized("input axis", axis, node.shape, node.shape.length), 0);
  });
  const sizes = [...new Set(fronts.flatMap((node) => node ? [node.shape[0]] : []))];
  if (sizes.length === 0) throw new ValueError("vmap() expected at least one array with an axis to map over");
  if (sizes.length > 1) {
    const found = arrays.flatMap(({ shape }, i) =>
      axes[i] === null ? [] : [`axis ${axes[i]} of ${formatShape(shape)}`]
    );
    throw new ShapeError(`vmap() expected batches of one size: found ${sizes.join(" and ")}, ${found.join(", ")}`);
  }
  const [size] = sizes;
  const single = fronts.map((node) => {
    if (!node) return undefined;
    const stand = makeNode("parameter", [], node.shape.slice(1), node.dtype, { index: 0 });
    return stand;
  });
  using tape = new Tape(single.flatMap((node) => node ? [node] : []), true);
  const given = withArrays(args, arrays.map((array, i) => single[i] ? wrap(single[i]) : array)) as unknown[];
  const result = checkSynchronous("vmap", tape.record(() => fn(...given)));
  const outputs = arraysOf(result);
  const one = result instanceof Tensor && Array.isArray(outAxes) && outAxes.length === 1;
  const places = axesOfArrays("outAxes", result, one ? (outAxes as readonly Axes[])[0] : outAxes);
  const found = scoped(() => {
    const of = new Map(single.flatMap((node, i) => node ? [[node, fronts[i]!] as const] : []));
    const nodes = outputs.map((array) => nodeOf(array));
    return batch(tape, of, nodes, size).map((node, i): AnyTensor => {
      const place = places[i];
      if (place === null) {
        if (node) {
          throw new ValueError(
            "vmap() cannot leave out the batch of a result that depends on it: give it an output axis",
          );
        }
        return wrap(nodes[i]);
      }
      const whole = node ?? batchOf(nodes[i], false, size);
      return wrap(moved(whole, 0, normalized("output axis", place, nodes[i].shape, whole.shape.length)));
    });
  });
  return withArrays(result, found);
}
