/**
 * Pipelines of steps, made beside other steps before they are needed: those that verify drafts, read prompts, or decode other numbers of rows.
 *
 * @module
 */

import { TracedStep, type TracedSteps } from "../../array/compile/loop.ts";

/** Traces whose pipelines were made ahead. */
const made = new WeakSet<TracedStep<unknown>>();

/** Has pipelines made of a model's traces. */
export class PipelinesAhead {
  readonly #traces: TracedSteps;
  #making = 0;

  /** Of the traces of a model. */
  constructor(traces: TracedSteps) {
    this.#traces = traces;
  }

  /** Whether pipelines are being made. */
  get busy(): boolean {
    return this.#making > 0;
  }

  /** Whether a step needs no pipelines that are not made. If it does, they are made from now on. A step that is no trace waits for its own. */
  has(step: unknown): boolean {
    if (!(step instanceof TracedStep) || step.ready || made.has(step)) return true;
    this.#making++;
    // A failure happens again, and is reported, when the step is needed.
    this.#traces.prepare(step).catch(() => {}).finally(() => {
      made.add(step);
      this.#making--;
    });
    return false;
  }
}
