/**
 * What the parts of a generation session share: model, cache, options, the rows and the state on the device, and how steps are traced.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { keyAfter } from "../../array/random/keys.ts";
import { type TracedStep, visible } from "../../array/compile/loop.ts";
import type { SequenceRows } from "./rows.ts";
import {
  type DecodeOptions,
  type DecodeScalars,
  logOf,
  logprobsLog,
  own,
  ring,
  ringWeights,
  type State,
} from "./state.ts";
import type { KvCache } from "../kv/cache.ts";
import type { LanguageModel } from "../models/mod.ts";

/** Steps by what they compute. */
export type StepKind = "read" | "prompt" | "step" | "forward prompt" | "forward" | "choose";

/** A step over a state, or its trace where that is kept. */
export type Traced<S> = TracedStep<S> | ((state: S) => S);

/** What the parts of a session share. */
export class DecodeContext implements Disposable {
  readonly model: LanguageModel;
  readonly cache: KvCache;
  readonly options: DecodeOptions;
  readonly rows: SequenceRows;
  /** The state but for the cache. */
  scalars: DecodeScalars;
  /** Loops of the prompt and of smaller caches, whose steps may still run. */
  readonly ended: Disposable[] = [];
  /** Names the graphs of steps, where they can be named. */
  readonly #graph: string | undefined;

  /** In front of what the rows' prompts have behind the cache, unless there is a state already. */
  constructor(
    model: LanguageModel,
    cache: KvCache,
    options: DecodeOptions,
    rows: SequenceRows,
    scalars?: DecodeScalars,
  ) {
    const { sampler, processors, contextSize, logprobs } = options;
    this.model = model;
    this.cache = cache;
    this.options = options;
    this.rows = rows;
    const graphs = [sampler.graph, ...processors.map(({ graph }) => graph)];
    this.#graph = graphs.includes(undefined) ? undefined : [...graphs, contextSize, logprobs].join(" ");
    this.scalars = scalars ?? this.unread();
  }

  /** The state in front of the rest of the prompt. */
  unread(): DecodeScalars {
    const { key } = this.rows.first;
    const recent = this.recent;
    const weights = this.weights;
    return {
      token: own(visible(Int32Array.of(0), [1, 1])),
      position: own(visible(Int32Array.of(this.cache.offset))),
      key: key && own(mx.array([[...key]], mx.uint32)),
      recent: recent && own(mx.array([recent], mx.int32)),
      weights: weights && own(mx.array([weights], mx.float32)),
      log: logOf([[]]),
      logprobs: logprobsLog(this.options.logprobs, 1),
    };
  }

  /** The ring of recent tokens that choosing the first one looks at. */
  get recent(): number[] | undefined {
    const { tokens, last } = this.rows.first;
    const { processors, contextSize } = this.options;
    return processors.length > 0 ? ring(tokens, last, contextSize) : undefined;
  }

  /** Which places of that ring have tokens, where a processor counts them. */
  get weights(): number[] | undefined {
    const { tokens, last } = this.rows.first;
    const { processors, contextSize } = this.options;
    return processors.some(({ counts }) => counts) ? ringWeights(tokens, last, contextSize) : undefined;
  }

  /** The state behind step number `steps`, made again from the tokens that were taken. */
  stateBehind(steps: number): DecodeScalars {
    const { sampler, processors, contextSize, logprobs } = this.options;
    const rows = this.rows.all;
    const rings = (make: typeof ring, dtype: mx.Dtype): Tensor =>
      own(mx.array(rows.map(({ tokens, last }) => make(tokens, last + steps, contextSize)), dtype));
    return {
      token: own(mx.array(rows.map(({ tokens }) => tokens.slice(-1)), mx.int32)),
      position: own(mx.array(rows.map(({ last }) => last + steps), mx.int32)),
      key: sampler.key && own(mx.array(rows.map(({ key }) => [...keyAfter(key!, steps)]), mx.uint32)),
      recent: processors.length > 0 ? rings(ring, mx.int32) : undefined,
      weights: processors.some(({ counts }) => counts) ? rings(ringWeights, mx.float32) : undefined,
      log: logOf(rows.map(() => [])),
      logprobs: logprobsLog(logprobs, rows.length),
    };
  }

  /** The whole state. */
  get state(): State {
    return { ...this.scalars, ...this.cache.buffers };
  }

  /** A step, or its trace where that is kept. The ends of prompts, which have any length, on devices where each row costs, are not worth keeping. */
  traced<S>(kind: StepKind, state: S, step: (state: S) => S): TracedStep<S> | ((state: S) => S) {
    const { traces } = this.model;
    const keeps = this.#graph !== undefined && (!kind.endsWith("prompt") || traces.tiled);
    return keeps ? traces.trace(`${kind} ${this.#graph}`, state, step) : step;
  }

  /** The trace of a step over the state as it is, where there is one already. */
  known(kind: StepKind): TracedStep<unknown> | undefined {
    return this.#graph === undefined ? undefined : this.model.traces.known(`${kind} ${this.#graph}`, this.state);
  }

  /** Frees what ran before. */
  [Symbol.dispose](): void {
    for (const ended of this.ended.splice(0)) ended[Symbol.dispose]();
  }
}
