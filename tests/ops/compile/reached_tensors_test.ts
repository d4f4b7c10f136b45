/** Tensors that a value reaches are those of a new walk, whatever changes in it, and the same list as long as nothing does. */

import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { ReachedTensors } from "../../../src/array/tensor/reached_tensors.ts";
import { tensorsOf } from "../../../src/array/tensor/scope.ts";
import { whenReleased } from "../../support/devices/released.ts";

getBackend(); // opened outside the tests, which count resources

Deno.test("ReachedTensors finds what a changed value reaches", () => {
  const all: mx.Tensor[] = Array.from({ length: 6 }, () => mx.zeros([1]));
  const [a, b, c, d, e, f] = all;
  const numbers = (tensors: readonly mx.Tensor[]): number[] => tensors.map((tensor) => all.indexOf(tensor));
  const layers: { weight: mx.Tensor; bias?: mx.Tensor; norm?: unknown }[] = [{ weight: a }, {
    weight: b,
    bias: undefined,
  }];
  const table = new Map<string, mx.Tensor>([["c", c]]);
  const set = new Set<mx.Tensor>();
  const root: Record<string, unknown> = { layers, table, set, size: 3, ids: new Int32Array(2) };
  const reached = new ReachedTensors(root);
  assertEquals(numbers(reached.tensors), [0, 1, 2]);
  const changes: Readonly<Record<string, () => void>> = {
    "a field is replaced": () => layers[0].weight = d,
    "a field gets a value": () => layers[1].bias = a,
    "there is another field": () => layers[0].norm = { weight: e },
    "a part of that is replaced": () => (layers[0].norm as { weight: mx.Tensor }).weight = f,
    "a field goes": () => delete layers[1].bias,
    "a list grows": () => layers.push({ weight: e }),
    "a list changes its order": () => layers.reverse(),
    "a list shrinks": () => layers.pop(),
    "an entry of a map is replaced": () => table.set("c", a),
    "a map has another entry": () => table.set("d", d),
    "a set has another value": () => set.add(c),
    "a number becomes a list of arrays": () => root.size = [c, b],
  };
  for (const [what, change] of Object.entries(changes)) {
    const before = reached.tensors;
    assertStrictEquals(reached.tensors, before, what);
    change();
    assertEquals(numbers(reached.tensors), numbers(tensorsOf(root)), what);
    assert(reached.tensors !== before, what);
  }
  mx.dispose(all);
});

Deno.test("ReachedTensors keeps no array that was replaced", async () => {
  const root = { weight: mx.ones([1 << 18]) };
  mx.eval(root);
  const reached = new ReachedTensors(root);
  assertEquals(reached.tensors.length, 1);
  const before = mx.getActiveMemory();
  root.weight = mx.ones([1]);
  const freed = before - await whenReleased(mx.getActiveMemory, before - (1 << 20));
  assert(freed >= 1 << 20, `${freed} bytes`);
  assertEquals(reached.tensors.length, 1);
  mx.dispose(root);
});
