/**
 * Compiled functions: traced once per input shapes, then replayed without building or lowering a graph.
 *
 * @module
 */

import { isDtype } from "../../graph/dtype.ts";
import { quoted, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { CompiledGraph } from "../../schedule/compiled_function.ts";
import { inputsFirst } from "../../schedule/plan/order.ts";
import { at, keepConstants, leave, type Place, placesOf, put } from "./captured.ts";
import { isReplaceable } from "../tensor/replaceable.ts";
import { scoped, tensorsOf } from "../tensor/scope.ts";
import { ShapelessTrace } from "./shapeless.ts";
import { Slice } from "../tensor/slice.ts";
import { StackedTensors } from "../devices/stack.ts";
import { nodeOf, Tensor, wrap } from "../tensor/tensor.ts";
import { current, type Scope } from "../tensor/tracking.ts";
import { recording } from "../tensor/tape.ts";

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
 * Takes a value apart; the arrays of stacks in it are added to `stacked`. A part without arrays stays the same object. Throws a
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

/** Whether a function is being traced: arrays that are made now stand for those of its calls, and go with the trace. */
export function isTracing(): boolean {
  return tracing > 0;
}

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

/** Numbers of functions, which are compared by identity. */
const functions = new WeakMap<object, number>();
let lastFunction = 0;

/** Whether an object is compared by its contents; others are instances of classes that may hide their contents. */
function isTree(value: object): boolean {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Array.isArray(value) || value instanceof Map ||
    value instanceof Set || value instanceof StackedTensors || value instanceof Slice || ArrayBuffer.isView(value);
}

/** Arguments as text, their arrays as numbers: what a trace depends on besides shapes and dtypes. */
function constantsOf(args: readonly unknown[], inputs: readonly Tensor[]): string {
  const order = new Map(inputs.map((tensor, i) => [tensor, i]));
  const text = (value: unknown): string => {
    if (value instanceof Tensor) return `#${order.get(value)}`;
    if (typeof value === "function") {
      if (!functions.has(value)) functions.set(value, ++lastFunction);
      return `function ${functions.get(value)}`;
    }
    if (isDtype(value)) return `dtype ${value.name}`;
    if (typeof value === "string") return JSON.stringify(value);
    if (typeof value !== "object" || value === null) return Object.is(value, -0) ? "-0" : String(value);
    if (!isTree(value)) {
      throw new ValueError(
        `compile() takes arrays, numbers, text, functions, lists and plain objects of them: found a ${value.constructor.name}`,
      );
    }
    const entries = value instanceof Map || value instanceof Set ? [...value.entries()] : Object.entries(value);
    return `${value.constructor?.name}{${entries.map(([key, part]) => `${text(key)}:${text(part)}`)}}`;
  };
  return args.map(text).join();
}

/** Whether compiled functions are compiled. */
let enabled = true;

/** Compiled functions run as they are written, also those that were compiled before, until {@link enableCompile}. */
export function disableCompile(): void {
  enabled = false;
}

/** Compiled functions are compiled again, after {@link disableCompile}. */
export function enableCompile(): void {
  enabled = true;
}

/** The inputs of a trace: the arguments of a call and the arrays of the state that it reads. */
interface Call {
  readonly args: readonly unknown[];
  readonly own: readonly Tensor[];
  readonly places: readonly Place[];
  readonly captured: readonly Tensor[];
  /** Arguments that are not evaluated. */
  readonly pending: readonly Node[];
  /** The scope around it. */
  readonly around: Scope | undefined;
  /** Tells calls with other constants, dtypes or shapes apart. */
  readonly key: string;
  /** The same for shapes with as many axes. */
  readonly kind: string;
}

/** How results of a trace become the function's return value and its state. */
interface Returned {
  readonly rebuild: Rebuild;
  /** The node that each array shows; those of the result come first. */
  readonly order: readonly number[];
  readonly count: number;
  readonly places: readonly Place[];
  /** Whether each place got an array that ends when it is replaced. */
  readonly replaces: readonly boolean[];
}

/** Arrays that are computed of others and were not evaluated yet. */
function pendingOf(arrays: readonly Tensor[]): readonly Node[] {
  return arrays.map(nodeOf).filter((node) => node.inputs.length > 0);
}

/** Throws if a graph also computes the pending arrays of a call, for which parameters stand: it would not be traced through them. */
function checkCaptured(results: readonly Node[], pending: readonly Node[]): void {
  if (pending.length === 0) return;
  const nodes = new Set(pending);
  if (!inputsFirst(results, (node) => node.inputs).some((node) => nodes.has(node))) return;
  throw new ValueError(
    "compile() found an argument that was not evaluated and that the function also reads from outside of it. Use the argument, " +
      "name its container in `inputs`, or evaluate it first, to read it as a constant",
  );
}

/** Throws if an array of the state has ended. */
function checkState(captured: readonly Tensor[]): void {
  if (!captured.some((array) => array.isDisposed)) return;
  throw new ValueError(
    "compile() found an array in `inputs` that was disposed: where the function puts arrays there, name what holds them in `outputs` too",
  );
}

/**
 * Compiles a function of arrays. The first call with new shapes, dtypes or other argument values runs `fn` to trace its
 * graph; later calls replay the finished Plan. MLX's `compile`.
 *
 * Arguments and result may be arrays, lists and plain objects of arrays, and values without arrays. Values are compared by their
 * contents, functions by identity. `fn` must not evaluate anything. It may depend only on its arguments, on arrays that do not change,
 * and on its named state. `inputs` are lists or objects of arrays that it reads, `outputs` those that it writes. `mx.random.state` is
 * such state, without which each call draws the same numbers. All other captured arrays keep their values of the time of tracing, also
 * evaluated arguments that `fn` reads as captured arrays. Arrays that a call writes outlive the scopes around it. Results are evaluated
 * when the call returns.
 *
 * An array that `fn` updates with `donate` is written in place. It must be an argument, `fn` must return the update, and the caller may
 * not use the old array again. Inside of a function that is being compiled, a compiled one becomes a part of it.
 *
 * With `shapeless`, one trace serves arguments of other sizes with as many axes. It may then have only elementwise ops, reductions,
 * softmax, sorts, transposes, matrix products and reshapes. A reshape to sizes that no longer fit is then a ShapeError. With other ops `fn` is
 * traced for each shape, as without `shapeless`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * using gelu = mx.compile((x: mx.Tensor) => mx.multiply(mx.multiply(x, 0.5), mx.add(mx.erf(mx.divide(x, Math.SQRT2)), 1)));
 * gelu(mx.array([1, 2])).tolist(); // [0.8413447141647339, 1.9544997215270996]
 *
 * const state = { steps: mx.array(0) };
 * using step = mx.compile((x: mx.Tensor) => {
 *   state.steps = mx.add(state.steps, 1);
 *   return mx.multiply(x, state.steps);
 * }, state, state);
 * step(mx.array(5)).item(); // 5
 * step(mx.array(5)).item(); // 10
 * ```
 */
export function compile<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  inputs: unknown = null,
  outputs: unknown = null,
  shapeless: boolean = false,
): Compiled<A, R> {
  if (typeof fn !== "function") throw new ValueError(`compile() expected a function: found ${quoted(fn)}`);
  const results = new Map<string, Returned>();
  const shapelessTraces = new Map<string, { readonly trace: ShapelessTrace; readonly returned: Returned }>();
  let now: Call;
  const graph = new CompiledGraph((parameters) =>
    traceNodes(() => {
      const { args, own, places, captured, around, key, kind, pending } = now;
      const earlier = shapelessTraces.get(kind);
      const again = earlier?.trace.build(parameters);
      if (earlier && again) {
        results.set(key, earlier.returned);
        return again;
      }
      const tensors = parameters.map(wrap);
      const putBack = put(inputs, places, tensors.slice(own.length));
      try {
        const result = fn(...rebuilder("compile", args)(tensors.slice(0, own.length)) as unknown as A);
        if (result instanceof Promise) {
          throw new ValueError("compile() needs a synchronous function: found an async one");
        }
        const returned = tensorsOf(result), left = placesOf(outputs);
        const written = left.map((place) => at(outputs, place));
        const all = [...returned, ...written].map(nodeOf);
        const nodes = [...new Set(all)];
        checkCaptured(nodes, pending);
        keepConstants(current()!.made, around, inputs);
        const order = all.map((node) => nodes.indexOf(node));
        const replaces = written.map(isReplaceable);
        const whole = { rebuild: rebuilder("compile", result), order, count: returned.length, places: left, replaces };
        results.set(key, whole);
        const trace = shapeless && !earlier ? ShapelessTrace.of(nodes) : undefined;
        if (trace) shapelessTraces.set(kind, { trace, returned: whole });
        return nodes;
      } finally {
        putBack(captured);
      }
    })
  );
  const call = (...args: A): R => {
    if (!enabled) return fn(...args);
    if (tracing > 0 || recording()) {
      return fn(...rebuilder("compile", args)(tensorsOf(args).map((t) => wrap(nodeOf(t)))) as unknown as A);
    }
    const around = current();
    return scoped(() => {
      const own = tensorsOf(args), places = placesOf(inputs), captured = places.map((place) => at(inputs, place));
      checkState(captured);
      const all = [...own, ...captured];
      const kind = `${constantsOf(args, own)} ${JSON.stringify(places)} ${all.map((t) => `${t.dtype.name} ${t.ndim}`)}`;
      const key = `${kind} ${all.map((t) => `(${t.shape})`)}`;
      now = { args, own, places, captured, around, key, kind, pending: pendingOf(all) };
      const found = graph.call(all.map(nodeOf), key).outputs;
      const { rebuild, order, count, places: left, replaces } = results.get(key)!;
      leave(outputs, left, order.slice(count).map((i) => found[i]), replaces);
      return rebuild(order.slice(0, count).map((i) => wrap(found[i]))) as R;
    });
  };
  const dispose = (): void => {
    graph[Symbol.dispose]();
    for (const { trace } of shapelessTraces.values()) trace[Symbol.dispose]();
    shapelessTraces.clear();
  };
  return Object.assign(call, { [Symbol.dispose]: dispose });
}
