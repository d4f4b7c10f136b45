/** Which step an engine's scheduler chooses, whom it prefers and whom it stops. Expected steps follow from its rules, by hand. */

import { assertEquals, assertThrows } from "@std/assert";
import { type Drafts, Scheduler, type SchedulerOptions } from "../../../src/llm/engine/scheduler.ts";
import { AGING, Sequence } from "../../../src/llm/engine/sequence.ts";
import { type PrefillStep, type Step, type StepRow, tokenCountOf } from "../../../src/llm/engine/step.ts";

/** A scheduler with room for most things. */
function schedulerWith(options: Partial<SchedulerOptions> = {}): Scheduler {
  return new Scheduler({ pages: 101, pageSize: 4, maxSequences: 8, tokenBudget: 10, maxQueue: 100, ...options });
}

/** A sequence whose prompt has no beginning in common with those of others. */
function sequenceOf(id: number, length: number, maxTokens = 20, priority = 0): Sequence {
  return new Sequence({ id, prompt: Array.from({ length }, (_, i) => 1000 * id + i), maxTokens, priority });
}

/** Adds sequences that have to be accepted. */
function addAll(scheduler: Scheduler, ...sequences: readonly Sequence[]): void {
  for (const sequence of sequences) assertEquals(scheduler.add(sequence), undefined);
}

/** Commits a step with token 7 for all that it gives. Sequences of `ended` end with their first token. */
function commit(scheduler: Scheduler, step: Step, ...ended: readonly Sequence[]): void {
  const results = step.rows.map((row: StepRow) => {
    const ends = ended.includes(row.sequence);
    return { tokens: Array(ends ? Math.min(1, tokenCountOf(row)) : tokenCountOf(row)).fill(7), ended: ends };
  });
  scheduler.commit(step, results);
  scheduler.checkIntegrity();
}

/** A step in short: "read 1: 0+10, 2: 0+4" or "decode 1 2 x3". */
function brief(step: Step | undefined): string {
  if (!step) return "none";
  if (step.kind === "prefill") {
    return `read ${step.rows.map(({ sequence, from, count }) => `${sequence.id}: ${from}+${count}`).join(", ")}`;
  }
  if (step.kind === "verify") {
    return `verify ${step.rows.map(({ sequence, drafted }) => `${sequence.id}+${drafted.length}`).join(" ")}`;
  }
  return `decode ${step.rows.map(({ sequence }) => sequence.id).join(" ")} x${step.steps}`;
}

/** The next steps in short, each committed before the next. */
function run(scheduler: Scheduler, count: number, maxSteps?: number): string[] {
  return Array.from({ length: count }, () => {
    const step = scheduler.schedule(maxSteps);
    if (step) commit(scheduler, step);
    return brief(step);
  });
}

Deno.test("a prompt is read in parts, and then decoded up to its limit", () => {
  const scheduler = schedulerWith();
  const sequence = sequenceOf(1, 23, 4);
  addAll(scheduler, sequence);
  assertEquals(run(scheduler, 7), [
    "read 1: 0+10",
    "read 1: 10+10",
    "read 1: 20+3",
    "decode 1 x1",
    "decode 1 x1",
    "decode 1 x1",
    "none",
  ]);
  assertEquals([sequence.status, sequence.tokens.slice(23)], ["ended", [7, 7, 7, 7]]);
});

Deno.test("with an endless budget all prompts go first, in parts of the size of a step", () => {
  const scheduler = schedulerWith({ tokenBudget: Infinity, prefillStepSize: 10 });
  addAll(scheduler, sequenceOf(1, 4, 2), sequenceOf(2, 25, 2));
  assertEquals(run(scheduler, 4, 4), ["read 1: 0+4, 2: 0+6", "read 2: 6+10", "read 2: 16+9", "decode 1 2 x1"]);
  const small = schedulerWith({ tokenBudget: 10, prefillStepSize: 100 });
  addAll(small, sequenceOf(1, 15));
  assertEquals(run(small, 2), ["read 1: 0+10", "read 1: 10+5"]);
});

