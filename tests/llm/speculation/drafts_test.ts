/** What drafts tokens, how many, and which of them count: without a model. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { acceptedOf, countAccepted } from "../../../src/llm/speculation/acceptance.ts";
import { AdaptiveDraftLength, FixedDraftLength } from "../../../src/llm/speculation/draft_length.ts";
import { checkSpeculation, type SpeculationOptions } from "../../../src/llm/speculation/speculation.ts";
import { anyDevice } from "../../support/devices/devices.ts";

const { NgramDrafter, LlmError } = mx.lm;
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

Deno.test("choices count up to the first one that is not the draft, on the device as on the host", () => {
  const drafted = [[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7], [9, 9, 9]];
  const chosen = [[5, 6, 7, 1], [5, 6, 8, 1], [5, 1, 7, 1], [4, 6, 7, 1], [9, 9, -1, 9]];
  const expected = [3, 2, 1, 0, 2];
  assertEquals(drafted.map((row, i) => acceptedOf(chosen[i], row)), expected);
  using counts = mx.tidy(() => countAccepted(mx.array(chosen, mx.int32), mx.array(drafted, mx.int32)));
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
      return { chosen: chosen.tolist() as number[][], accepted: countAccepted(chosen, drafted).tolist() as number[] };
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

/** What 400 tokens cost in ordinary steps. A draft of n tokens costs 1 + n * `more`; `accepts` says how many of it are right. */
function costOf(more: number, accepts: (drafted: number, at: number) => number): number {
  const length = new AdaptiveDraftLength(7);
  let cost = 0;
  for (let at = 0; at < 400;) {
    const drafted = length.tokens;
    if (drafted === 0) {
      length.note(1);
      cost++;
      at++;
      continue;
    }
    const accepted = accepts(drafted, at);
    length.noteDraft({ drafted, accepted, cost: 1 + more * drafted });
    cost += 1 + more * drafted;
    at += accepted + 1;
  }
  return cost;
}

Deno.test("drafts that are never right cost at most 2 % beside the first steps, and right ones get long", () => {
  for (const more of [0.05, 0.13, 0.5, 1]) {
    const none = costOf(more, () => 0);
    assert(none <= 400 * 1.02 + 6, `${none} steps with ${more} a draft`);
  }
  assert(costOf(0.1, (drafted) => drafted) < 400 / 8 * 1.7 + 5);
  assert(costOf(0.1, (_, at) => at % 3) < 330, `${costOf(0.1, (_, at) => at % 3)}`);
  // Where a column costs as much as a step, drafts save nothing and lose little.
  assert(costOf(1, (drafted) => drafted) <= 400 * 1.02 + 6);
  // A text that begins to repeat is noticed.
  assert(costOf(0.1, (drafted, at) => at < 200 ? 0 : drafted) < 200 * 1.02 + 200 / 8 * 1.7 + 20);
});

Deno.test("a long wait costs no more than the tokens one by one, and a length has its bound", () => {
  const length = new AdaptiveDraftLength(7);
  for (const cost of [10_000, Infinity]) length.noteDraft({ drafted: 3, accepted: 3, cost });
  assertEquals(length.tokens, 3);
  length.noteDraft({ drafted: 3, accepted: 0, cost: Infinity });
  assertEquals(length.tokens, 0);
  // Times of ordinary steps that were measured far too long: the pauses alone keep wrong drafts few.
  const blind = new AdaptiveDraftLength(7);
  let drafts = 0;
  for (let at = 0; at < 400; at++) {
    if (blind.tokens > 0) {
      drafts++;
      blind.noteDraft({ drafted: blind.tokens, accepted: 0, cost: 0.1 });
    } else blind.note(1);
  }
  assert(drafts > 3 && drafts < 20, `${drafts} drafts`);
  const short = new AdaptiveDraftLength(2);
  for (let i = 0; i < 5; i++) short.noteDraft({ drafted: 2, accepted: 2, cost: 1 });
  assertEquals(short.tokens, 2);
  const fixed = new FixedDraftLength(5);
  assertEquals(fixed.tokens, 5);
});

Deno.test("options of speculation out of range are refused by name", () => {
  const wrong: readonly [unknown, string][] = [
    ["ngrams", 'speculation is "ngrams", expected an object'],
    [{ draftTokens: 3 }, "draftTokens"],
    [
      { drafter: "suffix" },
      'speculation.drafter is "suffix", expected "ngrams", what load() returns or an object with extend() and draft()',
    ],
    [{ drafter: { draft: () => [] } }, 'expected "ngrams", what load() returns or an object with extend() and draft()'],
    [{ numDraftTokens: 0 }, "speculation.numDraftTokens is 0, expected an integer from 1 to 7"],
    [{ numDraftTokens: 8 }, "speculation.numDraftTokens is 8"],
    [{ adaptive: 1 }, "speculation.adaptive is 1, expected true or false"],
  ];
  for (const [options, message] of wrong) {
    assertThrows(() => checkSpeculation(options as SpeculationOptions), LlmError, message);
  }
});
