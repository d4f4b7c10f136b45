/** What drafts tokens, how many, and which of them count: without a model. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { acceptedOf, countAccepted } from "../../../src/llm/speculation/acceptance.ts";
import {
  Acceptance,
  COLUMNS,
  DraftBudget,
  DraftCosts,
  type StepTime,
} from "../../../src/llm/speculation/draft_length.ts";
import { checkSpeculation, Speculation, type SpeculationOptions } from "../../../src/llm/speculation/speculation.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

const { NgramDrafter, PredictionDrafter, LlmError } = mx.lm;
mx.setDefaultDevice(anyDevice());
mx.withDevice(anyDevice(), getBackend); // opened outside the tests, which count resources

/** The draft by search: what followed the last occurrence of the longest end of 4, 3 or 2 tokens, which may overlap with it. */
function searched(tokens: readonly number[], count: number): number[] {
  for (const length of [4, 3, 2]) {
    const end = tokens.slice(-length).join();
    for (let at = tokens.length - 1; at >= length && length < tokens.length; at--) {
      if (tokens.slice(at - length, at).join() !== end) continue;
      const all = [...tokens];
      for (let i = 0; i < count; i++) all.push(all[at + i]);
      return all.slice(tokens.length);
    }
  }
  return [];
}

Deno.test("NgramDrafter drafts what a search of all tokens finds, however they come", () => {
  let state = 1;
  const random = (below: number): number => (state = (state * 48271) % 0x7fffffff) % below;
  for (const [vocabulary, length] of [[2, 40], [3, 90], [12, 200], [150_000, 60]]) {
    const drafter = new NgramDrafter();
    const tokens: number[] = [];
    let matches = 0;
    while (tokens.length < length) {
      const next = Array.from({ length: 1 + random(4) }, () => random(vocabulary));
      if (tokens.length > 20 && random(3) === 0) next.push(...tokens.slice(5, 12)); // repeats something
      tokens.push(...next);
      drafter.extend(next);
      const expected = searched(tokens, 7);
      assertEquals(drafter.draft(7), expected, `after ${tokens}`);
      assertEquals(drafter.matches(), expected.length > 0);
      matches += expected.length > 0 ? 1 : 0;
    }
    assert(matches > 2, `${matches} matches of ${vocabulary}`);
  }
});

Deno.test("NgramDrafter takes no other n-gram of the same hash for a match", () => {
  const drafter = new NgramDrafter();
  const original = Math.imul;
  try {
    Math.imul = () => 0; // all n-grams have one hash
    drafter.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    assertEquals([drafter.matches(), drafter.draft(3)], [false, []]);
  } finally {
    Math.imul = original;
  }
});

Deno.test("NgramDrafter goes on with a period, and drafts nothing after too few tokens", () => {
  const drafter = new NgramDrafter();
  assertEquals(drafter.draft(3), []);
  drafter.extend([7]);
  drafter.extend([7]);
  assertEquals(drafter.draft(3), []);
  drafter.extend([7]);
  assertEquals(drafter.draft(5), [7, 7, 7, 7, 7]);
});

Deno.test("PredictionDrafter follows the prediction, and finds it again after a difference", () => {
  const drafter = new PredictionDrafter([5, 6, 7, 8, 9, 7, 8, 10, 11]);
  drafter.extend([1, 2, 3, 5, 6]); // the prompt
  assertEquals([drafter.matches(), drafter.draft(3)], [true, [5, 6, 7]]);
  drafter.extend([5, 6]);
  assertEquals(drafter.draft(2), [7, 8]);
  drafter.extend([4]); // another token
  assertEquals(drafter.matches(), false);
  drafter.extend([7]);
  assertEquals(drafter.draft(2), []);
  drafter.extend([8]); // two tokens that it has twice: the next place counts
  assertEquals(drafter.draft(2), [9, 7]);
  drafter.extend([9, 7, 8]);
  assertEquals(drafter.draft(7), [10, 11]);
  drafter.extend([10, 11]);
  assertEquals(drafter.matches(), false); // its end
  drafter.extend([5, 6]); // it begins anew
  assertEquals(drafter.draft(2), [7, 8]);
  const empty = new PredictionDrafter([]);
  empty.extend([1]);
  assertEquals([empty.matches(), empty.draft(2)], [false, []]);
});

