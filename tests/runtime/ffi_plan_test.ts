/**
 * Plans below the backends: what runs in which order, what is refused, tickets and timestamps, on every Vulkan device.
 */

import { assert, assertEquals } from "@std/assert";
import { RuntimeError } from "../../ffi/error.ts";
import { VKRT_BUFFER_VISIBLE, VKRT_MAX_TIMES } from "../../ffi/symbols.ts";
import { KERNELS, PLAN_DISJOINT, PLAN_MAGIC, PLAN_NO_SLOT, PLAN_PREAMBLE } from "../../src/backend/kernels.ts";
import {
  arange,
  assertFails,
  bufferOf,
  bytesOf,
  copy,
  deviceTest,
  floatsOf,
  INFO,
  MIB,
  pattern,
  plan,
  slotsOf,
} from "../support/devices/vulkan_device.ts";
import { encodePush } from "../support/devices/harness.ts";

// ---- Plans --------------------------------------------------------------------------------------------------------------

deviceTest("planRun() runs dispatches in order over hazards of all kinds", (device) => {
  const n = 5000, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n), c = device.bufferNew(4 * n);
  const p = device.planNew(plan(
    3,
    arange(0, n, 1, 0), // a = 1
    copy(0, 1, n), //      b = 1: read after write
    arange(0, n, 2, 0), // a = 2: write after read
    arange(0, n, 3, 0), // a = 3: write after write
    copy(0, 2, n), //      c = 3
  ));
  device.planRun(p, slotsOf(a, b, c));
  for (const [buffer, value] of [[a, 3], [b, 1], [c, 3]]) {
    assert(floatsOf(device, buffer, n).every((x) => x === value));
  }
});

deviceTest("planRun() replays with the same slots and records again for others", (device) => {
  const n = 1000, p = device.planNew(plan(2, copy(0, 1, n)));
  const inputs = Array.from({ length: 7 }, (_, i) => bufferOf(device, pattern(4 * n, i)));
  const outputs = Array.from({ length: 7 }, () => device.bufferNew(4 * n));
  let last = 0;
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 7; i++) {
      const ticket = device.planRun(p, slotsOf(inputs[i], outputs[(i + round) % 7]));
      assert(ticket > last);
      last = ticket;
      device.planRun(p, slotsOf(inputs[i], outputs[(i + round) % 7]));
    }
    for (let i = 0; i < 7; i++) {
      assertEquals(bytesOf(device, outputs[(i + round) % 7], 4 * n), pattern(4 * n, i));
    }
  }
});

deviceTest("planRun() runs a Plan several times in a row under one ticket", (device) => {
  const n = 200, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n);
  const start = device.planNew(plan(1, arange(0, n, 0, 1)));
  const shift = device.planNew(plan(2, copy(0, 1, n - 1, 4), copy(1, 0, n - 1))); // a moves one place to the front
  device.planRun(start, slotsOf(a));
  let shifted = 0;
  for (const times of [1, 3, VKRT_MAX_TIMES, 2]) {
    const ticket = device.planRun(shift, slotsOf(a, b), times);
    assertEquals(device.planRun(shift, slotsOf(a, b), times), ticket + 1);
    shifted += 2 * times;
    const expected = Float32Array.from({ length: n }, (_, i) => Math.min(i + shifted, n - 1));
    assertEquals(floatsOf(device, a, n), expected);
  }
  for (const times of [0, VKRT_MAX_TIMES + 1, 2 ** 32 - 1]) {
    assertFails("argument", () => device.planRun(shift, slotsOf(a, b), times), `1 to ${VKRT_MAX_TIMES}`, `${times}`);
  }
});

deviceTest("planRun() takes offsets of slots and of the Plan", (device) => {
  const source = bufferOf(device, pattern(4096)), out = bufferOf(device, new Uint8Array(4096));
  const p = device.planNew(plan(2, copy(0, 1, 10, 8, 16)));
  device.planRun(p, slotsOf([source, 100], [out, 256]));
  const expected = new Uint8Array(4096);
  expected.set(pattern(4096).subarray(108, 148), 272);
  assertEquals(bytesOf(device, out, 4096), expected);
});