Deno.test("a prompt may be scheduled where a decode step may not", () => {
  const scheduler = schedulerWith({ tokenBudget: Infinity });
  addAll(scheduler, sequenceOf(1, 4));
  const steps = [scheduler.schedule()];
  addAll(scheduler, sequenceOf(2, 5));
  steps.push(scheduler.schedule(4, true), scheduler.schedule(4, true));
  assertEquals(steps.map(brief), ["read 1: 0+4", "read 2: 0+5", "none"]);
  for (const step of steps.slice(0, 2)) commit(scheduler, step!);
  assertEquals([brief(scheduler.schedule(4, true)), brief(scheduler.schedule(4))], ["none", "decode 1 2 x4"]);
});

Deno.test("a running sequence gets a decode step between the parts of a long prompt", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 4));
  run(scheduler, 1);
  addAll(scheduler, sequenceOf(2, 25));
  assertEquals(run(scheduler, 7, 4), [
    "decode 1 x1", // 4 tokens were read: a part of 10 is more than is left of the budget
    "read 2: 0+10",
    "decode 1 x1",
    "read 2: 10+10",
    "decode 1 x1",
    "read 2: 20+5",
    "decode 1 2 x4",
  ]);
});

Deno.test("short prompts are read together up to the budget", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, ...[1, 2, 3, 4].map((id) => sequenceOf(id, 4)));
  assertEquals(run(scheduler, 4), [
    "read 1: 0+4, 2: 0+4, 3: 0+2",
    "decode 1 2 x1",
    "read 3: 2+2, 4: 0+4",
    "decode 1 2 3 4 x1",
  ]);
});

Deno.test("a step reads no more prompts than it may, and one at a time where layers have states", () => {
  for (const [options, first] of [[{ maxPrompts: 2 }, "1: 0+2, 2: 0+2"], [{ slots: 20 }, "1: 0+2"]] as const) {
    const scheduler = schedulerWith(options);
    addAll(scheduler, ...[1, 2, 3].map((id) => sequenceOf(id, 2)));
    assertEquals(run(scheduler, 1), [`read ${first}`]);
  }
});

Deno.test("parts of several prompts count in whole tiles, the part of one as it is", () => {
  const scheduler = schedulerWith({ prefillTile: 4, tokenBudget: 8 });
  addAll(scheduler, sequenceOf(1, 1), sequenceOf(2, 3), sequenceOf(3, 2), sequenceOf(4, 11));
  // A step of 8 has a tile of each of the first two, then of the others.
  assertEquals(run(scheduler, 5), [
    "read 1: 0+1, 2: 0+3",
    "decode 1 2 x1",
    "read 3: 0+2, 4: 0+4",
    "decode 1 2 3 x1",
    "read 4: 4+7", // alone it is not in tiles
  ]);
});

Deno.test("a part that is longer than several may be together is read alone", () => {
  const scheduler = schedulerWith({ maxTogether: 6 });
  addAll(scheduler, sequenceOf(1, 17), sequenceOf(2, 2), sequenceOf(3, 4), sequenceOf(4, 3), sequenceOf(5, 7));
  assertEquals(run(scheduler, 8), [
    "read 1: 0+10", // nothing joins it, though it has more to read
    "read 1: 10+7",
    "decode 1 x1",
    "read 2: 0+2, 3: 0+4",
    "read 4: 0+3",
    "decode 1 2 3 4 x1",
    "read 5: 0+7",
    "decode 1 2 3 4 5 x1",
  ]);
});

