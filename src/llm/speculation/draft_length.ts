/**
 * How many tokens to draft. Verifying more of them takes longer, and pays only where they are accepted.
 *
 * {@link Acceptance} says how often the drafts of a sequence are right. {@link DraftBudget} measures what steps cost, and keeps account of
 * the time. It chooses the number of columns that gives the most tokens in that time.
 *
 * @module
 */

/** Tokens of a sequence in a step that verifies drafts: its last one and drafted ones. Each has its own trace, so there are few. */
export const COLUMNS = [2, 4, 8] as const;
/** Most drafted tokens of a sequence in a step. */
export const MAX_DRAFT = 7;

/** Time that may be lost at first, and share of all time that may be lost later, in ordinary steps. */
const ALLOWANCE = 1;
const SHARE = 0.01;
/** Most time that gains add up to, so that a change of the text shows soon. */
const MOST = 4;
/** What a draft counts for in {@link Acceptance} when the next one is noted. So about the last twenty drafts count. */
const KEPT = 0.95;
/** Tokens that were verified, and those of them that were right, before there is a draft. */
const PRIOR = { tried: 2, right: 1 } as const;
/** Ordinary steps between two drafts that are not expected to pay. */
const PROBE_PAUSE = 16;
/** Drafts in a row without a right token after which each further one doubles a pause, and the longest pause. */
const FREE_MISSES = 4;
const MOST_PAUSE = 31;
/** Weight of the last time in an average of times. */
const NEWS = 0.3;
/** What the host may add to a step, in ordinary ones. */
const HOST = 0.5;
/** Cost of two columns before it was measured, and the least share of the cost of a column that further ones are expected to have. */
const UNKNOWN_COST = 1.25;
const FURTHER = 0.5;

/** How often the drafted tokens of a sequence are right. */
export class Acceptance {
  #tried: number = PRIOR.tried;
  #right: number = PRIOR.right;
  /** Drafts in a row of which no token was right. */
  #misses = 0;

  /** Drafts in a row of which no token was right. */
  get misses(): number {
    return this.#misses;
  }

  /** Notes a draft: tokens after the first wrong one were not tried. */
  note(drafted: number, accepted: number): void {
    this.#tried = KEPT * this.#tried + Math.min(drafted, accepted + 1);
    this.#right = KEPT * this.#right + accepted;
    this.#misses = accepted > 0 ? 0 : this.#misses + 1;
  }

  /** Tokens that a step with so many drafted ones is likely to give. */
  expected(drafted: number): number {
    const share = this.#right / this.#tried;
    let [tokens, chance] = [1, 1];
    for (let i = 0; i < drafted; i++) tokens += chance *= share;
    return tokens;
  }
}

/** The sequences of the next step. */
export interface DraftCandidates {
  /** How many there are. */
  readonly sequences: number;
  /** Those that have something to draft. */
  readonly drafting: readonly { readonly acceptance: Acceptance; readonly most: number }[];
  /** Most columns that a step may have. */
  readonly maxColumns: number;
}

/** The time of steps that are done. */
export interface StepTime {
  /** Milliseconds from their submission, or from the end of those before if that is later. */
  readonly milliseconds: number;
  /** Whether the host waited for their end. Otherwise they may have ended before. */
  readonly waited: boolean;
}

/** What came of a step that verified drafts. */
export interface VerifiedStep {
  readonly sequences: number;
  readonly columns: number;
  /** Tokens that it gave in all. */
  readonly tokens: number;
  /** The fewest of {@link Acceptance.misses}. */
  readonly misses: number;
}

/** Mean time of steps with drafts. The first one is left out: it warms up. */
interface Measured {
  count: number;
  milliseconds: number;
}

/**
 * Account of the time that drafts save and lose, in ordinary steps of the same sequences. They lose at most 1 % of all time beside one step
 * at the beginning, and what the first drafts cost more than expected. Times of ordinary steps are those that follow each other. The one after a
 * draft waits for the host, which is a cost of the draft.
 */
