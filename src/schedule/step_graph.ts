/**
 * The graph of a step over a state: what loops lower, as one Plan or as several with exchanges between them.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { formatShape, sameShape } from "../graph/shape.ts";
import type { ParameterSource } from "./execute.ts";

/** An array of a state as far as a trace knows it. */
export type StateSpec = Pick<Node, "shape" | "dtype">;

/** Parameters and the new values of all of them. Its nodes are held until it is disposed. */
export class StepGraph implements Disposable {
  readonly backend: Backend;
  /** The arrays of the state. */
  readonly state: readonly StateSpec[];
  /** Whether an array is given in its parts along the first axis. */
  readonly stacks: readonly boolean[];
  /** What each parameter is of. */
  readonly parts: readonly ParameterSource[];
  readonly parameters: readonly Node[];
  /** The new values, in the order of the parameters. */
  readonly outputs: readonly Node[];

  /** `build` gets the parameters, several for a state that is given in parts. It returns their new values, and `backendOf` says where they are computed. */
  constructor(
    state: readonly StateSpec[],
    stacks: readonly boolean[],
    build: (parameters: readonly Node[], parts: readonly ParameterSource[]) => readonly Node[],
    backendOf: (outputs: readonly Node[]) => Backend,
  ) {
    this.state = state.map(({ shape, dtype }) => ({ shape, dtype }));
    this.stacks = state.map((_, node) => stacks[node] ?? false);
    this.parts = state.flatMap(({ shape }, node) =>
      Array.from({ length: stacks[node] ? shape[0] : 1 }, (_, part) => ({ node, part }))
    );
    this.parameters = this.parts.map(({ node }, index) => {
      const { shape, dtype } = state[node];
      return makeNode("parameter", [], stacks[node] ? shape.slice(1) : shape, dtype, { index });
    });
    for (const node of this.parameters) node.retain();
    this.outputs = build(this.parameters, this.parts);
    for (const node of this.outputs) node.retain();
    try {
      this.#check();
      this.backend = backendOf(this.outputs);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  #check(): void {
    const { parameters, outputs } = this;
    if (outputs.length !== parameters.length) {
      throw new ValueError(`a loop's state keeps its ${parameters.length} arrays: the step returned ${outputs.length}`);
    }
    outputs.forEach((node, i) => {
      if (sameShape(node.shape, parameters[i].shape) && node.dtype === parameters[i].dtype) return;
      throw new ValueError(
        `a loop's state keeps shape and dtype: ${describeArray(parameters[i])} became ${describeArray(node)}`,
      );
    });
  }

  /** Lets the nodes go. */
  [Symbol.dispose](): void {
    for (const node of [...this.outputs, ...this.parameters]) node.release();
  }
}

/** Whether arrays are those of a state, by shapes and dtypes; the first that is not, or -1. */
export function misfitOf(state: readonly StateSpec[], found: readonly StateSpec[]): number {
  return state.findIndex(({ shape, dtype }, i) => found[i].dtype !== dtype || !sameShape(found[i].shape, shape));
}

/** An array as messages name it. */
export function describeArray({ shape, dtype }: StateSpec): string {
  return `${formatShape(shape)} ${dtype.name}`;
}
