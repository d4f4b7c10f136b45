/**
 * Loops of arrays: a step from state to state that is traced once and runs on the device as often as asked.
 *
 * @module
 */

import { StateLoop } from "../schedule/loop.ts";
import { rebuilder } from "./compile.ts";
import { scoped, tensorsOf } from "./scope.ts";
import { nodeOf, wrap } from "./tensor.ts";
import type { Node } from "../graph/node.ts";

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

  /** Submits one step and returns at once. */
  run(): void {
    this.#loop.run();
  }

  /** Resolves when all submitted steps are done; the event loop stays alive. */
  done(): Promise<void> {
    return this.#loop.done();
  }

  /** Frees the step; the state stays. */
  [Symbol.dispose](): void {
    this.#loop[Symbol.dispose]();
  }
}
