/** The account of drafts over the times of a fast GPU: submissions that overlap, and a host that is far from the device. No model. */

import { assert } from "@std/assert";
import { SubmissionSizer } from "../../../src/llm/decode/submission_sizer.ts";
import { Acceptance, DraftBudget, DraftCosts } from "../../../src/llm/speculation/draft_length.ts";
import { generator } from "../../support/oracles/oracle.ts";

/** Times in milliseconds. */
interface Machine {
  /** An ordinary step of all sequences. */
  readonly step: number;
  /** Steps that verify drafts, by their columns, in ordinary ones. */
  readonly verified: Readonly<Record<number, number>>;
  /** From the host to the device and back. A submission on its way hides it. */
  readonly roundTrip: number;
  /** The host's work after each submission. */
  readonly host: number;
}

/** As measured on an H200, one stream and eight, of a model of 0.6 billion weights. */
const ONE: Machine = { step: 0.285, verified: { 2: 1.5, 4: 1.9, 8: 2.6 }, roundTrip: 0.35, host: 0.02 };
const EIGHT: Machine = { step: 0.42, verified: { 2: 1.6 }, roundTrip: 0.35, host: 0.1 };

/** Answers of one model. */
interface Answers {
  readonly machine: Machine;
  readonly sequences?: number;
  readonly maxColumns?: number;
  /** The probability of a drafted token to be right; undefined for no drafts at all. */
  readonly share: number | undefined;
  /** Tokens of an answer, and how many answers follow each other. */
  readonly count: number;
  readonly answers: number;
  readonly seed: number;
  /** Whether the first answer verifies drafts whatever they cost. */
  readonly beginsFixed?: boolean;
  /** The number of an answer that does so too, but has something to draft in one of eight steps alone. */
  readonly rarelyFixed?: number;
}

/** A submission on its way. */
interface Sent {
  readonly steps: number;
  readonly columns: number;
  readonly isFirst: boolean;
  readonly submitted: number;
  /** When the host sees its end. */
  readonly seen: number;
}

/** Milliseconds of each answer, as a session makes its submissions. */
function times(
  { machine, sequences = 1, maxColumns = 8, share, count, answers, seed, beginsFixed = false, rarelyFixed = -1 }:
    Answers,
): number[] {
  const next = generator(seed);
  const costs = new DraftCosts();
  const made = new Set<number>();
  return Array.from({ length: answers }, (_, answer) => {
    const isRare = answer === rarelyFixed;
    const isFixed = isRare || beginsFixed && answer === 0;
    const budget = new DraftBudget(costs);
    const acceptances = Array.from({ length: sequences }, () => new Acceptance());
    for (const acceptance of acceptances) acceptance.expect(costs.acceptance);
    const sizer = new SubmissionSizer(undefined);
    let [now, free, at, submitted] = [0, 0, 0, 0];
    const flight: Sent[] = [];
    const send = (steps: number, columns: number): void => {
      const length = machine.step * (columns > 1 ? machine.verified[columns] : steps);
      free = Math.max(now + machine.roundTrip / 2, free) + length;
      const isFirst = columns > 1 && !made.has(columns);
      made.add(columns);
      flight.push({ steps, columns, isFirst, submitted: now, seen: free + machine.roundTrip / 2 });
      submitted += steps;
    };
    sizer.note(0, -1, -1, 0); // the prompt
    while (at < count) {
      const drafting = acceptances.map((acceptance) => ({ acceptance, most: 7 }));
      const columns = share === undefined || isRare && next() > 1 / 8
        ? 1
        : isFixed
        ? Math.min(maxColumns, 4)
        : budget.columnsFor({ sequences, drafting, maxColumns });
      const depth = columns > 1 ? 1 : sizer.depth;
      while (flight.length < depth && submitted < count) {
        if (columns > 1) {
          send(0, columns);
          break;
        }
        send(Math.min(share === undefined ? sizer.size : budget.fitting(sizer.size, isFixed), count - submitted), 1);
      }
      const { steps, columns: verified, isFirst, submitted: begun, seen } = flight.shift()!;
      const asked = now;
      now = Math.max(now, seen);
      const time = sizer.note(steps, begun, asked, now);
      if (verified === 1) {
        budget.note(sequences, steps, time);
        at += steps;
      } else {
        let tokens = 0;
        for (const acceptance of acceptances) {
          let right = 0;
          while (right < verified - 1 && next() < share!) right++;
          acceptance.note(verified - 1, right);
          costs.acceptance.note(verified - 1, right);
          tokens += right + 1;
        }
        const misses = Math.min(...acceptances.map((acceptance) => acceptance.misses));
        budget.noteDrafts({ sequences, columns: verified, tokens, misses, isFirst, isFixed }, time.elapsed);
        at += tokens / sequences;
        submitted = Math.floor(at); // sequences differ
      }
      now += machine.host;
      sizer.grow();
    }
    return now;
  });
}