Deno.test("choices count up to the first one that is not the draft, on the device as on the host", () => {
  const drafted = [[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7], [9, 9, 9], [5, 6, 6], [5, 5, 5], [5, 6, 7]];
  const chosen = [[5, 6, 7, 1], [5, 6, 8, 1], [5, 1, 7, 1], [4, 6, 7, 1], [9, 9, -1, 9]];
  chosen.push([5, 6, 6, 1], [5, 5, 5, 1], [5, 6, 7, 1]); // what fills the columns is no draft
  const lengths = [3, 3, 3, 3, 3, 2, 1, 0];
  const expected = [3, 2, 1, 0, 2, 2, 1, 0];
  assertEquals(drafted.map((row, i) => acceptedOf(chosen[i], row.slice(0, lengths[i]))), expected);
  const ints = (values: number[] | number[][]): mx.Tensor => mx.array(values, mx.int32);
  using counts = mx.tidy(() => countAccepted(ints(chosen), ints(drafted), ints(lengths)));
  assertEquals([counts.dtype, counts.tolist()], [mx.int32, expected]);
});

/** Settings of a sampler, and the probabilities that they give these logits, worked out by hand. */
const LOGITS = [2, 1, 0, 3].map(Math.log1p);
const SAMPLERS: Readonly<Record<string, readonly [mx.lm.SamplerOptions, readonly number[]]>> = {
  "temperature 1": [{ temp: 1 }, [3, 2, 1, 4]],
  "temperature 0.5": [{ temp: 0.5 }, [9, 4, 1, 16]],
  "top-k": [{ temp: 1, topK: 2 }, [3, 0, 0, 4]],
  "top-p": [{ temp: 1, topP: 0.75 }, [3, 2, 0, 4]],
  "min-p": [{ temp: 1, minP: 0.6 }, [3, 0, 0, 4]],
  "bias and top-k": [{ temp: 1, topK: 3, logitBias: { 2: Math.log(6) } }, [3, 0, 6, 4]],
};

for (const [name, [options, weights]] of Object.entries(SAMPLERS)) {
  Deno.test(`tokens have the distribution of the sampler whatever was drafted: ${name}`, () => {
    const DRAWS = 20_000;
    const sampler = mx.lm.makeSampler(options);
    const [process = (_: mx.Tensor, logits: mx.Tensor): mx.Tensor => logits] = mx.lm.makeLogitsProcessors(options);
    // Each row drafts two tokens, of which each possible pair comes equally often, and has draws for three places.
    const draft = (row: number): number[] => [row % 4, (row >> 2) % 4];
    const found = mx.tidy(() => {
      const logits = process(mx.array([0]), mx.broadcastTo(mx.array([LOGITS]), [3 * DRAWS, 4]));
      const keys = mx.random.split(mx.random.key(11), 3 * DRAWS);
      const chosen = sampler(logits, keys).astype(mx.int32).reshape([DRAWS, 3]);
      const drafted = mx.array(Array.from({ length: DRAWS }, (_, row) => draft(row)), mx.int32);
      const accepted = countAccepted(chosen, drafted, mx.full([DRAWS], 2, mx.int32));
      return { chosen: chosen.tolist() as number[][], accepted: accepted.tolist() as number[] };
    });
    // By place: the tokens there of all rows that got so far.
    const counts = [0, 1, 2].map(() => [0, 0, 0, 0]);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (const [row, tokens] of found.chosen.entries()) {
      assertEquals(found.accepted[row], acceptedOf(tokens, draft(row)));
      for (const [place, token] of tokens.slice(0, found.accepted[row] + 1).entries()) counts[place][token]++;
    }
    for (const [place, seen] of counts.entries()) {
      const all = seen.reduce((sum, count) => sum + count, 0);
      assert(place > 0 || all === DRAWS);
      assert(all > 800, `${all} tokens in place ${place}`);
      const chi = weights.map((weight, token) => {
        const expected = all * weight / total;
        if (weight === 0) assertEquals(seen[token], 0);
        return weight === 0 ? 0 : (seen[token] - expected) ** 2 / expected;
      }).reduce((sum, term) => sum + term, 0);
      assert(chi < 16.3, `place ${place}: chi-squared ${chi} of ${seen}`); // 0.1 % with three degrees of freedom
    }
  });
}

