/**
 * The base of all optimizers: state in a tree beside that of the parameters, the learning rate and its schedule, and the step.
 *
 * An optimizer of its own kind extends {@link Optimizer} by `initSingle` and `applySingle`, for one parameter.
 *
 * @module
 */

import { uint64 } from "../../graph/dtype.ts";
import { quoted, ShapeError, ValueError } from "../../graph/error.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import { add } from "../ops/binary.ts";
import { array } from "../ops/creation.ts";
import { type AnyTensor, Tensor, type TensorLike } from "../tensor/tensor.ts";
import { arraysOf, isBranch } from "../tensor/tree.ts";
import { treeMapWithPath, type TreeOf } from "../tensor/utils.ts";
import { afterwards, keep, letGo, making } from "./lifetimes.ts";
import type { Schedule } from "./schedules.ts";

/** A learning rate, or what gives it at each step. */
export type LearningRate = number | Tensor | Schedule;

/** State of an optimizer: `step`, `learningRate`, and a tree like that of the parameters with a {@link LeafState} for each of them. */
// deno-lint-ignore no-explicit-any -- a tree of any form
export type OptimizerState = Record<string, any>;

/** State of one parameter: arrays by name. */
export type LeafState = Record<string, AnyTensor>;

/** The model that an optimizer updates: an `mx.nn` module, or anything that gives its parameters as a tree and takes others. */
export interface Learner {
  /** The parameters: lists and plain objects of arrays. */
  parameters(): unknown;
  /** Takes new arrays for those of its parameters that the tree has. */
  update(parameters: never): unknown;
}

type Branch = Record<string, unknown>;

/** The entries of the state's root besides those of parameters. */
const HEAD: ReadonlySet<string> = new Set(["step", "learningRate"]);

/** Whether a parameter has no state yet. */
function isBlank(state: object): boolean {
  return Object.keys(state).every((name) => HEAD.has(name));
}

/** A part of a tree of state, made if it is missing. */
function stateAt(op: string, state: Branch, key: string, path: string, make: () => object): Branch {
  if (!Object.hasOwn(state, key)) {
    Object.defineProperty(state, key, { value: make(), writable: true, enumerable: true, configurable: true });
  }
  const part = state[key];
  if (typeof part === "object" && part !== null && !(part instanceof Tensor)) return part as Branch;
  throw new ValueError(
    `${op} expected state of the parameter ${quoted(path)}: found ${part instanceof Tensor ? "an array" : typeof part}`,
  );
}

/** A schedule: the value of an optimizer's setting at a step. */
type Schedules = Readonly<Record<string, Schedule>>;

/** Base of all optimizers. */
export abstract class Optimizer implements Disposable {
  #state: OptimizerState = {};
  readonly #schedules: Record<string, Schedule>;

  /** Begins at step 0. `schedules` gives values of the state, by name, at each step. */
  constructor(schedules: Schedules = {}) {
    this.#schedules = { ...schedules };
    making(() => this.#state, () => this.#state.step = array(0, uint64));
  }

  /** The state, a plain tree of arrays. It may be saved, replaced, and named to `mx.compile` as what a function reads and writes. */
  get state(): OptimizerState {
    return this.#state;
  }

  /** Goes on from another state; missing parts are made at the next update. */
  set state(state: OptimizerState) {
    this.#state = state;
  }

  /** How many updates there were, a uint64 array. */
  get step(): AnyTensor {
    return this.#head("step");
  }

  /** The learning rate, an array; one of the schedule's if there is one. */
  get learningRate(): AnyTensor {
    return this.#head("learningRate");
  }

  /** Sets the learning rate: a number or an array. A schedule sets it anew at the next update. */
  set learningRate(rate: TensorLike) {
    this.#set("learningRate", () => array(rate));
  }

  #head(name: string): AnyTensor {
    const value = this.#state[name];
    if (value instanceof Tensor) return value;
    throw new ValueError(`${this.#name} has no ${name} in its state`);
  }

  #set(name: string, value: () => AnyTensor): void {
    const old = this.#state[name];
    making(() => this.#state[name], () => void (this.#state[name] = value()));
    letGo([old]);
  }

