/**
 * matmul and matvec on every device, one dispatch each, against float64 loops. Bounds are normalised mean squared errors.
 */

import { assert } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import { tileColumns, tileRows, TILES, type TileShape, VECTORS } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { kernelTest as test } from "../support/devices/harness.ts";
import {
  BF16,
  check,
  F16,
  F32,
  folded,
  type How,
  I32,
  random,
  SMALL_TILE,
  tiled,
  tileHows,
  type Type,
  U8,
  vector,
  VECTOR_HOWS,
} from "../support/oracles/product_values.ts";

interface Product {
  readonly batchShape: readonly number[];
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly types: readonly [Type, Type, Type];
  /** Whether a and b are stored with their last two dimensions swapped, and whether every second element is skipped. */
  readonly swapped?: readonly [boolean, boolean];
  readonly gaps?: boolean;
  /** b is one matrix for all. */
  readonly broadcast?: boolean;
  /** Both run backwards along k. */
  readonly reversed?: boolean;
}

function product(backend: Backend, kernel: "matmul" | "matvec", p: Product, how: How): void {
  const { m, n, k, types: [A, B, Out] } = p;
  const batch = p.batchShape.reduce((x, d) => x * d, 1);
  const gap = p.gaps ? 2 : 1;
  const whole = Out.bound === 0;
  const numbers = (count: number): Float64Array =>
    random(count * gap, whole ? 50 : 1).map((v) => whole ? Math.trunc(v) : v);
  const a = A.pack(numbers(batch * m * k));
  const b = B.pack(numbers((p.broadcast ? 1 : batch) * k * n));
  const av = A.values(a);
  const bv = B.values(b);
  const strides = (rows: number, cols: number, swap: boolean): [number, number] =>
    swap ? [gap, rows * gap] : [cols * gap, gap];
  const [am, ak] = strides(m, k, p.swapped?.[0] ?? false);
  const [bk, bn] = strides(k, n, p.swapped?.[1] ?? false);
  const sign = p.reversed ? -1 : 1;
  const start = p.reversed && k > 0 ? k - 1 : 0;
  const expected = new Float64Array(batch * m * n);
  for (let z = 0; z < batch; z++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let t = 0; t < k; t++) {
          const at = start + sign * t;
          sum += av[z * m * k * gap + i * am + at * ak] * bv[(p.broadcast ? 0 : z * k * n * gap) + at * bk + j * bn];
        }
        expected[(z * m + i) * n + j] = sum;
      }
    }
  }
  // Strides of the batch dimensions, slowest first.
  const batchStrides = (step: number): number[] => {
    const list: number[] = [];
    for (let d = p.batchShape.length - 1; d >= 0; d--) {
      list.unshift(step);
      step *= p.batchShape[d];
    }
    return list;
  };
  const pad = (list: readonly number[], value: number): number[] => [...list, ...Array(3 - list.length).fill(value)];
  const types = { DTYPE_A: A.code, DTYPE_B: B.code, DTYPE_OUT: Out.code };
  const alongK = bk === 1;
  const few = vector({ ...how, columns: alongK ? how.columns : 8 }, batch, n);
  const { spec, workgroups, splits } = kernel === "matmul"
    ? tiled(how, batch, m, n)
    : { ...few, spec: { ...few.spec, ALONG_K: alongK ? 1 : 0 } };
  check(
    backend,
    kernel,
    {
      spec: { ...spec, ...types },
      push: {
        batch,
        m,
        n,
        k,
        batch_shape: pad(p.batchShape, 1),
        a_batch_strides: pad(batchStrides(m * k * gap), 0),
        b_batch_strides: pad(batchStrides(p.broadcast ? 0 : k * n * gap), 0),
        a_strides: [am, ak * sign],
        b_strides: [bk * sign, bn],
      },
      buffers: { a, b },
      offsets: { a: start * ak * a.BYTES_PER_ELEMENT, b: start * bk * b.BYTES_PER_ELEMENT },
      grid: folded(workgroups),
    },
    Out,
    expected,
    JSON.stringify({ ...p, types: p.types.map((t) => t.name), ...how }),
    Out.bound,
    splits,
  );
}

