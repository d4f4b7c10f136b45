/**
 * Which step comes next: parts of prompts, or the next tokens of all sequences that generate.
 *
 * The scheduler is pure: it knows neither device nor time. Its caller, the runner, submits each step of {@link Scheduler.schedule} in order
 * and gives the results to {@link Scheduler.commit} in the same order.
 *
 * A step may be scheduled while others are on their way, before their tokens are known. Tokens are on the device, where the next step
 * finds them. A sequence that ended at one step may so be in the next one; the results of that are dropped. A sequence keeps its
 * place and its pages until all steps that have it are committed. `schedule()` returns undefined where it cannot go on
 * before a commit, so a caller commits the oldest step and asks again. With no step on its way, undefined means that all is done.
 *
 * Turns: prompts go first, until `tokenBudget` tokens of them have been read. A step has parts of as many as it has room for, see
 * prefill_parts.ts. Then every sequence whose prompt is read gets a decode step. That has one token where a prompt waits that could be read, else as many as
 * the caller allows. A stepwise sequence, whose next token needs the host's answer to the last one, has one token. It is left out until its last step is
 * committed.
 *
 * Drafts: a caller may give tokens that are likely to follow. A step then verifies them instead of decoding, for all sequences that decode. It
 * comes when no step is on its way, since only then all tokens are known. Until it is committed none of them decodes. Positions of tokens that
 * were not chosen are given back then. Drafts get no page that needs an eviction.
 *
 * Order: by `rankOf()`, which is the priority and the time of waiting. A request whose pages cannot be had is not overtaken.
 *
 * Memory: a sequence is admitted where there are pages for all of its tokens and one more. A page for each running sequence that will
 * need another has to be there too. Where a decode step finds no page, prefixes are evicted. If that is not enough, the sequence last in order gives its pages to the prefix tree and waits again. It reads what it had as a prompt
 * later. The first in order goes on in any case.
 *
 * Windows: where layers have one, a sequence has their pages as it needs them, and gives them back when it has passed them. A prompt is read as
 * far as there are pages for it. If no prompt can be read on and no sequence decodes, the last in order waits again.
 *
 * Recurrent states: a sequence has a slot of them while it has pages. Parts of a prompt end where states are kept for later requests. That is
 * at its last whole page, after what it has in common with an earlier prompt, and every few pages.
 *
 * @module
 */

import { PageManager, type PageOptions } from "./pages/page_manager.ts";
import { PrefillParts } from "./prefill_parts.ts";
import type { Match } from "./pages/prefix_node.ts";
import type { PageCopy } from "./pages/sequence_pages.ts";
import { addInOrder, checkLists, decodeEnd, isDecoding, isReading, rankOf, type Sequence } from "./sequence.ts";
import { checkResult, type PrefillRow, type PrefillStep, type Step, type StepResult, type VerifyStep } from "./step.ts";

/** What a {@link Scheduler} may use. */
export interface SchedulerOptions extends PageOptions {
  /** Most sequences with pages at a time. */
  readonly maxSequences: number;
  /** Most prompt tokens of all steps between two decode steps. With Infinity, all prompts that can be read go first. */
  readonly tokenBudget: number;
  /** Most prompt tokens of a step; `tokenBudget` at most, which is the default. */
  readonly prefillStepSize?: number;
  /** Most prompts of a step. Default no limit. Where layers have states, a step reads one. */
  readonly maxPrompts?: number;
  /** Most prompt tokens of a step that has several prompts. Longer parts are read alone. Default no limit but that of a step. */
  readonly maxTogether?: number;
  /** Of several prompts in a step, the tokens of each count as a multiple of so many. Default 1. */
  readonly prefillTile?: number;
  /** Most sequences that wait beside those for which a place is free. */
  readonly maxQueue: number;
}

/** Why a sequence was not taken: "queue" may be otherwise later, "memory" never is. */
export interface Refusal {
  readonly code: "queue" | "memory";
  readonly message: string;
}

