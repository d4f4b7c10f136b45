/**
 * Derivatives of functions of arrays: gradients, and products with Jacobians from the left (vjp) and from the right (jvp).
 *
 * A function is run once on arrays that stand for its arguments, while a tape records the ops on them. Derivatives are new lazy arrays.
 * The function may evaluate arrays, and its other effects happen once per call.
 *
 * @module
 */

import { DtypeError, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sameShape, sizeOf } from "../../graph/shape.ts";
import { isTracing } from "../compile/compile.ts";
import { fullNode } from "../tensor/convert.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, Tensor, wrap } from "../tensor/tensor.ts";
import { arraysOf, checkArrays, withArrays } from "../tensor/tree.ts";
import { forward } from "./forward.ts";
import { reverse } from "./reverse.ts";
import { zerosOf } from "./rule.ts";
import { aliasOf, recording, Tape } from "../tensor/tape.ts";

/** A function as transforms take it. */
// deno-lint-ignore no-explicit-any -- arguments of any kind
export type AnyFunction = (...args: any[]) => unknown;

/** The gradient of an argument: of its form, with arrays if it has arrays. */
export type GradientOf<A> = A extends Tensor<infer N, infer R> ? Tensor<N, R>
  : A extends readonly unknown[] | Record<string, unknown> ? { -readonly [K in keyof A]: GradientOf<A[K]> }
  : A;

/** Which arguments: one, or a list. */
export type Argnums = number | readonly number[];

/** The gradients of the arguments that `argnums` names. */
export type GradientsOf<A extends readonly unknown[], N extends Argnums> = N extends number ? GradientOf<A[N]>
  : N extends readonly number[] ? { -readonly [K in keyof N]: GradientOf<A[N[K] & number]> }
  : never;

/** Throws if a function is no function. */
export function checkFunction(op: string, fn: unknown): void {
  if (typeof fn !== "function") throw new ValueError(`${op}() expected a function: found ${typeof fn}`);
}

/** The result of a traced function; a promise is refused. */
export function checkSynchronous<T>(op: string, result: T): T {
  if (result instanceof Promise) throw new ValueError(`${op}() needs a synchronous function: found an async one`);
  return result;
}

function checkArgnums(op: string, argnums: Argnums): readonly number[] {
  const nums = typeof argnums === "number" ? [argnums] : argnums;
  if (!Array.isArray(nums) || nums.length === 0) {
    throw new ValueError(`${op}() expected argnums to be a number or a list of numbers`);
  }
  for (const n of nums) {
    if (!Number.isInteger(n) || n < 0) {
      throw new ValueError(`${op}() expected argnums to be whole and not negative: found ${n}`);
    }
  }
  if (new Set(nums).size < nums.length) {
    throw new ValueError(`${op}() expected distinct argnums: found (${nums.join()})`);
  }
  return nums;
}

/** Runs a function on stand-ins of some of its arguments under a tape. */
function traced<T>(
  op: string,
  fn: AnyFunction,
  args: readonly unknown[],
  nums: readonly number[],
): { readonly tape: Tape; readonly inputs: readonly Node[]; readonly result: T } {
  const chosen = nums.map((n) => args[n]);
  const inputs = arraysOf(chosen).map((array) => aliasOf(nodeOf(array)));
  const tape = new Tape(inputs);
  try {
    const own = withArrays(chosen, inputs.map((node) => wrap(node))) as unknown[];
    const given = args.map((arg, i) => nums.includes(i) ? own[nums.indexOf(i)] : arg);
    return { tape, inputs, result: checkSynchronous(op, tape.record(() => fn(...given))) as T };
  } catch (error) {
    tape[Symbol.dispose]();
    throw error;
  }
}

/** The scalar whose gradient is taken: the result, or the first of a list. */
function lossOf(op: string, result: unknown): AnyTensor {
  const loss = op === "valueAndGrad" && Array.isArray(result) ? result[0] : result;
  if (!(loss instanceof Tensor)) {
    const found = Array.isArray(loss) ? "a list" : loss === null ? "null" : typeof loss;
    const expected = op === "grad"
      ? "a scalar array (valueAndGrad() also takes a list that begins with one)"
      : "a scalar array, or a list that begins with one";
    throw new ValueError(`${op}() expected the function to return ${expected}: found ${found}`);
  }
  if (loss.shape.length > 0) {
    throw new ShapeError(
      `${op}() expected the function to return a scalar array: found shape ${
        formatShape(loss.shape)
      }; take its sum or mean`,
    );
  }
  return loss;
}

