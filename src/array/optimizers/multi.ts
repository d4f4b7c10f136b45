/**
 * Several optimizers, each for a part of the parameters.
 *
 * @module
 */

import { ValueError } from "../../graph/error.ts";
import type { AnyTensor, TensorLike } from "../tensor/tensor.ts";
import { type Named, treeFlatten, treeMerge, type TreeOf, treeUnflatten } from "../tensor/utils.ts";
import { type LeafState, Optimizer, type OptimizerState } from "./optimizer.ts";

/** Says by its path and its gradient whether a parameter belongs to an optimizer. */
export type Filter = (path: string, gradient: AnyTensor) => boolean;

/**
 * Hands each parameter to the first of several optimizers whose filter takes it; the last one, without a filter, gets the others.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { Adam, MultiOptimizer, Muon } = mx.optimizers;
 * const optimizer = new MultiOptimizer([new Muon(0.02), new Adam(1e-3)], [(_path, gradient) => gradient.ndim === 2]);
 * optimizer.init({ weight: mx.zeros([4, 4]), bias: mx.zeros([4]) });
 * Object.keys(optimizer.state.states[0]); // ["step", "learningRate", "weight"]
 * ```
 */
export class MultiOptimizer extends Optimizer {
  /** The optimizers. */
  readonly optimizers: readonly Optimizer[];
  /** Their filters; the last one takes all. */
  readonly filters: readonly Filter[];

  /** Takes the optimizers and a filter for each but the last; another number of filters is a ValueError. */
  constructor(optimizers: readonly Optimizer[], filters: readonly Filter[] = []) {
    super();
    if (filters.length !== optimizers.length - 1) {
      throw new ValueError(
        `MultiOptimizer() expected ${
          optimizers.length - 1
        } filters for ${optimizers.length} optimizers: found ${filters.length}`,
      );
    }
    this.optimizers = [...optimizers];
    this.filters = [...filters, () => true];
  }

  /** The part of a tree that belongs to each optimizer. */
  #splitTree(tree: unknown): unknown[] {
    if (this.optimizers.length === 1) return [tree];
    const parts: Named[][] = this.optimizers.map(() => []);
    for (const [path, leaf] of treeFlatten(tree)) {
      parts[this.filters.findIndex((filter) => filter(path, leaf as AnyTensor))].push([path, leaf]);
    }
    return parts.map((part) => part.length > 0 ? treeUnflatten(part) : {});
  }

  /** Makes the state of parameters that have none. */
  override init(parameters: unknown): void {
    const parts = this.#splitTree(parameters);
    this.optimizers.forEach((optimizer, i) => optimizer.init(parts[i]));
  }

  /** The parameters that have gradients, after one step of each optimizer. */
  override applyGradients<G>(gradients: G, parameters: unknown): TreeOf<G, AnyTensor> {
    const parts = this.#splitTree(gradients);
    return this.optimizers.reduce<unknown>(
      (tree, optimizer, i) => treeMerge(tree, optimizer.applyGradients(parts[i], parameters)),
      {},
    ) as TreeOf<G, AnyTensor>;
  }

  /** The states of the optimizers, as a list under `states`. */
  override get state(): OptimizerState {
    return { states: this.optimizers.map((optimizer) => optimizer.state) };
  }

  /** Sets the states of the optimizers; another number of them is a ValueError. */
  override set state(state: OptimizerState) {
    if (!Array.isArray(state?.states) || state.states.length !== this.optimizers.length) {
      throw new ValueError(`MultiOptimizer expected a state with ${this.optimizers.length} states`);
    }
    this.optimizers.forEach((optimizer, i) => optimizer.state = state.states[i]);
  }

  /** The learning rate of the first optimizer. */
  override get learningRate(): AnyTensor {
    return this.optimizers[0].learningRate;
  }

  /** Sets the learning rate of all optimizers. */
  override set learningRate(rate: TensorLike) {
    for (const optimizer of this.optimizers) optimizer.learningRate = rate;
  }

  /** Of no use here: each optimizer makes the state of its parameters. */
  initSingle(_parameter: AnyTensor, _state: LeafState): void {
    throw new ValueError("MultiOptimizer makes no state of its own: call init()");
  }

  /** Of no use here: each optimizer updates its parameters. */
  applySingle(_gradient: AnyTensor, _parameter: AnyTensor, _state: LeafState): AnyTensor {
    throw new ValueError("MultiOptimizer makes no steps of its own: call applyGradients()");
  }
}