/** How many times faster than without drafts: the least of first answers over many seeds, and the least and the mean of later ones. */
function speeds(
  given: Omit<Answers, "count" | "answers" | "seed">,
): Readonly<Record<"first" | "least" | "mean", number>> {
  const answers = { ...given, count: 128, answers: 8 };
  const plain = times({ ...answers, share: undefined, seed: 0 });
  const first: number[] = [];
  const later: number[] = [];
  for (let seed = 0; seed < 60; seed++) {
    const [one, ...others] = times({ ...answers, seed }).map((time, answer) => plain[answer] / time);
    first.push(one);
    later.push(...others.slice(given.beginsFixed ? 1 : 0)); // nothing was known before it
  }
  const mean = later.reduce((a, b) => a + b) / later.length;
  return { first: Math.min(...first), least: Math.min(...later), mean };
}

for (const beginsFixed of [false, true]) {
  const after = beginsFixed ? " after drafts whatever they cost" : "";

  Deno.test(`drafts of one stream that do not pay on a fast GPU are hardly made${after}`, () => {
    for (const share of [0, 0.3, 0.6, 0.7]) {
      const { first, least, mean } = speeds({ machine: ONE, share, beginsFixed });
      assert(beginsFixed || first >= 0.93, `${share} right: ${first} at first`);
      assert(least >= 0.93 && mean >= 0.98, `${share} right: ${mean}, ${least} at least`);
    }
  });

  Deno.test(`drafts of one stream that pay on a fast GPU are made${after}`, () => {
    for (const [share, expected] of [[0.9, 1.1], [1, 1.9]]) {
      const { least, mean } = speeds({ machine: ONE, share, beginsFixed });
      assert(least >= 0.93 && mean >= expected, `${share} right: ${mean}, ${least} at least`);
    }
  });

  Deno.test(`drafts of eight sequences that cannot pay on a fast GPU are hardly made, though all are right${after}`, () => {
    for (const share of [0, 0.6, 0.9, 1]) {
      const { first, least, mean } = speeds({ machine: EIGHT, sequences: 8, maxColumns: 2, share, beginsFixed });
      assert(beginsFixed || first >= 0.93, `${share} right: ${first} at first`);
      assert(least >= 0.93 && mean >= 0.98, `${share} right: ${mean}, ${least} at least`);
    }
  });
}

Deno.test("drafts of eight sequences that pay on a slower GPU are made", () => {
  const { least, mean } = speeds({
    machine: { step: 6, verified: { 2: 1.15 }, roundTrip: 0.35, host: 0.1 },
    sequences: 8,
    maxColumns: 2,
    share: 0.9,
  });
  assert(least >= 1.3 && mean >= 1.4, `${mean}, ${least} at least`);
});

Deno.test("ordinary steps between drafts whatever they cost are no loss of later ones", () => {
  for (const share of [0.6, 0.7, 0.8, 0.9, 1]) {
    const given = { machine: ONE, share, count: 128, answers: 8, seed: 0 };
    const mean = (rarelyFixed: number): number => {
      let sum = 0;
      for (let seed = 0; seed < 60; seed++) {
        for (const time of times({ ...given, seed, rarelyFixed }).slice(3)) sum += time;
      }
      return sum;
    };
    const [without, after] = [mean(-1), mean(2)];
    assert(after <= 1.02 * without, `${share} right: ${after / without}`);
  }
});