Deno.test("short prompts are read beside a long one, which has half of a step and what they leave", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 30), sequenceOf(2, 3), sequenceOf(3, 4), sequenceOf(4, 30), sequenceOf(5, 1));
  assertEquals(run(scheduler, 7), [
    "read 1: 0+7, 2: 0+3", // the third one would not be read to its end
    "decode 2 x1",
    "read 1: 7+6, 3: 0+4",
    "decode 2 3 x1",
    "read 1: 13+10", // another long one does not share the step, and is not overtaken
    "decode 2 3 x1",
    "read 1: 23+7, 4: 0+3",
  ]);
});

Deno.test("a prompt of a lower priority takes no room from a long one", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 20, 20, 1), sequenceOf(2, 4));
  assertEquals(run(scheduler, 4), ["read 1: 0+10", "read 1: 10+10", "decode 1 x1", "read 2: 0+4"]);
});

Deno.test("in one step a prompt has whole pages that another one fills, and no copy of a page", () => {
  const scheduler = schedulerWith({ tokenBudget: 100 });
  const first = sequenceOf(1, 10);
  addAll(scheduler, first, new Sequence({ id: 2, prompt: [...first.tokens.slice(0, 8), 1], maxTokens: 4 }));
  addAll(scheduler, new Sequence({ id: 3, prompt: [...first.tokens.slice(0, 6), 1], maxTokens: 4 }));
  assertEquals(run(scheduler, 2), ["read 1: 0+10, 2: 8+1", "read 3: 6+1"]);
});

Deno.test("a decode step has one token where a prompt could be read, several where none can", () => {
  const scheduler = schedulerWith({ maxSequences: 2, tokenBudget: 8 });
  addAll(scheduler, sequenceOf(1, 8), sequenceOf(2, 8));
  assertEquals(run(scheduler, 1, 6), ["read 1: 0+8"]);
  assertEquals(run(scheduler, 1, 6), ["decode 1 x1"]); // the second one waits
  assertEquals(run(scheduler, 1, 6), ["read 2: 0+8"]);
  addAll(scheduler, sequenceOf(3, 8));
  assertEquals(run(scheduler, 1, 6), ["decode 1 2 x6"]); // no place is free for the third one
});

Deno.test("a decode step is as long as its longest row, and rows stop at their limits", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 4, 3), sequenceOf(2, 4, 6));
  run(scheduler, 1);
  const step = scheduler.schedule(16)!;
  assertEquals([brief(step), step.rows.map(({ count }) => count)], ["decode 1 2 x5", [2, 5]]);
  commit(scheduler, step);
  assertEquals(brief(scheduler.schedule(16)), "none");
  assertEquals(scheduler.running, 0);
});

Deno.test("requests of a higher priority go first, equal ones as they come", () => {
  const scheduler = schedulerWith({ maxSequences: 1 });
  addAll(
    scheduler,
    sequenceOf(1, 4, 1),
    sequenceOf(2, 4, 1),
    sequenceOf(3, 4, 1, 1),
    sequenceOf(4, 4, 1, -1),
    sequenceOf(5, 4, 1),
  );
  assertEquals(run(scheduler, 5).map((text) => Number(text[5])), [3, 1, 2, 5, 4]);
});

Deno.test("a request of a higher priority is read before the rest of a long prompt", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 25));
  assertEquals(run(scheduler, 1), ["read 1: 0+10"]);
  addAll(scheduler, sequenceOf(2, 4), sequenceOf(3, 4, 20, 1));
  assertEquals(run(scheduler, 3), ["read 3: 0+4, 1: 10+6", "decode 3 x1", "read 1: 16+9, 2: 0+1"]);
});

for (const priority of [1, 2]) {
  Deno.test(`a stream of requests whose priority is higher by ${priority} goes before another one for so long only`, () => {
    const scheduler = schedulerWith({ maxSequences: 1 });
    const low = sequenceOf(0, 4, 1);
    addAll(scheduler, low);
    let overtaken = 0;
    for (let id = 1; low.status === "waiting" && id < 1_000; id++) {
      addAll(scheduler, sequenceOf(id, 4, 1, priority));
      if (run(scheduler, 1)[0] !== "read 0: 0+4") overtaken++;
    }
    assertEquals(overtaken, priority * AGING);
  });
}

