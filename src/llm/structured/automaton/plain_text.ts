/**
 * Plain text: characters but control characters, quotes and backslashes, in UTF-8. Strings of JSON go on with any of it in the same way,
 * so tokens of plain text need no look at each.
 *
 * @module
 */

import { complement, pointsOf, union } from "../grammar/code_points.ts";
import type { State, States } from "./states.ts";
import { type ByteRange, utf8Ranges } from "./utf8.ts";

/** Sequences of byte ranges of a plain character. */
const SEQUENCES = utf8Ranges(complement(union([0, 0x1f], pointsOf('"\\'))));

/** The place after a byte, at 256 * place + byte: 0 is between two characters, others are within one, and -1 is no plain text. */
export const PLAIN_TEXT: Int32Array = table();

function table(): Int32Array {
  const places = new Map<string, number>([["", 0]]);
  const rows: number[][] = [];
  const placeOf = (rest: readonly ByteRange[]): number => {
    const key = rest.join(" ");
    let place = places.get(key);
    if (place === undefined) {
      place = places.size;
      places.set(key, place);
      fill(place, [rest]);
    }
    return place;
  };
  const fill = (place: number, sequences: readonly (readonly ByteRange[])[]): void => {
    const row = rows[place] = new Array<number>(256).fill(-1);
    for (const [[first, last], ...rest] of sequences) for (let b = first; b <= last; b++) row[b] = placeOf(rest);
  };
  fill(0, SEQUENCES);
  return Int32Array.from(rows.flat());
}

/** How many plain characters may follow in a state, whatever they are, with the same states after each of them. */
export class PlainRuns {
  readonly #states: States;
  /** Classes of the bytes of a range. */
  readonly #classes = new Map<string, readonly number[]>();
  readonly #next = new Map<State, State | undefined>();
  readonly #runs = new Map<State, number>();

  /** For a grammar. */
  constructor(states: States) {
    this.#states = states;
  }

  /** Forgets states. */
  clear(): void {
    this.#next.clear();
    this.#runs.clear();
  }

  /** Counts at most `limit` of them. */
  of(state: State, limit: number): number {
    const known = this.#runs.get(state);
    if (known !== undefined) return known;
    let run = 0;
    for (let at = state; run < limit; run++) {
      const next = this.#after(at);
      if (!next) break;
      if (next === at) run = limit;
      at = next;
    }
    run = Math.min(run, limit);
    this.#runs.set(state, run);
    return run;
  }

  /** The state after every plain character, if it is one. */
  #after(state: State): State | undefined {
    if (this.#next.has(state)) return this.#next.get(state);
    let found: State | undefined;
    const seen = new Map<State, Set<string>>();
    const leads = (at: State, rest: readonly ByteRange[]): boolean => {
      if (at === this.#states.dead || at.leaves) return false;
      if (rest.length === 0) return (found ??= at) === at;
      const key = rest.join(" ");
      const checked = seen.get(at) ?? new Set();
      if (checked.has(key)) return true;
      seen.set(at, checked.add(key));
      return this.#classesOf(rest[0]).every((one) => leads(this.#states.step(at, one), rest.slice(1)));
    };
    const same = SEQUENCES.every((ranges) =>
      this.#classesOf(ranges[0]).every((one) => leads(this.#states.step(state, one), ranges.slice(1)))
    );
    this.#next.set(state, same ? found : undefined);
    return same ? found : undefined;
  }

  #classesOf(range: ByteRange): readonly number[] {
    const key = range.join("-");
    let known = this.#classes.get(key);
    if (!known) {
      known = [...new Set(this.#states.classes.subarray(range[0], range[1] + 1))];
      this.#classes.set(key, known);
    }
    return known;
  }
}