deviceTest("bufferWrite() between runs comes in order, also while they run", (device) => {
  const n = 200_000, x = device.bufferNew(4 * n), results: number[] = [];
  const p = device.planNew(plan(2, copy(0, 1, n)));
  for (let i = 0; i < 6; i++) {
    device.bufferWrite(x, 0, new Uint8Array(4 * n).fill(i + 1));
    results.push(device.bufferNew(4 * n));
    device.planRun(p, slotsOf(x, results[i]));
  }
  results.forEach((buffer, i) => assert(bytesOf(device, buffer, 4 * n).every((byte) => byte === i + 1)));
});

deviceTest("bufferWrite() twice to one place keeps the last bytes", (device) => {
  const n = 100_000, x = device.bufferNew(4 * n), y = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, copy(0, 1, n)));
  device.planRun(p, slotsOf(x, y));
  device.bufferWrite(x, 0, new Uint8Array(1000).fill(1));
  device.bufferWrite(x, 500, new Uint8Array(1000).fill(2));
  device.planRun(p, slotsOf(x, y));
  const bytes = bytesOf(device, y, 1500);
  assert(bytes.every((byte, i) => byte === (i < 500 ? 1 : 2)));
});

deviceTest("a freed buffer's memory may be used again while earlier work runs", (device) => {
  const n = 300_000, out: number[] = [];
  const fill = device.planNew(plan(1, arange(0, n, 0, 1)));
  const copies = device.planNew(plan(2, copy(0, 1, n)));
  for (let i = 0; i < 8; i++) {
    const temporary = device.bufferNew(4 * n);
    if (i % 2) device.bufferWrite(temporary, 0, new Uint8Array(4 * n).fill(i));
    else device.planRun(fill, slotsOf(temporary));
    out.push(device.bufferNew(4 * n));
    device.planRun(copies, slotsOf(temporary, out[i]));
    device.bufferFree(temporary);
  }
  out.forEach((buffer, i) => {
    if (i % 2) assert(bytesOf(device, buffer, 4 * n).every((byte) => byte === i));
    else assert(floatsOf(device, buffer, n).every((x, j) => x === j));
  });
});

deviceTest("planRun() refuses bindings that do not fit", (device) => {
  const buffer = device.bufferNew(64);
  const p = device.planNew(plan(1, arange(0, 4, 0, 1, 32)));
  assertFails("argument", () => device.planRun(p, slotsOf()), "1 slots");
  assertFails("argument", () => device.planRun(p, slotsOf(buffer, buffer)), "8 words");
  assertFails("argument", () => device.planRun(p, slotsOf([buffer, 32])), "slot 0", "64 bytes");
  assertFails("argument", () => device.planRun(p, Uint32Array.of(buffer, 0, 9, 0)), "slot 0");
  device.planFree(p);
  assertFails("handle", () => device.planRun(p, slotsOf(buffer)), "no plan");
  assertFails("handle", () => device.planFree(p));
});

deviceTest("planRun() looks again at a slot whose buffer went or whose binding was refused", (device) => {
  const n = 64, p = device.planNew(plan(2, copy(0, 1, n)));
  const first = bufferOf(device, pattern(4 * n, 1)), second = bufferOf(device, pattern(8 * n, 2));
  const out = device.bufferNew(4 * n);
  const run = (from: number | readonly [number, number], to: number, offset = 0): Uint8Array => {
    device.planRun(p, slotsOf(from, [to, offset]));
    return bytesOf(device, to, 4 * n);
  };
  assertEquals(run(first, out), pattern(4 * n, 1));
  // The second slot is refused after a first one that was taken, and both before a third binding.
  assertFails("argument", () => run(second, out, 4 * n), "slot 1");
  assertEquals(run(first, out), pattern(4 * n, 1));
  assertEquals(run([second, 4 * n], out), pattern(8 * n, 2).slice(4 * n));
  assertEquals(run(second, out), pattern(8 * n, 2).slice(0, 4 * n));
  device.bufferFree(out);
  assertFails("handle", () => run(second, out), "slot 1");
  const next = device.bufferNew(4 * n); // where the freed one was
  assertEquals(run(second, next), pattern(8 * n, 2).slice(0, 4 * n));
  assertEquals(run(first, next), pattern(4 * n, 1));
  device.bufferFree(first);
  assertFails("handle", () => run(first, next), "slot 0");
});

