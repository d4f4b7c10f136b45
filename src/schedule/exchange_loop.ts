/**
 * Loops whose steps compute with other processes. A step is several Plans, and the host exchanges the arrays between them.
 *
 * All processes run the same steps in the same order, or they wait for each other in vain.
 *
 * @module
 */

import { attrsOf, makeNode, type Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { type Loop, type LoopStep, LoweredStep } from "./bound_loop.ts";
import { cutAtCollectives, type Exchange, type StepParts } from "./exchange_parts.ts";
import type { Better } from "./plan/context.ts";
import { inputsFirst } from "./plan/order.ts";
import { SharedMemory, type Storage } from "./plan/storage.ts";
import { backendOf, readNode, realize } from "./realize.ts";
import { type StateSpec, StepGraph } from "./step_graph.ts";

/**
 * Traces a step over state nodes and lowers it. `step` gets a parameter per state node, several for one that is in `stacks`: its parts along
 * the first axis. It returns the new values of all parameters in the same order, with the same shapes and dtypes.
 */
export function lowerStep(
  state: readonly Node[],
  step: (state: readonly (readonly Node[])[]) => readonly Node[],
  stacks: readonly boolean[] = [],
  scratch: SharedMemory = new SharedMemory(),
): LoopStep {
  using graph = new StepGraph(
    state,
    stacks,
    (parameters, parts) => step(state.map((_, node) => parameters.filter((_, i) => parts[i].node === node))),
    // The arrays that the step captures say where it runs; state that was not evaluated follows them.
    (outputs) => backendOf([...outputs, ...state]),
  );
  const collectives = new Set(
    inputsFirst(graph.outputs, (node) => node.inputs).filter(({ op }) => op === "collective"),
  );
  return collectives.size === 0 ? new LoweredStep(graph, scratch) : new ExchangeStep(graph, collectives, scratch);
}

/** A step in parts. */
class ExchangeStep implements LoopStep {
  readonly #parts: readonly { readonly step: LoweredStep; readonly buffers: readonly number[] }[];
  readonly #exchanges: readonly (readonly Exchange[])[];
  readonly #buffers: readonly StateSpec[];
  readonly #backend: StepGraph["backend"];
  readonly #states: number;

  constructor(graph: StepGraph, collectives: ReadonlySet<Node>, scratch: SharedMemory) {
    const { parts, buffers }: StepParts = cutAtCollectives(graph, collectives);
    const made: LoweredStep[] = [];
    try {
      for (const { graph } of parts) made.push(new LoweredStep(graph, scratch));
    } catch (error) {
      for (const step of made) step[Symbol.dispose]();
      throw error;
    } finally {
      for (const { graph } of parts) graph[Symbol.dispose]();
    }
    this.#parts = parts.map(({ buffers }, i) => ({ step: made[i], buffers }));
    this.#exchanges = parts.map(({ exchanges }) => exchanges);
    this.#buffers = buffers;
    this.#backend = graph.backend;
    this.#states = graph.state.length;
  }

  fits(state: readonly Node[]): boolean {
    const { step, buffers } = this.#parts[0];
    return state.length === this.#states && step.fits([...state, ...buffers.map((buffer) => this.#buffers[buffer])]);
  }

  get planBytes(): number {
    return this.#parts.reduce((sum, { step }) => sum + step.planBytes, 0);
  }

  bind(state: readonly Node[]): Loop {
    const buffers = this.#buffers.map(({ shape, dtype }) => makeNode("full", [], shape, dtype, { value: 0 }));
    for (const node of buffers) node.retain();
    const loops: Loop[] = [];
    try {
      realize(buffers, this.#backend);
      for (const { step, buffers: own } of this.#parts) {
        loops.push(step.bind([...state, ...own.map((buffer) => buffers[buffer])]));
      }
    } catch (error) {
      for (const loop of loops) loop[Symbol.dispose]();
      for (const node of buffers) node.release();
      throw error;
    }
    return new ExchangeLoop(loops, this.#exchanges, buffers);
  }

  get ready(): boolean {
    return this.#parts.every(({ step }) => step.ready);
  }

  async prepare(): Promise<void> {
    for (const { step } of this.#parts) await step.prepare();
  }

  /** There is no other form of such a step. */
  probe(): Promise<Better> {
    return Promise.resolve(undefined);
  }

  [Symbol.dispose](): void {
    for (const { step } of this.#parts) step[Symbol.dispose]();
  }
}

/** A step in parts that was bound to a state. */
class ExchangeLoop implements Loop {
  readonly #loops: readonly Loop[];
  readonly #exchanges: readonly (readonly Exchange[])[];
  readonly #buffers: readonly Node[];

  /** Takes over the references of `buffers`, and the loops. */
  constructor(loops: readonly Loop[], exchanges: readonly (readonly Exchange[])[], buffers: readonly Node[]) {
    this.#loops = loops;
    this.#exchanges = exchanges;
    this.#buffers = buffers;
  }

  /** A step is submitted whole. */
  readonly parts = 1;

  /** On return, all but the last parts of the last step are done. */
  run(times: number = 1): number {
    let ticket = 0;
    for (let i = 0; i < times; i++) {
      this.#loops.forEach((loop, part) => {
        ticket = loop.run(1);
        for (const exchange of this.#exchanges[part]) this.#exchange(exchange);
      });
    }
    return ticket;
  }

  #exchange({ node, input, result }: Exchange): void {
    const { kind, processes, peer } = attrsOf(node, "collective");
    const bytes = readNode(this.#buffers[input]); // waits for the part that made it
    const made = processes.exchange(kind, node.dtype, bytes, sizeOf(node.shape) * node.dtype.bytes, peer);
    const from = kind === "send" ? bytes : made;
    if (result < 0 || from.length === 0) return;
    const { storage, offset } = this.#buffers[result].stored!;
    const { backend, buffer } = storage as Storage;
    backend.write(buffer, offset * node.dtype.bytes, from);
    (storage as Storage).changed();
  }

  runBefore(next: Loop): readonly [number, number] {
    return [this.run(), next.run()];
  }

  runPart(): number {
    return this.run();
  }

  async done(ticket?: number, soon?: boolean): Promise<void> {
    await this.#loops.at(-1)!.done(ticket, soon);
  }

  drop(): boolean {
    return false;
  }

  progress(): undefined {
    return undefined;
  }

  [Symbol.dispose](): void {
    for (const loop of this.#loops) loop[Symbol.dispose]();
    for (const node of this.#buffers) node.release();
  }
}
