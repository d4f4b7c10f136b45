/**
 * Row pruning. Random graphs with takes of one row give what they give when every op is evaluated by itself, where
 * nothing can be pruned. Takes move where they should, and stay where other rows are read. No memory stays in use.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { chooseExperts } from "../../../src/array/quantized/experts.ts";
import { expertMixture } from "../../../src/array/quantized/sorted_experts.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { attrsOf, type Node } from "../../../src/graph/node.ts";
import { inputsFirst } from "../../../src/schedule/plan/order.ts";
import { pruneRows } from "../../../src/schedule/plan/row_pruning.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { drawGraph, type Graph, leaf } from "../../support/oracles/row_graphs.ts";

const device = anyDevice();
mx.withDevice(device, () => mx.eval(mx.zeros([1]))); // opened outside the tests, which count resources

/** All nodes of arrays that row pruning has seen. */
function pruned(...results: readonly mx.Tensor[]): readonly Node[] {
  pruneRows(results.map(nodeOf));
  return inputsFirst(results.map(nodeOf), ({ inputs }) => inputs);
}

/** Values of a graph, and whether takes became something else; `apart` evaluates each op by itself, where nothing can be pruned. */
function run({ steps, wanted }: Graph, apart: boolean): { values: Float32Array[]; moved: boolean } {
  return mx.tidy(() => {
    const values: mx.Tensor[] = [];
    for (const step of steps) {
      const value = mx.tidy(() => step(values));
      if (apart) mx.eval(value);
      values.push(value);
    }
    const results = wanted.map((i) => values[i]);
    mx.dispose(values.filter((_, i) => !wanted.includes(i)));
    let moved = false;
    if (!apart) {
      const takes = inputsFirst(results.map(nodeOf), ({ inputs }) => inputs).filter(({ op }) => op === "gather");
      pruned(...results);
      moved = takes.some(({ op }) => op !== "gather");
    }
    mx.eval(...results);
    return { values: results.map((x) => x.toTypedArray() as Float32Array), moved };
  });
}

Deno.test("random graphs give the same with and without rows that nobody reads", () => {
  mx.setDefaultDevice(device);
  const active = (): number =>
    mx.tidy(() => {
      mx.add(mx.ones([1]), 1).item(); // memory comes back once the work that used it is done
      return mx.getActiveMemory();
    });
  const before = active();
  let moved = 0;
  const count = 1000;
  for (let seed = 1; seed <= count; seed++) {
    const graph = drawGraph(seed);
    const expected = run(graph, true);
    using _options = withOptions({ fuse: seed % 4 !== 0 }); // composites follow what nodes became
    const found = run(graph, false);
    moved += Number(found.moved);
    found.values.forEach((x, i) => {
      const error = nmse(x, expected.values[i]);
      assertEquals(x.length, expected.values[i].length);
      assert(error <= (graph.rough ? 1e-6 : 1e-10), `seed ${seed}, value ${graph.wanted[i]}: NMSE ${error}`);
    });
  }
  assertEquals(active(), before, "memory stays behind");
  assert(moved > count / 4, `takes moved in ${moved} of ${count} graphs`);
});

/** Rows of x (1, 4, 6), each times a matrix. */
function product(): mx.Tensor {
  return mx.tanh(mx.matmul(leaf([1, 4, 6], 1), leaf([6, 5], 2)));
}

function rowsOfProducts(nodes: readonly Node[]): number[] {
  return nodes.flatMap(({ op, shape }) => op === "matmul" ? [shape[1]] : []);
}

Deno.test("a take moves above what nobody else reads, and no other", () => {
  mx.setDefaultDevice(device);
  mx.tidy(() => {
    const [row, other, two] = [[2], [1], [2, 3]].map((rows) => mx.array(rows, mx.int32));
    const take = (x: mx.Tensor, index = row): mx.Tensor => mx.take(x, index, 1);
    const x = product();
    assertEquals(rowsOfProducts(pruned(take(x))), [1]);
    const shared = product();
    assertEquals(
      rowsOfProducts(
        pruned(take(shared), take(mx.negative(shared)), take(mx.exp(take(shared)), mx.array([0], mx.int32))),
      ),
      [1],
    );
    for (
      const keep of [
        (y: mx.Tensor) => [take(y), y],
        (y: mx.Tensor) => [take(y), mx.sum(y)],
        (y: mx.Tensor) => [take(y), take(y, other)],
        (y: mx.Tensor) => [take(y, two)],
        (y: mx.Tensor) => [take(mx.cumsum(y, 1))],
        (y: mx.Tensor) => [mx.take(y, mx.array(2, mx.int32), 1)],
      ]
    ) assertEquals(rowsOfProducts(pruned(...keep(product()))), [4], String(keep));
    const sum = take(mx.add(leaf([1, 4, 6], 1), leaf([1, 4, 6], 2))); // cheap: to take twice would be more dispatches
    pruned(sum);
    assertEquals(nodeOf(sum).op, "gather");
    // An array that is held, but not asked for, is what it was.
    const held = product();
    const found = take(held).toTypedArray() as Float32Array;
    const all = held.toTypedArray() as Float32Array;
    assert(nmse(found, all.subarray(10, 15)) < 1e-10);
  });
});

