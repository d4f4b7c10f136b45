/**
 * The context of a generation session's parts: model, cache, options, the sequence and the state on the device, and the tracing of steps.
 *
 * @module
 */

import type { TracedStep } from "../../array/compile/loop.ts";
import { DeviceState, type HeldCache } from "./device_state.ts";
import type { DecodedSequence } from "./sequence.ts";
import type { DecodeOptions, DecodeScalars } from "./state.ts";
import type { KvCache } from "../kv/cache.ts";
import type { DecodingModel } from "../models/mod.ts";

/** Steps by what they compute. */
export type StepKind =
  | "read"
  | "prompt"
  | "step"
  | "forward prompt"
  | "forward"
  | "choose"
  | "verify"
  | `draft ${number}`;

/** A step over a state, or its trace where that is kept. */
export type Traced<S> = TracedStep<S> | ((state: S) => S);

/** The context that the parts of a session share. */
export class DecodeContext implements Disposable {
  readonly model: DecodingModel;
  readonly options: DecodeOptions;
  readonly sequence: DecodedSequence;
  /** The state on the device. */
  readonly state: DeviceState;
  /** Loops of the prompt and of smaller caches, whose steps may still run. */
  readonly ended: Disposable[] = [];
  /** Names the graphs of steps, where they can be named. */
  readonly #graph: string | undefined;

  /** Before what the prompt has after the cache. */
  constructor(model: DecodingModel, cache: KvCache, options: DecodeOptions, sequence: DecodedSequence) {
    const { sampler, processors, contextSize, logprobs } = options;
    this.model = model;
    this.options = options;
    this.sequence = sequence;
    const graphs = [sampler.graph, ...processors.map(({ graph }) => graph)];
    this.#graph = graphs.includes(undefined) ? undefined : [...graphs, contextSize, logprobs].join(" ");
    this.state = new DeviceState(model, cache, options, sequence);
  }

  /** The state but for the cache, to be read. */
  get scalars(): DecodeScalars {
    return this.state.scalars;
  }

  /** The cache, to be read. */
  get cache(): HeldCache {
    return this.state.cache;
  }

  /** A step, or its trace where that is kept. The ends of prompts, which have any length, on devices where each row costs, are not worth keeping. */
  traced<S>(kind: StepKind, state: S, step: (state: S) => S): TracedStep<S> | ((state: S) => S) {
    const { device, traces } = this.model;
    const keeps = this.#graph !== undefined && (!kind.endsWith("prompt") || device.tiled);
    return keeps ? traces.trace(`${kind} ${this.#graph}`, state, step) : step;
  }

  /** The trace of a step over the state as it is, if there is one already. */
  known(kind: StepKind): TracedStep<unknown> | undefined {
    return this.#graph === undefined ? undefined : this.model.traces.known(`${kind} ${this.#graph}`, this.state.all);
  }

  /** Frees what ran before. */
  [Symbol.dispose](): void {
    for (const ended of this.ended.splice(0)) ended[Symbol.dispose]();
  }
}