/** Costs of steps by their columns, in ordinary ones. The first ones were measured on a GPU. */
const COSTS: Readonly<Record<string, Readonly<Record<number, number>>>> = {
  "cheap columns": { 1: 1, 2: 1.05, 4: 1.11, 8: 1.5 },
  "a host that takes longer than a step": { 1: 1, 2: 2.3, 4: 2.5, 8: 3.2 },
  "dear columns": { 1: 1, 2: 1.5, 4: 2.5, 8: 4.5 },
  "columns that save nothing": { 1: 1, 2: 2, 4: 4, 8: 8 },
};
/** The time of steps that ordinary ones precede. */
function stepTime(milliseconds: number, waited = true): StepTime {
  return { milliseconds, waited, isSteady: true, elapsed: milliseconds };
}

/** What a step costs more whose tokens the host waits for: one with drafts, and the one after it. */
const HOST = 0.15;
/** What the first step of some columns costs more in an answer, for which its loop is made. */
const FIRST = 0.5;

/**
 * How many times faster `count` tokens come than without drafts. Each drafted token is right with `share(token)`. If drafts are `instant`, they are compared
 * with the tokens of ordinary steps too.
 */
function simulate(
  costs: Readonly<Record<number, number>>,
  share: (at: number) => number,
  { count, seed, sequences = 1, known = new DraftCosts(), instant = false }: {
    readonly count: number;
    readonly seed: number;
    readonly sequences?: number;
    readonly known?: DraftCosts;
    readonly instant?: boolean;
  },
): number {
  const next = generator(seed);
  const budget = new DraftBudget(known);
  const made = new Set<number>();
  const acceptances = Array.from({ length: sequences }, () => new Acceptance());
  for (const acceptance of acceptances) acceptance.expect(known.acceptance);
  const guesses = acceptances.map(() => 0);
  let [time, at, isAfter] = [0, 0, false];
  while (at < count * sequences) {
    const drafting = acceptances.map((acceptance) => ({ acceptance, most: 7 }));
    const columns = budget.columnsFor({ sequences, drafting, maxColumns: 8 });
    const isFirst = columns > 1 && !made.has(columns);
    made.add(columns);
    const milliseconds = costs[columns] + (isAfter || columns > 1 ? HOST : 0) + (isFirst ? FIRST : 0);
    time += milliseconds;
    isAfter = columns > 1;
    if (columns === 1) {
      budget.note(sequences, 1, stepTime(milliseconds));
      for (const [i, acceptance] of acceptances.entries()) {
        if (!instant) continue;
        const isRight = next() < share(at / sequences);
        if (isRight && ++guesses[i] < 7) continue;
        acceptance.note(7, guesses[i]);
        guesses[i] = 0;
      }
      at += sequences;
      continue;
    }
    let tokens = 0;
    for (const acceptance of acceptances) {
      let right = 0;
      while (right < columns - 1 && next() < share(at / sequences)) right++;
      acceptance.note(columns - 1, right);
      known.acceptance.note(columns - 1, right);
      tokens += right + 1;
    }
    const misses = Math.min(...acceptances.map((acceptance) => acceptance.misses));
    budget.noteDrafts({ sequences, columns, tokens, misses, isFirst, isFixed: false }, milliseconds);
    at += tokens;
  }
  return at / sequences / time;
}

/** The best of all fixed numbers of columns, 1 among them, where tokens are right with a probability. */
function bestOf(costs: Readonly<Record<number, number>>, share: number): number {
  const speedOf = (columns: number): number =>
    Array.from({ length: columns }, (_, i) => share ** i).reduce((a, b) => a + b) / (costs[columns] + HOST);
  return Math.max(1, ...COLUMNS.map(speedOf));
}

