/**
 * The loop of steps over a cache, traced for the cache's capacity. While it runs, the step for the next capacity is traced and compiled,
 * and a faster one is looked for.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, TracedStep } from "../../array/compile/loop.ts";
import type { DecodeContext, Traced } from "./context.ts";
import type { PromptSubmitter } from "./submit.ts";
import type { Buffers } from "../kv/cache.ts";
import type { Submission } from "./submission_sizer.ts";

/** Steps over a cache after which its growth is prepared, and after which a faster step is looked for: one thing at a time. */
const PREPARE_AFTER = 16;
const IMPROVE_AFTER = 32;

/** Growths of a cache that are prepared on a machine that has yet to make pipelines. */
const MAX_GROWTHS = 4;

/** Milliseconds of a traced step when it last ran. */
const stepTimes = new WeakMap<TracedStep<unknown>, number>();

/** A step over a state with a cache of such buffers, and that state. */
export type StepOver = (buffers: Buffers) => [state: unknown, step: Traced<unknown>];

/** The steps after the prompt. */
export class StepLoop {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #stepOver: StepOver;
  #loop: DeviceLoop<unknown> | undefined;
  /** The trace that the loop runs. */
  #trace: TracedStep<unknown> | undefined;
  /** Capacity of the cache that the loop is for. */
  #capacity = 0;
  /** Steps that the loop took. */
  #steps = 0;
  /** The trace whose faster step was prepared. */
  #withFaster: TracedStep<unknown> | undefined;
  /** Whether the loop was asked for a faster step. */
  #improved = false;
  /** Other traces that are then asked. */
  readonly #others = new Set<TracedStep<unknown>>();
  /** Capacity whose growth was prepared. */
  #prepared = 0;
  /** How many growths from this capacity on are prepared; 0 where only the next one is. */
  #growths = 0;
  /** The step that is to come, and when its pipelines were made. */
  #next: TracedStep<unknown> | undefined;
  #ahead: Promise<void> | undefined;

  /** Repeats what `stepOver` gives for the buffers of the cache. */
  constructor(context: DecodeContext, submitter: PromptSubmitter, stepOver: StepOver) {
    this.#context = context;
    this.#submitter = submitter;
    this.#stepOver = stepOver;
  }

  /** Submits at most `most` steps: as many as the cache has room for before it grows. */
  submit(most: number): Submission {
    const cache = this.#context.cache;
    const loop = this.current();
    const count = Math.min(most, Math.min(cache.capacity, cache.limit) - cache.offset);
    this.#context.state.advance(count);
    this.#steps += count;
    const ticket = loop.run(count);
    return { count, submitted: performance.now(), done: () => this.#submitter.done(loop, ticket, 0) };
  }

  /** Submits one step of a loop and returns that. */
  run(loop: DeviceLoop<unknown> = this.current()): DeviceLoop<unknown> {
    this.#counted();
    loop.run(1);
    return loop;
  }

  /** Submits a step of another loop and after it one of a loop of steps; returns the other one's ticket. */
  runAfter(other: DeviceLoop<unknown>, loop: DeviceLoop<unknown>): number {
    this.#counted();
    return other.runBefore(loop)[0];
  }

  #counted(): void {
    this.#context.state.advance(1);
    this.#steps++;
  }

