/**
 * A runner without a device: it keeps one number for each position of each page, written and read through page tables.
 *
 * The number of a position is a hash of its token and of the numbers of all positions before it. Keys and values depend on earlier
 * tokens too. The next token is a part of the last number. So a wrong page, a missed copy or a prefix of other tokens changes what is
 * generated. {@link generateAlone} says what is right, from the tokens alone.
 *
 * Each table has such numbers, as groups of layers have keys and values of their own. They depend on those of the table before it. In a table of layers with a window they depend on the last positions only. All tables are of one memory.
 *
 * With recurrent states a slot has one more number, which each token changes: it goes into the number of a position too. A state that is
 * copied too late, of other tokens or from a slot of another sequence changes what is generated.
 *
 * A step runs when it is submitted, with the page tables of that moment, as the steps of a queue do. Its results are taken later.
 *
 * @module
 */

import type { PrefillRow, Step, StepResult, StepRow, VerifyRow } from "../../../src/llm/engine/step.ts";
import { tokenCountOf } from "../../../src/llm/engine/step.ts";
import type { PageGroups, PageTable } from "../../../src/llm/kv/page_groups.ts";
import type { Sequence } from "../../../src/llm/engine/sequence.ts";

/** The token that ends a sequence. Others are 1 to 3, so that sequences often have tokens in common. */
export const END = 0;

/** What a runner or a request alone has to know. */
export interface FakeModel {
  readonly groups: PageGroups;
  readonly hasStates: boolean;
}

/** The number of a position after those of `before`. */
function numberOf(token: number, before: Iterable<number>): number {
  let hash = 2166136261;
  for (const number of before) hash = Math.imul(hash ^ number, 16777619);
  hash = Math.imul(hash ^ token, 0x9e3779b1);
  return hash ^ (hash >>> 15);
}

/** The token that follows a number: the end once in 16 times. */
function tokenAfter(number: number): number {
  return (number >>> 28) === 0 ? END : 1 + (number >>> 4) % 3;
}

/** The state after a token. It has no rest that tokens before it leave out: the order of all of them counts. */
function stateAfter(token: number, state: number): number {
  return Math.imul(state ^ (token + 0x85ebca6b), 0xc2b2ae35) + 1 | 0;
}

/** The first position before `position` that the layers of a table see. */
function firstSeen({ windowed }: PageTable, { window }: PageGroups, position: number): number {
  return windowed ? Math.max(0, position - window + 1) : 0;
}

/**
 * What a prompt gives alone, with no pages: its tokens up to the end, `maxTokens` or `positions` of memory. With `hasStates` there is a state
 * beside the positions.
 */
export function generateAlone(
  prompt: readonly number[],
  maxTokens: number,
  positions: number,
  { groups, hasStates }: FakeModel,
): number[] {
  const tokens = [...prompt];
  const numbers: readonly number[][] = groups.tables.map(() => []);
  let state = 0;
  const limit = Math.min(prompt.length + maxTokens, positions + 1);
  while (tokens.length < limit && (tokens.length === prompt.length || tokens.at(-1) !== END)) {
    for (let at = numbers[0].length; at < tokens.length; at++) {
      if (hasStates) state = stateAfter(tokens[at], state);
      let above = tokens[at];
      for (const [i, table] of groups.tables.entries()) {
        const seen = numbers[i].slice(firstSeen(table, groups, at));
        numbers[i].push(above = numberOf(above, hasStates ? [...seen, state] : seen));
      }
    }
    tokens.push(tokenAfter(numbers.at(-1)!.at(-1)!));
  }
  return tokens;
}

/** Runs steps on pages of numbers. */
export class FakeRunner {
  readonly #pageSize: number;
  readonly #groups: PageGroups;
  /** Numbers of a position: as many as layers share a slot at most. */
  readonly #width: number;
  readonly #memory: Int32Array;
  readonly #states: Int32Array;
  /** The last token of each sequence, which a decode step begins with. */
  readonly #last = new Map<Sequence, number>();
  readonly #results: { readonly step: Step; readonly results: readonly StepResult[] }[] = [];
  /** Positions that were copied. */
  copied = 0;
  /** States that were copied for a sequence to begin with. */
  restored = 0;

  /** With `slots`, there are recurrent states. */
  constructor(pages: number, pageSize: number, groups: PageGroups, slots: number = 0) {
    this.#pageSize = pageSize;
    this.#groups = groups;
    this.#width = Math.max(...groups.tables.map(({ ratio }) => ratio));
    this.#states = new Int32Array(slots).fill(-1);
    this.#memory = new Int32Array(pages * pageSize * this.#width).fill(-1);
  }