const SHARES = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];

for (const [name, costs] of Object.entries(COSTS)) {
  Deno.test(`drafts cost at most 1.5 % of a long answer, and give nearly what the best length gives: ${name}`, () => {
    for (const share of SHARES) {
      for (const [count, least, mean, ofBest] of [[128, 0.96, 0.975, 0.9], [1000, 0.985, 0.985, 0.89]] as const) {
        const known = new DraftCosts();
        const first = Array.from({ length: 40 }, (_, seed) => simulate(costs, () => share, { count, seed }));
        // Nothing is known of the costs at first. Where columns are dear, trials of each number of them cost a short answer more.
        const leastFirst = name === "cheap columns" ? least : count > 128 ? 0.97 : 0.86;
        assert(Math.min(...first) >= leastFirst, `${share} right of ${count} tokens: ${Math.min(...first)} at first`);
        simulate(costs, () => 1, { count: 1000, seed: 0, known });
        const all = Array.from({ length: 40 }, (_, seed) => simulate(costs, () => share, { count, seed, known }));
        const what = `${share} right of ${count} tokens`;
        // A draft tells how often drafts are right. Few tokens feel what it costs.
        assert(Math.min(...all) >= least, `${what}: ${Math.min(...all)}`);
        const average = all.reduce((a, b) => a + b) / all.length;
        const best = bestOf(costs, share);
        assert(average >= mean, `${what}: ${average}`);
        assert(average >= ofBest * best, `${what}: ${average} of ${best}`);
      }
    }
  });
}

Deno.test("several sequences are drafted by one account", () => {
  for (const share of SHARES) {
    const found = simulate(COSTS["cheap columns"], () => share, { count: 400, seed: 1, sequences: 4 });
    const best = bestOf(COSTS["cheap columns"], share);
    assert(found >= 0.98 && found >= 0.9 * best, `${share} right: ${found} of ${best}`);
  }
});

Deno.test("a first step that takes long hides no draft that pays, and a later answer knows the costs of an earlier one", () => {
  const known = new DraftCosts();
  const cold = new DraftBudget(known);
  const one = { sequences: 1, drafting: [{ acceptance: new Acceptance(), most: 7 }], maxColumns: 8 };
  for (let i = 0; i < 8; i++) cold.note(1, 1, stepTime(1));
  let tokens = 0;
  const made = new Set<number>();
  for (let step = 0; step < 16; step++) {
    const columns = cold.columnsFor(one);
    if (columns === 1) {
      cold.note(1, 1, stepTime(1));
      tokens++;
      continue;
    }
    const isFirst = !made.has(columns);
    made.add(columns);
    one.drafting[0].acceptance.note(columns - 1, columns - 1);
    tokens += columns;
    const step = { sequences: 1, columns, tokens: columns, misses: 0, isFirst, isFixed: false };
    cold.noteDrafts(step, isFirst ? 50 : COSTS["cheap columns"][columns] + HOST);
  }
  assert(tokens > 70, `${tokens} tokens in 16 steps`);
  const warm = new DraftBudget(known);
  const sure = new Acceptance();
  for (let i = 0; i < 3; i++) sure.note(7, 7);
  assertEquals(warm.columnsFor({ ...one, drafting: [{ acceptance: sure, most: 7 }] }), 8);
  const other = new DraftBudget();
  assertEquals(other.columnsFor(one), 1);
  // A draft that is wrong once is no reason to stop because its loop had to be made.
  warm.noteDrafts({ sequences: 1, columns: 8, tokens: 1, misses: 1, isFirst: true, isFixed: false }, 50);
  assertEquals(warm.columnsFor({ ...one, drafting: [{ acceptance: sure, most: 7 }] }), 8);
});

Deno.test("a text that begins to repeat is noticed", () => {
  const found = simulate(COSTS["cheap columns"], (at) => at < 300 ? 0 : 1, { count: 600, seed: 1 });
  assert(found > 600 / (300 * 1.02 + 300 / 8 * 1.65 + 40), `${found}`);
});

