/**
 * How many tokens to draft. Verifying more of them takes longer, and pays only where they are accepted.
 *
 * {@link Acceptance} says how often the drafts of a sequence are right, and {@link DraftCosts} what steps cost. {@link DraftBudget} keeps
 * account of the time, and chooses the number of columns that gives the most tokens in it.
 *
 * @module
 */

/** Tokens of a sequence in a step that verifies drafts: its last one and drafted ones. Each has its own trace, so there are few. */
export const COLUMNS = [2, 4, 8] as const;
/** Most drafted tokens of a sequence in a step. */
export const MAX_DRAFT = 7;

/** Time that may be lost at first, and share of all time that may be lost later, in ordinary steps. */
const ALLOWANCE = 1.5;
const SHARE = 0.01;
/** Most time that gains add up to, so that a change of the text shows soon. */
const MOST = 10;
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
/** What a first step of some columns may cost more than others, in ordinary steps: its loop is made then. */
const FIRST = 1;
/** Measurements of a cost after which it may count for more than is expected: a few may have been disturbed. */
const SURE = 2;
/** Cost of two columns before it was measured, and what each further one is expected to add: weights are read once for all. */
const UNKNOWN_COST = 1.25;
const FURTHER = 0.1;
/** Share of the expected tokens that is counted on. */
const TRUST = 0.9;

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
  /** Whether it was the first one of its loop, whose time says little of others. */
  readonly isFirst: boolean;
  /** Whether it was asked for whatever it costs: then the account has its cost, and no loss. */
  readonly isFixed: boolean;
}

/** Mean cost of steps with drafts, in ordinary steps. */
interface Cost {
  readonly count: number;
  readonly mean: number;
}

/** What steps cost, measured. Answers of a model share it, so that each need not begin with trials. */
export class DraftCosts {
  /** Milliseconds of an ordinary step by the number of sequences. */
  readonly ordinary = new Map<number, number>();
  readonly #drafted = new Map<string, Cost>();

  /** The cost of a step with drafts, and how often it was measured; undefined if never. */
  of(sequences: number, columns: number): Cost | undefined {
    return this.#drafted.get(`${sequences} ${columns}`);
  }

  /** Notes the cost of a step with drafts. Whatever disturbs a measurement adds to it, so less counts at once. */
  note(sequences: number, columns: number, cost: number): void {
    const key = `${sequences} ${columns}`;
    const { count, mean: known } = this.#drafted.get(key) ?? { count: 0, mean: cost };
    this.#drafted.set(key, { count: count + 1, mean: cost < known ? cost : mean(known, cost) });
  }
}

/**
 * Account of the time that drafts save and lose, in ordinary steps of the same sequences. A draft is made where its expected loss is no more
 * than the balance. That begins with 1.5 steps, and grows by 1 % of all steps and by what drafts save, to ten steps at most. Costs that are not
 * known yet may lose more. Times of ordinary steps are those that follow each other. The one after a draft waits for the host, which is a cost
 * of the draft.
 */
export class DraftBudget {
  #balance = ALLOWANCE;
  #pause = 0;
  #afterDraft = false;
  /** Whether the last choice of columns was not expected to pay. */
  #probes = false;
  readonly #costs: DraftCosts;

  /** With costs that were measured before. Default none. */
  constructor(costs: DraftCosts = new DraftCosts()) {
    this.#costs = costs;
  }

  /** Columns of the next step: 1 if nothing should be drafted. */
  columnsFor({ sequences, drafting, maxColumns }: DraftCandidates): number {
    // The last draft of a sequence may have been right without a step that verified it.
    const pauses = this.#pause > 0 && drafting.every(({ acceptance }) => acceptance.misses > 0);
    if (drafting.length === 0 || pauses || !this.#costs.ordinary.has(sequences)) return 1;
    const extraOf = (columns: number): number => {
      const more = drafting.map(({ acceptance, most }) => acceptance.expected(Math.min(most, columns - 1)) - 1);
      return more.reduce((sum, tokens) => sum + tokens, 0) / sequences;
    };
    const worthOf = (columns: number): number => (1 + extraOf(columns)) / this.#costOf(sequences, columns);
    // What two columns cost tells what others may cost.
    const known = COLUMNS.some((size) => this.#costs.of(sequences, size)) ? COLUMNS : COLUMNS.slice(0, 1);
    const longest = Math.max(...drafting.map(({ most }) => most));
    const sizes = known.filter((columns) => columns <= maxColumns && (columns === 2 || columns / 2 <= longest))
      .filter((columns) => this.#costOf(sequences, columns) - 1 - TRUST * extraOf(columns) <= this.#balance);
    if (sizes.length === 0) return 1;
    const best = sizes.reduce((a, b) => worthOf(b) > worthOf(a) ? b : a);
    this.#probes = worthOf(best) <= 1; // whether the text has changed
    return best;
  }

  /** Notes ordinary steps of so many sequences. */
  note(sequences: number, steps: number, { milliseconds, waited }: StepTime): void {
    const known = this.#costs.ordinary.get(sequences);
    const each = milliseconds / steps;
    this.#pause = Math.max(0, this.#pause - steps);
    this.#add(SHARE * steps);
    if (!this.#afterDraft && (waited || each < (known ?? 0))) {
      this.#costs.ordinary.set(sequences, known === undefined || each < known ? each : mean(known, each));
    } else if (this.#afterDraft && waited && known !== undefined) {
      this.#add(-Math.min(steps, Math.max(0, milliseconds / known - steps)));
    }
    this.#afterDraft = false;
  }

  /** Notes a step with drafts, whose time includes that of drafting. */
  noteDrafts({ sequences, columns, tokens, misses, isFirst, isFixed }: VerifiedStep, milliseconds: number): void {
    this.#afterDraft = true;
    const pause = Math.min(2 ** Math.max(0, misses - FREE_MISSES) - 1, MOST_PAUSE);
    this.#pause = Math.max(pause, this.#probes && misses > 0 ? PROBE_PAUSE : 0);
    const ordinary = this.#costs.ordinary.get(sequences);
    if (ordinary === undefined) return;
    // A step hardly costs more than its tokens one by one. What took longer was something else.
    const cost = Math.min(milliseconds / ordinary, columns + HOST);
    const loss = isFirst ? Math.min(cost, this.#costOf(sequences, columns) + FIRST) : cost;
    if (!isFixed) this.#add(tokens / sequences - loss);
    if (!isFirst) this.#costs.note(sequences, columns, cost);
  }

  /** What a step costs in ordinary ones. */
  #costOf(sequences: number, columns: number): number {
    const { count = 0, mean = Infinity } = this.#costs.of(sequences, columns) ?? {};
    if (count >= SURE) return Math.max(1, mean);
    const fewer = COLUMNS.filter((size) => size < columns && this.#costs.of(sequences, size)).at(-1);
    const known = fewer ? this.#costOf(sequences, fewer) : UNKNOWN_COST;
    const expected = known + FURTHER * (columns - (fewer ?? COLUMNS[0]));
    return Math.max(1, Math.min(mean, expected));
  }

  #add(steps: number): void {
    this.#balance = Math.min(MOST, this.#balance + steps);
  }
}

function mean(known: number, news: number): number {
  return known + NEWS * (news - known);
}
