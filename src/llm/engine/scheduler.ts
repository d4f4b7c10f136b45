/**
 * Which step comes next: a part of a prompt, or the next tokens of all sequences that generate.
 *
 * The scheduler is pure: it knows neither device nor time. Its caller, the runner, submits each step of {@link Scheduler.schedule} in order
 * and gives the results to {@link Scheduler.commit} in the same order.
 *
 * A step may be scheduled while others are on their way, before their tokens are known. Tokens are on the device, where the next step
 * finds them. A sequence that ended at one step may so be in the next one; the results of that are dropped. A sequence keeps its
 * place and its pages until all steps that have it are committed. `schedule()` returns undefined where it cannot go on
 * before a commit, so a caller commits the oldest step and asks again. With no step on its way, undefined means that all is done.
 *
 * Turns: prompts go first, in parts, until `tokenBudget` tokens of them have been read. Then every sequence whose prompt is read gets a decode step. That has one token where a prompt waits that could be read, else as many as
 * the caller allows. A stepwise sequence, whose next token needs the host's answer to the last one, has one token. It is left out until its last step is
 * committed.
 *
 * Order: by `rankOf()`, which is the priority and the time of waiting. A request whose pages cannot be had is not overtaken.
 *
 * Memory: a sequence is admitted where there are pages for all of its tokens and one more. A page for each running sequence that will
 * need another has to be there too. Where a decode step finds no page, prefixes are evicted. If that is not enough, the sequence last in order gives its pages to the prefix tree and waits again. It reads what it had as a prompt
 * later. The first in order goes on in any case.
 *
 * Recurrent states: a sequence has a slot of them while it has pages. Parts of a prompt end where states are kept for later requests. That is
 * at its last whole page, after what it has in common with an earlier prompt, and every few pages.
 *
 * @module
 */

import { PageManager, type PageOptions } from "./page_manager.ts";
import type { Match } from "./prefix_tree.ts";
import { addInOrder, decodeEnd, isDecoding, isReading, rankOf, type Sequence } from "./sequence.ts";
import { type PageCopy, type PrefillStep, type Step, type StepResult, stepRowsOf, tokenCountOf } from "./step.ts";

/** What a {@link Scheduler} may use. */
export interface SchedulerOptions extends PageOptions {
  /** Most sequences with pages at a time. */
  readonly maxSequences: number;
  /** Most prompt tokens of all steps between two decode steps. With Infinity, all prompts that can be read go first. */
  readonly tokenBudget: number;
  /** Most prompt tokens of a step; `tokenBudget` at most, which is the default. */
  readonly prefillStepSize?: number;
  /** Most sequences that wait beside those for which a place is free. */
  readonly maxQueue: number;
}

/** Why a sequence was not taken: "queue" may be otherwise later, "memory" never is. */
export interface Refusal {
  readonly code: "queue" | "memory";
  readonly message: string;
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
  /** Prompt tokens of the steps since the last decode step. */
  #read = 0;