Deno.test("a request whose pages cannot be had is not overtaken by a smaller one", () => {
  const scheduler = schedulerWith({ pages: 9, tokenBudget: 32 });
  const first = sequenceOf(1, 16, 4);
  addAll(scheduler, first, sequenceOf(2, 24, 1), sequenceOf(3, 4, 1));
  assertEquals(run(scheduler, 4), ["read 1: 0+16", "decode 1 x1", "decode 1 x1", "decode 1 x1"]);
  assertEquals(first.status, "ended");
  assertEquals(run(scheduler, 1), ["read 2: 0+24, 3: 0+4"]);
});

/** Two sequences that have all four pages of four positions and need another one each, after six steps. */
function twoThatFill(): { scheduler: Scheduler; first: Sequence; second: Sequence } {
  const scheduler = schedulerWith({ pages: 5, tokenBudget: 100 });
  const [first, second] = [sequenceOf(1, 3, 8), sequenceOf(2, 3, 12)];
  addAll(scheduler, first, second);
  assertEquals(run(scheduler, 5), ["read 1: 0+3, 2: 0+3", ...Array(4).fill("decode 1 2 x1")]);
  return { scheduler, first, second };
}

Deno.test("where a page is missing, the last in order waits again and is read again after its kept pages", () => {
  const { scheduler, first, second } = twoThatFill();
  assertEquals([run(scheduler, 1), scheduler.preemptions], [["decode 1 2 x1"], 0]);
  // Nine tokens of the second one are known, and the keys and values of eight.
  assertEquals([run(scheduler, 1), scheduler.preemptions, second.status], [["decode 1 x1"], 1, "waiting"]);
  assertEquals([run(scheduler, 1), first.status], [["decode 1 x1"], "ended"]);
  // The first one took one of its two pages.
  assertEquals(run(scheduler, 2), ["read 2: 4+5", "decode 2 x1"]);
  run(scheduler, 20);
  assertEquals([second.status, second.tokens.length, scheduler.preemptions], ["ended", 3 + 12, 1]);
  assertEquals(second.cached, 0); // of its prompt, when it came
});

Deno.test("a sequence with a step on its way is not preempted: a commit comes first", () => {
  const { scheduler, second } = twoThatFill();
  const step = scheduler.schedule()!;
  assertEquals([brief(step), brief(scheduler.schedule()), second.status], ["decode 1 2 x1", "none", "running"]);
  commit(scheduler, step);
  assertEquals([brief(scheduler.schedule()), second.status], ["decode 1 x1", "waiting"]);
});

Deno.test("a decode step has fewer tokens where pages for more are missing", () => {
  const { scheduler } = twoThatFill();
  assertEquals(run(scheduler, 1, 8), ["decode 1 2 x1"]); // position 7 is the last one with a page
  const roomy = schedulerWith({ pages: 7 });
  addAll(roomy, sequenceOf(1, 3), sequenceOf(2, 3));
  assertEquals(run(roomy, 2, 16), ["read 1: 0+3, 2: 0+3", "decode 1 2 x8"]); // 16 need ten pages, 8 six
});

Deno.test("a preempted sequence has the latest arrival of the lowest priority, and goes to the head of its class", () => {
  const scheduler = schedulerWith({ pages: 7, tokenBudget: 100 });
  const sequences = [sequenceOf(1, 3), sequenceOf(2, 3, 20, 1), sequenceOf(3, 3)];
  addAll(scheduler, ...sequences);
  run(scheduler, 3);
  const late = sequenceOf(4, 3);
  addAll(scheduler, late);
  const order: number[] = [];
  for (let i = 0; i < 30 && order.length < 2; i++) {
    const before = sequences.filter(({ status }) => status === "running");
    run(scheduler, 1);
    order.push(...before.filter(({ status }) => status === "waiting").map(({ id }) => id));
  }
  assertEquals(order, [3, 1]);
  assertEquals(late.status, "waiting");
  scheduler.abort(2);
  const read: string[] = [];
  for (let i = 0; i < 40 && late.status === "waiting"; i++) read.push(run(scheduler, 1)[0]);
  assertEquals(read.flatMap((text) => [...text.matchAll(/(\d): /g)].map(([, id]) => Number(id))), [1, 3, 4]);
});

