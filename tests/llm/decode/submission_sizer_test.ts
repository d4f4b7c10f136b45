/**
 * How many steps are submitted at a time, from made-up times in milliseconds.
 */

import { assertAlmostEquals, assertEquals } from "@std/assert";
import { SubmissionSizer } from "../../../src/llm/decode/submission_sizer.ts";

Deno.test("a sizer begins with single steps, doubles, and ends at ten milliseconds", () => {
  const sizer = new SubmissionSizer(undefined);
  assertEquals([sizer.size, sizer.depth, sizer.perStep], [1, 1, Infinity]);
  sizer.note(0, 0, 1, 5); // a prompt
  assertEquals([sizer.depth, sizer.perStep], [1, Infinity]);
  sizer.note(1, 6, 6, 6.5);
  const sizes: number[] = [];
  for (let i = 0; i < 7; i++) {
    sizer.grow();
    sizes.push(sizer.size);
  }
  assertEquals([sizes, sizer.depth, sizer.perStep], [[2, 4, 8, 16, 20, 20, 20], 2, 0.5]);
});

Deno.test("a sizer that is known begins with eight steps, and steps that take long come one by one", () => {
  assertEquals([0.1, 0.3, 2, 20].map((known) => new SubmissionSizer(known).size), [8, 8, 5, 1]);
  assertEquals([0.1, 0.3, 2, 20, 50].map((known) => new SubmissionSizer(known).depth), [2, 2, 2, 2, 1]);
});

Deno.test("a sizer tells steps that follow each other from those that wait for the host", () => {
  const sizer = new SubmissionSizer(1);
  const rows = [[0, 0, 2], [8, 2.5, 6], [8, 2.6, 9], [1, 9.5, 21], [1, 21, 21.5]]; // steps, submitted, ended
  const times = rows.map(([steps, submitted, ended]) => sizer.note(steps, submitted, submitted, ended));
  assertEquals(times.map(({ isSteady }) => isSteady), [false, false, true, true, false]);
  assertEquals(times.map(({ elapsed }) => elapsed), [Infinity, 4, 3, 12, 0.5]);
  assertEquals(times.map(({ milliseconds }) => milliseconds), [2, 3.5, 3, 11.5, 0.5]);
  const late = [[8, 21, 100, 100], [8, 21.1, 100, 101]].map(([steps, ...rest]) =>
    sizer.note(steps, ...rest as [number, number, number])
  );
  assertEquals(late.map(({ milliseconds, waited }) => [milliseconds, waited]), [[78.5, false], [Infinity, false]]);
});

Deno.test("a sizer follows a device that runs ahead, and not a host that comes late", () => {
  const sizer = new SubmissionSizer(1);
  sizer.note(0, 0, 0.1, 2); // a prompt; the next submission has been waiting for its end
  sizer.note(8, 0.2, 2.1, 6);
  assertAlmostEquals(sizer.perStep, 0.5);
  sizer.note(8, 2.1, 106, 106); // the host was elsewhere for 100 ms
  assertAlmostEquals(sizer.perStep, 0.5);
  sizer.note(8, 6.1, 106.1, 106.2); // and the start of this one is not known
  assertAlmostEquals(sizer.perStep, 0.5);
  sizer.note(8, 106.1, 106.3, 122.2);
  assertAlmostEquals(sizer.perStep, 2);
  sizer.note(8, 123, 126.9, 127); // late, but a step took less than was known
  assertAlmostEquals(sizer.perStep, 0.5);
});

Deno.test("a sizer does not take a machine that stood still for slow steps, nor the next submission for fast ones", () => {
  const sizer = new SubmissionSizer(0.5);
  sizer.note(0, 0, 0.1, 2); // a prompt
  sizer.note(8, 1.9, 2, 6);
  const stalled = sizer.note(8, 2.1, 6.1, 1010); // asked for in time
  const ahead = sizer.note(8, 6.1, 1010.1, 1010.2); // it ended meanwhile
  assertEquals([stalled, ahead].map(({ waited }) => waited), [false, false]);
  assertEquals([sizer.perStep, ahead.milliseconds], [0.5, Infinity]);
  const { waited, milliseconds } = sizer.note(8, 1010.1, 1010.2, 1014.2);
  assertEquals([waited, sizer.perStep], [true, 0.5]);
  assertAlmostEquals(milliseconds, 4);
});

Deno.test("a sizer follows steps that stay slow from the second submission on", () => {
  const sizer = new SubmissionSizer(0.5);
  sizer.note(8, 0, 0, 80);
  assertEquals(sizer.perStep, 0.5);
  sizer.note(8, 80, 80, 160);
  assertEquals(sizer.perStep, 10);
  sizer.note(1, 160, 160, 170);
  assertEquals(sizer.perStep, 10);
});
