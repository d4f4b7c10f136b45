/**
 * Runs the steps of a scheduler on the device of a model.
 *
 * Parts of prompts are a forward pass; the choice of a token follows for those that end their prompts. A decode step advances all rows of
 * {@link DeviceRows}, several tokens at a time if asked, without the host in between. Where a token is constrained, a step is two:
 * the logits, and then the choice by masks that the host made.
 *
 * Drafts are verified in rows of their own, see verify_runner.ts, and those of the head of the model are computed so, see head_runner.ts. The rows of the sequences are written again for the next decode step.
 *
 * Rows are made anew when sequences need more of them, longer tables or settings of another kind. What fills them then has to be known to
 * the host: {@link Runner.canSubmit} says whether steps on their way have to end first.
 *
 * @module
 */

import { DeviceLoop } from "../../array/compile/loop.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import type { Buffers } from "../kv/cache.ts";
import type { KvPool } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { decodeStep, forwardStep } from "./steps/device_steps.ts";
import type { PooledModel } from "./steps/head_steps.ts";
import { HeadRunner } from "./head_runner.ts";
import { PromptRunner } from "./prompt_runner.ts";
import { type NamedStep, type NeededRows, ReadyRows } from "./steps/ready_rows.ts";
import type { DeviceRows, RowState } from "./steps/rows.ts";
import { RunnerContext, type RunnerSequence } from "./runner_context.ts";
import type { Sequence } from "./sequence.ts";
import type { DecodeStep, Step, StepRow, Submitted } from "./step.ts";
import { VerifyRunner } from "./verify_runner.ts";

/** Steps of a loop after which a faster form is looked for, and then one of what read prompts. */
const IMPROVE_AFTER = 32;

/** Runs steps. */
export class Runner implements Disposable {
  readonly #context: RunnerContext;
  readonly #prompts: PromptRunner;
  readonly #verify: VerifyRunner;
  readonly #head: HeadRunner;
  readonly #ready: ReadyRows<RowState & Buffers>;
  #rows: DeviceRows | undefined;
  /** The row of each sequence that has one, and the position that it feeds next. */
  readonly #held = new Map<Sequence, { readonly row: number; next: number }>();
  /** Rows that no sequence has, and the most steps that one of them has taken from position 0 on. */
  #vacant: number[] = [];
  #vacantSteps = 0;
  #loop: DeviceLoop<RowState & Buffers> | undefined;
  #chooser: DeviceLoop<RowState> | undefined;
  #steps = 0;
  /** What steps on their way still use, with the number of them. */
  readonly #ended: Disposable[] = [];

  /** Over the pages of a pool; `of` tells about sequences, and `processors` change the logits of all of them. */
  constructor(
    model: DecodingModel,
    pool: KvPool,
    of: (sequence: Sequence) => RunnerSequence,
    processors: readonly LogitsProcessor[],
  ) {
    this.#context = new RunnerContext(model, pool, of, processors);
    this.#prompts = new PromptRunner(this.#context, (rows) => this.#ended.push(rows));
    this.#verify = new VerifyRunner(this.#context, (rows) => this.#ended.push(rows));
    this.#head = new HeadRunner(this.#context, (rows) => this.#ended.push(rows));
    this.#ready = new ReadyRows(this.#context, (rows) => this.#stepOver(rows));
  }

  /** Whether a step may be submitted while others are on their way: the rows serve it, and the host knows its inputs. */
  canSubmit(step: Step): boolean {
    if (step.kind !== "decode") return step.kind === "prefill"; // drafts follow tokens that are known
    return this.#fits(step) && step.rows.every((row) => this.#isCurrent(row) || isKnown(row));
  }

  /** Whether drafts of some sequences can be verified without waiting for pipelines. Otherwise those are made beside other steps. */
  canVerify(sequences: readonly Sequence[], columns: number): boolean {
    return this.#verify.isReady(sequences, columns);
  }

  /** What the head of the model drafts after sequences; undefined where it cannot now. Nothing may be on its way. */
  draft(sequences: readonly Sequence[], count: number): Promise<readonly Int32Array[] | undefined> {
    this.#free();
    return this.#head.draft(sequences, count, () => this.reset());
  }

  /** Submits a step. */
  async submit(step: Step): Promise<Submitted> {
    this.#free();
    if (step.kind === "prefill") return await this.#prompts.read(step);
    return step.kind === "verify" ? await this.#verify.submit(step) : await this.#decode(step);
  }

  /** Forgets what is on the device but the pool, after steps that failed; nothing may be on its way. */
  reset(): void {
    this[Symbol.dispose]();
    this.#prompts.takeTraces(); // they go
    this.#context.model.traces[Symbol.dispose]();
  }

  /** Frees all but the pool; nothing may be on its way. */
  [Symbol.dispose](): void {
    this.#verify[Symbol.dispose]();
    this.#head[Symbol.dispose]();
    this.#releaseRows();
    this.#free();
  }

