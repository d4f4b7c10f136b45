/**
 * Compiled functions: traced once per input shapes, then replayed without building or lowering a graph.
 *
 * @module
 */

import { quoted, ValueError } from "../graph/error.ts";
import type { Node } from "../graph/node.ts";
import { CompiledGraph } from "../schedule/compiled_function.ts";
import { scoped, tensorsOf } from "./scope.ts";
import { StackedTensors } from "./stack.ts";
import { nodeOf, Tensor, wrap } from "./tensor.ts";

/** A compiled function. Dispose it to free its Plans and their scratch memory. */
export interface Compiled<A extends readonly unknown[], R> extends Disposable {
  (...args: A): R;
}

/**
 * A value with the Tensors that it reaches replaced by others, in the order of {@link tensorsOf}; that of a {@link StackedTensors} by its
 * parts.
 */
export type Rebuild = (tensors: readonly (Tensor | readonly Tensor[])[]) => unknown;

/**
 * Takes a value apart; the arrays of stacks in it are added to `stacked`. What reaches no array stays the same object. Throws a
 * ValueError, in the name of `op`, where an array lies in something else than lists and plain objects.
 */
export function rebuilder(op: string, tree: unknown, stacked: Set<Tensor> = new Set()): Rebuild {
  const order = new Map(tensorsOf(tree).map((tensor, i) => [tensor, i]));
  const build = (value: unknown): Rebuild => {
    if (value instanceof Tensor) {
      const at = order.get(value)!;
      return (tensors) => tensors[at];
    }
    if (value instanceof StackedTensors) {
      const whole = value.arrays as Tensor;
      const at = order.get(whole)!;
      stacked.add(whole);
      return (tensors) => new StackedTensors(tensors[at]);
    }
    if (tensorsOf(value).length === 0) return () => value;
    if (Array.isArray(value)) {
      const parts = value.map(build);
      return (tensors) => parts.map((part) => part(tensors));
    }
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) {
      const { name } = prototype.constructor;
      throw new ValueError(`${op}() takes arrays in lists and plain objects: found them in a ${name}`);
    }
    const parts = Object.entries(value as object).map(([name, part]) => [name, build(part)] as const);
    return (tensors) => Object.fromEntries(parts.map(([name, part]) => [name, part(tensors)]));
  };
  return build(tree);
}

/** How many functions are being traced, one inside of the other. */
let tracing = 0;

/** The result nodes of a function that builds a graph. The traced Tensors go at its end; what it returns stays, handed on. */
export function traceNodes(fn: () => readonly Node[]): readonly Node[] {
  let outputs: readonly Node[] = [];
  tracing++;
  try {
    scoped(() => {
      outputs = fn();
      for (const node of outputs) node.retain();
    });
  } finally {
    tracing--;
  }
  for (const node of outputs) node.handOn();
  return outputs;
}

/** Numbers of functions, which are told apart by identity. */
const functions = new WeakMap<object, number>();
let lastFunction = 0;

/** Arguments as text, their arrays as numbers: what a trace depends on besides shapes and dtypes. */
function constantsOf(args: readonly unknown[], inputs: readonly Tensor[]): string {
  const order = new Map(inputs.map((tensor, i) => [tensor, i]));
  const text = (value: unknown): string => {
    if (value instanceof Tensor) return `#${order.get(value)}`;
    if (typeof value === "function") {
      if (!functions.has(value)) functions.set(value, ++lastFunction);
      return `function ${functions.get(value)}`;
    }
    if (typeof value === "string") return JSON.stringify(value);
    if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
    const entries = value instanceof Map || value instanceof Set ? [...value.entries()] : Object.entries(value);
    return `${value.constructor?.name}{${entries.map(([key, part]) => `${text(key)}:${text(part)}`)}}`;
  };
  return args.map(text).join();
}

/**
 * Compiles a function of arrays. The first call with new shapes, dtypes or other argument values runs `fn` to trace its
 * graph; later calls replay the finished Plan. MLX's `compile`.
 *
 * Arguments and result may be arrays, lists and plain objects of arrays, and whatever holds no array: values by what they hold,
 * functions by identity. `fn` must not evaluate anything and must not depend on anything but its arguments and arrays that do not
 * change. Results are evaluated when the call returns. An array that
 * `fn` updates with `donate` is written in place: it must be an argument, `fn` must return the update, and the caller may
 * not use the old array again. Inside of a function that is being compiled, a compiled one becomes a part of it.
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
  if (typeof fn !== "function") throw new ValueError(`compile() expected a function: found ${quoted(fn)}`);
  const results = new Map<string, Rebuild>();
  let key = "";
  let called: readonly unknown[] = [];
  const graph = new CompiledGraph((parameters) =>
    traceNodes(() => {
      const result = fn(...rebuilder("compile", called)(parameters.map(wrap)) as unknown as A);
      if (result instanceof Promise) throw new ValueError("compile() needs a synchronous function: found an async one");
      results.set(key, rebuilder("compile", result));
      return tensorsOf(result).map(nodeOf);
    })
  );
  const call = (...args: A): R => {
    if (tracing > 0) {
      return fn(...rebuilder("compile", args)(tensorsOf(args).map((t) => wrap(nodeOf(t)))) as unknown as A);
    }
    const inputs = tensorsOf(args);
    key = `${constantsOf(args, inputs)} ${inputs.map((t) => `${t.dtype.name}(${t.shape})`)}`;
    called = args;
    const { outputs } = graph.call(inputs.map(nodeOf), key);
    return results.get(key)!(outputs.map(wrap)) as R;
  };
  return Object.assign(call, { [Symbol.dispose]: () => graph[Symbol.dispose]() });
}
