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
/** Most time that losses add up to, so that one long wait does not end drafts that save less. */
const MOST_DEBT = 3;
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
/** What the way to the device and back may add to a submission, in ordinary steps: those of a small model may take less. */
const HOST = 2;
/** A number of steps that no submission has. */
const MOST_PATIENCE = 1024;
/** So many times its steps is the patience of a submission which drafts did not shorten: it doubled twice while that was on its way. */
const UNCUT = 4;
/** What a first step of some columns may cost more than others, in ordinary steps: its loop is made then. */
const FIRST = 1;
/** Measurements of a time or a cost that it takes to be sure: one may have been disturbed. */
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

  /** Expects that drafts are right as often as others, until more is known. */
  expect({ share }: Pick<Acceptance, "share">): void {
    this.#tried = PRIOR.tried;
    this.#right = PRIOR.tried * share;
  }

  /** Tokens that were right of those that were verified. */
  get share(): number {
    return this.#right / this.#tried;
  }

  /** Tokens that a step with so many drafted ones is likely to give. */
  expected(drafted: number): number {
    const { share } = this;
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
  /** Whether the way to the device and back counts for little: they were submitted before the end of those before, or took long. */
  readonly isSteady: boolean;
  /** Milliseconds from the end of those before: all that the steps and the host's work for them took. */
  readonly elapsed: number;
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

/** A mean, and of how many measurements: of costs of steps with drafts in ordinary ones, or of milliseconds of those. */
interface Cost {
  readonly count: number;
  readonly mean: number;
}

/** Mean time of ordinary steps. */
interface Ordinary extends Cost {
  /** Whether it is of such steps: see {@link StepTime.isSteady}. */
  readonly isSteady: boolean;
}

/** What steps cost, measured. Answers of a model share it, so that each need not begin with trials. */
export class DraftCosts {
  readonly #ordinary = new Map<number, Ordinary>();
  readonly #drafted = new Map<string, Cost>();
  readonly #after = new Map<number, number>();

  /** How often drafts of all answers are right. A new answer expects that of its own. */
  readonly acceptance: Acceptance = new Acceptance();
  /** What drafts may lose, in ordinary steps: see {@link DraftBudget}. */
  balance: number = ALLOWANCE;

  /** Milliseconds of an ordinary step of so many sequences, of those that follow each other; undefined before that is known. */
  ordinary(sequences: number): number | undefined {
    const { count, mean } = this.#ordinary.get(sequences) ?? { count: 0, mean: 0 };
    return count >= SURE ? mean : undefined; // the first one may have waited for the host
  }

  /** Notes the time of an ordinary step. What is no more than an upper bound only counts where less was known. */
  noteOrdinary(
    sequences: number,
    milliseconds: number,
    { waited, isSteady }: Pick<StepTime, "waited" | "isSteady">,
  ): void {
    const known = this.#ordinary.get(sequences);
    const isBound = !waited || (known?.isSteady === true && !isSteady);
    const { count, mean } = known ?? { count: 0, mean: isBound ? 0 : milliseconds };
    if (isBound && milliseconds >= mean) return;
    const times = { count: count + 1, mean: lessAtOnce(mean, milliseconds) };
    this.#ordinary.set(sequences, { ...times, isSteady: isSteady || known?.isSteady === true });
  }

  /** The cost of a step with drafts, and how often it was measured; undefined if never. */
  of(sequences: number, columns: number): Cost | undefined {
    return this.#drafted.get(`${sequences} ${columns}`);
  }

  /** Notes the cost of a step with drafts. */
  note(sequences: number, columns: number, cost: number): void {
    const key = `${sequences} ${columns}`;
    const { count, mean } = this.#drafted.get(key) ?? { count: 0, mean: cost };
    this.#drafted.set(key, { count: count + 1, mean: lessAtOnce(mean, cost) });
  }

  /** What drafts cost after their step, in ordinary ones, until those follow each other as before; 0 before that is known. */
  after(sequences: number): number {
    return this.#after.get(sequences) ?? 0;
  }

  /** Notes what drafts cost after their step. */
  noteAfter(sequences: number, cost: number): void {
    this.#after.set(sequences, mean(this.#after.get(sequences) ?? cost, cost));
  }
}

/** The mean of times or costs. Whatever disturbs a measurement adds to it, so less counts at once. */
function lessAtOnce(known: number, news: number): number {
  return news < known ? news : mean(known, news);
}

/**
 * Account of the time that drafts save and lose, in ordinary steps of the same sequences. A draft is made where its expected loss is no more
 * than the balance. That begins with 1.5 steps, and grows by 1 % of all steps and by what drafts save, to ten steps at most. Costs that are not
 * known yet may lose more.
 *
 * Drafts are compared with ordinary steps as they are without any: many of a submission, and another submission on its way meanwhile. Drafts
 * have the host wait, and shorten submissions after them. All of that time is theirs: it counts from the end of the step before, until
 * submissions are as long again.
 */
export class DraftBudget {
  #pause = 0;
  #afterDraft = false;
  /** What the last draft cost after its step; undefined if that is over. */
  #after: number | undefined;
  /** Ordinary steps of a submission at most: few after a right draft, so that the next match is seen soon. */
  #patience = MOST_PATIENCE;
  /** Whether drafts are wanted whatever they cost: then short submissions are no loss. */
  #isFixed = false;
  /** Whether the last choice of columns was not expected to pay. */
  #probes = false;
  readonly #costs: DraftCosts;

  /** With costs that were measured before. Default none. */
  constructor(costs: DraftCosts = new DraftCosts()) {
    this.#costs = costs;
    costs.balance = Math.min(costs.balance, ALLOWANCE); // what other texts have gained is not to be lost by this one
  }

  /** Columns of the next step: 1 if nothing should be drafted. */
  columnsFor({ sequences, drafting, maxColumns }: DraftCandidates): number {
    // The last draft of a sequence may have been right without a step that verified it.
    const pauses = this.#pause > 0 && drafting.every(({ acceptance }) => acceptance.misses > 0);
    if (drafting.length === 0 || pauses || this.#costs.ordinary(sequences) === undefined) return 1;
    const extraOf = (columns: number): number => {
      const more = drafting.map(({ acceptance, most }) => acceptance.expected(Math.min(most, columns - 1)) - 1);
      return more.reduce((sum, tokens) => sum + tokens, 0) / sequences;
    };
    const costOf = (columns: number): number => this.#costOf(sequences, columns);
    const worthOf = (columns: number): number => (1 + extraOf(columns)) / costOf(columns);
    // Drafts that pay follow each other. After others there are ordinary steps again.
    const afterOf = (columns: number): number => worthOf(columns) > 1 ? 0 : this.#costs.after(sequences);
    // What two columns cost tells what others may cost.
    const known = COLUMNS.some((size) => this.#costs.of(sequences, size)) ? COLUMNS : COLUMNS.slice(0, 1);
    const longest = Math.max(...drafting.map(({ most }) => most));
    const sizes = known.filter((columns) => columns <= maxColumns && (columns === 2 || columns / 2 <= longest))
      .filter((columns) => costOf(columns) + afterOf(columns) - 1 - TRUST * extraOf(columns) <= this.#costs.balance);
    if (sizes.length === 0) return 1;
    const best = sizes.reduce((a, b) => worthOf(b) > worthOf(a) ? b : a);
    this.#probes = worthOf(best) <= 1; // whether the text has changed
    return best;
  }

  /** How many of `size` ordinary steps to submit at a time: one where drafts are wanted whatever they cost. */
  fitting(size: number, isFixed = false): number {
    this.#isFixed = isFixed;
    if (isFixed) this.#patience = 1;
    return Math.min(size, this.#patience);
  }

  /** Notes ordinary steps of so many sequences. */
  note(sequences: number, steps: number, { milliseconds, waited, isSteady, elapsed }: StepTime): void {
    const known = this.#costs.ordinary(sequences);
    const isCut = UNCUT * steps >= this.#patience;
    this.#pause = Math.max(0, this.#pause - steps);
    this.#patience = Math.min(2 * this.#patience, MOST_PATIENCE);
    this.#add(SHARE * steps);
    if (!this.#afterDraft) this.#costs.noteOrdinary(sequences, milliseconds / steps, { waited, isSteady });
    if (known !== undefined && !this.#isFixed && (this.#afterDraft || isCut)) {
      const lost = Math.min(HOST, Math.max(0, elapsed / known - steps));
      this.#add(-lost);
      if (this.#after !== undefined) this.#after += lost;
    } else this.#endAfter(sequences);
    this.#afterDraft = false;
  }

  /** Notes a step with drafts, and the time from the end of the step before. */
  noteDrafts({ sequences, columns, tokens, misses, isFirst, isFixed }: VerifiedStep, elapsed: number): void {
    const ordinary = this.#costs.ordinary(sequences);
    this.#endAfter(sequences);
    this.#after = isFixed ? undefined : 0;
    this.#afterDraft = true;
    const pause = Math.min(2 ** Math.max(0, misses - FREE_MISSES) - 1, MOST_PAUSE);
    this.#pause = Math.max(pause, this.#probes && misses > 0 ? PROBE_PAUSE : 0);
    if (misses === 0 && !this.#probes) this.#patience = 1;
    if (ordinary === undefined) return;
    // A step hardly costs more than its tokens one by one. What took longer was something else.
    const cost = Math.min(elapsed / ordinary, columns + HOST);
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

  /** Ends the time after a draft. */
  #endAfter(sequences: number): void {
    if (this.#after !== undefined) this.#costs.noteAfter(sequences, this.#after);
    this.#after = undefined;
  }

  #add(steps: number): void {
    this.#costs.balance = Math.max(-MOST_DEBT, Math.min(MOST, this.#costs.balance + steps));
  }
}

function mean(known: number, news: number): number {
  return known + NEWS * (news - known);
}
