/**
 * Loops whose steps are several Plans: those that compute with other processes, and those on several devices. The host exchanges arrays
 * between the Plans.
 *
 * All processes run the same steps in the same order, or they wait for each other in vain.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { explainFallback } from "../backend/explain.ts";
import { attrsOf, makeNode, type Node } from "../graph/node.ts";
import { contiguousStrides, sizeOf } from "../graph/shape.ts";
import { type Loop, type LoopStep, LoweredStep } from "./bound_loop.ts";
import { type CarryBuffer, cutStep, type Exchange } from "./exchange_parts.ts";
import { numberParts, type PartNumbers, stepBackend } from "./part_numbers.ts";
import type { Better } from "./plan/context.ts";
import { SharedMemory, Storage } from "./plan/storage.ts";
import { readNode, realize } from "./realize.ts";
import { describeArray, misfitOf, type StateSpec, StepGraph } from "./step_graph.ts";

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
    (outputs) => stepBackend(outputs, state),
  );
  const numbers = numberParts(graph, state);
  return numbers ? new ExchangeStep(graph, numbers, scratch) : new LoweredStep(graph, scratch);
}

/** A lowered part of a step. */
interface LoweredPart {
  readonly step: LoweredStep;
  /** The arrays that it is over, see {@link Exchange}. */
  readonly arrays: readonly number[];
}

/** Bytes up to which a buffer that the host fills is memory that it sees: then no copy on the device is needed. */
const MAX_VISIBLE = 64 << 10;

/** A step in parts. */
class ExchangeStep implements LoopStep {
  readonly #parts: readonly LoweredPart[];
  readonly #exchanges: readonly (readonly Exchange[])[];
  readonly #buffers: readonly CarryBuffer[];
  /** Buffers that the host fills. */
  readonly #filled: ReadonlySet<number>;
  readonly #state: readonly StateSpec[];
  readonly #homes: readonly Backend[];

  constructor(graph: StepGraph, numbers: PartNumbers, scratch: SharedMemory) {
    const { parts, buffers } = cutStep(graph, numbers);
    const made: LoweredStep[] = [];
    try {
      for (const { graph } of parts) made.push(new LoweredStep(graph, scratch));
    } catch (error) {
      for (const step of made) step[Symbol.dispose]();
      throw error;
    } finally {
      for (const { graph } of parts) graph[Symbol.dispose]();
    }
    this.#parts = parts.map(({ arrays }, i) => ({ step: made[i], arrays }));
    this.#exchanges = parts.map(({ exchanges }) => exchanges);
    this.#buffers = buffers;
    this.#filled = new Set(this.#exchanges.flat().map(({ to }) => to - graph.state.length));
    this.#state = graph.state;
    this.#homes = numbers.homes;
  }

  fits(state: readonly StateSpec[]): boolean {
    return state.length === this.#state.length && misfitOf(this.#state, state) < 0;
  }

  get planBytes(): number {
    return this.#parts.reduce((sum, { step }) => sum + step.planBytes, 0);
  }

  get isFused(): boolean {
    return this.#parts.every(({ step }) => step.isFused);
  }