Deno.test("a sequence has pages for its tokens and one more, and none for the last of all", () => {
  const scheduler = schedulerWith({ tokenBudget: 100 });
  const sequences = [sequenceOf(1, 4, 1), sequenceOf(2, 4, 2), sequenceOf(3, 3, 2)];
  addAll(scheduler, ...sequences);
  for (const _ of sequences) scheduler.schedule();
  assertEquals(sequences.map(({ pages }) => pages.length), [1, 2, 1]);
});

Deno.test("a sequence is not admitted to the page that a running one will need", () => {
  const scheduler = schedulerWith({ pages: 4, pageSize: 2 });
  addAll(scheduler, sequenceOf(1, 2, 5), sequenceOf(2, 1, 1)); // the first one has two pages of three
  assertEquals(run(scheduler, 3, 4), ["read 1: 0+2", "decode 1 x4", "read 2: 0+1"]);
});

Deno.test("steps are scheduled ahead, and what a sequence gives after its end is dropped", () => {
  const scheduler = schedulerWith();
  const [ending, other] = [sequenceOf(1, 4), sequenceOf(2, 4)];
  addAll(scheduler, ending, other);
  const steps = Array.from({ length: 3 }, () => scheduler.schedule()!);
  assertEquals(steps.map(brief), ["read 1: 0+4, 2: 0+4", "decode 1 2 x1", "decode 1 2 x1"]);
  commit(scheduler, steps[0]);
  commit(scheduler, steps[1], ending);
  assertEquals([ending.status, ending.tokens.slice(4), ending.pages.length], ["ended", [7, 7], 2]);
  assertEquals(scheduler.running, 2); // it keeps its place and its pages until the last step that has it
  const next = scheduler.schedule()!;
  assertEquals(brief(next), "decode 2 x1");
  commit(scheduler, steps[2]);
  assertEquals([ending.tokens.slice(4), ending.pages.length, scheduler.running], [[7, 7], 0, 1]);
  commit(scheduler, next);
  assertEquals(other.tokens.slice(4), [7, 7, 7, 7]);
});

Deno.test("a sequence is decoded no further than its limit by steps on their way", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 4, 3));
  assertEquals(Array.from({ length: 4 }, () => brief(scheduler.schedule())), [
    "read 1: 0+4",
    "decode 1 x1",
    "decode 1 x1",
    "none",
  ]);
});

Deno.test("a stepwise sequence has one token a step, and none before the last one is committed", () => {
  const scheduler = schedulerWith();
  const stepwise = new Sequence({ id: 1, prompt: [1, 2, 3], maxTokens: 9, stepwise: true });
  addAll(scheduler, stepwise, sequenceOf(2, 3));
  const steps = [0, 1].map(() => scheduler.schedule(4)!);
  assertEquals(steps.map(brief), ["read 1: 0+3, 2: 0+3", "decode 2 x4"]); // the token after prompt 1 is not known
  for (const step of steps) commit(scheduler, step);
  const step = scheduler.schedule(4)!;
  assertEquals([brief(step), step.rows.map(({ count }) => count)], ["decode 1 2 x4", [1, 4]]);
  assertEquals(brief(scheduler.schedule(4)), "decode 2 x4");
});