  /** Makes a scheduler with nothing to do. */
  constructor(options: SchedulerOptions) {
    const { tokenBudget, prefillStepSize = tokenBudget, maxSequences, maxQueue } = options;
    this.#options = { tokenBudget, prefillStepSize: Math.min(prefillStepSize, tokenBudget), maxSequences, maxQueue };
    this.#pages = new PageManager(options);
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

  /** Pages in use by sequences and kept prefixes. */
  get usedPages(): number {
    return this.#pages.used;
  }

  /** How often a sequence gave up its pages. */
  get preemptions(): number {
    return this.#preemptions;
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
   * `promptsOnly` it reads a prompt, or there is none.
   */
  schedule(maxSteps: number = 1, promptsOnly: boolean = false): Step | undefined {
    const step = promptsOnly ? this.#prefill() : this.#next(maxSteps);
    if (!step) return undefined;
    this.#read = step.kind === "prefill" ? this.#read + step.count : 0;
    for (const { sequence, from, count } of stepRowsOf(step)) {
      sequence.computed = from + count;
      sequence.inFlight++;
    }
    if (step.kind === "prefill") this.#pages.share(step.sequence, step.kept);
    this.#steps.push(step);
    return step;
  }

  /** Takes the results of the oldest step on its way, one for each row. Those of sequences that have ended meanwhile are dropped. */
  commit(step: Step, results: readonly StepResult[]): void {
    const rows = stepRowsOf(step);
    if (step !== this.#steps[0]) throw new Error("steps are committed in the order in which they were scheduled");
    if (results.length !== rows.length) throw new Error(`${results.length} results for ${rows.length} rows`);
    for (const [i, row] of rows.entries()) checkResult(step, row.sequence, tokenCountOf(step, row), results[i]);
    this.#steps.shift();
    for (const [i, { sequence }] of rows.entries()) {
      const { tokens, ended } = results[i];
      sequence.inFlight--;
      if (sequence.status === "running") {
        sequence.tokens.push(...tokens);
        if (ended || sequence.tokens.length >= sequence.limit) this.#end(sequence);
      } else if (sequence.inFlight === 0) {
        this.#release(sequence);
      }
    }
  }

  /** Throws unless pages, tree and lists are sound. For tests. */
  checkIntegrity(): void {
    const holders = [...this.#running, ...this.#ending];
    this.#pages.checkIntegrity(holders);
    const check = (holds: boolean, { id }: Sequence, what: string): void => {
      if (!holds) throw new Error(`sequence ${id} ${what}`);
    };
    for (const list of [this.#waiting, this.#running]) {
      for (const [i, sequence] of list.entries()) {
        const before = list[Math.max(0, i - 1)];
        check(before.rank <= sequence.rank, sequence, "is not in order");
        check(sequence.status === (list === this.#waiting ? "waiting" : "running"), sequence, "has a wrong status");
      }
    }
    for (const sequence of this.#waiting) {
      check(sequence.pages.length === 0 && sequence.inFlight === 0, sequence, "waits and has pages or steps");
    }
    for (const sequence of this.#ending) check(sequence.inFlight > 0, sequence, "has ended and keeps its pages");
    const steps = this.#steps.flatMap(stepRowsOf);
    for (const sequence of holders) {
      const count = steps.filter((row) => row.sequence === sequence).length;
      check(sequence.inFlight === count, sequence, "counts other steps than there are");
      const isAhead = count > 0 || isReading(sequence) || sequence.tokens.length === sequence.computed + 1;
      check(isAhead, sequence, "has other tokens than were computed");
    }
    if (this.running > this.#options.maxSequences) throw new Error(`${this.running} sequences run`);
  }

  /** The next step, with pages for it. */
  #next(maxSteps: number): Step | undefined {
    return this.#prefill() ?? this.#decode(maxSteps);
  }

  /** A part of the prompt of the first in order that can be read, if the budget lets it. */
  #prefill(): PrefillStep | undefined {
    const [head] = this.#waiting;
    const reading = this.#running.find(isReading);
    const isFirst = !reading || (head && head.rank < reading.rank);
    return (head && isFirst ? this.#admit(head) : undefined) ?? (reading && this.#readOn(reading, { copies: [] }));
  }

  /** Gives a waiting sequence pages and reads its first part. */
  #admit(sequence: Sequence): PrefillStep | undefined {
    const match = this.#findRoom(sequence);
    if (!match) return undefined;
    const from = this.#pages.countMatched(match);
    if (!this.#isAffordable(sequence.tokens.length - from)) {
      this.#pages.drop(match);
      return undefined;
    }
    const placed = { copies: this.#pages.place(sequence, match), restored: match.slot };
    this.#waiting.shift();
    addInOrder(this.#running, sequence);
    this.#admissions++;
    sequence.status = "running";
    sequence.readLength = sequence.tokens.length;
    sequence.computed = from;
    sequence.cached ??= from;
    return this.#readOn(sequence, placed);
  }

  /** The next part of a prompt. */
  #readOn(
    sequence: Sequence,
    { copies, restored }: { readonly copies: readonly PageCopy[]; readonly restored?: number | undefined },
  ): PrefillStep | undefined {
    const { readLength, computed: from } = sequence;
    if (!this.#isAffordable(readLength - from)) return undefined;
    const end = this.#pages.clipPart(sequence, from, Math.min(readLength, from + this.#options.prefillStepSize));
    const kept = this.#pages.slotFor(sequence, end);
    return {
      kind: "prefill",
      sequence,
      from,
      count: end - from,
      last: end === readLength,
      copies,
      ...(restored !== undefined && { restored }),
      ...(kept !== undefined && { kept }),
    };
  }

  /** Whether a part of so many tokens may be read before the next decode step. */
  #isAffordable(tokens: number): boolean {
    const { tokenBudget, prefillStepSize } = this.#options;
    return this.#read + Math.min(tokens, prefillStepSize) <= tokenBudget || !this.#running.some(isDecoding);
  }

  /** What the tree has of a waiting sequence, if it could be admitted now. */
  #findRoom(sequence: Sequence): Match | undefined {
    if (this.running >= this.#options.maxSequences) return undefined;
    const growing = this.#running.filter((other) => this.#pages.countMissing(other, other.limit) > 0);
    return this.#pages.find(sequence, growing.length);
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
    if (sequences.length === 0) return undefined;
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
      return { sequence, from, count: end - from };
    });
    return { kind: "decode", rows, steps };
  }

  /** Makes the running sequence that is last in order wait again. */
  #preemptLast(): boolean {
    const sequence = this.#running.pop();
    if (!sequence) return false;
    this.#pages.release(sequence);
    sequence.status = "waiting";
    sequence.computed = sequence.readLength = 0;
    addInOrder(this.#waiting, sequence);
    this.#preemptions++;
    return true;
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

/** Throws where a runner gives other than `count` tokens for a sequence that goes on, or more for one that ends. */
function checkResult({ kind }: Step, { id, status }: Sequence, count: number, { tokens, ended }: StepResult): void {
  if (status === "ended" || tokens.length === count || (ended && tokens.length < count)) return;
  throw new Error(`a ${kind} step gives ${tokens.length} tokens for sequence ${id}, expected ${count}`);
}