deviceTest("planNew() takes a Plan without dispatches", (device) => {
  const p = device.planNew(plan(0));
  assert(device.wait(device.planRun(p, slotsOf()), 1000));
});

deviceTest("planNew() says what is wrong with a Plan", (device) => {
  const valid = plan(2, copy(0, 1, 10));
  const wrong = (change: (words: number[]) => void, ...parts: string[]): void => {
    const words = [...valid];
    change(words);
    assertFails("plan", () => device.planNew(Uint32Array.from(words)), "vkrt_plan_new()", ...parts);
  };
  wrong((w) => w.length = 0, "0 words are no Plan");
  wrong((w) => w.length = 3, "no Plan");
  wrong((w) => w[0] = 0, "no Plan", PLAN_MAGIC.toString(16));
  wrong((w) => w.push(0), "header says");
  wrong((w) => w[3] = w.push(0), "follow the last dispatch");
  wrong((w) => w[1] = 2 ** 31, "2147483648 slots");
  wrong((w) => w[2] = 2 ** 31, "dispatches");
  wrong((w) => w[2] = 2, "past the end");
  wrong((w) => w[4] = 999, "no kernel 999");
  wrong((w) => w[4] |= 0x40000, "unknown flags");
  wrong((w) => w[5] += 1, "copy takes 3 buffers");
  wrong((w) => w[6] = 2 ** 32 - 1, "workgroups along x");
  wrong((w) => w[9] = 2, "slot 2 of 2");
  wrong((w) => w[9] = PLAN_NO_SLOT, "buffer 0 must be bound");
  wrong((w) => w[15] = 0, "0 threads");
  wrong((w) => w[15] = 65536, "65536 threads");
});

deviceTest("planNew() refuses entries of a table that are in no slot", (device, index) => {
  const kernel = "batch_layers_emulated";
  if (kernel in INFO[index].missingKernels) return;
  const { buffers, columns, spec, push } = KERNELS[kernel];
  const dispatch = { kernel, spec: spec.map(() => 64), push: encodePush(push, {}), grid: [1, 1, 1] } as const;
  const head = plan(2, { ...dispatch, buffers: buffers.map((_, i) => [Math.min(i, 1), 0]) });
  for (const slot of [2, 3, PLAN_NO_SLOT]) {
    const entries = columns.flatMap((_, i) => [i === columns.length - 1 ? slot : 1, 0]);
    const words = Uint32Array.of(...head, 1, ...entries);
    words[3] = words.length;
    const where = `entry ${columns.length - 1} of its table is in slot ${slot} of 2`;
    assertFails("plan", () => device.planNew(words), kernel, where);
  }
});

deviceTest("planNew() survives random words and mutated Plans", (device) => {
  let state = 1;
  const random = (n: number): number => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return (state >>> 0) % n;
  };
  const valid = plan(3, arange(0, 10, 0, 1), copy(0, 1, 10), copy(1, 2, 10));
  const structure = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 19, 20]; // all but constants and push words of the first two
  let accepted = 0;
  for (let i = 0; i < 4000; i++) {
    let words: Uint32Array<ArrayBuffer>;
    if (i % 4 === 0) {
      words = Uint32Array.from({ length: random(40) }, () => random(3) ? random(64) : random(2 ** 32));
      if (words.length > 3 && i % 8 === 0) words.set([PLAN_MAGIC, random(4), random(4), words.length]);
    } else {
      words = valid.slice(0, i % 16 === 1 ? random(valid.length) : valid.length);
      const value = [random(2 ** 32), random(8), 0, 2 ** 32 - 1, 2 ** 31, 0xffff][random(6)];
      if (words.length > 0) words[structure[random(structure.length)] % words.length] = value;
    }
    try {
      device.planFree(device.planNew(words));
      accepted++;
    } catch (error) {
      assert(error instanceof RuntimeError && error.code === "plan", String(error));
    }
  }
  assert(accepted > 0 && accepted < 4000, `${accepted} of 4000`);
});

