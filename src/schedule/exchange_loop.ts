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

/** Bytes up to which state that comes from another device is in memory that the host sees. */
const MAX_VISIBLE = 64 << 10;

/**
 * Bytes up to which a buffer that the host fills is in memory that it sees: 512 rows of 8,192 features in float32. Without a resizable BAR
 * that is a window of 256 MB for all buffers of the kind. Above it a copy takes so long that staging adds little.
 */
const MAX_FILLED = 16 << 20;

/** A step in parts. */
class ExchangeStep implements LoopStep {
  readonly #parts: readonly LoweredPart[];
  readonly #exchanges: readonly (readonly Exchange[])[];
  readonly #buffers: readonly CarryBuffer[];
  /** Buffers that the host reads, and those that it fills. It sees their memory: then no copy on the device is needed. */
  readonly #kinds: ReadonlyMap<number, "readback" | "visible">;
  readonly #state: readonly StateSpec[];
  readonly #homes: readonly Backend[];
  #ended = false;

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
    const exchanges = this.#exchanges.flat(), { length } = graph.state;
    // What the host reads decides: it would read memory of the device at some 32 MB a second.
    this.#kinds = new Map([
      ...exchanges.map(({ to }) => [to - length, "visible"] as const),
      ...exchanges.map(({ from }) => [from - length, "readback"] as const),
    ]);
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
    const buffers: Node[] = [];
    const loops: Loop[] = [];
    try {
      for (const [i, buffer] of this.#buffers.entries()) {
        const node = this.#newBuffer(buffer, i);
        node.retain();
        buffers.push(node);
      }
      for (const part of this.#parts) {
        loops.push(part.step.bind(part.arrays.map((at) => state[at] ?? buffers[at - state.length])));
      }
    } catch (error) {
      for (const loop of loops) loop[Symbol.dispose]();
      for (const node of buffers) node.release();
      throw error;
    }
    const arrays = [...state, ...buffers];
    const exchanges = this.#exchanges.map((list) => list.map((exchange) => new BoundExchange(exchange, arrays)));
    return new ExchangeLoop(loops, exchanges, buffers);
  }

  #newBuffer({ shape, dtype, backend }: CarryBuffer, i: number): Node {
    const node = makeNode("data", [], shape, dtype, {});
    const bytes = sizeOf(shape) * dtype.bytes;
    const kind = this.#kinds.get(i);
    const storage = new Storage(backend, bytes, kind === "visible" && bytes > MAX_FILLED ? undefined : kind);
    node.settle({ storage, offset: 0, strides: contiguousStrides(shape) });
    return node;
  }

  get ready(): boolean {
    return this.#parts.every(({ step }) => step.ready);
  }

  async prepare(): Promise<void> {
    for (const { step } of this.#parts) await step.prepare();
  }

  /** Parts may find different answers, so no form of all of them is made ahead. */
  get undecided(): boolean {
    return false;
  }

  /** Probes the parts one after another. They have the same bits in another form only if all that are faster have. */
  async probe(): Promise<Better> {
    const found: Better[] = [];
    for (const { step } of this.#parts) {
      if (this.#ended) return undefined; // the steps of the other parts are gone
      found.push(await step.probe());
    }
    return found.find((better) => better === "next") ?? found.find((better) => better === "now");
  }

  [Symbol.dispose](): void {
    this.#ended = true;
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
  const isVisible = (storage as Storage).hostVisible && bytes.length <= MAX_VISIBLE;
  const own = new Storage(backend, bytes.length, isVisible ? "visible" : undefined);
  if (bytes.length > 0) backend.write(own.buffer, 0, bytes);
  node.stored = { storage: own, offset: 0, strides: contiguousStrides(node.shape) };
  storage.release();
}

/** An exchange between two bound arrays. Nothing is looked for or allocated when it runs. */
class BoundExchange {
  readonly #collective: Node | undefined;
  readonly #from: BoundArray;
  /** Undefined if nothing reads the result. */
  readonly #to: BoundArray | undefined;
  /** Host memory for what goes over. */
  readonly #bytes: Uint8Array<ArrayBuffer>;

  constructor({ collective, from, to }: Exchange, arrays: readonly Node[]) {
    this.#collective = collective;
    this.#from = boundArray(arrays[from]);
    this.#to = to >= 0 ? boundArray(arrays[to]) : undefined;
    this.#bytes = new Uint8Array(this.#from.bytes);
  }

  /** Whether other processes take part in it. */
  get isCollective(): boolean {
    return this.#collective !== undefined;
  }

  /** Waits for what made the value, and writes the result where it is read. */
  run(): void {
    const { storage, offset, bytes } = this.#from;
    if (bytes > 0) storage.backend.read(storage.buffer, offset, this.#bytes);
    this.#write(this.#collective ? this.#exchanged(this.#collective) : this.#bytes);
  }

  #exchanged(collective: Node): Uint8Array {
    const { kind, processes, peer } = attrsOf(collective, "collective");
    const { dtype, shape } = collective;
    const made = processes.exchange(kind, dtype, this.#bytes, sizeOf(shape) * dtype.bytes, peer);
    return kind === "send" ? this.#bytes : made;
  }

  #write(bytes: Uint8Array): void {
    if (!this.#to || bytes.length === 0) return;
    const { storage, offset } = this.#to;
    storage.backend.write(storage.buffer, offset, bytes);
    storage.changed();
  }
}

/** Where an array of a loop lies. */
interface BoundArray {
  readonly storage: Storage;
  /** In bytes. */
  readonly offset: number;
  readonly bytes: number;
}

function boundArray({ shape, dtype, stored }: Node): BoundArray {
  const { storage, offset } = stored!;
  return { storage: storage as Storage, offset: offset * dtype.bytes, bytes: sizeOf(shape) * dtype.bytes };
}

/** A step in parts that was bound to a state. */
class ExchangeLoop implements Loop {
  readonly #loops: readonly Loop[];
  readonly #exchanges: readonly (readonly BoundExchange[])[];
  readonly #buffers: readonly Node[];
  readonly #isShared: boolean;
  /** The part that was submitted last, whose device has the last ticket. */
  #last: number;

  /** Takes over the references of `buffers`, and the loops. */
  constructor(
    loops: readonly Loop[],
    exchanges: readonly (readonly BoundExchange[])[],
    buffers: readonly Node[],
  ) {
    this.#loops = loops;
    this.#exchanges = exchanges;
    this.#buffers = buffers;
    this.#last = loops.length - 1; // tickets of a loop whose place this one takes are of that device too
    this.#isShared = exchanges.flat().some(({ isCollective }) => isCollective);
  }

  /** A step that computes with other processes is submitted whole: all of them take part in it or none. */
  get parts(): number {
    return this.#isShared ? 1 : this.#loops.length;
  }

  /** On return, all but the last parts of the last step are done. */
  run(times: number = 1): number {
    let ticket = 0;
    for (let i = 0; i < times; i++) {
      for (let part = 0; part < this.#loops.length; part++) ticket = this.#submit(part);
    }
    return ticket;
  }

  /** On return, the parts before are done. */
  runPart(part: number): number {
    return this.#isShared ? this.run() : this.#submit(part);
  }

  #submit(part: number): number {
    for (const exchange of this.#exchanges[part]) exchange.run();
    this.#last = part;
    return this.#loops[part].run(1);
  }

  runBefore(next: Loop): readonly [number, number] {
    return [this.run(), next.run()];
  }

  async done(ticket?: number, soon?: boolean): Promise<void> {
    await this.#loops[this.#last].done(ticket, soon);
    for (const [part, loop] of this.#loops.entries()) if (part !== this.#last) await loop.done(0); // did they end well?
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