Deno.test("drafts that cost nothing are made again as soon as they would pay", () => {
  const parts = (at: number): number => at % 100 < 70 ? 0 : 0.95;
  for (const [name, least] of [["cheap columns", 1.1], ["a host that takes longer than a step", 0.985]] as const) {
    const known = new DraftCosts();
    simulate(COSTS[name], () => 1, { count: 1000, seed: 0, known });
    const mean = (instant: boolean): number => {
      const seeds = Array.from({ length: 20 }, (_, seed) => seed);
      return seeds.reduce((sum, seed) => sum + simulate(COSTS[name], parts, { count: 2000, seed, known, instant }), 0) /
        20;
    };
    const [without, found] = [mean(false), mean(true)];
    assert(found >= least && found > without, `${name}: ${found}, and ${without} where only verified drafts count`);
  }
  for (const share of SHARES) {
    const found = simulate(COSTS["cheap columns"], () => share, { count: 1000, seed: 1, instant: true });
    const best = bestOf(COSTS["cheap columns"], share);
    assert(found >= 0.985 && found >= 0.89 * best, `${share} right: ${found} of ${best}`);
  }
});

Deno.test("drafts that no step verified count where they cost nothing, and none is counted twice", () => {
  const facts = { vocabulary: 100 };
  const period = Array.from({ length: 40 }, (_, i) => i % 5);
  const prompt = period.slice(0, 10);
  const after = (tokens: readonly number[], options: SpeculationOptions = {}): Speculation => {
    const speculation = new Speculation(new NgramDrafter(), options, facts);
    speculation.extend(prompt);
    speculation.extend(tokens);
    return speculation;
  };
  const right = after(period.slice(10));
  assertEquals([right.drafted, right.accepted, right.acceptance.misses], [0, 0, 0]);
  assert(right.acceptance.expected(7) > 6, `${right.acceptance.expected(7)}`);
  // An n-gram of before is followed by another token each time.
  const wrong = after(Array.from({ length: 30 }, (_, i) => i % 3 < 2 ? [0, 1][i % 3] : 50 + i));
  assert(wrong.acceptance.expected(7) < 1.5 && wrong.acceptance.misses > 2, `${wrong.acceptance.expected(7)}`);
  const fixed = after(period.slice(10), { adaptive: false });
  assertEquals(fixed.acceptance.expected(7), new Acceptance().expected(7));

  const verified = after([]);
  const expected = new Acceptance();
  for (const [drafted, accepted] of [[7, 7], [3, 1], [7, 0]]) {
    verified.note(drafted, accepted);
    expected.note(drafted, accepted);
    verified.extend(accepted === drafted ? [...period.slice(0, accepted + 1)] : [...period.slice(0, accepted), 99]);
    assertEquals(verified.acceptance.expected(7), expected.expected(7), `${accepted} of ${drafted}`);
  }

  const calls: number[][] = [];
  const slow = new Speculation({ extend: (tokens) => void calls.push([...tokens]), draft: () => [1] }, {}, facts);
  slow.extend(prompt);
  slow.extend([1, 1, 1]);
  assertEquals([calls, slow.acceptance.expected(1)], [[prompt, [1, 1, 1]], new Acceptance().expected(1)]);
});

Deno.test("nothing is drafted before an ordinary step was measured, nor where no sequence has a draft", () => {
  const budget = new DraftBudget();
  const drafting = [{ acceptance: new Acceptance(), most: 7 }];
  const columns = (sequences: number, maxColumns = 8): number => budget.columnsFor({ sequences, drafting, maxColumns });
  assertEquals(columns(1), 1);
  budget.note(1, 1, stepTime(1, false));
  assertEquals(columns(1), 1); // the step may have ended before
  budget.note(1, 1, stepTime(1));
  assertEquals(columns(1), 1); // later ones may be faster
  budget.note(1, 1, stepTime(1));
  assertEquals([columns(1), columns(2), columns(1, 1)], [2, 1, 1]);
  assertEquals(budget.columnsFor({ sequences: 1, drafting: [], maxColumns: 8 }), 1);
});