deviceTest("planRun() lets flagged dispatches of one slot run together", (device) => {
  const n = 4096, pieces = 8;
  const words = plan(1, ...Array.from({ length: pieces }, (_, i) => arange(0, n, i, 0, 4 * n * i)));
  const size = (words.length - 4) / pieces;
  for (let i = 1; i < pieces; i++) words[4 + i * size] |= PLAN_DISJOINT << 16;
  const out = device.bufferNew(4 * n * pieces);
  device.planRun(device.planNew(words), slotsOf(out));
  assert(floatsOf(device, out, n * pieces).every((x, i) => x === Math.floor(i / n)));
});

deviceTest("planRun() runs what opens in front of the first of several runs", (device, index) => {
  const n = 64,
    [first, later, work, out] = [3, 4, 0, 0].map((x) => {
      return bufferOf(device, new Uint8Array(new Float32Array(n).fill(x).buffer));
    });
  const words = plan(4, copy(0, 2, n), copy(2, 3, n), copy(1, 2, n));
  words[4] |= PLAN_PREAMBLE << 16;
  const p = device.planNew(words);
  const run = (times: number): number => {
    device.planRun(p, slotsOf(first, later, work, out), times);
    return floatsOf(device, out, n)[0];
  };
  assertEquals([1, 2, 1, 8, 9, 64].map(run), [3, 4, 3, 4, 4, 4]);
  if (INFO[index].timestampPeriod > 0) {
    device.profile(true); // every run is timed whole
    assertEquals(run(2), 3);
    assertEquals(device.profileRead(p, 3).length, 3);
  }
  const behind = plan(4, copy(0, 2, n), copy(2, 3, n));
  behind[4 + (behind.length - 4) / 2] |= PLAN_PREAMBLE << 16;
  assertFails("plan", () => device.planNew(behind), "dispatch 1 opens");
});

// ---- tickets and timestamps -----------------------------------------------------------------------------------------------

deviceTest("wait() times out while work runs and ends with it", async (device) => {
  const n = 2 * MIB, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, ...Array.from({ length: 10 }, (_, i) => i % 2 ? copy(1, 0, n) : copy(0, 1, n))));
  let ticket = 0;
  for (let i = 0; i < 4; i++) ticket = device.planRun(p, slotsOf(a, b));
  assertEquals(device.wait(ticket, 0), false);
  const start = performance.now();
  device.wait(ticket, 1);
  assert(performance.now() - start < 10_000);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  while (!await device.waitAsync(ticket, 50));
  clearInterval(timer);
  assert(turns > 0 || INFO[0].type !== "cpu", "the event loop stood still");
  assertEquals(device.wait(ticket, 0), true);
  assertEquals(device.wait(0, 0), true);
  assertFails("argument", () => device.wait(ticket + 1, 0), "never given");
});

deviceTest("planRun() waits between uses of one place in many runs too, whatever was bound before", (device) => {
  const n = MIB, [a, b, c] = Array.from({ length: 3 }, () => device.bufferNew(4 * n));
  // With slots 0 and 3 at one place: slot 1 is what slot 0 was a run before.
  const p = device.planNew(plan(4, copy(0, 1, n), arange(3, n, 0, 2)));
  const first = device.planNew(plan(1, arange(0, n, 0, 1)));
  for (const times of [1, 2, 3, 7, VKRT_MAX_TIMES]) {
    device.planRun(first, slotsOf(a));
    device.planRun(p, slotsOf(a, b, b, c), times);
    device.planRun(p, slotsOf(a, b, b, a), times); // only one slot is bound anew
    const expected = times === 1 ? 1 : 2;
    assertEquals(floatsOf(device, b, n).filter((x, i) => x !== expected * i).length, 0);
    device.planRun(first, slotsOf(a));
    const pair = device.planRunPair(p, slotsOf(a, b, b, a), first, slotsOf(c));
    assert(pair > 0);
    assertEquals(floatsOf(device, b, n).filter((x, i) => x !== i).length, 0);
  }
});