  get #name(): string {
    return this.constructor.name;
  }

  /** Sets a value of the state, or the schedule that does it at each step. */
  protected maybeSchedule(name: string, value: TensorLike | Schedule): void {
    if (typeof value !== "function") return this.#set(name, () => array(value));
    this.#schedules[name] = value;
    this.#set(name, () => array(value(this.step)));
  }

  /** Makes the state of one parameter: sets arrays in `state`. */
  abstract initSingle(parameter: AnyTensor, state: LeafState): void;

  /** The new value of one parameter; sets the new arrays in `state`. */
  abstract applySingle(gradient: AnyTensor, parameter: AnyTensor, state: LeafState): AnyTensor;

  /** Makes the state of parameters that have none: the parts that it filled. */
  #grow(parameters: unknown): Branch[] {
    const filled: Branch[] = [];
    const grow = (tree: unknown, state: Branch, path: string): void => {
      if (tree instanceof Tensor) {
        if (!isBlank(state)) return;
        filled.push(state);
        this.initSingle(tree, state as LeafState);
      } else if (isBranch(tree)) {
        for (const [key, part] of Object.entries(tree)) {
          const name = path === "" ? key : `${path}.${key}`;
          grow(part, stateAt(this.#name, state, key, name, () => Array.isArray(part) ? [] : {}), name);
        }
      } else {
        throw new ValueError(
          `${this.#name} expected lists and plain objects of arrays: found ${quoted(tree)} at ${quoted(path)}`,
        );
      }
    };
    making(() => this.#state, () => grow(parameters, this.#state, ""));
    return filled;
  }

  /**
   * Makes the state of parameters that have none. An update does it too; before the first, the state can be looked at or named to
   * `mx.compile`.
   */
  init(parameters: unknown): void {
    this.#grow(parameters);
  }

  /**
   * The parameters that have gradients, after one step; a tree of the form of the gradients. `parameters` may have more.
   *
   * Parameters and state that an optimizer made end here, where a new array takes their place; arrays that the program made stay. To keep a
   * parameter, make an array of it before: `mx.array(parameter)` shares its values. Gradients without a parameter, or of another
   * shape, are a ValueError or a ShapeError, and leave the state as it was.
   *
   * @example
   * ```ts
   * import * as mx from "@vkmx/vkmx";
   *
   * const optimizer = new mx.optimizers.SGD({ learningRate: 0.5 });
   * let parameters = { w: mx.array([1, 2]) };
   * parameters = optimizer.applyGradients({ w: mx.array([1, -1]) }, parameters);
   * parameters.w.tolist(); // [0.5, 2.5]
   * ```
   */
  applyGradients<G>(gradients: G, parameters: unknown): TreeOf<G, AnyTensor> {
    // The old content of each part of the state, to restore or to free.
    const before: [now: Branch, then: Branch][] = [];
    const recordState = (state: Branch): Branch => {
      before.push([state, { ...state }]);
      return state;
    };
    const replaced: Tensor[] = [], filled: Branch[] = [];
    try {
      const updated = making(() => this.#state, () => {
        filled.push(...this.#grow(gradients));
        const root = recordState(this.#state);
        for (const [name, schedule] of Object.entries(this.#schedules)) root[name] = array(schedule(this.step));
        root.step = add(this.step, 1);
        return treeMapWithPath(
          (path, gradient: AnyTensor, parameter, state): AnyTensor => {
            checkPair(this.#name, path, gradient, parameter);
            const updated = this.applySingle(
              gradient,
              parameter,
              (state === root ? root : recordState(state)) as LeafState,
            );
            if (updated !== parameter) replaced.push(parameter);
            return updated;
          },
          gradients,
          [parameters, this.#state],
        );
      });
      letGo(before.flatMap(([now, then]) => Object.keys(then).filter((k) => now[k] !== then[k]).map((k) => then[k])));
      // One that also stands where no gradient is, or twice, stays until its last place has another.
      const left = new Map<Tensor, number>();
      for (const one of arraysOf(parameters)) left.set(one, (left.get(one) ?? 0) + 1);
      for (const one of replaced) left.set(one, left.get(one)! - 1);
      letGo(replaced.filter((one) => left.get(one) === 0));
      return updated as TreeOf<G, AnyTensor>;
    } catch (error) {
      for (const [now, then] of before) {
        for (const name of Object.keys(now)) delete now[name];
        Object.assign(now, then);
      }
      for (const state of filled) {
        for (const name of Object.keys(state)) if (!HEAD.has(name)) delete state[name];
      }
      throw error;
    }
  }

  /**
   * One step: the model gets new parameters for those that have gradients. They outlive the scopes around; see
   * {@link Optimizer.applyGradients} for what ends.
   */
  update(model: Learner, gradients: unknown): void {
    afterwards(() => {
      const updated = this.applyGradients(gradients, model.parameters());
      model.update(updated as never);
      keep(updated);
    });
  }

  /** Lets go of the state that the optimizer made. */
  [Symbol.dispose](): void {
    letGo(arraysOf(this.state));
  }
}

function checkPair(op: string, path: string, gradient: unknown, parameter: unknown): void {
  for (const [what, value] of [["gradient", gradient], ["parameter", parameter]] as const) {
    if (value instanceof Tensor) continue;
    const found = value === null || value === undefined ? "nothing" : isBranch(value) ? "a tree" : quoted(value);
    throw new ValueError(`${op} expected the ${what} ${quoted(path)} to be an array: found ${found}`);
  }
  const [g, p] = [(gradient as Tensor).shape, (parameter as Tensor).shape];
  if (sameShape(g, p)) return;
  throw new ShapeError(
    `${op} expected the gradient ${quoted(path)} in the shape of its parameter, ${formatShape(p)}: found ${
      formatShape(g)
    }`,
  );
}