Deno.test("ordinary steps are those that follow each other, where some do", () => {
  const costs = new DraftCosts();
  const note = (milliseconds: number, time: Partial<StepTime> = {}): number | undefined => {
    costs.noteOrdinary(1, milliseconds, { ...stepTime(milliseconds), ...time });
    return costs.ordinary(1);
  };
  const waits = { isSteady: false };
  assertEquals([note(2, waits), note(2, waits)], [undefined, 2]);
  assert(note(3, waits)! > 2); // none follows another: the host waits for each
  assertEquals([note(1), note(3, waits), note(2, { waited: false })], [1, 1, 1]);
  assertEquals(note(0.9, waits), 0.9);
  assert(note(1.5)! > 1); // as the context grows
});

Deno.test("a long wait costs no more than the tokens one by one, and wrong times do not hide wrong drafts", () => {
  const patient = new DraftBudget();
  const acceptance = new Acceptance();
  const one = { sequences: 1, drafting: [{ acceptance, most: 7 }], maxColumns: 8 };
  for (let i = 0; i < 2; i++) patient.note(1, 1, stepTime(1));
  acceptance.note(1, 1);
  patient.noteDrafts({ sequences: 1, columns: 2, tokens: 2, misses: 0, isFirst: false, isFixed: false }, 10_000);
  assert(patient.columnsFor(one) > 1);
  // Times of ordinary steps that were measured far too long: the pauses alone keep wrong drafts few.
  const blind = new DraftBudget();
  const wrong = new Acceptance();
  let drafts = 0;
  for (let at = 0; at < 400; at++) {
    const columns = blind.columnsFor({ ...one, drafting: [{ acceptance: wrong, most: 7 }] });
    if (columns > 1) {
      drafts++;
      wrong.note(columns - 1, 0);
      blind.noteDrafts({ sequences: 1, columns, tokens: 1, misses: wrong.misses, isFirst: false, isFixed: false }, 0.1);
    } else blind.note(1, 1, stepTime(1));
  }
  assert(drafts > 3 && drafts < 26, `${drafts} drafts`);
});

Deno.test("drafts that a request wants whatever they cost lose nothing of the account of others", () => {
  for (const isFixed of [true, false]) {
    const budget = new DraftBudget();
    for (let i = 0; i < 2; i++) budget.note(1, 1, stepTime(1));
    for (let i = 0; i < 50; i++) {
      budget.noteDrafts({ sequences: 1, columns: 2, tokens: 1, misses: 0, isFirst: false, isFixed }, 2.2);
    }
    // As the kernels are there now, a step with a draft costs 1.3 ordinary ones.
    budget.noteDrafts({ sequences: 1, columns: 2, tokens: 1, misses: 0, isFirst: false, isFixed: true }, 1.3);
    budget.note(1, 1, stepTime(1));
    const candidate = { acceptance: new Acceptance(), most: 1 };
    assertEquals(budget.columnsFor({ sequences: 1, drafting: [candidate], maxColumns: 8 }), isFixed ? 2 : 1);
  }
});

Deno.test("options of speculation out of range are refused by name", () => {
  const wrong: readonly [unknown, string][] = [
    ["ngrams", 'speculation is "ngrams", expected an object'],
    [{ draftTokens: 3 }, "draftTokens"],
    [
      { drafter: "suffix" },
      'speculation.drafter is "suffix", expected "ngrams", "mtp", what load() returns or an object with extend() and draft()',
    ],
    [
      { drafter: { draft: () => [] } },
      'expected "ngrams", "mtp", what load() returns or an object with extend() and draft()',
    ],
    [{ numDraftTokens: 0 }, "speculation.numDraftTokens is 0, expected an integer from 1 to 7"],
    [{ numDraftTokens: 8 }, "speculation.numDraftTokens is 8"],
    [{ adaptive: 1 }, "speculation.adaptive is 1, expected true or false"],
  ];
  for (const [options, message] of wrong) {
    assertThrows(() => checkSpeculation(options as SpeculationOptions), LlmError, message);
  }
});