/** Drafted tokens for the next step. */
export interface Drafts {
  /** Those of each sequence that has some. */
  readonly tokens: ReadonlyMap<Sequence, readonly number[]>;
  /** Positions that the step computes of each sequence: more than any has drafted tokens. */
  readonly columns: number;
}

/** Orders the steps of many sequences. */
export class Scheduler {
  readonly #options: Required<Omit<SchedulerOptions, keyof PageOptions>>;
  readonly #pages: PageManager;
  /** In order, without pages. */
  readonly #waiting: Sequence[] = [];
  /** In order, with pages. */
  readonly #running: Sequence[] = [];
  /** Ended ones with pages that steps on their way may write to. */
  readonly #ending = new Set<Sequence>();
  /** Steps that are not committed, the oldest first. */
  readonly #steps: Step[] = [];
  #arrivals = 0;
  #admissions = 0;
  #preemptions = 0;
  /** Prompt tokens of the steps since the last decode step, as those count them. */
  #read = 0;

  /** Makes a scheduler with nothing to do. */
  constructor(options: SchedulerOptions) {
    const { tokenBudget, prefillStepSize = tokenBudget, prefillTile = 1, maxTogether = Infinity } = options;
    this.#pages = new PageManager(options);
    const maxPrompts = this.#pages.hasStates ? 1 : options.maxPrompts ?? Infinity;
    const stepSize = Math.min(prefillStepSize, tokenBudget);
    this.#options = { ...options, prefillStepSize: stepSize, maxPrompts, maxTogether, prefillTile };
  }

  /** Sequences that have pages. */
  get running(): number {
    return this.#running.length + this.#ending.size;
  }

  /** Sequences that wait. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Steps on their way. */
  get inFlight(): number {
    return this.#steps.length;
  }

  /** Sequences that a decode step may have. */
  get decoding(): readonly Sequence[] {
    return this.#running.filter(isDecoding);
  }

  /** Units of memory in use by sequences and kept prefixes. */
  get usedPages(): number {
    return this.#pages.used;
  }

  /** How often a sequence gave up its pages. */
  get preemptions(): number {
    return this.#preemptions;
  }

