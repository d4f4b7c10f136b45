/**
 * The order of dispatches between barriers. Those that touch the same memory keep their order, and a barrier is between them. In all there
 * are fewer barriers.
 */

import { assert, assertEquals } from "@std/assert";
import { orderDispatches } from "../../../src/schedule/plan/dispatch_order.ts";
import type { DispatchSource } from "../../../src/schedule/plan/profile.ts";
import type { Value } from "../../../src/schedule/plan/value.ts";
import { float32 } from "../../../src/graph/dtype.ts";
import { generator } from "../../support/oracles/oracle.ts";

const valueOf = (slot: number): Value => ({ slot, offset: 0, strides: [1], shape: [1], dtype: float32 });

/** A sum of up to three slots that is written to another one. */
function sum(inputs: readonly number[], out: number, options: Partial<DispatchSource> = {}): DispatchSource {
  const buffers = [0, 1, 2].map((i) => inputs[i] === undefined ? undefined : valueOf(inputs[i]));
  const plain = {
    kernel: "elementwise",
    op: "elementwise",
    region: undefined,
    preamble: false,
    disjoint: false,
    spec: {},
  };
  return { ...plain, values: [...buffers, valueOf(out)], ...options } as DispatchSource;
}

const readsOf = ({ values }: DispatchSource): number[] =>
  values.slice(0, 3).flatMap((value) => value ? [value.slot] : []);
const writeOf = ({ values }: DispatchSource): number => values[3]!.slot;

function conflict(a: DispatchSource, b: DispatchSource): boolean {
  return writeOf(a) === writeOf(b) || readsOf(a).includes(writeOf(b)) || readsOf(b).includes(writeOf(a));
}

/** Barriers in an order, as the runtime sets them. */
function barriersIn(dispatches: readonly DispatchSource[]): number {
  let barriers = 0;
  let running: DispatchSource[] = [];
  for (const dispatch of dispatches) {
    if (running.some((other) => conflict(other, dispatch))) {
      barriers++;
      running = [];
    }
    running.push(dispatch);
  }
  return barriers;
}

Deno.test("dispatches that touch the same memory keep their order, and those between two barriers touch none in common", () => {
  const random = generator(3);
  const draw = (n: number): number => Math.floor(random() * n);
  let [before, after] = [0, 0];
  for (let round = 0; round < 300; round++) {
    const slots = 2 + draw(40);
    const sources = Array.from({ length: 1 + draw(120) }, () => {
      const inputs = Array.from({ length: draw(4) }, () => draw(slots));
      return sum(inputs, draw(slots), { region: random() < 0.05 ? "fused" : undefined });
    });
    const { order, epochs } = orderDispatches(sources, (slot) => slot % 5 === 0 ? 2 ** 30 : 4);
    assertEquals([...order].sort((a, b) => a - b), [...sources.keys()]);
    const places = sources.map((_, i) => order.indexOf(i));
    for (let b = 0; b < sources.length; b++) {
      for (let a = 0; a < b; a++) {
        const isOrdered = places[a] < places[b];
        if (conflict(sources[a], sources[b])) {
          assert(isOrdered && epochs[a] < epochs[b], `${a} and ${b} touch one slot`);
        }
        const isFixed = sources[a].region !== undefined || sources[b].region !== undefined;
        if (isFixed || writeOf(sources[b]) % 5 === 0) {
          assert(isOrdered, `${b} is not to be moved, and came before ${a}`);
        }
      }
    }
    const ordered = order.map((i) => sources[i]);
    assert(order.every((dispatch, i) => i === 0 || epochs[order[i - 1]] <= epochs[dispatch]));
    const [own, others] = [barriersIn(ordered), barriersIn(sources)];
    assertEquals(own, Math.max(...epochs));
    before += others;
    after += own;
  }
  assert(after < 0.9 * before, `${after} barriers of ${before}`);
});

Deno.test("chains that do not depend on each other share their barriers", () => {
  const chains = [0, 1, 2].flatMap((chain) => [0, 1, 2, 3].map((i) => sum([10 * chain + i], 10 * chain + i + 1)));
  const { order, epochs } = orderDispatches(chains, () => 4);
  assertEquals(order, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
  assertEquals(Math.max(...epochs), 3);
});

Deno.test("dispatches of disjoint writes stay one after the other", () => {
  const rest = { disjoint: true };
  const sources = [sum([0], 1), sum([1], 2), sum([3], 4), sum([5], 4, rest), sum([6], 4, rest), sum([2], 7)];
  const { order, epochs } = orderDispatches(sources, () => 4);
  assertEquals(order, [0, 2, 3, 4, 1, 5]);
  assertEquals(epochs, [0, 1, 0, 0, 0, 2]);
});

Deno.test("a kernel made at run time, whose writes are not known, stays where it is", () => {
  const own = sum([8], 9, { kernel: "squares" });
  const { order } = orderDispatches([sum([0], 1), sum([1], 2), own, sum([3], 4)], () => 4);
  assertEquals(order, [0, 1, 2, 3]);
});