Deno.test("drafts are verified with all sequences that decode, and wrong ones give their positions back", () => {
  const scheduler = schedulerWith();
  const [first, second] = [sequenceOf(1, 4), sequenceOf(2, 4)];
  addAll(scheduler, first, second);
  run(scheduler, 1);
  const step = scheduler.schedule(8, false, { tokens: new Map([[first, [5, 6, 7]]]), columns: 4 })!;
  assertEquals([brief(step), first.pages.length], ["verify 1+3 2+0", 2]);
  assertEquals(brief(scheduler.schedule(8)), "none"); // how far the sequences are is not known
  scheduler.commit(step, [{ tokens: [5, 9], ended: false }, { tokens: [3], ended: false }]);
  scheduler.checkIntegrity();
  assertEquals([first.tokens.slice(4), first.computed, second.computed], [[7, 5, 9], 6, 5]);
  const next = scheduler.schedule()!;
  assertEquals(next.rows.map(({ sequence, from }) => [sequence.id, from]), [[1, 6], [2, 5]]);
});

Deno.test("drafts are cut at the limit, and left out where pages are missing or a step is on its way", () => {
  const draftsOf = (sequence: Sequence): Drafts => ({ tokens: new Map([[sequence, [7, 7, 7]]]), columns: 4 });
  const scheduler = schedulerWith();
  const short = sequenceOf(1, 4, 3);
  addAll(scheduler, short);
  const read = scheduler.schedule()!;
  assertEquals(brief(scheduler.schedule(1, false, draftsOf(short))), "decode 1 x1");
  assertEquals(short.inFlight, 2);
  const other = schedulerWith();
  const limited = sequenceOf(1, 4, 3);
  addAll(other, limited);
  run(other, 1);
  assertEquals(brief(other.schedule(8, false, draftsOf(limited))), "verify 1+1"); // the third token needs no position
  const full = schedulerWith({ pages: 2 });
  const crowded = sequenceOf(1, 2, 3);
  addAll(full, crowded);
  run(full, 1);
  assertEquals(brief(full.schedule(8, false, draftsOf(crowded))), "verify 1+1");
  const states = schedulerWith({ slots: 9 });
  const recurrent = sequenceOf(1, 2);
  addAll(states, recurrent);
  run(states, 1);
  assertEquals(brief(states.schedule(1, false, draftsOf(recurrent))), "verify 1+3");
  commit(scheduler, read);
  const { scheduler: filled, first } = twoThatFill();
  assertEquals(brief(filled.schedule(1, false, draftsOf(first))), "decode 1 2 x1"); // another page would be needed
});

Deno.test("results have to come in order and to fit their step", () => {
  const scheduler = schedulerWith();
  addAll(scheduler, sequenceOf(1, 4));
  const [read, decode] = [scheduler.schedule()!, scheduler.schedule()!];
  const one = { tokens: [7], ended: false };
  assertThrows(() => scheduler.commit(decode, [one]), Error, "in the order");
  assertThrows(() => scheduler.commit(read, []), Error, "0 results for 1 rows");
  for (
    const wrong of [{ tokens: [], ended: false }, { tokens: [7, 7], ended: false }, { tokens: [7, 7], ended: true }]
  ) {
    assertThrows(
      () => scheduler.commit(read, [wrong]),
      Error,
      `${wrong.tokens.length} tokens for sequence 1, expected 1`,
    );
  }
  scheduler.checkIntegrity();
  commit(scheduler, read);
  commit(scheduler, decode);
});