  /** Gives the sequences that decode pages for so many drafted tokens, if they are free. */
  growForDrafts(count: number): void {
    const ends = this.decoding.map((sequence) => ({ sequence, end: decodeEnd(sequence, 1 + count) }));
    const missing = ends.reduce((sum, { sequence, end }) => sum + this.#pages.countMissing(sequence, end), 0);
    if (missing > this.#pages.free) return;
    for (const { sequence, end } of ends) this.#pages.grow(sequence, end);
  }

  /** Takes a sequence, or says why not. Its limit is lowered to what all pages together can hold. */
  add(sequence: Sequence): Refusal | undefined {
    const { maxSequences, maxQueue } = this.#options;
    const { capacity } = this.#pages;
    if (sequence.promptLength > capacity) {
      const message = `a prompt of ${sequence.promptLength} tokens does not fit into a cache of ${capacity} positions`;
      return { code: "memory", message };
    }
    if (this.running + this.waiting >= maxSequences + maxQueue) {
      return { code: "queue", message: `${this.running} requests run and ${this.waiting} wait, which is the limit` };
    }
    sequence.limit = Math.min(sequence.limit, capacity + 1);
    sequence.arrival = this.#arrivals++;
    sequence.rank = rankOf(sequence.priority, this.#admissions);
    addInOrder(this.#waiting, sequence);
    return undefined;
  }

  /** Ends a sequence before its time. Returns false where it has ended or is unknown. */
  abort(id: number): boolean {
    const sequence = [...this.#running, ...this.#waiting].find((other) => other.id === id);
    if (sequence) this.#end(sequence);
    return sequence !== undefined;
  }

  /**
   * The next step, with up to `maxSteps` tokens for each sequence; undefined where a commit has to come first, or all is done. With
   * `promptsOnly` it reads a prompt, or there is none. `drafts` are for sequences that decode now. They are left out if a step is on its way.
   */
  schedule(maxSteps: number = 1, promptsOnly: boolean = false, drafts?: Drafts): Step | undefined {
    const step = promptsOnly ? this.#prefill() : this.#prefill() ?? this.#verify(drafts) ?? this.#decode(maxSteps);
    if (!step) return undefined;
    if (step.kind !== "prefill") this.#read = 0;
    for (const { sequence } of step.rows) {
      sequence.inFlight++;
      sequence.verifying = step.kind === "verify";
    }
    this.#steps.push(step);
    return step;
  }

  /** Takes the results of the oldest step on its way, one for each row. Those of sequences that have ended meanwhile are dropped. */
  commit(step: Step, results: readonly StepResult[]): void {
    const { rows } = step;
    if (step !== this.#steps[0]) throw new Error("steps are committed in the order in which they were scheduled");
    if (results.length !== rows.length) throw new Error(`${results.length} results for ${rows.length} rows`);
    for (const [i, row] of rows.entries()) checkResult(step.kind, row, results[i]);
    this.#steps.shift();
    for (const [i, { sequence, from, count }] of rows.entries()) {
      const { tokens, ended } = results[i];
      sequence.inFlight--;
      sequence.verifying = false;
      if (sequence.status === "running") {
        if (step.kind === "verify") sequence.computed = from + tokens.length;
        sequence.tokens.push(...tokens);
        if (ended || sequence.tokens.length >= sequence.limit) this.#end(sequence);
        else {
          sequence.committed = step.kind === "verify" ? sequence.computed : from + count;
          this.#pages.takePassed(sequence);
        }
      } else if (sequence.inFlight === 0) {
        this.#release(sequence);
      }
    }
  }

  /** Whether sequences have recurrent states, which steps replace. */
  get hasStates(): boolean {
    return this.#pages.hasStates;
  }

  /**
   * Takes back the oldest step that was scheduled: it did not end well, or follows one that did not. Recurrent states may have been replaced. So
   * its sequences read their tokens again, once no step on its way has them.
   */
  cancel(step: Step): void {
    if (step !== this.#steps[0]) throw new Error("steps are taken back in the order in which they were scheduled");
    this.#steps.shift();
    for (const { sequence } of step.rows) {
      sequence.inFlight--;
      sequence.verifying = false;
      if (sequence.inFlight > 0) continue;
      if (sequence.status === "running") this.#preempt(sequence);
      else this.#release(sequence);
    }
  }

  /** Throws unless pages, tree and lists are sound. For tests. */
  checkIntegrity(): void {
    this.#pages.checkIntegrity([...this.#running, ...this.#ending]);
    const inSteps = this.#steps.flatMap(({ rows }) => rows.map(({ sequence }) => sequence));
    checkLists({ waiting: this.#waiting, running: this.#running, ending: this.#ending, inSteps });
    if (this.running > this.#options.maxSequences) throw new Error(`${this.running} sequences run`);
  }

  /** The next step, with pages for it. */
  #next(maxSteps: number): Step | undefined {
    return this.#prefill() ?? this.#decode(maxSteps);
  }

  /** Parts of the prompts that are first in order, if the budget lets them be read. */
  #prefill(): PrefillStep | undefined {
    const { tokenBudget, prefillStepSize, maxPrompts: prompts, maxTogether: together, prefillTile: tile } =
      this.#options;
    const budget = this.#running.some(isDecoding) ? tokenBudget - this.#read : Infinity;
    const tokens = Math.min(prefillStepSize, budget);
    const parts = new PrefillParts({ tokens, prompts, together, tile, pageSize: this.#pages.pageSize });
    for (let row = this.#nextPart(parts); row; row = this.#nextPart(parts)) parts.add(row);
    const longer = parts.fill((sequence) => this.#pages.endOf(sequence));
    if (longer) this.#advance(longer);
    this.#read += parts.tokens;
    return parts.rows.length === 0 ? undefined : { kind: "prefill", rows: parts.rows };
  }

  /** A part of the prompt that is the next in order, if a step has room for it beside other parts. */
  #nextPart(parts: PrefillParts): PrefillRow | undefined {
    const [head] = this.#waiting;
    const reading = this.#running.find((sequence) => isReading(sequence) && !parts.has(sequence));
    const isFirst = !reading || (head && head.rank < reading.rank);
    return (head && isFirst ? this.#admit(head, parts) : undefined) ??
      (reading && this.#readOn(reading, parts, { copies: [] }));
  }

  /** Gives a waiting sequence pages and reads its first part. */
  #admit(sequence: Sequence, parts: PrefillParts): PrefillRow | undefined {
    const match = this.#findRoom(sequence, parts);
    if (!match) return undefined;
    const from = this.#pages.countMatched(match);
    const isCopiedLate = match.partial && (parts.writes(match.partial.page) || parts.writes(match.partial.window));
    if (isCopiedLate || this.#roomFor(sequence, sequence.tokens.length - from, parts) === 0) {
      this.#pages.drop(match);
      return undefined;
    }
    const placed = { copies: this.#pages.place(sequence, match), restored: match.slot };
    this.#waiting.shift();
    addInOrder(this.#running, sequence);
    this.#admissions++;
    sequence.status = "running";
    sequence.readLength = sequence.tokens.length;
    sequence.computed = sequence.committed = from;
    sequence.cached ??= from;
    return this.#readOn(sequence, parts, placed);
  }

  /** The next part of a prompt, if a step has room for it beside other parts. */
  #readOn(
    sequence: Sequence,
    parts: PrefillParts,
    { copies, restored }: { readonly copies: readonly PageCopy[]; readonly restored?: number | undefined },
  ): PrefillRow | undefined {
    const { readLength, computed: from } = sequence;
    const room = this.#roomFor(sequence, readLength - from, parts);
    if (room === 0) return undefined;
    // Those of a whole step, as it may yet get more of it.
    this.#pages.growWindow(sequence, Math.min(readLength, from + this.#options.prefillStepSize));
    const end = this.#pages.clipPart(sequence, from, Math.min(from + room, this.#pages.endOf(sequence)));
    if (end <= from) return undefined;
    const kept = this.#pages.slotFor(sequence, end);
    const row = {
      sequence,
      from,
      count: end - from,
      last: end === readLength,
      copies,
      ...(restored !== undefined && { restored }),
      ...(kept !== undefined && { kept }),
    };
    this.#advance(row);
    return row;
  }

  /** Notes that a row of the next step is computed, for those that come after it in the step too. */
  #advance({ sequence, from, count, kept }: PrefillRow): void {
    sequence.computed = from + count;
    this.#pages.share(sequence, kept);
  }

  /**
   * Tokens of a prompt with `rest` tokens to read that a step has room for. A step does not begin with less of it than a later one could
   * have.
   */
  #roomFor(sequence: Sequence, rest: number, parts: PrefillParts): number {
    const { tokenBudget, prefillStepSize } = this.#options;
    const isWhole = this.#read + Math.min(rest, prefillStepSize) <= tokenBudget;
    const isDue = parts.rows.length === 0 && !isWhole && this.#running.some(isDecoding);
    return isDue ? 0 : parts.roomFor(sequence, rest);
  }

  /** What the tree has of a waiting sequence, if it could be admitted now, beside `parts` of others. */
  #findRoom(sequence: Sequence, parts?: PrefillParts): Match | undefined {
    if (this.running >= this.#options.maxSequences) return undefined;
    const wanted = this.#running.reduce((sum, other) => sum + this.#pages.countWanted(other), 0);
    return this.#pages.find(sequence, wanted, parts && ((page) => parts.writes(page)));
  }

  /** Whether a prompt is being read or could be. */
  #hasPrompt(): boolean {
    if (this.#running.some(isReading)) return true;
    const match = this.#waiting.length > 0 ? this.#findRoom(this.#waiting[0]) : undefined;
    if (match) this.#pages.drop(match);
    return match !== undefined;
  }

  /** The next tokens of all sequences whose prompts are read. */
  #decode(maxSteps: number): Step | undefined {
    const sequences = this.#running.filter(isDecoding);
    if (sequences.length === 0) {
      const isStuck = this.#running.length > 1 && this.#running.every(isReading) && this.#steps.length === 0;
      return isStuck && this.#preemptLast() ? this.#next(maxSteps) : undefined;
    }
    const longest = Math.max(...sequences.map((sequence) => decodeEnd(sequence, maxSteps) - sequence.computed));
    // A row that counts fewer tokens than the step has would go on with a state of the others.
    const isHeld = this.#pages.hasStates && sequences.some(({ stepwise }) => stepwise);
    let steps = this.#hasPrompt() || isHeld ? 1 : longest;
    const countMissing = (): number =>
      sequences.reduce((sum, sequence) => sum + this.#pages.countMissing(sequence, decodeEnd(sequence, steps)), 0);
    while (!this.#pages.makeRoom(countMissing())) {
      if (steps === 1) {
        // Another sequence may be next after a preemption, and a sequence with a step on its way cannot be preempted.
        return this.#steps.length === 0 && this.#preemptLast() ? this.#next(maxSteps) : undefined;
      }
      steps = Math.floor(steps / 2);
    }
    const rows = sequences.map((sequence) => {
      const [from, end] = [sequence.computed, decodeEnd(sequence, steps)];
      this.#pages.grow(sequence, end);
      sequence.computed = end;
      return { sequence, from, count: end - from };
    });
    return { kind: "decode", rows, steps };
  }

  /** Verifies drafts of the sequences that decode; undefined where none has one that fits. */
  #verify(drafts: Drafts | undefined): VerifyStep | undefined {
    if (!drafts || this.#steps.length > 0) return undefined;
    const rows = this.decoding.map((sequence) => {
      const { computed: from, limit } = sequence;
      const drafted = drafts.tokens.get(sequence)?.slice(0, limit - from - 2) ?? [];
      return { sequence, from, count: 1 + drafted.length, drafted };
    });
    const missing = rows.reduce((sum, row) => sum + this.#pages.countMissing(row.sequence, row.from + row.count), 0);
    if (rows.every(({ drafted }) => drafted.length === 0) || missing > this.#pages.free) return undefined;
    for (const { sequence, from, count } of rows) {
      this.#pages.grow(sequence, from + count);
      sequence.computed = from + count;
    }
    return { kind: "verify", rows, columns: drafts.columns };
  }

  /** Makes the running sequence that is last in order wait again. */
  #preemptLast(): boolean {
    const sequence = this.#running.at(-1);
    if (sequence) this.#preempt(sequence);
    return sequence !== undefined;
  }

  /** Makes a running sequence wait again: it gives up its pages. */
  #preempt(sequence: Sequence): void {
    this.#running.splice(this.#running.indexOf(sequence), 1);
    this.#pages.release(sequence);
    sequence.status = "waiting";
    sequence.computed = sequence.readLength = 0;
    addInOrder(this.#waiting, sequence);
    this.#preemptions++;
  }

  /** Takes a sequence off the lists. Its pages go when no step on its way has it. */
  #end(sequence: Sequence): void {
    const list = sequence.status === "waiting" ? this.#waiting : this.#running;
    list.splice(list.indexOf(sequence), 1);
    sequence.status = "ended";
    if (sequence.inFlight > 0) this.#ending.add(sequence);
    else this.#release(sequence);
  }

  /** Gives the pages of an ended sequence back. */
  #release(sequence: Sequence): void {
    this.#ending.delete(sequence);
    this.#pages.release(sequence);
  }
}