export class DraftBudget {
  #balance = ALLOWANCE;
  #pause = 0;
  #afterDraft = false;
  /** Whether the last choice of columns was not expected to pay. */
  #probes = false;
  /** Milliseconds of an ordinary step by the number of sequences. */
  readonly #ordinary = new Map<number, number>();
  /** Those of a step with drafts, for each number of sequences and of columns. */
  readonly #drafted = new Map<number, Map<number, Measured>>();

  /** Columns of the next step: 1 if nothing should be drafted. */
  columnsFor({ sequences, drafting, maxColumns }: DraftCandidates): number {
    if (drafting.length === 0 || this.#pause > 0 || !this.#ordinary.has(sequences)) return 1;
    const worthOf = (columns: number): number => {
      const more = drafting.map(({ acceptance, most }) => acceptance.expected(Math.min(most, columns - 1)) - 1);
      return (1 + more.reduce((sum, tokens) => sum + tokens, 0) / sequences) / this.#costOf(sequences, columns);
    };
    // The costs of two columns tell what others may cost.
    const known = this.#drafted.has(sequences) ? COLUMNS : COLUMNS.slice(0, 1);
    const longest = Math.max(...drafting.map(({ most }) => most));
    const sizes = known.filter((columns) => columns <= maxColumns && (columns === 2 || columns / 2 <= longest))
      .filter((columns) => this.#costOf(sequences, columns) - 1 <= this.#balance);
    const best = sizes.reduce((a, b) => worthOf(b) > worthOf(a) ? b : a, 1);
    this.#probes = best === 1; // whether the text has changed
    return best > 1 ? best : sizes[0] ?? 1;
  }

  /** Notes ordinary steps of so many sequences. */
  note(sequences: number, steps: number, { milliseconds, waited }: StepTime): void {
    const known = this.#ordinary.get(sequences);
    const each = milliseconds / steps;
    this.#pause = Math.max(0, this.#pause - steps);
    this.#add(SHARE * steps);
    if (!this.#afterDraft && (waited || each < (known ?? 0))) {
      this.#ordinary.set(sequences, known === undefined || each < known ? each : mean(known, each));
    } else if (this.#afterDraft && waited && known !== undefined) {
      this.#add(-Math.min(steps, Math.max(0, milliseconds / known - steps)));
    }
    this.#afterDraft = false;
  }

  /** Notes a step with drafts, whose time includes that of drafting. */
  noteDrafts({ sequences, columns, tokens, misses }: VerifiedStep, milliseconds: number): void {
    this.#afterDraft = true;
    const pause = Math.min(2 ** Math.max(0, misses - FREE_MISSES) - 1, MOST_PAUSE);
    this.#pause = Math.max(pause, this.#probes ? PROBE_PAUSE : 0);
    const ordinary = this.#ordinary.get(sequences);
    if (ordinary === undefined) return;
    // A step hardly costs more than its tokens one by one. What took longer was something else, as in a first step.
    const time = Math.min(milliseconds, (columns + HOST) * ordinary);
    this.#add(tokens / sequences - time / ordinary);
    const all = this.#drafted.get(sequences) ?? new Map<number, Measured>();
    this.#drafted.set(sequences, all);
    const { count, milliseconds: known } = all.get(columns) ?? { count: 0, milliseconds: 0 };
    all.set(columns, { count: count + 1, milliseconds: count > 1 ? mean(known, time) : time });
  }

  /** What a step costs in ordinary ones. */
  #costOf(sequences: number, columns: number): number {
    const all = this.#drafted.get(sequences);
    const costOf = (size: number): number | undefined => {
      const { count = 0, milliseconds = 0 } = all?.get(size) ?? {};
      return count > 1 ? Math.max(1, milliseconds / this.#ordinary.get(sequences)!) : undefined;
    };
    const own = costOf(columns);
    if (own !== undefined) return own;
    const measured = COLUMNS.filter((size) => size < columns && costOf(size) !== undefined).at(-1) ?? 2;
    const more = (costOf(measured) ?? UNKNOWN_COST) - 1;
    const further = Math.min(1, Math.max(FURTHER, more)); // of columns that cost little, the host's part is large
    return 1 + more + further * more * (columns - measured) / (measured - 1);
  }

  #add(steps: number): void {
    this.#balance = Math.min(MOST, this.#balance + steps);
  }
}

function mean(known: number, news: number): number {
  return known + NEWS * (news - known);
}
