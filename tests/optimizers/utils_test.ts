/**
 * The functions of trees: what MLX's documentation and sources say of each, and what JavaScript adds.
 */

import { assertEquals, assertStrictEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";

const { treeFlatten, treeMap, treeMapWithPath, treeMerge, treeReduce, treeUnflatten } = mx.utils;

const isPair = (part: unknown): boolean => Array.isArray(part) && part.length === 2;

Deno.test("treeMap() maps leaves of several trees", () => {
  assertEquals(treeMap((x: number) => x + 1, { a: 0, b: [1, { c: 2 }] }), { a: 1, b: [2, { c: 3 }] });
  const rest = [{ a: 10, b: [20], more: 1 }, { a: 100, b: [200, 300] }];
  assertEquals(treeMap((x: number, y: number, z: number) => x + y + z, { a: 1, b: [2] }, rest), { a: 111, b: [222] });
  assertEquals(treeMap((x) => x, 5), 5);
  assertEquals(treeMap(() => 0, { a: [], b: {} }), { a: [], b: {} });
  assertEquals(treeMap((pair: number[]) => pair[0], { a: [1, 2], b: [[3, 4], [5, 6], [7, 8]] }, [], isPair), {
    a: 1,
    b: [3, 5, 7],
  });
  assertThrows(() => treeMap((x, y) => [x, y], { a: { b: 1 } }, [{ a: {} }]), mx.ValueError, '"a.b" is missing');
  const typed = new Float32Array(2), map = new Map([["w", 1]]), array = mx.zeros([2]);
  const same = treeMap((leaf) => leaf, [typed, map, array, null, undefined, "text"]);
  [typed, map, array, null, undefined, "text"].forEach((leaf, i) => assertStrictEquals(same[i], leaf));
});

Deno.test("treeMapWithPath() tells where leaves are", () => {
  const tree = { model: [{ w: 0, b: 1 }, { w: 0, b: 1 }] };
  const expected = { model: [{ w: "model.0.w", b: "model.0.b" }, { w: "model.1.w", b: "model.1.b" }] };
  assertEquals(treeMapWithPath((path) => path, tree), expected);
  assertEquals(treeMapWithPath((path, x: number, y: number) => `${path}=${x + y}`, [1], [[2]], null, "top"), [
    "top.0=3",
  ]);
  assertEquals(treeMapWithPath((path) => path, { a: [1, 2] }, [], isPair), { a: "a" });
  assertEquals(treeMapWithPath((path, leaf) => [path, leaf], 7), ["", 7]);
});

Deno.test("treeFlatten() lists leaves, treeUnflatten() makes the tree again", () => {
  assertEquals(treeFlatten([[[0]]]), [["0.0.0", 0]]);
  assertEquals(treeFlatten([[[0]]], ".hello"), [["hello.0.0.0", 0]]);
  assertEquals(treeFlatten(3), [["", 3]]);
  assertEquals(treeFlatten({ a: { b: 1 } }, "", null, {}), { "a.b": 1 });
  assertEquals(treeFlatten({ a: 1 }, "", null, [["z", 0]] as mx.utils.Named[]), [["z", 0], ["a", 1]]);
  assertEquals(treeFlatten({ a: [1, 2], b: [3] }, "", isPair), [["a", [1, 2]], ["b.0", 3]]);
  assertThrows(() => treeFlatten([1], "", null, new Map() as never), mx.ValueError, "destination");
  for (const tree of [[{ a: 1, b: 2 }, "c"], { x: { y: [1, [2, 3]] }, z: 4 }, 5, [[[0]]], { 7: [1], b: 2 }]) {
    assertEquals(treeUnflatten(treeFlatten(tree)), tree);
    assertEquals(treeUnflatten(treeFlatten(tree, "", null, {})), tree);
  }
});

Deno.test("treeUnflatten() makes lists of whole numbers", () => {
  assertEquals(treeUnflatten([["hello.world", 42]]), { hello: { world: 42 } });
  assertEquals(treeUnflatten([]), []);
  assertEquals(treeUnflatten([["a.2", 2], ["a.0", 0]]), { a: [0, {}, 2] }); // gaps are empty objects
  assertEquals(treeUnflatten([["01", 1], ["1", 2]]), { "01": 1, "1": 2 }); // not the same position twice
  assertEquals(treeUnflatten([["10", "b"], ["9", "a"]]), [...Array.from({ length: 9 }, () => ({})), "a", "b"]);
  const named = treeUnflatten([["__proto__.x", 1], ["a", 2]]) as object;
  assertEquals([Object.keys(named), ({} as { x?: number }).x], [["__proto__", "a"], undefined]);
  assertThrows(() => treeUnflatten([["a", 1], ["a", 2]]), mx.ValueError, '"a" twice');
  assertThrows(() => treeUnflatten([["a", 1], ["a.b", 2]]), mx.ValueError, "ends where another goes on");
  assertThrows(() => treeUnflatten([["4000000000.x", 1]]), mx.ValueError, "position 4000000000");
});

Deno.test("treeReduce() folds leaves in order", () => {
  assertEquals(treeReduce((sum: number, x: number) => sum + x, { a: [1, 2, 3], b: [4, 5] }, 0), 15);
  assertEquals(treeReduce((text: string, x: string) => text + x, ["a", { b: "b", c: ["c"] }]), "abc");
  assertEquals(
    treeReduce((n: number, pair: number[]) => n + pair[1], { a: [1, 2], b: [[3, 4]] }, 0, isPair),
    0 + 2 + 4,
  );
  assertEquals(treeReduce((sum: number, x: number) => sum + x, {}, 7), 7);
});

Deno.test("treeMerge() joins trees", () => {
  assertEquals(treeMerge({ a: 1, b: { c: 2 } }, { b: { d: 3 }, e: [4] }), { a: 1, b: { c: 2, d: 3 }, e: [4] });
  assertEquals(treeMerge([1, {}], [{}, 2]), [1, 2]);
  assertEquals(treeMerge([[1]], [[[]], 5], () => 0), [[1], 5]);
  assertEquals(treeMerge([1, 2], [3, 4, 5], (a: number, b: number) => a + b), [4, 6, 5]);
  assertEquals([treeMerge({}, {}), treeMerge([], []), treeMerge({}, 3), treeMerge(3, null)], [{}, [], 3, 3]);
  assertThrows(() => treeMerge([], {}), mx.ValueError, "cannot merge");
  assertThrows(() => treeMerge({ a: 1 }, { a: 2 }), mx.ValueError, "mergeFn");
});