/** Kinds of dtypes that gradients would be cut to. */
const WHOLE: ReadonlySet<string> = new Set(["int", "uint", "bool"]);

function gradients(
  op: string,
  fn: AnyFunction,
  argnums: Argnums,
  nums: readonly number[],
  args: readonly unknown[],
): { readonly value: unknown; readonly grads: unknown } {
  for (const n of nums) {
    if (n >= args.length) {
      throw new ValueError(
        `${op}() cannot take the gradient of argument ${n}: the function was called with ${args.length}`,
      );
    }
    checkArrays(op, `argument ${n}`, args[n]);
    const arrays = arraysOf(args[n]);
    if (arrays.length > 0 && arrays.every((array) => WHOLE.has(array.dtype.kind))) {
      const { dtype, shape } = arrays[0];
      throw new DtypeError(
        `${op}() cannot take the gradient of argument ${n}, which has no floating-point array: found ${dtype.name} ${
          formatShape(shape)
        }; use astype(mx.float32)`,
      );
    }
  }
  const { tape, inputs, result } = traced<unknown>(op, fn, args, nums);
  using _ = tape;
  const loss = lossOf(op, result);
  const found = scoped(() => {
    const one = wrap(fullNode(1, [], loss.dtype));
    return reverse(tape, [nodeOf(loss)], [one], inputs).map((grad, i) => grad ?? zerosOf(inputs[i]));
  });
  if (op === "valueAndGrad" && !isTracing() && !recording()) {
    const beside = arraysOf(result).map(nodeOf).filter((node) => sizeOf(node.shape) === 1);
    for (const grad of found) nodeOf(grad).beside = beside;
  }
  const grads = withArrays(nums.map((n) => args[n]), found) as unknown[];
  return { value: result, grads: typeof argnums === "number" ? grads[0] : grads };
}

/**
 * A function that returns the value of `fn` and its gradients. `fn` returns a scalar array, or a list that begins with one; the rest of
 * the list is passed on. Gradients are those of the arguments that `argnums` names, each of the form of its argument: an array, or lists
 * and plain objects of arrays. MLX's `value_and_grad`.
 *
 * Values and gradients are lazy. Evaluating gradients, or arrays made of them, also evaluates the value and other scalars beside it. A
 * value that is evaluated before them is computed once more with them.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const loss = (w: mx.Tensor, x: mx.Tensor) => mx.sum(mx.square(mx.multiply(w, x)));
 * const [value, grad] = mx.valueAndGrad(loss)(mx.array([1, 2]), mx.array([3, 4]));
 * value.item(); // 73
 * grad.tolist(); // [18, 64]
 * ```
 */
export function valueAndGrad<A extends unknown[], V, const N extends Argnums = 0>(
  fn: (...args: A) => V,
  argnums: N = 0 as N,
): <B extends A>(...args: B) => [V, GradientsOf<B, N>] {
  checkFunction("valueAndGrad", fn);
  const nums = checkArgnums("valueAndGrad", argnums);
  return (...args) => {
    const { value, grads } = gradients("valueAndGrad", fn as AnyFunction, argnums, nums, args);
    return [value as V, grads as never];
  };
}

/**
 * A function that gives the gradients of `fn`, as {@link valueAndGrad} does. Gradients of gradients are taken by `mx.grad(mx.grad(fn))`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const cube = (x: mx.Tensor) => mx.power(x, 3);
 * mx.grad(cube)(mx.array(2)).item(); // 12
 * mx.grad(mx.grad(cube))(mx.array(2)).item(); // 12
 * ```
 */
export function grad<A extends unknown[], const N extends Argnums = 0>(
  fn: (...args: A) => unknown,
  argnums: N = 0 as N,
): <B extends A>(...args: B) => GradientsOf<B, N> {
  checkFunction("grad", fn);
  const nums = checkArgnums("grad", argnums);
  return (...args) => gradients("grad", fn as AnyFunction, argnums, nums, args).grads as never;
}

