/**
 * A runner without a device: it keeps one number for each position of each page, written and read through page tables.
 *
 * The number of a position is a hash of its token and of the numbers of all positions before it. Keys and values depend on earlier
 * tokens too. The next token is a part of the last number. So a wrong page, a missed copy or a prefix of other tokens changes what is
 * generated. {@link generateAlone} says what is right, from the tokens alone.
 *
 * With recurrent states a slot has one more number, which each token changes: it goes into the number of a position too. A state that is
 * copied too late, of other tokens or from a slot of another sequence changes what is generated.
 *
 * A step runs when it is submitted, with the page tables of that moment, as the steps of a queue do. Its results are taken later.
 *
 * @module
 */

import type { PrefillRow, Step, StepResult, StepRow } from "../../../src/llm/engine/step.ts";
import { tokenCountOf } from "../../../src/llm/engine/step.ts";
import type { Sequence } from "../../../src/llm/engine/sequence.ts";

/** The token that ends a sequence. Others are 1 to 3, so that sequences often have tokens in common. */
export const END = 0;

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

/**
 * What a prompt gives alone, with no pages: its tokens up to the end, `maxTokens` or `positions` of memory. With `hasStates` there is a state
 * beside the positions.
 */
export function generateAlone(
  prompt: readonly number[],
  maxTokens: number,
  positions: number,
  hasStates: boolean = false,
): number[] {
  const [tokens, numbers]: [number[], number[]] = [[...prompt], []];
  let state = 0;
  const limit = Math.min(prompt.length + maxTokens, positions + 1);
  while (tokens.length < limit && (tokens.length === prompt.length || tokens.at(-1) !== END)) {
    while (numbers.length < tokens.length) {
      const token = tokens[numbers.length];
      if (hasStates) state = stateAfter(token, state);
      numbers.push(numberOf(token, hasStates ? [...numbers, state] : numbers));
    }
    tokens.push(tokenAfter(numbers.at(-1)!));
  }
  return tokens;
}

/** Runs steps on pages of numbers. */
export class FakeRunner {
  readonly #pageSize: number;
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
  constructor(pages: number, pageSize: number, slots: number = 0) {
    this.#pageSize = pageSize;
    this.#states = new Int32Array(slots).fill(-1);
    this.#memory = new Int32Array(pages * pageSize).fill(-1);
  }

  /** Runs a step. */
  submit(step: Step): void {
    const prompts = step.kind === "prefill" ? step.rows : [];
    for (const row of prompts) this.#prepare(row);
    const results = step.rows.map((row: StepRow | PrefillRow) => {
      const chosen = "last" in row ? this.#read(row) : this.#generate(row, step.kind === "decode" ? step.steps : 0);
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
      const start = from * this.#pageSize;
      this.#memory.copyWithin(to * this.#pageSize, start, start + count);
      this.copied += count;
    }
    if (restored === undefined) return;
    this.#states[sequence.slot] = this.#states[restored];
    this.restored++;
  }

  /** The oldest step whose results were not taken. */
  take(): { readonly step: Step; readonly results: readonly StepResult[] } {
    return this.#results.shift()!;
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
  #write({ pages, slot }: Sequence, position: number, token: number): number {
    const address = (at: number): number =>
      (pages[Math.floor(at / this.#pageSize)] ?? 0) * this.#pageSize + at % this.#pageSize;
    const before = Array.from({ length: position }, (_, at) => this.#memory[address(at)]);
    const hasStates = this.#states.length > 0;
    if (hasStates) this.#states[slot] = stateAfter(token, position === 0 ? 0 : this.#states[slot]);
    return this.#memory[address(position)] = numberOf(token, hasStates ? [...before, this.#states[slot]] : before);
  }
}