Deno.test("requests that start alike read their beginning once, also where they come together", () => {
  const scheduler = schedulerWith({ tokenBudget: 100 });
  const prompts = [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 8], [1, 2, 3, 4, 5, 6, 7]];
  const sequences = prompts.map((prompt, id) => new Sequence({ id, prompt, maxTokens: 4 }));
  addAll(scheduler, ...sequences);
  const steps = [0, 1].map(() => scheduler.schedule() as PrefillStep); // before a result of any is known
  assertEquals(steps.map(brief), ["read 0: 0+7", "read 1: 6+1, 2: 6+1"]);
  const [shared, part] = sequences[0].pages;
  assertEquals(sequences.map(({ pages }) => pages[0]), [shared, shared, shared]);
  assertEquals(steps.flatMap(({ rows }) => rows.map(({ copies }) => copies)), [
    [],
    [{ page: part, from: [part], to: [sequences[1].pages[1]], count: 2 }],
    [{ page: part, from: [part], to: [sequences[2].pages[1]], count: 2 }],
  ]);
  assertEquals(sequences.map(({ cached }) => cached), [0, 6, 6]);
});

Deno.test("pages that no sequence uses are kept up to a limit, those used last", () => {
  const scheduler = schedulerWith({ maxPrefixPages: 3, tokenBudget: 100 });
  addAll(scheduler, sequenceOf(1, 8, 1), sequenceOf(2, 8, 1));
  run(scheduler, 2);
  assertEquals(scheduler.usedPages, 3);
  const again = [sequenceOf(1, 9, 1), sequenceOf(2, 9, 1)];
  addAll(scheduler, again[1]);
  run(scheduler, 1);
  addAll(scheduler, again[0]);
  run(scheduler, 1);
  assertEquals(again.map(({ cached }) => cached), [0, 8]); // three pages of the second one were kept then, none of the first
  const none = schedulerWith({ maxPrefixPages: 0, tokenBudget: 100 });
  const twins = [sequenceOf(1, 9), sequenceOf(1, 9)];
  addAll(none, ...twins);
  run(none, 60);
  assertEquals([twins[1].cached, none.running, none.usedPages], [8, 0, 0]); // while the first one runs, its pages are shared
});

Deno.test("a full queue and a prompt that can never fit are refused with the reason", () => {
  const scheduler = schedulerWith({ pages: 5, maxSequences: 1, maxQueue: 2 });
  addAll(scheduler, sequenceOf(1, 4), sequenceOf(2, 4), sequenceOf(3, 4));
  assertEquals(scheduler.add(sequenceOf(4, 4))?.code, "queue");
  assertEquals(scheduler.abort(2), true);
  addAll(scheduler, sequenceOf(4, 4));
  const other = schedulerWith({ pages: 5 });
  assertEquals(other.add(sequenceOf(1, 17)), {
    code: "memory",
    message: "a prompt of 17 tokens does not fit into a cache of 16 positions",
  });
  const largest = sequenceOf(2, 16, 100);
  addAll(other, largest);
  for (let i = 0; i < 10; i++) run(other, 1);
  assertEquals([largest.status, largest.tokens.length], ["ended", 17]); // the last token needs no position
});

Deno.test("a request is aborted while it waits, while it is read, while it is decoded and after its end", () => {
  const scheduler = schedulerWith({ maxSequences: 1, tokenBudget: 4 });
  const [first, second] = [sequenceOf(1, 10), sequenceOf(2, 4)];
  addAll(scheduler, first, second);
  assertEquals([scheduler.abort(2), second.status, scheduler.waiting], [true, "ended", 1]);
  const part = scheduler.schedule()!;
  assertEquals([scheduler.abort(1), first.status, first.pages.length], [true, "ended", 3]);
  assertEquals(brief(scheduler.schedule()), "none");
  commit(scheduler, part);
  assertEquals([first.pages.length, scheduler.running, scheduler.usedPages], [0, 0, 1]); // the tree keeps what was read

  const third = sequenceOf(3, 4);
  addAll(scheduler, third);
  run(scheduler, 1);
  const decode = scheduler.schedule()!;
  assertEquals([scheduler.abort(3), third.status], [true, "ended"]);
  commit(scheduler, decode);
  assertEquals([third.tokens.length, third.pages.length, scheduler.running], [5, 0, 0]);
  assertEquals([scheduler.abort(3), scheduler.abort(99)], [false, false]);
});
