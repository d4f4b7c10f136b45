/**
 * Random steps that read rows of a state in several ways and write others. In place where they may, they leave what the same steps leave with
 * copies alone.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { Tensor } from "../../../src/array/mod.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { nodeOf, wrap } from "../../../src/array/tensor/tensor.ts";
import { makeNode } from "../../../src/graph/node.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

const [ROWS, COLUMNS] = [6, 4];
const STEPS = 3;

/** Matrices, the numbers of rows, and what a step makes of them. */
type State = Record<"a" | "b" | "rows" | "out" | "copy", Tensor>;

/** Two rows of a matrix replaced. */
function written(base: Tensor, values: Tensor, rows: Tensor, donate: boolean): Tensor {
  const inputs = [base, rows, values].map(nodeOf);
  return wrap(makeNode("scatter", inputs, base.shape, base.dtype, { axis: 0, fn: "assign", donate }));
}

function attended(matrix: Tensor): Tensor {
  const keys = matrix.reshape(1, 1, ROWS, COLUMNS);
  const y = mx.fast.scaledDotProductAttention(mx.full([1, 1, 1, COLUMNS], 0.1), keys, keys, { scale: 0.5 });
  return mx.broadcastTo(y.reshape(1, COLUMNS), [2, COLUMNS]);
}

/** The step of a number, which is the same for both values of `donate`. */
function stepOf(seed: number, state: State, donate: boolean): State {
  const next = generator(seed);
  const below = (n: number): number => Math.floor(next() * n);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)];
  const matrices = [state.a, state.b];
  const values: Tensor[] = [mx.full([2, COLUMNS], 0.5)];
  const now = { a: state.a, b: state.b };
  for (let i = 3 + below(7); i > 0; i--) {
    const name = pick(["a", "b"] as const);
    const matrix = below(4) === 0 ? pick(matrices) : now[name];
    const rows = below(2) === 0 ? mx.array([below(ROWS), below(ROWS)], mx.int32) : mx.add(state.rows, below(2));
    const reads: readonly (() => Tensor)[] = [
      () => mx.take(matrix, rows, 0),
      () => mx.add(pick(values), pick(values)),
      () => attended(matrix),
      () => mx.multiply(matrix.index(mx.Slice(below(3), null)).index(mx.Slice(0, 2)), 0.5),
      () => mx.take(matrix.index(mx.Slice(1, null)), mx.array([below(5), below(5)], mx.int32), 0),
    ];
    const read = reads[below(reads.length + 3)];
    if (read) values.push(read());
    else {
      const target = mx.array([below(3), 3 + below(3)], mx.int32);
      now[name] = written(now[name], mx.multiply(pick(values), 0.75), target, donate);
      matrices.push(now[name]);
    }
  }
  const copy = below(3) === 0 ? mx.multiply(pick(matrices), 1) : state.copy;
  return { ...now, rows: state.rows, out: pick(values), copy };
}

function resultOf(seed: number, donate: boolean): unknown[] {
  const numbers = (factor: number): Tensor => mx.multiply(mx.arange(0, ROWS * COLUMNS, 1, mx.float32), factor);
  const state: State = {
    a: numbers(1).reshape(ROWS, COLUMNS),
    b: numbers(0.3).reshape(ROWS, COLUMNS),
    rows: mx.array([1, 4], mx.int32),
    out: mx.zeros([2, COLUMNS]),
    copy: mx.zeros([ROWS, COLUMNS]),
  };
  mx.eval(...Object.values(state));
  {
    using loop = new DeviceLoop(state, (now) => stepOf(seed, now, donate));
    for (let i = 0; i < STEPS; i++) loop.run();
  }
  const found = Object.values(state).map((array) => array.tolist());
  mx.dispose(state);
  return found;
}

for (const device of testDevices()) {
  Deno.test(`random writes in place leave what copies leave on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (let seed = 1; seed <= (device === "wasm" ? 150 : 12); seed++) {
      mx.tidy(() => assertEquals(resultOf(seed, true), resultOf(seed, false), `step ${seed}`));
    }
  });
}
