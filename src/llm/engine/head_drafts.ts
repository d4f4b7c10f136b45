/**
 * Drafts by the head of the model for the sequences of an engine. Those that are asked for at once are computed together.
 *
 * @module
 */

import type { Drafter } from "../speculation/drafter.ts";
import type { Sequence } from "./sequence.ts";

/** Computes `count` tokens after each sequence; none where it cannot now. */
export type DraftTogether = (
  sequences: readonly Sequence[],
  count: number,
) => Promise<readonly ArrayLike<number>[] | undefined>;

/** A draft that was asked for. */
interface Asked {
  readonly sequence: Sequence;
  readonly count: number;
  readonly resolve: (tokens: readonly number[]) => void;
  readonly reject: (error: unknown) => void;
}

/** Joins the drafts of sequences. */
export class HeadDrafts {
  readonly #together: DraftTogether;
  #asked: Asked[] = [];

  /** Drafts that are asked for in one turn of the event loop are one call of `together`. */
  constructor(together: DraftTogether) {
    this.#together = together;
  }

  /** What drafts a sequence. It gets no tokens: those of the sequence are on the device. */
  drafterFor(sequence: Sequence): Drafter {
    return { extend: () => {}, draft: (count) => this.#ask(sequence, count) };
  }

  #ask(sequence: Sequence, count: number): Promise<readonly number[]> {
    return new Promise((resolve, reject) => {
      if (this.#asked.push({ sequence, count, resolve, reject }) === 1) queueMicrotask(() => void this.#draft());
    });
  }

  async #draft(): Promise<void> {
    const all = this.#asked;
    this.#asked = [];
    // One that was aborted meanwhile has no pages.
    const asked = all.filter(({ sequence }) => sequence.status === "running");
    for (const { sequence, resolve } of all) if (sequence.status !== "running") resolve([]);
    if (asked.length === 0) return;
    try {
      const most = Math.max(...asked.map(({ count }) => count));
      const drafts = await this.#together(asked.map(({ sequence }) => sequence), most);
      for (const [i, { count, resolve }] of asked.entries()) resolve(chosenOf(drafts?.[i] ?? []).slice(0, count));
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
}

/** Drafted tokens up to the first one that was not chosen: logits had NaN in them. A page may have those of an earlier request. */
function chosenOf(tokens: ArrayLike<number>): number[] {
  const all = Array.from(tokens);
  const end = all.findIndex((id) => id < 0);
  return end < 0 ? all : all.slice(0, end);
}
