/**
 * A sequence: the tokens of one request, and how far they have been computed.
 *
 * @module
 */

import type { PagedSequence } from "./pages/sequence_pages.ts";

/** What a sequence is made from. */
export interface SequenceOptions {
  /** Tells it apart from all others of a scheduler. */
  readonly id: number;
  /** Tokens of the prompt, one or more. */
  readonly prompt: readonly number[];
  /** Most tokens to generate, 1 or more. */
  readonly maxTokens: number;
  /** Higher ones first. Default 0. */
  readonly priority?: number;
  /** The host has to know a token before the next one is chosen, as with a grammar. Default false. */
  readonly stepwise?: boolean;
}

/** "waiting" has no pages; "running" is read or decoded; "ended" has its last token, or was aborted. */
export type SequenceStatus = "waiting" | "running" | "ended";

/** The tokens of one request. The scheduler alone writes the fields. */
export class Sequence implements PagedSequence {
  readonly id: number;
  readonly priority: number;
  readonly stepwise: boolean;
  readonly promptLength: number;
  /** The prompt and what has been generated, as far as it is known. */
  readonly tokens: number[];
  /** Most tokens, those of the prompt included. */
  limit: number;
  status: SequenceStatus = "waiting";
  /** Number of its arrival. */
  arrival = 0;
  /** Its place in the order of all sequences: lower ones first. See `rankOf()`. */
  rank = 0;
  /** Its pages: page i holds the positions from i * pageSize on. */
  pages: number[] = [];
  /** The same of the layers with a window: 0 for pages that it has passed. Empty where no layer has one. */
  windows: number[] = [];
  /** How many of those it has passed. */
  passed = 0;
  /** Its page tables, by those of `PageGroups.tables`: what kernels find of each page. */
  tables: number[][] = [];
  /** Its slot of recurrent states; 0 for none. */
  slot = 0;
  /** The position after the pages that it has in common with an earlier one, where other sequences may go on too. */
  fork = 0;
  /** Positions whose keys and values are in pages once the steps on their way have run. */
  computed = 0;
  /** Positions of steps that are committed: the oldest step on its way begins there. */
  committed = 0;
  /** Tokens that are read as a prompt: after a preemption the generated ones too. */
  readLength = 0;
  /** Steps on their way that have it. */
  inFlight = 0;
  /** Whether one of them verifies drafts, so that it is not known how many positions it comes to. */
  verifying = false;
  /** Tokens of the prompt that a kept prefix had when it was first admitted; undefined before. */
  cached: number | undefined;

  /** Makes a sequence that waits. */
  constructor({ id, prompt, maxTokens, priority = 0, stepwise = false }: SequenceOptions) {
    if (prompt.length < 1 || !(maxTokens >= 1)) {
      throw new Error(`sequence ${id} has ${prompt.length} tokens and may generate ${maxTokens}: expected 1 or more`);
    }
    this.id = id;
    this.priority = priority;
    this.stepwise = stepwise;
    this.promptLength = prompt.length;
    this.tokens = prompt.slice();
    this.limit = prompt.length + maxTokens;
  }
}

/** Admissions after which a request that waits goes before a later one whose priority is higher by one. */
export const AGING = 32;

/**
 * The rank of a request of a priority that arrives after so many admissions. A priority higher by one is worth {@link AGING} admissions. So
 * of requests that wait, one goes first that arrived at most that many admissions later for each step of priority. No request
 * waits for ever, and the order of two never changes.
 */
export function rankOf(priority: number, admissions: number): number {
  return admissions - priority * AGING;
}

/** Adds a sequence to a list in the order of ranks, those of equal rank in the order of arrival. */
export function addInOrder(list: Sequence[], sequence: Sequence): void {
  const isLater = ({ rank, arrival }: Sequence): boolean =>
    rank > sequence.rank || (rank === sequence.rank && arrival > sequence.arrival);
  const at = list.findIndex(isLater);
  list.splice(at < 0 ? list.length : at, 0, sequence);
}

/** Whether its prompt is not read to the end. */
export function isReading(sequence: Sequence): boolean {
  return sequence.computed < sequence.readLength;
}

/** Whether a decode step may have it: its prompt is read, and tokens are left to generate beside those on their way. */
export function isDecoding(sequence: Sequence): boolean {
  if (sequence.verifying || (sequence.stepwise && sequence.inFlight > 0)) return false;
  return !isReading(sequence) && sequence.computed < sequence.limit - 1;
}

/** The end of its positions after a decode step of so many tokens. The last token before its limit needs no position. */
export function decodeEnd({ limit, computed, stepwise }: Sequence, steps: number): number {
  return Math.min(limit - 1, computed + (stepwise ? 1 : steps));
}

/** The lists of a scheduler. */
export interface SequenceLists {
  readonly waiting: readonly Sequence[];
  readonly running: readonly Sequence[];
  readonly ending: ReadonlySet<Sequence>;
  /** A sequence for each row of the steps on their way. */
  readonly inSteps: readonly Sequence[];
}

/** Throws unless the lists are in order and the sequences as their list says. */
export function checkLists({ waiting, running, ending, inSteps }: SequenceLists): void {
  const check = (holds: boolean, { id }: Sequence, what: string): void => {
    if (!holds) throw new Error(`sequence ${id} ${what}`);
  };
  for (const list of [waiting, running]) {
    for (const [i, sequence] of list.entries()) {
      const before = list[Math.max(0, i - 1)];
      check(before.rank <= sequence.rank, sequence, "is not in order");
      check(sequence.status === (list === waiting ? "waiting" : "running"), sequence, "has a wrong status");
    }
  }
  for (const sequence of waiting) {
    check(sequence.pages.length === 0 && sequence.inFlight === 0, sequence, "waits and has pages or steps");
  }
  for (const sequence of ending) check(sequence.inFlight > 0, sequence, "has ended and keeps its pages");
  for (const sequence of [...running, ...ending]) {
    const count = inSteps.filter((other) => other === sequence).length;
    check(sequence.inFlight === count, sequence, "counts other steps than there are");
    const isAhead = count > 0 || isReading(sequence) || sequence.tokens.length === sequence.computed + 1;
    check(isAhead, sequence, "has other tokens than were computed");
    check(!sequence.verifying || count === 1, sequence, "is in other steps beside one that verifies drafts");
  }
}
