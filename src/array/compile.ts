/**
 * Compiled functions: traced once per input shapes, then replayed without building or lowering a graph.
 *
 * @module
 */

import { ValueError } from "../graph/error.ts";
import type { Node } from "../graph/node.ts";
import { CompiledGraph } from "../schedule/compile.ts";
import { scoped, tensorsOf } from "./scope.ts";
import { nodeOf, Tensor, wrap } from "./tensor.ts";

/** A compiled function. Dispose it to free its Plans and their scratch memory. */
export interface Compiled<A extends readonly unknown[], R> extends Disposable {
  (...args: A): R;
}

/** A value with the Tensors that it reaches replaced, in the order of {@link tensorsOf}. */
export type Rebuild = (tensors: Iterator<Tensor>) => unknown;

export function rebuilder(tree: unknown): Rebuild {
  if (tree instanceof Tensor) return (tensors) => tensors.next().value;
  if (Array.isArray(tree)) {
    const parts = tree.map(rebuilder);
    return (tensors) => parts.map((part) => part(tensors));
  }
  if (typeof tree === "object" && tree !== null && Object.getPrototypeOf(tree) === Object.prototype) {
    const parts = Object.entries(tree).map(([name, value]) => [name, rebuilder(value)] as const);
    return (tensors) => Object.fromEntries(parts.map(([name, part]) => [name, part(tensors)]));
  }
  return () => tree;
}

/** What of the arguments is no array: it is part of the trace, so it is part of its key. */
function constantsOf(args: readonly unknown[]): string {
  return JSON.stringify(args, (_, value) => value instanceof Tensor ? "array" : value ?? null);
}

/**
 * Compiles a function of arrays. The first call with new shapes, dtypes or other argument values runs `fn` to trace its
 * graph; later calls replay the finished Plan. MLX's `compile`.
 *
 * Arguments and result may be arrays, lists and plain objects of arrays. `fn` must not evaluate anything and must not depend on
 * anything but its arguments and arrays that do not change. Results are evaluated when the call returns. An array that
 * `fn` updates with `donate` is written in place: it must be an argument, `fn` must return the update, and the caller may
 * not use the old array again.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * using gelu = mx.compile((x: mx.Tensor) => mx.multiply(mx.multiply(x, 0.5), mx.add(mx.erf(mx.divide(x, Math.SQRT2)), 1)));
 * gelu(mx.array([1, 2])).tolist(); // [0.8413447141647339, 1.9544997215270996]
 * ```
 */
export function compile<A extends readonly unknown[], R>(fn: (...args: A) => R): Compiled<A, R> {
  const results = new Map<string, Rebuild>();
  let key = "";
  let argument: Rebuild = () => [];
  const graph = new CompiledGraph((parameters) => {
    // The traced Tensors go at the end; the nodes of the result stay, held by the lowering.
    let outputs: Node[] = [];
    scoped(() => {
      const result = fn(...argument(parameters.map(wrap).values()) as unknown as A);
      if (result instanceof Promise) throw new ValueError("compile() needs a synchronous function: found an async one");
      results.set(key, rebuilder(result));
      outputs = tensorsOf(result).map(nodeOf);
      for (const node of outputs) node.retain();
    });
    for (const node of outputs) node.handOn();
    return outputs;
  });
  const call = (...args: A): R => {
    const inputs = tensorsOf(args);
    key = `${constantsOf(args)}${inputs.map((t) => `${t.dtype.name}(${t.shape})`)}`;
    argument = rebuilder(args);
    const { outputs } = graph.call(inputs.map(nodeOf), key);
    return results.get(key)!(outputs.map(wrap).values()) as R;
  };
  return Object.assign(call, { [Symbol.dispose]: () => graph[Symbol.dispose]() });
}
