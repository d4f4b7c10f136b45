/**
 * Loops of arrays: a step from state to state that is traced once and runs on the device as often as asked.
 *
 * @module
 */

import { type Loop, type LoopStep, MAX_STEPS, readMappedNode, writeStateNode } from "../../schedule/bound_loop.ts";
import { lowerStep } from "../../schedule/exchange_loop.ts";
import { options } from "../../schedule/plan/options.ts";
import { realize } from "../../schedule/realize.ts";
import { SharedMemory } from "../../schedule/plan/storage.ts";
import { rebuilder, traceNodes } from "./compile.ts";
import { tensorsOf } from "../tensor/scope.ts";
import { nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";
import { type Dtype, float32, int32, uint32 } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import type { Shape } from "../../graph/shape.ts";

export { MAX_STEPS };

/**
 * An int32, uint32 or float32 array for the state of a {@link DeviceLoop} whose values the host may {@link readMapped} at while later steps run.
 * Takes `values` over, which are to be all of their buffer.
 */
export function hostVisible(
  values: Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
  shape: Shape = [values.length],
): Tensor {
  const bytes = new Uint8Array(values.buffer);
  return wrap(makeNode("data", [], shape, dtypeOfValues(values), { bytes, hostVisible: true }));
}

/**
 * The values of a {@link hostVisible} int32 array now, all or `count` from `start` on. It has the writes of all steps up to a finished ticket.
 * Reading visible memory of a GPU takes about a microsecond for 32 bytes.
 */
export function readMapped(array: Tensor, start?: number, count?: number): Int32Array {
  return new Int32Array(readMappedNode(nodeOf(array), start, count).buffer);
}

/** The same of a float32 array. */
export function readMappedFloats(array: Tensor, start?: number, count?: number): Float32Array {
  return new Float32Array(readMappedNode(nodeOf(array), start, count).buffer);
}

/**
 * Replaces values of an evaluated array of a {@link DeviceLoop}'s state, after submitted steps and before later ones. They are the
 * values from element `start` on (default 0), counted in row-major order. The others stay. Throws a DtypeError if `values` are of
 * another dtype than the array, and an IndexError if they do not fit into it. A view that is not contiguous is a ValueError.
 * `writeState(temperatures, Float32Array.of(0.7), 3)` changes the temperature of sequence 3 alone.
 */
export function writeState(array: Tensor, values: Int32Array | Uint32Array | Float32Array, start: number = 0): void {
  const dtype = dtypeOfValues(values);
  if (array.dtype !== dtype) {
    throw new DtypeError(`${dtype.name} values cannot be written into a ${array.dtype.name} array`);
  }
  writeStateNode(nodeOf(array), new Uint8Array(values.buffer, values.byteOffset, values.byteLength), start);
}

function dtypeOfValues(values: Int32Array | Uint32Array | Float32Array): Dtype {
  if (values instanceof Float32Array) return float32;
  return values instanceof Int32Array ? int32 : uint32;
}

/** A step from state to state that was traced once; {@link DeviceLoop} runs it over a state. */
export class TracedStep<S> implements Disposable {
  readonly #make: () => LoopStep;
  #trace: LoopStep;
  #improving: Promise<boolean> | undefined;
  /** The step in one dispatch for all layers, before a probe has found that this works, and the making of its pipelines. */
  #faster: { readonly step: LoopStep; readonly ready: Promise<void> } | undefined;
  #ended = false;

  /** Traces `step`, which returns a new state of the same structure, shapes and dtypes as `state`. */
  constructor(state: S, step: (state: S) => S, scratch?: SharedMemory) {
    const stacked = new Set<Tensor>();
    const build = rebuilder("TracedStep", state, stacked);
    const arrays = tensorsOf(state);
    const trace = (parameters: readonly (readonly Node[])[]): readonly Node[] =>
      traceNodes(() => {
        const tensors = parameters.map((nodes, i) => stacked.has(arrays[i]) ? nodes.map(wrap) : wrap(nodes[0]));
        return tensorsOf(step(build(tensors) as S)).map(nodeOf);
      });
    const nodes = arrays.map(nodeOf);
    const stacks = arrays.map((array) => stacked.has(array));
    this.#make = () => lowerStep(nodes, trace, stacks, scratch);
    this.#trace = this.#make();
  }

  /** Whether it was traced for a state of these nodes' shapes and dtypes. */
  fits(state: readonly Node[]): boolean {
    return this.#trace.fits(state);
  }

  /** Bytes of its Plan. */
  get planBytes(): number {
    return this.#trace.planBytes + (this.#faster?.step.planBytes ?? 0);
  }

  /** Whether the kernels of a region compute it, such as those of a decoder step. */
  get isFused(): boolean {
    return this.#trace.isFused;
  }

  /** The traced step over the arrays of a state. */
  bind(state: S, inParts?: boolean): Loop {
    return this.#trace.bind(tensorsOf(state).map(nodeOf), inParts);
  }

  /** Whether {@link TracedStep.prepare} has nothing to do. */
  get ready(): boolean {
    return this.#trace.ready;
  }

  /** Does what takes time in the first {@link TracedStep.bind} ahead: on a GPU kernels are compiled, on another thread. */
  prepare(): Promise<void> {
    return this.#trace.prepare();
  }

  /**
   * Makes the pipelines that {@link TracedStep.improve} needs, if the trace does not know yet whether there is a faster step. On a fresh
   * machine they take a second. Resolves when they are made, or cannot be.
   */
  async prepareFaster(): Promise<void> {
    if (!this.#faster && !this.#improving && !this.#ended && this.#trace.undecided) {
      const step = inOneDispatch(this.#make);
      this.#faster = { step, ready: step.prepare().catch(() => {}) }; // improve() reports it
    }
    await this.#faster?.ready;
  }

  /**
   * Probes for a faster step where the trace left that open, beside other work, and traces again if there is one, which
   * {@link TracedStep.bind} then gives. True if it has the same bits, so that loops may change over to it. Arrays that `step` captured
   * must still be there; otherwise this rejects.
   */
  improve(): Promise<boolean> {
    return this.#improving ??= this.#improve();
  }

  async #improve(): Promise<boolean> {
    await this.#faster?.ready; // the probe takes the same pipelines
    const better = this.#ended ? undefined : await this.#trace.probe();
    if (!better || this.#ended) {
      this.#dropFaster();
      return false;
    }
    let spare = this.#takeFaster(better) ?? this.#make();
    try {
      await spare.prepare();
      if (this.#ended) return false;
      [this.#trace, spare] = [spare, this.#trace];
      return better === "now";
    } finally {
      spare[Symbol.dispose]();
    }
  }

  #takeFaster(better: "now" | "next"): LoopStep | undefined {
    const faster = this.#faster?.step;
    if (better === "now") this.#faster = undefined;
    else this.#dropFaster(); // other kernels serve it then
    return better === "now" ? faster : undefined;
  }

  #dropFaster(): void {
    this.#faster?.step[Symbol.dispose]();
    this.#faster = undefined;
  }

  /** Ends the trace; loops over it go on. */
  [Symbol.dispose](): void {
    this.#ended = true;
    this.#dropFaster();
    this.#trace[Symbol.dispose]();
  }
}

/** What `make` makes where decoders take one dispatch for all layers. */
function inOneDispatch(make: () => LoopStep): LoopStep {
  const { launchMode } = options;
  options.launchMode = "persistent";
  try {
    return make();
  } finally {
    options.launchMode = launchMode;
  }
}

/** State that lives on the device, and the step that advances it. */
export class DeviceLoop<S> implements Disposable {
  /** The arrays of the state, evaluated; each run changes their values in place. */
  readonly state: S;
  readonly #trace: TracedStep<S>;
  readonly #owned: boolean;
  #loop: Loop;
  #ended = false;

  /**
   * `step` returns a new state of the same structure, shapes and dtypes; it is traced now unless it is a {@link TracedStep} already.
   * The state's arrays stay their owner's; they must be contiguous, and from now on no other array may share their memory. Two of
   * them may, if a step uses other elements of each.
   * `inParts`: for {@link DeviceLoop.runPart}.
   */
  constructor(state: S, step: ((state: S) => S) | TracedStep<S>, inParts: boolean = false) {
    this.state = state;
    this.#owned = !(step instanceof TracedStep);
    this.#trace = step instanceof TracedStep ? step : new TracedStep(state, step);
    this.#loop = this.#trace.bind(state, inParts);
  }

  /** How many parts {@link DeviceLoop.runPart} takes. */
  get parts(): number {
    return this.#loop.parts;
  }

  /** Submits a part of a step, of a loop that was made for that: in their order, and others may run in between. */
  runPart(part: number): number {
    return this.#loop.runPart(part);
  }

  /** Submits steps, at most {@link MAX_STEPS}, and returns at once: a ticket for {@link DeviceLoop.done}. */
  run(times: number = 1): number {
    return this.#loop.run(times);
  }

  /**
   * Submits a step, and one of another loop on the same device after it. Returns a ticket of each for {@link DeviceLoop.done} of its loop.
   * The first may be done while the second runs, and the device idles less between them than between two runs.
   */
  runBefore(next: DeviceLoop<unknown>): readonly [number, number] {
    return this.#loop.runBefore(next.#loop);
  }

  /**
   * Resolves when the steps up to a ticket are done (default all submitted ones); the event loop stays alive. `soon`: every tenth of a
   * millisecond counts. Rejects with a {@link MegakernelFailure} if steps failed: the state is void, and a new loop will not use a
   * megakernel again.
   */
  done(ticket?: number, soon?: boolean): Promise<void> {
    return this.#loop.done(ticket, soon);
  }

  /** Leaves out the rest of a submission's last step, where the device can; then true, and the state is void. */
  drop(ticket: number): boolean {
    return this.#loop.drop(ticket);
  }

  /** Share of the last step of a submission that is done, from 0 to 1; undefined if the device does not tell. */
  progress(ticket: number): number | undefined {
    return this.#loop.progress(ticket);
  }

  /** Later runs take a faster step where {@link TracedStep.improve} finds one of the same bits. */
  async improve(): Promise<void> {
    if (!await this.#trace.improve() || this.#ended) return;
    const worse = this.#loop;
    this.#loop = this.#trace.bind(this.state);
    worse[Symbol.dispose]();
  }

  /** Frees the step; the state stays. */
  [Symbol.dispose](): void {
    this.#ended = true;
    this.#loop[Symbol.dispose]();
    if (this.#owned) this.#trace[Symbol.dispose]();
  }
}

/**
 * Most bytes of the Plans of traces that are kept. A step of 28 layers op by op has 0.08 MB, and eight times that of JavaScript's memory.
 * Tracing it again takes 0.1 s or more. So about 100 such steps are kept, more than requests of all lengths have.
 */
const MAX_PLAN_BYTES = 8 << 20;

/** Names a step as the switches of the scheduler now have it lowered. */
function keyOf(name: string): string {
  return `${name} ${Object.values(options).join(" ")}`;
}

/** What is prepared or tested in the background, of all models. */
const background = new Set<Promise<unknown>>();

/** Resolves when nothing is prepared or tested in the background any more, for any model: {@link TracedSteps.idle} of all. */
export async function settled(): Promise<void> {
  while (background.size > 0) await Promise.allSettled(background);
}

interface Kept {
  readonly key: string;
  readonly trace: TracedStep<unknown>;
}

/**
 * Traces of steps over the same weights, kept for their next use; the least recently used ones go if their Plans are too large.
 * All go where a weight has become another array.
 */
export class TracedSteps implements Disposable {
  readonly #weights: () => readonly Tensor[];
  /** The weights that the traces read. */
  #read: readonly Node[] = [];
  /** The most recently used one comes last. */
  readonly #kept: Kept[] = [];
  readonly #scratch = new SharedMemory();
  readonly #pending = new Set<Promise<unknown>>();
  #improving: Promise<unknown> = Promise.resolve();
  readonly #mostBytes: number;
  #made = 0;

  /** For steps that read the arrays which `weights` gives; their Plans have `mostBytes` in all, but one trace is kept in any case. */
  constructor(weights: () => readonly Tensor[], mostBytes: number = MAX_PLAN_BYTES) {
    this.#weights = weights;
    this.#mostBytes = mostBytes;
  }

  /** Traces that are kept. */
  get size(): number {
    return this.#kept.length;
  }

  /** Traces that were made so far, also those that are no longer kept. */
  get made(): number {
    return this.#made;
  }

  /**
   * The trace of a step. Steps with equal keys, whose states have equal structure, shapes and dtypes, must be equal: the first one is
   * traced for all. The state is not evaluated.
   */
  trace<S>(name: string, state: S, step: (state: S) => S): TracedStep<S> {
    this.#renew();
    const kept = this.#kept;
    const key = keyOf(name);
    const at = this.#find(key, state);
    if (at >= 0) {
      const [found] = kept.splice(at, 1);
      kept.push(found);
      return found.trace as TracedStep<S>;
    }
    const trace = new TracedStep(state, step, this.#scratch);
    kept.push({ key, trace: trace as TracedStep<unknown> });
    this.#made++;
    this.#evict();
    return trace;
  }

  /** Lets traces go, the least recently used first, until the others are not too large. The last one stays in any case. */
  #evict(): void {
    let bytes = this.#kept.reduce((sum, { trace }) => sum + trace.planBytes, 0);
    while (bytes > this.#mostBytes && this.#kept.length > 1) {
      const { trace } = this.#kept.shift()!;
      bytes -= trace.planBytes;
      trace[Symbol.dispose]();
    }
  }

  /** The trace of a step, where it is kept; of weights that may have been replaced since the last {@link TracedSteps.trace}. */
  known<S>(name: string, state: S): TracedStep<S> | undefined {
    return this.#kept[this.#find(keyOf(name), state)]?.trace as TracedStep<S> | undefined;
  }

  /** Lets traces of replaced weights go. New weights are evaluated, or each step would compute them. */
  #renew(): void {
    const weights = this.#weights();
    if (weights.length === this.#read.length && weights.every((weight, i) => nodeOf(weight) === this.#read[i])) return;
    this[Symbol.dispose]();
    const nodes = weights.map(nodeOf);
    realize(nodes);
    this.#read = nodes;
  }

  #find(key: string, state: unknown): number {
    const nodes = tensorsOf(state).map(nodeOf);
    return this.#kept.findIndex((kept) => kept.key === key && kept.trace.fits(nodes));
  }

  /** Does ahead what takes time when a trace is first bound, see {@link TracedStep.prepare}. */
  prepare(trace: TracedStep<unknown>): Promise<void> {
    return this.#track(trace.prepare());
  }

  /** Does what {@link TracedStep.improve} needs ahead, see {@link TracedStep.prepareFaster}. It traces once more, so nothing should wait. */
  prepareFaster(trace: TracedStep<unknown>): void {
    this.#track(trace.prepareFaster());
  }

  /** Lets a loop or a trace find a faster form of its step, see {@link TracedStep.improve}, one after another. Waiting is not needed. */
  improve(what: { improve(): Promise<unknown> }): void {
    const ready = this.#improving.then(() => what.improve());
    this.#improving = this.#track(ready.catch(() => {})); // the weights or the device are gone: their next use says so
  }

  /** Resolves when nothing is prepared or tested in the background any more. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  #track<T>(promise: Promise<T>): Promise<T> {
    for (const among of [this.#pending, background]) {
      among.add(promise);
      const done = (): boolean => among.delete(promise);
      promise.then(done, done);
    }
    return promise;
  }

  /** Ends all traces; loops over them go on. */
  [Symbol.dispose](): void {
    for (const { trace } of this.#kept.splice(0)) trace[Symbol.dispose]();
  }
}