/** The arrays that a function gave, as a list. */
function resultsOf(op: string, result: unknown): readonly AnyTensor[] {
  const list = Array.isArray(result) ? result : [result];
  for (const value of list) {
    if (!(value instanceof Tensor)) {
      throw new ValueError(`${op}() expected the function to return arrays: found ${typeof value}`);
    }
  }
  return list;
}

function checkList(op: string, what: string, list: readonly Tensor[]): void {
  const right = Array.isArray(list) && list.every((value) => value instanceof Tensor);
  if (!right) throw new ValueError(`${op}() expected ${what} to be a list of arrays`);
}

/** Throws unless arrays have the shapes of others, one by one. */
function checkAlike(op: string, what: string, given: readonly Tensor[], of: string, like: readonly Tensor[]): void {
  if (given.length !== like.length) {
    throw new ValueError(`${op}() expected as many ${what} as ${of}: found ${given.length} and ${like.length}`);
  }
  given.forEach((array, i) => {
    if (array.dtype.kind === "complex" && like[i].dtype.kind !== "complex") {
      throw new DtypeError(
        `${op}() expected real ${what} for real ${of}: found ${array.dtype.name} for ${like[i].dtype.name} at ${i}`,
      );
    }
    if (sameShape(array.shape, like[i].shape)) return;
    throw new ShapeError(
      `${op}() expected ${what} in the shapes of ${of}: found ${formatShape(array.shape)} for ${
        formatShape(like[i].shape)
      }`,
    );
  });
}

/**
 * The results of `fn` for `primals`, and the products of `cotangents`, one for each result, with the Jacobian: an array for each of the
 * primals. MLX's `vjp`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [[y], [dx]] = mx.vjp((x: mx.Tensor) => mx.sin(x), [mx.array([0, 1])], [mx.array([2, 2])]);
 * dx.tolist(); // [2, 1.080604612827301]
 * ```
 */
export function vjp(
  fn: AnyFunction,
  primals: readonly Tensor[],
  cotangents: readonly Tensor[],
): [outputs: Tensor[], vjps: Tensor[]] {
  checkFunction("vjp", fn);
  checkList("vjp", "primals", primals);
  checkList("vjp", "cotangents", cotangents);
  const { tape, inputs, result } = traced<unknown>("vjp", fn, primals, primals.map((_, i) => i));
  using _ = tape;
  const outputs = resultsOf("vjp", result);
  checkAlike("vjp", "cotangents", cotangents, "results", outputs);
  const found = scoped(() =>
    reverse(tape, outputs.map(nodeOf), cotangents, inputs).map((value, i) => value ?? zerosOf(inputs[i]))
  );
  return [[...outputs], found];
}

/**
 * The results of `fn` for `primals`, and the products of the Jacobian with `tangents`, one for each of the primals: an array for each
 * result. MLX's `jvp`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const [, [dy]] = mx.jvp((x: mx.Tensor) => mx.square(x), [mx.array([1, 3])], [mx.array([1, 0.5])]);
 * dy.tolist(); // [2, 3]
 * ```
 */
export function jvp(
  fn: AnyFunction,
  primals: readonly Tensor[],
  tangents: readonly Tensor[],
): [outputs: Tensor[], jvps: Tensor[]] {
  checkFunction("jvp", fn);
  checkList("jvp", "primals", primals);
  checkList("jvp", "tangents", tangents);
  checkAlike("jvp", "tangents", tangents, "primals", primals);
  const { tape, inputs, result } = traced<unknown>("jvp", fn, primals, primals.map((_, i) => i));
  using _ = tape;
  const outputs = resultsOf("jvp", result);
  const found = scoped(() =>
    forward(tape, inputs, tangents, outputs.map(nodeOf)).map((value, i) => {
      if (value) return value;
      const { shape, dtype } = outputs[i];
      return zerosOf({ shape, dtype: dtype.kind === "bool" && tangents.length > 0 ? tangents[0].dtype : dtype });
    })
  );
  return [[...outputs], found];
}
