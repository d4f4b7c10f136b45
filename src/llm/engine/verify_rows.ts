/**
 * What the device has of sequences whose drafts are verified. Each column of each sequence is a row of {@link DeviceRows}, and each sequence has a
 * page table.
 *
 * A row feeds its token at its position and chooses the next one, as if the draft were right up to there. So it has the random key and the
 * recent tokens that this place has without drafts. The host knows all of that and writes it before each step.
 *
 * @module
 */

import { enqueue } from "../../array/compile/evaluate.ts";
import { writeState } from "../../array/compile/loop.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { keysBefore } from "../../array/random/keys.ts";
import { detach } from "../decode/state.ts";
import type { DeviceRows, VerifyState } from "./steps/rows.ts";
import type { RunnerSequence } from "./runner_context.ts";
import type { Sequence } from "./sequence.ts";
import type { VerifyRow } from "./step.ts";

/** Features of a hidden state. */
export interface HiddenFeatures {
  readonly size: number;
  readonly dtype: mx.Dtype;
}

/** Rows of sequences whose drafts are verified. */
export class VerifyRows implements Disposable {
  /** Columns of each sequence. */
  readonly columns: number;
  /** A row for each column of each sequence. */
  readonly rows: DeviceRows;
  readonly state: VerifyState;
  /** Pages that the tables of a sequence have. */
  readonly #pages: number;
  /** The sequence whose settings rows have. */
  readonly #held: (Sequence | undefined)[];

  /**
   * Takes over `rows`, which have no tables and did not begin. Each of `tables` names so many `pages` of each sequence. A head that drafts has
   * a hidden state of each, of so many features.
   */
  constructor(rows: DeviceRows, columns: number, pages: number, tables: number, hidden?: HiddenFeatures) {
    const sequences = rows.sizes.rows / columns;
    const ints = (shape: number[]): Tensor => detach(mx.zeros(shape, mx.int32));
    this.columns = columns;
    this.rows = rows;
    this.#pages = pages;
    this.#held = Array.from({ length: sequences }, () => undefined);
    this.state = {
      ...rows.state,
      starts: ints([sequences]),
      drafted: ints([sequences]),
      slots: ints([sequences]),
      tables: Array.from({ length: tables }, () => ints([sequences, pages])),
      ...(hidden && { hidden: detach(mx.zeros([sequences, 1, hidden.size], hidden.dtype)) }),
    };
  }

  /** Makes the arrays. */
  begin(): void {
    enqueue(this.rows.state, this.state); // rows have slots of their own
  }

  /** Writes sequences and their drafts; further rows write to page 0. `of` tells about a sequence. */
  place(all: readonly VerifyRow[], of: (sequence: Sequence) => RunnerSequence): void {
    const { columns, state, rows } = this;
    const [tokens, positions] = [new Int32Array(state.token.size), new Int32Array(state.token.size)];
    const keys = new Uint32Array(2 * state.token.size);
    for (const [i, { sequence, from, drafted }] of all.entries()) {
      const { settings, key } = of(sequence);
      const first = i * columns;
      // The last token again where the draft has fewer: what follows it is not taken.
      const fed = [sequence.tokens[from], ...drafted];
      const padded = Array.from({ length: columns }, (_, j) => fed[Math.min(j, fed.length - 1)]);
      if (this.#held[i] !== sequence) this.#settle(first, sequence, settings);
      this.#held[i] = sequence;
      tokens.set(padded, first);
      for (let j = 0; j < columns; j++) positions[first + j] = from + j;
      if (key) keys.set(keysBefore(key, columns).flat(), 2 * first);
      const { recent } = rows.sizes.kind;
      if (recent === 0) continue;
      const known = sequence.tokens.slice(Math.max(0, from - recent), from);
      for (let j = 0; j < columns; j++) {
        rows.see(first + j, [...known, ...padded.slice(0, j + 1)].slice(-recent), from + j);
      }
    }
    writeState(state.token, tokens);
    writeState(state.position, positions);
    if (state.key) writeState(state.key, keys);
    const counts = Int32Array.from({ length: this.#held.length }, (_, i) => all[i]?.drafted.length ?? 0);
    writeState(state.drafted, counts);
    this.#name(all, positions);
  }

  /** Writes what the first `count` tokens of sequence number `i` may be, all where there is no mask. What the others may be does not count. */
  allow(i: number, masks: readonly Int32Array[], count: number): void {
    for (let j = 0; j < count; j++) this.rows.allow(i * this.columns + j, masks[j]);
  }

  /** Writes the settings of a sequence into its rows. */
  #settle(first: number, { tokens }: Sequence, settings: RunnerSequence["settings"]): void {
    for (let j = 0; j < this.columns; j++) {
      this.rows.place(first + j, { tokens, position: 0, tables: [], slot: 0, key: undefined, settings });
    }
  }

  /** Writes where the pages and states of each sequence are. */
  #name(all: readonly VerifyRow[], positions: Int32Array): void {
    const { state, columns } = this;
    const sequences = this.#held.length;
    writeState(state.slots, Int32Array.from({ length: sequences }, (_, i) => all[i]?.sequence.slot ?? 0));
    writeState(state.starts, Int32Array.from({ length: sequences }, (_, i) => positions[i * columns]));
    for (const [group, table] of state.tables.entries()) {
      const entries = new Int32Array(sequences * this.#pages);
      for (const [i, { sequence }] of all.entries()) entries.set(sequence.tables[group], i * this.#pages);
      writeState(table, entries);
    }
  }

  /** Frees the arrays. */
  [Symbol.dispose](): void {
    const { starts, drafted, slots, tables, hidden } = this.state;
    mx.dispose({ starts, drafted, slots, tables, ...(hidden && { hidden }) });
    this.rows[Symbol.dispose]();
  }
}