deviceTest("planRunPair() runs two Plans in order, with a ticket of each", (device) => {
  const n = 300, p = device.planNew(plan(2, copy(0, 1, n - 1, 4))); // b is a, one place to the front
  const back = device.planNew(plan(2, copy(0, 1, n - 1)));
  const a = device.bufferNew(4 * n), b = device.bufferNew(4 * n), other = bufferOf(device, pattern(4 * n));
  device.planRun(device.planNew(plan(1, arange(0, n, 0, 1))), slotsOf(a));
  for (let round = 1; round <= 10; round++) {
    const first = device.planRunPair(p, slotsOf(a, b), back, slotsOf(b, a));
    assertEquals(device.planRun(p, slotsOf(a, other)), first + 2); // what follows has the ticket after both
    const expected = Float32Array.from({ length: n - 1 }, (_, i) => Math.min(i + round, n - 1));
    assertEquals(floatsOf(device, a, n - 1), expected);
    device.planRunPair(p, slotsOf(a, other), p, slotsOf(a, other)); // a Plan with itself
  }
  assertFails("argument", () => device.planRunPair(p, slotsOf(a), back, slotsOf(b, a)), "2 slots of 4 words");
  assertFails("argument", () => device.planRunPair(p, slotsOf(a, b), back, slotsOf(b)), "2 slots of 4 words");
  assertFails("handle", () => device.planRunPair(p, slotsOf(a, b), 12345, slotsOf(b, a)));
});

deviceTest("planRunPair() tells of the first Plan while the second runs", async (device) => {
  const n = 2 * MIB,
    a = device.bufferNew(4 * n),
    b = device.bufferNew(4 * n),
    seen = device.bufferNew(400, VKRT_BUFFER_VISIBLE);
  const short = device.planNew(plan(1, arange(0, 100, 0, 1)));
  const copies = (count: number): number =>
    device.planNew(plan(2, ...Array.from({ length: count }, (_, i) => i % 2 ? copy(1, 0, n) : copy(0, 1, n))));
  const some = copies(16);
  const begin = performance.now();
  const ticket = device.planRun(some, slotsOf(a, b));
  while (!device.wait(ticket, 1000));
  const long = copies(16 * Math.ceil(20 / (performance.now() - begin))); // some 20 ms
  const out = new Float32Array(100), bytes = new Uint8Array(out.buffer);
  const expected = Float32Array.from({ length: 100 }, (_, i) => i);
  for (let round = 0; round < 5; round++) {
    device.bufferWrite(seen, 0, new Uint8Array(400));
    const first = device.planRunPair(short, slotsOf(seen), long, slotsOf(a, b));
    if (round % 2) { while (!device.wait(first, 0)) await new Promise((resolve) => setTimeout(resolve)); }
    // a loop alone may keep a software driver from a processor
    else while (!await device.waitAsync(first, 50));
    assertEquals(device.wait(first + 1, 0), false);
    device.bufferReadMapped(seen, 0, bytes);
    assertEquals(out, expected);
    if (round % 3 === 0) device.bufferWrite(seen, 0, bytes); // which nothing uses now
    while (!device.wait(first + 1, 1000));
  }
});

deviceTest("close() lets a wait on another thread end", async (device) => {
  const buffer = device.bufferNew(4 * MIB);
  const p = device.planNew(plan(1, arange(0, MIB, 0, 1)));
  const waiting = device.waitAsync(device.planRun(p, slotsOf(buffer)), 5000).catch((error) => {
    assertEquals(error.code, "handle"); // the device was gone before the thread began
    return true;
  });
  device.close();
  assertEquals(await waiting, true);
});