Deno.test("a row of joined products is computed once more where its input's row is there", () => {
  mx.setDefaultDevice(device);
  mx.tidy(() => {
    const x = leaf([1, 4, 6], 1);
    const [a, b] = mx.split(mx.matmul(mx.negative(x), leaf([6, 10], 2)), [6], -1);
    const [first, rest] = mx.split(a, [2], -1);
    const joined = mx.concatenate([mx.multiply(first, 2), rest], -1);
    const row = mx.take(mx.add(x, mx.matmul(mx.tanh(joined), leaf([6, 6], 3))), mx.array([2], mx.int32), 1);
    const all = mx.add(x, mx.matmul(mx.tanh(joined), leaf([6, 6], 3))).toTypedArray() as Float32Array;
    assertEquals(rowsOfProducts(pruned(row, b)).toSorted(), [1, 1, 4]);
    assert(nmse(row.toTypedArray() as Float32Array, all.subarray(12, 18)) < 1e-10);
  });
});

Deno.test("a take moves above experts, their choice and their router", () => {
  mx.setDefaultDevice(device);
  const [rows, hidden, size, experts, chosen] = [5, 6, 4, 3, 2];
  const how = { chosen, among: "chosen", normalized: false, sumEps: 0, factor: 1, groups: 1, closedGroups: 0 } as const;
  const matrices = {
    gate: { weight: leaf([experts, size, hidden], 3) },
    up: { weight: leaf([experts, size, hidden], 4) },
    down: { weight: leaf([experts, hidden, size], 5) },
  };
  const [x, router, biases] = [leaf([1, rows, hidden], 1), leaf([hidden, experts], 2), leaf([experts], 6)];
  const layer = (): mx.Tensor => {
    const given = mx.tanh(x).reshape(rows, hidden);
    const choice = chooseExperts(mx.matmul(given, router), how, { bias: biases });
    return expertMixture(given, choice, matrices, "silu").reshape(1, rows, hidden);
  };
  mx.tidy(() => {
    const row = mx.array([3], mx.int32);
    const all = layer();
    mx.eval(all);
    const expected = mx.take(all, row, 1).toTypedArray() as Float32Array;
    const result = mx.take(layer(), row, 1);
    const nodes = pruned(result).filter(({ op }) => ["matmul", "expertChoice", "expertMixture"].includes(op));
    assertEquals(nodes.map(({ shape }) => shape[0]), [1, 1, 1]);
    assert(nmse(result.toTypedArray() as Float32Array, expected) < 1e-12);
  });
});

Deno.test("the row of a compiled function is an input of it", () => {
  mx.setDefaultDevice(device);
  for (const window of [undefined, 3]) {
    mx.tidy(() => {
      const [k, w] = [leaf([1, 2, 9, 6], 3), leaf([6, 6], 4)];
      const all = (x: mx.Tensor, lengths: mx.Tensor): mx.Tensor => {
        const q = mx.fast.rope(mx.matmul(x, w), 6, { offset: lengths });
        const y = mx.fast.scaledDotProductAttention(q, k, k, {
          scale: 1,
          mask: "causal",
          window,
          lengths: mx.add(lengths, 4),
        });
        return mx.add(x, y);
      };
      const one = mx.compile((x: mx.Tensor, lengths: mx.Tensor, row: mx.Tensor) => mx.take(all(x, lengths), row, 2));
      const x = leaf([1, 2, 4, 6], 5);
      for (const count of [0, 3, 5, 7]) {
        const lengths = mx.array([count], mx.int32);
        const expected = all(x, lengths);
        mx.eval(expected);
        for (const row of [0, 1, 3, -1, -4, -6, 5]) {
          const index = mx.array([row], mx.int32);
          const [found, right] = [one(x, lengths, index), mx.take(expected, index, 2)].map((y) => y.toTypedArray());
          assert(nmse(found as Float32Array, right as Float32Array) < 1e-10, `row ${row} after ${count} keys`);
        }
      }
      one[Symbol.dispose]();
    });
  }
});

Deno.test("of the last layer of a model only keys and values are computed for rows that nobody asks for", async () => {
  const { model } = await mx.lm.load(TINY_DIR, { device });
  mx.setDefaultDevice(device);
  mx.tidy(() => {
    const tokens = mx.array([[5, 6, 7, 8]], mx.int32);
    const cache = model.makeCache();
    const nodes = pruned(model.forward(tokens, cache, mx.array([3], mx.int32)));
    const rows = (name: string): number[] =>
      nodes.flatMap(({ op, shape }) => op === name ? [shape[op === "attention" ? 2 : 1]] : []);
    const attended = rows("attention");
    assertEquals(attended, [...attended.slice(1).map(() => 4), 1]);
    const products = rows("quantizedMatmul");
    assertEquals(products.filter((n) => n === 4).length, 7 * attended.length - 5);
    assertEquals(products.filter((n) => n === 1).length, 6); // q, o, gate, up, down and the head
    assertEquals(nodes.filter((node) => node.op === "gather" && attrsOf(node, "gather").axis === 1).length, 1);
    cache.dispose();
  });
  model[Symbol.dispose]();
});