const FLOATS: readonly (readonly [Type, Type, Type])[] = [[F32, F32, F32], [BF16, BF16, BF16], [F16, F16, F16], [
  F32,
  BF16,
  F32,
]];
const LAYOUTS: readonly (readonly [boolean, boolean])[] = [[false, false], [false, true], [true, false], [true, true]];

for (const kernel of ["matmul", "matvec"] as const) {
  const rows = kernel === "matmul" ? [1, 5, 33, 70] : [1, 3, 8];
  const hows = (backend: Backend): readonly How[] => kernel === "matmul" ? tileHows(backend) : VECTOR_HOWS;
  test(`${kernel}() matches plain loops over layouts and float dtypes`, (backend) => {
    for (const how of hows(backend)) {
      for (const types of how === SMALL_TILE || how === VECTOR_HOWS[0] ? FLOATS : FLOATS.slice(1, 2)) {
        for (const swapped of LAYOUTS) {
          product(backend, kernel, { batchShape: [], m: rows[1], n: 37, k: 45, types, swapped }, how);
          product(backend, kernel, { batchShape: [], m: rows.at(-1)!, n: 64, k: 64, types, swapped }, how);
        }
      }
    }
  });

  test(`${kernel}() takes sizes 0 and 1, gaps, negative strides and batches`, (backend) => {
    const types = [F32, F32, F32] as const;
    for (const how of kernel === "matmul" ? [SMALL_TILE] : VECTOR_HOWS) {
      product(backend, kernel, { batchShape: [], m: 3, n: 5, k: 0, types }, how);
      product(backend, kernel, { batchShape: [], m: 0, n: 5, k: 3, types }, how);
      product(backend, kernel, { batchShape: [0], m: 2, n: 5, k: 3, types }, how);
      for (const m of rows) product(backend, kernel, { batchShape: [], m, n: 1, k: 1, types }, how);
      for (const swapped of LAYOUTS) {
        product(backend, kernel, { batchShape: [2, 3], m: 2, n: 19, k: 9, types, swapped, gaps: true }, how);
        product(
          backend,
          kernel,
          { batchShape: [2, 1, 3], m: 3, n: 17, k: 40, types, swapped, broadcast: true },
          how,
        );
        product(backend, kernel, { batchShape: [2], m: 2, n: 18, k: 33, types, swapped, reversed: true }, how);
      }
    }
  });

  test(`${kernel}() computes integers exactly`, (backend) => {
    const how = kernel === "matmul" ? SMALL_TILE : VECTOR_HOWS[0];
    for (const [A, B] of [[I32, I32], [U8, I32]]) {
      for (const swapped of LAYOUTS) {
        product(backend, kernel, { batchShape: [2], m: 4, n: 21, k: 35, types: [A, B, I32], swapped }, how);
      }
    }
  });

  test(`${kernel}() keeps every term of a long sum`, (backend) => {
    const how = hows(backend).at(-1)!;
    for (const swapped of LAYOUTS) {
      product(backend, kernel, { batchShape: [], m: 2, n: 3, k: 70_001, types: [F32, F32, F32], swapped }, how);
    }
  });
}

test("matmul() takes results of several tiles in both directions", (backend) => {
  for (const how of tileHows(backend)) {
    const rows = tileRows(how as TileShape), columns = tileColumns(how as TileShape);
    for (const swapped of LAYOUTS) {
      const types = [BF16, BF16, BF16] as const;
      product(backend, "matmul", { batchShape: [], m: rows + 3, n: columns + 5, k: 50, types, swapped }, how);
    }
  }
});

Deno.test("tiles and few rows stay within 32 KiB of shared memory", () => {
  for (const shape of TILES) assert(4 * shape.depth * (tileRows(shape) + tileColumns(shape)) <= 32768);
  for (const { upTo, threads, columns } of VECTORS) {
    const values = upTo * columns, parts = Math.max(1, Math.floor(threads / values));
    assert(4 * values * (threads + parts) <= 32768, `${upTo} rows, ${threads} threads`);
  }
});