deviceTest("profileRead() gives one time a dispatch", (device, index) => {
  const n = MIB, a = device.bufferNew(4 * n), b = device.bufferNew(4 * n);
  const p = device.planNew(plan(2, arange(0, n, 0, 1), copy(0, 1, n), arange(0, 1, 0, 1)));
  device.planRun(p, slotsOf(a, b));
  assertEquals(device.profileRead(p, 3).length, 0);
  if (INFO[index].timestampPeriod === 0) return;
  device.profile(true);
  device.planRun(p, slotsOf(a, b));
  device.planRun(p, slotsOf(a, b));
  const times = device.profileRead(p, 3);
  assertEquals(times.length, 3);
  assert(times.every((t) => t >= 0 && t < 60e9) && times[0] > times[2], String(times));
  assertEquals(device.profileRead(p, 2).length, 2);
  device.profile(false);
  device.planRun(p, slotsOf(a, b));
  assertEquals(device.profileRead(p, 3), times);
});

deviceTest("planBarriers() counts what a run waits for, timed or not", (device, index) => {
  const n = 16, [a, b, c] = [0, 1, 2].map(() => device.bufferNew(4 * n));
  const barriers = (...dispatches: Parameters<typeof plan>[1][]): number => {
    const p = device.planNew(plan(3, ...dispatches));
    device.planRun(p, slotsOf(a, b, c));
    return device.planBarriers(p);
  };
  const one = barriers(arange(0, n, 0, 1));
  assertEquals(barriers(arange(0, n, 0, 1), arange(1, n, 0, 1)), one); // neither needs the other
  assertEquals(barriers(arange(0, n, 0, 1), copy(0, 1, n), copy(0, 2, n)), one + 1);
  assertEquals(barriers(arange(0, n, 0, 1), copy(0, 1, n), copy(1, 2, n)), one + 2);
  assertEquals(barriers(copy(0, 1, n), arange(0, n, 0, 1)), one + 1); // a write of what was read
  if (INFO[index].timestampPeriod === 0) return;
  device.profile(true);
  assertEquals(barriers(arange(0, n, 0, 1), arange(1, n, 0, 1)), one);
});

deviceTest("planBarriers() counts a barrier between uses of one place, through whatever slots", (device) => {
  const n = 16, [a, b] = [0, 1].map(() => device.bufferNew(8 * n));
  const words = plan(4, arange(0, n, 0, 1), copy(1, 2, n), arange(3, n, 0, 1));
  const barriers = (...slots: Parameters<typeof slotsOf>): number => {
    const p = device.planNew(words);
    device.planRun(p, slotsOf(...slots));
    return device.planBarriers(p);
  };
  const apart = barriers(a, [a, 4 * n], b, [b, 4 * n]);
  assertEquals(barriers(a, a, b, [b, 4 * n]), apart + 1); // slot 1 reads what slot 0 wrote
  assertEquals(barriers(a, [a, 4 * n], b, [a, 4 * n]), apart + 1); // slot 3 writes what slot 1 read
  assertEquals(barriers(a, [a, 4 * n], b, b), apart + 1); // slot 3 writes what slot 2 wrote
  assertEquals(barriers(a, a, b, b), apart + 2);
});

deviceTest(
  "planBarriers() counts a barrier before a flagged dispatch that uses what earlier ones read or wrote",
  (device) => {
    const n = 16, slots = slotsOf(...[0, 1, 2].map(() => device.bufferNew(8 * n)));
    const barriers = (...dispatches: Parameters<typeof plan>[1][]): number => {
      const words = plan(3, ...dispatches);
      const last = plan(0, dispatches[dispatches.length - 1]).length - plan(0).length;
      words[words.length - last] |= PLAN_DISJOINT << 16;
      const p = device.planNew(words);
      device.planRun(p, slots);
      return device.planBarriers(p);
    };
    const one = barriers(arange(0, n, 0, 1));
    assertEquals(barriers(arange(0, n, 0, 1), arange(0, n, 0, 1, 4 * n)), one);
    assertEquals(barriers(copy(0, 1, n), arange(0, n, 0, 1)), one + 1); // a write of what was read
    assertEquals(barriers(arange(0, n, 0, 1), copy(0, 1, n)), one + 1); // a read of what was written
  },
);
