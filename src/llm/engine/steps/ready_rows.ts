/**
 * Which rows a decode step gets: those it needs, or larger ones that ran before. A loop over rows of another number needs a trace and pipelines
 * of its own. On a fresh machine those take longer than hundreds of steps, and all requests would wait. So they are made beside other steps.
 *
 * @module
 */

import type { TracedStep, TracedSteps } from "../../../array/compile/loop.ts";
import { PipelinesAhead } from "../../decode/pipelines_ahead.ts";
import { covers } from "./choice.ts";
import type { DeviceRows, RowSizes } from "./rows.ts";

/** What rows are made for, but for what all of a runner have in common. */
export type NeededRows = Omit<RowSizes, "dtype" | "isCopied" | "tables">;

/** Whether rows of some sizes can run a step that needs others. */
function canRun({ rows, columns, kind, masked }: NeededRows, needed: NeededRows): boolean {
  const cheap = kind.penalties === needed.kind.penalties && (kind.bias > 0) === (needed.kind.bias > 0) &&
    (kind.logprobs >= 0) === (needed.kind.logprobs >= 0);
  return covers(kind, needed.kind) && cheap && masked === needed.masked && columns >= needed.columns &&
    rows >= needed.rows;
}

/** Whether they do so without much that is not needed; none if each row costs. */
export function serves(sizes: NeededRows, needed: NeededRows, tiled: boolean): boolean {
  return canRun(sizes, needed) && sizes.rows <= (tiled ? 2 : 1) * needed.rows;
}

/** A step over a state, by the name of its trace. */
export interface NamedStep<S> {
  readonly name: string;
  readonly state: S;
  readonly step: (state: S) => S;
}

/** What tells about the device, has the traces of a model, and makes rows. */
export interface RowMaker {
  readonly model: { readonly device: { readonly tiled: boolean }; readonly traces: TracedSteps };
  newRows(sizes: NeededRows, how: { readonly begin: boolean }): DeviceRows;
}

/** Sizes of rows, and which of them wait for nothing. */
export class ReadyRows<S> {
  readonly #context: RowMaker;
  readonly #stepOver: (rows: DeviceRows) => NamedStep<S> | undefined;
  readonly #ahead: PipelinesAhead;
  /** Sizes that ran, by their text. */
  readonly #ran = new Map<string, NeededRows>();

  /** `stepOver` gives the step over rows; undefined where it is not traced once for all. */
  constructor(context: RowMaker, stepOver: (rows: DeviceRows) => NamedStep<S> | undefined) {
    this.#context = context;
    this.#stepOver = stepOver;
    this.#ahead = new PipelinesAhead(context.model.traces);
  }

  /** Whether rows of some sizes serve a step that needs others: larger ones do until those are ready. */
  serves(sizes: NeededRows, needed: NeededRows): boolean {
    const { tiled } = this.#context.model.device;
    return serves(sizes, needed, tiled) || (tiled && canRun(sizes, needed) && !this.#isReady(needed));
  }

  /** The sizes of new rows for a step. */
  sizesFor(needed: NeededRows): NeededRows {
    const sizes = this.#readySizes(needed);
    this.#ran.set(JSON.stringify(sizes), sizes);
    return sizes;
  }

  #readySizes(needed: NeededRows): NeededRows {
    if (!this.#context.model.device.tiled || this.#ran.size === 0 || this.#isReady(needed)) return needed;
    const larger = [...this.#ran.values()].filter((sizes) => canRun(sizes, needed) && this.#isKept(sizes));
    return larger.sort((a, b) => a.rows - b.rows || a.columns - b.columns)[0] ?? needed;
  }

  /** Whether a step over rows of some sizes needs no pipelines that are not made. If it does, they are made from now on, one step's after another's. */
  #isReady(sizes: NeededRows): boolean {
    if (this.#ahead.busy) return false;
    const { traces } = this.#context.model;
    return this.#ahead.has(this.#over(sizes, ({ name, state, step }) => traces.trace(name, state, step)));
  }

  /** Whether the trace of a step over such rows is kept, and its pipelines are made. */
  #isKept(sizes: NeededRows): boolean {
    return this.#over(sizes, ({ name, state }) => this.#context.model.traces.known(name, state))?.ready === true;
  }

  /** What `take` gives for the step over rows of some sizes, which have no memory. */
  #over(sizes: NeededRows, take: (step: NamedStep<S>) => TracedStep<S> | undefined): TracedStep<S> | undefined {
    using rows = this.#context.newRows(sizes, { begin: false });
    const step = this.#stepOver(rows);
    return step && take(step);
  }
}