  /** The loop over the cache with room for one more token. */
  current(): DeviceLoop<unknown> {
    const { cache, state: held } = this.#context;
    held.reserve(1);
    if (this.#loop && this.#capacity === cache.capacity) return this.#loop;
    if (this.#loop) this.#context.ended.push(this.#loop);
    this.#capacity = cache.capacity;
    this.#steps = 0;
    this.#improved = false;
    const [state, traced] = this.#stepOver(cache.buffers);
    this.#trace = traced instanceof TracedStep ? traced : undefined;
    return this.#loop = new DeviceLoop(state, traced);
  }

  /** Whether the next step needs another loop, for which {@link StepLoop.ahead} is worth waiting. */
  get outgrown(): boolean {
    const { cache } = this.#context;
    return cache.offset === cache.capacity || this.#capacity !== cache.capacity;
  }

  /** When the pipelines of the step that is to come are made, if they were asked for. */
  get ahead(): Promise<void> | undefined {
    return this.#ahead;
  }

  /** Milliseconds of the next step if that is known and it can follow at once, while the prompt is still being read. */
  knownTime(): number | undefined {
    const { cache, sequence } = this.#context;
    if (sequence.constraint || cache.offset >= cache.capacity) return undefined;
    const trace = this.#context.known("step");
    return trace?.ready ? stepTimes.get(trace) : undefined;
  }

  /** Takes the milliseconds of a step. */
  note(perStep: number): void {
    if (this.#trace) stepTimes.set(this.#trace, perStep);
  }

  /** Has the pipelines of a step over a cache of such buffers made beside other work, where the step can be kept. */
  prepare(buffers: Buffers = this.#context.cache.buffers): void {
    const [, traced] = this.#stepOver(buffers);
    if (!(traced instanceof TracedStep)) return;
    this.#next = traced;
    const ready = this.#context.model.traces.prepare(traced);
    this.#ahead = ready.catch(() => {}); // a failure happens again, and is reported, when the step is needed
  }

  /** Notes that no earlier program made the pipelines. So those of a faster step and of later growths are made ahead too. */
  noteFresh(): void {
    this.#growths = 1;
    if (this.#next) this.#context.model.traces.prepareFaster(this.#next);
  }

  /**
   * After enough steps, has the step for the next growth of the cache compiled, if `left` more steps reach it. Also has a faster one looked
   * for.
   */
  lookAhead(left: number): void {
    if (this.#steps > 0) this.#prepareFaster();
    if (this.#steps >= PREPARE_AFTER) this.#prepareGrowth(left);
    if (this.#steps >= IMPROVE_AFTER) this.#improve();
  }

  /** Has a faster step for a trace looked for after that for the loop. */
  alsoImprove(trace: TracedStep<unknown>): void {
    this.#others.add(trace);
  }

  /** Has the pipelines made that a faster step for the loop would need: once for a trace, and not before the first token. */
  #prepareFaster(): void {
    if (!this.#trace || this.#withFaster === this.#trace) return;
    this.#withFaster = this.#trace;
    this.#context.model.traces.prepareFaster(this.#trace);
  }

  /** Lets the loop find a faster step while it goes on, then one for the grown cache, then what else there is. */
  #improve(): void {
    if (this.#improved) return;
    this.#improved = true;
    const { traces } = this.#context.model;
    for (const what of [this.#loop!, this.#next, ...this.#others]) if (what) traces.improve(what);
  }

  /** Has the step for the next growth of the cache compiled while others run, if `left` more steps reach it; later growths in later turns. */
  #prepareGrowth(left: number): void {
    const cache = this.#context.cache;
    if (cache.capacity - cache.offset >= left) return;
    if (this.#prepared === cache.capacity) {
      if (this.#growths > 0 && this.#growths < MAX_GROWTHS) this.#prepareLater(++this.#growths, left);
      return;
    }
    this.#prepared = cache.capacity;
    if (this.#growths > 1) this.#growths--; // they are counted from this capacity
    const grown = cache.outgrown();
    if (!grown) return;
    this.prepare(grown);
    mx.dispose(grown);
    if (this.#next) this.#context.model.traces.prepareFaster(this.#next);
  }

  #prepareLater(times: number, left: number): void {
    const { cache, model } = this.#context;
    const grown = cache.outgrown(times, cache.offset + left);
    if (!grown) return;
    const [, traced] = this.#stepOver(grown);
    mx.dispose(grown);
    if (!(traced instanceof TracedStep)) return;
    model.traces.prepare(traced).catch(() => {}); // reported when the step is needed
    model.traces.prepareFaster(traced);
  }

  /** Frees the loop; the next step makes another. */
  release(): void {
    this.#loop?.[Symbol.dispose]();
    this.#loop = undefined;
    this.#capacity = 0;
  }
}
