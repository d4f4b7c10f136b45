/**
 * What the parts of a runner have in common: the model and its pool, how tokens are chosen, and the traces of steps.
 *
 * @module
 */

import { DeviceLoop, type TracedStep } from "../../array/compile/loop.ts";
import * as mx from "../../array/mod.ts";
import type { Key } from "../../array/random/keys.ts";
import type { KvPool } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { type ChoiceKind, type ChoiceSettings, kindOf, powerOfTwo } from "./steps/choice.ts";
import { chooseStep } from "./steps/device_steps.ts";
import type { PooledModel } from "./steps/head_steps.ts";
import type { NeededRows } from "./steps/ready_rows.ts";
import { DeviceRows, type RowState } from "./steps/rows.ts";
import type { Sequence } from "./sequence.ts";

/** What a runner asks about a sequence. */
export interface RunnerSequence {
  readonly settings: ChoiceSettings;
  /** Whether masks say what its tokens may be. */
  readonly constrained: boolean;
  /** What its next token may be; undefined where it may be any, or none is wanted because it has ended meanwhile. */
  mask(): Promise<Int32Array | undefined>;
  /** The same of its next token and after each of its drafted ones; none where they may be any. */
  masks(): Promise<readonly Int32Array[]>;
  /** State of its random numbers before the next token that the host does not know. */
  readonly key: Key | undefined;
}

/** Fewest pages in a table, so that short sequences share traces. */
const MIN_COLUMNS = 4;

/** Columns of a table of so many pages. */
export function columnsFor(pages: number): number {
  return Math.max(MIN_COLUMNS, powerOfTwo(pages));
}

/** Rows that serve `count` sequences: few numbers serve all, but where each row costs they are close to it. */
export function bucketOf(count: number, tiled: boolean): number {
  return tiled || count > 8 ? powerOfTwo(count) : count;
}

/** A step over a state, or its trace where that is kept. */
type Traced<S> = TracedStep<S> | ((state: S) => S);

/** The context of a runner's parts. */
export class RunnerContext {
  readonly model: DecodingModel;
  readonly pool: KvPool;
  /** The model and its places in the pool. */
  readonly pooled: PooledModel;
  /** Tells about a sequence. */
  readonly of: (sequence: Sequence) => RunnerSequence;
  /** Change the logits of all sequences. */
  readonly processors: readonly LogitsProcessor[];
  /** Of logits. */
  readonly dtype: mx.Dtype;
  /** Names the graphs of the processors; undefined where one has no name, so that its steps are not kept. */
  readonly #graphs: string | undefined;

  constructor(
    model: DecodingModel,
    pool: KvPool,
    of: (sequence: Sequence) => RunnerSequence,
    processors: readonly LogitsProcessor[],
  ) {
    this.model = model;
    this.pool = pool;
    this.pooled = { model, layers: pool.sizes.groups?.places, head: pool.sizes.head };
    this.of = of;
    this.processors = processors;
    this.dtype = mx.tidy(() => model.forward(mx.zeros([1, 1], mx.int32)).dtype);
    const graphs = processors.map(({ graph }) => graph);
    this.#graphs = graphs.includes(undefined) ? undefined : graphs.join(" ");
  }

  /** Whether steps that choose tokens are traced once for all. */
  get keepsChoices(): boolean {
    return this.#graphs !== undefined;
  }

  /** The least rows that serve some sequences. */
  neededFor(sequences: readonly Sequence[]): NeededRows {
    const all = sequences.map((sequence) => this.of(sequence));
    return {
      rows: bucketOf(sequences.length, this.model.device.tiled),
      columns: columnsFor(Math.max(...sequences.map(({ pages }) => pages.length))),
      kind: this.kindOf(all.map(({ settings }) => settings)),
      masked: all.some((one) => one.constrained) ? this.model.config.vocabSize : undefined,
    };
  }

  /** The kind that serves all of some rows. */
  kindOf(all: readonly ChoiceSettings[]): ChoiceKind {
    return kindOf(all, this.processors.length > 0);
  }

  /** Names the choice of tokens. */
  nameOf(kind: ChoiceKind): string {
    return `${Object.values(kind).join(" ")} ${this.#graphs}`;
  }

  /** Rows on the model's device, which need not be the default one. With `begin: false` they only have shapes, as traces need them. */
  newRows(sizes: NeededRows, { begin = true }: { readonly begin?: boolean } = {}): DeviceRows {
    const tables = this.pool.sizes.groups?.tables.length ?? 1;
    const { device, placement } = this.model;
    const own = { tables, dtype: this.dtype, isCopied: placement !== undefined };
    return mx.withDevice(device.name, () => {
      const rows = new DeviceRows({ ...sizes, ...own });
      return begin ? rows.begin() : rows;
    });
  }

  /** A loop that chooses tokens from logits. */
  async choosing(
    { sizes: { kind, masked } }: Pick<DeviceRows, "sizes">,
    state: RowState,
  ): Promise<DeviceLoop<RowState>> {
    const name = `engine choose ${this.nameOf(kind)} ${masked !== undefined}`;
    const step = (now: RowState): RowState => chooseStep(kind, now, this.processors);
    return new DeviceLoop(state, await this.traced(name, state, step, this.keepsChoices));
  }

  /** Whether the kernels of a region compute a step. */
  isFused<S>(name: string, state: S, step: (state: S) => S): boolean {
    return this.model.traces.trace(name, state, step).isFused;
  }

  /** A step, its pipelines made, or the trace of it where that is kept. */
  async traced<S>(name: string, state: S, step: (state: S) => S, keeps: boolean = true): Promise<Traced<S>> {
    if (!keeps) return step;
    const { traces } = this.model;
    const traced = traces.trace(name, state, step);
    if (!traced.ready) await traces.prepare(traced as TracedStep<unknown>);
    return traced;
  }
}
