/**
 * Compiled functions and loops of arrays on every device. A function that is traced once must give what the plain graph
 * gives, again and again, and free everything at the end.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import {
  DeviceLoop,
  hostVisible,
  readMapped,
  TracedStep,
  TracedSteps,
  writeState,
} from "../../../src/array/compile/loop.ts";
import { StackedTensors, unstacked } from "../../../src/array/devices/stack.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { SharedMemory } from "../../../src/schedule/plan/storage.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** A test on every device; afterwards nothing may live that did not before. */
function deviceTest(name: string, body: () => void | Promise<void>): void {
  for (const device of testDevices()) {
    const backend = mx.withDevice(device, getBackend); // opened outside the test, which counts resources
    Deno.test(`${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const before = backend.liveObjects();
      await mx.tidy(body);
      assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
    });
  }
}

const stored = (values: mx.NestedList, dtype: mx.Dtype = mx.float32): mx.Tensor => {
  const x = mx.array(values, dtype);
  mx.eval(x);
  return x;
};

// ---- loops --------------------------------------------------------------------------------------------------------------

deviceTest(
  "DeviceLoop runs several steps of one submission, and readMapped() sees what finished ones wrote",
  async () => {
    const state = { count: stored([0], mx.int32), log: hostVisible(new Int32Array(8)) };
    using loop = new DeviceLoop(state, ({ count, log }) => {
      const next = mx.add(count, 1);
      return { count: next, log: mx.sliceUpdate(log, next, mx.remainder(next, 8), [0], { donate: true }) };
    });
    const first = loop.run(3);
    const second = loop.run(4);
    await loop.done(first);
    assertEquals([...readMapped(state.log)].slice(1, 4), [1, 2, 3]);
    await loop.done(second);
    assertEquals([...readMapped(state.log)], [0, 1, 2, 3, 4, 5, 6, 7]);
    assertEquals(state.count.tolist(), [7]);
    mx.dispose(state);
  },
);

deviceTest("writeState() writes a part of a loop's state, after submitted steps and before later ones", async () => {
  for (const at of [0, 1, 4, 7]) {
    const state = { sums: hostVisible(new Float32Array(8)), scales: stored([1, 2, 3, 4, 5, 6, 7, 8]) };
    using loop = new DeviceLoop(state, ({ sums, scales }) => ({ sums: mx.add(sums, scales), scales }));
    loop.run(3);
    writeState(state.scales, Float32Array.of(100), at);
    loop.run(2);
    writeState(state.sums, Float32Array.of(0.5), at);
    await loop.done(loop.run());
    const sums = [1, 2, 3, 4, 5, 6, 7, 8].map((x) => 6 * x);
    sums[at] = 100.5;
    assertEquals(state.sums.tolist(), sums);
    mx.dispose(state);
  }
});

deviceTest("writeState() writes runs of every dtype into rows, and all values where no start is given", () => {
  const rows = stored([[1, 2, 3], [4, 5, 6], [7, 8, 9]], mx.int32);
  writeState(rows, Int32Array.of(-1, -2, -3, -4), 2);
  assertEquals(rows.tolist(), [[1, 2, -1], [-2, -3, -4], [7, 8, 9]]);
  writeState(rows, Int32Array.of(10, 20, 30, 40, 50, 60, 70, 80, 90).subarray(1, 3), 7); // bytes from the middle of a buffer
  assertEquals(rows.tolist(), [[1, 2, -1], [-2, -3, -4], [7, 20, 30]]);
  writeState(rows, Int32Array.of(9, 8, 7, 6, 5, 4, 3, 2, 1));
  assertEquals(rows.tolist(), [[9, 8, 7], [6, 5, 4], [3, 2, 1]]);
  writeState(rows, new Int32Array(0), 9);
  const keys = stored([1, 2, 3, 4], mx.uint32);
  writeState(keys, Uint32Array.of(4294967295), 3);
  assertEquals(keys.tolist(), [1, 2, 3, 4294967295]);
});

deviceTest("writeState() writes into a part of shared storage, and nothing beside it", () => {
  const all = stored([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]], mx.int32);
  const row = all.index(mx.Slice(1, 2));
  mx.eval(row);
  const before = row.tolist();
  writeState(row, Int32Array.of(-7), 2);
  assertEquals([before, row.tolist()], [[[5, 6, 7, 8]], [[5, 6, -7, 8]]]);
  for (
    const [values, start] of [[[1, 2], 3], [[1], 4], [[1], -1], [[1], 0.5], [[1], NaN], [[1, 2, 3, 4, 5], 0]] as const
  ) {
    assertThrows(
      () => writeState(row, Int32Array.from(values), start),
      mx.IndexError,
      "cannot be written into an array of 4",
    );
  }
  assertEquals(all.tolist(), [[1, 2, 3, 4], [5, 6, -7, 8], [9, 10, 11, 12]]);
});

deviceTest(
  "writeState() refuses other dtypes, views that are not contiguous, and arrays that are not evaluated",
  () => {
    const x = stored([[1, 2], [3, 4]]);
    assertThrows(
      () => writeState(x, Int32Array.of(1), 0),
      mx.DtypeError,
      "int32 values cannot be written into a float32 array",
    );
    const column = mx.transpose(x);
    mx.eval(column);
    assertThrows(() => writeState(column, Float32Array.of(1), 0), mx.ValueError, "contiguous");
    assertThrows(() => writeState(mx.add(x, 1), Float32Array.of(1), 0), mx.ValueError, "evaluated");
    assertEquals(x.tolist(), [[1, 2], [3, 4]]);
  },
);

deviceTest("DeviceLoop advances a state of several arrays in place", async () => {
  const state = { count: stored([0], mx.int32), sum: stored([1, 2, 3]), last: [stored([[0.5]], mx.float16)] };
  const weight = stored([1, 10, 100]);
  using loop = new DeviceLoop(state, ({ count, sum, last: [last] }) => ({
    count: mx.add(count, 1),
    sum: mx.add(sum, mx.multiply(weight, count)), // reads the old count
    last: [mx.multiply(last, 2)],
  }));
  for (let i = 0; i < 3; i++) loop.run();
  await loop.done();
  assertEquals(state.count.tolist(), [3]);
  assertEquals(state.sum.tolist(), [4, 32, 303]);
  assertEquals(state.last[0].tolist(), [[4]]);
  loop.run();
  assertEquals(state.sum.tolist(), [7, 62, 603]); // reading waits
});

deviceTest("DeviceLoop swaps arrays of its state", () => {
  const state = { a: stored([1, 2]), b: stored([3, 4]), c: stored([5, 6]) };
  using loop = new DeviceLoop(state, ({ a, b, c }) => ({ a: b, b: c, c: mx.add(a, 10) }));
  loop.run();
  assertEquals([state.a.tolist(), state.b.tolist(), state.c.tolist()], [[3, 4], [5, 6], [11, 12]]);
  loop.run();
  assertEquals([state.a.tolist(), state.b.tolist(), state.c.tolist()], [[5, 6], [11, 12], [13, 14]]);
});

deviceTest("DeviceLoop shows the parts of a stack one by one, and writes them in place", () => {
  const rows = Array.from({ length: 6 }, (_, i) => [i, i + 0.25, i + 0.5, i + 0.75]);
  const all = stored(rows);
  const spaced = all.index(mx.Slice(1, null, 2)); // rows 1, 3 and 5, with gaps between them
  mx.eval(spaced);
  const step = ({ parts: [stack], sum }: { parts: StackedTensors[]; sum: mx.Tensor }) => {
    const [a, b, c] = unstacked([stack]);
    const moved = mx.sliceUpdate(c, mx.add(b.index(mx.Slice(0, 1)), 100), mx.array([1], mx.int32), [0], {
      donate: true,
    });
    return { parts: [new StackedTensors([b, a, moved])], sum: mx.add(sum, mx.sum(a)) };
  };
  const state = { parts: [new StackedTensors(spaced)], sum: stored([0]) };
  using loop = new DeviceLoop(state, step);
  loop.run();
  const [, one, , three, , five] = rows;
  const expected = [...rows];
  [expected[1], expected[3], expected[5]] = [three, one, [five[0], 103, five[2], five[3]]];
  assertEquals(all.tolist(), expected);
  assertEquals(state.sum.tolist(), [5.5]);
  loop.run();
  assertEquals(spaced.tolist(), [one, three, [five[0], 101, five[2], five[3]]]);
  assertEquals(all.index(0).tolist(), rows[0]);
  assertEquals(state.sum.tolist(), [19]);
  const other = new StackedTensors(stored([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]));
  using trace = new TracedStep(state, step);
  using again = new DeviceLoop({ parts: [other], sum: stored([0]) }, trace); // of other strides
  again.run();
  assertEquals((other.arrays as mx.Tensor).tolist(), [[5, 6, 7, 8], [1, 2, 3, 4], [9, 105, 11, 12]]);
});

deviceTest("DeviceLoop refuses stacks of parts that are not contiguous, and steps that return other arrays", () => {
  const turned = stored([[1, 2, 3, 4], [5, 6, 7, 8]]).reshape([2, 2, 2]).transpose(0, 2, 1);
  mx.eval(turned);
  assertThrows(
    () => new DeviceLoop({ x: new StackedTensors(turned) }, (now) => now),
    mx.ValueError,
    "contiguous state",
  );
  const x = new StackedTensors(stored([[1, 2, 3, 4], [5, 6, 7, 8]]));
  assertThrows(
    () => new DeviceLoop({ x }, ({ x }) => ({ x: new StackedTensors(unstacked([x]).slice(1)) })),
    mx.ValueError,
    "2 arrays",
  );
  assertThrows(() => unstacked([x]), Error, "only the step");
});

deviceTest("DeviceLoop takes views of its own state as new values", () => {
  const state = { x: stored([[1, 2], [3, 4]]), y: stored([1, 2, 3]) };
  using loop = new DeviceLoop(state, ({ x, y }) => ({ x: x.T, y: y.index(mx.Slice(null, null, -1)) }));
  loop.run();
  assertEquals([state.x.tolist(), state.y.tolist()], [[[1, 3], [2, 4]], [3, 2, 1]]);
  loop.run();
  assertEquals([state.x.tolist(), state.y.tolist()], [[[1, 2], [3, 4]], [1, 2, 3]]);
});

deviceTest("DeviceLoop writes donated updates where the state lies", () => {
  const state = { at: stored([0], mx.int32), ring: stored([0, 0, 0, 0]) };
  using loop = new DeviceLoop(state, ({ at, ring }) => ({
    at: mx.remainder(mx.add(at, 1), 4),
    ring: mx.sliceUpdate(ring, mx.add(at.astype(mx.float32), 1), at, [0], { donate: true }),
  }));
  for (let i = 0; i < 6; i++) loop.run();
  assertEquals([state.at.tolist(), state.ring.tolist()], [[2], [1, 2, 3, 4]]);
});

deviceTest("DeviceLoop updates an array in place and keeps its old value where that is asked for", () => {
  const state = { now: stored([1, 2]), before: stored([0, 0]) };
  using loop = new DeviceLoop(state, ({ now }) => ({
    now: mx.sliceUpdate(now, mx.add(now.index(mx.Slice(0, 1)), 5), mx.array([0], mx.int32), [0], { donate: true }),
    before: now,
  }));
  loop.run();
  assertEquals([state.now.tolist(), state.before.tolist()], [[6, 2], [1, 2]]);
  loop.run();
  assertEquals([state.now.tolist(), state.before.tolist()], [[11, 2], [6, 2]]);
});

deviceTest("DeviceLoop keeps state that its step passes on", () => {
  const state = { x: stored([1]), constant: stored([7]) };
  using loop = new DeviceLoop(state, ({ x, constant }) => ({ x: mx.add(x, constant), constant }));
  loop.run();
  loop.run();
  assertEquals([state.x.tolist(), state.constant.tolist()], [[15], [7]]);
});

deviceTest("DeviceLoop changes what others make of the state", () => {
  const x = mx.random.normal([64, 64], mx.float32, 0, 1, mx.random.key(1));
  const row = stored([new Array(64).fill(1)]);
  mx.eval(x);
  const rows = mx.array(mx.ones([40, 64]).tolist());
  using loop = new DeviceLoop({ x }, ({ x }) => ({ x: mx.multiply(x, 2) }));
  const products = (): number[] =>
    [mx.matmul(row, x).index(0, 0).item(), mx.matmul(rows, x).index(9, 0).item()] as number[];
  const before = products(); // may keep the matrix in another layout
  loop.run();
  const after = products();
  before.forEach((v, i) => assert(Math.abs(after[i] - 2 * v) <= 1e-2 * Math.abs(v), `${after[i]} after ${v}`));
});

deviceTest("DeviceLoop refuses views, other shapes and other dtypes, and leaks nothing", () => {
  const x = stored([[1, 2], [3, 4]]);
  assertThrows(
    () => new DeviceLoop({ x: x.T }, (s) => s),
    mx.ValueError,
    "contiguous state: found a view of shape (2, 2)",
  );
  const grown = (s: { x: mx.Tensor }) => ({ x: mx.concatenate([s.x, s.x]) });
  assertThrows(() => new DeviceLoop({ x }, grown), mx.ValueError, "(2, 2) float32 became (4, 2) float32");
  const cast = (s: { x: mx.Tensor }) => ({ x: s.x.astype(mx.float16) });
  assertThrows(() => new DeviceLoop({ x }, cast), mx.ValueError, "(2, 2) float32 became (2, 2) float16");
  const fails = (): never => {
    throw new Error("no step");
  };
  assertThrows(() => new DeviceLoop({ x }, fails), Error, "no step");
  assertEquals(x.tolist(), [[1, 2], [3, 4]]);
});

deviceTest("a step that evaluates is refused", () => {
  const x = stored([1]);
  const step = (s: { x: mx.Tensor }) => (mx.add(s.x, 1).item(), s);
  assertThrows(() => new DeviceLoop({ x }, step), mx.ValueError, "cannot evaluate or read its arrays");
  using f = mx.compile((y: mx.Tensor) => (mx.eval(mx.add(y, 1)), y));
  assertThrows(() => f(x), mx.ValueError, "cannot evaluate or read its arrays");
});

deviceTest("DeviceLoop.dispose frees the step and leaves the state", () => {
  const x = stored([1]);
  const loop = new DeviceLoop(
    { x },
    (s) => ({ x: mx.exp(mx.matmul(mx.exp(s.x).reshape(1, 1), mx.ones([1, 1]))).reshape(1) }),
  );
  loop[Symbol.dispose]();
  assertEquals(x.tolist(), [1]);
});

// ---- traces -----------------------------------------------------------------------------------------------------------------

deviceTest("TracedStep runs over states of its shapes, and loops outlive it", () => {
  type Two = { x: mx.Tensor; y: mx.Tensor };
  const make = (a: number): Two => ({ x: stored([a, a]), y: stored([1, 2]) });
  const step = ({ x, y }: Two): Two => ({ x: mx.matmul(mx.stack([x, y]), x), y: mx.add(y, mx.sum(x)) });
  const [first, second] = [make(1), make(10)];
  const trace = new TracedStep(first, step);
  const loops = [new DeviceLoop(first, trace), new DeviceLoop(second, trace)];
  assertThrows(
    () => new DeviceLoop({ ...first, y: stored([1]) }, trace),
    mx.ValueError,
    "traced for (2,) float32: found (1,)",
  );
  trace[Symbol.dispose]();
  for (const loop of [...loops, ...loops.toReversed()]) loop.run();
  for (const loop of loops) loop[Symbol.dispose]();
  assertEquals([first.x.tolist(), first.y.tolist()], [[13, 18], [8, 9]]);
  assertEquals([second.x.tolist(), second.y.tolist()], [[40900, 4860], [251, 252]]);
});

deviceTest("TracedSteps.prepare() traces ahead of a loop, whose state need not be there", async () => {
  const weights = [stored([3])];
  let traced = 0;
  using traces = new TracedSteps(() => weights);
  const step = ({ x }: { x: mx.Tensor }): { x: mx.Tensor } => {
    traced++;
    return { x: mx.add(mx.multiply(x, weights[0]), 1) };
  };
  const shape = { x: mx.zeros([2]) };
  await Promise.all([1, 2].map(() => traces.prepare(traces.trace("step", shape, step))));
  const state = { x: stored([1, 2]) };
  using loop = new DeviceLoop(state, traces.trace("step", state, step));
  loop.run(2);
  await traces.prepare(traces.trace("step", shape, step)); // beside steps that run
  assertEquals(state.x.tolist(), [13, 22]);
  assertEquals([traced, traces.size], [1, 1]);
  traces[Symbol.dispose]();
});

deviceTest(
  "TracedSteps keeps what was used last up to the bytes of its Plans, and loops with one key share a trace",
  () => {
    const weights = [stored([2])];
    const state = { x: stored([1]) };
    let traced = 0;
    const run = (traces: TracedSteps, key: string): number => {
      const trace = traces.trace(key, state, ({ x }) => {
        traced++;
        return { x: mx.multiply(x, weights[0]) };
      });
      using loop = new DeviceLoop(state, trace);
      loop.run();
      return trace.planBytes;
    };
    using all = new TracedSteps(() => weights);
    let bytes = 0;
    for (let i = 0; i < 6; i++) bytes = run(all, "same");
    assertEquals([traced, all.size, bytes > 0], [1, 1, true]);
    assertEquals(state.x.tolist(), [64]);
    for (let i = 0; i < 60; i++) run(all, `${i}`);
    assertEquals([traced, all.size], [61, 61]); // small steps are all kept

    using few = new TracedSteps(() => weights, 3 * bytes);
    for (const key of ["a", "b", "c"]) run(few, key);
    run(few, "a");
    assertEquals([traced, few.size], [64, 3]);
    for (const key of ["d", "a", "c"]) run(few, key); // b went, which was used longest ago
    assertEquals([traced, few.size], [65, 3]);
    run(few, "b");
    assertEquals([traced, few.size], [66, 3]);

    using one = new TracedSteps(() => weights, bytes - 1); // a step that is too large is kept alone
    for (const key of ["a", "a", "b", "b"]) run(one, key);
    assertEquals([traced, one.size], [68, 1]);
    for (const traces of [all, few, one]) {
      traces[Symbol.dispose]();
      assertEquals(traces.size, 0);
    }
  },
);

// ---- compiled functions ---------------------------------------------------------------------------------------------------

deviceTest("compile() gives what the function gives, for every shape and argument", () => {
  let traces = 0;
  const fn = ({ x, y }: { x: mx.Tensor; y: mx.Tensor[] }, power: number) => {
    traces++;
    return { sum: mx.add(x, y[0]), list: [mx.power(x, power), y[0].T] };
  };
  using compiled = mx.compile(fn);
  for (const shape of [[2, 3], [2, 3], [1, 4], [2, 3]]) {
    for (const power of [2, 3, 2]) {
      const x = mx.add(mx.arange(shape[0] * shape[1]).astype(mx.float32).reshape(shape), power);
      const y = [mx.ones(shape)];
      const [expected, found] = [fn({ x, y }, power), compiled({ x, y }, power)];
      traces--;
      assertEquals(found.sum.tolist(), expected.sum.tolist());
      assertEquals(found.list.map((t) => t.tolist()), expected.list.map((t) => t.tolist()));
      assertEquals(found.list[1].shape, shape.toReversed());
    }
  }
  assertEquals(traces, 4);
});

deviceTest("compile() tells arguments apart, and takes and gives an array more than once", () => {
  type Unary = (x: mx.Tensor) => mx.Tensor;
  const x = mx.array([1, 2]);
  const y = mx.array([10, 20]);
  using sum = mx.compile((a: mx.Tensor, b: mx.Tensor) => mx.add(a, b));
  assertEquals([sum(x, x), sum(x, y), sum(y, y)].map((z) => z.tolist()), [[2, 4], [11, 22], [20, 40]]);
  using pair = mx.compile((a: mx.Tensor) => [mx.add(a, 1), a].concat(a));
  assertEquals(pair(x).map((z) => z.tolist()), [[2, 3], [1, 2], [1, 2]]);
  using shift = mx.compile((a: mx.Tensor, by: number) => mx.add(a, by));
  for (const by of [Infinity, -Infinity, NaN]) assertEquals(shift(x, by).tolist(), [1 + by, 2 + by]);
  using apply = mx.compile((a: mx.Tensor, fn: Unary, dtype: mx.Dtype) => fn(a).astype(dtype));
  assertEquals(apply(x, mx.negative, mx.int32).tolist(), [-1, -2]);
  assertEquals(apply(x, mx.square, mx.float16).tolist(), [1, 4]);
  using linear = mx.compile((p: Record<string, mx.Tensor>, a: mx.Tensor) => mx.multiply(a, p.w));
  assertEquals(linear(Object.assign(Object.create(null), { w: y }), x).tolist(), [10, 40]);
  let traces = 0;
  using counted = mx.compile((a: mx.Tensor, axis: { at: number }) => (traces++, mx.sum(a, axis.at)));
  for (let i = 0; i < 3; i++) assertEquals(counted(mx.array([i, 1]), { at: 0 }).item(), i + 1);
  assertEquals(traces, 1);
  using scaled = mx.compile((a: mx.Tensor, by: Map<string, number>) => mx.multiply(a, by.get("w")!));
  for (const w of [2, 3]) assertEquals(scaled(x, new Map([["w", w]])).tolist(), [w, 2 * w]);
  using map = mx.compile((p: Map<string, mx.Tensor>) => mx.add(p.get("w")!, 1));
  assertThrows(
    () => map(new Map([["w", x]])),
    mx.ValueError,
    "compile() takes arrays in lists and plain objects: found",
  );
});

deviceTest("compile() grows an array call by call and takes views of it", () => {
  using append = mx.compile((x: mx.Tensor) => mx.concatenate([x, mx.multiply(x.index(mx.Slice(-1)), 2)]));
  let x = stored([1]);
  for (let i = 0; i < 4; i++) x = append(x);
  assertEquals(x.tolist(), [1, 2, 4, 8, 16]);
  assertEquals(append(x.index(mx.Slice(null, null, -2))).tolist(), [16, 4, 1, 2]);
});

deviceTest("compile() reads arguments where they lie in a larger array, and results that lie in those", () => {
  using next = mx.compile((x: mx.Tensor) => [mx.add(x, 1), x.reshape([2, -1])]);
  const all = stored(Array.from({ length: 16 }, (_, i) => i));
  for (const from of [0, 1, 4, 8]) {
    const part = all.index(mx.Slice(from, from + 4));
    mx.eval(part);
    const [sums, pairs] = next(part);
    assertEquals(sums.tolist(), [from + 1, from + 2, from + 3, from + 4]);
    assertEquals(pairs.tolist(), [[from, from + 1], [from + 2, from + 3]]);
  }
});

deviceTest("SharedMemory is shared as long as it is large enough", () => {
  const backend = getBackend(mx.defaultDevice());
  const scratch = new SharedMemory();
  const taken = [100, 50, 200, 150].map((bytes) => scratch.take(backend, bytes, 0));
  assertEquals(taken.map((storage) => storage.bytes), [100, 100, 200, 200]);
  for (const storage of taken) storage.release();
  const anew = scratch.take(backend, 10, 0);
  assertEquals(anew.bytes, 10);
  anew.release();
});

deviceTest("compile() writes a donated argument in place and ends it", () => {
  using update = mx.compile((x: mx.Tensor, at: mx.Tensor) =>
    mx.sliceUpdate(x, mx.array([9]), at, [0], { donate: true })
  );
  const x = stored([1, 2, 3]);
  const y = update(x, stored([1], mx.int32));
  assertEquals(y.tolist(), [1, 9, 3]);
  assertThrows(() => x.tolist(), mx.ArrayError, "donated");
});

deviceTest("a donated update leaves memory alone that somebody else reads", () => {
  const donate = { donate: true };
  const first = mx.array([0], mx.int32);
  const x = stored([1, 2, 3, 4]);
  const part = x.index(mx.Slice(1, 3));
  mx.eval(part); // lies in the memory of x
  assertEquals(mx.sliceUpdate(x, mx.array([9, 9]), first, [0], donate).tolist(), [9, 9, 3, 4]);
  assertEquals(part.tolist(), [2, 3]);

  const y = stored([1, 2, 3, 4]);
  const square = y.reshape([2, 2]); // a view, which is not held by anybody but y
  assertEquals(mx.sliceUpdate(square, mx.array([[9, 9]]), first, [0], donate).tolist(), [[9, 9], [3, 4]]);
  assertEquals(y.tolist(), [1, 2, 3, 4]);

  const constant = stored([1, 2, 3, 4]);
  using update = mx.compile((at: mx.Tensor) => mx.sliceUpdate(constant, mx.array([9, 9]), at, [0], donate));
  assertEquals(update(first).tolist(), [9, 9, 3, 4]);
  assertEquals(update(mx.array([2], mx.int32)).tolist(), [1, 2, 9, 9]);

  using both = mx.compile((a: mx.Tensor, b: mx.Tensor) => {
    const updated = mx.sliceUpdate(a, mx.array([9, 9]), mx.array([0], mx.int32), [0], donate);
    return [updated, mx.add(b, mx.sum(updated))];
  });
  const whole = stored([1, 2, 3, 4]);
  const half = whole.index(mx.Slice(0, 2));
  mx.eval(half);
  for (let i = 0; i < 2; i++) {
    assertEquals(both(whole, half).map((t) => t.tolist()), [[9, 9, 3, 4], [26, 27]]);
    assertEquals(half.tolist(), [1, 2]);
  }
});

deviceTest("compile() leaves an argument alone that the function assigns to", () => {
  using first = mx.compile((x: mx.Tensor) => x.indexPut_(0, 9));
  const x = stored([1, 2]);
  for (let i = 0; i < 2; i++) assertEquals(first(x).tolist(), [9, 2]);
  assertEquals(x.tolist(), [1, 2]);
});

deviceTest("a compiled function is a part of one that calls it", () => {
  using first = mx.compile((x: mx.Tensor, { by }: { by: number }) => x.indexPut_(0, by));
  using both = mx.compile((x: mx.Tensor) => [first(mx.add(x, 1), { by: 9 }), first(x, { by: 8 }), x]);
  for (const from of [1, 5]) {
    assertEquals(both(stored([from, 2])).map((t) => t.tolist()), [[9, 3], [8, 2], [from, 2]]);
  }
  const x = stored([1, 2]);
  assertEquals(first(x, { by: 7 }).tolist(), [7, 2]);
});

deviceTest("compile() refuses updates that are not returned, and async functions", () => {
  using lost = mx.compile((x: mx.Tensor) => {
    mx.eval(x);
    return mx.add(mx.sliceUpdate(x, mx.array([9]), mx.array([0], mx.int32), [0], { donate: true }), 1);
  });
  assertThrows(() => lost(stored([1, 2])), mx.ValueError);
  using late = mx.compile((x: mx.Tensor) => Promise.resolve(x));
  assertThrows(() => late(stored([1])), mx.ValueError, "synchronous function");
});
