/**
 * Functions with derivatives of their own, functions that are recomputed for derivatives, and arrays through which no derivative flows.
 *
 * @module
 */

import { ShapeError, ValueError } from "../../graph/error.ts";
import { makeNode } from "../../graph/node.ts";
import { formatShape, normalizeAxis, sameShape } from "../../graph/shape.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import { drawingAgain, stateNow } from "../random/random_state.ts";
import { type AnyTensor, make, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { arraysOf, withArrays } from "../tensor/tree.ts";
import type { Same } from "../tensor/results.ts";
import { batch } from "./batch.ts";
import { forward } from "./forward.ts";
import { type AnyFunction, checkFunction, checkSynchronous } from "./grad.ts";
import { reverse } from "./reverse.ts";
import { batchOf, zerosOf } from "./rule.ts";
import { aliasOf, type CustomRules, noteCustom, recording, Tape, unrecorded } from "../tensor/tape.ts";

/**
 * The array, through which no derivative flows: it counts as a constant.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * mx.grad((x: mx.Tensor) => mx.multiply(x, mx.stopGradient(x)))(mx.array(3)).item(); // 3
 * ```
 */
export function stopGradient<A extends TensorLike>(a: A): Same<A> {
  const node = toNode("stopGradient", a);
  return make("stopGradient", [node], node.shape, node.dtype, {});
}

/** Runs a function again, on tapes of its own: the rules of a function that brings none. */
function rulesOfFunction(run: (arrays: readonly Tensor[]) => readonly Tensor[]): CustomRules {
  const onTape = <T>(
    arrays: readonly Tensor[],
    use: (tape: Tape, inputs: ReturnType<typeof aliasOf>[], outputs: Tensor[]) => T,
  ): T => {
    const inputs = arrays.map((array) => aliasOf(nodeOf(array)));
    using tape = new Tape(inputs);
    const outputs = [...tape.record(() => run(inputs.map((node) => wrap(node))))];
    return use(tape, inputs, outputs);
  };
  return {
    vjp: (inputs, cotangents) =>
      onTape(inputs, (tape, own, outputs) => reverse(tape, outputs.map((t) => nodeOf(t)), cotangents, own)),
    jvp: (inputs, tangents) =>
      onTape(inputs, (tape, own, outputs) => forward(tape, own, tangents, outputs.map((t) => nodeOf(t)))),
    vmap(inputs, batched, size) {
      const own = inputs.map((array, i) => {
        const node = nodeOf(array);
        return batched[i] ? makeNode("parameter", [], node.shape.slice(1), node.dtype, { index: 0 }) : node;
      });
      using tape = new Tape(own.filter((_, i) => batched[i]), true);
      const outputs = tape.record(() => run(own.map((node) => wrap(node)))).map((t) => nodeOf(t));
      const of = new Map(own.flatMap((node, i) => batched[i] ? [[node, nodeOf(inputs[i])] as const] : []));
      return batch(tape, of, outputs, size).map((node, i) => {
        if (node) return wrap(node);
        return wrap(batchOf(outputs[i], false, size));
      });
    },
  };
}

/** Calls a function whose arrays go to tapes as one step with rules of its own. */
function asOneStep(
  op: string,
  fn: AnyFunction,
  args: readonly unknown[],
  rulesFor: (run: (arrays: readonly Tensor[]) => readonly Tensor[], form: () => unknown) => CustomRules,
): unknown {
  if (!recording()) return checkSynchronous(op, fn(...args));
  let result: unknown;
  const run = (arrays: readonly Tensor[]): readonly Tensor[] => {
    result = checkSynchronous(op, fn(...withArrays(args, arrays) as unknown[]));
    return arraysOf(result);
  };
  const inputs = arraysOf(args);
  const form = (): unknown => result;
  const then = stateNow();
  const again = (arrays: readonly Tensor[]): readonly Tensor[] => drawingAgain(then, () => run(arrays));
  const outputs = unrecorded(() => run(inputs.map((array) => wrap(nodeOf(array)))));
  if (outputs.length === 0) return result;
  // Fresh nodes: a function may return one of its arguments.
  const shown = unrecorded(() => outputs.map((array) => wrap(aliasOf(nodeOf(array))))) as AnyTensor[];
  const given = result;
  noteCustom(inputs.map((t) => nodeOf(t)), shown.map((t) => nodeOf(t)), rulesFor(again, form));
  return withArrays(given, shown);
}

/**
 * A function whose intermediate results are not kept for its derivative but computed again. So memory grows with the steps of a model and
 * not with their contents. Random numbers are the same again. MLX's `checkpoint`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const block = mx.checkpoint((x: mx.Tensor) => mx.sin(mx.exp(x)));
 * mx.grad((x: mx.Tensor) => mx.sum(block(x)))(mx.array([0])).tolist(); // [0.5403022766113281]
 * ```
 */
export function checkpoint<A extends unknown[], R>(fn: (...args: A) => R): (...args: A) => R {
  checkFunction("checkpoint", fn);
  return (...args) => asOneStep("checkpoint", fn as AnyFunction, args, (run) => rulesOfFunction(run)) as R;
}

/** Rules that a custom function may bring; trees are in the form of its arguments and of its results. */
export interface CustomFunctionRules {
  /** Cotangents of the arguments, in their form, from the arguments, the cotangents of the results and the results. */
  readonly vjp?: (primals: unknown, cotangents: unknown, outputs: unknown) => unknown;
  /** Tangents of the results from the arguments and their tangents. */
  readonly jvp?: (primals: unknown, tangents: unknown) => unknown;
  /** Results and their axes from arguments with a batch and the axes that it lies on, null if there is none. */
  readonly vmap?: (inputs: unknown, axes: unknown) => unknown;
}

/** A function with derivatives of its own; see {@link customFunction}. */
export interface CustomFunction<A extends unknown[], R> {
  (...args: A): R;
  /** Sets the rule of reverse mode: `(primals, cotangents, outputs) => cotangents of the primals`. */
  // deno-lint-ignore no-explicit-any -- trees in the form of arguments and results
  vjp(rule: (primals: any, cotangents: any, outputs: any) => unknown): CustomFunction<A, R>;
  /** Sets the rule of forward mode: `(primals, tangents) => tangents of the results`. */
  // deno-lint-ignore no-explicit-any -- trees in the form of arguments and results
  jvp(rule: (primals: any, tangents: any) => unknown): CustomFunction<A, R>;
  /** Sets the rule of batches: `(inputs, axes) => [results, axes of the results]`. */
  // deno-lint-ignore no-explicit-any -- trees in the form of arguments and results
  vmap(rule: (inputs: any, axes: any) => unknown): CustomFunction<A, R>;
}

/** One argument as itself, several as a list: what rules get. */
function argumentsOrOne(args: readonly unknown[]): unknown {
  return args.length === 1 ? args[0] : args;
}

/**
 * A function whose derivative rules can be set, in place of those that follow from its ops. Rules get one argument as itself and
 * several as a list. MLX's `custom_function`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const clipped = mx.customFunction((x: mx.Tensor) => mx.clip(x, -1, 1))
 *   .vjp((_x: mx.Tensor, cotangent: mx.Tensor) => cotangent); // as if it had not been clipped
 * mx.grad((x: mx.Tensor) => mx.sum(clipped(x)))(mx.array([-3, 0.5])).tolist(); // [1, 1]
 * ```
 */
export function customFunction<A extends unknown[], R>(fn: (...args: A) => R): CustomFunction<A, R> {
  checkFunction("customFunction", fn);
  const rules: { -readonly [K in keyof CustomFunctionRules]: CustomFunctionRules[K] } = {};
  const call = (...args: A): R =>
    asOneStep("customFunction", fn as AnyFunction, args, (run, result) => {
      const own = rulesOfFunction(run);
      const asArguments = (arrays: readonly unknown[]): unknown =>
        argumentsOrOne(withArrays(args, arrays) as unknown[]);
      return {
        vjp(inputs, cotangents, outputs) {
          if (!rules.vjp) return own.vjp(inputs, cotangents, outputs);
          const tree = result();
          const back = rules.vjp(asArguments(inputs), withArrays(tree, cotangents), withArrays(tree, outputs));
          return checkedParts("vjp", back, "arguments", inputs);
        },
        jvp(inputs, tangents) {
          if (!rules.jvp) return own.jvp(inputs, tangents);
          const whole = tangents.map((tangent, i) => tangent ?? zerosOf(nodeOf(inputs[i])));
          const forth = rules.jvp(asArguments(inputs), asArguments(whole));
          return checkedParts("jvp", forth, "results", arraysOf(result()));
        },
        vmap(inputs, batched, size) {
          if (!rules.vmap) return own.vmap(inputs, batched, size);
          const axes = asArguments(batched.map((has) => has ? 0 : null));
          const made = rules.vmap(asArguments(inputs), axes) as [unknown, unknown];
          if (!Array.isArray(made) || made.length !== 2) {
            throw new ValueError("customFunction() expected its vmap rule to return [results, axes]");
          }
          return batchFirst(made[0], made[1], size);
        },
      };
    }) as R;
  const made: CustomFunction<A, R> = Object.assign(call, {
    vjp(rule: NonNullable<CustomFunctionRules["vjp"]>): CustomFunction<A, R> {
      checkFunction("customFunction", rule);
      rules.vjp = rule;
      return made;
    },
    jvp(rule: NonNullable<CustomFunctionRules["jvp"]>): CustomFunction<A, R> {
      checkFunction("customFunction", rule);
      rules.jvp = rule;
      return made;
    },
    vmap(rule: NonNullable<CustomFunctionRules["vmap"]>): CustomFunction<A, R> {
      checkFunction("customFunction", rule);
      rules.vmap = rule;
      return made;
    },
  });
  return made;
}

/** The arrays that a rule gave, one for each of the arguments or results and of its shape. */
function checkedParts(rule: string, given: unknown, of: string, like: readonly Tensor[]): readonly Tensor[] {
  const found = arraysOf(given);
  if (found.length !== like.length) {
    throw new ValueError(
      `customFunction() expected its ${rule} rule to return ${like.length} arrays, one for each of the ${of}: found ${found.length}`,
    );
  }
  found.forEach(({ shape }, i) => {
    if (sameShape(shape, like[i].shape)) return;
    throw new ShapeError(
      `customFunction() expected its ${rule} rule to return arrays in the shapes of the ${of}: found ${
        formatShape(shape)
      } for ${formatShape(like[i].shape)}`,
    );
  });
  return found;
}

/** Results of a vmap rule with their batch as first axis. */
function batchFirst(results: unknown, axes: unknown, size: number): readonly Tensor[] {
  const list = arraysOf(results);
  const places = typeof axes === "number" || axes === null
    ? list.map(() => axes)
    : (axes as readonly (number | null)[]);
  return list.map((array, i) => {
    const node = nodeOf(array);
    const place = places[i];
    if (place === null || place === undefined) return wrap(batchOf(node, false, size));
    const at = Number.isInteger(place) ? normalizeAxis(place, node.shape.length) : undefined;
    if (at === undefined || node.shape[at] !== size) {
      throw new ShapeError(
        `customFunction() expected its vmap rule to return the axis of a batch of ${size}: found axis ${place} of shape ${
          formatShape(node.shape)
        }`,
      );
    }
    const order = [at, ...node.shape.map((_, axis) => axis).filter((axis) => axis !== at)];
    return wrap(makeNode("transpose", [node], order.map((axis) => node.shape[axis]), node.dtype, { axes: order }));
  });
}
