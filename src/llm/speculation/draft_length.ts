/**
 * How many tokens to draft. Verifying more of them takes longer, and pays only where they are accepted.
 *
 * @module
 */

/** Tokens of a step that verifies drafts: the last one of the sequence and drafted ones. Each has its own trace, so there are few. */
export const COLUMNS = [2, 4, 8] as const;
/** Most drafted tokens of a step. */
export const MAX_DRAFT = 7;

/** Time that may be lost at first, and share of all time that may be lost later, in ordinary steps. */
const ALLOWANCE = 2;
const SHARE = 0.02;
/** Least time of a drafted token: times of ordinary steps may be measured too long. */
const LEAST = 0.05;
/** Most tokens without a draft after wrong ones. */
const MOST_PAUSE = 31;
/** Most time that gains and losses add up to, so that a change of the text shows soon. */
const MOST = 8;

/** What came of a step that verified drafts. */
export interface VerifiedDraft {
  readonly drafted: number;
  readonly accepted: number;
  /** How long it took, in ordinary steps; Infinity where that is not known. */
  readonly cost: number;
}

/** What decides how many tokens are drafted. */
export interface DraftLength {
  /** Tokens to draft now; 0 for none. */
  readonly tokens: number;
  /** Notes ordinary steps. */
  note(steps: number): void;
  /** Notes a step that verified drafts. */
  noteDraft(draft: VerifiedDraft): void;
}

/** Always the same number. */
export class FixedDraftLength implements DraftLength {
  /** Of so many tokens. */
  constructor(readonly tokens: number) {}

  /** See {@link DraftLength.note}. */
  note(): void {}

  /** See {@link DraftLength.noteDraft}. */
  noteDraft(): void {}
}

/**
 * Drafts more while all is accepted and that saves time, and less after losses. It keeps account of the time: drafts that were not accepted
 * lose at most 2 % of all steps, but for two steps at the beginning. After each wrong draft in a row it waits twice as long, so that this holds where
 * times are measured wrong too.
 */
export class AdaptiveDraftLength implements DraftLength {
  readonly #most: number;
  /** Of {@link COLUMNS}. */
  #level = 1;
  /** What drafts saved, and may lose, in ordinary steps. */
  #balance = ALLOWANCE;
  /** Drafts in a row of which no token was right, and ordinary steps to take before the next one. */
  #misses = 0;
  #pause = 0;

  /** For at most so many tokens. */
  constructor(most: number) {
    this.#most = most;
  }

  /** See {@link DraftLength.tokens}. */
  get tokens(): number {
    return this.#balance > 0 && this.#pause === 0 ? Math.min(this.#most, COLUMNS[this.#level] - 1) : 0;
  }

  /** See {@link DraftLength.note}. */
  note(steps: number): void {
    this.#add(SHARE * steps);
    this.#pause = Math.max(0, this.#pause - steps);
  }

  /** See {@link DraftLength.noteDraft}. */
  noteDraft({ drafted, accepted, cost }: VerifiedDraft): void {
    // A step never costs more than its tokens one by one. What took longer was something else, as in a first step.
    const gain = 1 + accepted - Math.min(Math.max(cost, 1 + LEAST * drafted), 1 + drafted);
    this.#add(gain);
    this.#misses = accepted > 0 ? 0 : this.#misses + 1;
    this.#pause = Math.min(2 ** this.#misses - 1, MOST_PAUSE);
    if (accepted === drafted && gain > 0) this.#level = Math.min(this.#level + 1, COLUMNS.length - 1);
    else if (gain < 0 || 2 * accepted < drafted) this.#level = Math.max(this.#level - 1, 0);
  }

  #add(steps: number): void {
    this.#balance = Math.min(MOST, this.#balance + steps);
  }
}