  bind(state: readonly Node[]): Loop {
    state.forEach((node, i) => settleOn(node, this.#homes[i]));
    const buffers = this.#buffers.map((buffer, i) => this.#newBuffer(buffer, i));
    for (const node of buffers) node.retain();
    const arrays = [...state, ...buffers];
    const loops: Loop[] = [];
    try {
      this.#buffers.forEach(({ backend }, i) => realize([buffers[i]], backend));
      for (const part of this.#parts) loops.push(part.step.bind(part.arrays.map((array) => arrays[array])));
    } catch (error) {
      for (const loop of loops) loop[Symbol.dispose]();
      for (const node of buffers) node.release();
      throw error;
    }
    return new ExchangeLoop(loops, this.#exchanges, arrays, buffers);
  }

  #newBuffer({ shape, dtype }: CarryBuffer, i: number): Node {
    const hostVisible = this.#filled.has(i) && sizeOf(shape) * dtype.bytes <= MAX_VISIBLE;
    return makeNode("data", [], shape, dtype, { hostVisible });
  }

  get ready(): boolean {
    return this.#parts.every(({ step }) => step.ready);
  }

  async prepare(): Promise<void> {
    for (const { step } of this.#parts) await step.prepare();
  }

  get undecided(): boolean {
    return false;
  }

  /** There is no other form of such a step. */
  probe(): Promise<Better> {
    return Promise.resolve(undefined);
  }

  [Symbol.dispose](): void {
    for (const { step } of this.#parts) step[Symbol.dispose]();
  }
}

/** Evaluates an array of a state on its device, or moves it there. */
function settleOn(node: Node, backend: Backend): void {
  realize([node], backend);
  const { storage } = node.stored!;
  if (storage.device === backend.name) return;
  explainFallback(`${describeArray(node)} of a loop's state is moved from ${storage.device} to ${backend.name}`);
  const bytes = readNode(node);
  const own = new Storage(backend, bytes.length);
  if (bytes.length > 0) backend.write(own.buffer, 0, bytes);
  node.stored = { storage: own, offset: 0, strides: contiguousStrides(node.shape) };
  storage.release();
}

/** A step in parts that was bound to a state. */
class ExchangeLoop implements Loop {
  readonly #loops: readonly Loop[];
  readonly #exchanges: readonly (readonly Exchange[])[];
  /** The arrays of the state, then the buffers. */
  readonly #arrays: readonly Node[];
  readonly #buffers: readonly Node[];
  /** Host memory of the largest array that is copied. */
  #copied = new Uint8Array(0);

  /** Takes over the references of `buffers`, and the loops. */
  constructor(
    loops: readonly Loop[],
    exchanges: readonly (readonly Exchange[])[],
    arrays: readonly Node[],
    buffers: readonly Node[],
  ) {
    this.#loops = loops;
    this.#exchanges = exchanges;
    this.#arrays = arrays;
    this.#buffers = buffers;
  }

  /** A step is submitted whole. */
  readonly parts = 1;

  /** On return, all but the last parts of the last step are done. */
  run(times: number = 1): number {
    let ticket = 0;
    for (let i = 0; i < times; i++) {
      this.#loops.forEach((loop, part) => {
        for (const exchange of this.#exchanges[part]) this.#exchange(exchange);
        ticket = loop.run(1);
      });
    }
    return ticket;
  }

  #exchange({ collective, from, to }: Exchange): void {
    if (!collective) return this.#write(to, this.#read(from));
    const { kind, processes, peer } = attrsOf(collective, "collective");
    const bytes = this.#read(from);
    const made = processes.exchange(
      kind,
      collective.dtype,
      bytes,
      sizeOf(collective.shape) * collective.dtype.bytes,
      peer,
    );
    if (to >= 0) this.#write(to, kind === "send" ? bytes : made);
  }

  /** The bytes of an array until the next call; waits for the part that made it. */
  #read(array: number): Uint8Array {
    const { shape, dtype, stored } = this.#arrays[array];
    const { storage, offset } = stored!;
    const count = sizeOf(shape) * dtype.bytes;
    if (this.#copied.length < count) this.#copied = new Uint8Array(count);
    const bytes = this.#copied.subarray(0, count);
    const { backend, buffer } = storage as Storage;
    if (count > 0) backend.read(buffer, offset * dtype.bytes, bytes);
    return bytes;
  }

  #write(array: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const { dtype, stored } = this.#arrays[array];
    const { storage, offset } = stored!;
    const { backend, buffer } = storage as Storage;
    backend.write(buffer, offset * dtype.bytes, bytes);
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
    for (const loop of this.#loops.slice(0, -1)) await loop.done(0); // they are done: did they end well?
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
