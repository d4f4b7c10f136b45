/**
 * Loops of arrays: a step from state to state that is traced once and runs on the device as often as asked.
 *
 * @module
 */

import { FastPathFailure, MAX_STEPS, peekNode, StateLoop } from "../schedule/loop.ts";
import { rebuilder } from "./compile.ts";
import { scoped, tensorsOf } from "./scope.ts";
import { nodeOf, type Tensor, wrap } from "./tensor.ts";
import { int32 } from "../graph/dtype.ts";
import { makeNode, type Node } from "../graph/node.ts";

export { FastPathFailure, MAX_STEPS };

/** An int32 array for the state of a {@link Loop} whose values the host may {@link peek} at while later steps run. */
export function visible(values: Int32Array): Tensor {
  const bytes = new Uint8Array(values.slice().buffer);
  return wrap(makeNode("data", [], [values.length], int32, { bytes, visible: true }));
}

/** The values of a {@link visible} array now. What steps up to a finished ticket wrote is there. */
export function peek(array: Tensor): Int32Array {
  return new Int32Array(peekNode(nodeOf(array)).buffer);
}

/** State that lives on the device, and the step that advances it. */
export class Loop<S> implements Disposable {
  /** The arrays of the state, evaluated; each run changes their values in place. */
  readonly state: S;
  readonly #loop: StateLoop;

  /**
   * Traces `step`, which returns a new state of the same structure, shapes and dtypes. The state's arrays stay their owner's;
   * they must be contiguous, and from now on no other array may share their memory.
   */
  constructor(state: S, step: (state: S) => S) {
    this.state = state;
    const build = rebuilder(state);
    this.#loop = new StateLoop(tensorsOf(state).map(nodeOf), (parameters) => {
      let outputs: Node[] = [];
      scoped(() => {
        outputs = tensorsOf(step(build(parameters.map(wrap).values()) as S)).map(nodeOf);
        for (const node of outputs) node.retain();
      });
      for (const node of outputs) node.handOn();
      return outputs;
    });
  }

  /** Submits steps, at most {@link MAX_STEPS}, and returns at once: a ticket for {@link Loop.done}. */
  run(times: number = 1): number {
    return this.#loop.run(times);
  }

  /**
   * Resolves when the steps up to a ticket are done, all that were submitted unless given; the event loop stays alive. Rejects
   * with a {@link FastPathFailure} where steps did not end well: the state is void, and a new loop will not try that again.
   */
  done(ticket?: number): Promise<void> {
    return this.#loop.done(ticket);
  }

  /** Frees the step; the state stays. */
  [Symbol.dispose](): void {
    this.#loop[Symbol.dispose]();
  }
}