  async #decode(step: DecodeStep): Promise<Submitted> {
    if (!this.#fits(step)) this.#makeRows(step);
    const rows = this.#rows!;
    const at = this.#place(step);
    const submitted = performance.now();
    const masked = rows.sizes.masked !== undefined;
    const loop = await this.#looping(masked);
    let ticket = loop.run(masked ? 1 : step.steps);
    let choosing: DeviceLoop<RowState> | undefined;
    if (masked) {
      for (const [i, row] of at.entries()) rows.allow(row, await this.#context.of(step.rows[i].sequence).mask());
      choosing = this.#chooser ??= await this.#context.choosing(rows, rows.state);
      ticket = choosing.run(1);
    }
    for (const { sequence } of step.rows) this.#held.get(sequence)!.next += step.steps;
    this.#steps += step.steps;
    if (this.#steps >= IMPROVE_AFTER && this.#steps - step.steps < IMPROVE_AFTER) this.#improve(loop);
    const done = async (): Promise<void> => {
      await (choosing ?? loop).done(ticket, true);
      if (choosing) await loop.done(ticket);
    };
    return {
      step,
      submitted,
      done,
      drop: () => void (choosing ?? loop).drop(ticket),
      tokens: (i) => rows.tokens(at[i], step.rows[i].from + 1, step.rows[i].count),
      logprobs: (i, j, top) => rows.logprobs(at[i], step.rows[i].from + 1 + j, top),
    };
  }

  /** Has a faster form looked for of the loop, then of what read prompts. */
  #improve(loop: DeviceLoop<RowState & Buffers>): void {
    for (const what of [loop, ...this.#prompts.takeTraces()]) this.#context.model.traces.improve(what);
  }

  /** Whether a row of a step is on the device as the step needs it. */
  #isCurrent({ sequence, from }: StepRow): boolean {
    return this.#held.get(sequence)?.next === from;
  }

  /** Whether the rows there are serve a step. */
  #fits(step: DecodeStep): boolean {
    return this.#rows !== undefined && this.#ready.serves(this.#rows.sizes, this.#neededFor(step));
  }

  #neededFor({ rows }: DecodeStep): NeededRows {
    return this.#context.neededFor(rows.map(({ sequence }) => sequence));
  }

  /** Makes rows for a step; those there were are let go. Nothing may be on its way. */
  #makeRows(step: DecodeStep): void {
    this.#releaseRows();
    const sizes = this.#ready.sizesFor(this.#neededFor(step));
    this.#rows = this.#context.newRows(sizes);
    this.#vacant = Array.from({ length: sizes.rows }, (_, i) => i);
    this.#steps = 0;
  }

  /** Brings the sequences of a step into rows; returns the row of each. */
  #place(step: DecodeStep): number[] {
    const rows = this.#rows!;
    const wanted = new Map(step.rows.map(({ sequence, from }) => [sequence, from]));
    for (const [sequence, { row, next }] of this.#held) {
      if (wanted.get(sequence) === next) continue;
      this.#held.delete(sequence);
      rows.clear(row);
      this.#vacant.push(row);
    }
    this.#vacantSteps += step.steps;
    if (this.#vacantSteps > PAGE) {
      for (const row of this.#vacant) rows.rewind(row);
      this.#vacantSteps = step.steps;
    }
    return step.rows.map(({ sequence, from }) => {
      const known = this.#held.get(sequence);
      if (known) {
        rows.grow(known.row, sequence.tables);
        return known.row;
      }
      const row = this.#vacant.pop()!;
      const { settings, key } = this.#context.of(sequence);
      rows.place(row, {
        tokens: sequence.tokens,
        position: from,
        tables: sequence.tables,
        slot: sequence.slot,
        key,
        settings,
      });
      this.#held.set(sequence, { row, next: from });
      return row;
    });
  }

  /** The loop over the rows: whole steps, or their logits alone. */
  async #looping(masked: boolean): Promise<DeviceLoop<RowState & Buffers>> {
    if (this.#loop) return this.#loop;
    const { state } = this.#rows!;
    const context = this.#context;
    const all = { ...state, ...context.pool.buffers };
    const keeps = masked || context.keepsChoices;
    const { name, step } = this.#step(this.#rows!, context.pooled);
    const plain = this.#mayLeaveHead(keeps)
      ? this.#step(this.#rows!, { ...context.pooled, head: undefined })
      : undefined;
    const traced = plain && context.isFused(`${name} without head`, all, plain.step)
      ? await context.traced(`${name} without head`, all, plain.step)
      : await context.traced(name, all, step, keeps);
    return this.#loop = new DeviceLoop(all, traced);
  }

  /** A step over rows, and its name: whole, or its logits alone where masks follow. */
  #step({ sizes: { kind, masked } }: DeviceRows, pooled: PooledModel): Omit<NamedStep<RowState & Buffers>, "state"> {
    const { processors } = this.#context;
    if (masked !== undefined) return { name: "engine forward", step: (now) => forwardStep(pooled, now) };
    return {
      name: `engine step ${this.#context.nameOf(kind)}`,
      step: (now) => decodeStep(pooled, kind, now, processors),
    };
  }

  /** The step over rows of any number, where it has one name and is traced once for all. */
  #stepOver(rows: DeviceRows): NamedStep<RowState & Buffers> | undefined {
    const { pool, pooled, keepsChoices } = this.#context;
    if (rows.sizes.masked !== undefined || !keepsChoices || pooled.head !== undefined) return undefined;
    return { ...this.#step(rows, pooled), state: { ...rows.state, ...pool.buffers } };
  }

  /**
   * Whether steps may be fused only without what the head takes of them. Those of one request may: their kernels know nothing of heads. The head
   * then lacks the tokens of such steps, so its drafts after them are right less often.
   */
  #mayLeaveHead(keeps: boolean): boolean {
    return keeps && this.#context.pooled.head !== undefined && this.#rows!.sizes.rows === 1;
  }

  #releaseRows(): void {
    this.#loop?.[Symbol.dispose]();
    this.#chooser?.[Symbol.dispose]();
    if (this.#rows) this.#ended.push(this.#rows); // their log may still be read
    this.#loop = this.#chooser = this.#rows = undefined;
    this.#held.clear();
    this.#vacantSteps = 0;
  }

  #free(): void {
    for (const ended of this.#ended.splice(0)) ended[Symbol.dispose]();
  }
}

/** Whether the host knows the token that a row feeds. */
function isKnown({ sequence, from }: StepRow): boolean {
  return sequence.tokens.length > from || sequence.status === "ended";
}