  /** Where a position of an entry of a table is. */
  #address({ ratio }: PageTable, entry: number, position: number): number {
    return (entry * this.#pageSize + position) * this.#width / ratio;
  }

  /** Runs a step. */
  submit(step: Step): void {
    const prompts = step.kind === "prefill" ? step.rows : [];
    for (const row of prompts) this.#prepare(row);
    const results = step.rows.map((row: StepRow | PrefillRow) => {
      const chosen = this.#choose(step, row);
      const end = chosen.indexOf(END);
      const ended = end >= 0 && end < tokenCountOf(row);
      return { tokens: chosen.slice(0, ended ? end + 1 : tokenCountOf(row)), ended };
    });
    for (const { sequence, kept } of prompts) if (kept !== undefined) this.#states[kept] = this.#states[sequence.slot];
    this.#results.push({ step, results });
  }

  /** Copies what a row begins with: of all rows before the first one is read. */
  #prepare({ sequence, copies, restored }: PrefillRow): void {
    for (const { from, to, count } of copies) {
      for (const [i, table] of this.#groups.tables.entries()) {
        for (let at = 0; at < count; at++) {
          this.#memory[this.#address(table, to[i], at)] = this.#memory[this.#address(table, from[i], at)];
        }
      }
      this.copied += count;
    }
    if (restored === undefined) return;
    this.#states[sequence.slot] = this.#states[restored];
    this.restored++;
  }

  /** What kind of step {@link FakeRunner.take} gives. */
  get next(): Step["kind"] {
    return this.#results[0].step.kind;
  }

  /** The oldest step whose results were not taken. */
  take(): { readonly step: Step; readonly results: readonly StepResult[] } {
    return this.#results.shift()!;
  }

  #choose(step: Step, row: StepRow | PrefillRow | VerifyRow): number[] {
    if ("last" in row) return this.#read(row);
    if ("drafted" in row) return this.#verify(row, step.kind === "verify" ? step.columns : 0);
    return this.#generate(row, step.kind === "decode" ? step.steps : 0);
  }

  /**
   * Tokens after the last one and after drafted ones, up to the first one that was not drafted. It writes all columns. The state is that after the
   * fed tokens that count.
   */
  #verify({ sequence, from, drafted }: VerifyRow, columns: number): number[] {
    const fed = [sequence.tokens.at(-1)!, ...drafted];
    const before = this.#states[sequence.slot];
    const chosen = Array.from(
      { length: columns },
      (_, i) => tokenAfter(this.#write(sequence, from + i, fed[i] ?? fed.at(-1)!)),
    );
    const wrong = drafted.findIndex((token, i) => token !== chosen[i]);
    const tokens = chosen.slice(0, (wrong < 0 ? drafted.length : wrong) + 1);
    this.#last.set(sequence, tokens.at(-1)!);
    const counted = fed.slice(0, tokens.length);
    this.#states[sequence.slot] = counted.reduce((state, token) => stateAfter(token, state), before);
    return tokens;
  }

  #read({ sequence, from, count, last }: PrefillRow): number[] {
    let number = 0;
    for (let at = from; at < from + count; at++) number = this.#write(sequence, at, sequence.tokens[at]);
    if (!last) return [];
    this.#last.set(sequence, tokenAfter(number));
    return [tokenAfter(number)];
  }

  #generate({ sequence, from }: StepRow, steps: number): number[] {
    if (sequence.stepwise) this.#last.set(sequence, sequence.tokens.at(-1)!);
    return Array.from({ length: steps }, (_, i) => {
      const token = tokenAfter(this.#write(sequence, from + i, this.#last.get(sequence)!));
      this.#last.set(sequence, token);
      return token;
    });
  }

  /** Writes the number of a position; those without a page belong to page 0. */
  #write({ tables, slot }: Sequence, position: number, token: number): number {
    const hasStates = this.#states.length > 0;
    if (hasStates) this.#states[slot] = stateAfter(token, position === 0 ? 0 : this.#states[slot]);
    let above = token;
    for (const [i, table] of this.#groups.tables.entries()) {
      const address = (at: number): number =>
        this.#address(table, tables[i][Math.floor(at / this.#pageSize)] ?? 0, at % this.#pageSize);
      const first = firstSeen(table, this.#groups, position);
      const seen = Array.from({ length: position - first }, (_, at) => this.#memory[address(first + at)]);
      above = numberOf(above, hasStates ? [...seen, this.#states[slot]] : seen);
      this.#memory[address(position)] = above;
    }
    return above;
  }
}
