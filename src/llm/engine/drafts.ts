/**
 * What is drafted for the next step of an engine, and whether that pays.
 *
 * A step that verifies drafts computes the same number of columns for each sequence. Its rows are at most {@link MAX_ROWS}: the kernels of
 * a batch take so many together and read the weights once. With more sequences nothing is drafted. So a sequence has 7 drafted tokens
 * at most where there are two, 3 where there are four, and 1 where there are eight. Models whose head drafts compute layers op by op.
 * Twice as many rows are one tile there, so twice as many sequences have as many tokens.
 *
 * The number of columns is a choice for the whole batch: its step takes as long as its rows, and gives what all drafts give.
 * {@link DraftBudget} chooses.
 *
 * @module
 */

import { COLUMNS, DraftBudget, DraftCosts, type StepTime } from "../speculation/draft_length.ts";
import type { Speculation } from "../speculation/speculation.ts";
import { bucketOf } from "./runner_context.ts";
import type { Drafts } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import type { DecodeStep, VerifyStep } from "./step.ts";

/** Most rows of a step that verifies drafts: by the kernels of a batch, and by those of a model whose head drafts. */
export const MAX_ROWS = { fused: 16, head: 32 } as const;
/** What drafts are made for. */
export interface DraftSource {
  /** Drafts of a sequence; undefined where it has none. */
  readonly speculationOf: (sequence: Sequence) => Speculation | undefined;
  /** Drafted tokens of a sequence as far as its grammar allows them, and those that it demands, `most` in all. */
  readonly allowed: (sequence: Sequence, drafted: readonly number[], most: number) => Promise<readonly number[]>;
  /** Ends a request whose drafter failed. */
  readonly fail: (sequence: Sequence, error: unknown) => void;
  /** Whether a step over sequences has its pipelines. */
  readonly isReady: (sequences: readonly Sequence[], columns: number) => boolean;
  /** Whether the host waits for each step because of a grammar. */
  readonly isConstrained: () => boolean;
  /** Whether kernels compute rows in tiles. */
  readonly tiled: boolean;
  /** Most rows of a step: see {@link MAX_ROWS}. */
  readonly maxRows: number;
}

/** Drafts of an engine's sequences. */
export class EngineDrafts {
  readonly #source: DraftSource;
  readonly #costs = { free: new DraftCosts(), constrained: new DraftCosts() };
  readonly #budgets = {
    free: new DraftBudget(this.#costs.free),
    constrained: new DraftBudget(this.#costs.constrained),
  };
  #drafted = 0;

  constructor(source: DraftSource) {
    this.#source = source;
  }

  /** Tokens that were drafted and verified. */
  get drafted(): number {
    return this.#drafted;
  }

  /** What steps cost as they are now. */
  get #kind(): "free" | "constrained" {
    return this.#source.isConstrained() ? "constrained" : "free";
  }

  /** Takes the drafts of a new request, which are likely to be right as often as others. */
  begin({ acceptance }: Speculation): void {
    acceptance.expect(this.#costs[this.#kind].acceptance);
  }

  /** How many of `size` ordinary steps of sequences to submit at a time: one where drafts are wanted whatever they cost. */
  fitting(size: number, sequences: readonly Sequence[]): number {
    const isFixed = sequences.some((sequence) => this.#source.speculationOf(sequence)?.adaptive === false);
    return this.#budgets[this.#kind].fitting(size, isFixed);
  }

  /** Columns of the next step of sequences, as far as their tokens are known; 1 where nothing should be drafted. */
  columnsFor(sequences: readonly Sequence[]): number {
    const maxColumns = Math.floor(this.#source.maxRows / bucketOf(Math.max(1, sequences.length), this.#source.tiled));
    if (maxColumns < COLUMNS[0]) return 1;
    const drafting: { readonly speculation: Speculation; readonly most: number }[] = [];
    for (const sequence of sequences) {
      const speculation = this.#source.speculationOf(sequence);
      if (!speculation) continue;
      try {
        speculation.follow(sequence.tokens, sequence.promptLength);
        const most = mostFor(sequence, speculation);
        if (most > 0 && speculation.matches) drafting.push({ speculation, most });
      } catch (error) {
        this.#source.fail(sequence, error);
      }
    }
    if (drafting.length === 0) return 1;
    const columns = this.#columns(sequences.length, drafting, maxColumns);
    return columns > 1 && this.#source.isReady(sequences, columns) ? columns : 1;
  }

  #columns(
    sequences: number,
    drafting: readonly { readonly speculation: Speculation; readonly most: number }[],
    maxColumns: number,
  ): number {
    const fixed = drafting.filter(({ speculation }) => !speculation.adaptive).map(({ most }) => most);
    const fitting = COLUMNS.filter((columns) => columns <= maxColumns);
    const wanted = Math.max(0, ...fixed) + 1;
    if (wanted > 1) return fitting.find((columns) => columns >= wanted) ?? fitting.at(-1)!;
    const candidates = drafting.map(({ speculation: { acceptance }, most }) => ({ acceptance, most }));
    return this.#budgets[this.#kind].columnsFor({ sequences, drafting: candidates, maxColumns });
  }

  /** Drafts of sequences for a step of so many columns. No step may be on its way. */
  async draft(sequences: readonly Sequence[], columns: number): Promise<Drafts | undefined> {
    const tokens = new Map<Sequence, readonly number[]>();
    await Promise.all(sequences.map(async (sequence) => {
      const speculation = this.#source.speculationOf(sequence);
      try {
        if (!speculation?.matches) return;
        const most = Math.min(columns - 1, mostFor(sequence, speculation));
        const drafted = await this.#source.allowed(sequence, await speculation.draft(most), most);
        if (drafted.length > 0) tokens.set(sequence, drafted);
      } catch (error) {
        this.#source.fail(sequence, error);
      }
    }));
    const longest = Math.max(0, ...Array.from(tokens.values(), (drafted) => drafted.length));
    return longest === 0 ? undefined : { tokens, columns: COLUMNS.find((count) => count > longest)! };
  }

  /** Notes ordinary steps. */
  note({ rows, steps }: DecodeStep, time: StepTime): void {
    this.#budgets[this.#kind].note(rows.length, steps, time);
  }

  /** Notes a step that verified drafts, and what it chose for each of its rows; `isFirst`: of its loop. */
  noteVerified(
    { rows, columns }: VerifyStep,
    chosen: readonly ArrayLike<number>[],
    isFirst: boolean,
    { elapsed }: StepTime,
  ): void {
    let [tokens, misses, isFixed] = [0, Infinity, false];
    for (const [i, { sequence, drafted }] of rows.entries()) {
      tokens += chosen[i].length;
      const speculation = this.#source.speculationOf(sequence);
      if (drafted.length === 0 || !speculation) continue;
      isFixed ||= !speculation.adaptive;
      const accepted = Math.max(0, chosen[i].length - 1);
      speculation.note(drafted.length, accepted);
      this.#costs[this.#kind].acceptance.note(drafted.length, accepted);
      this.#drafted += drafted.length;
      misses = Math.min(misses, speculation.acceptance.misses);
    }
    const verified = { sequences: rows.length, columns, tokens, misses, isFirst, isFixed };
    this.#budgets[this.#kind].noteDrafts(verified, elapsed);
  }
}

/** Most drafted tokens of a sequence: its last token needs no position. */
function mostFor({ limit, tokens }: Sequence, { most }: Speculation): number {
  return Math.min(most, limit - tokens.length - 1);
}
